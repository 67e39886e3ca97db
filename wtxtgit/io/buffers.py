"""Buffers that are used again and again: fresh pages cost as much as a SHA-256 pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Buffers:
    """Buffers of `size` bytes for as many threads as ask for one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[NDArray[np.uint8]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """One of at least `size` bytes, of any content: to be given back."""
        if size > self._size:
            return np.empty(size, dtype=np.uint8)
        try:
            return self._free.pop()
        except IndexError:
            return np.empty(self._size, dtype=np.uint8)

    def give(self, buffer: NDArray[np.uint8]) -> None:
        """Give a buffer back; nothing may look at it any more."""
        if buffer.nbytes == self._size:
            self._free.append(buffer)
