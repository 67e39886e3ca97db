"""Fetches of more chunks than are held at a time: in groups, in memory that is bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit import Repo
from tests.remotes.places import NEW, OLD, holds, pushed, text
from tests.remotes.test_fetched_parts import Counting, fetch
from tests.store.chunks import added, named, weights
from wtxtgit.git.repository import Repository
from wtxtgit.model import array
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import remote_packs
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.on_demand import FetchedPayload
from wtxtgit.remotes.payload.place import OutgoingPack, TargetPacks
from wtxtgit.store import folder as pack_folder
from wtxtgit.store.encoding import encode
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import ChunkPack
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

EXTRA = weights(3, seed=9)
MOST_BYTES = 300
"""Bytes that a chunk may take while and after it is fetched: its name three times, and where it is
at the remote and here."""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A remote with two packs, the second of which is decoded with the first."""
    own = tmp_path / "own"
    place = TargetPacks(Folder(tmp_path / "there"))
    added(Store(own), OLD)
    pushed(own, place, text(OLD))
    added(Store(own), NEW, before=OLD)
    added(Store(own), EXTRA)
    pushed(own, place, text([*NEW, *EXTRA]))
    return tmp_path / "there"


@pytest.mark.parametrize("is_whole", [True, False])
def test_one_group_after_the_other(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    chunks = [*NEW, *EXTRA]
    monkeypatch.setattr(array, "MOST_NAMES", 4)
    place = Counting(there, is_whole=is_whole)
    other = tmp_path / "other"
    foreseen = fetch_payload(Store(other), lambda: [place], [text(chunks)], dry_run=True)
    place.given = 0
    done = fetch(other, place, chunks)
    assert holds(other, chunks)
    assert (done.chunks, done.refused, done.lacking) == (len(chunks), (), ())
    assert (foreseen.chunks, foreseen.nbytes) == (done.chunks, done.nbytes)
    assert set(foreseen.packs) == set(done.packs)
    if is_whole:
        assert done.nbytes == sum(path.stat().st_size for path in there.glob("*.pack"))


def test_what_is_lacking_is_told_by_text(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array, "MOST_NAMES", 2)
    place = Counting(there)
    nowhere = weights(3, seed=11)
    texts = [text([*NEW, nowhere[0]], b"a"), text(EXTRA, b"b"), text([*nowhere, nowhere[0]], b"c")]
    done = fetch_payload(Store(tmp_path / "other"), lambda: [place], texts)
    assert [(one.path, one.chunks) for one in done.lacking] == [(b"a", 1), (b"c", 3)]
    assert done.chunks == len(NEW) + len(EXTRA)


def test_what_a_reader_wants_comes_in_groups(
    repo: Repo, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array, "MOST_NAMES", 2)
    repo.git("config", "wtxtgit.store", there.as_uri())
    payload = FetchedPayload.of(Repository.discover(repo.path))
    payload.want(map(named, [*NEW, *EXTRA, *weights(1, seed=11)]))
    assert holds(repo.path / ".git/wtxt/store", [*NEW, *EXTRA])
    assert payload.lacks is not None
    assert payload.lacks.startswith("1 chunk not at ")


def small_chunks(count: int) -> Sequence[bytes]:
    return [number.to_bytes(16, "big") for number in range(count)]


def peak_of_fetch(folder: Path, count: int) -> int:
    """The most bytes that are held while so many chunks come."""
    names = [named(chunk) for chunk in small_chunks(count)]
    making = PackFolder(folder / "made", is_own=False)
    making.make()
    packs = []
    for start in range(0, count, 50):
        pack = NewPack(making)
        for chunk in small_chunks(count)[start : start + 50]:
            pack.add(named(chunk), encode(memoryview(chunk), 1), len(chunk), (), 0)
        packs.append(OutgoingPack.of(ChunkPack(making.path(pack.finish()))))
        pack.close()
    place = TargetPacks(Folder(folder / "there"))
    place.put(packs)
    texts = [DetachedText.of(b"m", names, 16 * count)]
    del names, packs
    tracemalloc.start()
    try:
        done = fetch_payload(Store(folder / "store"), lambda: [place], texts)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        assert done.chunks == count


@pytest.mark.slow
def test_a_chunk_more_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array, "MOST_NAMES", 250)
    monkeypatch.setattr(pack_folder, "_MOST_KNOWN", 250)
    monkeypatch.setattr(pack_folder, "_MERGED", 250)
    monkeypatch.setattr(remote_packs, "_INDEXES_HELD", 4)
    # A read asks for room for the largest one.
    monkeypatch.setattr(remote_packs, "MAX_END", 64 * 1024)
    few, many = (peak_of_fetch(tmp_path / str(count), count) for count in (1500, 4500))
    assert (many - few) / 3000 < MOST_BYTES
