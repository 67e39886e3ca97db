"""Bytes that may be more than a process can map or hold: views of them, blocks, and writing.

What reads files takes a `ByteView`: a flat memoryview of bytes or, where the file
is large, a `Windowed`, whose parts are mapped when they are looked at. Both
have a length, slices that cost nothing, and compare by what they hold. Where
a buffer is needed (hashing, numpy, struct, codecs), `mapped` gives a part as
one, and `pieces` a long part piece by piece. `view_of` is the view of an open
file: a process may be allowed less address space (`ulimit -v`) than the file
has bytes. `write_all` writes such pieces to one; files by their path are in `io.files`.
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

from wtxtgit.errors import EnvironmentFailure, FormatError
from wtxtgit.io.progress import Progress
from wtxtgit.io.workers import address_space

Buffer = bytes | bytearray | memoryview

PIECE = 1024 * 1024
"""Bytes of a view that are given at a time."""
# Bytes compared at a time: a copy of so many stays in a processor's cache.
_COMPARED = 128 * 1024
_ZEROS = bytes(64 * 1024)


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
        return same_bytes(self, memoryview(other) if isinstance(other, Buffer) else other)

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


def is_zeros(data: ByteView) -> bool:
    """Whether all bytes are 0; they are looked at piece by piece."""
    return all(_ZEROS.startswith(piece) for piece in pieces(data, len(_ZEROS)))


def same_bytes(a: ByteView, b: ByteView, advance: Progress | None = None) -> bool:
    """Whether two views hold the same bytes; reads up to the first difference.

    `advance` gets counts of bytes that are the same.
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
"""Files of at most so many bytes are mapped whole."""
WINDOW = 64 * 1024 * 1024
"""Bytes from the start of one window to that of the next; smaller ones cost speed."""
# The part of a limited address space that a file mapped whole may take, and a window.
_WHOLE_PART = 8
_WINDOW_PART = 32
_PAGES = 4 * mmap.ALLOCATIONGRANULARITY
"""A quarter of a window are whole pages, too."""
KEPT = 3
"""Windows that stay mapped: two threads read at two places, something else at a third."""


def view_of(descriptor: int) -> ByteView:
    """What a regular file that is open holds; `descriptor` may be closed afterwards."""
    nbytes = os.fstat(descriptor).st_size
    if not nbytes:
        return memoryview(b"")
    most = min(WHOLE, address_space() // _WHOLE_PART)
    whole = _mapped(descriptor, 0, nbytes) if nbytes <= most else None
    return Windowed(FileWindows(descriptor, nbytes)) if whole is None else whole


class FileWindows:
    """The windows of an open file of `nbytes` bytes; `size` is a multiple of the page size.

    A window reaches a quarter of its size into the next one: a part that is
    not longer lies in one window, wherever it starts. What is longer, or finds
    no room otherwise, gets a mapping of its own.
    """

    def __init__(self, descriptor: int, nbytes: int, size: int | None = None) -> None:
        self.nbytes = nbytes
        self._size = _window_size() if size is None else size
        self._overlap = self._size // 4
        self._windows: dict[int, memoryview] = {}
        # A descriptor of its own, closed with the last view: the caller may close its.
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
                window = self._window(number)
            if window is not None:
                return window[start - first : end - first]
        # mmap(2) takes offsets that are multiples of the page size only.
        first = start - start % mmap.ALLOCATIONGRANULARITY
        part = _mapped(self._descriptor, first, end - first)
        if part is None:
            # Windows of any file may be what takes up the address space.
            with _LOCK:
                for windows in _OPEN:
                    windows._windows.clear()
            part = _mapped(self._descriptor, first, end - first)
        if part is None:
            raise EnvironmentFailure(
                f"no room to map {end - start} bytes of a file",
                hint="ulimit -v shows how much address space a process may use",
            )
        return part[start - first :]

    def _window(self, number: int) -> memoryview | None:
        """A window; None where there is no room for it."""
        # A dict keeps the order of insertion: taken out and put in again, the window used
        # last is the last one, and the first is the one to give up.
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
    """Bytes of a window: fewer where the address space is limited, whole pages."""
    part = address_space() // _WINDOW_PART
    return min(WINDOW, max(part - part % _PAGES, _PAGES))


_OPEN: weakref.WeakSet[FileWindows] = weakref.WeakSet()
# For the windows of all files: those of one are given up where another finds no room.
_LOCK = Lock()


def _mapped(descriptor: int, first: int, length: int) -> memoryview | None:
    """Bytes of an open file; None where the system has no room to map them."""
    try:
        return memoryview(mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=first))
    except ValueError as error:
        raise EnvironmentFailure("the file became shorter while it was read") from error
    except OSError as error:
        # ulimit -v: the caller has other ways, so this is no failure yet.
        if error.errno != errno.ENOMEM:
            raise
        return None


