"""A file that is written while the text that it stands for is verified.

A text's layout says where each array stands in the file. It is read first,
without trust, and what is verified block by block is put in its place at once,
by every thread that reads blocks. Only where all of the text holds, and its
layout is the very one that was assumed, is the file what the text stands for:
until then it belongs under no name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from operator import itemgetter
from threading import Lock

from wtxtgit.io.view import ByteView
from wtxtgit.io.writing import write_at
from wtxtgit.model import Extent, Layout
from wtxtgit.text.blocks import Block
from wtxtgit.text.index import TextIndex
from wtxtgit.text.verify import Report, verify

_Part = tuple[int, memoryview]
"""Where bytes stand in the file, and they."""
_SMALL = 64 * 1024
"""Bytes from which on a block is written by itself."""
_PART = 256
"""Bytes that a part takes besides its own."""
_HELD = 1024 * 1024
"""Bytes of small blocks that are kept until they are written, neighbours together."""


def verify_into(
    descriptor: int,
    text: ByteView,
    indexed: TextIndex,
    layout: Layout,
    *,
    wsum: bytes | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Report, bool]:
    """Verify a text, and write the file that it stands for into an empty one.

    `indexed` and `layout` are as `index` and `assumed_layout` give them; the
    rest is as for `verify`. Gives the report, and whether the file is whole;
    otherwise it is empty. Raises OSError where it can't be written.
    """
    placed = _Placed(descriptor, indexed, layout)
    report = verify(
        text,
        indexed=indexed,
        wsum=wsum,
        threads=threads,
        progress=progress,
        deliver=placed.deliver,
    )
    is_whole = report.ok and report.layout == layout and placed.finish()
    if not is_whole:
        os.ftruncate(descriptor, 0)
    return report, is_whole


class _Placed:
    """Puts blocks and literals where a layout has them; threads may share it."""

    def __init__(self, descriptor: int, indexed: TextIndex, layout: Layout) -> None:
        self._descriptor = descriptor
        self._layout = layout
        self._sizes = {array.name: array.nbytes for array in indexed.arrays}
        self._starts = {
            extent.array: start for start, extent in self._extents() if extent.array is not None
        }
        self._due = sum(self._sizes[name] for name in self._starts)
        self._held: list[_Part] = []
        self._held_bytes = 0
        self._lock = Lock()

    def deliver(self, block: Block, raw: memoryview) -> None:
        """Write a block's bytes, or keep them for `finish`."""
        start = self._starts.get(block.array.name)
        if start is None:
            return
        part = start + block.offset, raw
        ready = [part] if raw.nbytes >= _SMALL else []
        with self._lock:
            self._due -= raw.nbytes
            if not ready:
                ready = self._kept(part)
        self._write(ready)

    def finish(self) -> bool:
        """Write what is left; tells whether all came that had to."""
        for start, extent in self._extents():
            if extent.hex is not None:
                self._write(self._kept((start, memoryview(extent.hex))))
            elif extent.zeros is not None:
                self._write(self._kept((start, memoryview(bytes(extent.zeros)))))
        self._write(self._held)
        return self._due == 0

    def _extents(self) -> Iterator[tuple[int, Extent]]:
        """The layout's extents, and where each one starts."""
        end = 0
        for extent in self._layout.extents:
            yield end, extent
            if extent.array is not None:
                end += self._sizes[extent.array]
            else:
                end += len(extent.hex or b"") + (extent.zeros or 0)

    def _kept(self, part: _Part) -> list[_Part]:
        """Keep a small part; gives all that are kept once they are many."""
        self._held.append(part)
        self._held_bytes += part[1].nbytes + _PART
        if self._held_bytes < _HELD:
            return []
        ready, self._held, self._held_bytes = self._held, [], 0
        return ready

    def _write(self, parts: list[_Part]) -> None:
        """Write parts at their places, those that stand side by side together."""
        run, first = bytearray(), 0
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
