"""Writing WTXT: a snapshot becomes text, a pure function of its input.

A plan comes first (`TextPlan`): since every line has a fixed length, all sizes are known before a
byte is hashed. Arrays are cut into chunks (`docs/spec/wtxt.md`, section "Arrays"), and the chunks
of all arrays into runs of about 1 MiB, each armored in one go: some chunks of a long array, or
several short arrays. A text consists of spans: a header, the runs, the `arr` and `idx` lines
before the runs of each long array, and a footer. All sizes are in bytes.

Most of the time goes into three SHA-256 passes: each array's own, each chunk's, and hash_all,
which needs the arrays' own hashes first. The caller's thread computes hash_all; other threads
hash and armor the runs, and so does the caller's while hash_all has to wait.

`render` hands out spans as they are made, and at the end those that contain digests: for files
that can be written at any position, or anything else that takes pieces by number. For a pipe
(`stream`) everything is hashed first and then armored run by run, with a bounded number of runs
in flight.

A detached text (`docs/spec/detached.md`) is planned and hashed in the same runs. For the chunks
of larger arrays it has only the `ch` lines, and each of these chunks is handed to the payload's
keeper when it is hashed.
"""

from __future__ import annotations

import threading
from array import array as packed_array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from struct import iter_unpack

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, hashed, mapped, pieces, write_at
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import (
    ITEM_SIZE,
    LAYOUT_ARRAY,
    MAX_CHUNKS,
    Array,
    ChunkNames,
    Keep,
    Meta,
    Rows,
    Signature,
    Snapshot,
    bounded_product,
    chunk_count,
)
from wtxtgit.model.checksum import crc32c
from wtxtgit.text import digest, grammar
from wtxtgit.text.block_armor import U1, encode_short, render_chunks
from wtxtgit.text.grammar import BLOCK_BYTES, chunk_size, chunk_text_size, cut, grouped

_NO_HMAC, _NO_SALT = bytes(32), bytes(8)
_HASHES_SIZE = len(grammar.format_array_hashes(bytes(32), bytes(32), bytes(8)))
RUN_TEXT = 3 * BLOCK_BYTES // 2
"""The most bytes of text in a run of several blocks; a full block of 1 MiB fits."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: `size` bytes from `start` on."""

    start: int
    size: int


