"""What a repository's payload is to the threads that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import pytest

from tests.kit import Repo
from tests.remotes.places import OLD, holds, pushed, text
from tests.store.chunks import added, weights
from wtxtgit.cli import plumbing
from wtxtgit.git.repository import Repository
from wtxtgit.io import progress
from wtxtgit.io.progress import Progress
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import on_demand
from wtxtgit.remotes.payload.on_demand import FetchedPayload
from wtxtgit.remotes.payload.place import TargetPacks
from wtxtgit.store.store import Store

T = TypeVar("T")


def of_two_threads(ask: Callable[[Callable[[], None]], T]) -> list[T]:
    """What two threads get, the second of which asks while the first one's answer is being made.

    `ask` is given what is to be called while it is made.
    """
    got: list[T] = []
    has_answer = Event()

    def second() -> None:
        got.append(ask(lambda: None))
        has_answer.set()

    other = Thread(target=second)

    def meanwhile() -> None:
        other.start()
        # It has none before the first one's is there; else that is not the one both use.
        has_answer.wait(0.05)

    got.append(ask(meanwhile))
    other.join()
    return got


def test_threads_share_the_payload(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    discovered = Repository.discover(repo.path)
    real = on_demand.store_of

    def ask(meanwhile: Callable[[], None]) -> FetchedPayload:
        def slow(repo: Repository) -> Store:
            monkeypatch.setattr(on_demand, "store_of", real)
            meanwhile()
            return real(repo)

        if not isinstance(discovered.payload, FetchedPayload):
            monkeypatch.setattr(on_demand, "store_of", slow)
        return FetchedPayload.of(discovered)

    one, other = of_two_threads(ask)
    assert one is other


def test_threads_share_what_a_filter_makes_once() -> None:
    waits: list[Callable[[], None]] = []

    def make() -> object:
        if waits:
            waits.pop()()
        return object()

    once = plumbing.Once(make)

    def ask(meanwhile: Callable[[], None]) -> object:
        waits[:] = [] if once.has_value or waits else [meanwhile]
        return once()

    one, other = of_two_threads(ask)
    assert one is other


def test_what_another_thread_has_met_is_there(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = FetchedPayload.of(Repository.discover(repo.path))
    assert payload.has([b"a" * 32]) == set()
    names = added(Store(repo.path / ".git/wtxt/store"), weights())
    real = Store.refresh

    def after_another(store: Store) -> bool:
        real(store)
        return real(store)

    monkeypatch.setattr(Store, "refresh", after_another)
    assert payload.has(names) == set(names)


def test_what_any_reader_lacks_is_shown_while_it_comes(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    names = added(Store(tmp_path / "own"), OLD)
    pushed(tmp_path / "own", TargetPacks(Folder(there)), text(OLD))
    repo.git("config", "wtxtgit.store", there.as_uri())
    counts: dict[str, list[int]] = {}

    @contextmanager
    def show(name: str, _size: int | None) -> Iterator[Progress | None]:
        yield counts.setdefault(name, []).append

    monkeypatch.setattr(progress, "how", show)
    FetchedPayload.of(Repository.discover(repo.path)).want(names)
    assert holds(repo.path / ".git/wtxt/store", OLD)
    assert list(counts) == ["fetching"]
    assert sum(counts["fetching"]) >= sum(path.stat().st_size for path in there.rglob("*.pack"))
