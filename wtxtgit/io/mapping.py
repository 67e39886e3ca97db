"""Files mapped a window at a time, so that their size asks for no address space.

A process may be allowed less of it (`ulimit -v`) than a file has bytes.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from threading import Lock

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.view import ByteView, Windowed

WHOLE = 256 * 1024 * 1024
"""Files of at most so many bytes are mapped whole."""
WINDOW = 64 * 1024 * 1024
"""Bytes from the start of one window to that of the next; smaller ones cost speed."""
KEPT = 3
"""Windows that stay mapped: two threads read at two places, something else at a third."""


def view_of(descriptor: int) -> ByteView:
    """What a regular file that is open holds; `descriptor` may be closed afterwards."""
    nbytes = os.fstat(descriptor).st_size
    if not nbytes:
        return memoryview(b"")
    held = _mapped(descriptor, 0, nbytes) if nbytes <= WHOLE else None
    return Windowed(FileWindows(descriptor, nbytes)) if held is None else held


class FileWindows:
    """The windows of an open file of `nbytes` bytes; `size` is a multiple of the page size.

    A window reaches a quarter of its size into the next one: a part that is
    not longer lies in one window, wherever it starts. What is longer, or finds
    no room otherwise, gets a mapping of its own.
    """

    def __init__(self, descriptor: int, nbytes: int, size: int | None = None) -> None:
        self.nbytes = nbytes
        self._size = WINDOW if size is None else size
        self._overlap = self._size // 4
        self._kept: dict[int, memoryview] = {}
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        with _LOCK:
            _OPEN.add(self)

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end); what is mapped for them stays as long as the view is kept."""
        if end - start <= self._overlap:
            number = start // self._size
            first = number * self._size
            with _LOCK:
                held = self._window(number)
            if held is not None:
                return held[start - first : end - first]
        first = start - start % mmap.ALLOCATIONGRANULARITY
        held = _mapped(self._descriptor, first, end - first)
        if held is None:
            with _LOCK:
                for windows in _OPEN:
                    windows._kept.clear()
            held = _mapped(self._descriptor, first, end - first)
        if held is None:
            raise EnvironmentFailure(
                f"no room to map {end - start} bytes of a file",
                hint="ulimit -v shows how much address space a process may use",
            )
        return held[start - first :]

    def _window(self, number: int) -> memoryview | None:
        """A window; None where there is no room for it."""
        # The last one of a dict is the one used last.
        held = self._kept.pop(number, None)
        if held is None:
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            first = number * self._size
            end = min(first + self._size + self._overlap, self.nbytes)
            held = _mapped(self._descriptor, first, end - first)
        if held is not None:
            self._kept[number] = held
        return held


_OPEN: weakref.WeakSet[FileWindows] = weakref.WeakSet()
_LOCK = Lock()
"""For the windows of all files: those of one are given up where another finds no room."""


def _mapped(descriptor: int, first: int, length: int) -> memoryview | None:
    """Bytes of an open file; None where the system has no room to map them."""
    try:
        return memoryview(mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=first))
    except ValueError as error:
        raise EnvironmentFailure("the file became shorter while it was read") from error
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return None
