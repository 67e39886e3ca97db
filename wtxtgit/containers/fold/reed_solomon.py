"""Reed-Solomon parity of FOLD chunks, over GF(256): computing it, and mending payloads with it.

Each block of 255 - n bytes of a payload has n parity bytes, in order; the last block may be
shorter. Field polynomial 0x11d, generator 2, first root 1, as in reedsolo. Parity is computed here,
for all blocks of a slab at once; the few blocks that need it are mended by reedsolo. Spec:
`docs/spec/fold.md`, "Parity".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.containers.fold.read import CODEWORD
from wtxtgit.io.view import Buffer, ByteView, mapped

FIELD_POLYNOMIAL = 0x11D
# Bytes of parity that are XORed at once: numpy has no wider integers.
WORD = 8
# Number of blocks whose parity is computed at once: 1 MiB of payload, or less.
SLAB = 4096
# The most damaged blocks that are tried; each takes milliseconds.
MAX_DAMAGED = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Mended:
    """A payload with its damaged blocks mended, so far as possible.

    `patches` are the mended blocks with their positions. `damaged` counts the blocks that did not
    match their parity, `given_up` those that stay damaged. Only a hash shows whether the payload is
    whole.
    """

    payload: ByteView
    patches: tuple[tuple[int, bytes], ...]
    damaged: int
    given_up: int


def encode(payload: ByteView, n: int) -> Iterator[bytes]:
    """Yield the parity of a payload, one slab of its blocks at a time; `n` is 1 to 254."""
    step = SLAB * (CODEWORD - n)
    for start in range(0, len(payload), step):
        yield _encode_slab(payload[start : start + step], n).tobytes()


class Encoder:
    """Computes the parity of a payload that comes in pieces; `n` is 1 to 254."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._buffer = bytearray()
        self._parity: list[bytes] = []

    def update(self, piece: Buffer) -> None:
        self._buffer += piece
        step = SLAB * (CODEWORD - self._n)
        whole = len(self._buffer) // step * step
        if whole:
            self._parity += encode(memoryview(bytes(self._buffer[:whole])), self._n)
            del self._buffer[:whole]

    def finish(self) -> list[bytes]:
        """Return the whole parity, in pieces."""
        self._parity += encode(memoryview(bytes(self._buffer)), self._n)
        return self._parity


def mend(payload: ByteView, parity: ByteView, n: int, most: int = MAX_DAMAGED) -> Mended:
    """Mend the blocks of a payload that do not match `parity`.

    Up to n / 2 wrong bytes of a block and its parity can be located and corrected. `parity` has
    `parity_len` bytes. Damaged blocks after the first `most` are given up.
    """
    block = CODEWORD - n
    mended = bytearray(mapped(payload))
    patches = []
    damaged = given_up = 0
    stored = np.frombuffer(mapped(parity), np.uint8).reshape(-1, n)
    for start in range(0, len(payload), SLAB * block):
        first = start // block
        expected = _encode_slab(payload[start : start + SLAB * block], n)
        wrong = np.not_equal(expected, stored[first : first + len(expected)]).any(axis=1)
        for number in (np.flatnonzero(wrong) + first).tolist():
            damaged += 1
            at = number * block
            word = bytes(payload[at : at + block]) + stored[number].tobytes()
            data = None if damaged > most else _decoded(n, word)
            if data is None:
                given_up += 1
            else:
                mended[at : at + len(data)] = data
                patches.append((at, data))
    return Mended(memoryview(mended).toreadonly(), tuple(patches), damaged, given_up)


def is_parity(payload: ByteView, parity: ByteView, n: int, blocks: int) -> bool:
    """Whether the first `blocks` blocks, at most a slab, match the stored parity."""
    expected = _encode_slab(payload[: min(blocks, SLAB) * (CODEWORD - n)], n)
    return expected.tobytes() == parity[: expected.size]


# Cached: it takes milliseconds, and a file's blocks are decoded when it is checked and again when
# it is listed or mended.
@lru_cache(maxsize=MAX_DAMAGED)
def _decoded(n: int, word: bytes) -> bytes | None:
    """Return the corrected data of a block and its parity, None if there are too many errors."""
    import reedsolo

    try:
        data, _, _ = _codec(n).decode(word)
    except (reedsolo.ReedSolomonError, ArithmeticError, LookupError, ValueError):
        # For some words reedsolo divides by zero or reads beyond a table.
        return None
    return bytes(data)


@lru_cache(maxsize=4)
def _codec(n: int) -> Any:
    import reedsolo

    return reedsolo.RSCodec(n)


def _encode_slab(payload: ByteView, n: int) -> NDArray[np.uint8]:
    """Return the parity of at most SLAB blocks: a row of n bytes for each."""
    block = CODEWORD - n
    raw = mapped(payload)
    whole, rest = divmod(len(raw), block)
    data = np.zeros((whole + bool(rest), block), np.uint8)
    data[:whole] = np.frombuffer(raw[: whole * block], np.uint8).reshape(whole, block)
    if rest:
        # Zeros before a short block change nothing: they are the higher coefficients of its
        # polynomial.
        data[whole, block - rest :] = np.frombuffer(raw[whole * block :], np.uint8)
    tables = _tables(n)
    parity = np.zeros((len(data), tables.shape[2]), np.uint64)
    for column, table in zip(np.ascontiguousarray(data.T), tables, strict=True):
        parity ^= table[column]
    return np.ascontiguousarray(parity.view(np.uint8)[:, :n])


@lru_cache(maxsize=4)
def _tables(n: int) -> NDArray[np.uint64]:
    """Return, for each position in a block and each byte value, its contribution to the parity.

    Shape (255 - n, 256, words of parity); the last words are padded with zeros.
    """
    power, log = _field()

    def times(factor: int, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        product = power[(log[factor] + log[values]) % CODEWORD]
        return np.where((values == 0) | (factor == 0), 0, product).astype(np.uint8)

    generator = np.array([1], np.uint8)
    for root in power[:n].tolist():
        shifted = np.zeros(len(generator) + 1, np.uint8)
        shifted[:-1] = generator
        shifted[1:] ^= times(root, generator)
        generator = shifted
    block = CODEWORD - n
    # x**(n + k) modulo the generator, for the k-th place from the end.
    remainders = np.zeros((block, n), np.uint8)
    remainder = generator[1:]
    for place in reversed(range(block)):
        remainders[place] = remainder
        shifted = np.zeros(n, np.uint8)
        shifted[:-1] = remainder[1:]
        remainder = shifted ^ times(int(remainder[0]), generator[1:])
    padded = np.zeros((block, 256, -(-n // WORD) * WORD), np.uint8)
    for value in range(1, 256):
        padded[:, value, :n] = times(value, remainders)
    return padded.view(np.uint64)


@lru_cache(maxsize=1)
def _field() -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return powers of the generator 2, and each byte's logarithm (that of 0 is meaningless)."""
    power, log = np.zeros(CODEWORD, np.intp), np.zeros(256, np.intp)
    value = 1
    for exponent in range(CODEWORD):
        power[exponent], log[value] = value, exponent
        value <<= 1
        if value > CODEWORD:
            value ^= FIELD_POLYNOMIAL
    return power, log
