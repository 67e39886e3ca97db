"""Row blocking as our writer chooses it: how an array's bytes are cut into chunks.

`docs/spec/wtxt.md`, section "Row blocking". All sizes are in bytes.
"""

from __future__ import annotations

from wtxtgit.model import ITEM_SIZE, Rows

TARGET_CHUNK = 65_536
"""A chunk of ours holds at most this much, as a row does."""
MAX_CHUNKS = 1_000_000
"""Chunks of one array: `ix` has exactly 6 digits."""


def default_rows(dtype: str, shape: tuple[int, ...]) -> Rows:
    """The blocking that our writer chooses: a pure function of dtype and shape.

    The row is the largest trailing part of the shape (from the second
    dimension on) that fits a chunk, at least one item; a chunk is the largest
    power of two of rows that fits. A dimension of 0 counts as 1.
    """
    row_size = ITEM_SIZE[dtype]
    for dim in reversed(shape[1:]):
        wider = row_size * max(dim, 1)
        if wider > TARGET_CHUNK:
            break
        row_size = wider
    return Rows(1 << (TARGET_CHUNK // row_size).bit_length() - 1, row_size)


def chunk_count(nbytes: int, size: int) -> int:
    return max(1, -(-nbytes // size))
