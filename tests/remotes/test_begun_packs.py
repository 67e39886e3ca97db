"""Packs of which only the beginning has come: the next process goes on there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.kit import Repo
from tests.kit.told import Told
from tests.remotes.places import NEW, OLD, holds, text
from tests.remotes.test_fetched_parts import Counting, fetch
from wtxtgit.errors import RemoteUnavailable
from wtxtgit.io import clock
from wtxtgit.io.temporary import kept_file, opened_folder
from wtxtgit.io.view import Buffer
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.place import FORGOTTEN, TargetPacks
from wtxtgit.store.store import Store

CHUNKS = [*OLD, *NEW]


class Packs(Counting):
    """A place that counts the bytes of packs, without their ends."""

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        return TargetPacks.ends(self, names)


class Breaking(Packs):
    """A place that breaks off after so many bytes of a pack."""

    most = 0

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        for name, content in super().contents(sizes):
            yield name, self._begun(content)

    def _begun(self, content: Iterator[Buffer]) -> Iterator[Buffer]:
        yield memoryview(b"".join(map(bytes, content)))[: self.most]
        raise RemoteUnavailable("breaks off")


@pytest.fixture
def pack(there: Path) -> Path:
    (found,) = there.glob("*.pack")
    return found


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


@pytest.fixture
def begun(other: Path, pack: Path) -> Path:
    """Where the first two thirds of the pack are."""
    file = other / f"incoming/packs/{pack.stem}.part"
    file.parent.mkdir(parents=True)
    content = pack.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])
    return file


def given(other: Path, there: Path, *, is_whole: bool = False) -> int:
    """Fetch all of the pack; gives how many of its bytes came."""
    place = Packs(there, is_whole=is_whole)
    told = Told()
    done = fetch_payload(Store(other), lambda: [place], [text(CHUNKS)], told)
    assert (done.lacking, done.refused, len(done.packs)) == ((), (), 1)
    assert holds(other, CHUNKS)
    assert done.nbytes == place.given
    assert told.expected == sum(told.counts)
    assert not list(other.rglob("*.part"))
    return place.given


def test_a_remote_that_breaks_off(other: Path, there: Path, pack: Path) -> None:
    size = pack.stat().st_size
    place = Breaking(there)
    place.most = size - 1000
    with pytest.raises(RemoteUnavailable):
        fetch(other, place, CHUNKS)
    assert given(other, there) == 1000
    (own,) = (other / "packs").glob("*.pack")
    assert own.name == pack.name


def test_what_is_to_come_is_foreseen(other: Path, there: Path, pack: Path, begun: Path) -> None:
    left = pack.stat().st_size - begun.stat().st_size
    place = Packs(there)
    foreseen = fetch_payload(Store(other), lambda: [place], [text(CHUNKS)], dry_run=True)
    assert (foreseen.nbytes, foreseen.packs) == (left, (pack.stem,))
    assert given(other, there) == left


def test_a_remote_that_gives_no_parts(other: Path, there: Path, pack: Path, begun: Path) -> None:
    assert given(other, there, is_whole=True) == pack.stat().st_size


def test_all_of_it_has_come(other: Path, there: Path, pack: Path, begun: Path) -> None:
    begun.write_bytes(pack.read_bytes())
    assert given(other, there) == 0


@pytest.mark.parametrize("content", [b"x" * 100, b"x" * 10_000_000], ids=["other", "larger"])
def test_a_beginning_that_is_not_one(
    other: Path, there: Path, pack: Path, begun: Path, content: bytes
) -> None:
    begun.write_bytes(content)
    place = Packs(there)
    done = fetch(other, place, CHUNKS)
    assert (done.lacking, done.refused) == ((), ())
    assert holds(other, CHUNKS)
    assert place.given <= 2 * pack.stat().st_size


def _link(begun: Path) -> None:
    begun.symlink_to(begun.parent.parent / "elsewhere")


@pytest.mark.parametrize("make", [_link, os.mkfifo, Path.mkdir], ids=["link", "pipe", "folder"])
def test_something_else_has_its_name(
    other: Path, there: Path, pack: Path, begun: Path, make: Callable[[Path], None]
) -> None:
    elsewhere = begun.parent.parent / "elsewhere"
    elsewhere.write_bytes(b"precious")
    begun.unlink()
    make(begun)
    place = Packs(there)
    done = fetch(other, place, CHUNKS)
    assert (done.lacking, done.refused, place.given) == ((), (), pack.stat().st_size)
    assert holds(other, CHUNKS)
    assert elsewhere.read_bytes() == b"precious"


def test_another_process_is_receiving_it(other: Path, there: Path, pack: Path, begun: Path) -> None:
    before = begun.read_bytes()
    with opened_folder(begun.parent) as folder, kept_file(folder, begun.parent, begun.name) as made:
        assert made is not None
        place = Packs(there)
        assert not fetch(other, place, CHUNKS).lacking
        assert holds(other, CHUNKS)
        assert begun.read_bytes() == before


def test_a_damaged_pack_leaves_no_beginning(other: Path, there: Path, pack: Path) -> None:
    content = pack.read_bytes()
    pack.write_bytes(content[:-1])
    done = fetch(other, Packs(there), CHUNKS)
    assert [one.pack for one in done.refused] == [pack.stem]
    assert not list(other.rglob("*.part"))
    pack.write_bytes(content)
    assert given(other, there) == len(content)


def test_it_is_removed_after_two_weeks(other: Path, there: Path, begun: Path) -> None:
    left = begun.with_name(f"{'0' * 64}.part")
    for path, age in ((begun, FORGOTTEN - 60), (left, FORGOTTEN + 60)):
        path.touch()
        os.utime(path, (clock.now() - age,) * 2)
    assert not fetch(other, Packs(there), OLD[:1]).lacking
    assert (begun.exists(), left.exists()) == (True, False)


def test_pruning_removes_it(repo: Repo, there: Path) -> None:
    left = repo.path / f".git/wtxt/store/incoming/packs/{'0' * 64}.part"
    left.parent.mkdir(parents=True)
    left.touch()
    os.utime(left, (clock.now() - FORGOTTEN - 60,) * 2)
    repo.commit()
    repo.wtxtgit("store", "prune")
    assert not left.exists()
