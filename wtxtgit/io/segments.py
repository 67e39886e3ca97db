"""Bytes that come in pieces, as one view of the pieces themselves.

Putting them together would cost a copy, and as much memory once more, which
the system clears first. A large blob is read so: what looks at a text takes
parts that seldom lie in two pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import final

from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, Windowed

_SHORT = 64 * 1024
"""Pieces of fewer bytes are put together: each one takes memory of its own."""
_JOINED = 1024 * 1024


def gathered(
    pieces: Iterable[bytes],
    folder: Callable[[], Path | None] = lambda: None,
    *,
    in_memory: int,
) -> ByteView:
    """All bytes of `pieces` as one view; `folder` and `in_memory` as for a Spool."""
    held: deque[bytes] = deque()
    nbytes = 0
    coming = _joined(pieces)
    for piece in coming:
        held.append(piece)
        nbytes += len(piece)
        if nbytes > in_memory:
            return spooled(chain(_taken(held), coming), folder, in_memory=0)
    return memoryview(held[0]) if len(held) == 1 else Windowed(Gathered(held))


@final
class Gathered:
    """The `Windows` of pieces, none of them empty."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = tuple(pieces)
        self._starts = (0, *accumulate(map(len, self._pieces)))
        self.nbytes = self._starts[-1]

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), a copy where they are of several pieces."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1, lo=first)
        if last == first + 1:
            return self._part(first, start, end)
        return memoryview(b"".join(self._part(n, start, end) for n in range(first, last)))

    def _part(self, number: int, start: int, end: int) -> memoryview:
        begin = self._starts[number]
        return memoryview(self._pieces[number])[max(0, start - begin) : end - begin]


def _taken(pieces: deque[bytes]) -> Iterator[bytes]:
    while pieces:
        yield pieces.popleft()


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, short pieces put together, none empty."""
    short = bytearray()
    for piece in pieces:
        if len(piece) < _SHORT:
            short += piece
            if len(short) < _JOINED:
                continue
        if short:
            yield bytes(short)
            short.clear()
        if len(piece) >= _SHORT:
            yield piece
    if short:
        yield bytes(short)
