"""Copies of a training's arrays in memory that another process can read.

A buffer's memory is an unnamed file: the worker gets its descriptor once, and maps it. It contains
the bytes of the arrays, then a table (JSON) of them. `BufferPool` keeps buffers for the next
generation, because writing fresh memory takes ten times as long as writing memory that was used
before.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.view import write_at
from wtxtgit.tensors.program_arrays import GivenArray
from wtxtgit.text.arrays import NumpyArray, NumpyType

_ALIGNED = 64
"""Arrays begin at multiples of this many bytes, a cache line."""
_BLOCK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """Where arrays go in a buffer; `offsets` are bytes from the buffer's start."""

    table: bytes
    offsets: tuple[int, ...]
    size: int


def plan_buffer(arrays: Sequence[GivenArray]) -> BufferPlan:
    """Plan the place of each array; arrays that share memory share a place."""
    offsets: list[int] = []
    offset_by_memory: dict[object, int] = {}
    end = 0
    for array in arrays:
        # Empty arrays may have any address.
        key = (array.memory, array.dtype) if array.nbytes else object()
        offset = offset_by_memory.get(key)
        if offset is None:
            offset = offset_by_memory[key] = end
            end = -(-(end + array.nbytes) // _ALIGNED) * _ALIGNED
        offsets.append(offset)
    rows = [
        [
            array.name,
            array.dtype.descr,
            array.dtype.item_size,
            array.dtype.is_extension,
            array.source.shape,
            offset,
        ]
        for array, offset in zip(arrays, offsets, strict=True)
    ]
    table = json.dumps(rows, separators=(",", ":")).encode("ascii")
    # The arrays come first, so that their offsets do not depend on the length of the table.
    return BufferPlan(table, tuple(offsets), end)


class SharedBuffer:
    """Memory of `size` bytes that another process can map by its `descriptor`."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.descriptor = _unnamed_file()
        try:
            # Allocated now: running out of memory later, while writing, would end the process.
            _allocate(self.descriptor, max(1, size))
            self._memory = mmap.mmap(self.descriptor, max(1, size))
        except OSError as error:
            os.close(self.descriptor)
            raise EnvironmentFailure(
                f"no memory for a copy of {size} bytes: {(error.strerror or '').lower()}"
            ) from error

    def fill(self, arrays: Sequence[GivenArray], plan: BufferPlan) -> None:
        """Copy arrays to their places."""
        copied: set[int] = set()
        for array, offset in zip(arrays, plan.offsets, strict=True):
            source = array.source
            if offset in copied or not source.nbytes:
                continue
            copied.add(offset)
            dtype: Any = source.dtype if array.dtype.is_extension else array.dtype.descr
            copy = np.ndarray(source.shape, dtype, self._memory, offset)
            # This makes strided and big-endian arrays contiguous and little-endian.
            np.copyto(copy, source, casting="equiv")
        self._memory[plan.size : plan.size + len(plan.table)] = plan.table

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


class BufferPool:
    """Unused buffers, for the next generation; one thread at a time may call it."""

    def __init__(self) -> None:
        self._free: list[SharedBuffer] = []
        self._number = 0
        self.numbers: frozenset[int] = frozenset()
        """The numbers of all existing buffers, free or not."""

    def take(self, size: int) -> SharedBuffer:
        """Return a buffer of at least `size` bytes, which only the caller may write."""
        fitting = [one for one in self._free if one.size >= size]
        if fitting:
            buffer = min(fitting, key=lambda one: one.size)
            self._free.remove(buffer)
            return buffer
        # The model has grown: smaller buffers would never be used again.
        self.close()
        self._number += 1
        buffer = SharedBuffer(self._number, size)
        self.numbers |= {buffer.number}
        return buffer

    def give_back(self, buffer: SharedBuffer) -> None:
        """Return a buffer to the pool when nobody reads it any more."""
        self._free.append(buffer)

    def close(self) -> None:
        for buffer in self._free:
            buffer.close()
        self.numbers -= {buffer.number for buffer in self._free}
        self._free.clear()


def arrays_in(memory: memoryview, size: int, table_size: int) -> list[NumpyArray]:
    """Return the arrays in a buffer that another process filled, as views of its memory."""
    rows = json.loads(bytes(memory[size : size + table_size]))
    arrays = []
    for name, descr, item_size, is_extension, shape, offset in rows:
        nbytes = item_size
        for dim in shape:
            nbytes *= dim
        arrays.append(
            NumpyArray(
                name,
                NumpyType(descr, item_size, is_extension),
                tuple(shape),
                memory[offset : offset + nbytes],
            )
        )
    return arrays


def _allocate(descriptor: int, size: int) -> None:
    """Give a new file a size, and its room; raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    # macOS has no such call.
    zeros = bytes(min(size, _BLOCK))
    for start in range(0, size, _BLOCK):
        write_at(descriptor, memoryview(zeros)[: size - start], start)


def _unnamed_file() -> int:
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.memfd_create("wtxtgit-snapshot", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(prefix="wtxtgit-") as file:
        return os.dup(file.fileno())
