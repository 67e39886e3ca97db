"""A store: chunks of payload, added and read by their SHA-256.

Spec: `docs/spec/store.md`. What a chunk is asked for by is also what its bytes are checked by.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.errors import EnvironmentFailure, PayloadDamaged, PayloadMissing
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.reading import ChunkReading, DecodedBases, run_of

if TYPE_CHECKING:
    from wtxtgit.store.writer import StoreWriter


class Store:
    """The packs in `folder`, which need not be there yet, and those of `alternates`, for reading.

    Any number of processes and threads may read and add at once. `shared` are permission bits
    that others get of what is added beyond the user's umask, core.sharedRepository.
    """

    def __init__(self, folder: Path, *, alternates: Sequence[Path] = (), shared: int = 0) -> None:
        self.folder = folder
        self.own = PackFolder(folder, shared=shared)
        self.borrowed = tuple(PackFolder(path, is_own=False) for path in alternates)
        self._all = (self.own, *self.borrowed)
        self._held = DecodedBases()

    @contextlib.contextmanager
    def writing(self) -> Iterator[StoreWriter]:
        """Add chunks, from any thread; at the end all are in packs, and on the disk.

        Where the block fails, some may be. Raises EnvironmentFailure where they can't be written.
        """
        # Most commands read.
        from wtxtgit.store.writer import StoreWriter

        with StoreWriter(self.own, self._held, self.borrowed) as writer:
            yield writer
            writer.finish()

    def want(self, names: Iterable[bytes]) -> None:
        """A store has what it has."""

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        """Those names of 32 bytes of which there are chunks. No chunk is looked at."""
        asked = list(names)
        found = self._told(asked)
        if len(found) < len(asked) and len(found) < len(set(asked)) and self.prove():
            found = self._told(asked)
        return found

    def _told(self, names: Sequence[bytes]) -> set[bytes]:
        """Those of which the index of a folder, or a pack, says that they are here."""
        return {name for folder in self._all for name in folder.has(names)} if names else set()

    def states(self, names: Sequence[bytes]) -> set[bytes]:
        """See `PayloadSource`: of the packs that hold these chunks, and what is decoded with them.

        Whoever writes into a pack, or puts another in its place, can't set when its inode changed.
        """
        found = set()
        try:
            for folder, pack, _ in self._needed(names) or ():
                status = folder.path(pack).stat()
                told = (
                    f"{pack} {status.st_dev} {status.st_ino} {status.st_size} "
                    f"{status.st_mtime_ns} {status.st_ctime_ns}"
                )
                found.add(sha256(told.encode()).digest())
        except (OSError, EnvironmentFailure):
            return set()
        return found

    def _needed(self, names: Sequence[bytes]) -> list[tuple[PackFolder, str, int]] | None:
        """The packs that are read for some chunks, with their lengths; None where one lacks.

        Raises what `PackFolder.needed` does.
        """
        wanted = [*dict.fromkeys(names)]
        # What clean kept a moment ago came by another writer.
        if len(self._told(wanted)) < len(wanted):
            self.refresh()
            if len(self.has(wanted)) < len(wanted):
                return None
        needed = [
            (folder, pack, size)
            for folder in self._all
            for pack, size in folder.needed(names).items()
        ]
        # Of a pack that can't be used the chunks may still be told, and are not here.
        return None if any(folder.damaged for folder in self._all) else needed

    def holds(self, name: bytes) -> bool:
        """Whether there is a chunk of that name."""
        return any(folder.holds(name) for folder in self._all)

    def read(self, name: bytes, size: int | None = None) -> ByteView:
        """A chunk's bytes, which have been checked against its name.

        `size` is what a text says of it: a chunk of another size is none. Raises PayloadMissing;
        PayloadDamaged, which names the packs, where no copy is whole.
        """
        reading = ChunkReading(self._all, self._held)
        found = reading.chunk(name, size)
        if found is None and any((self.refresh(), self.prove())):
            # Another process may have added it, or put it into another pack; or the index lied.
            found = reading.chunk(name, size)
        if found is not None:
            return found
        if reading.problems:
            raise PayloadDamaged(name, "; ".join(reading.problems), hint="wtxtgit store verify")
        unusable = [
            f"{shown(folder.path(pack))} {what}"
            for folder in self._all
            for pack, what in folder.damaged.items()
        ]
        where = f"not in the store {shown(self.folder)}"
        raise PayloadMissing(name, "; ".join((where, *unusable)))

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        """See `PayloadSource`: the bytes have been checked against the names."""
        run = run_of(self._all, names, size, self._held)
        if run is None:
            return None
        data = run.plain()
        for number, name in enumerate(names):
            if sha256(data[number * size : (number + 1) * size]).digest() != name:
                return None
        return data

    def refresh(self) -> bool:
        """Look for packs that came or went since; tells whether any did."""
        changed = [folder.refresh() for folder in self._all]
        return any(changed)

    def prove(self) -> bool:
        """Believe the packs alone, see `PackFolder.prove`; tells whether more was believed.

        So it is of folders whose packs can all be read.
        """
        more = False
        for folder in self._all:
            with contextlib.suppress(EnvironmentFailure):
                more |= folder.prove()
        return more
