"""Bytes that arrive in pieces, as one view: in memory if few, in a file if many.

A filter gets its input through a pipe, but cutting and verifying need all of it. Large inputs go to
an unnamed temporary file and are mapped, so they never count as the process's own memory. All sizes
are in bytes.

Fresh memory is expensive: the system zeroes it, which takes up to a SHA-256 pass, and so do writes
to a new file. Pages of the usual size are used, not huge ones: on a virtual machine that returns
free memory to its host, huge pages and those of a file were measured to take 2 to 5 times as long,
because they are never recently used ones; elsewhere they would save a quarter of a pass.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from threading import Condition
from typing import IO, final

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.view import WRITE_STEP, Buffer, ByteView, FileWindows, view_of, write_on


@final
class IncomingBytes:
    """`Windows` over `nbytes` bytes that arrive in order: asking for bytes waits for them.

    `part` returns bytes [start, end) of what has arrived. One thread states how much that is, any
    number of others may wait.
    """

    def __init__(self, nbytes: int, part: Callable[[int, int], memoryview]) -> None:
        self.nbytes = nbytes
        self._part = part
        self._arrived = 0
        self._has_ended = False
        self._change = Condition()

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end), read-only.

        Raises EnvironmentFailure if they will never arrive.
        """
        # Without the lock: the count only grows, and an outdated value leads to taking the lock.
        if end > self._arrived:
            with self._change:
                self._change.wait_for(lambda: end <= self._arrived or self._has_ended)
            if end > self._arrived:
                raise EnvironmentFailure(f"{self._arrived} of {self.nbytes} bytes came")
        return self._part(start, end)

    def arrived(self, nbytes: int) -> None:
        """State that the first `nbytes` bytes have arrived.

        Ignored if that is more than was expected, and after the end, when readers were told that no
        more will come.
        """
        with self._change:
            if nbytes <= self.nbytes and not self._has_ended:
                self._arrived = nbytes
                self._change.notify_all()

    def end(self) -> None:
        """State that nothing more will arrive."""
        with self._change:
            self._has_ended = True
            self._change.notify_all()