@dataclass(slots=True)
class ArrayPlan:
    """An array's geometry, and its digests once they are known.

    A short array lies within one run, including its `arr` and `idx` lines. For a long array these
    lines are the span number `span`.
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
    is_detached: bool = False
    # The hashes of its chunks, once hashing begins; `_names` has one SHA-256 after another. In a
    # file of a hundred thousand arrays, buffers for each that has one chunk would take most memory.
    _names: bytearray | None = None
    _checksums: packed_array[int] | None = None
    _checksum: int = 0

    @property
    def is_hashed(self) -> bool:
        """Whether hashing its chunks has begun."""
        return self._names is not None or (self.chunks == 1 and bool(self.sha256))

    @property
    def lead(self) -> int:
        """The length of the `arr` and `idx` lines."""
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

    def prepare(self) -> None:
        """Make room for the hashes of its chunks, without an object for each."""
        if self.chunks > 1:
            self._names = bytearray(self.chunks * HASH_SIZE)
            self._checksums = packed_array("I", bytes(self.chunks * 4))

    def take(self, ix: int, name: bytes, checksum: int) -> None:
        """Take SHA-256 and CRC-32C of a chunk, from any thread."""
        if self._names is None or self._checksums is None:
            # The hash of an only chunk is also the array's.
            self.sha256, self._checksum = name, checksum
        else:
            self._names[ix * HASH_SIZE : (ix + 1) * HASH_SIZE] = name
            self._checksums[ix] = checksum

    def chunk_names(self, first: int, end: int) -> list[bytes]:
        """Return the SHA-256 of chunks `first` up to, but not including, `end`."""
        if self._names is None:
            return [self.sha256] if self.chunks == 1 else []
        names = bytes(self._names[first * HASH_SIZE : end * HASH_SIZE])
        return [name for (name,) in iter_unpack(f"{HASH_SIZE}s", names)]

    def checksums(self, first: int, end: int) -> Sequence[int]:
        """Return their CRC-32C."""
        return (self._checksum,) if self._checksums is None else self._checksums[first:end]

    def line(self) -> bytes:
        hashes = grammar.format_array_hashes(self.sha256 or bytes(32), self.hmac, self.salt)
        return self.line_start + hashes

    def lines(self) -> bytes:
        """Return the lines before the chunks."""
        return self.line() + self.rows_line


@dataclass(slots=True)
class PlannedBlock:
    """`count` chunks of `size` bytes from chunk `first` of an array."""

    array: ArrayPlan
    first: int
    count: int
    size: int
    fastxor: int = 0

    @property
    def sha256(self) -> list[bytes]:
        """The SHA-256 of its chunks, once they are hashed."""
        return self.array.chunk_names(self.first, self.end)

    @property
    def crc32c(self) -> Sequence[int]:
        """The CRC-32C of its chunks, once they are hashed."""
        return self.array.checksums(self.first, self.end)

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def is_last(self) -> bool:
        return self.end == self.array.chunks

    @property
    def offset(self) -> int:
        """The position of its bytes in the array."""
        return self.first * self.array.chunk_size

    @property
    def text_size(self) -> int:
        """The length of its lines, including the array's end after the last chunk."""
        if self.array.is_detached:
            size = sum(map(len, self.chunk_lines()))
        else:
            size = self.count * chunk_text_size(self.size)
        return size + (len(grammar.END_ARRAY) if self.is_last else 0)

    def chunk_lines(self) -> Iterator[bytes]:
        """Yield its `ch` lines, whose length does not change once the hashes are known."""
        lines = grammar.line_count(self.size)
        hashes = zip(self.sha256, self.crc32c, strict=True) if self.array.is_hashed else None
        for ix in range(self.first, self.end):
            name, crc = (bytes(HASH_SIZE), 0) if hashes is None else next(hashes)
            place = ix * self.array.chunk_size
            claim = grammar.ChunkLine(ix, place, self.size, name, crc, lines)
            yield grammar.format_chunk(claim)

    @property
    def raw(self) -> memoryview:
        # No slice is made: there may be 100,000 such arrays.
        if self.array.chunks == 1:
            return mapped(self.array.source.data)
        return mapped(self.array.source.data[self.offset : self.offset + self.count * self.size])


@dataclass(slots=True)
class BlockRun:
    """Blocks that stand one after another in the text: the whole of span number `span`."""

    span: int
    blocks: list[PlannedBlock]


