"""CRC-32C as a linear map: which changes of a chunk's bytes explain a wrong checksum.

For two byte strings of equal length, the XOR of their CRC-32Cs depends only on the XOR of their
bytes, and is the XOR of the contributions of the positions at which they differ. So a change has a
syndrome, independent of the rest of the chunk, and a set of changes that turns one checksum into
another can be looked up instead of tried. Syndromes are uint32, bytes are uint8, sizes are in
bytes.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

U1 = NDArray[np.uint8]
U4 = NDArray[np.uint32]

# Castagnoli, reflected: docs/spec/wtxt.md, section "Chunks".
_POLYNOMIAL = 0x82F63B78


@cache
def _byte_table() -> U4:
    """Return the syndrome of each value of a byte at the end."""
    table = np.arange(256).astype(np.uint32)
    for _ in range(8):
        half = table >> np.uint32(1)
        table = np.where(table & np.uint32(1), half ^ np.uint32(_POLYNOMIAL), half)
    return table


def of_bytes(rows: U1) -> U4:
    """Return the syndromes of the rows of an array of shape (count, size), at the data's end."""
    table = _byte_table()
    state = np.zeros(len(rows), dtype=np.uint32)
    for column in rows.T:
        state = (state >> 8) ^ table[(state ^ column) & 0xFF]
    return state


def followed(syndromes: U4, nbytes: int) -> U4:
    """Return the syndromes of the same changes `nbytes` bytes further from the end."""
    power = 0
    while nbytes:
        if nbytes & 1:
            syndromes = _applied(_shift(power), syndromes)
        nbytes, power = nbytes >> 1, power + 1
    return syndromes


def of_bits(nbytes: int) -> U4:
    """Return the syndrome of every single bit of `nbytes` bytes, of shape (nbytes * 8,).

    Bits are in the order of base64: the highest bit of the first byte first.
    """
    bits = _byte_table()[[0x80 >> k for k in range(8)]].reshape(1, 8)
    # Start with the last byte; each step doubles the bytes by adding as many before them.
    while len(bits) < nbytes:
        bits = np.concatenate((bits, followed(bits, len(bits))))
    return np.ascontiguousarray(bits[:nbytes][::-1]).reshape(-1)


def _applied(tables: U4, syndromes: U4) -> U4:
    moved: U4 = tables[0][syndromes & 0xFF]
    for k in range(1, 4):
        moved = moved ^ tables[k][(syndromes >> 8 * k) & 0xFF]
    return moved


@lru_cache(maxsize=64)
def _shift(power: int) -> U4:
    """Return tables of shape (4, 256) that move bytes of a syndrome by 2 ** `power` zero bytes."""
    values = np.arange(256, dtype=np.uint32)
    syndromes = np.stack([values << np.uint32(8 * k) for k in range(4)])
    if power:
        half = _shift(power - 1)
        return _applied(half, _applied(half, syndromes))
    one: U4 = (syndromes >> 8) ^ _byte_table()[syndromes & 0xFF]
    return one