STEP = 32 * 1024 * 1024
"""Bytes read between two times that pages are given up."""
_DONT_NEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


AT_ONCE = 1024 * 1024
"""Files of at most so many bytes are read whole, and keep no descriptor."""
BLOCK = 256 * 1024
NEAR = 64 * 1024
"""Bytes by which a block reaches into the next one: a part that is not longer lies in one."""
_KEPT = 4
"""Blocks that are kept: two threads read at two places each."""


class FileReads:
    """`Windows` of an open file that others may change: copies of its parts, from any thread.

    The file is not mapped: Python ends with SIGBUS where a mapped file is cut short. Looking
    at a part raises EnvironmentFailure where the file is not any more what it was when it was
    opened, by its size and time, or can't be read, or there is no room for the part. `name` is
    what messages call it, `failures` makes EnvironmentFailure of what the system says. Where not
    `by_time`, the reader proves what it reads, and the time may change.
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
        # A descriptor of its own, closed with the last view: the caller may close its.
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), read-only."""
        if end - start > NEAR:
            return self.read(start, end)
        number = start // BLOCK
        # Records and lines lie side by side: a read for each would cost more than the rest.
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
                found = [os.pread(self._descriptor, end - start, start)]
                # Linux gives at most 2 GiB at a time.
                while found[-1] and (missing := end - start - sum(map(len, found))):
                    found.append(os.pread(self._descriptor, missing, end - missing))
                content = found[0] if len(found) == 1 else b"".join(found)
            except MemoryError:
                raise EnvironmentFailure(
                    f"{self._name}: no room to hold {end - start} bytes of it",
                    hint="ulimit -v shows how much address space a process may use",
                ) from None
            status = os.fstat(self._descriptor)
        # After every read: what was changed before it has a time of its own by now.
        moment = None if self._moment is None else status.st_mtime_ns
        if (status.st_size, moment) != (self.nbytes, self._moment):
            what = "became shorter" if status.st_size < self.nbytes else "changed"
            raise EnvironmentFailure(f"{self._name}: {what} while it was read")
        if len(content) != end - start:
            raise EnvironmentFailure(f"{self._name}: ends before its size says")
        return memoryview(content)


class Pages:
    """The mapped files that a comparison reads once, which then do not count as its memory.

    What was read stays in the system's cache, but is given up by this process.
    `progress` gets counts of bytes.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._since = 0
        self._progress = progress

    def watch(self, view: ByteView) -> None:
        """Give up pages of the file that a view is of, if it is one of a mapped file."""
        mapping = view.obj if isinstance(view, memoryview) else None
        if isinstance(mapping, mmap.mmap):
            self._maps[id(mapping)] = mapping

    def advance(self, count: int) -> None:
        """Say that `count` bytes more were read."""
        if self._progress is not None:
            self._progress(count)
        self.passed(count)

    def passed(self, count: int) -> None:
        """Say that something was looked at in `count` bytes, which is no progress."""
        self._since += count
        if self._since >= STEP:
            self.give_up()

    def give_up(self) -> None:
        """Give up all pages that were looked at."""
        self._since = 0
        if _DONT_NEED is not None:
            # Of a file that is mapped for reading nothing is lost: pages are read again.
            for mapping in self._maps.values():
                mapping.madvise(_DONT_NEED)


class Hasher(Protocol):
    """What hashes of hashlib and BLAKE3 have in common."""

    def update(self, data: Buffer, /) -> object:
        """Take in more bytes."""


H = TypeVar("H", bound=Hasher)


def hashed(hasher: H, blocks: Iterable[Buffer], advance: Progress | None = None) -> H:
    """The hasher, which has taken in all blocks of flat bytes; `advance` gets counts of bytes."""
    for block in blocks:
        hasher.update(block)
        if advance is not None:
            advance(len(block))
    return hasher


def exactly(blocks: Iterable[Buffer], nbytes: int, what: str, field: str) -> Iterator[memoryview]:
    """The blocks as flat bytes; what is too much is not given.

    Raises FormatError, which says `what` gave them, unless they are `nbytes` together.
    """
    given = 0
    for block in blocks:
        view = memoryview(block).cast("B")
        given += len(view)
        # Not one byte too many leaves: what is written stands before what comes after it.
        if given > nbytes:
            break
        yield view
    if given != nbytes:
        raise FormatError(f"{what} gives {given} bytes, not {nbytes}", field=field)


WRITE_STEP = 64 * 1024
"""Bytes of a large new file that are best written at a time.

