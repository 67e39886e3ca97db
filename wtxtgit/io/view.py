"""Bytes that may exceed what a process can map or hold: views, blocks, and writing.

Readers of files take a `ByteView`: a flat memoryview of bytes or, for a large file, a `Windowed`,
whose parts are mapped when they are looked at. Both have a length, slices without copying, and
compare by content. Where a buffer is needed (hashing, numpy, struct, codecs), `mapped` returns a
part as one, and `pieces` a long part piece by piece. `view_of` is the view of an open file, which
works even if the process may use less address space (`ulimit -v`) than the file has bytes.
`write_all` writes such pieces to a file; files by path are in `io.files`.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from threading import Lock
from typing import Protocol, TypeVar, final, overload

from wtxtgit.errors import ADDRESS_SPACE, EnvironmentFailure, FormatError
from wtxtgit.io.progress import Progress
from wtxtgit.io.workers import address_space

Buffer = bytes | bytearray | memoryview

PIECE = 1024 * 1024
"""Bytes of a view that are yielded at a time."""
# Bytes that are compared at a time: a copy of this size stays in the processor's cache.
_COMPARED = 128 * 1024
_ZEROS = bytes(64 * 1024)


class Windows(Protocol):
    """Something that maps parts of a file, for any thread."""

    @property
    def nbytes(self) -> int:
        """The size of the whole file in bytes."""

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end), read-only; they stay mapped as long as the view exists.

        Raises EnvironmentFailure if the system has no room for them.
        """


@final
class Windowed:
    """Part of a file that is mapped a window at a time; offers what readers use of a memoryview."""

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
        return same_bytes(self, memoryview(other) if isinstance(other, Buffer) else other)

    __hash__ = None  # type: ignore[assignment]  # as a view of bytes that may change

    def mapped(self) -> memoryview:
        """Return the part as one buffer."""
        if not self.nbytes:
            return memoryview(b"")
        return self._windows.window(self._start, self._start + self.nbytes)


ByteView = memoryview | Windowed
"""Bytes of a file: flat, read-only."""


def mapped(data: ByteView) -> memoryview:
    """Return a part of a file as one buffer, which stays mapped as long as it exists.

    Raises EnvironmentFailure if the system has no room for it.
    """
    return data if isinstance(data, memoryview) else data.mapped()


def pieces(data: ByteView, step: int = PIECE) -> Iterator[memoryview]:
    """Yield the bytes in order, `step` of them at a time."""
    for start in range(0, len(data), step):
        yield mapped(data[start : start + step])


def is_zeros(data: ByteView) -> bool:
    """Tell whether all bytes are 0, reading them piece by piece."""
    return all(_ZEROS.startswith(piece) for piece in pieces(data, len(_ZEROS)))


def same_bytes(a: ByteView, b: ByteView, advance: Progress | None = None) -> bool:
    """Tell whether two views have the same bytes; reads up to the first difference.

    `advance` gets counts of equal bytes.
    """
    if len(a) != len(b):
        return False
    for start in range(0, len(a), _COMPARED):
        end = start + _COMPARED
        # Views compare item by item, a bytearray all at once with any buffer.
        piece = bytearray(mapped(a[start:end]))
        if piece != mapped(b[start:end]):
            return False
        if advance is not None:
            advance(len(piece))
    return True


WHOLE = 256 * 1024 * 1024
"""Most bytes of a file that is mapped as a whole."""
WINDOW = 64 * 1024 * 1024
"""Bytes from the start of one window to that of the next; smaller ones cost speed."""
# The fractions of a limited address space for a file mapped as a whole, and for a window.
_WHOLE_PART = 8
_WINDOW_PART = 32
_PAGES = 4 * mmap.ALLOCATIONGRANULARITY
"""A unit of window sizes, so that a quarter of a window has whole pages too."""
KEPT = 3
"""Windows that stay mapped: two threads read at two places, something else at a third."""


