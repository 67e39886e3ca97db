"""The plan of a text: where everything will stand, before a byte is hashed.

All sizes are known beforehand, because every line has a fixed length. An array
is cut into chunks (`docs/spec/wtxt.md`, section "Arrays"), and the chunks of all
arrays into runs of about 1 MiB, each armored in one go: some chunks of a long
array, or several short arrays. A text is a header, the runs, before each long
array's its `arr` and `idx` lines, and a footer; each of these is a span. All
sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from wtxtgit.errors import TextError
from wtxtgit.io.view import mapped
from wtxtgit.model.array import (
    ITEM_SIZE,
    MAX_CHUNKS,
    TARGET_CHUNK,
    Array,
    Rows,
    Snapshot,
    chunk_count,
    default_rows,
)
from wtxtgit.text import armor, digest, grammar
from wtxtgit.text.armor import chunk_text_size
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


_HASHES_SIZE = len(grammar.format_array_hashes(bytes(32), bytes(32), bytes(8)))
RUN_TEXT = 3 * BLOCK_BYTES // 2
"""Most bytes of text in a run of more than one block; a full block of 1 MiB fits."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, `size` bytes from `start` on."""

    start: int
    size: int


@dataclass(slots=True)
class ArrayPlan:
    """An array's geometry, and its digests once they are known.

    A short array lies within one run, its `arr` and `idx` lines too. Those of
    a long one are the span `span`.
    """

    source: Array
    chunk_size: int
    chunks: int
    line_start: bytes
    rows_line: bytes
    hmac: bytes
    salt: bytes
    is_long: bool = False
    span: int = 0
    sha256: bytes = b""

    @property
    def lead(self) -> int:
        """Bytes of the `arr` and `idx` lines."""
        return len(self.line_start) + _HASHES_SIZE + len(self.rows_line)

    @property
    def claim(self) -> grammar.ArrayLine:
        source = self.source
        return grammar.ArrayLine(
            source.name,
            source.dtype,
            source.shape,
            source.data.nbytes,
            self.sha256 or bytes(32),
            self.hmac,
            self.salt,
        )

    def line(self) -> bytes:
        hashes = grammar.format_array_hashes(self.sha256 or bytes(32), self.hmac, self.salt)
        return self.line_start + hashes

    def lines(self) -> bytes:
        """What stands before the chunks."""
        return self.line() + self.rows_line


@dataclass(slots=True)
class PlannedBlock:
    """`count` chunks of `size` bytes from chunk `first` of an array, and their digests."""

    array: ArrayPlan
    first: int
    count: int
    size: int
    sha256: list[bytes] = field(default_factory=list)
    crc32c: list[int] = field(default_factory=list)
    fastxor: int = 0

    @property
    def is_last(self) -> bool:
        return self.first + self.count == self.array.chunks

    @property
    def offset(self) -> int:
        """Where its bytes stand in the array."""
        return self.first * self.array.chunk_size

    @property
    def raw(self) -> memoryview:
        if self.array.chunks == 1:
            return mapped(self.array.source.data)
        return mapped(self.array.source.data[self.offset : self.offset + self.count * self.size])


@dataclass(slots=True)
class BlockRun:
    """Blocks that stand one after another in the text: all of span `span`."""

    span: int
    blocks: list[PlannedBlock]


class TextPlan:
    """The arrays, runs and spans of a snapshot's text.

    `header` and `footer` are their sizes in bytes. With `hmac_key` all arrays
    are given a salt. Raises TextError for arrays that no text can hold.
    """

    def __init__(
        self, snapshot: Snapshot, header: int, footer: int, hmac_key: bytes | None
    ) -> None:
        self.arrays: list[ArrayPlan] = []
        self.runs: list[BlockRun] = []
        self.spans: list[Span] = []
        self.size = 0
        self._blocks: list[PlannedBlock] = []
        self._pending = 0
        self._add_span(header)
        for array in snapshot.arrays:
            plan = _plan_array(array, hmac_key, snapshot.meta.gen)
            self.arrays.append(plan)
            self._add_array(plan)
        self._end_run()
        self._add_span(footer)

    def _add_array(self, plan: ArrayPlan) -> None:
        size = plan.lead + _body_size(plan)
        plan.is_long = size > RUN_TEXT
        if not plan.is_long:
            if self._pending + size > RUN_TEXT:
                self._end_run()
            self._blocks += blocks_of(plan)
            self._pending += size
            return
        self._end_run()
        plan.span = len(self.spans)
        self._add_span(plan.lead)
        for block in blocks_of(plan):
            size = block.count * chunk_text_size(block.size)
            if block.is_last:
                size += len(grammar.END_ARRAY)
            if self._pending + size > RUN_TEXT:
                self._end_run()
            self._blocks.append(block)
            self._pending += size
        self._end_run()

    def _end_run(self) -> None:
        if self._blocks:
            self.runs.append(BlockRun(len(self.spans), self._blocks))
            self._add_span(self._pending)
            self._blocks, self._pending = [], 0

    def _add_span(self, size: int) -> None:
        self.spans.append(Span(self.size, size))
        self.size += size


def _plan_array(array: Array, hmac_key: bytes | None, gen: int) -> ArrayPlan:
    size = chunk_size(array.rows)
    check_fits(array.name, array.data.nbytes, size)
    hmac, salt = array.hmac or bytes(32), array.salt or bytes(8)
    if hmac_key is not None:
        hmac, salt = bytes(32), array.salt or digest.salt_for(hmac_key, gen, array.name)
    nbytes = array.data.nbytes
    return ArrayPlan(
        array,
        size,
        chunk_count(nbytes, size),
        grammar.format_array_start(array.name, array.dtype, array.shape, nbytes),
        b"" if array.rows is None else grammar.format_rows(array.rows),
        hmac,
        salt,
    )


def _body_size(plan: ArrayPlan) -> int:
    """Bytes of text from an array's first `ch` line to its `endarr`."""
    if plan.chunks == 1:
        return len(grammar.END_ARRAY) + chunk_text_size(plan.source.data.nbytes)
    whole, tail = divmod(plan.source.data.nbytes, plan.chunk_size)
    size = len(grammar.END_ARRAY) + (whole * chunk_text_size(plan.chunk_size) if whole else 0)
    if tail or not whole:
        size += chunk_text_size(tail)
    return size


def blocks_of(plan: ArrayPlan) -> Iterator[PlannedBlock]:
    """Cut an array into blocks whose chunks are all of one size."""
    nbytes = plan.source.data.nbytes
    return (PlannedBlock(plan, *found) for found in cut(nbytes, plan.chunk_size, 0, plan.chunks))