class TextPlan:
    """The arrays, runs and spans of a snapshot's text.

    `header` and `footer` are the sizes of these spans. With `hmac_key` all arrays get a salt.
    Raises TextError for arrays that no text can hold. The plan of a `detached` text has the same
    runs, so that as many threads share its hashing.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        header: int,
        footer: int,
        hmac_key: bytes | None,
        *,
        detached: bool,
    ) -> None:
        self.arrays: list[ArrayPlan] = []
        self.runs: list[BlockRun] = []
        self.spans: list[Span] = []
        self.size = 0
        self._blocks: list[PlannedBlock] = []
        # Sizes of the blocks collected for the next run: as attached text, and as written.
        self._pending = self._written = 0
        self._add_span(header)
        for array in snapshot.arrays:
            plan = _plan_array(array, hmac_key, snapshot.meta.gen)
            plan.is_detached = detached and array.data.nbytes > grammar.MAX_INLINE
            self.arrays.append(plan)
            self._add_array(plan)
        self._end_run()
        self._add_span(footer)

    def _add_array(self, plan: ArrayPlan) -> None:
        # Not stored in the plan: they refer to it, and a reference cycle would keep files mapped.
        parts = cut(plan.source.data.nbytes, plan.chunk_size, 0, plan.chunks)
        blocks = (PlannedBlock(plan, *part) for part in parts)
        size = plan.lead + _body_size(plan)
        plan.is_long = size > RUN_TEXT
        # Its `arr` line must be known when the run is armored: only that of a long array is written
        # separately, at the end.
        if not plan.is_long:
            if self._pending + size > RUN_TEXT:
                self._end_run()
            start = len(self._blocks)
            self._blocks += blocks
            self._pending += size
            if plan.is_detached:
                size = plan.lead + sum(block.text_size for block in self._blocks[start:])
            self._written += size
            return
        self._end_run()
        plan.span = len(self.spans)
        self._add_span(plan.lead)
        for block in blocks:
            size = block.count * chunk_text_size(block.size)
            # The end of an array is counted here and in `_body_size`: a run must be exactly as long
            # as planned.
            if block.is_last:
                size += len(grammar.END_ARRAY)
            if self._pending + size > RUN_TEXT:
                self._end_run()
            self._blocks.append(block)
            self._pending += size
            self._written += block.text_size if plan.is_detached else size
        self._end_run()

    def _end_run(self) -> None:
        if self._blocks:
            self.runs.append(BlockRun(len(self.spans), self._blocks))
            self._add_span(self._written)
            self._blocks, self._pending, self._written = [], 0, 0

    def _add_span(self, size: int) -> None:
        self.spans.append(Span(self.size, size))
        self.size += size


def _plan_array(array: Array, hmac_key: bytes | None, gen: int) -> ArrayPlan:
    size = chunk_size(array.rows)
    check_fits(array.name, array.data.nbytes, size)
    hmac, salt = array.hmac or _NO_HMAC, array.salt or _NO_SALT
    if hmac_key is not None:
        # Always computed anew: an hmac that the array already has may be of another key.
        hmac, salt = bytes(32), array.salt or digest.salt_for(hmac_key, gen, array.name)
    nbytes = array.data.nbytes
    return ArrayPlan(
        array,
        size,
        chunk_count(nbytes, size),
        grammar.format_array_start(array.name, array.dtype, array.shape, nbytes),
        b"" if array.rows is None else _rows_line(array.rows),
        hmac,
        salt,
    )


@lru_cache(maxsize=1024)
def _rows_line(rows: Rows) -> bytes:
    """Format the `idx` line; cached, since a file has few different ones."""
    return grammar.format_rows(rows)


def check_fits(name: str, nbytes: int, size: int) -> None:
    """Raise TextError "limit" if the array has more chunks than can be numbered."""
    count = chunk_count(nbytes, size)
    # `ix` has 6 digits and `off` 12: docs/spec/wtxt.md, "Limits".
    if count > MAX_CHUNKS or (count - 1) * size > grammar.MAX_OFFSET:
        raise TextError(
            "limit",
            f'array "{name}" of {nbytes} bytes has {count} chunks of {size} bytes: '
            f"the format allows {MAX_CHUNKS} chunks and offsets up to {grammar.MAX_OFFSET}",
            array=name,
        )


def _body_size(plan: ArrayPlan) -> int:
    """Return the length of an array's text from the first `ch` line to `endarr`."""
    whole, tail = divmod(plan.source.data.nbytes, plan.chunk_size)
    size = len(grammar.END_ARRAY) + (whole * chunk_text_size(plan.chunk_size) if whole else 0)
    # An array without bytes has one empty chunk.
    if tail or not whole:
        size += chunk_text_size(tail)
    return size


class _RunText(threading.local):
    """A thread's buffer for the text of a run, reused: fresh pages cost as much as hashing them."""

    def __init__(self) -> None:
        self.text: U1 = np.empty(RUN_TEXT, dtype=np.uint8)


# Arrays are hashed in steps of this size: so much data, copied from a file, stays in the cache.
_STEP = BLOCK_BYTES

_END_SHORT = grammar.END_CHUNK + grammar.END_ARRAY

HASH_SIZE = 32

Place = Callable[[int, memoryview], None]
"""Receives the number of a span and its text, which is valid during the call only."""
Signer = Callable[[bytes], Signature]
"""Signs the bytes that it is given."""


