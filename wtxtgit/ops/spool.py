"""Bytes that arrive in pieces, as one view: in memory while few, in a file when many.

A filter gets its input through a pipe, but cutting and verifying want it all
at hand. Large inputs go to an unnamed temporary file and are mapped, so they
never count as the process's own memory.
"""

from __future__ import annotations

import errno
import mmap
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from wtxtgit.model import Buffer

IN_MEMORY = 8 * 1024 * 1024
"""Up to so many bytes stay in memory."""


class Spool:
    """Write pieces, then take one view of them all.

    `folder` gives the folder for the temporary file when one is needed, None
    for the system's. Where that file can't be written (a full disk) the rest
    stays in memory: smudge must give back what it got.
    """

    def __init__(self, folder: Callable[[], Path | None] = lambda: None) -> None:
        self._folder = folder
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._may_spill = True

    def write(self, data: Buffer) -> None:
        self._memory += data
        if len(self._memory) >= IN_MEMORY and self._may_spill:
            self._spill()

    def view(self) -> memoryview:
        """All that was written, read-only; nothing is written afterwards."""
        if self._file is None:
            return memoryview(self._memory).toreadonly()
        if self._memory and self._may_spill:
            self._spill()
        if self._memory:
            return self._joined(self._file)
        mapped = mmap.mmap(self._file.fileno(), self._spilled, access=mmap.ACCESS_READ)
        return memoryview(mapped)

    def close(self) -> None:
        """Give the temporary file back; views of it stay good."""
        if self._file is not None:
            self._file.close()

    def _joined(self, file: IO[bytes]) -> memoryview:
        """What is in the file and what did not fit there, in memory."""
        whole = bytearray(self._spilled + len(self._memory))
        place = memoryview(whole)
        file.seek(0)
        done = 0
        while done < self._spilled:
            # One read gives 2 GiB at most.
            taken = file.readinto(place[done : self._spilled])  # type: ignore[attr-defined]
            if not taken:
                raise OSError(errno.EIO, "the temporary file is cut short")
            done += taken
        place[done:] = self._memory
        return place.toreadonly()

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by close()
                    dir=self._folder(), prefix="wtxtgit-", buffering=0
                )
            view = memoryview(self._memory)
            while view.nbytes:
                written = self._file.write(view)
                self._spilled += written
                view = view[written:]
            view.release()
            self._memory = bytearray()
        except OSError:
            self._may_spill = False
            if self._file is not None:
                # What this piece already wrote counts once: in the file.
                self._memory = bytearray(view)


def spooled(
    pieces: Iterable[Buffer], folder: Callable[[], Path | None] = lambda: None
) -> memoryview:
    """All bytes of `pieces` as one view; `folder` as for a Spool."""
    spool = Spool(folder)
    try:
        for piece in pieces:
            spool.write(piece)
        return spool.view()
    finally:
        spool.close()
