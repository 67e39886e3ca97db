"""Numbers that may be counts and places, changed, and parts of files put together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Mutant = Callable[[bytes, random.Random], bytes]
"""Makes a mutant of a file."""

EXTREMES = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, -1)
WIDTHS = (2, 4, 8)
_Numbers = tuple[int, NDArray[np.intp], NDArray[np.intp]]
"""Bytes of a number, and the offsets of those that are little-endian and big-endian."""


def number_mutant(data: bytes, rng: random.Random) -> bytes:
    """A number that may be a count, a length or an offset of this file, changed."""
    groups = _numbers(data)
    if not groups:
        return data + bytes(8)
    at, width, order = _place(groups, rng)
    value = int.from_bytes(data[at : at + width], order)
    other_at, other_width, other_order = _place(groups, rng)
    other = int.from_bytes(data[other_at : other_at + other_width], other_order)
    size = len(data)
    near = (value + 1, value - 1, value + 8, value * 2, size - at, size - value, size, size + 1)
    number = rng.choice((rng.choice(EXTREMES), rng.choice(near), other))
    return data[:at] + (number % 256**width).to_bytes(width, order) + data[at + width :]


def _place(
    groups: Sequence[_Numbers], rng: random.Random
) -> tuple[int, int, Literal["little", "big"]]:
    width, little, big = rng.choice(groups)
    number = rng.randrange(len(little) + len(big))
    if number < len(little):
        return int(little[number]), width, "little"
    return int(big[number - len(little)]), width, "big"


@lru_cache(maxsize=512)
def _numbers(data: bytes) -> tuple[_Numbers, ...]:
    """By width, where numbers stand that the file's size makes likely to be counts or places."""
    found = ((w, _likely(data, f"<u{w}"), _likely(data, f">u{w}")) for w in WIDTHS)
    return tuple(numbers for numbers in found if len(numbers[1]) + len(numbers[2]))


def _likely(data: bytes, dtype: str) -> NDArray[np.intp]:
    """Offsets of the numbers of 1 to the file's size."""
    count = len(data) - np.dtype(dtype).itemsize + 1
    if count < 1:
        return np.zeros(0, np.intp)
    numbers = np.ndarray(count, dtype, data, strides=1)
    return np.flatnonzero((numbers != 0) & (numbers <= len(data)))


def spliced(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Parts of two files, or of one in another order."""
    one, two = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    start, end = sorted(rng.randrange(len(other) + 1) for _ in range(2))
    return rng.choice(
        (
            data[:one] + other[start:],
            data[:one] + other[one:],
            data[:one] + other[start:end] + data[two:],
            data[:one] + other[one:two] + data[two:],
            data[:one] + data[two:] + data[one:two],
            data[:two] + data[one:],
            data[:one] + data[one:two] * 3 + data[two:],
            data + other,
            data + rng.randbytes(rng.choice((1, 7, 64))),
        )
    )
