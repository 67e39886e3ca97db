"""The payload of a repository: what its store has, and from its remote what the store lacks.

What will be read is fetched in one go before it is read, and only from a remote that the user has
chosen (docs/store.md, "When data is fetched").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING, Self

from wtxtgit.errors import EnvironmentFailure, counted
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress, shown
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import in_groups
from wtxtgit.store.place import store_of

if TYPE_CHECKING:  # Most commands find all that they need in the store.
    from wtxtgit.remotes.payload.fetch import FetchInTurn, RemotesInTurn
    from wtxtgit.remotes.payload.store_url import StoreUrl
    from wtxtgit.report.store import PayloadFetched

SEND_AGAIN = "wtxtgit push --check, in a clone that has the data, sends it again"
"""What ends the damage of a pack at the remote: a plain push takes what is listed there as sent."""
_MAKING = Lock()


class FetchedPayload:
    """See `PayloadSource`.

    `of` returns the only one of a repository, which asks each of its remotes once.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._store = store_of(repo)
        self._missing: set[bytes] = set()
        self._remotes: RemotesInTurn | None = None
        self.lacks: str | None = None
        """What the remote lacked when chunks were last fetched; None if nothing."""

    @classmethod
    def of(cls, repo: Repository) -> Self:
        # What one thread fetches is available to the others.
        with _MAKING:
            if not isinstance(repo.payload, cls):
                repo.payload = cls(repo)
            return repo.payload

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        wanted = set(names)
        present = self._store.has(wanted)
        # Another process, such as a merge driver during a rebase, may have added to the store.
        if len(present) < len(wanted):
            # Another thread may have fetched it.
            self._store.refresh()
            present = self._store.has(wanted)
        return present

    def read(self, name: bytes) -> ByteView:
        return self._store.read(name)

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        return self._store.read_all(names, size)

    def states(self, names: Iterable[bytes]) -> set[bytes]:
        return self._store.states(names)

    def want(self, names: Iterable[bytes]) -> None:
        fetch: FetchInTurn | None = None
        missing = 0
        with ExitStack() as until:
            for group in in_groups(names):
                new = set(group) - self._missing
                lacking = new - self.has(new)
                if not lacking:
                    continue
                from wtxtgit.remotes.payload.store_url import trusted

                # What can't be fetched now is not asked for again a moment later.
                self._missing |= lacking
                if fetch is None:
                    if not (urls := trusted(self._repo)):
                        continue
                    fetch = self._begun(urls, until.enter_context(shown("fetching")))
                missing += len(fetch.fetch(lacking))
                self._missing -= self._store.has(lacking)
        if fetch is not None:
            self._tell(fetch.done, missing)

    def _begun(self, urls: Sequence[StoreUrl], progress: Progress | None) -> FetchInTurn:
        from wtxtgit.remotes.payload.fetch import FetchInTurn, RemotesInTurn
        from wtxtgit.remotes.payload.remote import place_of

        if self._remotes is None:
            places = (place_of(self._repo, url) for url in urls)
            self._remotes = RemotesInTurn(places, self._store.folder)
        return FetchInTurn(self._store, self._remotes, progress)

    def _tell(self, done: PayloadFetched, missing: int) -> None:
        """Note what could not be fetched; raises EnvironmentFailure if a pack is the reason."""
        self.lacks = None
        if missing:
            lacks = f"{counted(missing, 'chunk')} not at {done.remote}"
            self.lacks = "; ".join((lacks, *done.failures))
        if missing and done.refused:
            pack = done.refused[0]
            raise EnvironmentFailure(
                f"{done.remote}: pack {pack.pack} {pack.why}",
                hint=SEND_AGAIN,
            )
