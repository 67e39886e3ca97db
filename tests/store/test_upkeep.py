"""Listing, checking and repacking a store: nothing is lost, and damage is told by name."""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path

import pytest

from tests.store.chunks import SIZE, added, damage, named, nbytes, packs, trained, weights
from wtxtgit.errors import EnvironmentFailure, PayloadMissing
from wtxtgit.io.temporary import opened_folder
from wtxtgit.store import repack, writer
from wtxtgit.store.check import check_store, list_store
from wtxtgit.store.repack import repack_store
from wtxtgit.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def all_read(store: Store, chunks: list[bytes]) -> None:
    again = Store(store.folder)
    assert [bytes(again.read(named(chunk))) for chunk in chunks] == chunks


class TestListing:
    def test_packs_and_what_they_hold(self, store: Store) -> None:
        chunks = weights(3)
        added(store, chunks[:2])
        added(store, chunks[2:])
        listed = list_store(store)
        assert (listed.chunks, listed.payload) == (3, 3 * SIZE)
        assert [pack.pack for pack in listed.packs] == [path.stem for path in packs(store)]
        assert sorted(pack.chunks for pack in listed.packs) == [1, 2]
        assert listed.size == nbytes(store)

    def test_of_nothing(self, store: Store) -> None:
        listed = list_store(store)
        assert (listed.chunks, listed.packs) == (0, ())
        assert check_store(store, 2).ok
        assert repack_store(store).packs_after == 0
        assert not store.folder.exists()


class TestCheck:
    def test_all_is_well(self, store: Store) -> None:
        old = weights(3)
        added(store, old)
        added(store, trained(old), before=old)
        told: list[int] = []
        verdict = check_store(Store(store.folder), 2, told.append)
        assert verdict.ok
        assert (verdict.packs, verdict.chunks, verdict.payload) == (2, 6, 6 * SIZE)
        assert sum(told) == nbytes(store)

    def test_what_is_damaged_is_named(self, store: Store) -> None:
        old = weights(2)
        added(store, old)
        damage(packs(store)[0], at=100)
        (path,) = packs(store)
        other = Store(store.folder.with_name("other"))
        added(other, old)
        new = trained(old)
        added(other, new, before=old)
        (based,) = [pack for pack in packs(other) if pack.name != path.name]
        based.rename(path.with_name(based.name))

        verdict = check_store(Store(store.folder), 1)
        by_name = {pack.pack: pack for pack in verdict.damaged}
        assert by_name[path.stem].why == "has a SHA-256 other than its name states"
        (bad,) = by_name[path.stem].chunks
        assert bad in {named(chunk).hex() for chunk in old}
        (without,) = by_name[based.stem].chunks.values()
        assert without == f"can't be decoded without its base {bad}"
        assert by_name[based.stem].why is None
        assert set(verdict.lost) == {bad, *by_name[based.stem].chunks}
        assert not verdict.ok

    def test_a_pack_that_is_cut_short(self, store: Store) -> None:
        added(store, weights(2))
        (path,) = packs(store)
        path.chmod(0o644)
        os.truncate(path, 1000)
        (found,) = check_store(Store(store.folder), 1).damaged
        assert found.pack == path.stem
        assert str(found.why).startswith("is cut short")
        (listed,) = list_store(Store(store.folder)).packs
        assert str(listed.why).startswith("is cut short")


