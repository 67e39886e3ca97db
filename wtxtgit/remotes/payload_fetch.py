"""Fetching payload: packs of a remote come whole, and into the store once they are proved.

A pack that came whole stays beside the store until all that it is decoded with has come: nothing
is fetched twice, whenever a process ends. Then its SHA-256, its end and each of its chunks are
checked; of one that is not what it should be nothing is used.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import sha256

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures
from wtxtgit.io.temporary import new_file, opened_folder
from wtxtgit.io.view import Buffer, write_all
from wtxtgit.remotes.detached_texts import DetachedText
from wtxtgit.remotes.pack_place import PackPlace
from wtxtgit.remotes.remote_packs import RemotePacks
from wtxtgit.report.store import LackingPayload, PayloadFetched, RefusedPack
from wtxtgit.store.folder import PACKS, PackFolder
from wtxtgit.store.pack import MAX_DEPTH
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store

INCOMING = "incoming"
"""The folder in a store's in which packs wait that came whole."""
_READ_ONLY = 0o444

Progress = Callable[[int], None]


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
    before = _lacking(store, wanted)
    if not before:
        return PayloadFetched()
    place = choose()
    remote = RemotePacks(place, store.folder)
    fetching = _Fetching(store, remote, progress)
    if not dry_run:
        # What came whole before a process ended.
        fetching.install()
    chosen = fetching.plan(_lacking(store, wanted))
    sizes = {name: remote.sizes[name] for name in chosen}
    if dry_run:
        return PayloadFetched(place.label, len(before), sum(sizes.values()), tuple(chosen))
    try:
        fetching.receive(sizes)
    finally:
        fetching.install()
    after = _lacking(store, wanted)
    lacking = [
        LackingPayload(text.path, count)
        for text in wanted
        if (count := len(after.intersection(text.chunks)))
    ]
    # Of a pack that nobody needed nothing has to be told.
    refused = {**(remote.damaged if after else {}), **fetching.refused}
    return PayloadFetched(
        place.label,
        len(before - after),
        sum(sizes[name] for name in fetching.came),
        tuple(fetching.came),
        tuple(RefusedPack(name, why) for name, why in sorted(refused.items())),
        tuple(lacking),
    )


def _lacking(store: Store, texts: Iterable[DetachedText]) -> set[bytes]:
    names = {name for text in texts for name in text.chunks}
    return names - store.has(names)


class _Fetching:
    def __init__(self, store: Store, remote: RemotePacks, progress: Progress | None) -> None:
        self._own = store.own
        self._store = store
        self._remote = remote
        self._progress = progress
        self._incoming = store.folder / INCOMING
        self._packs = self._incoming / PACKS
        self.came: list[str] = []
        self.refused: dict[str, str] = {}

    def plan(self, chunks: Collection[bytes]) -> list[str]:
        """The packs that hold chunks, and all that theirs are decoded with, last ones first."""
        chosen: dict[str, None] = {}
        seen: set[tuple[bytes, int]] = set()
        todo = [(name, MAX_DEPTH) for name in sorted(chunks)]
        while todo:
            name, most = todo.pop()
            copies = self._remote.copies(name, most)
            packs = [pack for pack, _ in copies]
            if not packs or not chosen.keys().isdisjoint(packs):
                continue
            chosen[packs[0]] = None
            index = self._remote.index(packs[0])
            for row in range(index.count):
                entry = index.entry(row)
                for base in entry.bases:
                    asked = base, entry.depth - 1
                    if asked not in seen:
                        seen.add(asked)
                        if not self._has(*asked):
                            todo.append(asked)
        return [pack for pack in reversed(chosen) if pack not in self._own.names]

    def _has(self, name: bytes, most_depth: int) -> bool:
        return any(entry.depth <= most_depth for _, entry in self._own.copies(name))

    def receive(self, sizes: dict[str, int]) -> None:
        """Fetch packs whole, each under its name once it is what that says."""
        if not sizes:
            return
        with failures(self._store.folder, missing=EnvironmentFailure):
            self._own.make()
            PackFolder(self._incoming, is_own=False, shared=self._own.shared).make()
        given = set()
        for name, content in self._remote.place.contents(sizes):
            given.add(name)
            why = self._receive(name, sizes[name], content)
            if why is None:
                self.came.append(name)
            else:
                self._refuse(name, why)
        for name in sizes.keys() - given:
            self._refuse(name, "is not given")

    def _receive(self, name: str, size: int, content: Iterator[Buffer]) -> str | None:
        """Write a pack; gives why it is none."""
        digest = sha256()
        end = b""
        came = 0
        wanted = self._remote.ends[name]

        def checked() -> Iterator[Buffer]:
            nonlocal came, end
            for piece in content:
                view = memoryview(piece)
                came += view.nbytes
                if came > size:
                    return
                digest.update(view)
                end = (end + bytes(view[-len(wanted) :]))[-len(wanted) :]
                yield view
                if self._progress is not None:
                    self._progress(view.nbytes)

        with (
            failures(self._packs, missing=EnvironmentFailure),
            opened_folder(self._packs) as folder,
            new_file(folder, self._packs, _READ_ONLY) as made,
        ):
            write_all(made.descriptor, checked())
            if came != size:
                return f"has {'more than' if came > size else f'{came} of'} {size} bytes"
            if digest.hexdigest() != name:
                return "has another SHA-256 than its name says"
            if end != wanted:
                return "has another index than the remote says"
            mode = stat.S_IMODE(os.fstat(made.descriptor).st_mode)
            os.fchmod(made.descriptor, mode | (self._own.shared & _READ_ONLY))
            os.fsync(made.descriptor)
            made.put(f"{name}.pack")
        return None

    def install(self) -> None:
        """Put what came into the store, as far as each chunk is what its name says."""
        incoming = PackFolder(self._incoming, is_own=False)
        order = {name: place for place, name in enumerate(self.came)}
        names = sorted(incoming.names, key=lambda name: (order.get(name, -1), name))
        while True:
            bad = {name: why for name in names if (why := self._why_bad(incoming, name))}
            if not bad:
                break
            # What others were decoded with may have been one of these.
            for name, why in bad.items():
                self._refuse(name, why)
                with contextlib.suppress(FileNotFoundError):
                    incoming.path(name).unlink()
            names = [name for name in names if name not in bad]
            incoming = PackFolder(self._incoming, is_own=False)
        if not names:
            return
        with failures(self._own.packs, missing=EnvironmentFailure):
            self._own.make()
            for name in names:
                # Another process may have been faster.
                with contextlib.suppress(FileNotFoundError):
                    incoming.path(name).rename(self._own.path(name))
            with opened_folder(self._own.packs) as folder:
                os.fsync(folder)
        self._store.refresh()

    def _why_bad(self, incoming: PackFolder, name: str) -> str | None:
        try:
            pack = incoming.opened(name)
        except FileNotFoundError:
            return None
        if pack is None:
            return incoming.damaged[name]
        held = DecodedBases()
        for row in pack.index.in_order():
            entry = pack.index.entry(row)
            why = ChunkReading((incoming, self._own), held).why_damaged(pack, entry)
            if why is not None:
                return f"holds chunk {entry.name.hex()}, which {why}"
        return None

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name] = why
        self._remote.forget(name)
        if name in self.came:
            self.came.remove(name)
