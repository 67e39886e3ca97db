"""The contents of a remote's packs, by what their ends say.

The end of each pack is read once and cached beside the store, since packs never change. If a pack
turns out to differ, its cached end is dropped.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Set
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, FormatError, InputError, WtxtgitError
from wtxtgit.io.files import failures, read_small
from wtxtgit.io.progress import Progress
from wtxtgit.io.temporary import new_file, opened_folder
from wtxtgit.io.view import write_all
from wtxtgit.remotes.payload.place import PackPlace
from wtxtgit.store.folder import ChunkTable, on_disk, table_of, together
from wtxtgit.store.pack import MAX_DEPTH, MAX_END, ChunkEntry, ChunkIndex, parse_end

_FOLDER = "remotes"
_MODE = 0o644
_INDEXES_HELD = 64
"""Indexes that are cached: one of a 64 MiB pack has 0.1 MB; adjacent chunks are in few packs."""


class RemotePacks:
    """The packs of a place: `sizes` in bytes, and `damaged`, what is wrong with unusable ones.

    Raises as the place does.
    """

    def __init__(self, place: PackPlace, store: Path) -> None:
        self.place = place
        kept = sha256(place.label.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._folder = store / _FOLDER / kept
        self.sizes: dict[str, int] = {}
        self.damaged: dict[str, str] = {}
        # Ends that could not be cached on disk.
        self._ends: dict[str, bytes] = {}
        self._indexes: OrderedDict[str, ChunkIndex] = OrderedDict()
        names = place.packs()
        self._forget_gone(names)
        tables: list[ChunkTable] = []
        for name in names:
            with contextlib.suppress(WtxtgitError, OSError):
                tables.append(self._take(name, self._kept(name)))
        unread = [name for name in names if name not in self.sizes]
        for name, end in place.ends(unread):
            try:
                tables.append(self._take(name, end))
            except FormatError as error:
                self.damaged[name] = error.message
            else:
                self._keep(name, end)
        for name in unread:
            if name not in self.sizes:
                self.damaged.setdefault(name, "could not be fetched")
        self._table = on_disk(together(tables), store)

    def find_lost(self) -> None:
        """Ask the place about all packs, and ignore those that it has lost."""
        if lost := self.place.lost(self.sizes):
            self._table = self._table.without(lost)

    def find_damaged(self, progress: Progress | None = None) -> dict[str, str]:
        """Read all packs of the place, and ignore damaged ones: see `damage`."""
        damaged = self.damage(self.sizes, progress)
        self._table = self._table.without(damaged)
        for name in damaged:
            self.forget(name)
        return {**self.damaged, **damaged}

    def damage(self, names: Iterable[str], progress: Progress | None = None) -> dict[str, str]:
        """Read packs completely; returns what is wrong with those that do not match their names.

        `progress` gets counts of bytes received.
        """
        sizes = {name: self.sizes[name] for name in names}
        digests: dict[str, str] = {}
        for name, content in self.place.contents(sizes):
            digest = sha256()
            for block in content:
                digest.update(block)
                if progress is not None:
                    progress(len(block))
            digests[name] = digest.hexdigest()
        return {
            name: "does not match its SHA-256" if name in digests else "could not be fetched"
            for name in sizes
            if digests.get(name) != name
        }

    def copies(self, chunk: bytes, most_depth: int = MAX_DEPTH) -> list[tuple[str, ChunkEntry]]:
        """Return the packs that claim to have a chunk, decoded through at most `most_depth`
        others.
        """
        found = [(pack, self.index(pack).entry(row)) for pack, row in self._table.find(chunk)]
        usable = [(pack, entry) for pack, entry in found if entry.depth <= most_depth]
        return sorted(usable, key=lambda copy: copy[1].depth)

    def index(self, pack: str) -> ChunkIndex:
        """Return the index of a pack; raises as `end` does."""
        found = self._indexes.pop(pack, None)
        if found is None:
            found = parse_end(memoryview(self.end(pack)))[0]
        self._hold(pack, found)
        return found

    def end(self, pack: str) -> bytes:
        """Return index and trailer of a pack.

        Raises as the place does, InputError if it is gone.
        """
        if (held := self._ends.get(pack)) is not None:
            return held
        with contextlib.suppress(WtxtgitError, OSError):
            return self._kept(pack)
        # Another process has found the pack gone or damaged.
        for _, end in self.place.ends([pack]):
            return end
        raise InputError(f"{self.place.label}: pack {pack} could not be fetched")

    @property
    def packs(self) -> Set[str]:
        """The packs whose ends are known."""
        return self.sizes.keys()

    def forget(self, pack: str) -> None:
        """Drop the cached end of a pack, so that it is read again next time."""
        # This process still needs it.
        if pack in self.sizes and pack not in self._ends:
            with contextlib.suppress(EnvironmentFailure):
                self._ends[pack] = self.end(pack)
        with contextlib.suppress(OSError):
            (self._folder / f"{pack}.index").unlink()

    def first_seen(self, pack: str) -> float | None:
        """Return when this repository first saw a pack, or part of one, in seconds since 1970.

        Returns None if that could not be recorded.
        """
        with contextlib.suppress(OSError):
            return (self._folder / f"{pack}.index").stat().st_mtime
        if pack not in self.sizes:
            # An incomplete pack has no end: an empty file records that it was seen.
            self._keep(pack, b"")
        return None

    def _forget_gone(self, names: Iterable[str]) -> None:
        """Drop what is cached of packs that are gone: if they come back they count as new."""
        there = {*names, *self.place.parts()}
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.index"):
                if path.stem not in there:
                    path.unlink()

    def _take(self, name: str, end: bytes) -> ChunkTable:
        index, size = parse_end(memoryview(end))
        self.sizes[name] = size
        self._hold(name, index)
        return table_of([(name, size, index)])

    def _hold(self, name: str, index: ChunkIndex) -> None:
        self._indexes[name] = index
        while len(self._indexes) > _INDEXES_HELD:
            self._indexes.popitem(last=False)

    def _kept(self, name: str) -> bytes:
        return read_small(self._folder / f"{name}.index", MAX_END, "an index")

    def _keep(self, name: str, end: bytes) -> None:
        self._ends[name] = end
        with contextlib.suppress(OSError, EnvironmentFailure), failures(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with opened_folder(self._folder) as folder, new_file(folder, self._folder, _MODE) as f:
                write_all(f.descriptor, (end,))
                f.put(f"{name}.index")
            del self._ends[name]
