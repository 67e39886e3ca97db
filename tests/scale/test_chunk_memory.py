"""Memory by the chunk: a file of any size goes through commands, as far as names have room.

Chunks are tiny here, and the limits of what is held at once low: so a file of few MiB has as many
of either as one of many GiB.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.git.histories import new_repo
from tests.kit import Repo
from tests.kit.changes import is_nightly
from wtxtgit.cli.environment import facts_key
from wtxtgit.filter import add as filter_add
from wtxtgit.filter import checkout as filter_checkout
from wtxtgit.filter import payload as filter_payload
from wtxtgit.filter.add import add, plan
from wtxtgit.filter.checkout import checkout
from wtxtgit.filter.content import ContentCache
from wtxtgit.filter.process import FilterSettings
from wtxtgit.filter.proved import ProvedTexts
from wtxtgit.filter.smudge import smudge
from wtxtgit.git.index import Wanted
from wtxtgit.git.repository import Repository
from wtxtgit.git.store import streams
from wtxtgit.io import pieces as joined_pieces
from wtxtgit.io import view
from wtxtgit.io.view import ByteView
from wtxtgit.model import array
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import detached_texts, place, remote_packs
from wtxtgit.remotes.payload.detached_texts import of_index
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.on_demand import FetchedPayload
from wtxtgit.remotes.payload.place import OutgoingPack, TargetPacks
from wtxtgit.store import check, pack, reading, writer
from wtxtgit.store import folder as pack_folder
from wtxtgit.store import store as store_module
from wtxtgit.store.check import check_store
from wtxtgit.store.pack import ChunkPack
from wtxtgit.store.place import store_of
from wtxtgit.store.store import Store
from wtxtgit.text import verify as text_verify
from wtxtgit.text import write
from wtxtgit.text.verify import verify

SIZE = 16
FEW, MANY = 3_000, 9_000
MOST = 96
"""Bytes that a chunk may take: 1.5 MiB for each GiB, in chunks of 64 KiB."""
NAME = 32
PATH = "model.npy"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of some bytes, and little of everything that is held whatever the size of a file."""
    monkeypatch.setattr(array, "TARGET_CHUNK", SIZE)
    array.default_rows.cache_clear()
    monkeypatch.setattr(array, "MOST_NAMES", 1000)
    for module in (array, store_module):
        monkeypatch.setattr(module, "FEW_NAMES", 1000)
    monkeypatch.setattr(pack_folder, "_MOST_KNOWN", 1000)
    monkeypatch.setattr(pack_folder, "_MERGED", 1000)
    monkeypatch.setattr(pack_folder, "_KEPT_OPEN", 2)
    monkeypatch.setattr(reading, "_MOST_HELD", 64 * 1024)
    monkeypatch.setattr(view, "_KEPT", 1)
    monkeypatch.setattr(streams, "pieces", partial(view.pieces, step=64 * 1024))
    monkeypatch.setattr(streams, "_READ", 64 * 1024)
    monkeypatch.setattr(joined_pieces, "_JOINED", 64 * 1024)
    monkeypatch.setattr(place, "_GROUP", 1)
    monkeypatch.setattr(pack, "_HEADS_AT_ONCE", 32 * 1024)
    monkeypatch.setattr(text_verify, "_JOB_BLOCKS", 16)
    monkeypatch.setattr(write, "RUN_TEXT", 16 * 1024)
    monkeypatch.setattr(check, "_BLOCK", 1000)
    for module in (filter_add, filter_checkout, filter_payload, detached_texts):
        monkeypatch.setattr(module, "LITTLE", 64 * 1024)
    monkeypatch.setattr(remote_packs, "_INDEXES_HELD", 4)
    # A read asks for room for the largest one.
    monkeypatch.setattr(remote_packs, "MAX_END", 1024 * 1024)
    monkeypatch.setattr(writer, "MOST_CHUNKS", 1000)
    monkeypatch.setattr(writer, "MAX_PACK", 1024 * 1024)
    yield
    array.default_rows.cache_clear()


def write_model(repo: Repo, count: int, seed: int = 1) -> None:
    """Write a matrix of so many chunks, each of which is one of its rows."""
    chance = np.random.default_rng(seed)
    np.save(repo.path / PATH, chance.integers(0, 256, (count, SIZE), np.uint8))


