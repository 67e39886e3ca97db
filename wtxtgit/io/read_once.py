"""Mapped files that are read once from end to end, without counting as memory.

What was read stays in the system's cache, but is given up by this process.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np

from wtxtgit.io.view import ByteView, mapped

STEP = 32 * 1024 * 1024
"""Bytes read between two times that pages are given up."""
_BLOCK = 256 * 1024
_DONT_NEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


class Pages:
    """The mapped files that a comparison reads; `progress` gets counts of bytes."""

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._since = 0
        self._progress = progress

    def watch(self, view: ByteView) -> None:
        """Give up pages of the file that a view is of, if it is one of a mapped file."""
        held = view.obj if isinstance(view, memoryview) else None
        if isinstance(held, mmap.mmap):
            self._maps[id(held)] = held

    def advance(self, count: int) -> None:
        """Say that `count` bytes more were read."""
        if self._progress is not None:
            self._progress(count)
        self.passed(count)

    def passed(self, count: int) -> None:
        """Say that something was looked at in `count` bytes, which is no progress."""
        self._since += count
        if self._since < STEP:
            return
        self._since = 0
        if _DONT_NEED is not None:
            for held in self._maps.values():
                held.madvise(_DONT_NEED)

    def equal(self, a: ByteView, b: ByteView) -> bool:
        """Whether two pieces of one length hold equal bytes."""
        for start in range(0, len(a), _BLOCK):
            x = np.frombuffer(mapped(a[start : start + _BLOCK]), np.uint8)
            y = np.frombuffer(mapped(b[start : start + _BLOCK]), np.uint8)
            if not np.array_equal(x, y):
                return False
            self.advance(len(x))
        return True
