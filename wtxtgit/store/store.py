"""A store: chunks of payload, added and read by their SHA-256.

Spec: `docs/spec/store.md`. A chunk's bytes are always checked against the name that was asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.errors import MENDS_STORE, EnvironmentFailure, PayloadDamaged, PayloadMissing
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import FEW_NAMES, in_groups
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.reading import ChunkReading, DecodedBases, run_of

if TYPE_CHECKING:
    from wtxtgit.store.writer import StoreWriter


class Store:
    """The packs in `folder`, which need not exist yet, and those of `alternates`, read-only.

    Any number of processes and threads may read and add at once. `shared` are permission bits that
    added files get beyond the user's umask, core.sharedRepository.
    """

    def __init__(self, folder: Path, *, alternates: Sequence[Path] = (), shared: int = 0) -> None:
        self.folder = folder
        self.own = PackFolder(folder, shared=shared)
        self.borrowed = tuple(PackFolder(path, is_own=False) for path in alternates)
        self._all = (self.own, *self.borrowed)
        self._cache = DecodedBases()

    @contextlib.contextmanager
    def writing(self) -> Iterator[StoreWriter]:
        """Yield a writer for any thread; at the end all added chunks are in packs, and on disk.

        If the block fails some may be. Raises EnvironmentFailure if they can't be written.
        """
        # Imported here: most commands only read.
        from wtxtgit.store.writer import MAX_PACK, StoreWriter

        with StoreWriter(self.own, self._cache, self.borrowed) as writer:
            yield writer
            writer.finish()
        if self.own.small_nbytes >= MAX_PACK:
            self.join_small()

    def join_small(self) -> None:
        """Join the small packs that were added through this object to larger ones."""
        if self.own.small_nbytes:
            from wtxtgit.store.joining import join_small

            join_small(self.own)

    def want(self, names: Iterable[bytes]) -> None:
        """Do nothing: a local store can't fetch."""

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        """Return those of the names (32 bytes each) for which there are chunks; none is read."""
        wanted = list(names)
        present = self._present(wanted)
        if len(present) < len(wanted) and len(present) < len(set(wanted)) and self.prove():
            present = self._present(wanted)
        return present

    def _present(self, names: Sequence[bytes]) -> set[bytes]:
        """Return those of the names that the tables of a folder list."""
        return {name for folder in self._all for name in folder.has(names)} if names else set()

    def states(self, names: Iterable[bytes]) -> set[bytes]:
        """See `PayloadSource`: states of the packs with these chunks and what they are decoded
        from.

        Whoever modifies or replaces a pack can't forge the time at which its inode changed.
        """
        states = set()
        try:
            for folder, pack, _ in self._needed(names) or ():
                status = folder.path(pack).stat()
                state = (
                    f"{pack} {status.st_dev} {status.st_ino} {status.st_size} "
                    f"{status.st_mtime_ns} {status.st_ctime_ns}"
                )
                states.add(sha256(state.encode()).digest())
        except (OSError, EnvironmentFailure):
            return set()
        return states

    def _needed(self, names: Iterable[bytes]) -> list[tuple[PackFolder, str, int]] | None:
        """Return the packs that have to be read for chunks, with their sizes; None if a chunk is
        missing.

        Raises as `PackFolder.needed` does.
        """
        packs_of: list[set[str]] = [set() for _ in self._all]
        for group in in_groups(names, FEW_NAMES):
            chunks = [*dict.fromkeys(group)]
            # What clean stored a moment ago was added by another writer.
            if len(self._present(chunks)) < len(chunks):
                self.refresh()
                if len(self.has(chunks)) < len(chunks):
                    return None
            for folder, packs in zip(self._all, packs_of, strict=True):
                packs |= folder.holding(chunks)
        needed = [
            (folder, pack, size)
            for folder, packs in zip(self._all, packs_of, strict=True)
            for pack, size in folder.needed(packs).items()
        ]
        # A table may still list the chunks of an unusable pack, which can't be read.
        return None if any(folder.damaged for folder in self._all) else needed

    def holds(self, name: bytes) -> bool:
        """Tell whether there is a chunk with that name."""
        return any(folder.holds(name) for folder in self._all)

    def read(self, name: bytes, size: int | None = None) -> ByteView:
        """Return a chunk's bytes, checked against its name.

        `size` is the size that a text states: a chunk of another size does not count. Raises
        PayloadMissing, or PayloadDamaged, which names the packs, if no copy is intact.
        """
        reading = ChunkReading(self._all, self._cache)
        chunk = reading.chunk(name, size)
        if chunk is None and any((self.refresh(), self.prove())):
            # Another process may have added it, or moved it to another pack; or the index was
            # wrong.
            chunk = reading.chunk(name, size)
        if chunk is not None:
            return chunk
        if reading.problems:
            raise PayloadDamaged(name, "; ".join(reading.problems), hint=MENDS_STORE)
        unusable = [
            f"{shown(folder.path(pack))} {what}"
            for folder in self._all
            for pack, what in folder.damaged.items()
        ]
        where = f"not in the store {shown(self.folder)}"
        raise PayloadMissing(name, "; ".join((where, *unusable)))

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        """See `PayloadSource`: the bytes are checked against the names."""
        run = run_of(self._all, names, size, self._cache)
        if run is None:
            return None
        data = run.plain()
        for number, name in enumerate(names):
            if sha256(data[number * size : (number + 1) * size]).digest() != name:
                return None
        return data

    def refresh(self) -> bool:
        """Look for packs that were added or removed; returns whether there are any."""
        changed = [folder.refresh() for folder in self._all]
        return any(changed)

    def prove(self) -> bool:
        """Rebuild the tables from the packs: see `PackFolder.prove`; returns whether any was.

        A folder with a pack that can't be read keeps its tables.
        """
        more = False
        for folder in self._all:
            with contextlib.suppress(EnvironmentFailure):
                more |= folder.prove()
        return more