@dataclass(frozen=True, slots=True, eq=False)
class HashedArray:
    """An array with what its `arr` line says, and the digests of its chunks in order."""

    source: Array
    line: grammar.ArrayLine
    sha256: Sequence[bytes]
    crc32c: Sequence[int]


class TextWriter:
    """Turns one snapshot into text.

    With `hmac_key` every array is authenticated (with the salt that the array has, else a derived
    one); without it the arrays' own hmac and salt are written. `sign` signs the header, or the WSUM
    of a pending text; without it the snapshot's own signature is written. Raises TextError for what
    no text can hold.

    With `detached` it writes the detached text of the same snapshot; `keep` then receives the
    chunks whose data are left out, while they are hashed.

    `spans` cover the text, `size` bytes, in order and without gaps.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        threads: int | None = None,
        hmac_key: bytes | None = None,
        sign: Signer | None = None,
        progress: Progress | None = None,
        detached: bool = False,
        keep: Keep | None = None,
    ) -> None:
        _check(snapshot)
        if detached and snapshot.pending:
            raise TextError("structure", "a pending text can't be detached")
        self.is_detached = detached
        self._keep = keep
        self._snapshot = snapshot
        self._signature = snapshot.signature
        self._is_signed = False
        self._threads = threads
        self._hmac_key = hmac_key
        self._sign = sign
        self._progress = progress
        self._meta_line = grammar.format_meta(snapshot.meta)
        self._cap_line = grammar.format_cap(snapshot.cap)
        self._root: grammar.Root | None = None
        self._run_text = _RunText()
        self.raw_size = sum(array.data.nbytes for array in snapshot.arrays)
        audit = b"" if snapshot.audit is None else grammar.format_audit(snapshot.audit)
        self._footer = audit + grammar.LAST_LINE
        self._plan = TextPlan(
            snapshot, self._header_size(), len(self._footer), hmac_key, detached=detached
        )
        self.spans: list[Span] = self._plan.spans
        self.size = self._plan.size

    def detached(self, keep: Keep | None) -> TextWriter:
        """Return a writer of the same text in detached form; `keep` receives its payload."""
        return TextWriter(
            self._snapshot,
            threads=self._threads,
            hmac_key=self._hmac_key,
            sign=self._sign,
            progress=self._progress,
            detached=True,
            keep=keep,
        )

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def meta(self) -> Meta:
        """The `meta` line: which generation the text is, and how and when it was made."""
        return self._snapshot.meta

    @property
    def root(self) -> grammar.Root:
        """The fields of the root line; hashes everything if that has not been done."""
        if self._root is None:
            self._root = self._digest(None)
        return self._root

    @property
    def signature(self) -> Signature | None:
        """The header's signature; hashes everything and signs if that has not been done."""
        # Signed only once: an agent may ask its user each time, and the signature must not change.
        if self._sign is not None and not self._is_signed and not self._snapshot.pending:
            self._signature, self._is_signed = self._sign(self._covered()), True
        return self._signature

    def hashed(self) -> list[HashedArray]:
        """Return the arrays with their digests; hashes everything if that has not been done."""
        _ = self.root
        return [
            HashedArray(
                plan.source,
                plan.claim,
                ChunkNames(plan.chunk_names(0, plan.chunks)),
                plan.checksums(0, plan.chunks),
            )
            for plan in self._plan.arrays
        ]

    def payload(self) -> Iterator[Sequence[bytes]]:
        """Yield the names of the chunks that a detached text leaves out, some at a time."""
        _ = self.root
        for run in self._plan.runs:
            for block in run.blocks:
                if block.array.is_detached:
                    yield block.sha256

    def wsum(self) -> bytes:
        """Return the WSUM line of this snapshot, signed if there is a signer."""
        return wsum_line(self.root, self._sign)

    def stream(self) -> Iterator[Buffer]:
        """Yield the text in order, in pieces that are not overwritten later."""
        _ = self.root
        # The header has the root, so everything is hashed before the first byte is yielded.
        yield self._header()
        plan = self._plan
        tasks = (partial(self._render_run, run) for run in plan.runs)
        # A bounded number of runs is armored ahead of the pipe, whatever the size of the text.
        with Workers(tasks, self._worthwhile(len(plan.runs))) as texts:
            for run, text in zip(plan.runs, texts, strict=True):
                first = run.blocks[0]
                if first.array.is_long and first.first == 0:
                    yield first.array.lines()
                yield text
        yield self._footer

    def render(self, place: Place) -> None:
        """Hash and armor in one go, and call `place` once for each of `spans`.

        `place` gets the span's number and its text, which is overwritten after the call. It is
        called from several threads: for runs in about the order of the text, at the end for spans
        that contain digests. An error that it raises is raised here too.
        """
        if self._root is None:
            self._root = self._digest(place)
        else:
            runs = self._plan.runs
            tasks = (partial(self._place_run, run, place) for run in runs)
            with Workers(tasks, self._worthwhile(len(runs))) as placed:
                deque(placed, maxlen=0)
        for array in self._plan.arrays:
            if array.is_long:
                place(array.span, memoryview(array.lines()))
        place(0, memoryview(self._header()))
        place(len(self.spans) - 1, memoryview(self._footer))

    def write_file(self, fd: int) -> None:
        """Write the text to an empty file that can be written at any position."""
        self.render(lambda number, piece: write_at(fd, piece, self.spans[number].start))

    def _worthwhile(self, tasks: int) -> int:
        # More threads than tasks would have nothing to do.
        return min(worthwhile(self._threads, self.raw_size, tasks), max(1, tasks))

    def _digest(self, place: Place | None) -> grammar.Root:
        """Hash everything; `place`, if given, receives the text of all runs."""
        for array in self._plan.arrays:
            array.prepare()
        hash_all = sha256()
        # hash_all takes a long array as a whole: its runs need not wait for that.
        count = len(self._plan.runs) + sum(array.is_long for array in self._plan.arrays)
        threads = self._worthwhile(count)
        with Workers(self._hash_tasks(place), threads, ahead=count) as links:
            for link in links:
                for piece, raw in _parts_of_all(link):
                    hash_all.update(piece)
                    links.check()
                    if self._progress is not None:
                        self._progress(raw)
        fastxor = 0
        for run in self._plan.runs:
            for block in run.blocks:
                # XOR does not depend on the order: blocks may finish in any order.
                fastxor ^= block.fastxor
        snapshot = self._snapshot
        this = digest.merkle(snapshot.prev, hash_all.digest(), snapshot.meta)
        return grammar.Root(hash_all.digest(), snapshot.prev, this, fastxor)

    def _hash_tasks(
        self, place: Place | None
    ) -> Iterator[Callable[[], ArrayPlan | BlockRun | None]]:
        for run in self._plan.runs:
            first = run.blocks[0]
            if first.array.is_long and first.first == 0:
                yield partial(self._hash_array, first.array)
            yield partial(self._hash_run, run, place)

    def _hash_array(self, plan: ArrayPlan) -> ArrayPlan:
        """Compute an array's own hash, which `arr` lines and hash_all need."""
        plan.sha256 = hashed(sha256(), pieces(plan.source.data, _STEP)).digest()
        self._authenticate(plan)
        return plan

    def _authenticate(self, plan: ArrayPlan) -> None:
        if self._hmac_key is not None:
            mac = digest.array_hmac(self._hmac_key, plan.salt)
            plan.hmac = hashed(mac, pieces(plan.source.data, _STEP)).digest()

    def _hash_run(self, run: BlockRun, place: Place | None) -> BlockRun | None:
        """Hash a run's chunks; returns the run if hash_all takes its arrays from it."""
        for block in run.blocks:
            raw, array = block.raw, block.array
            names: list[bytes] = []
            # Both hashes of a chunk in succession, while it is in the cache.
            for ix in range(block.count):
                chunk = raw[ix * block.size : (ix + 1) * block.size] if block.count > 1 else raw
                names.append(sha256(chunk).digest())
                array.take(block.first + ix, names[-1], crc32c(chunk))
            block.fastxor = digest.fastxor(raw, block.offset)
            if array.is_detached and self._keep is not None:
                _keep_chunks(self._keep, block, names, raw)
            # A short array's `arr` line is part of the run, so its hash is needed before the run is
            # armored.
            if block.is_last and not array.is_long:
                if array.chunks == 1:
                    self._authenticate(array)
                else:
                    self._hash_array(array)
        if place is not None:
            self._place_run(run, place)
        return None if run.blocks[0].array.is_long else run

    def _place_run(self, run: BlockRun, place: Place) -> None:
        size = self.spans[run.span].size
        # A single block of large chunks may be longer than a usual run.
        text = self._run_text.text if size <= RUN_TEXT else np.empty(size, dtype=np.uint8)
        self._armor(run, text)
        place(run.span, text.data[:size])

    def _render_run(self, run: BlockRun) -> memoryview:
        text = np.empty(self.spans[run.span].size, dtype=np.uint8)
        self._armor(run, text)
        return text.data

    def _armor(self, run: BlockRun, text: U1) -> None:
        """Write a hashed run into `text`, from its start on."""
        view = text.data
        position = 0
        for blocks in grouped(run.blocks, _short):
            if len(blocks) > 1:
                position = _put_short_arrays(view, position, blocks)
                continue
            block, array = blocks[0], blocks[0].array
            if block.first == 0 and not array.is_long:
                view[position : position + array.lead] = array.lines()
                position += array.lead
            if array.is_detached:
                lines = b"".join(block.chunk_lines())
                view[position : position + len(lines)] = lines
                position += len(lines)
            else:
                position = render_chunks(
                    text, position, block.raw, block.first, block.offset, block.sha256, block.crc32c
                )
            if block.is_last:
                end = position + len(grammar.END_ARRAY)
                view[position:end] = grammar.END_ARRAY
                position = end

    def _header(self) -> bytes:
        covered, signature = self._covered(), self.signature
        if self.is_detached:
            covered = grammar.DETACHED_FIRST_LINE + covered[len(grammar.FIRST_LINE) :]
        return covered if signature is None else covered + grammar.format_sign(signature)

    def _covered(self) -> bytes:
        """Return the lines that a signature covers."""
        root = grammar.PENDING_LINE if self._snapshot.pending else grammar.format_root(self.root)
        return grammar.FIRST_LINE + self._meta_line + self._cap_line + root

    def _header_size(self) -> int:
        # Any values will do: only the length matters, and a root line's fields have a fixed width.
        blank = grammar.Root(bytes(32), bytes(32), bytes(32), 0)
        pending = self._snapshot.pending
        first = grammar.DETACHED_FIRST_LINE if self.is_detached else grammar.FIRST_LINE
        size = len(first) + len(self._meta_line) + len(self._cap_line)
        size += len(grammar.PENDING_LINE if pending else grammar.format_root(blank))
        if self._snapshot.signature is not None or (self._sign is not None and not pending):
            size += len(grammar.format_sign(Signature(bytes(64), "0" * 16)))
        return size


