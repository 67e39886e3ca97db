"""What the packs of a remote hold, as far as it says so.

Of each pack its end is read once, and kept beside the store: packs never change. Where one turns
out to be another than that said, what was kept of it is forgotten.
"""

from __future__ import annotations

import contextlib
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, FormatError, WtxtgitError
from wtxtgit.io.files import failures, read_small
from wtxtgit.io.temporary import new_file, opened_folder
from wtxtgit.io.view import write_all
from wtxtgit.remotes.pack_place import PackPlace
from wtxtgit.store.folder import table_of
from wtxtgit.store.pack import MAX_DEPTH, MAX_END, ChunkEntry, ChunkIndex, parse_end

_FOLDER = "remotes"
_MODE = 0o644


class RemotePacks:
    """The packs of a place: `sizes` in bytes, `ends`, and `damaged`, what is wrong with others.

    Raises as the place does.
    """

    def __init__(self, place: PackPlace, store: Path) -> None:
        self.place = place
        kept = sha256(place.label.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._folder = store / _FOLDER / kept
        self.sizes: dict[str, int] = {}
        self.ends: dict[str, bytes] = {}
        self.damaged: dict[str, str] = {}
        self._indexes: dict[str, ChunkIndex] = {}
        names = place.packs()
        for name in names:
            with contextlib.suppress(WtxtgitError, OSError):
                self._take(name, read_small(self._folder / f"{name}.index", MAX_END, "an index"))
        unread = [name for name in names if name not in self.ends]
        for name, end in place.ends(unread):
            try:
                self._take(name, end)
            except FormatError as error:
                self.damaged[name] = error.message
            else:
                self._keep(name, end)
        for name in unread:
            if name not in self.ends:
                self.damaged.setdefault(name, "is not given")
        self._table = table_of(
            [(name, self.sizes[name], index) for name, index in self._indexes.items()]
        )

    def copies(self, chunk: bytes, most_depth: int = MAX_DEPTH) -> list[tuple[str, ChunkEntry]]:
        """The packs that say that they hold a chunk, decoded with at most so many others."""
        found = [(pack, self._indexes[pack].entry(row)) for pack, row in self._table.find(chunk)]
        usable = [(pack, entry) for pack, entry in found if entry.depth <= most_depth]
        return sorted(usable, key=lambda copy: copy[1].depth)

    def index(self, pack: str) -> ChunkIndex:
        return self._indexes[pack]

    def forget(self, pack: str) -> None:
        """Read the end of a pack anew the next time."""
        with contextlib.suppress(OSError):
            (self._folder / f"{pack}.index").unlink()

    def _take(self, name: str, end: bytes) -> None:
        index, size = parse_end(memoryview(end))
        self._indexes[name], self.sizes[name], self.ends[name] = index, size, end

    def _keep(self, name: str, end: bytes) -> None:
        # It only saves time.
        with contextlib.suppress(OSError, EnvironmentFailure), failures(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with opened_folder(self._folder) as folder, new_file(folder, self._folder, _MODE) as f:
                write_all(f.descriptor, (end,))
                f.put(f"{name}.index")