def view_of(descriptor: int) -> ByteView:
    """Return the content of an open regular file; `descriptor` may be closed afterwards."""
    nbytes = os.fstat(descriptor).st_size
    if not nbytes:
        return memoryview(b"")
    most = min(WHOLE, address_space() // _WHOLE_PART)
    whole = _mapped(descriptor, 0, nbytes) if nbytes <= most else None
    return Windowed(FileWindows(descriptor, nbytes)) if whole is None else whole


class FileWindows:
    """The windows of an open file of `nbytes` bytes; `size` is a multiple of the page size.

    A window extends a quarter of its size into the next one, so a part up to that size lies in one
    window, wherever it starts. Longer parts, and those that find no room otherwise, get a mapping
    of their own.
    """

    def __init__(self, descriptor: int, nbytes: int, size: int | None = None) -> None:
        self.nbytes = nbytes
        self._size = _window_size() if size is None else size
        self._overlap = self._size // 4
        self._windows: dict[int, memoryview] = {}
        # A duplicate descriptor, closed with the last view, because the caller may close its own.
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        with _LOCK:
            _OPEN.add(self)

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end); they stay mapped as long as the view exists."""
        if end - start <= self._overlap:
            number = start // self._size
            first = number * self._size
            with _LOCK:
                window = self._window(number)
            if window is not None:
                return window[start - first : end - first]
        # mmap(2) only takes offsets that are multiples of the page size.
        first = start - start % mmap.ALLOCATIONGRANULARITY
        part = _mapped(self._descriptor, first, end - first)
        if part is None:
            # The windows of other files may be using up the address space.
            with _LOCK:
                for windows in _OPEN:
                    windows._windows.clear()
            part = _mapped(self._descriptor, first, end - first)
        if part is None:
            raise EnvironmentFailure(
                f"no address space left to map {end - start} bytes of a file",
                hint=ADDRESS_SPACE,
            )
        return part[start - first :]

    def _window(self, number: int) -> memoryview | None:
        """Return a window; None if there is no room for it."""
        # Dicts keep the order of insertion: by reinserting, the window used last is the last one,
        # and the first one is dropped.
        window = self._windows.pop(number, None)
        if window is None:
            while len(self._windows) >= KEPT:
                del self._windows[next(iter(self._windows))]
            first = number * self._size
            end = min(first + self._size + self._overlap, self.nbytes)
            window = _mapped(self._descriptor, first, end - first)
        if window is not None:
            self._windows[number] = window
        return window


def _window_size() -> int:
    """Return the size of a window in bytes: whole pages, fewer if the address space is limited."""
    part = address_space() // _WINDOW_PART
    return min(WINDOW, max(part - part % _PAGES, _PAGES))


_OPEN: weakref.WeakSet[FileWindows] = weakref.WeakSet()
# Shared by all files, because the windows of one are dropped if another finds no room.
_LOCK = Lock()


def _mapped(descriptor: int, first: int, length: int) -> memoryview | None:
    """Map bytes of an open file; returns None if the system has no room."""
    try:
        return memoryview(mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=first))
    except ValueError as error:
        raise EnvironmentFailure("the file became shorter while it was read") from error
    except OSError as error:
        # ulimit -v: the caller has other options, so this is no failure yet.
        if error.errno != errno.ENOMEM:
            raise
        return None


STEP = 32 * 1024 * 1024
"""Bytes that are read before pages are released."""
_DONT_NEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


AT_ONCE = 1024 * 1024
"""Most bytes of a file that is read at once, without keeping its descriptor."""
BLOCK = 256 * 1024
NEAR = 64 * 1024
"""Bytes by which a block extends into the next, so that parts up to this size lie in one block."""
_KEPT = 4
"""Blocks that are cached: two threads read at two places each."""


class FileReads:
    """`Windows` over an open file that others may change: copies of its parts, for any thread.

    The file is not mapped, because Python dies of SIGBUS if a mapped file is truncated. Looking at
    a part raises EnvironmentFailure if the file's size or time changed since it was opened, if it
    can't be read, or if there is no room for the part. Messages call it `name`; `failures` turns
    the system's errors into EnvironmentFailure. Without `by_time` the time may change, because the
    reader proves what it reads.
    """

    def __init__(
        self,
        descriptor: int,
        name: str,
        failures: Callable[[], AbstractContextManager[None]],
        *,
        by_time: bool = True,
    ) -> None:
        status = os.fstat(descriptor)
        self.nbytes = status.st_size
        self._moment = status.st_mtime_ns if by_time else None
        self._name, self._failures = name, failures
        self._blocks: dict[int, memoryview] = {}
        self._lock = Lock()
        # A duplicate descriptor, closed with the last view, because the caller may close its own.
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end), read-only."""
        if end - start > NEAR:
            return self.read(start, end)
        number = start // BLOCK
        # Records and lines are adjacent: a read for each would cost more than everything else.
        with self._lock:
            block = self._blocks.pop(number, None)
            if block is None:
                first = number * BLOCK
                block = self.read(first, min(first + BLOCK + NEAR, self.nbytes))
                while len(self._blocks) >= _KEPT:
                    del self._blocks[next(iter(self._blocks))]
            self._blocks[number] = block
        return block[start - number * BLOCK : end - number * BLOCK]

    def read(self, start: int, end: int) -> memoryview:
        """Read bytes [start, end) from the file."""
        with self._failures():
            try:
                blocks = [os.pread(self._descriptor, end - start, start)]
                # Linux returns at most 2 GiB at a time.
                while blocks[-1] and (missing := end - start - sum(map(len, blocks))):
                    blocks.append(os.pread(self._descriptor, missing, end - missing))
                content = blocks[0] if len(blocks) == 1 else b"".join(blocks)
            except MemoryError:
                raise EnvironmentFailure(
                    f"{self._name}: no memory left for {end - start} bytes of it",
                    hint=ADDRESS_SPACE,
                ) from None
            status = os.fstat(self._descriptor)
        # After every read: a change that was made before it shows in the time by now.
        moment = None if self._moment is None else status.st_mtime_ns
        if (status.st_size, moment) != (self.nbytes, self._moment):
            what = "became shorter" if status.st_size < self.nbytes else "changed"
            raise EnvironmentFailure(f"{self._name}: {what} while it was read")
        if len(content) != end - start:
            raise EnvironmentFailure(f"{self._name}: ends before its size says")
        return memoryview(content)


