"""Bytes in the pieces that they come in, as one view of them.

A blob that git inflates stays in its pieces: joining them would cost a copy, and as much
memory once more. What is read once, from its begin to its end, need not be there as a
whole: pieces are taken when they are asked for, and given up when they were read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import final

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import PIECE, ByteView, Windowed

# Pieces of fewer bytes are put together: each one takes memory of its own.
_SHORT = 64 * 1024
_JOINED = 1024 * 1024


def view_of_pieces(
    pieces: Iterable[bytes],
    folder: Callable[[], Path | None] = lambda: None,
    *,
    in_memory: int,
) -> ByteView:
    """All bytes of `pieces` as one view, without a copy of them.

    `folder` and `in_memory` are as for a Spool, into which they go if they are more.
    """
    first: deque[bytes] = deque()
    nbytes = 0
    rest = joined(pieces)
    for piece in rest:
        first.append(piece)
        nbytes += len(piece)
        if nbytes > in_memory:
            # Each one is given up when it is written: they would be held twice otherwise.
            return spooled(chain(_taken(first), rest), folder, in_memory=0)
    return memoryview(first[0]) if len(first) == 1 else Windowed(PieceWindows(first, nbytes))


@final
class PieceWindows:
    """`Windows` of `nbytes` bytes in pieces, none of them empty.

    A piece is taken when it is first asked for, and kept until it is given up: of what
    is read once, from its begin to its end, only a part is held at a time.
    """

    def __init__(self, pieces: Iterable[bytes], nbytes: int) -> None:
        self.nbytes = nbytes
        self._coming = iter(pieces)
        self._pieces: list[bytes] = []
        self._starts: list[int] = []
        self.arrived = 0
        """How many bytes were taken, also of what was given up."""
        self._lock = Lock()
        # While a piece is on its way, those that are there can be read.
        self._taking = Lock()

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), a copy where they are of several pieces.

        Raises EnvironmentFailure where the pieces end before.
        """
        while end > self.arrived:
            with self._taking:
                if end > self.arrived and not self._take():
                    raise self._other_size()
        with self._lock:
            first = max(0, bisect_right(self._starts, start) - 1)
            last = bisect_right(self._starts, end - 1)
            parts = [self._part(number, start, end) for number in range(first, last)]
        # A mistake of who reads: other bytes than these are never given.
        if sum(map(len, parts)) != end - start:
            raise ValueError("bytes that were given up are asked for")
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def give_up(self, start: int, end: int) -> None:
        """Keep no piece any longer that lies within bytes [start, end)."""
        with self._lock:
            first = bisect_left(self._starts, start)
            last = first
            while last < len(self._pieces) and self._starts[last] + len(self._pieces[last]) <= end:
                last += 1
            del self._pieces[first:last], self._starts[first:last]

    def passing(self) -> Iterator[memoryview]:
        """All bytes in order, which are given up; raises EnvironmentFailure as `end` does."""
        for start in range(0, self.nbytes, PIECE):
            end = min(start + PIECE, self.nbytes)
            yield self.window(start, end)
            self.give_up(0, end)
        self.end()

    def end(self) -> None:
        """Take what is left; raises EnvironmentFailure unless there were `nbytes` bytes."""
        with self._taking:
            while self.arrived <= self.nbytes and self._take():
                pass
        if self.arrived != self.nbytes:
            raise self._other_size()

    def _other_size(self) -> EnvironmentFailure:
        return EnvironmentFailure(f"{self.arrived} bytes came, not {self.nbytes}")

    def _take(self) -> bool:
        piece = next(self._coming, None)
        if piece is None:
            return False
        with self._lock:
            self._pieces.append(piece)
            self._starts.append(self.arrived)
        self.arrived += len(piece)
        return True

    def _part(self, number: int, start: int, end: int) -> memoryview:
        begin = self._starts[number]
        return memoryview(self._pieces[number])[max(0, start - begin) : max(0, end - begin)]


def _taken(pieces: deque[bytes]) -> Iterator[bytes]:
    while pieces:
        yield pieces.popleft()


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
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
