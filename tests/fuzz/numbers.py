"""Numbers that may be counts and places, changed, and parts of files put together."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

Mutant = Callable[[bytes, random.Random], bytes]
"""Makes a mutant of a file."""

EXTREMES = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, -1)
ORDERS: tuple[Literal["little"], Literal["big"]] = "little", "big"
WIDTHS = (2, 4, 8)
_Place = tuple[int, int, Literal["little", "big"]]


def number_mutant(data: bytes, rng: random.Random) -> bytes:
    """A number that may be a count, a length or an offset of this file, changed."""
    places = [group for group in _numbers(data) if group]
    if not places:
        return data + bytes(8)
    at, width, order = rng.choice(rng.choice(places))
    value = int.from_bytes(data[at : at + width], order)
    other_at, other_width, other_order = rng.choice(rng.choice(places))
    other = int.from_bytes(data[other_at : other_at + other_width], other_order)
    size = len(data)
    near = (value + 1, value - 1, value + 8, value * 2, size - at, size - value, size, size + 1)
    number = rng.choice((rng.choice(EXTREMES), rng.choice(near), other))
    return data[:at] + (number % 256**width).to_bytes(width, order) + data[at + width :]


@lru_cache(maxsize=512)
def _numbers(data: bytes) -> tuple[tuple[_Place, ...], ...]:
    """By width, where numbers stand that the file's size makes likely to be counts or places."""
    return tuple(
        tuple(
            (at, width, order)
            for order in ORDERS
            for at in range(len(data) - width + 1)
            if 0 < int.from_bytes(data[at : at + width], order) <= len(data)
        )
        for width in WIDTHS
    )


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
