"""Reading a chunk from the packs of some folders, and the chunks that it is decoded from.

Spec: `docs/spec/store.md`, section "Encodings". Nothing in a pack is trusted: what is read is
checked against its name, and if one copy of a chunk is damaged the next is tried.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock

from wtxtgit.errors import EnvironmentFailure, FormatError
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, hashed, mapped, pieces
from wtxtgit.store.decoding import DecodedChunk, DecodedRun, decode
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import (
    MAX_CODED,
    MAX_DEPTH,
    MAX_MOVED,
    PREFIX,
    STORED,
    XOR,
    ChunkEntry,
    ChunkPack,
)

_MOST_HELD = 8 * 1024 * 1024
MAX_HELD = 512 * 1024
"""Decoded chunks of up to this many bytes are cached."""
_OTHER_BYTES = "does not match its SHA-256"


@dataclass(frozen=True, slots=True)
class BaseChunk:
    """A chunk from which another one is decoded: its bytes, and the copy's depth and bases.

    `length` is the encoded size of the copy.
    """

    name: bytes
    data: DecodedChunk
    depth: int
    bases: tuple[bytes, ...]
    length: int


class DecodedBases:
    """A cache of recently decoded chunks, for any thread.

    Adjacent chunks often have bases in common: rows that moved extend over two.
    """

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[Path, bytes], DecodedChunk] = OrderedDict()
        self._held = 0
        self._lock = Lock()

    def get(self, place: tuple[Path, bytes]) -> DecodedChunk | None:
        with self._lock:
            found = self._chunks.get(place)
            if found is not None:
                self._chunks.move_to_end(place)
            return found

    def put(self, place: tuple[Path, bytes], chunk: DecodedChunk) -> None:
        with self._lock:
            if place not in self._chunks and chunk.size <= MAX_HELD:
                self._chunks[place] = chunk
                self._held += chunk.size
                while self._held > _MOST_HELD:
                    self._held -= self._chunks.popitem(last=False)[1].size


def base_of(folder: PackFolder, name: bytes, held: DecodedBases) -> BaseChunk | None:
    """Return a chunk, checked, as the base of another one in the same folder.

    Returns None if there is none, or it is damaged.
    """
    found = ChunkReading((folder,), held).base(name, MAX_DEPTH, MAX_CODED)
    return found if found is not None and is_whole(found) else None


def flaws(
    pack: ChunkPack, folders: Sequence[PackFolder], without: Container[bytes] = ()
) -> Iterator[tuple[ChunkEntry, str, bool]]:
    """Decode and hash the chunks of a pack, with bases from some folders; yields the damaged ones.

    With each comes what is wrong, and whether it is wrong with the chunk: if not, a base is damaged
    or missing. Chunks in `without` are left out.
    """
    held = DecodedBases()
    for entry in map(pack.index.entry, pack.index.in_order()):
        if entry.name not in without:
            reading = ChunkReading(folders, held)
            why = reading.why_damaged(pack, entry)
            if why is not None:
                yield entry, why, reading.has_bases(entry)


def held_bases(
    folder: PackFolder, names: Sequence[bytes], size: int
) -> tuple[DecodedBases, set[bytes]]:
    """Decode chunks for `chain_of` together; also returns which of them were checked."""
    held = DecodedBases()
    return held, ChunkReading((folder,), held).hold(names, size) if size <= MAX_HELD else set()


def run_of(
    folders: Sequence[PackFolder], names: Sequence[bytes], size: int, held: DecodedBases
) -> DecodedRun | None:
    """Decode chunks of this size together, without checking them; None if that is not possible."""
    if not 0 < size <= MAX_HELD:
        return None
    try:
        return ChunkReading(folders, held).run(names, size)
    except (FormatError, EnvironmentFailure):
        return None


def is_whole(base: BaseChunk) -> bool:
    """Tell whether a base matches its name: no new chunk may depend on a damaged one."""
    return sha256(base.data.plain()).digest() == base.name


def chain_of(folder: PackFolder, name: bytes, held: DecodedBases) -> list[BaseChunk]:
    """Return a chunk and the chain of its XOR bases, starting with the one without a base.

    Unchecked.
    """
    reading = ChunkReading((folder,), held)
    chain: list[BaseChunk] = []
    found = reading.base(name, MAX_DEPTH, MAX_CODED)
    while found is not None:
        chain.insert(0, found)
        if len(found.bases) != 1:
            break
        found = reading.base(found.bases[0], found.depth - 1, found.data.size)
    return chain


class ChunkReading:
    """Reading one chunk, and the chunks that it is decoded from.

    At first only the chunk itself is hashed. If that fails each base is decoded again and hashed
    too, and all copies are tried; those that fail are not tried again.
    """

    def __init__(self, folders: Sequence[PackFolder], held: DecodedBases) -> None:
        self._folders = folders
        self._held = held
        self._failed: dict[tuple[Path, bytes], str] = {}
        self._is_checking = False

    @property
    def problems(self) -> list[str]:
        """What was wrong, with the pack and chunk concerned."""
        return [
            f"{shown(path)}: chunk {name.hex()} {what}"
            for (path, name), what in self._failed.items()
        ]

    def chunk(self, name: bytes, size: int | None) -> ByteView | None:
        """Return a chunk's bytes, checked; None if no copy is intact."""
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

    def hold(self, names: Sequence[bytes], size: int) -> set[bytes]:
        """Decode chunks, and their XOR bases, and cache them for `base`.

        Returns those that were checked, which is only done if none has a base.
        """
        try:
            run = self.run(names, size, is_held=True)
        except (FormatError, EnvironmentFailure):
            return set()
        if run is None or run.is_based:
            return set()
        return {name for name, chunk in run.chunks(names) if sha256(chunk).digest() == name}

    def run(
        self,
        names: Sequence[bytes],
        size: int,
        below: Sequence[int] | None = None,
        *,
        is_held: bool = False,
    ) -> DecodedRun | None:
        """Decode chunks of this size by their first copies, unchecked; None if that is not
        possible.

        Chunks in the same pack are read together, and then their XOR bases. With `below` each has
        to have a smaller depth than given there.
        """
        copies = self._first_copies(names)
        if len(copies) < len(names):
            return None
        run = DecodedRun(len(names), size)
        by_pack: dict[ChunkPack, list[int]] = {}
        for number, (pack, entry) in enumerate(copies):
            if entry.size != size or (below is not None and entry.depth >= below[number]):
                return None
            by_pack.setdefault(pack, []).append(number)
        for pack, numbers in by_pack.items():
            moved = [number for number in numbers if copies[number][1].encoding == PREFIX]
            for number in moved:
                chunk = self._decoded(*copies[number])
                if chunk is None:
                    return None
                run.put(number, chunk)
            others = [number for number in numbers if copies[number][1].encoding != PREFIX]
            entries = [copies[number][1] for number in others]
            for which, encoded in pack.encoded_runs(entries):
                run.decode([others[n] for n in which], [entries[n] for n in which], encoded)
        based = [number for number, (_, entry) in enumerate(copies) if entry.encoding == XOR]
        if based:
            entries = [copies[number][1] for number in based]
            depths = [entry.depth for entry in entries]
            names_of = [entry.bases[0] for entry in entries]
            bases = self.run(names_of, size, depths, is_held=is_held)
            if bases is None:
                return None
            run.undo(based, bases)
        if is_held:
            for number, (pack, _) in enumerate(copies):
                self._held.put((pack.path, names[number]), run.chunk(number))
        return run

    def _first_copies(self, names: Sequence[bytes]) -> list[tuple[ChunkPack, ChunkEntry]]:
        """Return the first copy of each chunk; fewer than names if one is missing."""
        found = self._folders[0].first_copies(names)
        for folder in self._folders[1:]:
            lacking = [number for number, copy in enumerate(found) if copy is None]
            others = folder.first_copies([names[number] for number in lacking])
            for number, copy in zip(lacking, others, strict=True):
                found[number] = copy
        return [copy for copy in found if copy is not None]

    def why_damaged(self, pack: ChunkPack, entry: ChunkEntry) -> str | None:
        """Return what is wrong with one copy of a chunk; None if it is intact."""
        for self._is_checking in (False, True):
            self._failed.clear()
            if self._plain(pack, entry) is not None:
                return None
        return self._failed[pack.path, entry.name]

    def has_bases(self, entry: ChunkEntry) -> bool:
        """Tell whether everything that a copy of a chunk is decoded from is here, and intact."""
        self._is_checking = True
        self._failed.clear()
        return all(self.base(name, entry.depth - 1, MAX_CODED) is not None for name in entry.bases)

    def base(self, name: bytes, most_depth: int, most_size: int) -> BaseChunk | None:
        """Return a chunk to be used as a base; it is checked if something was wrong before."""
        for pack, entry in self._copies(name):
            if entry.depth > most_depth or entry.size > most_size:
                continue
            place = pack.path, name
            found = None if self._is_checking else self._held.get(place)
            if found is None:
                found = self._decoded(pack, entry)
                if found is None:
                    continue
                if self._is_checking and sha256(found.plain()).digest() != name:
                    self._fail(pack, entry, _OTHER_BYTES)
                    continue
                if not self._is_checking:
                    self._held.put(place, found)
            return BaseChunk(name, found, entry.depth, entry.bases, entry.length)
        return None

    def _copies(self, name: bytes) -> Iterator[tuple[ChunkPack, ChunkEntry]]:
        for folder in self._folders:
            for pack, entry in folder.copies(name):
                if (pack.path, name) not in self._failed:
                    yield pack, entry

    def _plain(self, pack: ChunkPack, entry: ChunkEntry) -> ByteView | None:
        try:
            if entry.encoding == STORED:
                # It may be too large for memory.
                data = pack.encoded(entry)
                data = data if entry.size > MAX_CODED else mapped(data)
            else:
                decoded = self._decoded(pack, entry)
                if decoded is None:
                    return None
                data = decoded.plain()
            if hashed(sha256(), pieces(data)).digest() == entry.name:
                return data
            self._fail(pack, entry, _OTHER_BYTES)
        except EnvironmentFailure as error:
            self._fail(pack, entry, error.message)
        return None

    def _decoded(self, pack: ChunkPack, entry: ChunkEntry) -> DecodedChunk | None:
        bases = []
        most_size = entry.size if entry.encoding == XOR else MAX_MOVED
        for name in entry.bases:
            base = self.base(name, entry.depth - 1, most_size)
            if base is None:
                self._fail(pack, entry, f"can't be decoded without its base {name.hex()}")
                return None
            bases.append(base.data)
        try:
            return decode(entry, pack.encoded(entry), bases)
        except (FormatError, EnvironmentFailure) as error:
            self._fail(pack, entry, error.message)
            return None

    def _fail(self, pack: ChunkPack, entry: ChunkEntry, what: str) -> None:
        self._failed[pack.path, entry.name] = what
