"""A view of bytes in the pieces in which they arrive.

A blob that git inflates stays in its pieces: joining them would cost a copy, and as much memory
again. What is read once, from start to end, need not be in memory as a whole: pieces are taken when
they are needed, and released when they were read.
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

# Shorter pieces are joined, because each one has its own memory.
_SHORT = 64 * 1024
_JOINED = 1024 * 1024


def view_of_pieces(
    pieces: Iterable[bytes],
    folder: Callable[[], Path | None] = lambda: None,
    *,
    in_memory: int,
) -> ByteView:
    """Return all bytes of `pieces` as one view, without copying them.

    If there are more than `in_memory` bytes they go to a Spool; `folder` and `in_memory` are as for
    that.
    """
    first: deque[bytes] = deque()
    nbytes = 0
    rest = joined(pieces)
    for piece in rest:
        first.append(piece)
        nbytes += len(piece)
        if nbytes > in_memory:
            # Each piece is released once it is written, so that none is held twice.
            return spooled(chain(_emptied(first), rest), folder, in_memory=0)
    return memoryview(first[0]) if len(first) == 1 else Windowed(PieceWindows(first, nbytes))


@final
class PieceWindows:
    """`Windows` over `nbytes` bytes in pieces, none of them empty.

    A piece is taken when first needed, and kept until it is given up: of bytes that are read once,
    from start to end, only a part is held at a time.
    """

    def __init__(self, pieces: Iterable[bytes], nbytes: int) -> None:
        self.nbytes = nbytes
        self._coming = iter(pieces)
        self._pieces: list[bytes] = []
        self._starts: list[int] = []
        self.arrived = 0
        """The number of bytes taken so far, including released ones."""
        self._lock = Lock()
        # While a thread waits for the next piece others can read the earlier ones.
        self._taking = Lock()

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end), copied if they are in several pieces.

        Raises EnvironmentFailure if the pieces end before.
        """
        while end > self.arrived:
            with self._taking:
                if end > self.arrived and not self._take():
                    raise self._other_size()
        with self._lock:
            first = max(0, bisect_right(self._starts, start) - 1)
            last = bisect_right(self._starts, end - 1)
            parts = [self._part(number, start, end) for number in range(first, last)]
        # A programming error of the reader: never return other bytes instead.
        if sum(map(len, parts)) != end - start:
            raise ValueError("bytes that were given up are asked for")
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def give_up(self, start: int, end: int) -> None:
        """Release the pieces that lie within bytes [start, end)."""
        with self._lock:
            first = bisect_left(self._starts, start)
            last = first
            while last < len(self._pieces) and self._starts[last] + len(self._pieces[last]) <= end:
                last += 1
            del self._pieces[first:last], self._starts[first:last]

    def passing(self) -> Iterator[memoryview]:
        """Yield all bytes in order and release them; raises EnvironmentFailure as `end` does."""
        for start in range(0, self.nbytes, PIECE):
            end = min(start + PIECE, self.nbytes)
            yield self.window(start, end)
            self.give_up(0, end)
        self.end()

    def end(self) -> None:
        """Take the remaining pieces.

        Raises EnvironmentFailure unless there were `nbytes` bytes in all.
        """
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


def _emptied(pieces: deque[bytes]) -> Iterator[bytes]:
    while pieces:
        yield pieces.popleft()


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes with short pieces joined, and no empty ones."""
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
