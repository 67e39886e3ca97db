"""The plan of a text: where everything will stand, before a byte is hashed.

All sizes are known beforehand, because every line has a fixed length. The
arrays are cut into runs of about 1 MiB, each armored in one go: some chunks of
a long array, or several short arrays. A text is a header, the runs, before
each long array's its `arr` and `idx` lines, and a footer; each of these is a
span.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wtxtgit.io.view import mapped
from wtxtgit.model import Array, Snapshot
from wtxtgit.model.rows import chunk_count
from wtxtgit.text import blocking, digest, grammar
from wtxtgit.text.blocking import BLOCK_BYTES, cut
from wtxtgit.text.render import chunk_text_size

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
class Block:
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
class Run:
    """Blocks that stand one after another in the text: all of span `span`."""

    span: int
    blocks: list[Block]


class Plan:
    """The arrays, runs and spans of a snapshot's text.

    `header` and `footer` are their sizes in bytes. With `hmac_key` all arrays
    are given a salt. Raises TextError for arrays that no text can hold.
    """

    def __init__(
        self, snapshot: Snapshot, header: int, footer: int, hmac_key: bytes | None
    ) -> None:
        self.arrays: list[ArrayPlan] = []
        self.runs: list[Run] = []
        self.spans: list[Span] = []
        self.size = 0
        self._blocks: list[Block] = []
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
            self.runs.append(Run(len(self.spans), self._blocks))
            self._add_span(self._pending)
            self._blocks, self._pending = [], 0

    def _add_span(self, size: int) -> None:
        self.spans.append(Span(self.size, size))
        self.size += size


def _plan_array(array: Array, hmac_key: bytes | None, gen: int) -> ArrayPlan:
    size = blocking.chunk_size(array.rows)
    blocking.check_fits(array.name, array.data.nbytes, size)
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


def blocks_of(plan: ArrayPlan) -> Iterator[Block]:
    """Cut an array into blocks whose chunks are all of one size."""
    nbytes = plan.source.data.nbytes
    return (Block(plan, *found) for found in cut(nbytes, plan.chunk_size, 0, plan.chunks))