class Pages:
    """Mapped files that a comparison reads once, so that they need not count as its memory.

    Pages that were read stay in the system's cache, but are released by this process. `progress`
    gets counts of bytes.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._since = 0
        self._progress = progress

    def watch(self, view: ByteView) -> None:
        """Include the file that a view belongs to, if that is a mapped file."""
        mapping = view.obj if isinstance(view, memoryview) else None
        if isinstance(mapping, mmap.mmap):
            self._maps[id(mapping)] = mapping

    def advance(self, count: int) -> None:
        """Report that `count` more bytes were read."""
        if self._progress is not None:
            self._progress(count)
        self.passed(count)

    def passed(self, count: int) -> None:
        """Note that `count` bytes were looked at, which is no progress."""
        self._since += count
        if self._since >= STEP:
            self.give_up()

    def give_up(self) -> None:
        """Release all pages that were looked at."""
        self._since = 0
        if _DONT_NEED is not None:
            # Nothing is lost of a file that is mapped for reading: its pages are read again.
            for mapping in self._maps.values():
                mapping.madvise(_DONT_NEED)


B = TypeVar("B", bound=Buffer)


def counted(blocks: Iterable[B], progress: Progress | None) -> Iterator[B]:
    """Yield all blocks; `progress` gets the bytes of each once it was taken."""
    for block in blocks:
        yield block
        if progress is not None:
            progress(memoryview(block).nbytes)


class Hasher(Protocol):
    """The common interface of hashes in hashlib and BLAKE3."""

    def update(self, data: Buffer, /) -> object:
        """Add more bytes."""


H = TypeVar("H", bound=Hasher)


def hashed(hasher: H, blocks: Iterable[Buffer], advance: Progress | None = None) -> H:
    """Update a hasher with all blocks, and return it; `advance` gets counts of bytes."""
    for block in blocks:
        hasher.update(block)
        if advance is not None:
            advance(len(block))
    return hasher


def exactly(blocks: Iterable[Buffer], nbytes: int, what: str, field: str) -> Iterator[memoryview]:
    """Yield the blocks as flat bytes, never more than `nbytes` in all.

    Raises FormatError, saying that `what` gave them, unless they have exactly `nbytes`.
    """
    count = 0
    for block in blocks:
        view = memoryview(block).cast("B")
        count += len(view)
        # Not a single byte too many is yielded: it would overwrite what comes next.
        if count > nbytes:
            break
        yield view
    if count != nbytes:
        raise FormatError(f"{what} gives {count} bytes, not {nbytes}", field=field)


WRITE_STEP = 64 * 1024
"""The best number of bytes per write to a large new file.