def peak_of(work: Callable[[], object]) -> int:
    """The most that Python's memory grows meanwhile, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def add_file(repo: Repo) -> None:
    found = repo.repository
    add(found, plan(found, Wanted([PATH])), warn=lambda *_: None, threads=1)


def added(repo: Repo, count: int) -> Repository:
    """A repository with the text of such a file; its payload is in many packs."""
    write_model(repo, count)
    add_file(repo)
    return repo.repository


def text_of(repo: Repo) -> ByteView:
    return memoryview(repo.blob(PATH))


def proved(repo: Repository) -> ProvedTexts:
    return ProvedTexts(lambda: ContentCache(repo, facts_key()))


def adding(repo: Repo, count: int) -> Callable[[], object]:
    write_model(repo, count)
    return partial(add_file, repo)


def adding_a_version(repo: Repo, count: int) -> Callable[[], object]:
    added(repo, count)
    write_model(repo, count, seed=2)
    return partial(add_file, repo)


def checking_out(repo: Repo, count: int) -> Callable[[], object]:
    found = added(repo, count)
    (repo.path / PATH).unlink()
    known = proved(found)
    settings = FilterSettings(
        threads=1, payload=lambda: FetchedPayload.of(found), proved=lambda: known
    )
    return lambda: checkout(found, [PATH], settings, lambda *_: None)


def smudging(repo: Repo, count: int, *, is_proved: bool) -> Callable[[], object]:
    found, text = added(repo, count), text_of(repo)
    source = FetchedPayload(found)

    def given() -> None:
        with closing(proved(found)) as known:
            made = smudge(
                text,
                threads=1,
                payload=lambda: source,
                proved=lambda: known if is_proved else None,
            )
            assert made.layout is not None
            assert sum(len(piece) for piece in made.pieces()) == (repo.path / PATH).stat().st_size

    return given


def verifying(repo: Repo, count: int) -> Callable[[], object]:
    store, text = store_of(added(repo, count)), text_of(repo)

    def checked() -> None:
        assert verify(text, threads=1, payload=Store(store.folder)).ok

    return checked


def checking_the_store(repo: Repo, count: int) -> Callable[[], object]:
    folder = store_of(added(repo, count)).folder

    def checked() -> None:
        assert check_store(Store(folder), threads=1).ok

    return checked


def fetching(repo: Repo, count: int) -> Callable[[], object]:
    own = store_of(added(repo, count)).own
    there = TargetPacks(Folder(repo.path.parent / "there"))
    there.put([OutgoingPack.of(ChunkPack(own.path(name))) for name in own.names])

    def fetched() -> None:
        texts = of_index(repo.repository, [PATH])
        fetched = fetch_payload(Store(repo.path.parent / "other"), lambda: [there], texts)
        assert fetched.chunks == count

    return fetched


BY_NIGHT = pytest.mark.skipif(not is_nightly(), reason="it takes long: it runs every night")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepared", "most"),
    [
        # The names of the version before are held as well.
        pytest.param(adding_a_version, MOST + NAME, id="add a version"),
        pytest.param(partial(smudging, is_proved=False), MOST, id="smudge"),
        pytest.param(fetching, MOST, id="fetch"),
        pytest.param(adding, MOST, id="add", marks=BY_NIGHT),
        pytest.param(checking_out, MOST, id="checkout", marks=BY_NIGHT),
        pytest.param(partial(smudging, is_proved=True), MOST, id="smudge, proved", marks=BY_NIGHT),
        pytest.param(verifying, MOST, id="verify", marks=BY_NIGHT),
        pytest.param(checking_the_store, MOST, id="store verify", marks=BY_NIGHT),
    ],
)
def test_a_chunk_takes_little_memory(
    prepared: Callable[[Repo, int], Callable[[], object]],
    most: int,
    home: Path,
    driver: None,
    tmp_path: Path,
) -> None:
    peaks = []
    # Before that, what is loaded once.
    for count in (FEW // 2, FEW, MANY):
        repo = new_repo(tmp_path / str(count) / "repo")
        repo.write(".gitattributes", "*.npy filter=wtxt-detached -text\n")
        peaks.append(peak_of(prepared(repo, count)))
    _, few, many = peaks
    assert (many - few) / (MANY - FEW) < most
