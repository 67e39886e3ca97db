"""Payload as workers have it: of their clone's store, and of packs that they read by URL.

What comes by URL lies in a folder of its own while one text is looked at, and goes with it: the
store of a clone stays as it is. It is proved like all that is fetched
(`remotes/payload/incoming.py`).
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from wtxtgit.git.repository import Repository
from wtxtgit.io.temporary import temporary_folder
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import in_groups
from wtxtgit.remotes.payload.fetch import PayloadFetch
from wtxtgit.remotes.payload.on_demand import FetchedPayload
from wtxtgit.remotes.payload.remote import place_of
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.remotes.payload.store_url import GIT, StoreUrl, trusted
from wtxtgit.store.place import store_of
from wtxtgit.store.store import Store


def url_for_workers(repo: Repository) -> tuple[StoreUrl | None, str | None]:
    """Where workers read payload, and what to say where that is nowhere that they can open."""
    url = trusted(repo)
    if url is None:
        return None, "workers read no payload: no remote of the store is in use"
    # These take a repository whose remotes and credentials are the user's own.
    if url.url.startswith(GIT) or url.remote is not None:
        return None, f"workers read no payload from {url.shown}, which needs the clone of a user"
    return url, None


@contextmanager
def payload_of(repo: Repository, url: StoreUrl | None) -> Iterator[FetchedPayload]:
    """Have the payload of a worker's clone be this, for as long as the block lasts."""
    with temporary_folder() as folder:
        before, made = repo.payload, _WorkerPayload(repo, url, folder)
        repo.payload = made
        try:
            yield made
        finally:
            repo.payload = before


@cache
def _ends() -> Path:
    """Where ends of packs are kept for the next text, until the worker ends."""
    until = ExitStack()
    atexit.register(until.close)
    return until.enter_context(temporary_folder())


class _WorkerPayload(FetchedPayload):
    def __init__(self, repo: Repository, url: StoreUrl | None, folder: Path) -> None:
        super().__init__(repo)
        self._url = url
        self._own = store_of(repo)
        self._came = Store(folder)
        self._tried: set[bytes] = set()

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        asked = set(names)
        found = self._own.has(asked)
        lacking = asked - found - self._tried
        if lacking and self._url is not None:
            self._tried |= lacking
            remote = RemotePacks(place_of(self._repo, self._url), _ends())
            PayloadFetch(self._came, remote).fetch(lacking)
        return found | self._came.has(asked)

    def read(self, name: bytes) -> ByteView:
        store = self._came if self._came.holds(name) else self._own
        return store.read(name)

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        store = self._came if self._came.has(names) else self._own
        return store.read_all(names, size)

    def states(self, names: Sequence[bytes]) -> set[bytes]:
        return set()

    def want(self, names: Iterable[bytes]) -> None:
        for group in in_groups(names):
            self.has(group)