Linux caches what is written in blocks of memory as large as the write. Large blocks are seldom
recently used memory; if the host of a virtual machine has to provide it again, writing was measured
to take 2 to 10 times as long.
"""
# Size from which on a piece is written by itself.
_SMALL_PIECE = 64 * 1024
_ALL = sys.maxsize
# writev(2): IOV_MAX is 1024 on Linux and elsewhere, 16 by POSIX.
_PARTS_A_CALL = 512


def write_all(descriptor: int, content: Iterable[Buffer]) -> None:
    """Write pieces in order and completely, small ones together."""
    step = WRITE_STEP if stat.S_ISREG(os.fstat(descriptor).st_mode) else _ALL
    small = bytearray()
    for piece in content:
        view = memoryview(piece).cast("B")
        is_small = view.nbytes < _SMALL_PIECE
        if is_small:
            # Copied now, because the iterator may reuse the memory of its pieces.
            small += view
        if len(small) >= _SMALL_PIECE or (small and not is_small):
            write_on(descriptor, small, step)
            small = bytearray()
        if not is_small:
            write_on(descriptor, view, step)
    write_on(descriptor, small, step)


def write_on(descriptor: int, content: Buffer, step: int = WRITE_STEP) -> None:
    """Write everything at the current position of a file or pipe; raises OSError."""
    view = memoryview(content)
    while view.nbytes:
        view = view[os.write(descriptor, view[:step]) :]


def write_parts(descriptor: int, parts: Iterable[Buffer]) -> None:
    """Write parts to a pipe, many by one call; raises OSError."""
    waiting = deque(part for part in (memoryview(part).cast("B") for part in parts) if part.nbytes)
    while waiting:
        written = os.writev(descriptor, list(islice(waiting, _PARTS_A_CALL)))
        while waiting and written >= waiting[0].nbytes:
            written -= waiting.popleft().nbytes
        if written:
            waiting[0] = waiting[0][written:]


def write_at(descriptor: int, content: Buffer, offset: int) -> None:
    """Write everything at an offset of a file; raises OSError."""
    view = memoryview(content)
    while view.nbytes:
        written = os.pwrite(descriptor, view[:WRITE_STEP], offset)
        view, offset = view[written:], offset + written


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill a buffer from an offset of a file; returns the count of bytes; raises OSError."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    # Pythons that are built for old versions of macOS have no such call.
    block = os.pread(descriptor, buffer.nbytes, offset)
    buffer[: len(block)] = block
    return len(block)


def copy_within(descriptor: int, start: int, offset: int, nbytes: int) -> None:
    """Copy a part of an open file to an offset where it does not overlap; raises OSError."""
    in_system = getattr(os, "copy_file_range", None)
    while nbytes:
        done = 0
        if in_system is not None:
            try:
                done = in_system(descriptor, descriptor, nbytes, start, offset)
            except OSError:
                # Not every file system and kernel supports this; other problems will show when
                # writing.
                in_system = None
        if not done:
            block = os.pread(descriptor, min(nbytes, PIECE), start)
            if not block:
                raise OSError(errno.EIO, "the file is cut short")
            write_at(descriptor, block, offset)
            done = len(block)
        start, offset, nbytes = start + done, offset + done, nbytes - done
