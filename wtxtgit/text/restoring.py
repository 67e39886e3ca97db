"""Writing the file that a text stands for while the text is verified.

The layout says where each array stands in the file. It is read without trust, and
what is verified block by block is put in its place at once, by every thread that
reads blocks. Only where all of the text holds, and its layout is the very one that was
assumed, is the file what the text stands for: until then it belongs under no name.

`verify_into` takes a text that is at hand, so that the sizes of all arrays are known.
`verify_arriving` takes one that is on its way, and gives it up as it goes. Arrays come in
the order of their names, and stand in the file in another one: `blk_10` comes before
`blk_2`. Where the start of one is not known yet when it comes, it is put aside, behind
the end of the file, and moved at the end. Positions follow from claims all the same.
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

# Where bytes stand in the file, and they.
_Part = tuple[int, memoryview]
# Bytes from which on a block is written by itself.
_SMALL = 64 * 1024
# Bytes that a part takes besides its own.
_PART = 256
# Bytes of small blocks that are kept until they are written, neighbours together.
_WAITING = 1024 * 1024
# Bytes of small arrays that are kept until it is known where they start.
_KEPT = 4 * 1024 * 1024
# Where an array that is put aside starts: file systems that can move blocks need no copy.
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
    """Verify a text, and write the file that it stands for into an empty one.

    `indexed` and `layout` are as `index` and `assumed_layout` give them; the
    rest is as for `verify`. Gives the report, and whether the file is whole;
    otherwise it is empty. Raises OSError where it can't be written.
    """
    # A detached text claims sizes that it has no lines for: what is not there is not delivered.
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
        # No unverified byte stays behind.
        os.ftruncate(descriptor, 0)
    return report, is_whole


def verify_arriving(descriptor: int, text: PieceWindows, *, threads: int | None = None) -> bool:
    """Verify a text whose pieces come, and write the container that it stands for.

    `descriptor` is of an empty file, open for reading too. Gives whether the file is
    whole and may stand for the text. Otherwise it is empty, and the text is damaged, or
    in some way unusual, or the file found no room: only a look at the whole text tells.
    Of the text some blocks are held at a time. Raises EnvironmentFailure where pieces
    don't come.
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
        # The last piece comes when the hash of all of them was right.
        text.end()
        is_whole = arriving.writer.finish(report)
        # A file that no blob may stand for.
        is_whole = is_whole and os.pread(descriptor, len(MAGIC), 0) != MAGIC
    except (_Unusual, TextError, OSError):
        pass
    finally:
        if not is_whole:
            os.ftruncate(descriptor, 0)
    return is_whole


class _Unusual(Exception):
    """A text that is to be looked at as a whole."""


class _Arriving:
    """A text on its way into a file: what is known of it, and which of it is still needed."""

    def __init__(self, descriptor: int, text: PieceWindows) -> None:
        self._text = text
        self.view = Windowed(text)
        self.indexed, self._steps = indexing(self.view)
        self.writer = _LayoutWriter(descriptor, text.nbytes)
        # The layout while it was not read yet: its lines are kept as long.
        self._layout: ArrayIndex | None = None

    def steps(self) -> Iterator[None]:
        """The index's steps; after each one it is known where its arrays go."""
        seen = 0
        for _ in self._steps:
            index = self.indexed
            if index.has_header and (index.pending or CAP_LAYOUT not in index.cap):
                raise _Unusual
            more = index.arrays[seen:]
            seen += len(more)
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
        """Give up the text of blocks that were checked."""
        if any(checked.problems for checked in job):
            raise _Unusual
        end = job[-1].block.end
        layout = self._layout
        if layout is not None and layout.starts:
            end = min(end, layout.starts[0])
        # The signature covers the header.
        self._text.give_up(self.indexed.covered, end)


class _LayoutWriter:
    """Puts blocks and literals where a layout has them; threads may share it.

    Arrays have to be expected, in order, before their blocks are delivered. `most` is
    how many bytes an array may have.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor = descriptor
        self._most = most
        self._layout: Layout | None = None
        self._sizes: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        # The extents behind those whose start is known, once the size of an array is known.
        self._walk: Iterator[tuple[int, Extent]] = iter(())
        self._awaited: str | None = None
        # Arrays that came before their start was known: small ones, and where others are.
        self._kept: dict[str, bytearray] = {}
        self._kept_bytes = 0
        self._aside: dict[str, int] = {}
        self._aside_end = 0
        self._delivered = 0
        self._waiting: list[_Part] = []
        self._waiting_bytes = 0
        self._lock = Lock()

    def lay_out(self, layout: Layout) -> None:
        """Assume a layout."""
        # Where the file has its place there may be what was put aside before.
        if layout.size is None or (self._aside and layout.size > min(self._aside.values())):
            raise _Unusual
        self._layout = layout
        self._walk = placed(layout, self._sizes)

    def expect(self, arrays: Sequence[ArrayIndex]) -> None:
        """Decide where the blocks of arrays go."""
        for array in arrays:
            # What is not there at all may be claimed, too.
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
            # Before the layout is known, where no file ends: a layout has no more zeros than
            # other bytes, but for an allowance.
            least = 2 * self._most + ZEROS_ALLOWANCE if size is None else size
            place = -(-max(self._aside_end, least) // _ALIGNED) * _ALIGNED
            self._aside[name] = place
            self._aside_end = place + nbytes

    def deliver(self, block: Block, raw: memoryview) -> None:
        """Write a block's bytes, or keep them for `finish`."""
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
        """Write what is left, once the text was verified; tells whether the file is whole."""
        layout = self._layout
        # The layout was read before it was verified: only now is it known to be that of the text.
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
        """Keep a small part; gives all that are kept once they are many."""
        self._waiting.append(part)
        self._waiting_bytes += part[1].nbytes + _PART
        if self._waiting_bytes < _WAITING:
            return []
        ready, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return ready

    def _write(self, parts: list[_Part]) -> None:
        """Write parts at their places, those that stand side by side together."""
        run, first = bytearray(), 0
        # In the order of the file, so that neighbours become one write.
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
