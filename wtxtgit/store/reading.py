"""Reading one chunk of the packs of some folders, and those that it is decoded with.

Spec: `docs/spec/store.md`, section "Encodings". Nothing that a pack says is believed: what is read
is checked by its name, and of several copies of a chunk the next one is taken where one is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, FormatError
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, hashed, mapped, pieces
from wtxtgit.store.encoding import DecodedChunk, decode
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_CODED, MAX_DEPTH, STORED, ChunkEntry, ChunkPack


def base_of(folder: PackFolder, name: bytes) -> tuple[DecodedChunk, int] | None:
    """A chunk as the base of another one in the same folder, checked, and its depth.

    None where there is none, or it is not whole, or decoding it takes too much already.
    """
    found = ChunkReading((folder,)).base(name, MAX_DEPTH - 1)
    # Of what is not whole no other chunk is to depend.
    return found if found and sha256(found[0].plain()).digest() == name else None


class ChunkReading:
    """The reading of one chunk, and of those that it is decoded with.

    At first only the chunk itself is hashed. Where that fails, each of its bases is hashed too,
    and each copy tried; those that fail are not tried again.
    """

    def __init__(self, folders: Sequence[PackFolder]) -> None:
        self._folders = folders
        self._failed: dict[tuple[Path, bytes], str] = {}
        self._is_checking = False

    @property
    def problems(self) -> list[str]:
        """What was wrong, with the packs and chunks that it was wrong with."""
        return [
            f"{shown(path)}: chunk {name.hex()} {what}"
            for (path, name), what in self._failed.items()
        ]

    def chunk(self, name: bytes, size: int | None) -> ByteView | None:
        """Its bytes, checked; None where no copy is whole."""
        for self._is_checking in (False, True):
            self._failed.clear()
            for pack, entry in self._copies(name):
                if size in (None, entry.size):
                    data = self._plain(pack, entry)
                    if data is not None:
                        return data
            if not self._failed:
                break
        return None

    def why_damaged(self, pack: ChunkPack, entry: ChunkEntry) -> str | None:
        """What is wrong with one copy of a chunk, None where it is whole."""
        for self._is_checking in (False, True):
            self._failed.clear()
            if self._plain(pack, entry) is not None:
                return None
        return self._failed[pack.path, entry.name]

    def base(self, name: bytes, most_depth: int) -> tuple[DecodedChunk, int] | None:
        """A chunk that is a base, and its depth; checked where anything was wrong before."""
        for pack, entry in self._copies(name):
            if entry.depth <= most_depth:
                found = self._decoded(pack, entry)
                if found is None:
                    continue
                if not self._is_checking or sha256(found.plain()).digest() == name:
                    return found, entry.depth
                self._fail(pack, entry, "has another SHA-256")
        return None

    def _copies(self, name: bytes) -> Iterator[tuple[ChunkPack, ChunkEntry]]:
        for folder in self._folders:
            for pack, entry in folder.copies(name):
                if (pack.path, name) not in self._failed:
                    yield pack, entry

    def _plain(self, pack: ChunkPack, entry: ChunkEntry) -> ByteView | None:
        try:
            if entry.encoding == STORED:
                # It may be too long to be held.
                data = pack.encoded(entry)
                data = data if entry.size > MAX_CODED else mapped(data)
            else:
                decoded = self._decoded(pack, entry)
                if decoded is None:
                    return None
                data = decoded.plain()
            if hashed(sha256(), pieces(data)).digest() == entry.name:
                return data
            self._fail(pack, entry, "has another SHA-256")
        except EnvironmentFailure as error:
            self._fail(pack, entry, error.message)
        return None

    def _decoded(self, pack: ChunkPack, entry: ChunkEntry) -> DecodedChunk | None:
        bases = []
        left = entry.depth - len(entry.bases)
        for name in entry.bases:
            found = self.base(name, left)
            if found is None:
                self._fail(pack, entry, f"can't be decoded without its base {name.hex()}")
                return None
            bases.append(found[0])
            left -= found[1]
        try:
            return decode(entry, pack.encoded(entry), bases)
        except (FormatError, EnvironmentFailure) as error:
            self._fail(pack, entry, error.message)
            return None

    def _fail(self, pack: ChunkPack, entry: ChunkEntry, what: str) -> None:
        self._failed[pack.path, entry.name] = what
