"""Dropping chunks that nobody needs here: `wtxtgit store prune`.

The caller decides what is needed; what that is decoded from stays too. Packs of which everything
goes are removed; the rest of other packs is first moved into new ones, as in repacking: whenever
this ends, what is needed is there. Chunks may be added at any time, except while packs are removed:
what was added since may be decoded from chunks that were to go, which then stay
(`docs/spec/store.md`, "Folder").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from wtxtgit.io.progress import Progress
from wtxtgit.report.store import StorePruned
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import ChunkPack
from wtxtgit.store.repack import Mover, alone, remove
from wtxtgit.store.store import Store

Judge = Callable[[Mapping[bytes, float]], Set[bytes]]
"""Gets a store's chunks, and when each was last added (seconds since 1970); returns what stays."""


def prune_store(
    store: Store, judge: Judge, progress: Progress | None = None, *, dry_run: bool = False
) -> StorePruned:
    """Drop those of a store's own chunks that a judge does not keep.

    `progress` gets counts of bytes that were moved. Raises EnvironmentFailure if a repack or
    another prune is running, or a pack can't be read or written.
    """
    if dry_run:
        return _Pruning(store, judge).report()
    with alone(store):
        pruning = _Pruning(store, judge)
        if pruning.gone:
            pruning.carry_out(progress)
    return pruning.report()


class _Pruning:
    """A prune: the chunks that are `gone`, and the packs that this affects."""

    def __init__(self, store: Store, judge: Judge) -> None:
        self._store = store
        own = self._own = store.own
        # First: what a process that has ended by now has added is named by the index or a ref.
        leased_since = own.leased_since()
        self._before = own.names
        self._times = {name: own.time(name) for name in self._before}
        chunks: dict[bytes, float] = {}
        for name, pack in own.usable(sorted(self._before)):
            for row in range(pack.index.count):
                chunk = pack.index.name(row)
                chunks[chunk] = max(chunks.get(chunk, 0.0), self._times[name])
        leased = {chunk for chunk, time in chunks.items() if time >= leased_since}
        kept = _with_bases(own, self._before, judge(chunks) | leased)
        self.gone = chunks.keys() - kept
        self._nbytes = 0
        self._whole: set[str] = set()
        self._parted: set[str] = set()
        for name, pack in own.usable(sorted(self._before)):
            entries = map(pack.index.entry, range(pack.index.count))
            lengths = [entry.length for entry in entries if entry.name in self.gone]
            self._nbytes += sum(lengths)
            if len(lengths) == pack.index.count:
                self._whole.add(name)
            elif lengths:
                self._parted.add(name)

    def carry_out(self, progress: Progress | None) -> None:
        own = self._own
        # First, because there may be no space for anything else.
        early = self._in_turn(self._whole, self._whole | self._parted)
        self._remove(early)
        mover = Mover(own, self._parted, self._times, self.gone)
        mover.move(progress)
        own.refresh()
        late = mover.left | (self._whole - {*early})
        ordered = self._in_turn(late, late)
        self._remove([*ordered, *sorted(late - {*ordered})], mover.made)

    def _in_turn(self, packs: Set[str], others: Set[str]) -> list[str]:
        """Order packs so that none is removed while another, or one of `others`, needs its chunks.

        So whenever removal stops every remaining chunk can be decoded. Packs that need each other
        are left out.
        """
        needs: dict[str, set[bytes]] = {}
        holds: dict[str, set[bytes]] = {}
        for name, pack in self._own.usable(sorted(others)):
            entries = list(map(pack.index.entry, range(pack.index.count)))
            holds[name] = {entry.name for entry in entries} & self.gone
            bases = {base for entry in entries for base in entry.bases}
            needs[name] = (bases & self.gone) - holds[name]
        order: list[str] = []
        waiting = sorted(packs & holds.keys())
        while True:
            free = [
                name
                for name in waiting
                if all(holds[name].isdisjoint(needs[other]) for other in needs)
            ]
            if not free:
                return order
            for name in free:
                del needs[name]
            order += free
            waiting = [name for name in waiting if name not in free]

    def _remove(self, packs: Sequence[str], written: Set[str] = frozenset()) -> None:
        """Remove packs, unless something that was added or used meanwhile needs them."""
        if not packs:
            return
        own = self._own
        with own.dropping():
            own.refresh()
            names = own.names
            added = names.keys() - self._before.keys() - written
            used = {name for name in packs if own.time(name) != self._times[name]}
            bases = {
                base
                for _, pack in own.usable(sorted(added | used))
                for row in range(pack.index.count)
                for base in pack.index.entry(row).bases
            }
            needed = self.gone & _with_bases(own, names, bases)
            stays = {name for name, pack in own.usable(sorted(packs)) if _holds_any(pack, needed)}
            remove(own, [name for name in packs if name not in stays], self._times, self.gone)
            own.refresh()

    def report(self) -> StorePruned:
        after = self._own.names
        return StorePruned(
            self._store.folder,
            len(self.gone),
            self._nbytes,
            len(self._before),
            len(after),
            sum(self._before.values()),
            sum(after.values()),
        )


def _holds_any(pack: ChunkPack, chunks: Set[bytes]) -> bool:
    return any(pack.index.row(chunk) is not None for chunk in chunks)


def _with_bases(own: PackFolder, packs: Iterable[str], chunks: Set[bytes]) -> set[bytes]:
    """Return the chunks, and everything that any of their copies is decoded from."""
    kept = set(chunks)
    size = -1
    while size != len(kept):
        size = len(kept)
        for _, pack in own.usable(sorted(packs)):
            if pack.index.base_count:
                for entry in map(pack.index.entry, range(pack.index.count)):
                    if entry.bases and entry.name in kept:
                        kept.update(entry.bases)
    return kept
