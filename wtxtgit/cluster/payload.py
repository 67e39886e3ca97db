"""The payload that workers read: from their clone's store, and from packs by URL.

Payload that comes by URL is kept in a temporary folder while one text is examined, and then
deleted: the store of a clone stays as it is. It is verified like anything fetched
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
    """Return the URL from which workers read payload, or None and a message if they can't open
    any.
    """
    url = trusted(repo)
    if url is None:
        return None, "workers can't read payload: the store has no remote"
    # These need a repository with the user's own remotes and credentials.
    if url.url.startswith(GIT) or url.remote is not None:
        return None, f"workers can't read payload from {url.shown}, which takes a user's clone"
    return url, None


@contextmanager
def payload_of(repo: Repository, url: StoreUrl | None) -> Iterator[FetchedPayload]:
    """Make this the payload of a worker's clone for the length of the block; a context manager."""
    with temporary_folder() as folder:
        before, made = repo.payload, _WorkerPayload(repo, url, folder)
        repo.payload = made
        try:
            yield made
        finally:
            repo.payload = before


@cache
def _ends() -> Path:
    """Return a folder that keeps the ends of packs for the next text.

    It is deleted when the worker ends.
    """
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
