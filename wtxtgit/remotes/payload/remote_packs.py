"""The contents of a remote's packs, by what their ends say.

The end of each pack is read once and cached beside the store, since packs never change. What is
cached may be wrong all the same, so it is compared with the remote's (`reread`) before a chunk
counts as missing there or is dropped here, and before a pack counts as damaged.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Set
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, FormatError, InputError, WtxtgitError
from wtxtgit.io.files import failures, opened_regular, read_view
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.temporary import new_file, new_folder, opened_folder
from wtxtgit.io.view import Buffer, mapped, write_all
from wtxtgit.remotes.payload.place import UNNEEDED, PackPlace
from wtxtgit.remotes.payload.removal import reliable
from wtxtgit.store.folder import PackFolder, table_of, together
from wtxtgit.store.pack import MAX_DEPTH, MAX_END, ChunkEntry, ChunkIndex, parse_end
from wtxtgit.store.reading import flaws

_FOLDER = "remotes"
GONE = "gone"
"""The state of a pack of which the mark is left."""
_NOT_GIVEN = "could not be fetched"
_MODE = 0o644
OTHER_END = "has an index other than the remote's"
HOLDS_OTHER = "holds chunk {}, which {}"
_INDEXES_HELD = 64
"""Indexes that are cached: one of a 64 MiB pack has 0.1 MB; adjacent chunks are in few packs."""


_Read = tuple[str, int, ChunkIndex]
"""A pack whose end was read: its name, its size in bytes, its index."""


class PackCheck:
    """Holds the bytes of a pack, as they come, against its name and its end."""

    def __init__(self, name: str, end: bytes) -> None:
        self._name = name
        self._end = end
        self._digest = sha256()
        self._last = b""

    def add(self, block: Buffer) -> None:
        self._digest.update(block)
        most = len(self._end)
        self._last = (self._last + bytes(memoryview(block)[-most:]))[-most:]

    @property
    def has_name(self) -> bool:
        """Whether the bytes so far have the SHA-256 that the name states."""
        return self._digest.hexdigest() == self._name

    @property
    def has_end(self) -> bool:
        return self._last == self._end


class RemotePacks:
    """The packs of a place: `sizes` in bytes, and `damaged`, what is wrong with unusable ones.

    `marked` are the names that a prune has marked, whether there are packs or not. `unproved` are
    chunks of packs that `damage` read, which it could not decode.

    Raises as the place does.
    """

    def __init__(self, place: PackPlace, store: Path) -> None:
        self.place = place
        kept = sha256(place.label.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._store = store
        self._folder = store / _FOLDER / kept
        self.sizes: dict[str, int] = {}
        self.damaged: dict[str, str] = {}
        # Chunks of packs that were read, whose bases were not here.
        self.unproved: dict[str, set[bytes]] = {}
        # Ends that could not be cached on disk.
        self._ends: dict[str, bytes] = {}
        self._indexes: OrderedDict[str, ChunkIndex] = OrderedDict()
        # The SHA-256 of cached ends that were not compared with the place's.
        self._believed: dict[str, bytes] = {}
        names = place.packs()
        self.marked: Set[str] = {*place.marked()}
        self._forget_gone(names)
        self._table = table_of(self._read(names), store)

    def _read(self, names: Iterable[str]) -> Iterator[_Read]:
        """Read the ends of packs, those that are cached first."""
        unread = []
        for name in names:
            try:
                end = self._kept(name)
                read = self._take(name, end)
            except (WtxtgitError, OSError):
                unread.append(name)
            else:
                self._believed[name] = sha256(end).digest()
                yield read
        for name, end in self.place.ends(unread):
            yield from self._given(name, end)
        for name in unread:
            if name not in self.sizes:
                self.damaged.setdefault(name, _NOT_GIVEN)

    def reread(self, packs: Collection[str] | None = None) -> set[str]:
        """Compare cached ends, of all packs or of these, with the place's; each is compared once.

        Returns the packs whose cached end was another one; from now on the place's counts.
        """
        asked = self._believed.keys() & set(self._believed if packs is None else packs)
        wrong: dict[str, bytes | None] = dict.fromkeys(asked)
        for name, end in self.place.ends(sorted(asked)):
            if sha256(end).digest() == self._believed[name]:
                del wrong[name]
            else:
                wrong[name] = end
        for name in asked:
            del self._believed[name]
        if wrong:
            read: list[_Read] = []
            for name, given in wrong.items():
                self._leave(name)
                if given is None:
                    self.damaged[name] = _NOT_GIVEN
                else:
                    read += self._given(name, given)
            tables = self._table.without(wrong), table_of(read, self._store)
            self._table = together(tables, self._store)
        return {*wrong}

    def keep_reliable(self) -> None:
        """Ask the place about all packs, and ignore those that it has lost, and marked ones."""
        lost = self.place.lost(self.sizes)
        # It may be the cached size that is wrong.
        if lost and self.reread(lost):
            lost = self.place.lost(self.sizes)
        self.ignore(self.sizes.keys() - reliable(self.sizes.keys() - {*lost}, self.marked))

    def lacking(self, chunks: Iterable[bytes]) -> set[bytes]:
        """Return the chunks that the place lacks, by its own ends, or might lose."""
        self.reread()
        self.keep_reliable()
        usable = UsableChunks(self)
        return {chunk for chunk in chunks if not usable.has(chunk, MAX_DEPTH)}

    def ignore(self, packs: Set[str]) -> None:
        """Let chunks no longer be found in these packs."""
        if packs:
            self._table = self._table.without(packs)

    def find_damaged(
        self, folders: Sequence[PackFolder], progress: Progress | None = None
    ) -> dict[str, str]:
        """Read all packs of the place without a mark, and ignore damaged ones: see `damage`."""
        damaged = self.damage(self.sizes.keys() - self.marked, folders, progress)
        self.ignore(damaged.keys())
        for name in damaged:
            self.forget(name)
        return {**self.damaged, **damaged}

    def damage(
        self,
        names: Iterable[str],
        folders: Sequence[PackFolder],
        progress: Progress | None = None,
    ) -> dict[str, str]:
        """Read packs completely; returns what is wrong with those that do not match their names or
        their ends, or that hold chunks which don't match theirs.

        What chunks are decoded from is looked for in the pack, and in `folders` here. `progress`
        gets counts of bytes received. Raises EnvironmentFailure if packs can't be written here.
        """
        asked = [*names]
        self.reread(asked)
        sizes = {name: self.sizes[name] for name in asked if name in self.sizes}
        wrong: dict[str, str] = dict.fromkeys(asked, _NOT_GIVEN)
        expect(progress, sum(sizes.values()), len(sizes))
        for name, content in self.place.contents(sizes):
            why = self._why_damaged(name, content, folders, progress)
            finish_file(progress)
            if why is None:
                del wrong[name]
            else:
                wrong[name] = why
        return wrong

    def _why_damaged(
        self,
        name: str,
        content: Iterator[Buffer],
        folders: Sequence[PackFolder],
        progress: Progress | None,
    ) -> str | None:
        check = PackCheck(name, self.end(name))

        def checked() -> Iterator[Buffer]:
            left = self.sizes[name]
            for block in content:
                check.add(block)
                left -= len(block)
                if left < 0:
                    return
                yield block
                if progress is not None:
                    progress(len(block))

        with failures(self._store, missing=EnvironmentFailure), new_folder(self._store) as folder:
            alone = PackFolder(folder, is_own=False)
            alone.make()
            with alone.path(name).open("xb", buffering=0) as written:
                write_all(written.fileno(), checked())
            if not check.has_name:
                return "does not match its SHA-256"
            if not check.has_end:
                return OTHER_END
            pack = alone.opened(name)
            if pack is None:
                return alone.damaged[name]
            # Whoever may write there can give any content its right name.
            for entry, why, is_own in flaws(pack, (alone, *folders)):
                if is_own:
                    return HOLDS_OTHER.format(entry.name.hex(), why)
                self.unproved.setdefault(name, set()).add(entry.name)
        return None

    def copies(self, chunk: bytes, most_depth: int = MAX_DEPTH) -> list[tuple[str, ChunkEntry]]:
        """Return the packs that claim to have a chunk, decoded through at most `most_depth`
        others; marked ones last.
        """
        found = [(pack, self.index(pack).entry(row)) for pack, row in self._table.find(chunk)]
        usable = [(pack, entry) for pack, entry in found if entry.depth <= most_depth]
        return sorted(usable, key=lambda copy: (copy[0] in self.marked, copy[1].depth))

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
        self._drop(pack)

    def _leave(self, pack: str) -> None:
        """Know nothing of a pack."""
        for known in (self.sizes, self._ends, self._indexes):
            known.pop(pack, None)
        self._drop(pack)

    def _drop(self, pack: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / f"{pack}.index").unlink()

    def first_seen(self, pack: str, state: str = "index") -> float | None:
        """Return when this repository first saw a pack, or part of one, in seconds since 1970.

        The time is when it saw the pack in its `state`, there, UNNEEDED or GONE. Returns None if
        that had not been recorded before.
        """
        with contextlib.suppress(OSError):
            return (self._folder / f"{pack}.{state}").stat().st_mtime
        if pack not in self.sizes or state != "index":
            # There is no end to keep: an empty file records that it was seen.
            with contextlib.suppress(OSError, EnvironmentFailure):
                self._write(f"{pack}.{state}", b"")
        return None

    def _forget_gone(self, names: Iterable[str]) -> None:
        """Drop what is cached of packs that are gone: if they come back they count as new."""
        there = {*names, *self.place.parts()}
        states = {"index": there, UNNEEDED: self.marked, GONE: self.marked - there}
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.stem not in states.get(path.suffix[1:], {path.stem}):
                    path.unlink()

    def _given(self, name: str, end: bytes) -> Iterator[_Read]:
        """Take an end that the place gave; yields what it says unless it is damaged."""
        try:
            read = self._take(name, end)
        except FormatError as error:
            self.damaged[name] = error.message
        else:
            self._keep(name, end)
            yield read

    def _take(self, name: str, end: bytes) -> _Read:
        index, size = parse_end(memoryview(end))
        self.sizes[name] = size
        self._hold(name, index)
        return name, size, index

    def _hold(self, name: str, index: ChunkIndex) -> None:
        self._indexes[name] = index
        while len(self._indexes) > _INDEXES_HELD:
            self._indexes.popitem(last=False)

    def _kept(self, name: str) -> bytes:
        path = self._folder / f"{name}.index"
        with opened_regular(path) as (descriptor, status):
            if status.st_size > MAX_END:
                raise InputError(f"{path}: over {MAX_END} bytes")
            return bytes(mapped(read_view(descriptor, path)))

    def _keep(self, name: str, end: bytes) -> None:
        self._ends[name] = end
        with contextlib.suppress(OSError, EnvironmentFailure):
            self._write(f"{name}.index", end)
            del self._ends[name]

    def _write(self, file: str, content: bytes) -> None:
        with failures(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with opened_folder(self._folder) as folder, new_file(folder, self._folder, _MODE) as f:
                write_all(f.descriptor, (content,))
                f.put(file)


class UsableChunks:
    """Which chunks a remote has with everything that they are decoded from.

    Packs that are `refused` do not count, but chunks do that are `here`, decoded through at most so
    many others. `used` are the packs that were relied on.
    """

    def __init__(
        self,
        remote: RemotePacks,
        refused: Container[str] = (),
        here: Callable[[bytes, int], bool] = lambda *_: False,
    ) -> None:
        self._remote = remote
        self._refused = refused
        self._here = here
        self._known: dict[tuple[bytes, int], bool] = {}
        self.used: set[str] = set()

    def has(self, chunk: bytes, most_depth: int) -> bool:
        """Tell whether a chunk is there, decoded through at most so many others."""
        asked = chunk, most_depth
        if asked not in self._known:
            self._known[asked] = bool(self.copies(chunk, most_depth))
        return self._known[asked]

    def copies(self, chunk: bytes, most_depth: int) -> list[tuple[str, ChunkEntry]]:
        """Return the usable ones of a chunk's copies: see `RemotePacks.copies`."""
        found = self._remote.copies(chunk, most_depth)
        return [copy for copy in found if self._is_usable(*copy)]

    def _is_usable(self, pack: str, entry: ChunkEntry) -> bool:
        if pack in self._refused or entry.name in self._remote.unproved.get(pack, ()):
            return False
        most = entry.depth - 1
        if not all(self._here(base, most) or self.has(base, most) for base in entry.bases):
            return False
        self.used.add(pack)
        return True
