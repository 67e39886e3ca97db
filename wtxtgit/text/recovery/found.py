"""The lines found in a damaged text, as they stand and in the order of the text."""

from __future__ import annotations

from array import array as numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final, overload

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import ByteView

HEX_FIELD = 64
CRC_FIELD = 8
_NOTHING = memoryview(b"")
# Columns with numbers of a chunk; values for a number that can't be read, and for the line count of
# a chunk without a `ch` line.
_NUMBERS = 5
_NONE, _NO_LINE = -1, -2


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A `ch` line and what follows it; `body` is where its lines are, without `endch`.

    Hashes are as they stand. `size` and `lines` are None if they can't be read.
    """

    ix: int
    size: int | None
    lines: int | None
    sha256: str
    crc32c: str
    body: tuple[int, int]
    has_line: bool = True
    """Whether there is a `ch` line, however damaged."""


@final
class FoundChunks:
    """The chunks of a text as columns: objects would take more memory than the text."""

    __slots__ = ("_hashes", "_numbers")

    def __init__(self) -> None:
        self._numbers = numbers("q")
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._numbers) // _NUMBERS

    def append(self, chunk: FoundChunk) -> None:
        size, lines = (_NONE if n is None else n for n in (chunk.size, chunk.lines))
        if not chunk.has_line:
            lines = _NO_LINE
        self._numbers.extend((chunk.ix, size, lines, *chunk.body))
        for digits, count in ((chunk.sha256, HEX_FIELD), (chunk.crc32c, CRC_FIELD)):
            # A truncated text has fewer of them: the rest is filled with something that is no
            # digit.
            self._hashes += digits.encode("latin-1").ljust(count, b"\0")

    def chunk(self, number: int) -> FoundChunk:
        ix, size, lines, start, end = self._numbers[number * _NUMBERS : (number + 1) * _NUMBERS]
        at = number * (HEX_FIELD + CRC_FIELD)
        hashes = self._hashes[at : at + HEX_FIELD + CRC_FIELD].decode("latin-1")
        return FoundChunk(
            ix,
            None if size == _NONE else size,
            None if lines < 0 else lines,
            hashes[:HEX_FIELD],
            hashes[HEX_FIELD:],
            (start, end),
            lines != _NO_LINE,
        )

    def ixs(self, first: int, end: int) -> NDArray[np.int64]:
        """Return the `ix` of chunks `first` up to, but not including, `end`."""
        return np.array(self._numbers[first * _NUMBERS : end * _NUMBERS : _NUMBERS], np.int64)


@final
class FoundArray(Sequence[FoundChunk]):
    """The lines of an array and, as a sequence, its chunks in the order of the text.

    A text may have very many: only the positions of the lines are stored.
    """

    __slots__ = ("_count", "_first", "_line", "_rows_line", "_table", "_text")

    def __init__(
        self,
        table: FoundChunks,
        text: ByteView = _NOTHING,
        line: tuple[int, int] | None = None,
        rows_line: bytes | None = None,
    ) -> None:
        self._table, self._first, self._count = table, len(table), 0
        self._text, self._line, self._rows_line = text, line, rows_line

    @property
    def line(self) -> bytes | None:
        """The `arr` line as it stands, without its LF; None if there is none."""
        return None if self._line is None else bytes(self._text[self._line[0] : self._line[1]])

    @property
    def rows_line(self) -> bytes | None:
        """The `idx` line."""
        return self._rows_line

    @rows_line.setter
    def rows_line(self, line: bytes) -> None:
        self._rows_line = line

    def append(self, chunk: FoundChunk) -> None:
        """Add a chunk to the array whose lines were read last."""
        self._table.append(chunk)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> FoundChunk: ...
    @overload
    def __getitem__(self, place: slice) -> list[FoundChunk]: ...
    def __getitem__(self, place: int | slice) -> FoundChunk | list[FoundChunk]:
        rows = range(self._first, self._first + self._count)[place]
        if isinstance(rows, range):
            return list(map(self._table.chunk, rows))
        return self._table.chunk(rows)

    def by_ix(self) -> ChunkPlaces:
        """Return which of the chunks have a given number."""
        ixs = self._table.ixs(self._first, self._first + self._count)
        return _ONE if len(ixs) == 1 and ixs[0] == 0 else ChunkPlaces(ixs)


@final
class ChunkPlaces:
    """Which chunks, by their places, have a given number; mostly number and place are equal."""

    __slots__ = ("_ixs", "_order", "count", "last")

    def __init__(self, ixs: NDArray[np.int64]) -> None:
        self.last = int(ixs.max(initial=-1))
        """The highest number; -1 if there are no chunks."""
        is_plain = bool(np.array_equal(ixs, np.arange(len(ixs))))
        order = None if is_plain else np.argsort(ixs, kind="stable")
        self._order = order
        self._ixs = None if order is None else ixs[order]
        self.count = len(ixs) if self._ixs is None else len(np.unique(self._ixs))
        """How many different numbers there are."""

    def of(self, ix: int) -> Sequence[int]:
        """Return the places of the chunks with a number, in order."""
        if self._ixs is None or self._order is None:
            return (ix,) if 0 <= ix <= self.last else ()
        start, end = (int(np.searchsorted(self._ixs, ix, side)) for side in ("left", "right"))
        return list(map(int, self._order[start:end]))


# If there are very many arrays, most have one chunk.
_ONE = ChunkPlaces(np.zeros(1, np.int64))


@dataclass(slots=True)
class FoundText:
    """A damaged text's lines as they stand, without their last byte, which should be LF.

    Missing lines are None.
    """

    meta: bytes | None = None
    cap: bytes | None = None
    root: bytes | None = None
    is_pending: bool = False
    sign: bytes | None = None
    audit: bytes | None = None
    arrays: list[FoundArray] = field(default_factory=list)
    chunks: FoundChunks = field(default_factory=FoundChunks)