IN_MEMORY = 8 * 1024 * 1024
"""Bytes that stay in memory, unless the caller sets another limit."""
LITTLE = 1024 * 1024
"""The limit for what is a part of a file's size and read from start to end, as a detached text."""
# Size from which on the tempfile module is imported: small contents do without it.
_LOADED_FROM = LITTLE
AMPLE = 2 * 1024 * 1024 * 1024
_PARTS = 8
# Files in which a container states its memory limit, cgroups(7); a word means no limit.
_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Spool:
    """Collects pieces into one view of all of them.

    `folder` returns the folder for the temporary file if one is needed, None for the system's. No
    more than `in_memory` bytes stay in memory unless that file can't be written (a full disk): then
    the rest does, because smudge must give back what it got.

    `expected` is how many bytes will probably be written. If there is room for them `incoming`
    gives access to parts while they arrive. `is_as_expected` says in the end whether exactly so
    many were written: only then may results that were made from `incoming` be used.
    """

    def __init__(
        self,
        folder: Callable[[], Path | None] = lambda: None,
        *,
        in_memory: int = IN_MEMORY,
        expected: int | None = None,
    ) -> None:
        self._folder = folder
        self._in_memory = in_memory
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._may_spill = True
        # Memory for the expected bytes.
        self._place: memoryview | None = None
        self._placed = 0
        self.incoming = self._expect(expected) if expected else None

    def hold_at_most(self, nbytes: int) -> None:
        """Let no more bytes than this stay in memory; called before the first is written."""
        self._in_memory = min(self._in_memory, nbytes)

    def write(self, data: Buffer) -> None:
        """Copy flat bytes; raises MemoryError if there is no room for them anywhere."""
        piece = memoryview(data)
        if self._place is not None:
            end = self._placed + len(piece)
            if end <= len(self._place):
                self._place[self._placed : end] = piece
                self._placed = end
                self._tell(end)
                return
            # More than expected: continue as a spool that expects nothing.
            self.end()
            placed, self._place = self._place[: self._placed], None
            self._put(placed)
        self._put(piece)
        self._tell(self._spilled)

    def end(self) -> None:
        """State that nothing more is written; wakes those that wait for more."""
        if self.incoming is not None:
            self.incoming.end()

    @property
    def is_as_expected(self) -> bool:
        """Whether exactly the bytes that `incoming` expects were written."""
        if self.incoming is None or self._memory:
            return False
        written = self._spilled if self._place is None else self._placed
        return written == self.incoming.nbytes

    def view(self) -> ByteView:
        """Return everything that was written, read-only; nothing may be written afterwards."""
        self.end()
        if self._place is not None:
            return self._place[: self._placed].toreadonly()
        if self._file is None:
            return memoryview(self._memory).toreadonly()
        if self._memory:
            return self._joined(self._file)
        if self.incoming is not None:
            # Fewer bytes were written than the file was made for.
            os.ftruncate(self._file.fileno(), self._spilled)
        return view_of(self._file.fileno())

    def close(self) -> None:
        """Close the temporary file; views of it stay valid."""
        self.end()
        if self._file is not None:
            self._file.close()

    def _expect(self, nbytes: int) -> IncomingBytes | None:
        """Reserve room for the expected bytes; returns None if there is none."""
        if nbytes <= self._in_memory:
            try:
                self._place = _memory(nbytes)
            except (MemoryError, OSError):
                return None
            readonly = self._place.toreadonly()
            return IncomingBytes(nbytes, lambda start, end: readonly[start:end])
        try:
            file = self._moved()
        except OSError:
            return None
        try:
            os.ftruncate(file.fileno(), nbytes)
            windows = FileWindows(file.fileno(), nbytes)
        except (OSError, OverflowError):
            file.close()
            return None
        self._file = file
        return IncomingBytes(nbytes, windows.window)

    def _tell(self, nbytes: int) -> None:
        if self.incoming is not None:
            self.incoming.arrived(nbytes)

    def _put(self, piece: memoryview) -> None:
        if len(self._memory) + len(piece) > _LOADED_FROM:
            # Imported now, because no module can be loaded when memory has run out.
            import_module("tempfile")
        if self._file is None and len(self._memory) + len(piece) <= self._in_memory:
            with contextlib.suppress(MemoryError):  # a limit on the address space
                self._memory += piece
                return
        if self._may_spill:
            piece = self._spill(piece)
        self._memory += piece

    def _joined(self, file: IO[bytes]) -> memoryview:
        """Join the file and what did not fit into it, in memory."""
        joined = memoryview(bytearray(self._spilled + len(self._memory)))
        file.seek(0)
        done = 0
        while done < self._spilled:
            # One read returns at most 2 GiB: read(2), "Notes".
            nbytes = file.readinto(joined[done : self._spilled])  # type: ignore[attr-defined]
            if not nbytes:
                raise OSError(errno.EIO, "the temporary file is cut short")
            done += nbytes
        joined[done:] = self._memory
        return joined.toreadonly()

    def _spill(self, piece: memoryview) -> memoryview:
        """Write the memory's content and a piece after it to the file; returns what did not fit."""
        try:
            if self._file is None:
                self._file = self._moved()
            while piece:
                # When a disk fills up a write is partial, and the next one fails.
                written = self._file.write(piece[:WRITE_STEP])
                self._spilled += written
                piece = piece[written:]
        except OSError:
            # Not tried again: what stays in memory has to be the end of the view.
            self._may_spill = False
        return piece

    def _moved(self) -> IO[bytes]:
        """Return a new file with all of the memory's content; raises OSError."""
        # Imported here, because it imports random and shutil: contents that fit into memory do
        # without.
        import tempfile

        file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by close()
            dir=self._folder(), prefix="wtxtgit-", buffering=0
        )
        try:
            write_on(file.fileno(), self._memory)
        except OSError:
            file.close()
            raise
        self._spilled = len(self._memory)
        self._memory = bytearray()
        return file


def _memory(nbytes: int) -> memoryview:
    """Allocate memory whose pages are zeroed when first used."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return memoryview(bytearray(nbytes))
    return memoryview(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def ample() -> int:
    """Return how much of this machine's memory one input may take, in bytes.

    That is an eighth of the memory, respecting limits of containers and of the process's address
    space, and at most AMPLE: less than git itself takes for such a file.
    """
    return max(IN_MEMORY, min([AMPLE, *(size // _PARTS for size in _memory_sizes())]))


def _memory_sizes() -> Iterable[int]:
    with contextlib.suppress(ValueError, OSError):  # names that the system does not know
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _GROUP_LIMITS:
        with contextlib.suppress(ValueError, OSError):
            yield int(Path(name).read_bytes())
    with contextlib.suppress(ImportError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit


def spooled(
    pieces: Iterable[Buffer],
    folder: Callable[[], Path | None] = lambda: None,
    *,
    in_memory: int = IN_MEMORY,
) -> ByteView:
    """Return all bytes of `pieces` as one view; `folder` and `in_memory` as for a Spool."""
    spool = Spool(folder, in_memory=in_memory)
    try:
        for piece in pieces:
            spool.write(piece)
        return spool.view()
    finally:
        spool.close()