def wsum_line(root: grammar.Root, sign: Signer | None = None) -> bytes:
    """Return the WSUM line of a text with this root, signed if there is a signer."""
    wsum = grammar.Wsum(root.sha256_all, root.merkle_prev, root.merkle_this, None)
    if sign is not None:
        wsum = replace(wsum, signature=sign(grammar.wsum_covered(wsum)).signature)
    return grammar.format_wsum(wsum)


def dumps(
    snapshot: Snapshot,
    *,
    threads: int | None = None,
    hmac_key: bytes | None = None,
    sign: Signer | None = None,
) -> bytes:
    """Return the text of a snapshot as bytes."""
    return b"".join(TextWriter(snapshot, threads=threads, hmac_key=hmac_key, sign=sign).stream())


def _parts_of_all(link: ArrayPlan | BlockRun | None) -> Iterator[tuple[Buffer, int]]:
    """Yield the bytes that hash_all takes of a long array or run, with their count of raw bytes.

    Short arrays are joined: hashing each one separately would contend for the interpreter's lock.
    """
    if link is None:
        return
    if isinstance(link, ArrayPlan):
        yield link.line()[:-1], 0
        for piece in pieces(link.source.data, _STEP):
            yield piece, piece.nbytes
        return
    parts: list[Buffer] = []
    size = 0
    for block in link.blocks:
        raw = block.raw
        if block.first == 0:
            parts.append(block.array.line()[:-1])
        parts.append(raw)
        size += raw.nbytes
    yield b"".join(parts), size


