"""Ends of a remote's packs that are kept here: what they say is believed in nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remotes.places import NEW, OLD, holds, text
from tests.remotes.test_fetched_parts import Counting, fetch
from tests.remotes.test_payload import fetched, place
from tests.store.chunks import SIZE, named
from tests.store.forged import END_LIES, forge_end
from wtxtgit.remotes.payload.prune import proved
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.store.store import Store


def kept(store: Path) -> Path:
    (found,) = store.glob("remotes/*/*.index")
    return found


def keep(store: Path, remote: Path) -> Path:
    RemotePacks(place(remote), store)
    return kept(store)


@pytest.mark.parametrize("is_whole", [False, True], ids=["parts", "whole packs"])
@pytest.mark.parametrize("lie", END_LIES)
class TestForged:
    def test_all_comes_and_it_is_read_again(
        self, there: Path, tmp_path: Path, lie: str, is_whole: bool
    ) -> None:
        other = tmp_path / "other"
        forge_end(keep(other, there), lie)
        first = fetch(other, Counting(there, is_whole=is_whole), [*OLD[2:4], *NEW])
        assert (first.lacking, first.refused) == ((), ())
        assert holds(other, [*OLD[2:4], *NEW])
        second = fetch(other, Counting(there, is_whole=is_whole), OLD)
        assert (second.lacking, second.refused) == ((), ())
        assert holds(other, [*OLD, *NEW])

    def test_a_remote_that_lies_is_named(
        self, there: Path, tmp_path: Path, lie: str, is_whole: bool
    ) -> None:
        """What it holds all the same comes."""
        (index,) = there.glob("*.index")
        true = forge_end(index, lie)
        other = tmp_path / "other"
        for _ in range(2):
            done = fetch(other, Counting(there, is_whole=is_whole), [*OLD, *NEW])
            if done.lacking:
                names = [pack.pack for pack in done.refused]
                assert names == [index.stem] or not names
            else:
                assert holds(other, [*OLD, *NEW])
        index.write_bytes(true)
        done = fetch(other, Counting(there, is_whole=is_whole), [*OLD, *NEW])
        assert (done.lacking, done.refused) == ((), ())
        assert holds(other, [*OLD, *NEW])


@pytest.mark.parametrize("lie", END_LIES)
def test_nothing_counts_as_being_there_by_it(own: Path, there: Path, lie: str) -> None:
    """Before chunks are dropped here."""
    names = [named(chunk) for chunk in {*OLD, *NEW}]
    forge_end(keep(own, there), lie)
    nobodys = [bytes(32), *(bytes([n]) * 32 for n in range(20))]
    found = proved(RemotePacks(place(there), own), [*names, *nobodys])
    assert found == set(names)


@pytest.mark.parametrize("lie", END_LIES)
def test_a_push_that_checks_mends_a_remote_that_lies(
    own: Path, there: Path, tmp_path: Path, lie: str
) -> None:
    (index,) = there.glob("*.index")
    forge_end(index, lie)
    texts = (text(OLD), text(NEW))
    done = push_payload(Store(own), place(there), texts, check=True)
    assert [pack.pack for pack in done.damaged] == [index.stem]
    assert not push_payload(Store(own), place(there), texts, check=True).damaged
    came = fetched(tmp_path / "other", there, *texts)
    assert (came.lacking, came.refused) == ((), ())
    assert holds(tmp_path / "other", [*OLD, *NEW])


@pytest.mark.parametrize("lie", END_LIES)
def test_a_push_that_checks_believes_only_the_remote(own: Path, there: Path, lie: str) -> None:
    true = forge_end(keep(own, there), lie)
    done = push_payload(Store(own), place(there), [text(OLD), text(NEW)], check=True)
    assert (done.damaged, done.packs) == ((), ())
    assert kept(own).read_bytes() == true


def test_what_nobody_has_is_asked_for_once(there: Path, tmp_path: Path) -> None:
    """All that is kept is read again, and a second time in the next command."""
    other = tmp_path / "other"
    end = keep(other, there)
    seen = end.stat().st_mtime_ns
    fetch(other, counting := Counting(there), OLD)
    assert counting.given < 6.5 * SIZE
    for _ in range(2):
        counting = Counting(there)
        missing = [bytes([n]) * SIZE for n in range(3)]
        done = fetch(other, counting, missing)
        assert [one.chunks for one in done.lacking] == [3]
        assert counting.given == end.stat().st_size
    # It is the same file: when the pack was first seen is known from it.
    assert end.stat().st_mtime_ns == seen
