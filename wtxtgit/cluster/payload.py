"""The payload that workers read: from their clone's store, or fetched from a URL.

Fetched payload is kept in a temporary folder while one text is examined, and then deleted: the
store of a clone does not change. It is verified as all fetched payload is
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
    url = next(iter(trusted(repo)), None)
    if url is None:
        return None, "workers can't read payload: the store has no remote"
    # These need a repository with the user's own remotes and credentials.
    if url.url.startswith(GIT) or url.git is not None:
        return None, f"workers can't read payload from {url.shown}, which takes a user's clone"
    return url, None


@contextmanager
def payload_of(repo: Repository, url: StoreUrl | None) -> Iterator[FetchedPayload]:
    """Make this the payload of a worker's clone for the length of the block; a context manager."""
    with temporary_folder() as folder:
        previous, payload = repo.payload, _WorkerPayload(repo, url, folder)
        repo.payload = payload
        try:
            yield payload
        finally:
            repo.payload = previous


@cache
def _pack_ends_folder() -> Path:
    """Return a folder that keeps the ends of packs for the next text.

    It is deleted when the worker ends.
    """
    closing = ExitStack()
    atexit.register(closing.close)
    return closing.enter_context(temporary_folder())


class _WorkerPayload(FetchedPayload):
    def __init__(self, repo: Repository, url: StoreUrl | None, folder: Path) -> None:
        super().__init__(repo)
        self._url = url
        self._own = store_of(repo)
        self._fetched = Store(folder)
        self._requested: set[bytes] = set()

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        wanted = set(names)
        present = self._own.has(wanted)
        lacking = wanted - present - self._requested
        if lacking and self._url is not None:
            self._requested |= lacking
            remote = RemotePacks(place_of(self._repo, self._url), _pack_ends_folder())
            PayloadFetch(self._fetched, remote).fetch(lacking)
        return present | self._fetched.has(wanted)

    def read(self, name: bytes) -> ByteView:
        store = self._fetched if self._fetched.holds(name) else self._own
        return store.read(name)

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        store = self._fetched if self._fetched.has(names) else self._own
        return store.read_all(names, size)

    def states(self, names: Iterable[bytes]) -> set[bytes]:
        return set()

    def want(self, names: Iterable[bytes]) -> None:
        for group in in_groups(names):
            self.has(group)
