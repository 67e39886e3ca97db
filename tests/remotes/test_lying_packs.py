"""Packs whose names and indexes are right, and whose chunks are not what they say they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path

import pytest

from tests.remotes.places import holds, text
from tests.remotes.test_payload import fetched, place, pushed
from tests.store.chunks import added, named, trained, weights
from wtxtgit.io.view import Buffer
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload.place import OutgoingPack, TargetPacks
from wtxtgit.remotes.payload.prune import proved
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.store.encoding import Encoded
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH, PREFIX, STORED, XOR, ChunkEntry, ChunkPack
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

OLD = weights(2)
NEW = trained(OLD)
OTHERS = weights(1, seed=9)


def send(remote: Path, folder: PackFolder, packs: Iterable[str]) -> None:
    place(remote).put([OutgoingPack.of(ChunkPack(folder.path(name))) for name in packs])


def lie(folder: Path, remote: Path, chunks: Iterable[bytes]) -> str:
    """Send a pack of zeros in place of chunks; gives its name."""
    own = PackFolder(folder)
    own.make()
    made = NewPack(own)
    for chunk in chunks:
        size = len(chunk)
        made.add(named(chunk), Encoded((bytes(size),), STORED, 1, size), size, (), 0)
    name = made.finish()
    made.close()
    send(remote, own, [name])
    return name


def claim(folder: Path, remote: Path, chunk: bytes, depth: int, *bases: bytes) -> None:
    """Send a pack that claims to have a chunk, decoded from others."""
    own = PackFolder(folder)
    own.make()
    made = NewPack(own)
    encoded = Encoded((b"no frame",), XOR if len(bases) == 1 else PREFIX, 1, 8)
    made.add(named(chunk), encoded, len(chunk), bases, depth)
    name = made.finish()
    made.close()
    send(remote, own, [name])


@pytest.fixture
def own(tmp_path: Path) -> Store:
    """A store with two versions, the later one as what it differs by."""
    added(Store(tmp_path / "own"), OLD)
    added(Store(tmp_path / "own"), NEW, before=OLD)
    return Store(tmp_path / "own")


@pytest.fixture
def later(own: Store) -> str:
    """The pack of the later version."""
    (found,) = (name for name, pack in own.own.usable(own.own.names) if pack.index.base_count)
    return found


@pytest.fixture
def remote(tmp_path: Path, own: Store, later: str) -> Path:
    """A folder with the later version, and with a lie in place of what it is decoded from."""
    folder = tmp_path / "remote"
    send(folder, own.own, [later])
    return folder


def test_what_is_decoded_from_it_is_not_to_blame(
    tmp_path: Path, own: Store, later: str, remote: Path
) -> None:
    liar = lie(tmp_path / "lie", remote, OLD)
    done = fetched(tmp_path / "first", remote, text(NEW))
    assert ([pack.pack for pack in done.refused], bool(done.lacking)) == ([liar], True)
    # The chunks that it claims to have are elsewhere too, whichever pack comes first.
    for seed in range(8):
        again = tmp_path / f"other {seed}"
        added(Store(again), [*OLD, *weights(1, seed + 100)])
        folder = Store(again).own
        send(remote, folder, folder.names)
        done = fetched(tmp_path / f"got {seed}", remote, text(NEW))
        assert not done.lacking
        assert {pack.pack for pack in done.refused} <= {liar}
        assert holds(tmp_path / f"got {seed}", NEW)


def test_a_push_that_checks_finds_it(tmp_path: Path, own: Store, remote: Path) -> None:
    liar = lie(tmp_path / "lie", remote, OLD)
    done = push_payload(own, place(remote), [text(NEW)], check=True)
    assert [(pack.pack, pack.why.split(",")[0][:11]) for pack in done.damaged] == [
        (liar, "holds chunk")
    ]
    assert (remote / f"{liar}.unneeded").exists()
    # What is decoded from these chunks stays where it is.
    assert done.chunks == len(OLD)
    assert not push_payload(own, place(remote), [text(NEW)], check=True).damaged
    assert not fetched(tmp_path / "other", remote, text(NEW)).lacking
    assert holds(tmp_path / "other", NEW)


def test_claims_that_lead_back_to_a_chunk_have_it_sent_once(tmp_path: Path) -> None:
    own, remote = Store(tmp_path / "own"), tmp_path / "remote"
    one, other = weights(2)
    added(own, [one])
    claim(tmp_path / "lie", remote, one, 2, named(other), bytes(32))
    claim(tmp_path / "lie", remote, other, 1, named(one))
    done = pushed(own.folder, remote, text([one]))
    assert (done.chunks, len(done.packs)) == (1, 1)
    assert not fetched(tmp_path / "other", remote, text([one])).lacking


def test_claims_that_branch_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, remote = Store(tmp_path / "own"), tmp_path / "remote"
    chunks = weights(17)
    added(own, chunks[:1])
    # In eight steps, from each of two chunks to both of the next step, and at last to nothing.
    for step in range(8):
        after = [named(chunk) for chunk in chunks[2 * step + 1 : 2 * step + 3]]
        for chunk in chunks[max(0, 2 * step - 1) : 2 * step + 1]:
            for bases in (after, after[:1], after[1:]):
                claim(tmp_path / "lie", remote, chunk, 8 - step, *bases)
    asked: list[bytes] = []
    copies = RemotePacks.copies

    def counted(
        self: RemotePacks, chunk: bytes, most_depth: int = MAX_DEPTH
    ) -> list[tuple[str, ChunkEntry]]:
        asked.append(chunk)
        return copies(self, chunk, most_depth)

    monkeypatch.setattr(RemotePacks, "copies", counted)
    done = pushed(own.folder, remote, text(chunks[:1]))
    assert (done.chunks, done.lacking) == (1, ())
    assert len(asked) < 3 * len(chunks)


class _Endless(TargetPacks):
    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        return ((name, repeat(bytes(2**20))) for name in sizes)


def test_a_pack_without_an_end_is_damaged(own: Store, later: str, remote: Path) -> None:
    place = _Endless(Folder(remote))
    assert list(RemotePacks(place, own.folder).damage([later], [own.own])) == [later]


def test_what_others_are_decoded_from_is_lost_there(
    tmp_path: Path, own: Store, remote: Path
) -> None:
    assert fetched(tmp_path / "first", remote, text(NEW)).lacking
    done = pushed(own.folder, remote, text(NEW))
    assert (done.chunks, done.lacking) == (len(OLD), ())
    assert not fetched(tmp_path / "other", remote, text(NEW)).lacking


def test_of_two_copies_the_one_that_can_be_decoded_comes(tmp_path: Path, remote: Path) -> None:
    elsewhere = Store(tmp_path / "elsewhere")
    other = trained(OLD, seed=7)
    added(elsewhere, other)
    added(Store(elsewhere.folder), NEW, before=other)
    send(remote, Store(elsewhere.folder).own, Store(elsewhere.folder).own.names)
    done = fetched(tmp_path / "other", remote, text(NEW))
    assert (done.lacking, done.refused) == ((), ())
    assert holds(tmp_path / "other", NEW)


@pytest.mark.parametrize("chunks", [OLD, NEW, [*OLD, *NEW]], ids=["bases", "chunks", "both"])
def test_nothing_is_dropped_here_because_of_it(
    tmp_path: Path, own: Store, later: str, chunks: list[bytes]
) -> None:
    remote = tmp_path / "remote"
    lie(tmp_path / "lie", remote, chunks)
    names = [*map(named, OLD), *map(named, NEW)]
    assert proved(RemotePacks(place(remote), own.folder), names, verify=[own.own]) == set()
    # Of true packs, chunks count that can be decoded with what is here.
    send(remote, own.own, [later])
    lacking = tmp_path / "lacking"
    added(Store(lacking), OTHERS)
    for folder in (own, Store(lacking)):
        found = proved(RemotePacks(place(remote), folder.folder), names, verify=[folder.own])
        assert found == set()
    send(remote, own.own, own.own.names)
    found = proved(RemotePacks(place(remote), own.folder), names, verify=[own.own])
    assert found == set(names)
