"""Bytes that arrive in pieces, as one view: in memory while few, in a file when many.

A filter gets its input through a pipe, but cutting and verifying want it all
at hand. Large inputs go to an unnamed temporary file and are mapped, so they
never count as the process's own memory. All sizes are in bytes.

Fresh memory is dear: the system zeroes it, which takes up to a SHA-256 pass,
and writes to a new file as well. Pages of the usual size are used, not huge
ones: on a virtual machine that gives what is free back to its host, huge pages
and a file's were measured to take 2 to 5 times as long, as they are never the
ones that were used a moment ago; elsewhere they would save a quarter of a pass.
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
    """`Windows` of `nbytes` bytes that arrive in order: asking for bytes waits for them.

    `part` gives bytes [start, end) of what has arrived. One thread says how much that
    is, any number of others may wait.
    """

    def __init__(self, nbytes: int, part: Callable[[int, int], memoryview]) -> None:
        self.nbytes = nbytes
        self._part = part
        self._arrived = 0
        self._has_ended = False
        self._change = Condition()

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), read-only; raises EnvironmentFailure where they will never come."""
        # Without the lock: the count only grows, and an old value leads to the lock.
        if end > self._arrived:
            with self._change:
                self._change.wait_for(lambda: end <= self._arrived or self._has_ended)
            if end > self._arrived:
                raise EnvironmentFailure(f"{self._arrived} of {self.nbytes} bytes came")
        return self._part(start, end)

    def arrived(self, nbytes: int) -> None:
        """Say that the first `nbytes` bytes are there.

        Ignored where that is more than was expected, and after the end: readers were
        told by then that the rest will not come.
        """
        with self._change:
            if nbytes <= self.nbytes and not self._has_ended:
                self._arrived = nbytes
                self._change.notify_all()

    def end(self) -> None:
        """Say that nothing more arrives."""
        with self._change:
            self._has_ended = True
            self._change.notify_all()


IN_MEMORY = 8 * 1024 * 1024
"""Up to so many bytes stay in memory, where the caller does not say otherwise."""
# Bytes from which on what makes a temporary file is loaded: small contents do without.
_LOADED_FROM = 1024 * 1024
AMPLE = 2 * 1024 * 1024 * 1024
_PARTS = 8
# Where a container shows how much memory it may use, cgroups(7); a word means no limit.
_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Spool:
    """Write pieces, then take one view of them all.

    `folder` gives the folder for the temporary file when one is needed, None
    for the system's. Where that file can't be written (a full disk) the rest
    stays in memory: smudge must give back what it got. Otherwise no more than
    `in_memory` bytes do.

    `expected` is how many bytes will probably be written. Where there is room for
    them, `incoming` gives parts of them while they arrive. `is_as_expected` says
    in the end whether exactly so many were written: only then may results that were
    made from `incoming` be used.
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
        # Where what is expected goes, in memory.
        self._place: memoryview | None = None
        self._placed = 0
        self.incoming = self._expect(expected) if expected else None

    def write(self, data: Buffer) -> None:
        """Take a copy of flat bytes; raises MemoryError where there is room for it nowhere."""
        piece = memoryview(data)
        if self._place is not None:
            end = self._placed + len(piece)
            if end <= len(self._place):
                self._place[self._placed : end] = piece
                self._placed = end
                self._tell(end)
                return
            # More than expected: go on as a spool that expects nothing.
            self.end()
            placed, self._place = self._place[: self._placed], None
            self._put(placed)
        self._put(piece)
        self._tell(self._spilled)

    def end(self) -> None:
        """Say that nothing more is written, also to those that wait for more."""
        if self.incoming is not None:
            self.incoming.end()

    @property
    def is_as_expected(self) -> bool:
        """Whether what was written is what `incoming` gives, all of it."""
        if self.incoming is None or self._memory:
            return False
        written = self._spilled if self._place is None else self._placed
        return written == self.incoming.nbytes

    def view(self) -> ByteView:
        """All that was written, read-only; nothing is written afterwards."""
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
        """Give the temporary file back; views of it stay good."""
        self.end()
        if self._file is not None:
            self._file.close()

    def _expect(self, nbytes: int) -> IncomingBytes | None:
        """Make room for what is expected; None where there is none."""
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
            # Later may be too late: where memory runs out no module can be loaded.
            import_module("tempfile")
        if self._file is None and len(self._memory) + len(piece) <= self._in_memory:
            with contextlib.suppress(MemoryError):  # a limit on the address space
                self._memory += piece
                return
        if self._may_spill:
            piece = self._spill(piece)
        self._memory += piece

    def _joined(self, file: IO[bytes]) -> memoryview:
        """What is in the file and what did not fit there, in memory."""
        joined = memoryview(bytearray(self._spilled + len(self._memory)))
        file.seek(0)
        done = 0
        while done < self._spilled:
            # One read gives 2 GiB at most: read(2), "Notes".
            nbytes = file.readinto(joined[done : self._spilled])  # type: ignore[attr-defined]
            if not nbytes:
                raise OSError(errno.EIO, "the temporary file is cut short")
            done += nbytes
        joined[done:] = self._memory
        return joined.toreadonly()

    def _spill(self, piece: memoryview) -> memoryview:
        """Put what is in memory, and a piece after it, into the file; gives what did not fit."""
        try:
            if self._file is None:
                self._file = self._moved()
            while piece:
                # A disk that fills up takes part of a write, and fails at the next one.
                written = self._file.write(piece[:WRITE_STEP])
                self._spilled += written
                piece = piece[written:]
        except OSError:
            # Not tried again: what follows in memory has to follow in the view, too.
            self._may_spill = False
        return piece

    def _moved(self) -> IO[bytes]:
        """A file that holds what was in memory: all of it, or it raises OSError."""
        # Here, as it imports random and shutil: contents that fit in memory do without.
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
    """Memory whose pages are cleared when they are first used."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return memoryview(bytearray(nbytes))
    return memoryview(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def ample() -> int:
    """How many bytes one input may take of this machine's memory.

    An eighth of what there is, also in a container, and of the address space
    that the process may use, AMPLE at most: less than git itself takes for
    such a file.
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
    """All bytes of `pieces` as one view; `folder` and `in_memory` as for a Spool."""
    spool = Spool(folder, in_memory=in_memory)
    try:
        for piece in pieces:
            spool.write(piece)
        return spool.view()
    finally:
        spool.close()
