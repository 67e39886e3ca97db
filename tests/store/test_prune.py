"""Pruning a store: what is judged to be needed stays, with all that it is decoded with."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable, Mapping, Set
from itertools import pairwise
from pathlib import Path

import pytest

from tests.store.chunks import SIZE, added, damage, named, nbytes, packs, trained, weights
from tests.store.test_kills import killed, nothing_left
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io import temporary
from wtxtgit.report.store import StorePruned
from wtxtgit.store import repack, writer
from wtxtgit.store.check import check_store
from wtxtgit.store.prune import prune_store
from wtxtgit.store.repack import repack_store
from wtxtgit.store.store import Store

LONG_AGO = 1_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def keeping(store: Store, chunks: Iterable[bytes], *, dry_run: bool = False) -> StorePruned:
    """Prune all but these chunks."""
    kept = set(map(named, chunks))
    return prune_store(Store(store.folder), lambda there: there.keys() & kept, dry_run=dry_run)


def held(store: Store) -> set[bytes]:
    """The chunks that are there, all of them whole."""
    again = Store(store.folder)
    assert check_store(again, 1).ok
    opened = [pack for name in again.own.names if (pack := again.own.opened(name)) is not None]
    return {pack.index.name(row) for pack in opened for row in range(pack.index.count)}


def make_old(store: Store) -> None:
    for path in packs(store):
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_what_is_not_needed_goes(store: Store) -> None:
    chunks = weights(6)
    added(store, chunks[:3])
    added(store, chunks[3:])
    before = nbytes(store)
    told = keeping(store, chunks[3:5], dry_run=True)
    assert held(store) == set(map(named, chunks))
    done = keeping(store, chunks[3:5])
    assert (told.chunks, told.nbytes) == (done.chunks, done.nbytes) == (4, done.nbytes)
    assert held(store) == set(map(named, chunks[3:5]))
    assert (done.packs_before, done.packs_after) == (2, 1)
    assert (done.size_before, done.size_after) == (before, nbytes(store))
    assert before - nbytes(store) >= done.nbytes > 3 * SIZE / 2
    assert keeping(store, chunks[3:5]).chunks == 0


def test_all_of_it(store: Store) -> None:
    assert keeping(store, []).chunks == 0
    assert not store.folder.exists()
    added(store, weights(3))
    assert keeping(store, []).packs_after == 0
    assert held(store) == set()


def test_bases_stay(store: Store) -> None:
    versions = [weights(3)]
    for seed in range(3):
        versions.append(trained(versions[-1], seed))
    added(store, versions[0])
    for old, new in pairwise(versions):
        added(Store(store.folder), new, before=old)
    keeping(store, versions[-1][:1])
    there = held(store)
    assert named(versions[-1][0]) in there
    # Of each chain one chunk of each version at most.
    assert len(there) <= len(versions)
    assert {named(chunk) for version in versions for chunk in version[1:]}.isdisjoint(there)


def test_what_is_not_needed_though_damaged_goes(store: Store) -> None:
    chunks = weights(2)
    added(store, chunks)
    added(store, weights(2, seed=8))
    first = next(path for path in packs(store))
    damage(first, at=100)
    keeping(store, weights(2, seed=8))
    # A pack of which something is needed is for `repack` to judge.
    assert check_store(Store(store.folder), 1).ok or first.exists()
    keeping(store, [])
    assert packs(store) == []


def test_chunks_tell_when_they_were_added_last(store: Store) -> None:
    old, new = weights(2), weights(2, seed=3)
    added(store, old)
    make_old(store)
    added(store, new)
    seen: dict[bytes, float] = {}

    def judge(chunks: Mapping[bytes, float]) -> Set[bytes]:
        seen.update(chunks)
        return chunks.keys()

    prune_store(Store(store.folder), judge)
    assert all(seen[named(chunk)] == LONG_AGO for chunk in old)
    assert all(time.time() - seen[named(chunk)] < 600 for chunk in new)
    # Adding what is there makes it young, and repacking leaves it as it was.
    make_old(store)
    repack_store(Store(store.folder))
    prune_store(Store(store.folder), judge)
    assert set(seen.values()) == {LONG_AGO}
    added(Store(store.folder), old[:1])
    prune_store(Store(store.folder), judge)
    assert time.time() - seen[named(old[0])] < 600


def test_what_is_used_can_be_read_all_the_time(store: Store) -> None:
    """Packs of over a MiB are not read at once."""
    chunks = weights(100)
    added(store, chunks)
    reading = Store(store.folder)
    assert reading.read(named(chunks[0])) == chunks[0]
    make_old(store)
    assert reading.read(named(chunks[-1])) == chunks[-1]
    added(Store(store.folder), [*chunks, *trained(chunks)], before=[*chunks, *chunks])
    assert nbytes(store) < 1.8 * len(chunks) * SIZE
    assert reading.read(named(chunks[50])) == chunks[50]


def test_what_is_added_meanwhile_stays_and_what_it_is_decoded_with(store: Store) -> None:
    old = weights(3)
    new = trained(old)
    added(store, old)

    def judge(chunks: Mapping[bytes, float]) -> Set[bytes]:
        added(Store(store.folder), new, before=old)
        return set()

    done = prune_store(Store(store.folder), judge)
    assert held(store) >= {*map(named, new)}
    assert done.packs_after == 2


def test_what_is_used_meanwhile_stays(store: Store) -> None:
    old = weights(3)
    new = trained(old)
    added(store, old)
    added(store, new, before=old)
    make_old(store)

    def judge(chunks: Mapping[bytes, float]) -> Set[bytes]:
        added(Store(store.folder), new)
        return set()

    prune_store(Store(store.folder), judge)
    assert held(store) == {*map(named, [*old, *new])}


def test_who_adds_is_waited_for(store: Store) -> None:
    """Whatever it knew of the store before, it knows what went."""
    old = weights(3)
    added(store, old)
    make_old(store)
    other = Store(store.folder)
    assert other.has(map(named, old)) == {*map(named, old)}
    with store.writing() as adding:
        pruning = threading.Thread(target=keeping, args=(store, []))
        pruning.start()
        adding.put(named(b"new"), memoryview(b"new"), 1, None)
    pruning.join()
    assert held(store) <= {named(b"new")}
    added(other, [*trained(old), *old], before=[*old, *old])
    assert held(store) >= {*map(named, [*old, *trained(old)])}


def test_what_is_being_added_is_spared(store: Store) -> None:
    """A process adds file after file, and nothing names them before its end."""
    old, new = weights(3), weights(3, seed=5)
    added(store, old)
    make_old(store)
    adding = Store(store.folder)
    with adding.own.leased():
        added(adding, [new[0], old[0]])
        keeping(Store(store.folder), [])
        assert held(store) >= {*map(named, [new[0], old[0]])}
        added(adding, new[1:])
        adding.join_small()
        keeping(Store(store.folder), [])
        assert held(store) >= {*map(named, [*new, old[0]])}
    assert [path.name for path in store.folder.glob("adding-*")] == []
    left = store.folder / "adding-0123456789abcdef"
    left.touch()
    keeping(Store(store.folder), [])
    assert held(store) == set()
    assert not left.exists()


def test_not_beside_a_repack(store: Store) -> None:
    added(store, weights(1))
    with (
        repack.alone(store),
        pytest.raises(EnvironmentFailure, match="another repack or prune is running"),
    ):
        keeping(Store(store.folder), [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_pruning_is_killed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writer, repack):
        monkeypatch.setattr(module, "MAX_PACK", 4 * SIZE)
    if kind == "named":
        monkeypatch.setattr(temporary, "_UNNAMED", 0)
    start = tmp_path / "start"
    old = weights(6)
    new = trained(old)
    added(Store(start), old)
    added(Store(start), new, before=old)
    kept = [new[0], old[5]]
    call, is_killed = 0, True
    while is_killed:
        call += 1
        folder = tmp_path / "try"
        copy(start, folder)
        is_killed = killed(lambda folder=folder: keeping(Store(folder), kept), call)
        assert held(Store(folder)) >= {*map(named, kept)}
        keeping(Store(folder), kept)
        there = held(Store(folder))
        assert {*map(named, kept)} <= there
        assert len(there) <= 3
        nothing_left(folder)
    assert call > 5


def copy(start: Path, folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)


@pytest.mark.slow
def test_any_history_of_adding_and_pruning(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writer, repack):
        monkeypatch.setattr(module, "MAX_PACK", 4 * SIZE)
    chance = random.Random(6)  # noqa: S311
    known = weights(4)
    added(store, known)
    for step in range(20):
        some = chance.sample(known, min(3, len(known)))
        new = trained(some, seed=step)
        added(Store(store.folder), new, before=some)
        known += new
        if step % 3 == 2:
            known = chance.sample(known, len(known) // 2)
            keeping(store, known)
            assert held(store) >= {*map(named, known)}
        if step % 5 == 4:
            repack_store(Store(store.folder))
            assert held(store) >= {*map(named, known)}
