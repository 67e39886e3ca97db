"""Payload that goes to a folder of packs and comes from there, whatever happens on the way."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.kit.told import Told
from tests.remotes.places import NEW, OLD, holds, text
from tests.store.chunks import SIZE, added, damage, named, nbytes, weights
from tests.store.test_kills import killed
from wtxtgit.errors import RemoteRefused
from wtxtgit.io import temporary
from wtxtgit.io.workers import Workers
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import push as payload_push
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.place import LIST, TargetPacks
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.target import Outgoing
from wtxtgit.report.store import PayloadFetched, PayloadPushed
from wtxtgit.store import writer
from wtxtgit.store.store import Store


def place(folder: Path) -> TargetPacks:
    return TargetPacks(Folder(folder))


def pushed(store: Path, remote: Path, *texts: DetachedText) -> PayloadPushed:
    return push_payload(Store(store), place(remote), texts)


def fetched(store: Path, remote: Path, *texts: DetachedText) -> PayloadFetched:
    return fetch_payload(Store(store), lambda: [place(remote)], texts)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_PACK", 2 * SIZE)
    monkeypatch.setattr(temporary, "_UNNAMED", 0)


def test_what_was_sent_comes_elsewhere_and_once(tmp_path: Path, own: Path, there: Path) -> None:
    assert pushed(own, there, text(NEW)) == PayloadPushed(str(there))
    other = tmp_path / "other"
    first = fetched(other, there, text(NEW))
    assert (first.chunks, first.refused, first.lacking) == (6, (), ())
    assert holds(other, NEW)
    # What was decoded with others has these too.
    assert nbytes(Store(other)) <= nbytes(Store(own)) * 1.1
    assert fetched(other, there, text(NEW)) == PayloadFetched()


def test_a_version_takes_what_it_differs_by(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_push, "_LEAST", SIZE)
    remote, other = tmp_path / "there", tmp_path / "other"
    first = pushed(own, remote, text(OLD))
    assert fetched(other, remote, text(OLD)).nbytes == first.nbytes
    second = pushed(own, remote, text(NEW))
    assert (second.chunks, second.lacking) == (2, ())
    assert second.nbytes < first.nbytes / 4
    assert fetched(other, remote, text(NEW)).nbytes == second.nbytes
    assert holds(other, [*OLD, *NEW])


def test_a_version_alone_brings_what_it_is_decoded_with(tmp_path: Path, own: Path) -> None:
    remote, other = tmp_path / "there", tmp_path / "other"
    pushed(own, remote, text(NEW))
    fetched(other, remote, text(NEW))
    assert holds(other, NEW)


def test_how_much_is_sent_is_known_from_the_start(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_push, "_TOGETHER", SIZE)
    monkeypatch.setattr(payload_push, "_LEAST", SIZE)
    other = weights(4, seed=7)
    added(Store(own), other)
    pushed(own, tmp_path / "there", text(OLD[:2]))
    totals = []

    class Asked(Told):
        def __call__(self, count: int) -> None:
            totals.append(self.expected)
            super().__call__(count)

    told = Asked()
    texts = [text(chunks) for chunks in (OLD, NEW, other)]
    done = push_payload(Store(own), place(tmp_path / "there"), texts, told)
    assert len(done.packs) == 3
    assert set(totals) == {sum(told.counts)}
    # What is there already, or sent for another text, does not count.
    assert 0.95 * done.nbytes < sum(told.counts) < done.nbytes


def test_what_neither_has_is_told_and_holds_nothing_up(tmp_path: Path, own: Path) -> None:
    remote = tmp_path / "there"
    done = pushed(own, remote, text([*OLD, b"nowhere"], b"lost"), text(NEW))
    assert [(one.path, one.chunks) for one in done.lacking] == [(b"lost", 1)]
    done_there = fetched(tmp_path / "other", remote, text([*NEW, b"nowhere"], b"lost"))
    assert [(one.path, one.chunks) for one in done_there.lacking] == [(b"lost", 1)]
    assert holds(tmp_path / "other", NEW)


def test_a_damaged_chunk_is_not_sent(tmp_path: Path, own: Path) -> None:
    for pack in (own / "packs").iterdir():
        damage(pack, 40)
    done = pushed(own, tmp_path / "there", text(OLD), text(NEW))
    assert done.lacking
    assert not fetched(tmp_path / "other", tmp_path / "there", text(OLD)).refused


class TestTheListOfAFolder:
    """For readers that can't list."""

    def listed(self, there: Path) -> list[str]:
        return (there / "packs.txt").read_text().splitlines()

    def names(self, there: Path) -> list[str]:
        return sorted(path.stem for path in there.glob("*.pack"))

    def test_it_names_all_packs(self, own: Path, tmp_path: Path) -> None:
        there = tmp_path / "there"
        for chunks in (OLD, NEW):
            pushed(own, there, text(chunks))
            assert self.listed(there) == self.names(there)
        assert len(self.listed(there)) == 2

    def test_a_push_mends_what_a_killed_one_left(self, own: Path, there: Path) -> None:
        wanted = self.listed(there)
        (there / "packs.txt").unlink()
        assert not pushed(own, there, text(NEW)).packs
        assert self.listed(there) == wanted

    def test_another_one_wrote_meanwhile(
        self, own: Path, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A list that was made before another writer's pack was there does not stay."""
        added(Store(own), [b"z" * 5000])
        writing = Folder.put

        def slow(folder: Folder, files: Sequence[Outgoing], **options: bool) -> Sequence[str]:
            if files[0].name == LIST:
                monkeypatch.setattr(Folder, "put", writing)
                pushed(own, there, text([b"z" * 5000], b"x"))
            return writing(folder, files, **options)

        (there / LIST).unlink()
        monkeypatch.setattr(Folder, "put", slow)
        pushed(own, there, text(NEW))
        assert len(self.listed(there)) == 2
        assert self.listed(there) == self.names(there)

    def test_many_write_at_once(self, tmp_path: Path) -> None:
        there = tmp_path / "there"
        stores = [Store(tmp_path / f"own {number}") for number in range(4)]
        for number, store in enumerate(stores):
            added(store, weights(2, number))
        tasks = [
            partial(pushed, store.folder, there, text(weights(1, number)), text(weights(2, number)))
            for number, store in enumerate(stores)
        ]
        with Workers(tasks, 4) as done:
            assert not [one.lacking for one in done if one.lacking]
        assert self.listed(there) == self.names(there)

    def test_who_may_only_read_and_sends_nothing(
        self, own: Path, there: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_: object, **__: object) -> None:
            raise RemoteRefused("denied")

        monkeypatch.setattr(Folder, "put", refused)
        (there / LIST).unlink()
        assert not pushed(own, there, text(NEW)).lacking
        with pytest.raises(RemoteRefused):
            pushed(own, there.with_name("more"), text(NEW))


class TestARemoteThatLies:
    def refused(self, there: Path, tmp_path: Path) -> str:
        """Fetch, nothing of which is used; gives why."""
        other = tmp_path / "other"
        done = fetched(other, there, text(NEW))
        assert done.lacking
        assert done.refused
        store = Store(other)
        assert not store.has(map(named, NEW))
        assert not store.own.names
        assert not [name for name in files(other) if name.endswith(".pack")]
        return done.refused[0].why

    def test_a_changed_byte(self, there: Path, tmp_path: Path) -> None:
        (pack,) = there.glob("*.pack")
        damage(pack, 40)
        assert "SHA-256" in self.refused(there, tmp_path)

    def test_a_pack_that_ends_early(self, there: Path, tmp_path: Path) -> None:
        (pack,) = there.glob("*.pack")
        pack.write_bytes(pack.read_bytes()[:-1])
        assert " of " in self.refused(there, tmp_path)

    def test_a_pack_that_goes_on(self, there: Path, tmp_path: Path) -> None:
        (pack,) = there.glob("*.pack")
        pack.write_bytes(pack.read_bytes() + b"x")
        assert "not be fetched" in self.refused(there, tmp_path)

    def test_an_index_that_is_larger_than_any(
        self, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[str] = []
        get = Folder.get
        monkeypatch.setattr(Folder, "get", lambda *words: (read.append(words[1]), get(*words))[1])
        (index,) = there.glob("*.index")
        with index.open("r+b") as file:
            file.truncate(1 << 40)
        assert "not be fetched" in self.refused(there, tmp_path)
        assert not read

    def test_a_damaged_index(self, there: Path, tmp_path: Path) -> None:
        (index,) = there.glob("*.index")
        damage(index, 3)
        assert "index" in self.refused(there, tmp_path)

    def test_another_pack_in_its_place(self, own: Path, there: Path, tmp_path: Path) -> None:
        (pack,) = there.glob("*.pack")
        (index,) = there.glob("*.index")
        pushed(own, tmp_path / "more", text(OLD))
        (other,) = (tmp_path / "more").glob("*.pack")
        (other_index,) = (tmp_path / "more").glob("*.index")
        shutil.copy(other, pack)
        shutil.copy(other_index, index)
        done = fetched(tmp_path / "other", there, text(OLD))
        assert ("SHA-256" in done.refused[0].why, len(done.lacking)) == (True, 1)
        assert not Store(tmp_path / "other").own.names
        # Of parts each chunk is what it is asked for by.
        done = fetched(tmp_path / "third", there, text(OLD[:3]))
        assert holds(tmp_path / "third", OLD[:3])

    def test_an_index_of_another_pack(self, own: Path, there: Path, tmp_path: Path) -> None:
        extra = added(Store(own), [b"z" * 5000])
        pushed(own, tmp_path / "more", text(NEW), DetachedText.of(b"x", extra, 5000))
        (index,) = there.glob("*.index")
        (other,) = (tmp_path / "more").glob("*.index")
        shutil.copy(other, index)
        assert self.refused(there, tmp_path)

    def test_a_pack_that_is_gone(self, own: Path, there: Path, tmp_path: Path) -> None:
        (pack,) = there.glob("*.pack")
        pack.unlink()
        done = fetched(tmp_path / "other", there, text(NEW))
        assert done.lacking
        # Whoever has the chunks mends it.
        assert not pushed(own, there, text(NEW)).lacking
        assert not fetched(tmp_path / "other", there, text(NEW)).lacking

    def test_it_is_mended_when_the_remote_is(self, there: Path, tmp_path: Path) -> None:
        (pack,) = there.glob("*.pack")
        whole = pack.read_bytes()
        damage(pack, 40)
        self.refused(there, tmp_path)
        pack.write_bytes(whole)
        assert not fetched(tmp_path / "other", there, text(NEW)).lacking
        assert holds(tmp_path / "other", NEW)


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_pushing_is_killed(tmp_path: Path, own: Path) -> None:
    call, step, is_killed = 0, 3, True
    while is_killed:
        call += step
        remote = tmp_path / f"there {call}"
        is_killed = killed(partial(pushed, own, remote, text(OLD), text(NEW)), call)
        sent = {path.name for path in remote.glob("*.pack")}
        assert not pushed(own, remote, text(OLD), text(NEW)).lacking
        other = tmp_path / f"other {call}"
        assert not fetched(other, remote, text(OLD), text(NEW)).lacking
        assert holds(other, [*OLD, *NEW])
        assert sent <= {path.name for path in remote.glob("*.pack")}
        shutil.rmtree(other)
    assert call > 10


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_fetching_is_killed(tmp_path: Path, own: Path) -> None:
    remote = tmp_path / "there"
    assert len(pushed(own, remote, text(OLD), text(NEW)).packs) > 2
    total = sum(path.stat().st_size for path in remote.glob("*.pack"))
    call, step, is_killed = 0, 3, True
    while is_killed:
        call += step
        other = tmp_path / f"other {call}"
        is_killed = killed(partial(fetched, other, remote, text(OLD), text(NEW)), call)
        came = sum(path.stat().st_size for path in other.rglob("packs/*.pack"))
        done = fetched(other, remote, text(OLD), text(NEW))
        assert not done.lacking
        # What came whole does not come again.
        assert done.nbytes <= total - came
        assert holds(other, [*OLD, *NEW])
        shutil.rmtree(other)
    assert call > 10
