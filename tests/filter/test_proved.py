"""Texts that were proved once: the file comes without a second proof, never a wrong byte."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors
from tests.store.chunks import SIZE, added, damage, packs, trained, weights
from wtxtgit.cli.environment import facts_key
from wtxtgit.errors import TextError
from wtxtgit.filter.clean import clean_keeping
from wtxtgit.filter.content import ContentCache
from wtxtgit.filter.payload import keeping
from wtxtgit.filter.proved import ProvedTexts
from wtxtgit.filter.smudge import Smudged, smudge, smudge_into
from wtxtgit.git.repository import Repository
from wtxtgit.model.array import NO_PAYLOAD
from wtxtgit.store.encoding import Encoded
from wtxtgit.store.pack import STORED
from wtxtgit.store.place import store_of
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack
from wtxtgit.text.index import index

RANDOM = random.Random(1)  # noqa: S311 - the same in every run
VALUES = [RANDOM.gauss(0, 1) for _ in range(40_000)]
MODEL = safetensors(*VALUES)
Smudging = Callable[[bytes, ProvedTexts], bytes]


@pytest.fixture
def here(repo: Repo) -> Repository:
    return repo.repository


@pytest.fixture
def text(here: Repository) -> bytes:
    """The detached text of MODEL, whose payload is in the store."""
    writer = clean_keeping(memoryview(MODEL), partial(keeping, here)).writer
    assert writer is not None
    return b"".join(writer.stream())


@pytest.fixture
def proved(here: Repository, home: Path) -> ProvedTexts:
    return ProvedTexts(lambda: ContentCache(here, facts_key()), 0)


@pytest.fixture(params=["given", "written"])
def smudged(request: pytest.FixtureRequest, here: Repository, tmp_path: Path) -> Smudging:
    """What smudge gives of a text, to git's filter or into a file."""

    def given(text: bytes, proved: ProvedTexts) -> bytes:
        return joined(made(here, text, proved))

    def written(text: bytes, proved: ProvedTexts) -> bytes:
        path = tmp_path / "written"
        with path.open("w+b") as file:
            smudge_into(
                file.fileno(),
                memoryview(text),
                payload=partial(store_of, here),
                proved=lambda: proved,
            )
        return path.read_bytes()

    return given if request.param == "given" else written


def made(here: Repository, text: bytes, proved: ProvedTexts) -> Smudged:
    return smudge(memoryview(text), payload=partial(store_of, here), proved=lambda: proved)


def joined(smudged: Smudged) -> bytes:
    return b"".join(map(bytes, smudged.pieces()))


def other_root(text: bytes) -> bytes:
    """The same with another hash_all: all its chunks are what they say, and it lies."""
    at = text.index(b"sha256_all=") + 11
    return text[:at] + (b"1" if text[at : at + 1] == b"0" else b"0") + text[at + 1 :]


def test_a_proof_is_kept(smudged: Smudging, text: bytes, proved: ProvedTexts) -> None:
    assert not proved.holds(memoryview(text))
    assert smudged(text, proved) == MODEL
    proved.close()
    assert proved.holds(memoryview(text))
    assert smudged(text, proved) == MODEL


def test_what_does_not_hold_is_no_proof(
    smudged: Smudging, text: bytes, proved: ProvedTexts
) -> None:
    lying = other_root(text)
    assert smudged(lying, proved) == lying
    assert not proved.holds(memoryview(lying))


def test_what_was_proved_is_not_proved_again(
    smudged: Smudging, text: bytes, proved: ProvedTexts
) -> None:
    # As nobody but who has this user's secret can have it.
    lying = other_root(text)
    proved.put([lying])
    assert smudged(lying, proved) == MODEL


