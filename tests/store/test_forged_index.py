"""The file `index` of a store is believed in nothing, whoever made its SHA-256 right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.chunks import SIZE, added, named, packs, trained, weights
from tests.store.forged import LIES, forge
from wtxtgit.errors import PayloadMissing
from wtxtgit.store.check import check_store
from wtxtgit.store.prune import prune_store
from wtxtgit.store.repack import repack_store, set_damaged_aside
from wtxtgit.store.store import Store

FIRST = weights(6)
SECOND = trained(FIRST)
CHUNKS = [*FIRST, *SECOND]
NAMES = [named(chunk) for chunk in CHUNKS]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two packs, the chunks of one are decoded with those of the other; `again` reads its index."""
    made = Store(tmp_path / "store")
    added(made, FIRST)
    added(made, SECOND, before=FIRST)
    assert len(packs(made)) == 2
    # Who looks next writes the index.
    assert again(made).holds(NAMES[0])
    return made


def again(store: Store) -> Store:
    return Store(store.folder)


def all_there(store: Store) -> None:
    """Its index is as it was, and all is read by another process."""
    assert [bytes(again(store).read(name)) for name in NAMES] == CHUNKS


@pytest.mark.parametrize("lie", LIES)
class TestEachLie:
    def test_chunks_are_read_and_the_index_is_made_anew(self, store: Store, lie: str) -> None:
        index = store.folder / "index"
        true = index.read_bytes()
        forge(store.folder, lie)
        assert index.read_bytes() != true
        other = again(store)
        assert [bytes(other.read(name)) for name in NAMES] == CHUNKS
        # What the index may have, and the store has not.
        with pytest.raises(PayloadMissing):
            other.read(bytes([1]) * 32)
        assert index.read_bytes() == true

    def test_chunks_that_follow_one_another_are_read(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        other = again(store)
        data = other.read_all(NAMES, SIZE)
        assert data in (None, b"".join(CHUNKS))
        assert all(other.read(name) for name in NAMES)
        assert other.read_all(NAMES, SIZE) == b"".join(CHUNKS)

    def test_what_is_here_is_here(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        assert again(store).has([*NAMES, bytes(31) + b"x"]) >= set(NAMES)

    def test_a_store_that_borrows_reads_them(self, store: Store, lie: str, tmp_path: Path) -> None:
        forge(store.folder, lie)
        forged = (store.folder / "index").read_bytes()
        other = Store(tmp_path / "other", alternates=[store.folder])
        assert [bytes(other.read(name)) for name in NAMES] == CHUNKS
        assert (store.folder / "index").read_bytes() == forged

    def test_what_is_added_is_there(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        third = trained(SECOND, seed=3)
        added(again(store), [*third, *SECOND], before=[*SECOND, *FIRST])
        other = again(store)
        chunks = [*CHUNKS, *third]
        assert [bytes(other.read(named(chunk))) for chunk in chunks] == chunks

    def test_a_check_finds_all_whole(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        verdict = check_store(again(store), 1)
        assert verdict.ok, verdict
        assert verdict.chunks == len(CHUNKS)

    def test_nothing_is_dropped_by_a_repack(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        assert repack_store(again(store)).aside == ()
        all_there(store)

    def test_nothing_is_dropped_by_a_prune(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        prune_store(again(store), lambda _: set(NAMES[6:]))
        all_there(store)
        forge(store.folder, lie)
        prune_store(again(store), lambda _: set(NAMES[:6]))
        assert [bytes(again(store).read(name)) for name in NAMES[:6]] == FIRST

    def test_nothing_is_set_aside(self, store: Store, lie: str) -> None:
        forge(store.folder, lie)
        assert set_damaged_aside(again(store), NAMES) == []
        all_there(store)


def test_a_chunk_that_only_the_index_has_is_missing_and_added(store: Store) -> None:
    """Which pack is said to hold it makes no difference."""
    chunk = weights(1, seed=9)[0]
    forge(store.folder, lambda rows: sorted([*rows, (named(chunk), 0, 3)]))
    with pytest.raises(PayloadMissing):
        again(store).read(named(chunk))
    forge(store.folder, lambda rows: sorted([*rows, (named(chunk), 1, 3)]))
    added(again(store), [chunk])
    assert again(store).read(named(chunk)) == chunk


def test_an_index_of_more_chunks_than_the_packs_have_room_for_is_not_read(store: Store) -> None:
    """A file with holes takes no room, and hours to hash."""
    room = sum(path.stat().st_size for path in store.own.packs.iterdir())
    many = [(n.to_bytes(32, "big"), 0, 0) for n in range(room // 40)]
    forge(store.folder, lambda rows: sorted([*rows, *many]))
    other = again(store)
    assert other.own.has([many[0][0]]) == set()
    assert [bytes(other.read(name)) for name in NAMES] == CHUNKS


def test_the_packs_are_read_once(store: Store) -> None:
    """What is not here at all is asked for again and again while much is fetched."""
    other = again(store)
    assert other.has([bytes(32)]) == set()
    assert not other.prove()
