"""Writing the file that a text stands for while the text is being verified.

The layout says where each array stands in the file. It is used before it is trusted: every thread
that reads blocks writes each verified block to its place at once. Only if the whole text holds,
and its layout is the one that was assumed, is the file what the text stands for; until then it
must not get a name.

`verify_into` takes a text that is completely available, so the sizes of all arrays are known.
`verify_arriving` takes a text that is still arriving, and releases it on the way. Arrays arrive
in the order of their names, but stand in the file in another order: `blk_10` arrives before
`blk_2`. An array whose start is not known yet is put aside, beyond the end of the file, and moved
at the end. All positions still follow from unverified claims.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from operator import itemgetter
from threading import Lock

from wtxtgit.errors import TextError
from wtxtgit.io.pieces import PieceWindows
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, Windowed, copy_within, write_at
from wtxtgit.model.array import LAYOUT_ARRAY, ZEROS_ALLOWANCE, Extent, Layout
from wtxtgit.text.file import MOST_FILE, layout_bytes
from wtxtgit.text.grammar import CAP_LAYOUT, MAGIC
from wtxtgit.text.index import ArrayIndex, TextIndex, indexing
from wtxtgit.text.layout import literal, parse_layout, placed
from wtxtgit.text.verify import Block, CheckedBlock, TextReport, verify

# A position in the file, and the bytes for it.
_Part = tuple[int, memoryview]
# Blocks of at least this many bytes are written by themselves.
_SMALL = 64 * 1024
# Memory that a part takes besides its bytes.
_PART = 256
# Bytes of small blocks that are collected before neighbours are written together.
_WAITING = 1024 * 1024
# Bytes of small arrays that are held in memory until their start is known.
_KEPT = 4 * 1024 * 1024
# Alignment of arrays that are put aside: some file systems can then move blocks without a copy.
_ALIGNED = 4096


def verify_into(
    descriptor: int,
    text: ByteView,
    indexed: TextIndex,
    layout: Layout,
    *,
    wsum: bytes | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[TextReport, bool]:
    """Verify a text, and write the file that it stands for into an empty file.

    `indexed` and `layout` are what `index` and `assumed_layout` return; the rest is as for
    `verify`. Returns the report, and whether the file is whole; if it is not, the file is left
    empty. Raises OSError if the file can't be written.
    """
    # A detached text may claim any sizes: what does not exist is never delivered.
    writer = _LayoutWriter(descriptor, MOST_FILE if indexed.is_detached else len(text))
    writer.lay_out(layout)
    writer.expect(indexed.arrays)
    report = verify(
        text,
        indexed=indexed,
        wsum=wsum,
        threads=threads,
        progress=progress,
        deliver=writer.deliver,
    )
    is_whole = writer.finish(report)
    if not is_whole:
        # Leave no unverified byte behind.
        os.ftruncate(descriptor, 0)
    return report, is_whole


def verify_arriving(descriptor: int, text: PieceWindows, *, threads: int | None = None) -> bool:
    """Verify a text as its pieces arrive, and write the container that it stands for.

    `descriptor` is an empty file that is also open for reading. Returns whether the file is whole
    and may stand for the text. Otherwise the file is empty, and the text is damaged or unusual, or
    there was no space for the file: only reading the whole text can tell. A few blocks of the text
    are held at a time. Raises EnvironmentFailure if pieces fail to arrive.
    """
    arriving = _Arriving(descriptor, text)
    is_whole = False
    try:
        report = verify(
            arriving.view,
            indexed=arriving.indexed,
            growing=arriving.steps(),
            passed=arriving.passed,
            threads=threads,
            deliver=arriving.writer.deliver,
        )
        # The source gives the last piece only if the hash of all of them is right.
        text.end()
        is_whole = arriving.writer.finish(report)
        # A file that itself starts like a text must not be stored as one.
        is_whole = is_whole and os.pread(descriptor, len(MAGIC), 0) != MAGIC
    except (_Unusual, TextError, OSError):
        pass
    finally:
        if not is_whole:
            os.ftruncate(descriptor, 0)
    return is_whole


class _Unusual(Exception):
    """The text must be read as a whole instead."""


class _Arriving:
    """A text being written to a file as it arrives, and which part of it is still needed."""

    def __init__(self, descriptor: int, text: PieceWindows) -> None:
        self._text = text
        self.view = Windowed(text)
        self.indexed, self._steps = indexing(self.view)
        self.writer = _LayoutWriter(descriptor, text.nbytes)
        # The layout's array until it has been parsed: its lines are not released before.
        self._layout: ArrayIndex | None = None

    def steps(self) -> Iterator[None]:
        """Yield after each step of indexing, once the positions of the new arrays are decided."""
        count = 0
        for _ in self._steps:
            index = self.indexed
            if index.has_header and (index.pending or CAP_LAYOUT not in index.cap):
                raise _Unusual
            more = index.arrays[count:]
            count += len(more)
            for array in more:
                if array.name == LAYOUT_ARRAY:
                    self._layout = array
            if self._layout is not None and self._layout.complete:
                raw = layout_bytes(self.view, self._layout)
                self.writer.lay_out(parse_layout(raw, len(self.view)))
                self._layout = None
            self.writer.expect(more)
            yield

    def passed(self, job: list[CheckedBlock]) -> None:
        """Release the text of blocks that were checked."""
        if any(checked.problems for checked in job):
            raise _Unusual
        end = job[-1].block.end
        layout = self._layout
        if layout is not None and layout.starts:
            end = min(end, layout.starts[0])
        # The header stays: the signature covers it.
        self._text.give_up(self.indexed.covered, end)


class _LayoutWriter:
    """Writes blocks and literals to the places that a layout gives them; threads may share it.

    `expect` must be called for arrays, in order, before their blocks are delivered. `most` is the
    greatest number of bytes that an array may have.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor = descriptor
        self._most = most
        self._layout: Layout | None = None
        self._sizes: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        # The extents whose start is not known yet; it goes on once the awaited array's size is
        # known.
        self._walk: Iterator[tuple[int, Extent]] = iter(())
        self._awaited: str | None = None
        # Arrays that arrived before their start was known: small ones in memory, others put aside.
        self._kept: dict[str, bytearray] = {}
        self._kept_bytes = 0
        self._aside: dict[str, int] = {}
        self._aside_end = 0
        self._delivered = 0
        self._waiting: list[_Part] = []
        self._waiting_bytes = 0
        self._lock = Lock()

    def lay_out(self, layout: Layout) -> None:
        """Set the layout, which is not verified yet."""
        # An array may already have been put aside where this file has its own bytes.
        if layout.size is None or (self._aside and layout.size > min(self._aside.values())):
            raise _Unusual
        self._layout = layout
        self._walk = placed(layout, self._sizes)

    def expect(self, arrays: Sequence[ArrayIndex]) -> None:
        """Decide where the blocks of these arrays go."""
        for array in arrays:
            # The size is only a claim.
            if array.nbytes > self._most:
                raise _Unusual
            if array.name != LAYOUT_ARRAY:
                self._sizes[array.name] = array.nbytes
        while self._awaited is None or self._awaited in self._sizes:
            start, extent = next(self._walk, (0, None))
            if extent is None:
                break
            self._awaited = extent.array
            if extent.array is not None:
                self._starts[extent.array] = start
        for array in arrays:
            if array.name in self._sizes:
                self._expect(array.name, array.nbytes)

    def _expect(self, name: str, nbytes: int) -> None:
        start, size = self._starts.get(name), None if self._layout is None else self._layout.size
        if start is not None:
            if size is not None and start + nbytes > size:
                raise _Unusual
        elif nbytes < _SMALL and self._kept_bytes < _KEPT:
            self._kept[name] = bytearray(nbytes)
            self._kept_bytes += nbytes + _PART
        else:
            # Without a layout, beyond the end of any possible file: a layout has at most as many
            # zeros as other bytes, plus an allowance.
            least = 2 * self._most + ZEROS_ALLOWANCE if size is None else size
            place = -(-max(self._aside_end, least) // _ALIGNED) * _ALIGNED
            self._aside[name] = place
            self._aside_end = place + nbytes

    def deliver(self, block: Block, raw: memoryview) -> None:
        """Write a block's bytes, or hold them until `finish`."""
        name = block.array.name
        if name not in self._sizes:
            return
        kept = self._kept.get(name)
        if kept is not None:
            kept[block.offset : block.offset + raw.nbytes] = raw
        with self._lock:
            self._delivered += raw.nbytes
            if kept is not None:
                return
            start = self._aside[name] if name in self._aside else self._starts[name]
            part = start + block.offset, raw
            ready = [part] if raw.nbytes >= _SMALL else self._collected(part)
        self._write(ready)

    def finish(self, report: TextReport) -> bool:
        """Write what is left after the text was verified; returns whether the file is whole."""
        layout = self._layout
        # The layout was used before it was verified: only now is it known to be the text's.
        is_right = layout is not None and report.ok and report.layout == layout
        if not is_right or layout is None or self._delivered != sum(self._sizes.values()):
            return False
        for start, extent in placed(layout, self._sizes):
            own = literal(extent) if extent.array is None else self._kept.get(extent.array)
            if own is not None:
                self._write(self._collected((start, memoryview(own))))
        self._write(self._waiting)
        for name, place in self._aside.items():
            copy_within(self._descriptor, place, self._starts[name], self._sizes[name])
        if self._aside:
            os.ftruncate(self._descriptor, layout.size or 0)
        return True

    def _collected(self, part: _Part) -> list[_Part]:
        """Collect a small part; returns all collected parts once they are enough to write."""
        self._waiting.append(part)
        self._waiting_bytes += part[1].nbytes + _PART
        if self._waiting_bytes < _WAITING:
            return []
        ready, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return ready

    def _write(self, parts: list[_Part]) -> None:
        """Write parts at their positions, joining those that are adjacent."""
        run, first = bytearray(), 0
        # Sorted by position, so that neighbours become one write.
        for start, raw in sorted(parts, key=itemgetter(0)):
            if run and start != first + len(run):
                write_at(self._descriptor, run, first)
                run = bytearray()
            if raw.nbytes >= _SMALL and not run:
                write_at(self._descriptor, raw, start)
                continue
            if not run:
                first = start
            run += raw
        write_at(self._descriptor, run, first)
