"""What a fetch transfers of packs of which it needs some chunks: counted at the remote."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.remotes.places import NEW, OLD, holds, text
from tests.remotes.test_payload import files, pushed
from tests.store.chunks import SIZE, added, bf16, damage, named, trained, weights
from tests.store.test_kills import killed
from wtxtgit.io.view import Buffer
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import fetch as payload_fetch
from wtxtgit.remotes.payload import pack_parts
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.place import TargetPacks
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.target import Span
from wtxtgit.report.store import PayloadFetched
from wtxtgit.store.pack import MAX_DEPTH
from wtxtgit.store.store import Store


class Counting(TargetPacks):
    """A folder of packs that counts the bytes that it gives; with `is_whole` none but whole packs.

    `late` has it say so when a part is asked for, and not before.
    """

    def __init__(self, folder: Path, *, is_whole: bool = False, late: bool = False) -> None:
        super().__init__(Folder(folder))
        self._is_whole = is_whole
        self._late = late
        self.requests = 0
        self.given = 0

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for name, end in super().ends(names):
            self.given += len(end)
            yield name, end

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        for name, content in super().contents(sizes):
            self.given += sizes[name]
            yield name, content

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        if self._is_whole or (self._late and spans):
            return None
        self.requests += len(spans)
        self.given += sum(stop - start for start, stop in spans)
        return super().ranges(name, size, spans)


def fetch(store: Path, place: TargetPacks, chunks: Sequence[bytes]) -> PayloadFetched:
    return fetch_payload(Store(store), lambda: [place], [text(chunks)])


def needed(store: Path, chunks: Sequence[bytes]) -> int:
    """Bytes of chunks, as a store has them, and of what they are decoded with."""
    folder = Store(store).own
    least: dict[bytes, int] = {}
    lengths: dict[bytes, int] = {}
    todo = [(named(chunk), MAX_DEPTH) for chunk in chunks]
    while todo:
        name, most = todo.pop()
        if least.get(name, MAX_DEPTH + 1) > most:
            entry = next(entry for _, entry in folder.copies(name) if entry.depth <= most)
            least[name], lengths[name] = entry.depth, entry.length
            todo += [(base, entry.depth - 1) for base in entry.bases]
    return sum(lengths.values())


def with_rows_changed(count: int, share: float, versions: int) -> list[list[bytes]]:
    """Versions of chunks of 16 rows, of each of which that share of the rows is another."""
    chance = np.random.default_rng(1)
    rows = np.frombuffer(b"".join(weights(count)), np.float32).reshape(16 * count, -1).copy()
    found = []
    for _ in range(versions):
        content = rows.tobytes()
        found.append([content[at : at + SIZE] for at in range(0, len(content), SIZE)])
        chosen = chance.choice(len(rows), max(1, int(share * len(rows))), replace=False)
        rows[chosen] = 0.02 * chance.standard_normal((len(chosen), rows.shape[1]))
    return found


def in_chunks(values: Sequence[bytes]) -> list[bytes]:
    """Values as bf16, in chunks as large as those of a checkpoint."""
    return [b"".join(map(bf16, values[at : at + 8])) for at in range(0, len(values), 8)]


class TestBounds:
    @pytest.mark.slow
    def test_tuned_versions(self, tmp_path: Path) -> None:
        own, there = tmp_path / "own", tmp_path / "there"
        values = weights(256)
        versions = [in_chunks(values)]
        for number in range(9):
            values = trained(values, seed=number)
            versions.append(in_chunks(values))
        for number, version in enumerate(versions):
            before = [named(chunk) for chunk in versions[number - 1]] if number else []
            with Store(own).writing() as writer:
                for at in range(0, len(version), 16):
                    some = version[at : at + 16]
                    bases = before[at : at + 16] or [None] * len(some)
                    data = memoryview(b"".join(some))
                    writer.put_all(list(map(named, some)), data, len(some[0]), 2, bases)
            pushed(own, there, text(version))
        # A chunk takes the base that the others take: of no version only a part is needed.
        place = Counting(there, is_whole=True)
        assert not fetch(tmp_path / "fresh", place, versions[-1]).lacking
        assert place.given <= 1.1 * needed(own, versions[-1])

    @pytest.mark.slow
    @pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
    def test_ten_versions(self, tmp_path: Path, at_once: bool) -> None:
        versions = with_rows_changed(256, 0.01, 10)
        own, there = tmp_path / "own", tmp_path / "there"
        for number, version in enumerate(versions):
            added(Store(own), version, before=versions[number - 1] if number else ())
            if not at_once:
                pushed(own, there, text(version))
        if at_once:
            pushed(own, there, *map(text, versions))
        need = needed(own, versions[-1])
        # Whole packs alone is what a git remote gives.
        for is_whole in (False, True):
            place = Counting(there, is_whole=is_whole)
            assert not fetch(tmp_path / f"fresh {is_whole}", place, versions[-1]).lacking
            assert place.given <= 1.1 * need
            other = tmp_path / f"other {is_whole}"
            fetch(other, Counting(there, is_whole=is_whole), versions[0])
            place = Counting(there, is_whole=is_whole)
            assert not fetch(other, place, versions[1]).lacking
            assert holds(other, versions[1])
            assert place.given <= 0.02 * need

    def test_some_chunks_of_a_pack(self, tmp_path: Path, own: Path, there: Path) -> None:
        place = Counting(there)
        (end,) = there.glob("*.index")
        done = fetch(tmp_path / "other", place, NEW[1:3])
        assert (done.lacking, done.refused, len(done.packs)) == ((), (), 1)
        assert place.given - end.stat().st_size <= needed(own, NEW[1:3]) * 1.05
        assert place.given - end.stat().st_size == done.nbytes
        assert holds(tmp_path / "other", NEW[1:3])
        # What is here of it does not come again.
        before = place.given
        assert not fetch(tmp_path / "other", place, [*OLD, *NEW]).lacking
        assert holds(tmp_path / "other", [*OLD, *NEW])
        assert place.given - before < needed(own, [*OLD, *NEW]) - needed(own, NEW[1:3]) * 0.95

    def test_a_dry_run_tells_what_would_come(self, tmp_path: Path, there: Path) -> None:
        place = Counting(there)
        done = fetch_payload(
            Store(tmp_path / "other"), lambda: [place], [text(NEW[:1])], dry_run=True
        )
        assert done == fetch(tmp_path / "other", place, NEW[:1])


class TestParts:
    def test_little_gaps_come_with_what_is_around(self, tmp_path: Path) -> None:
        large = weights(120)
        small = [chunk[:100] for chunk in weights(3, seed=9)]
        chunks = [*large[:60], *small, *large[60:]]
        added(Store(tmp_path / "own"), chunks)
        pushed(tmp_path / "own", tmp_path / "there", text(chunks))
        place = Counting(tmp_path / "there")
        fetch(tmp_path / "other", place, large[:115])
        assert place.requests <= payload_fetch._AT_ONCE + 2
        assert holds(tmp_path / "other", large[:115])
        assert not Store(tmp_path / "other").has(map(named, small))
        place.requests = 0
        fetch(tmp_path / "third", place, large[::2])
        # Gaps as large as what is wanted do not.
        assert place.requests >= 55

    def test_a_chunk_of_any_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pack_parts, "_MOST_SPAN", 1000)
        chunks = weights(8)
        added(Store(tmp_path / "own"), chunks)
        pushed(tmp_path / "own", tmp_path / "there", text(chunks))
        place = Counting(tmp_path / "there")
        assert not fetch(tmp_path / "other", place, chunks[2:5]).lacking
        assert place.requests > 30
        assert holds(tmp_path / "other", chunks[2:5])

    def test_a_server_that_turns_out_to_give_none(self, tmp_path: Path, there: Path) -> None:
        assert not fetch(tmp_path / "other", Counting(there, late=True), NEW[:2]).lacking
        assert holds(tmp_path / "other", NEW[:2])

    def test_a_damaged_chunk_is_told_by_its_pack(self, tmp_path: Path, there: Path) -> None:
        (pack,) = there.glob("*.pack")
        damage(pack, 40)
        first = OLD[:1]
        done = fetch(tmp_path / "other", Counting(there), first)
        assert [one.pack for one in done.refused] == [pack.stem]
        assert done.lacking
        assert not [name for name in files(tmp_path / "other") if name.endswith(".pack")]
        # A chunk whose bytes are whole comes all the same.
        assert not fetch(tmp_path / "other", Counting(there), OLD[3:5]).lacking

    def test_another_copy_is_taken_where_one_is_damaged(
        self, tmp_path: Path, own: Path, there: Path
    ) -> None:
        (pack,) = there.glob("*.pack")
        other = tmp_path / "copies"
        pushed(own, other, text(OLD))
        for file in [*other.glob("*.pack"), *other.glob("*.index")]:
            file.rename(there / file.name)
        damage(pack, 40)
        done = fetch(tmp_path / "third", Counting(there), OLD[:1])
        assert (done.lacking, holds(tmp_path / "third", OLD[:1])) == ((), True)

    def test_a_pack_that_ends_early(self, tmp_path: Path, there: Path) -> None:
        (pack,) = there.glob("*.pack")
        pack.write_bytes(pack.read_bytes()[:2000])
        done = fetch(tmp_path / "other", Counting(there), OLD[3:4])
        assert [one.pack for one in done.refused] == [pack.stem]
        assert done.lacking


class TestWholePacks:
    """Of a remote that gives packs whole alone."""

    def test_of_chunks_whose_bases_nobody_wants_the_others_are_used(self, tmp_path: Path) -> None:
        store = Store(tmp_path / "own")
        added(store, OLD)
        later = [*trained(OLD[:3]), *weights(3, seed=5)]
        with store.writing() as writer:
            for chunk, base in zip(later, [*map(named, OLD[:3]), None, None, None], strict=True):
                writer.put(named(chunk), memoryview(chunk), 4, base)
        pushed(store.folder, tmp_path / "there", text(OLD))
        pushed(store.folder, tmp_path / "there", text(later))
        place = Counting(tmp_path / "there", is_whole=True)
        done = fetch(tmp_path / "other", place, later[3:])
        assert (done.lacking, done.refused, len(done.packs)) == ((), (), 1)
        assert holds(tmp_path / "other", later[3:])
        assert not Store(tmp_path / "other").has(map(named, OLD))
        assert not [name for name in files(tmp_path / "other/incoming") if name.endswith(".pack")]
        assert not fetch(tmp_path / "other", place, later).lacking
        assert holds(tmp_path / "other", later)

    def test_several_come_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(payload_fetch, "_LEAST_GROUP", 1)
        store = Store(tmp_path / "own")
        versions = [weights(2, seed=seed) for seed in range(4)]
        for version in versions:
            added(store, version)
            pushed(store.folder, tmp_path / "there", text(version))
        together = threading.Barrier(payload_fetch._AT_ONCE, timeout=20)

        class Meeting(Counting):
            def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
                together.wait()
                return super().contents(sizes)

        chunks = [chunk for version in versions for chunk in version]
        done = fetch(tmp_path / "other", Meeting(tmp_path / "there", is_whole=True), chunks)
        assert (done.lacking, len(done.packs)) == ((), 4)
        assert holds(tmp_path / "other", chunks)


def test_nobody_drops_chunks_while_packs_come(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    true = Path.rename
    moved = []

    def locked(path: Path, target: Path) -> Path:
        descriptor = os.open(other / "packs", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        moved.append(path)
        return true(path, target)

    monkeypatch.setattr(Path, "rename", locked)
    assert not fetch(other, Counting(there), NEW).lacking
    assert moved


@pytest.mark.slow
@pytest.mark.parametrize("is_whole", [False, True])
def test_fetching_some_is_killed(
    tmp_path: Path, own: Path, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_parts, "MOST_PART", 2 * SIZE)
    monkeypatch.setattr(payload_fetch, "MOST_PART", 2 * SIZE)
    monkeypatch.setattr(payload_fetch, "_LEAST_PART", SIZE)
    there = tmp_path / "there"
    extra = added(Store(own), [b"x" * 5000])
    pushed(own, there, text(OLD))
    push_payload(
        Store(own),
        TargetPacks(Folder(there)),
        [DetachedText.of(b"m.safetensors", [*map(named, NEW), *extra], sum(map(len, NEW)))],
    )
    wanted = [*OLD[:5], *NEW]
    alone = Counting(there, is_whole=is_whole)
    fetch(tmp_path / "alone", alone, wanted)
    call, step, is_killed = 0, 5, True
    while is_killed:
        call += step
        other = tmp_path / f"other {call}"
        place = Counting(there, is_whole=is_whole)
        is_killed = killed(partial(fetch, other, place, wanted), call)
        came = sum(
            entry.length
            for folder in (Store(other).own, Store(other / "incoming").own)
            for name in folder.names
            if (pack := folder.opened(name)) is not None
            for entry in map(pack.index.entry, range(pack.index.count))
        )
        assert not fetch(other, place, wanted).lacking
        # What came whole does not come again.
        assert place.given <= alone.given - came
        assert holds(other, wanted)
        assert not list((other / "incoming").rglob("*.pack"))
    assert call > 10