Linux keeps what is written in blocks of memory as large as the write. Large
ones are seldom those that were used a moment ago; where a virtual machine's
host has to give them anew, writing was measured to take 2 to 10 times as long.
"""
# Bytes from which on a piece is written by itself.
_SMALL_PIECE = 64 * 1024
_ALL = sys.maxsize
# writev(2): IOV_MAX is 1024 on Linux and elsewhere, 16 by POSIX.
_PARTS_A_CALL = 512


def write_all(descriptor: int, content: Iterable[Buffer]) -> None:
    """Write pieces in order, whatever the system takes at a time, small ones together."""
    step = WRITE_STEP if stat.S_ISREG(os.fstat(descriptor).st_mode) else _ALL
    small = bytearray()
    for piece in content:
        view = memoryview(piece).cast("B")
        is_small = view.nbytes < _SMALL_PIECE
        if is_small:
            # Copied now: what gives the pieces may use their memory again.
            small += view
        if len(small) >= _SMALL_PIECE or (small and not is_small):
            write_on(descriptor, small, step)
            small = bytearray()
        if not is_small:
            write_on(descriptor, view, step)
    write_on(descriptor, small, step)


def write_on(descriptor: int, content: Buffer, step: int = WRITE_STEP) -> None:
    """Write all of a content where a file or pipe is at; raises OSError."""
    view = memoryview(content)
    while view.nbytes:
        view = view[os.write(descriptor, view[:step]) :]


def write_parts(descriptor: int, parts: Iterable[Buffer]) -> None:
    """Write parts to where a pipe is at, many by one call; raises OSError."""
    waiting = deque(part for part in (memoryview(part).cast("B") for part in parts) if part.nbytes)
    while waiting:
        written = os.writev(descriptor, list(islice(waiting, _PARTS_A_CALL)))
        while waiting and written >= waiting[0].nbytes:
            written -= waiting.popleft().nbytes
        if written:
            waiting[0] = waiting[0][written:]


def write_at(descriptor: int, content: Buffer, offset: int) -> None:
    """Write all of a content to a place in a file; raises OSError."""
    view = memoryview(content)
    while view.nbytes:
        written = os.pwrite(descriptor, view[:WRITE_STEP], offset)
        view, offset = view[written:], offset + written


def copy_within(descriptor: int, start: int, offset: int, nbytes: int) -> None:
    """Copy a part of an open file to where it does not overlap; raises OSError."""
    in_system = getattr(os, "copy_file_range", None)
    while nbytes:
        done = 0
        if in_system is not None:
            try:
                done = in_system(descriptor, descriptor, nbytes, start, offset)
            except OSError:
                # Not every file system and kernel can; what is wrong otherwise, writing tells.
                in_system = None
        if not done:
            block = os.pread(descriptor, min(nbytes, PIECE), start)
            if not block:
                raise OSError(errno.EIO, "the file is cut short")
            write_at(descriptor, block, offset)
            done = len(block)
        start, offset, nbytes = start + done, offset + done, nbytes - done