def _short(block: PlannedBlock) -> int | None:
    array = block.array
    is_short = array.chunks == 1 and not (array.is_long or array.is_detached)
    return block.size if is_short else None


def _keep_chunks(keep: Keep, block: PlannedBlock, names: Sequence[bytes], raw: memoryview) -> None:
    """Hand the chunks of a hashed block, with these names, to `keep`."""
    source = block.array.source
    keep(names, raw, block.size, ITEM_SIZE[source.dtype], source.name, block.first)


def _put_short_arrays(view: memoryview, position: int, blocks: Sequence[PlannedBlock]) -> int:
    """Write arrays of one chunk each, from `arr` to `endarr`; returns the position after them."""
    lines = memoryview(encode_short([block.raw for block in blocks]))
    start = 0
    for block in blocks:
        size = block.size
        count = grammar.line_count(size)
        end = start + count * grammar.LINE_TEXT
        claim = grammar.ChunkLine(0, 0, size, block.sha256[0], block.crc32c[0], count)
        head = block.array.lines() + grammar.format_chunk(claim)
        body = position + len(head)
        view[position:body] = head
        position = body + end - start
        view[body:position] = lines[start:end]
        body, position = position, position + len(_END_SHORT)
        view[body:position] = _END_SHORT
        start = end
    return position


