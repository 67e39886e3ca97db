"""Fetching payload: the chunks that are missing, and those from which they are decoded.

A pack that is needed completely is fetched as a whole; of others the needed parts are fetched, if
the remote sends parts, and of one that a killed process began, the rest. Several transfers run at
once, each in pieces, so memory is bounded. Everything enters the store once it is proved
(`remotes/payload/incoming.py`). Many chunks are fetched in groups, in the order of the texts, which
mostly is that of the packs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, mapped
from wtxtgit.io.workers import Workers
from wtxtgit.model.array import in_groups
from wtxtgit.remotes.payload.detached_texts import DetachedText, standing
from wtxtgit.remotes.payload.incoming import IncomingPacks
from wtxtgit.remotes.payload.pack_parts import MOST_PART, PackPart, parts_of
from wtxtgit.remotes.payload.place import PackPlace, spans_between
from wtxtgit.remotes.payload.remote_packs import RemotePacks, UsableChunks
from wtxtgit.report.store import DamagedPack, LackingPayload, PayloadFetched, RefusedPack
from wtxtgit.store.pack import MAX_DEPTH, NAME_SIZE, ChunkEntry
from wtxtgit.store.store import Store

_AT_ONCE = 4
"""Transfers that run at once: they wait for the network, not for a core."""
_LEAST_PART = 256 * 1024
_LITTLE = 20
"""A pack of which no more than one part in so many would be left out comes whole."""
# Bytes of packs per transfer: a connection for each small pack would take long.
_LEAST_GROUP, _MOST_GROUP = 16 * 1024 * 1024, 64 * 1024 * 1024


def fetch_payload(
    store: Store,
    choose: Callable[[], Iterable[PackPlace]],
    texts: Iterable[DetachedText],
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
) -> PayloadFetched:
    """Fetch all missing chunks of texts into the store; `progress` gets counts of bytes received.

    `choose` returns the remotes, and is only called if something is missing; each is asked for what
    those before it lack. The result lists invalid packs, and chunks that could not be fetched.
    Raises as the first place does if none can be used, and EnvironmentFailure if packs can't be
    written.
    """
    wanted = list(texts)
    # Otherwise a chunk that only a wrong file `index` lists would not be fetched.
    store.prove()
    before = _count_lacking(store, wanted)
    fetch: FetchInTurn | None = None
    is_lacking = False
    for names in in_groups(name for text in wanted for name in text.chunks):
        if lacking := _lacking(store, names):
            if fetch is None:
                remotes = RemotesInTurn(choose(), store.folder)
                fetch = FetchInTurn(store, remotes, progress, dry_run=dry_run)
            is_lacking |= bool(fetch.fetch(lacking))
    if fetch is None:
        return PayloadFetched()
    if dry_run or not is_lacking:
        return replace(fetch.done, chunks=before)
    counts = [(text.path, _count_lacking(store, [text])) for text in wanted]
    told = tuple(LackingPayload(*count) for count in counts if count[1])
    return replace(fetch.done, chunks=before - _count_lacking(store, wanted), lacking=told)


def set_damaged_aside(
    repo: Repository, store: Store, texts: Iterable[DetachedText]
) -> list[DamagedPack]:
    """Set packs aside that are so damaged that the files of some texts can't be written.

    Such texts stand in the work tree in place of their files although their chunks are here. Raises
    EnvironmentFailure if another process is removing packs.
    """
    names = (name for text in standing(repo, texts) for name in text.chunks)
    there = sorted({name for group in in_groups(names) for name in store.has(group)})
    if not there:
        return []
    from wtxtgit.store.repack import set_damaged_aside as set_aside

    return set_aside(store, there)


def _lacking(store: Store, names: Collection[bytes]) -> set[bytes]:
    return set(names) - store.has(names)


def _count_lacking(store: Store, texts: Iterable[DetachedText]) -> int:
    """Count the missing chunks of texts, each once."""
    groups = in_groups(name for text in texts for name in text.chunks)
    # Concatenated, to avoid an object for each name.
    lacking = bytearray()
    for group in groups:
        lacking += b"".join(_lacking(store, group))
    names = np.frombuffer(lacking, f"S{NAME_SIZE}")
    names.sort()
    return len(names) and 1 + int(np.count_nonzero(names[1:] != names[:-1]))


@dataclass(slots=True)
class _ToCome:
    """What has to be fetched: `whole` packs with their sizes in bytes, and parts of others.

    Of those that are `begun`, also with their sizes, the first bytes are here.
    """

    whole: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    parts: list[PackPart] = field(default_factory=list)

    @property
    def packs(self) -> list[str]:
        parts = (part.pack for part in self.parts)
        return list(dict.fromkeys((*self.whole, *self.begun, *parts)))


@dataclass(frozen=True, slots=True)
class _Came:
    """What a transfer brought: packs, those that were refused, and the local name of a part."""

    packs: tuple[str, ...] = ()
    nbytes: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    part: str | None = None


class PayloadFetch:
    """Fetches chunks from a remote whose packs are known, one group after the other.

    `progress` gets counts of bytes received. With `dry_run` nothing is fetched, and the result says
    what would be.
    """

    def __init__(
        self,
        store: Store,
        remote: RemotePacks,
        progress: Progress | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self._store = store
        self._remote = remote
        self._progress = progress
        self._dry_run = dry_run
        self._incoming = IncomingPacks(store)
        # At which multiples of bytes parts of packs begin and end; 0 if only the whole can be had.
        self._grains: dict[str, int] = {}
        self._is_lacking = False
        # Packs that were fetched, in order, or would be.
        self._came: dict[str, None] = {}
        self._whole: set[str] = set()
        self._refused: dict[str, str] = {}
        self._nbytes = 0

    @property
    def done(self) -> PayloadFetched:
        """What was fetched so far, without the number of chunks, and what is wrong with refused
        packs.
        """
        # Damaged packs are only reported if something is still missing.
        refused = {**(self._remote.damaged if self._is_lacking else {}), **self._refused}
        told = tuple(RefusedPack(name, why) for name, why in sorted(refused.items()))
        label = self._remote.place.label
        return PayloadFetched(label, 0, self._nbytes, tuple(self._came), told)

    def fetch(self, names: Collection[bytes]) -> set[bytes]:
        """Fetch a group of chunks into the store; returns those that could not be fetched.

        Raises as `fetch_payload` does.
        """
        if self._dry_run:
            lacking = _lacking(self._store, names)
            self._foresee(lacking)
            return {name for name in lacking if not self._remote.copies(name)}
        # Packs that were received completely before an earlier process ended. If one is damaged by
        # now that is no fault of the remote's.
        self._incoming.install(())
        while lacking := _lacking(self._store, names):
            plan = self._plan(lacking)
            # The remote may have other copies of what was refused.
            if plan.packs and self._run(plan):
                continue
            lacking = _lacking(self._store, names)
            # Cached ends may be wrong, and leave something out.
            wrong = self._remote.reread() if lacking else ()
            if not wrong:
                break
            for name in wrong:
                self._refused.pop(name, None)
        self._is_lacking |= bool(lacking)
        return lacking

    def _foresee(self, chunks: Collection[bytes]) -> None:
        """Count what would be fetched."""
        if not all(map(self._remote.copies, chunks)):
            self._remote.reread()
        plan = self._plan([name for name in chunks if not self._would_be_here(name)])
        self._nbytes += sum(part.nbytes for part in plan.parts)
        whole = {**plan.whole, **plan.begun}
        self._nbytes += sum(n for pack, n in whole.items() if pack not in self._whole)
        self._nbytes -= sum(map(self._incoming.begun, plan.begun.keys() - self._whole))
        self._whole |= whole.keys()
        self._came.update(dict.fromkeys(plan.packs))

    def _would_be_here(self, name: bytes) -> bool:
        """Tell whether a chunk would have arrived with a whole pack."""
        return bool(self._whole) and any(c[0] in self._whole for c in self._remote.copies(name))

    def _plan(self, chunks: Collection[bytes]) -> _ToCome:
        """Decide from which packs chunks are fetched, with all that they are decoded from."""
        needed = self._needed(chunks)
        plan = _ToCome()
        some: dict[str, list[ChunkEntry]] = {}
        for pack, entries in needed.items():
            if len(entries) == self._remote.index(pack).count:
                plan.whole[pack] = self._remote.sizes[pack]
            else:
                some[pack] = list(entries.values())
        self._ask_grains(some)
        total = sum(entry.length for entries in some.values() for entry in entries)
        most = max(_LEAST_PART, min(MOST_PART, total // _AT_ONCE))
        for pack, held in some.items():
            size, grain = self._remote.sizes[pack], self._grains[pack]
            # Parts with a grain are fetched by few requests, each of which takes long.
            parts = list(parts_of(pack, size, held, most if grain == 1 else MOST_PART, grain or 1))
            is_most = size - sum(part.nbytes for part in parts) < size // _LITTLE
            if not grain or (grain > 1 and is_most):
                plan.whole[pack] = size
            else:
                plan.parts += parts
        begun = [pack for pack in plan.whole if self._incoming.begun(pack)]
        self._ask_grains(begun)
        # What has a grain comes in pieces that stay without this.
        plan.begun = {pack: plan.whole.pop(pack) for pack in begun if self._grains[pack] == 1}
        return plan

    def _ask_grains(self, packs: Iterable[str]) -> None:
        """Ask the remote of which packs it gives parts, once for each."""
        sizes = {pack: self._remote.sizes[pack] for pack in packs if pack not in self._grains}
        if sizes:
            grains = self._remote.place.divisible(sizes)
            self._grains |= {pack: grains.get(pack, 0) for pack in sizes}

    def _needed(self, chunks: Collection[bytes]) -> dict[str, dict[bytes, ChunkEntry]]:
        """Return the chunks that have to be fetched, by pack."""
        needed: dict[str, dict[bytes, ChunkEntry]] = {}
        depths: dict[bytes, int] = {}
        there = UsableChunks(self._remote, self._refused, self._is_here)
        todo = [(name, MAX_DEPTH) for name in sorted(chunks)]
        while todo:
            name, most = todo.pop()
            if depths.get(name, MAX_DEPTH + 1) <= most:
                continue
            waiting = [e for _, e in self._incoming.packs.copies(name) if e.depth <= most]
            if waiting:
                entry = waiting[0]
            else:
                copies = there.copies(name, most)
                if not copies:
                    continue
                # Prefer a pack that is fetched anyway.
                pack, entry = next((c for c in copies if c[0] in needed), copies[0])
                needed.setdefault(pack, {})[name] = entry
            depths[name] = entry.depth
            based = entry.depth - 1
            todo += [(base, based) for base in entry.bases if not self._has(base, based)]
        return needed

    def _has(self, name: bytes, most_depth: int) -> bool:
        return any(entry.depth <= most_depth for _, entry in self._store.own.copies(name))

    def _is_here(self, name: bytes, most_depth: int) -> bool:
        """Tell whether a chunk need not be fetched, in the store or among what has arrived."""
        waiting = self._incoming.packs.copies(name)
        return self._has(name, most_depth) or any(e.depth <= most_depth for _, e in waiting)

    def _run(self, plan: _ToCome) -> bool:
        """Fetch everything planned; returns whether anything was refused."""
        self._incoming.make()
        whole = [*plan.whole.values(), *plan.begun.values()]
        size = sum(whole) + sum(part.nbytes for part in plan.parts)
        expect(self._progress, size, len(whole) + len(plan.parts))
        parts: dict[str, str] = {}
        refused: dict[str, str] = {}
        tasks = [partial(self._receive, group) for group in _groups(plan.whole)]
        tasks += [partial(self._take_up, *pack) for pack in plan.begun.items()]
        tasks += [partial(self._receive_part, part) for part in plan.parts]
        try:
            with Workers(tasks, min(_AT_ONCE, len(tasks))) as done:
                for came in done:
                    self._nbytes += came.nbytes
                    self._came.update(dict.fromkeys(came.packs))
                    if came.part is not None:
                        parts[came.part] = came.packs[0]
                    refused.update(came.refused)
        finally:
            # Packs that were made of parts are told by their origin.
            for name, why in self._incoming.install({*self._came, *parts}).items():
                refused[parts.get(name, name)] = why
        self._refuse(refused)
        return bool(refused)

    def _receive(self, sizes: dict[str, int]) -> _Came:
        """Fetch whole packs; each gets its name once its content matches the name."""
        came, refused = [], []
        for name, content in self._remote.place.contents(sizes):
            end = self._remote.end(name)
            why = self._incoming.receive(name, sizes[name], end, content, self._progress)
            finish_file(self._progress)
            if why is None:
                came.append(name)
            else:
                refused.append((name, why))
        given = {*came, *(name for name, _ in refused)}
        refused += [(name, "could not be fetched") for name in sizes if name not in given]
        return _Came(tuple(came), sum(sizes[name] for name in came), tuple(refused))

    def _take_up(self, pack: str, size: int) -> _Came:
        """Fetch the rest of a pack, or all of it if that does not match what is here of it."""
        here = 0

        def given(start: int) -> Iterator[Buffer]:
            nonlocal here
            here = start
            spans = [*spans_between(start, size)]
            return self._remote.place.ranges(pack, size, spans) or iter(())

        end = self._remote.end(pack)
        why = self._incoming.take_up(pack, size, end, given, self._progress)
        if why is not None:
            return self._receive({pack: size})
        finish_file(self._progress)
        return _Came((pack,), size - here)

    def _receive_part(self, part: PackPart) -> _Came:
        try:
            stored = self._incoming.receive_part(part, self._given(part), self._progress)
        except InputError as error:
            return _Came(refused=((part.pack, error.message),))
        finish_file(self._progress)
        return _Came((part.pack,), part.nbytes, part=stored)

    def _given(self, part: PackPart) -> Iterator[Buffer]:
        place = self._remote.place
        size = self._remote.sizes[part.pack]
        ranges = place.ranges(part.pack, size, part.spans)
        if ranges is not None:
            yield from ranges
            return
        # The server turned out to send no parts.
        for _, content in place.contents({part.pack: size}):
            whole = spooled(content)
            for start, stop in part.spans:
                yield mapped(whole[start:stop])

    def _refuse(self, refused: Mapping[str, str]) -> None:
        """Take no more from packs, and for the reason; unless only their cached ends are wrong."""
        wrong = self._remote.reread(refused)
        for name, why in refused.items():
            self._came.pop(name, None)
            if name not in wrong:
                self._refused[name] = why
                self._remote.forget(name)


class RemotesInTurn:
    """The packs of several places; each is asked when those before it lack something.

    `asked` were so far. What can't be asked is left out; `failures` say why.
    """

    def __init__(self, places: Iterable[PackPlace], store: Path) -> None:
        self._places = iter(places)
        self._store = store
        self.asked: list[RemotePacks] = []
        self.failures: list[EnvironmentFailure] = []

    def __iter__(self) -> Iterator[RemotePacks]:
        yield from tuple(self.asked)
        for place in self._places:
            try:
                remote = RemotePacks(place, self._store)
            except EnvironmentFailure as error:
                self.failures.append(error)
            else:
                self.asked.append(remote)
                yield remote

    def leave(self, remote: RemotePacks, why: EnvironmentFailure) -> None:
        """Ask a place no more."""
        self.asked.remove(remote)
        self.failures.append(why)

    def check(self) -> None:
        """Raise what the first place raised if none can be used."""
        if self.failures and not self.asked:
            raise self.failures[0]


class FetchInTurn:
    """Fetches chunks from several remotes, from each what those before it lack.

    The parameters are those of `PayloadFetch`. `done` names all remotes that could be asked.
    """

    def __init__(
        self,
        store: Store,
        remotes: RemotesInTurn,
        progress: Progress | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self._remotes = remotes
        self._new = partial(PayloadFetch, store, progress=progress, dry_run=dry_run)
        self._fetches: dict[str, PayloadFetch] = {}
        self._short: set[str] = set()

    @property
    def done(self) -> PayloadFetched:
        """What was fetched so far, as in `PayloadFetch`."""
        done = [fetch.done for fetch in self._fetches.values()]
        return PayloadFetched(
            ", ".join(one.place.label for one in self._remotes.asked),
            0,
            sum(one.nbytes for one in done),
            tuple(pack for one in done for pack in one.packs),
            tuple(
                RefusedPack(
                    pack.pack, pack.why if len(done) == 1 else f"{pack.why}, at {one.remote}"
                )
                for one in done
                for pack in one.refused
            ),
            failures=tuple(failure.message for failure in self._remotes.failures),
            short=tuple(sorted(self._short)),
        )

    def fetch(self, names: Collection[bytes]) -> set[bytes]:
        """Fetch a group of chunks into the store; returns those that could not be fetched.

        Raises as `fetch_payload` does.
        """
        lacking = set(names)
        lacked: dict[str, set[bytes]] = {}
        for remote in self._remotes:
            label = remote.place.label
            fetch = self._fetches.setdefault(label, self._new(remote=remote))
            try:
                lacking = fetch.fetch(lacking)
            except EnvironmentFailure as error:
                self._remotes.leave(remote, error)
            else:
                lacked[label] = lacking
            if not lacking:
                break
        self._remotes.check()
        self._short |= {label for label, missing in lacked.items() if len(missing) > len(lacking)}
        return lacking


def _groups(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """Split packs into groups for one transfer each."""
    most = max(_LEAST_GROUP, min(_MOST_GROUP, sum(sizes.values()) // _AT_ONCE))
    group: dict[str, int] = {}
    for name, size in sizes.items():
        if group and sum(group.values()) + size > most:
            yield group
            group = {}
        group[name] = size
    if group:
        yield group