class TestRepack:
    def test_small_packs_become_a_large_one(self, store: Store) -> None:
        versions = [weights(2)]
        added(store, versions[0])
        for number in range(4):
            versions.append(trained(versions[-1], seed=number))
            added(Store(store.folder), versions[-1], before=versions[-2])
        before = nbytes(store)
        done = repack_store(Store(store.folder))
        assert (done.packs_before, done.packs_after, done.dropped) == (5, 1, 0)
        assert (done.size_before, done.size_after) == (before, nbytes(store))
        assert nbytes(store) <= before
        all_read(store, [chunk for version in versions for chunk in version])
        assert repack_store(Store(store.folder)).packs_after == 1

    def test_they_are_no_larger_than_they_may(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (writer, repack):
            monkeypatch.setattr(module, "MAX_PACK", 6 * SIZE)
        chunks = weights(20)
        for number in range(0, 20, 2):
            added(Store(store.folder), chunks[number : number + 2])
        done = repack_store(Store(store.folder))
        assert done.packs_before == 10
        assert done.packs_after == 3
        assert max(path.stat().st_size for path in packs(store)) <= 6 * SIZE
        names = packs(store)
        assert repack_store(Store(store.folder)).packs_after == 3
        assert packs(store) == names
        all_read(store, chunks)

    def test_doubled_chunks_are_dropped(self, store: Store, tmp_path: Path) -> None:
        old, new = weights(3), trained(weights(3))
        added(store, old)
        added(store, new, before=old)
        other = Store(tmp_path / "other")
        added(other, [*new, *old[:1], b"more"])
        for path in packs(other):
            path.rename(packs(store)[0].with_name(path.name))
        done = repack_store(Store(store.folder))
        assert (done.packs_after, done.dropped) == (1, 4)
        all_read(store, [*old, *new, b"more"])
        assert check_store(Store(store.folder), 1).chunks == 7

    def test_what_is_damaged_is_set_aside_and_can_be_added_again(self, store: Store) -> None:
        chunks = weights(3)
        added(store, chunks)
        added(store, [b"other"])
        path = next(path for path in packs(store) if path.stat().st_size > SIZE)
        damage(path, at=100)
        done = repack_store(Store(store.folder))
        (aside,) = done.aside
        assert aside.pack == path.stem
        assert len(aside.chunks) == 1
        assert [file.name for file in packs(store) if file.suffix == ".damaged"] == [
            f"{path.name}.damaged"
        ]
        after = Store(store.folder)
        there = after.has(map(named, [*chunks, b"other"]))
        assert len(there) == 3
        assert check_store(after, 1).ok
        (lost,) = {*map(named, chunks)} - there
        with pytest.raises(PayloadMissing):
            after.read(lost)
        added(after, chunks)
        all_read(store, [*chunks, b"other"])

    def test_the_whole_one_of_two_copies_stays(self, store: Store, tmp_path: Path) -> None:
        chunks = weights(3)
        added(store, chunks)
        (path,) = packs(store)
        damage(path, at=100)
        other = Store(tmp_path / "other")
        # Without bases: as deep as the damaged one, and in a pack that would be dropped.
        added(other, [*chunks, *weights(1, seed=9)])
        for whole in packs(other):
            whole.rename(path.with_name(whole.name))
        done = repack_store(Store(store.folder))
        assert [pack.pack for pack in done.aside] in ([], [path.stem])
        all_read(store, [*chunks, *weights(1, seed=9)])
        assert check_store(Store(store.folder), 1).ok

    def test_a_pack_of_a_later_version_stays(self, store: Store) -> None:
        from hashlib import sha256

        added(store, weights(1))
        content = b"WTXTPACK\2 of a later wtxtgit"
        later = packs(store)[0].with_name(f"{sha256(content).hexdigest()}.pack")
        later.write_bytes(content)
        assert not repack_store(Store(store.folder)).aside
        assert later.read_bytes() == content

    def test_two_at_once_are_refused(self, store: Store) -> None:
        added(store, weights(1))
        with opened_folder(store.folder) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)
            with pytest.raises(EnvironmentFailure, match="another repack or prune is running"):
                repack_store(store)

    def test_others_read_and_add_meanwhile(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever they know of the store is old by then."""
        old = weights(4)
        for chunk in old:
            added(Store(store.folder), [chunk])
        reading, writing = Store(store.folder), Store(store.folder)
        assert reading.has(map(named, old)) == set(map(named, old))
        with writing.writing() as adding:
            adding.put(named(b"new"), memoryview(b"new"), 1, None)
            repack_store(Store(store.folder))
            new = trained(old)
            for chunk, base in zip(new, old, strict=True):
                adding.put(named(chunk), memoryview(chunk), 4, named(base))
        assert [bytes(reading.read(named(chunk))) for chunk in [*old, *new]] == [*old, *new]
        all_read(store, [*old, *new, b"new"])

    @pytest.mark.slow
    def test_any_history_of_adding_damaging_and_repacking(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is whole in any pack can be read after repacking."""
        for module in (writer, repack):
            monkeypatch.setattr(module, "MAX_PACK", 4 * SIZE)
        chance = random.Random(5)  # noqa: S311
        known: list[bytes] = weights(3)
        for step in range(16):
            other = Store(tmp_path / f"other{step}")
            for number in range(chance.randint(1, 3)):
                some = chance.sample(known, min(3, len(known)))
                new = trained(some, seed=10 * step + number)
                target = chance.choice([Store(store.folder), other])
                added(target, some)
                added(target, new, before=some)
                known += new
            for path in packs(other):
                (store.folder / "packs").mkdir(parents=True, exist_ok=True)
                path.rename(store.folder / "packs" / path.name)
            if step % 4 == 3:
                victim = chance.choice([p for p in packs(store) if p.suffix == ".pack"])
                damage(victim, at=chance.randrange(16, victim.stat().st_size))
            before = Store(store.folder)
            whole = {name for name in map(named, known) if can_be_read(before, name)}
            repack_store(Store(store.folder))
            after = Store(store.folder)
            assert {name for name in map(named, known) if can_be_read(after, name)} == whole
            known = [chunk for chunk in known if named(chunk) in whole][-12:] or weights(3)


def can_be_read(store: Store, name: bytes) -> bool:
    from wtxtgit.errors import PayloadError

    try:
        store.read(name)
    except PayloadError:
        return False
    return True