def _check(snapshot: Snapshot) -> None:
    # Refuse here what a reader refuses: nothing is written that can't be read again.
    previous = ""
    if snapshot.pending and snapshot.signature is not None:
        raise TextError("structure", "a pending text is signed in its WSUM, not in its header")
    if len(snapshot.prev) != HASH_SIZE:
        raise TextError("syntax", f"merkle_prev has {len(snapshot.prev)} bytes, not {HASH_SIZE}")
    if (signature := snapshot.signature) is not None:
        grammar.check_sign(signature)
    has_layout = any(array.name == LAYOUT_ARRAY for array in snapshot.arrays)
    if has_layout != (snapshot.layout is not None):
        raise TextError("layout", f"the name {LAYOUT_ARRAY} is reserved: an array can't have it")
    for array in snapshot.arrays:
        name = array.name
        if not grammar.is_array_name(name):
            raise TextError(
                "syntax", f'array name "{name}" is not one or more of A-Za-z0-9_', array=name
            )
        if name <= previous:
            raise TextError(
                "structure", f'array "{name}" does not come after "{previous}"', array=name
            )
        previous = name
        if array.dtype not in ITEM_SIZE:
            raise TextError(
                "syntax", f'array "{name}" has unknown dtype "{array.dtype}"', array=name
            )
        if not all(0 <= dim <= grammar.MAX_NUMBER for dim in array.shape):
            raise TextError(
                "syntax", f'array "{name}" has an invalid shape, {array.shape}', array=name
            )
        claimed = bounded_product(ITEM_SIZE[array.dtype], array.shape, grammar.MAX_NUMBER)
        if claimed != array.data.nbytes:
            raise TextError(
                "structure",
                f'array "{name}" has {array.data.nbytes} bytes, but dtype and shape need {claimed}',
                array=name,
            )
        if array.rows is not None and (wrong := grammar.check_rows(array.rows, array.dtype)):
            raise TextError("structure", f'array "{name}": {wrong}', array=name)
