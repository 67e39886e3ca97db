"""Adding and repacking are killed before each call that changes the file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.chunks import SIZE, added, named, packs, trained, weights
from tests.torture.processes import count_calls, kill_self
from wtxtgit.io import temporary
from wtxtgit.store import repack, writer
from wtxtgit.store.check import check_store
from wtxtgit.store.pack import file_digest
from wtxtgit.store.repack import repack_store
from wtxtgit.store.store import Store

OLD = weights(4)
NEW = trained(OLD)


@pytest.fixture(autouse=True, params=["nameless", "named"])
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of few chunks; with files that have no name, and as on a file system without."""
    for module in (writer, repack):
        monkeypatch.setattr(module, "MAX_PACK", 4 * SIZE)
    if request.param == "named":
        monkeypatch.setattr(temporary, "_UNNAMED", 0)


def killed(work: Callable[[], object], call: int) -> bool:
    """Do work in a process that is killed before its `call`-th call; tells whether it was."""
    child = os.fork()
    if not child:
        count_calls(lambda count: kill_self() if count == call else None)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def whole(folder: Path) -> None:
    """What has a pack's name is whole, and all that was there is."""
    for path in folder.glob("packs/*.pack"):
        assert file_digest(path) == path.stem
    store = Store(folder)
    for chunk in OLD:
        assert store.read(named(chunk)) == chunk


def nothing_left(folder: Path) -> None:
    assert not [path for path in folder.rglob("*") if path.name.startswith(".wtxtgit-")]


@pytest.mark.slow
def test_adding(tmp_path: Path) -> None:
    start = tmp_path / "start"
    added(Store(start), OLD)
    call = 0
    is_killed = True
    while is_killed:
        call += 1
        folder = tmp_path / str(call)
        shutil.copytree(start, folder)
        is_killed = killed(lambda folder=folder: added(Store(folder), NEW, before=OLD), call)
        whole(folder)
        added(Store(folder), [*NEW, b"more"], before=[*OLD, b""])
        store = Store(folder)
        assert [bytes(store.read(named(chunk))) for chunk in NEW] == NEW
        nothing_left(folder)
    assert call > 5


def joined(store: Store) -> None:
    """Add chunks one by one, each to a pack of its own, and join the packs."""
    for chunk in NEW:
        added(store, [chunk])
    store.join_small()


@pytest.mark.slow
def test_joining(tmp_path: Path) -> None:
    start = tmp_path / "start"
    added(Store(start), OLD)
    call = 0
    is_killed = True
    while is_killed:
        call += 1
        folder = tmp_path / str(call)
        shutil.copytree(start, folder)
        count = len(packs(Store(folder)))
        is_killed = killed(lambda folder=folder: joined(Store(folder)), call)
        whole(folder)
        if not is_killed:
            assert len(packs(Store(folder))) < count + len(NEW)
        added(Store(folder), [b"more"])
        joined(Store(folder))
        store = Store(folder)
        assert [bytes(store.read(named(chunk))) for chunk in NEW] == NEW
        nothing_left(folder)
        assert check_store(Store(folder), 1).ok
    assert call > 5


def test_what_was_changed_or_moved_is_not_joined(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for chunk in [*NEW, b"more"]:
        added(store, [chunk])
    first, second, *_ = packs(store)
    first.chmod(0o644)
    first.write_bytes(first.read_bytes() + b"x")
    second.unlink()
    store.join_small()
    assert first.exists()
    assert not second.exists()
    assert len(packs(store)) < len(NEW)


@pytest.mark.slow
def test_repacking(tmp_path: Path) -> None:
    start = tmp_path / "start"
    for chunk in OLD:
        added(Store(start), [chunk])
    other = Store(tmp_path / "other")
    added(other, [*OLD[1:3], b"more"])
    for path in packs(other):
        path.rename(start / "packs" / path.name)
    call = 0
    is_killed = True
    while is_killed:
        call += 1
        folder = tmp_path / str(call)
        shutil.copytree(start, folder)
        is_killed = killed(lambda folder=folder: repack_store(Store(folder)), call)
        whole(folder)
        repack_store(Store(folder))
        whole(folder)
        verdict = check_store(Store(folder), 1)
        assert verdict.ok
        assert (verdict.packs, verdict.chunks) == (1, 5)
        nothing_left(folder)
    assert call > 5
