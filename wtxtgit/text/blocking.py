"""Row blocking: how an array's bytes are cut into chunks.

`docs/spec/wtxt.md`, section "Arrays". All sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from wtxtgit.errors import TextError
from wtxtgit.model import ITEM_SIZE, Rows
from wtxtgit.model.rows import MAX_CHUNKS, TARGET_CHUNK, chunk_count, default_rows
from wtxtgit.text import armor, grammar
from wtxtgit.text.grammar import MAX_NUMBER, MAX_OFFSET

PLAIN_CHUNK = 32_768
"""Chunk size without row blocking."""
BLOCK_CHUNKS = 16
BLOCK_BYTES = 1024 * 1024
"""Chunks are armored and read in blocks of at most so many, and so many raw bytes."""


_SHORT = 64 * 1024
"""Chunks of at most so many bytes are armored and read together: steps for each would cost more."""

T = TypeVar("T")


def cut(nbytes: int, size: int, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Cut chunks `first` to `end` (not including it) of an array into blocks.

    `nbytes` is the array's size, `size` that of its chunks. Gives each block's
    first chunk, count of chunks, and the bytes that each of them has.
    """
    whole = min(end, nbytes // size)
    step = max(1, min(BLOCK_CHUNKS, BLOCK_BYTES // size))
    while first < whole:
        count = min(step, whole - first)
        yield first, count, size
        first += count
    if first < end:
        yield first, 1, max(0, min(size, nbytes - first * size))


def gathered(blocks: Iterable[T], chunk: Callable[[T], int | None]) -> Iterator[list[T]]:
    """Blocks in order, those of short chunks together, as armor.encode_short wants them.

    `chunk` gives the bytes of a block that is a single chunk, None for others.
    """
    group: list[T] = []
    lines = 0
    for block in blocks:
        size = chunk(block)
        is_short = size is not None and size <= _SHORT
        more = armor.line_count(size or 0)
        if group and (not is_short or lines + more > armor.PASS_LINES):
            yield group
            group, lines = [], 0
        if is_short:
            group.append(block)
            lines += more
        else:
            yield [block]
    if group:
        yield group


def bounded_product(shape: tuple[int, ...], item: int = 1) -> int | None:
    """`item` times the product of `shape`, None where it has over 20 digits.

    A shape may claim a million dimensions: the product stops growing at the
    bound instead of becoming a number of megabytes.
    """
    if 0 in shape:
        return 0
    total = item
    for dim in shape:
        total *= dim
        if total > MAX_NUMBER:
            return None
    return total


def chunk_size(rows: Rows | None) -> int:
    if rows is None or not rows.blocking:
        return PLAIN_CHUNK
    return rows.rows_per_chunk * rows.row_size


def text_size(nbytes: int) -> int:
    """Estimate how many bytes of text hold `nbytes` of one large array."""
    return nbytes * _full_chunk_text() // TARGET_CHUNK


def binary_size(text: int) -> int:
    """Estimate how many bytes of one large array make `text` bytes of text."""
    return text * TARGET_CHUNK // _full_chunk_text()


def _full_chunk_text() -> int:
    lines = -(-TARGET_CHUNK // grammar.LINE_RAW)
    line = grammar.ChunkLine(0, 0, TARGET_CHUNK, bytes(32), 0, lines)
    return len(grammar.format_chunk(line) + grammar.END_CHUNK) + lines * grammar.LINE_TEXT


def check_rows(rows: Rows, dtype: str) -> str | None:
    """Say what is wrong with an `idx` line for an array of `dtype`, or None."""
    if not (1 <= rows.rows_per_chunk <= MAX_NUMBER and 1 <= rows.row_size <= MAX_NUMBER):
        return "rows_per_chunk and row_size are at least 1 and have at most 20 digits"
    if rows.row_size % ITEM_SIZE[dtype]:
        return f"row_size {rows.row_size} is no multiple of {dtype}'s {ITEM_SIZE[dtype]} bytes"
    return None


def check_fits(name: str, nbytes: int, size: int) -> None:
    """Raise TextError "limit" where the array's chunks can't be numbered."""
    count = chunk_count(nbytes, size)
    if count > MAX_CHUNKS or (count - 1) * size > MAX_OFFSET:
        raise TextError(
            "limit",
            f'array "{name}" of {nbytes} bytes has {count} chunks of {size} bytes: '
            f"the format ends at {MAX_CHUNKS} chunks and offset {MAX_OFFSET}",
            array=name,
        )


def rows_for(dtype: str, shape: tuple[int, ...], rows_per_chunk: int | None) -> Rows:
    """The default blocking, with the user's number of rows a chunk where given."""
    rows = default_rows(dtype, shape)
    if rows_per_chunk is None:
        return rows
    if rows_per_chunk < 1:
        raise TextError("structure", f"rows_per_chunk is {rows_per_chunk}, at least 1 is wanted")
    return Rows(rows_per_chunk, rows.row_size)
