"""Fetching payload: the chunks that are lacking, and what they are decoded with.

Of a pack that is needed as a whole all of it comes, of others the parts that are needed, where the
remote gives parts. Several are under way at once, each in pieces, so memory is bounded. All of it
gets into the store once it is proved (`remotes/payload/incoming.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from wtxtgit.errors import InputError
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, mapped
from wtxtgit.io.workers import Workers
from wtxtgit.remotes.payload.detached_texts import DetachedText, chunks_of, standing
from wtxtgit.remotes.payload.incoming import IncomingPacks
from wtxtgit.remotes.payload.pack_parts import MOST_PART, PackPart, parts_of
from wtxtgit.remotes.payload.place import PackPlace
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.report.store import DamagedPack, LackingPayload, PayloadFetched, RefusedPack
from wtxtgit.store.pack import MAX_DEPTH, ChunkEntry
from wtxtgit.store.store import Store

_AT_ONCE = 4
"""Transfers that are under way together: they wait for the network, not for a core."""
_LEAST_PART = 256 * 1024
# Bytes of packs that come in one transfer: a connection of its own for each small one takes long.
_LEAST_GROUP, _MOST_GROUP = 16 * 1024 * 1024, 64 * 1024 * 1024


def fetch_payload(
    store: Store,
    choose: Callable[[], PackPlace],
    texts: Iterable[DetachedText],
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
) -> PayloadFetched:
    """Have all chunks of texts in the store; `progress` gets counts of bytes that came.

    `choose` gives the remote, and is asked where any are lacking.
    Packs that are not what they should be are told, and so are chunks that did not come. Raises as
    the place does, and EnvironmentFailure where packs can't be written.
    """
    wanted = list(texts)
    lacking = _lacking(store, chunks_of(wanted))
    if not lacking:
        return PayloadFetched()
    remote = RemotePacks(choose(), store.folder)
    done, lacking = fetch_chunks(store, remote, lacking, progress, dry_run=dry_run)
    counts = [(text.path, len(lacking.intersection(text.chunks))) for text in wanted]
    return replace(done, lacking=tuple(LackingPayload(*count) for count in counts if count[1]))


def set_damaged_aside(
    repo: Repository, store: Store, texts: Iterable[DetachedText]
) -> list[DamagedPack]:
    """Take packs out of use that are damaged, so that the files of some texts can't be written.

    That they are is known of what stands as text in the work tree though its chunks are here.
    Raises EnvironmentFailure where another process takes packs away.
    """
    there = sorted(store.has(chunks_of(standing(repo, texts))))
    if not there:
        return []
    from wtxtgit.store.repack import set_damaged_aside as set_aside

    return set_aside(store, there)


def fetch_chunks(
    store: Store,
    remote: RemotePacks,
    wanted: Collection[bytes],
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
) -> tuple[PayloadFetched, set[bytes]]:
    """The same from a remote whose packs are known; gives what came, and what did not."""
    before = _lacking(store, wanted)
    fetching = _Fetching(store, remote, progress)
    if not dry_run:
        # What came whole before a process ended.
        fetching.install()
    label = remote.place.label
    plan = fetching.plan(_lacking(store, wanted))
    if dry_run:
        return PayloadFetched(label, len(before), plan.nbytes, tuple(plan.packs)), set()
    while plan.packs and fetching.run(plan):
        # Of what was refused the remote may have other copies.
        plan = fetching.plan(_lacking(store, wanted))
    after = _lacking(store, wanted)
    # Of a pack that nobody needed nothing has to be told.
    refused = {**(remote.damaged if after else {}), **fetching.refused}
    told = tuple(RefusedPack(name, why) for name, why in sorted(refused.items()))
    came = tuple(fetching.came)
    return PayloadFetched(label, len(before - after), fetching.nbytes, came, told), after


def _lacking(store: Store, names: Collection[bytes]) -> set[bytes]:
    return set(names) - store.has(names)


@dataclass(slots=True)
class _ToCome:
    """What is to come: `whole` packs, with their bytes, and parts of others."""

    whole: dict[str, int] = field(default_factory=dict)
    parts: list[PackPart] = field(default_factory=list)

    @property
    def packs(self) -> list[str]:
        return list(dict.fromkeys((*self.whole, *(part.pack for part in self.parts))))

    @property
    def nbytes(self) -> int:
        return sum(self.whole.values()) + sum(part.nbytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Came:
    """What a transfer brought: packs that came whole or not, and what a part is called here."""

    packs: tuple[str, ...] = ()
    nbytes: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    part: str | None = None


class _Fetching:
    def __init__(self, store: Store, remote: RemotePacks, progress: Progress | None) -> None:
        self._store = store
        self._remote = remote
        self._progress = progress
        self._incoming = IncomingPacks(store)
        self._has_parts: bool | None = None
        self.came: dict[str, None] = {}
        self.nbytes = 0
        self.refused: dict[str, str] = {}

    def plan(self, chunks: Collection[bytes]) -> _ToCome:
        """What holds chunks, and all that they are decoded with."""
        needed = self._needed(chunks)
        plan = _ToCome()
        some: dict[str, list[ChunkEntry]] = {}
        for pack, entries in needed.items():
            is_all = len(entries) == self._remote.index(pack).count
            if is_all or not self._gives_parts(pack):
                plan.whole[pack] = self._remote.sizes[pack]
            else:
                some[pack] = list(entries.values())
        total = sum(entry.length for entries in some.values() for entry in entries)
        most = max(_LEAST_PART, min(MOST_PART, total // _AT_ONCE))
        for pack, held in some.items():
            plan.parts += parts_of(pack, held, most)
        return plan

    def _gives_parts(self, pack: str) -> bool:
        """Whether the remote gives parts, which is asked once, of a pack."""
        if self._has_parts is None:
            size = self._remote.sizes[pack]
            self._has_parts = self._remote.place.ranges(pack, size, ()) is not None
        return self._has_parts

    def _needed(self, chunks: Collection[bytes]) -> dict[str, dict[bytes, ChunkEntry]]:
        """The chunks that have to come, by pack."""
        needed: dict[str, dict[bytes, ChunkEntry]] = {}
        depths: dict[bytes, int] = {}
        todo = [(name, MAX_DEPTH) for name in sorted(chunks)]
        while todo:
            name, most = todo.pop()
            if depths.get(name, MAX_DEPTH + 1) <= most:
                continue
            waiting = [e for _, e in self._incoming.packs.copies(name) if e.depth <= most]
            if waiting:
                entry = waiting[0]
            else:
                copies = [c for c in self._remote.copies(name, most) if c[0] not in self.refused]
                if not copies:
                    continue
                # A pack that comes anyway.
                pack, entry = next((c for c in copies if c[0] in needed), copies[0])
                needed.setdefault(pack, {})[name] = entry
            depths[name] = entry.depth
            based = entry.depth - 1
            todo += [(base, based) for base in entry.bases if not self._has(base, based)]
        return needed

    def _has(self, name: bytes, most_depth: int) -> bool:
        return any(entry.depth <= most_depth for _, entry in self._store.own.copies(name))

    def run(self, plan: _ToCome) -> bool:
        """Have it all here, as far as it is what it should be; tells whether any was refused."""
        self._incoming.make()
        parts: dict[str, str] = {}
        before = len(self.refused)
        tasks = [partial(self._receive, group) for group in _groups(plan.whole)]
        tasks += [partial(self._receive_part, part) for part in plan.parts]
        try:
            with Workers(tasks, min(_AT_ONCE, len(tasks))) as done:
                for came in done:
                    self.nbytes += came.nbytes
                    self.came.update(dict.fromkeys(came.packs))
                    if came.part is not None:
                        parts[came.part] = came.packs[0]
                    for name, why in came.refused:
                        self._refuse(name, why)
        finally:
            self.install(parts)
        return len(self.refused) > before

    def install(self, parts: dict[str, str] | None = None) -> None:
        """Put what came into the store; `parts` are packs of parts, and of which packs they are."""
        own = parts or {}
        for name, why in self._incoming.install({*self.came, *own}).items():
            self._refuse(own.get(name, name), why)

    def _receive(self, sizes: dict[str, int]) -> _Came:
        """Fetch packs whole, each under its name once it is what that says."""
        came, refused = [], []
        for name, content in self._remote.place.contents(sizes):
            end = self._remote.ends[name]
            why = self._incoming.receive(name, sizes[name], end, content, self._progress)
            if why is None:
                came.append(name)
            else:
                refused.append((name, why))
        given = {*came, *(name for name, _ in refused)}
        refused += [(name, "is not given") for name in sizes if name not in given]
        return _Came(tuple(came), sum(sizes[name] for name in came), tuple(refused))

    def _receive_part(self, part: PackPart) -> _Came:
        try:
            stored = self._incoming.receive_part(part, self._given(part), self._progress)
        except InputError as error:
            return _Came(refused=((part.pack, error.message),))
        return _Came((part.pack,), part.nbytes, part=stored)

    def _given(self, part: PackPart) -> Iterator[Buffer]:
        place = self._remote.place
        size = self._remote.sizes[part.pack]
        ranges = place.ranges(part.pack, size, part.spans)
        if ranges is not None:
            yield from ranges
            return
        # A server that turns out to give no parts.
        for _, content in place.contents({part.pack: size}):
            whole = spooled(content)
            for start, stop in part.spans:
                yield mapped(whole[start:stop])

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name] = why
        self._remote.forget(name)
        self.came.pop(name, None)


def _groups(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """Packs that come in one transfer."""
    most = max(_LEAST_GROUP, min(_MOST_GROUP, sum(sizes.values()) // _AT_ONCE))
    group: dict[str, int] = {}
    for name, size in sizes.items():
        if group and sum(group.values()) + size > most:
            yield group
            group = {}
        group[name] = size
    if group:
        yield group
