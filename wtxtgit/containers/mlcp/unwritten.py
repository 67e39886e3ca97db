"""The bytes of a file that is not put together yet, as far as they are looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from wtxtgit.containers.mlcp.read import MAX_ZEROS_SCAN
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer

STEP = 1 << 16
KEPT = 2 * MAX_ZEROS_SCAN
"""Bytes behind the last ones that are kept: a reader looks ahead and goes back so far."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """`length` bytes, which `blocks` gives in order each time."""

    length: int
    blocks: Callable[[], Iterator[Buffer]]

    @classmethod
    def fixed(cls, content: bytes) -> Piece:
        return cls(len(content), lambda: iter((content,)))


class Unwritten:
    """Pieces one after another, with the length and the slices of a view.

    Of a piece only the bytes up to those that are asked for are made, and the
    last of them held.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._ends = list(accumulate(piece.length for piece in pieces))
        self._open = -1
        self._steps: Iterator[memoryview] = iter(())
        self._held = bytearray()
        self._held_start = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, part: slice) -> memoryview:
        start, end, _ = part.indices(len(self))
        found = bytearray()
        while start < end:
            number = bisect_right(self._ends, start)
            stop = min(end, self._ends[number])
            found += self._from_piece(number, start, stop)
            start = stop
        return memoryview(found)

    def _from_piece(self, number: int, start: int, end: int) -> bytearray:
        """Bytes [start, end) of the whole, all of them in one piece."""
        if number != self._open or start < self._held_start:
            self._open = number
            self._steps = _steps(self._pieces[number].blocks())
            self._held = bytearray()
            self._held_start = self._ends[number] - self._pieces[number].length
        while self._held_start + len(self._held) < end:
            step = next(self._steps, None)
            if step is None:
                raise FormatError("a tensor gives fewer bytes than it has", field="tensor bytes")
            self._held += step
            passed = min(start - self._held_start, len(self._held)) - KEPT
            if passed > KEPT:
                del self._held[:passed]
                self._held_start += passed
        return self._held[start - self._held_start : end - self._held_start]


def _steps(blocks: Iterable[Buffer]) -> Iterator[memoryview]:
    for block in blocks:
        view = memoryview(block).cast("B")
        for start in range(0, len(view), STEP):
            yield view[start : start + STEP]
