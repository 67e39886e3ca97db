"""Bytes of files that may be larger than what a process can map.

What reads files takes a `ByteView`: a flat memoryview of bytes or, where the file
is large, a `Windowed`, whose parts are mapped when they are looked at. Both
have a length, slices that cost nothing, and compare by what they hold. Where
a buffer is needed (hashing, numpy, struct, codecs), `mapped` gives a part as
one, and `pieces` a long part piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, final, overload

Buffer = bytes | bytearray | memoryview

PIECE = 1024 * 1024
"""Bytes of a view that are given at a time."""


class Windows(Protocol):
    """What maps the parts of a file, from any thread."""

    @property
    def nbytes(self) -> int:
        """Bytes of the whole file."""

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), read-only; they stay mapped as long as the view is kept.

        Raises EnvironmentFailure where the system has no room for them.
        """


@final
class Windowed:
    """Part of a file that is mapped a window at a time; as much of a memoryview as readers use."""

    __slots__ = ("_start", "_windows", "nbytes")

    def __init__(self, windows: Windows, start: int = 0, end: int | None = None) -> None:
        self._windows = windows
        self._start = start
        self.nbytes = (windows.nbytes if end is None else end) - start

    def __len__(self) -> int:
        return self.nbytes

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Windowed: ...
    def __getitem__(self, place: int | slice) -> int | Windowed:
        if isinstance(place, slice):
            start, end, step = place.indices(self.nbytes)
            if step != 1:
                raise NotImplementedError("views are cut in one piece")
            return Windowed(self._windows, self._start + start, self._start + max(start, end))
        at = place + self.nbytes if place < 0 else place
        if not 0 <= at < self.nbytes:
            raise IndexError("index out of bounds on a view")
        return self[at : at + 1].mapped()[0]

    def __bytes__(self) -> bytes:
        return bytes(self.mapped())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Windowed, memoryview, bytes, bytearray)):
            return NotImplemented
        if len(other) != self.nbytes:
            return False
        # Bytes are compared in one go, views item by item.
        return all(
            bytes(self[start : start + PIECE]) == bytes(other[start : start + PIECE])
            for start in range(0, self.nbytes, PIECE)
        )

    __hash__ = None  # type: ignore[assignment]  # as a view of bytes that may change

    def mapped(self) -> memoryview:
        """The part as one buffer."""
        if not self.nbytes:
            return memoryview(b"")
        return self._windows.window(self._start, self._start + self.nbytes)


ByteView = memoryview | Windowed
"""Bytes of a file: flat, read-only."""


def mapped(data: ByteView) -> memoryview:
    """A part of a file as one buffer; all of it is mapped as long as that is kept.

    Raises EnvironmentFailure where the system has no room for it.
    """
    return data if isinstance(data, memoryview) else data.mapped()


def pieces(data: ByteView, step: int = PIECE) -> Iterator[memoryview]:
    """The bytes in order, `step` of them at a time."""
    for start in range(0, len(data), step):
        yield mapped(data[start : start + step])