def test_packs_that_nobody_touched_are_not_read_twice(
    here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    read = []

    class Watched(Store):
        def is_sound(self, names: Sequence[bytes], most: int) -> bool:
            read.append(len(names))
            return super().is_sound(names, most)

    def given() -> bytes:
        store = Watched(store_of(here).folder)
        return joined(smudge(memoryview(text), payload=lambda: store, proved=lambda: proved))

    proved.put([text])
    assert (given(), len(read)) == (MODEL, 1)
    proved.close()
    assert (given(), len(read)) == (MODEL, 1)
    # What is looked at is when they were touched, and not what they hold.
    (pack,) = packs(store_of(here))
    pack.touch()
    assert (given(), len(read)) == (MODEL, 2)
    assert (given(), len(read)) == (MODEL, 2)


def test_a_damaged_chunk_leaves_the_text(
    smudged: Smudging, here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    assert smudged(text, proved) == MODEL
    (pack,) = packs(store_of(here))
    damage(pack, pack.stat().st_size // 3)
    assert smudged(text, proved) == text


def test_a_lost_pack_leaves_the_text(
    smudged: Smudging, here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    assert smudged(text, proved) == MODEL
    (pack,) = packs(store_of(here))
    pack.unlink()
    assert smudged(text, proved) == text


def lie(store: Store) -> None:
    """Put a pack in the place of the only one, whose chunks are not what it says they are."""
    (pack,) = packs(store)
    opened = store.own.opened(pack.stem)
    assert opened is not None
    made = NewPack(store.own)
    for row in range(opened.index.count):
        entry = opened.index.entry(row)
        made.add(
            entry.name, Encoded((bytes(entry.size),), STORED, 1, entry.size), entry.size, (), 0
        )
    made.finish()
    made.close()
    pack.unlink()


def test_no_chunk_of_a_lying_pack_is_given(
    here: Repository, tmp_path: Path, text: bytes, proved: ProvedTexts
) -> None:
    proved.put([text])
    lie(store_of(here))
    given = bytearray()

    def take() -> None:
        for piece in made(here, text, proved).pieces():
            given.extend(piece)

    with pytest.raises(TextError, match="changed while it was read"):
        take()
    assert MODEL.startswith(bytes(given))
    # A file can be begun again.
    with (tmp_path / "written").open("w+b") as file:
        payload = partial(store_of, here)
        smudge_into(file.fileno(), memoryview(text), payload=payload, proved=lambda: proved)
    assert (tmp_path / "written").read_bytes() == text


def test_git_and_our_own_add_take_down_what_they_wrote(
    repo: Repo, home: Path, driver: None, proved: ProvedTexts
) -> None:
    repo.write(".gitattributes", "*.safetensors filter=wtxt-detached -text\n")
    repo.write("a.safetensors", MODEL)
    repo.write("b.safetensors", safetensors(*VALUES[1:]))
    repo.git("add", ".gitattributes", "a.safetensors")
    repo.wtxtgit("add", "b.safetensors")
    # A second version needs what the first one is in, which another process wrote.
    for name, values in (("a", VALUES), ("b", VALUES[1:])):
        repo.write(f"{name}.safetensors", safetensors(*(value * 1.0001 for value in values)))
    repo.git("add", "a.safetensors")
    repo.wtxtgit("add", "b.safetensors")
    for name in ("a", "b"):
        text = repo.blob(f"{name}.safetensors")
        assert proved.holds(memoryview(text))
        indexed = index(memoryview(text), payload=store_of(repo.repository))
        # Its payload is as it was written.
        states = indexed.payload.states(indexed.payload_names)
        assert len(states) == 2
        assert proved.are_sound(states)


class TestSoundPacks:
    """`Store.is_sound`, which says that packs are as they were written."""

    def names(self, store: Store) -> list[bytes]:
        (pack,) = packs(store)
        opened = store.own.opened(pack.stem)
        assert opened is not None
        return [opened.index.name(row) for row in range(opened.index.count)]

    def test_packs_as_they_were_written(self, here: Repository, text: bytes) -> None:
        store = store_of(here)
        names = self.names(store)
        assert store.is_sound(names, 2 * len(MODEL))
        assert store.is_sound([], 0)
        assert not store.is_sound(names, 1000)
        assert not store.is_sound([*names, sha256().digest()], 2 * len(MODEL))
        assert NO_PAYLOAD.is_sound([], 0)
        assert not NO_PAYLOAD.is_sound(names, 2 * len(MODEL))

    def test_the_state_is_another_one_once_a_pack_is_touched(
        self, here: Repository, text: bytes
    ) -> None:
        store = store_of(here)
        names = self.names(store)
        (pack,) = packs(store)
        states = store.states(names)
        assert list(states.values()) == [pack.stat().st_mtime_ns]
        assert store.states([*names, sha256().digest()]) == {} == store.states([])
        status = pack.stat()
        content = pack.read_bytes()
        damage(pack, len(content) // 2)
        # Who damages it may put its times back.
        os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
        pack.chmod(status.st_mode)
        touched = Store(store.folder).states(names)
        assert touched
        assert not touched.keys() & states.keys()
        pack.unlink()
        assert Store(store.folder).states(names) == {}
        assert NO_PAYLOAD.states(names) == {}

    def test_a_base_in_another_pack(self, here: Repository, tmp_path: Path) -> None:
        store = Store(tmp_path / "store")
        first = weights(1)
        (base,) = added(store, first)
        (before,) = packs(store)
        (name,) = added(store, trained(first), before=first)
        (entry,) = [entry for _, entry in store.own.copies(name)]
        assert entry.bases == (base,)
        assert store.is_sound([name], 10 * SIZE)
        damage(before, 100)
        assert not Store(store.folder).is_sound([name], 10 * SIZE)
