"""Merging small packs, and dropping duplicate chunks: `wtxtgit store repack`.

Nothing is lost whenever it ends: new packs are on disk under their names before old ones are
removed, and an old one is removed only if every chunk in it is in a pack that stays. Chunks are
decoded and checked before they are moved. The copy of a chunk with the smallest depth stays, so
whatever is decoded from it still can be (`docs/spec/store.md`, "Encodings").
"""

from __future__ import annotations

import contextlib
from collections.abc import (
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass
from functools import partial

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.view import pieces
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import in_groups
from wtxtgit.report.store import DamagedPack, StoreRepacked
from wtxtgit.store.check import check_pack
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.joining import locked
from wtxtgit.store.pack import ChunkEntry, ChunkPack, file_digest
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store
from wtxtgit.store.writer import MAX_PACK, NewPack

ASIDE = ".damaged"
"""The ending of the name of a damaged pack that was set aside."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The packs whose chunks move, the number of copies dropped, and packs that break a rule."""

    moved: frozenset[str]
    dropped: int
    damaged: tuple[str, ...]


def repack_store(store: Store, progress: Progress | None = None) -> StoreRepacked:
    """Repack a store's own packs; `progress` gets counts of bytes that were moved.

    Damaged packs are set aside once their intact chunks are in others: what is lost can then be
    added, or fetched, again. Raises EnvironmentFailure if another repack is running, or a pack
    can't be read or written.
    """
    own = store.own
    with alone(store):
        before = own.names
        times = {name: own.time(name) for name in before}
        plan = _planned(own)
        # Chunks that are moved are checked one by one, other packs as a whole.
        damaged = _other_than_named(own, before.keys() - plan.moved - set(plan.damaged))
        aside = _moved(own, plan.moved | damaged, plan.damaged, times, progress)
        after = own.names
    return StoreRepacked(
        store.folder, len(before), len(after), sum(before.values()), sum(after.values()),
        plan.dropped, tuple(aside),
    )  # fmt: skip


def set_damaged_aside(store: Store, names: Iterable[bytes]) -> list[DamagedPack]:
    """Set aside the damaged packs among those from which chunks are read.

    Their intact chunks are then in others, and lost ones can be added, or fetched, again. Raises as
    `repack_store` does.
    """
    own = store.own
    with alone(store):
        needed = own.needed({pack for some in in_groups(names) for pack in own.holding(some)})
        unusable = list(own.damaged)
        # Chunk by chunk: a pack may match its name although chunks in it don't match theirs.
        held = DecodedBases()
        tasks = [partial(_is_damaged, own, held, name) for name in needed]
        with Workers(tasks, worthwhile(None, sum(needed.values()), len(tasks) or 1)) as told:
            damaged = {name for name, is_damaged in zip(needed, told, strict=True) if is_damaged}
        if not (damaged or unusable):
            return []
        times = {name: own.time(name) for name in own.names}
        return _moved(own, damaged, unusable, times, None)


def _is_damaged(own: PackFolder, held: DecodedBases, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        pack = own.opened(name)
        nbytes = 0 if pack is None else pack.nbytes
        return check_pack(own, held, name, nbytes, pack) is not None
    return False


def _other_than_named(own: PackFolder, packs: Iterable[str]) -> Set[str]:
    """Return the packs whose content does not match their names."""
    tasks = [partial(_digest, own, name) for name in sorted(packs)]
    with Workers(tasks, worthwhile(None, sum(own.names.values()), len(tasks) or 1)) as found:
        return {name for name, digest in found if digest not in (name, None)}


def _digest(own: PackFolder, name: str) -> tuple[str, str | None]:
    try:
        return name, file_digest(own.path(name))
    except FileNotFoundError:
        return name, None


def _moved(
    own: PackFolder,
    moved: Set[str],
    damaged: Collection[str],
    times: Mapping[str, float],
    progress: Progress | None,
) -> list[DamagedPack]:
    """Move the intact chunks of packs into new ones and remove the old.

    Sets damaged packs aside.
    """
    mover = Mover(own, moved, times)
    mover.move(progress)
    own.refresh()
    aside = _set_aside(own, [*damaged, *mover.stuck])
    own.refresh()
    remove(own, sorted(mover.left), times)
    own.refresh()
    return aside


@contextlib.contextmanager
def alone(store: Store) -> Iterator[None]:
    """Lock a store so that no other process removes its packs; a context manager.

    Two processes that each relied on the copies in the other's packs would leave none. Within the
    block, the content of all packs is known from the packs themselves. Raises EnvironmentFailure if
    the store is locked or can't be.
    """
    with locked(store.folder):
        store.own.refresh()
        store.own.prove()
        yield


def _planned(own: PackFolder) -> _Plan:
    best: dict[bytes, tuple[int, bool, str]] = {}
    held: dict[str, int] = {}
    damaged, small = [], set()
    for name, nbytes in sorted(own.names.items()):
        try:
            pack = own.opened(name)
        except FileNotFoundError:
            continue
        if pack is None:
            damaged.append(name)
            continue
        is_small = nbytes < MAX_PACK // 2
        if is_small:
            small.add(name)
        held[name] = pack.index.count
        for row in range(pack.index.count):
            entry = pack.index.entry(row)
            rank = (entry.depth, is_small, name)
            if entry.name not in best or rank < best[entry.name]:
                best[entry.name] = rank
    chosen = dict.fromkeys(held, 0)
    for _, _, name in best.values():
        chosen[name] += 1
    moved = {name for name, count in held.items() if chosen[name] < count}
    small |= moved
    # A single small pack can't be made larger.
    if len([name for name in small if chosen[name]]) > 1:
        moved |= small
    return _Plan(frozenset(moved), sum(held.values()) - len(best), tuple(damaged))


class Mover:
    """Moves chunks that are only in certain packs into new ones.

    Chunks that are `gone` are dropped. New packs are as young as their chunks, by the `times` of
    all packs. `stuck` are packs with chunks of which no copy is intact, `made` are the new packs.
    """

    def __init__(
        self,
        own: PackFolder,
        moved: Set[str],
        times: Mapping[str, float],
        gone: Container[bytes] = (),
    ) -> None:
        self._own = own
        self._moved = moved
        self._times = times
        self._gone = gone
        self._time = 0.0
        self._new: NewPack | None = None
        self._held = DecodedBases()
        self.stuck: set[str] = set()
        self.made: set[str] = set()

    @property
    def left(self) -> Set[str]:
        """Packs whose intact chunks are all in others."""
        # A new pack may be identical to an old one.
        return self._moved - self.stuck - self.made

    def move(self, progress: Progress | None) -> None:
        done: set[bytes] = set()
        try:
            # In the order of their age, so that the chunks of a version stay together.
            sizes = {name: self._own.names.get(name, 0) for name in self._moved}
            expect(progress, sum(sizes.values()), len(sizes))
            for name in sorted(self._moved, key=lambda name: (self._times[name], name)):
                pack = self._own.opened(name)
                for entry in [] if pack is None else map(pack.index.entry, pack.index.in_order()):
                    if entry.name not in done and entry.name not in self._gone:
                        done.add(entry.name)
                        self._take(entry.name)
                    if progress is not None:
                        progress(entry.length)
                    sizes[name] -= entry.length
                if progress is not None:
                    # What is no chunk, such as the pack's own index.
                    progress(max(0, sizes[name]))
                finish_file(progress)
            self._finish()
        finally:
            if self._new is not None:
                self._new.close()

    def _take(self, chunk: bytes) -> None:
        """Make sure that an intact copy of a chunk is in a pack that stays."""
        found = self._whole(chunk)
        if found is None:
            copies = self._own.copies(chunk)
            self.stuck.update(pack.path.stem for pack, _ in copies if self._is_moved(pack))
            return
        pack, entry = found
        if not self._is_moved(pack):
            return
        if self._new is not None and not self._new.has_room(entry.length):
            self._finish()
        if self._new is None:
            self._new = NewPack(self._own)
        self._time = max(self._time, self._times.get(pack.path.stem, 0.0))
        self._new.add_as_it_is(entry, pieces(pack.encoded(entry)))

    def _whole(self, chunk: bytes) -> tuple[ChunkPack, ChunkEntry] | None:
        """Return the best intact copy of a chunk.

        Among equally good ones one that need not be moved.
        """
        copies = self._own.copies(chunk)
        for pack, entry in sorted(copies, key=lambda c: (c[1].depth, self._is_moved(c[0]))):
            if ChunkReading((self._own,), self._held).why_damaged(pack, entry) is None:
                return pack, entry
        return None

    def _is_moved(self, pack: ChunkPack) -> bool:
        return pack.path.stem in self._moved

    def _finish(self) -> None:
        if self._new is not None:
            self.made.add(self._new.finish(self._time))
            self._new.close()
            self._new, self._time = None, 0.0


def _set_aside(own: PackFolder, packs: Collection[str]) -> list[DamagedPack]:
    """Set damaged packs aside; a pack whose chunks only lack their bases stays."""
    aside = []
    for name in sorted(packs):
        path = own.path(name)
        with contextlib.suppress(FileNotFoundError):
            pack, held = own.opened(name), DecodedBases()
            found = check_pack(own, held, name, path.stat().st_size, pack)
            if found is None:
                continue
            # It may be of a later version, which we do not understand.
            is_as_written = file_digest(path) == name
            reading = ChunkReading((own,), held)
            bad = () if pack is None else map(pack.index.entry, found.rows)
            # Others only lack their bases.
            if not is_as_written or any(map(reading.has_bases, bad)):
                with failures(path, missing=EnvironmentFailure):
                    path.rename(path.with_name(path.name + ASIDE))
                aside.append(found)
    return aside


def remove(
    own: PackFolder, packs: Sequence[str], times: Mapping[str, float], gone: Container[bytes] = ()
) -> None:
    """Remove packs, in this order, whose chunks are all in others, or `gone`.

    A pack that somebody has used since `times` were taken stays.
    """
    for name, pack in own.usable(packs):
        names = (pack.index.name(row) for row in range(pack.index.count))
        if all(chunk in gone or own.in_others(chunk, packs) for chunk in names):
            with failures(own.packs, missing=EnvironmentFailure):
                if own.time(name) == times[name]:
                    own.path(name).unlink(missing_ok=True)
