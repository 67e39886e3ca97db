"""What holds for every place of packs, as classes of tests with fixtures `place` and `behind`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest

from tests.kit.told import Told
from tests.remotes.servers import Fault, Front
from tests.store.chunks import added, named, trained, weights
from wtxtgit.errors import InputError, RemoteUnavailable
from wtxtgit.remotes import pace
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import push as payload_push
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.place import OutgoingPack, PackPlace, TargetPacks
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.report.store import PayloadFetched, PayloadPushed
from wtxtgit.store.pack import ChunkPack
from wtxtgit.store.store import Store

OLD = weights(6)
NEW = [*trained(OLD[:2]), *OLD[2:]]
NOBODYS = "00" * 32


class Behind(Protocol):
    """What a place holds, behind its back: files by the names that they have in a folder."""

    def read(self, file: str) -> bytes: ...

    def write(self, file: str, content: bytes) -> None: ...

    def drop(self, file: str) -> None: ...


def text(chunks: Sequence[bytes], path: bytes = b"m.safetensors") -> DetachedText:
    return DetachedText.of(path, map(named, chunks), sum(map(len, chunks)))


def pushed(store: Path, place: PackPlace, *texts: DetachedText) -> PayloadPushed:
    return push_payload(Store(store), place, texts)


def fetched(store: Path, place: PackPlace, *texts: DetachedText) -> PayloadFetched:
    return fetch_payload(Store(store), lambda: [place], texts)


def holds(store: Path, chunks: Sequence[bytes]) -> bool:
    there = Store(store)
    return [bytes(there.read(named(chunk))) for chunk in chunks] == list(chunks)


def three_packs(folder: Path) -> list[ChunkPack]:
    """The packs of a store, by their names."""
    store = Store(folder)
    for seed in (1, 2, 3):
        added(store, weights(1, seed))
    return [ChunkPack(store.own.path(name)) for name in sorted(store.own.names)]


class _Packs:
    """Of places that can be read from; `writer` is another one, where it can't be written to."""

    @pytest.fixture
    def writer(self, place: PackPlace) -> PackPlace:
        return place

    @pytest.fixture
    def packs(self, tmp_path: Path) -> list[ChunkPack]:
        return three_packs(tmp_path / "store")

    @pytest.fixture(autouse=True)
    def _a_pack_each(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each text gets packs of its own."""
        monkeypatch.setattr(payload_push, "_LEAST", 1)


class ReadingTests(_Packs):
    """Of places that can be read from; `writer` is another one, where it can't be written to."""

    gives_parts = True
    is_dear = False
    """Whether each fetch takes long."""

    def test_what_was_put_is_there(
        self, place: PackPlace, writer: PackPlace, packs: list[ChunkPack]
    ) -> None:
        names = [pack.path.stem for pack in packs]
        for _ in range(2):
            writer.put([OutgoingPack.of(pack) for pack in packs[:2]])
            writer.put([OutgoingPack.of(packs[2])])
            writer.settle()
        assert list(place.packs()) == names
        assert dict(place.ends(names)) == {pack.path.stem: pack.end for pack in packs}
        sizes = {pack.path.stem: pack.nbytes for pack in packs[1:]}
        came = {name: b"".join(map(bytes, blocks)) for name, blocks in place.contents(sizes)}
        assert came == {pack.path.stem: pack.path.read_bytes() for pack in packs[1:]}

    def test_parts(self, place: PackPlace, writer: PackPlace, packs: list[ChunkPack]) -> None:
        writer.put([OutgoingPack.of(packs[0])])
        writer.settle()
        assert len(place.packs()) == 1
        name, whole = packs[0].path.stem, packs[0].path.read_bytes()
        spans = [(len(whole) - 64, len(whole)), (16, 17), (16, 4096)]
        parts = place.ranges(name, len(whole), spans)
        assert (parts is not None) == self.gives_parts
        if parts is not None:
            assert list(map(bytes, parts)) == [whole[start:end] for start, end in spans]
            for gone, span in ((NOBODYS, (0, 1)), (name, (len(whole), len(whole) + 10))):
                with pytest.raises(InputError):
                    list(place.ranges(gone, len(whole), [span]) or ())

    def test_a_version_takes_what_it_differs_by(
        self, place: PackPlace, writer: PackPlace, own: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        first = pushed(own, writer, text(OLD))
        assert fetched(other, place, text(OLD)).nbytes <= first.nbytes
        second = pushed(own, writer, text(NEW))
        assert (second.chunks, second.lacking) == (2, ())
        assert pushed(own, writer, text(NEW)).packs == ()
        came = fetched(other, place, text(NEW))
        assert (came.packs, came.lacking, came.refused) == (second.packs, (), ())
        assert came.nbytes <= second.nbytes < first.nbytes / 4
        assert holds(other, [*OLD, *NEW])

    def test_packs_that_are_not_what_they_should_be(
        self, place: PackPlace, writer: PackPlace, behind: Behind, own: Path, tmp_path: Path
    ) -> None:
        (one,), (two,) = (pushed(own, writer, text(chunks)).packs for chunks in (OLD, NEW))
        files = (f"{one}.pack", f"{two}.pack")
        whole, other_pack = map(behind.read, files)
        lies = (whole[:40] + b"!" + whole[41:], other_pack, whole[:-1], whole + b"x")
        for lie in lies[:1] if self.is_dear else lies:
            behind.write(files[0], lie)
            other = tmp_path / "other"
            done = fetched(other, place, text(OLD), text(NEW))
            assert one in [pack.pack for pack in done.refused]
            assert done.lacking
            assert not Store(other).has(map(named, OLD))
        behind.write(files[0], whole)
        assert not fetched(other, place, text(OLD), text(NEW)).lacking
        assert holds(other, [*OLD, *NEW])

    def test_what_came_whole_does_not_come_again(
        self, place: PackPlace, writer: PackPlace, behind: Behind, own: Path, tmp_path: Path
    ) -> None:
        first, second = (pushed(own, writer, text(chunks)) for chunks in (OLD, NEW))
        (two,) = second.packs
        content = behind.read(f"{two}.pack")
        behind.write(f"{two}.pack", content[:-1])
        other = tmp_path / "other"
        done = fetched(other, place, text(OLD), text(NEW))
        assert (done.packs, [pack.pack for pack in done.refused]) == (first.packs, [two])
        behind.write(f"{two}.pack", content)
        done = fetched(other, place, text(OLD), text(NEW))
        assert (done.packs, done.lacking) == (second.packs, ())
        assert holds(other, NEW)

    def test_a_pack_that_is_gone(
        self, place: PackPlace, writer: PackPlace, behind: Behind, own: Path, tmp_path: Path
    ) -> None:
        (one,) = pushed(own, writer, text(OLD)).packs
        behind.drop(f"{one}.pack")
        assert fetched(tmp_path / "other", place, text(OLD)).lacking
        # Whoever has the chunks mends it.
        assert pushed(own, writer, text(OLD)).packs == (one,)
        assert not fetched(tmp_path / "other", place, text(OLD)).lacking


class PlaceTests(ReadingTests):
    """Of places that packs are sent to as well."""

    tells_times = False
    tells_bytes = False
    """Whether it is known while a pack is sent how much of it was."""

    def test_what_is_sent_is_told(self, place: PackPlace, tmp_path: Path) -> None:
        store, told = Store(tmp_path / "store"), Told()
        chunks = weights(256)
        added(store, chunks)
        done = push_payload(store, place, [text(chunks)], told)
        # Without the packs' indexes.
        assert sum(told.counts) == told.expected
        assert 0.98 * done.nbytes < told.expected < done.nbytes
        assert told.files == 0
        if self.tells_bytes:
            assert max(told.counts) < done.nbytes // 2

    def test_what_is_taken_away(self, place: PackPlace, packs: list[ChunkPack]) -> None:
        names = [pack.path.stem for pack in packs]
        assert (list(place.packs()), list(place.parts())) == ([], [])
        place.put([OutgoingPack.of(pack) for pack in packs])
        assert list(place.packs()) == names
        times = place.times([*names, NOBODYS])
        assert list(times) == names
        for told in times.values():
            assert (told is not None) == self.tells_times
            assert told is None or abs(told - time.time()) < 600
        place.remove([names[0], names[2], NOBODYS])
        assert list(place.packs()) == [names[1]]
        assert list(place.parts()) == []
        assert dict(place.ends([names[1]])) == {names[1]: packs[1].end}
        # What was taken away may come again.
        place.put([OutgoingPack.of(packs[0])])
        assert list(place.packs()) == names[:2]

    def test_marks(self, place: PackPlace, packs: list[ChunkPack]) -> None:
        names = [pack.path.stem for pack in packs]
        place.put([OutgoingPack.of(pack) for pack in packs])
        place.packs()
        assert list(place.marked()) == []
        for _ in range(2):
            place.mark(names[:2])
        assert list(place.packs()) == names
        assert list(place.marked()) == names[:2]
        assert list(place.times(names)) == names
        # The mark outlives its pack.
        place.remove(names[:1])
        assert list(place.packs()) == names[1:]
        assert list(place.marked()) == names[:2]
        assert list(place.parts()) == []
        place.forget([names[0], NOBODYS])
        place.packs()
        assert list(place.marked()) == names[1:2]

    def test_a_push_sends_again_what_is_marked_or_vanishes(
        self, place: PackPlace, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (one,) = pushed(own, place, text(OLD)).packs
        place.mark([one])
        (two,) = pushed(own, place, text(OLD)).packs
        assert two != one
        assert pushed(own, place, text(OLD)).packs == ()
        # Somebody removes what it relies on while it is at work.
        listed, looks = place.packs, iter((None, two))

        def packs() -> Sequence[str]:
            if gone := next(looks, None):
                place.remove([gone])
            return listed()

        monkeypatch.setattr(place, "packs", packs)
        (three,) = pushed(own, place, text(OLD)).packs
        assert three not in (one, two)
        place.remove([one])
        assert not fetched(tmp_path / "other", place, text(OLD)).lacking


class FileTests(PlaceTests):
    """Of places where a pack is two files, of which one may be gone."""

    def test_packs_that_are_there_in_part(
        self, place: PackPlace, behind: Behind, packs: list[ChunkPack]
    ) -> None:
        names = [pack.path.stem for pack in packs]
        place.put([OutgoingPack.of(pack) for pack in packs])
        behind.drop(f"{names[0]}.index")
        assert list(place.packs()) == names[1:]
        assert list(place.parts()) == names[:1]
        assert list(place.times(names)) == names
        # Of the last one somebody else takes a part away at the same time.
        behind.drop(f"{names[2]}.pack")
        place.remove([names[0], names[2], NOBODYS])
        assert list(place.packs()) == [names[1]]
        assert list(place.parts()) == []


class FaultTests(_Packs):
    """Of places at a server that `front` stands before."""

    def fails(
        self, failing: Fault, place: PackPlace, writer: PackPlace, front: Front, own: Path
    ) -> None:
        """Have the second of two packs fail, as often as it is asked for, and then no more."""
        one, two = (pushed(own, writer, text(chunks)).packs[0] for chunks in (OLD, NEW))
        other = own.parent / "other"
        fetched(other, place, text(OLD))
        failing.path = rf"(sha256:{two}|{two}\.pack)$"
        failing.stays = True
        front.faults.append(failing)
        with pytest.raises(RemoteUnavailable, match=None if failing.hangs else two) as raised:
            fetched(other, place, text(NEW))
        assert "\n" not in raised.value.message
        front.faults.clear()
        front.asked.clear()
        assert not fetched(other, place, text(NEW)).lacking
        assert holds(other, [*OLD, *NEW])
        # What came whole does not come again.
        assert not [line for line in front.asked if one in line and not line.endswith(".index")]

    def test_a_server_that_is_busy(
        self, place: PackPlace, writer: PackPlace, front: Front, own: Path
    ) -> None:
        self.fails(Fault(status=503), place, writer, front, own)

    def test_a_server_that_breaks_off(
        self, place: PackPlace, writer: PackPlace, front: Front, own: Path
    ) -> None:
        self.fails(Fault(bytes_given=100), place, writer, front, own)


class PushFaultTests(_Packs):
    """Of such places that packs are sent to."""

    def test_a_push_that_fails_is_taken_up(
        self, place: PackPlace, front: Front, own: Path, tmp_path: Path
    ) -> None:
        trial = TargetPacks(Folder(tmp_path / "trial"))
        one, two = pushed(own, trial, text(OLD), text(NEW)).packs
        front.faults.append(
            Fault(rf"(manifests/{two}|{two}\.pack)$", status=503, stays=True, command="PUT")
        )
        with pytest.raises(RemoteUnavailable):
            pushed(own, place, text(OLD), text(NEW))
        assert list(place.packs()) == [one]
        front.faults.clear()
        front.asked.clear()
        assert pushed(own, place, text(OLD), text(NEW)).packs == (two,)
        assert not [line for line in front.asked if line.startswith("PUT ") and one in line]
        assert not fetched(tmp_path / "other", place, text(OLD), text(NEW)).lacking


class SilenceTests(FaultTests):
    """Of those that this process itself waits for, and not another package."""

    def test_a_server_that_says_nothing(
        self,
        place: PackPlace,
        writer: PackPlace,
        front: Front,
        own: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(pace, "SILENCE", 0.2)
        self.fails(Fault(hangs=True), place, writer, front, own)
