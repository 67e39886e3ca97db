"""Texts that were proved once: the file comes without a second proof, never a wrong byte."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors
from tests.store.chunks import added, damage, lie, packs, touch, trained, weights
from wtxtgit.cli.environment import facts_key
from wtxtgit.errors import TextError
from wtxtgit.filter.clean import clean_keeping
from wtxtgit.filter.content import ContentCache
from wtxtgit.filter.payload import keeping
from wtxtgit.filter.proved import ProvedTexts
from wtxtgit.filter.smudge import Smudged, smudge, smudge_into
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import NO_PAYLOAD
from wtxtgit.store.place import store_of
from wtxtgit.store.store import Store
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
def proved(here: Repository, home: Path) -> Iterator[ProvedTexts]:
    with closing(ProvedTexts(lambda: ContentCache(here, facts_key()))) as texts:
        yield texts


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
                payload=partial(fresh, here),
                proved=lambda: proved,
            )
        return path.read_bytes()

    return given if request.param == "given" else written


def fresh(here: Repository) -> Store:
    """The store as another process sees it."""
    return Store(store_of(here).folder)


def made(here: Repository, text: bytes, proved: ProvedTexts) -> Smudged:
    return smudge(memoryview(text), payload=partial(fresh, here), proved=lambda: proved)


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
    smudged: Smudging, here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    # As nobody but who has this user's secret can have it.
    lying = other_root(text)
    proved.put([lying])
    indexed = index(memoryview(lying), payload=fresh(here))
    proved.put_sound(memoryview(lying), indexed.payload.states(indexed.payload_names))
    assert smudged(lying, proved) == MODEL


def test_chunks_of_packs_that_nobody_touched_are_not_read_twice(
    here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    read = []

    class Watched(Store):
        def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
            read.extend(names)
            return super().read_all(names, size)

    def given() -> int:
        store, before = Watched(fresh(here).folder), len(read)
        assert joined(smudge(memoryview(text), payload=lambda: store, proved=lambda: proved)) == (
            MODEL
        )
        return len(read) - before

    proved.put([text])
    twice, once = given(), given()
    assert twice > once > 0
    proved.close()
    assert given() == once
    # What is looked at is when they were touched, and not what they hold.
    (pack,) = packs(fresh(here))
    touch(pack)
    assert (given(), given()) == (twice, once)


def test_a_damaged_chunk_leaves_the_text(
    smudged: Smudging, here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    assert smudged(text, proved) == MODEL
    (pack,) = packs(fresh(here))
    damage(pack, pack.stat().st_size // 3)
    assert smudged(text, proved) == text


def test_a_lost_pack_leaves_the_text(
    smudged: Smudging, here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    assert smudged(text, proved) == MODEL
    (pack,) = packs(fresh(here))
    pack.unlink()
    assert smudged(text, proved) == text


def test_a_lying_pack_leaves_the_text(
    smudged: Smudging, here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    proved.put([text])
    lie(fresh(here))
    assert smudged(text, proved) == text


def test_a_pack_that_holds_another_text_is_not_believed_for_this_one(
    here: Repository, text: bytes, proved: ProvedTexts
) -> None:
    one, other = sha256(b"one").digest(), sha256(b"other").digest()
    proved.put_sound(memoryview(text), [one])
    assert proved.are_sound(memoryview(text), [one])
    assert not proved.are_sound(memoryview(text), [one, other])
    assert not proved.are_sound(memoryview(text), [])
    assert not proved.are_sound(memoryview(other_root(text)), [one])


def test_no_chunk_that_changes_on_its_way_is_given(
    here: Repository, tmp_path: Path, text: bytes, proved: ProvedTexts
) -> None:
    class Changed(Store):
        """A store that another one takes the place of once that is there."""

        other: Store | None = None

        def read(self, name: bytes, size: int | None = None) -> ByteView:
            return (self.other or super()).read(name, size)

        def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
            return (self.other or super()).read_all(names, size)

    store = Changed(fresh(here).folder)
    for _ in range(2):
        smudged = smudge(memoryview(text), payload=lambda: store, proved=lambda: proved)
        assert joined(smudged) == MODEL
    given = bytearray()
    lie(fresh(here))
    store.other = fresh(here)

    def take() -> None:
        for piece in smudged.pieces():
            given.extend(piece)

    with pytest.raises(TextError, match="changed while it was read"):
        take()
    assert MODEL.startswith(bytes(given))
    # A file can be begun again.
    with (tmp_path / "written").open("w+b") as file:
        payload = partial(fresh, here)
        smudge_into(file.fileno(), memoryview(text), payload=payload, proved=lambda: proved)
    assert (tmp_path / "written").read_bytes() == text


@pytest.mark.parametrize("command", ["git", "wtxtgit"])
def test_what_an_add_touches_is_believed_for_what_it_compared_alone(
    repo: Repo, home: Path, driver: None, proved: ProvedTexts, command: str
) -> None:
    add = repo.git if command == "git" else repo.wtxtgit
    repo.write(".gitattributes", "*.safetensors filter=wtxt-detached -text\n")
    repo.write("a.safetensors", MODEL)
    add("add", "a.safetensors")
    first = repo.blob("a.safetensors")
    # A pack of the same names, of which no chunk is what its name says.
    lie(store_of(repo.repository))
    repo.write("a.safetensors", safetensors(*VALUES[:-1], 0.5))
    add("add", "a.safetensors")
    for text, is_sound in ((first, False), (repo.blob("a.safetensors"), True)):
        indexed = index(memoryview(text), payload=store_of(repo.repository))
        states = indexed.payload.states(indexed.payload_names)
        assert states
        assert proved.are_sound(memoryview(text), states) == is_sound
    assert joined(made(repo.repository, first, proved)) == first


def test_git_and_our_own_add_take_down_what_they_wrote(
    repo: Repo, home: Path, driver: None, proved: ProvedTexts
) -> None:
    repo.write(".gitattributes", "*.safetensors filter=wtxt-detached -text\n")
    # A second version needs what the first one is in, which another process wrote.
    for seconds, scale in ((1, 1), (2, 1.0001)):
        for name, values in (("a", VALUES), ("b", VALUES[1:])):
            file = f"{name}.safetensors"
            path = repo.write(file, safetensors(*(value * scale for value in values)))
            # Git has the filter read a file that is as young as the index, whatever it adds.
            os.utime(path, (seconds, seconds))
        repo.git("add", "a.safetensors")
        repo.wtxtgit("add", "b.safetensors")
    for name in ("a", "b"):
        text = repo.blob(f"{name}.safetensors")
        assert proved.holds(memoryview(text))
        indexed = index(memoryview(text), payload=store_of(repo.repository))
        # Its payload is in packs that this user wrote.
        states = indexed.payload.states(indexed.payload_names)
        assert len(states) == 2
        assert proved.are_sound(memoryview(text), states)


def test_a_proof_names_the_pack_that_small_ones_were_joined_to(
    repo: Repo, home: Path, driver: None, proved: ProvedTexts
) -> None:
    repo.write(".gitattributes", "*.safetensors filter=wtxt-detached -text\n")
    for name, values in (("a", VALUES), ("b", VALUES[::-1])):
        repo.write(f"{name}.safetensors", safetensors(*values))
    repo.git("add", ".")
    (_,) = packs(store_of(repo.repository))
    for name in ("a", "b"):
        text = repo.blob(f"{name}.safetensors")
        indexed = index(memoryview(text), payload=store_of(repo.repository))
        states = indexed.payload.states(indexed.payload_names)
        assert len(states) == 1
        assert proved.are_sound(memoryview(text), states)


class TestStates:
    """`Store.states`, which says whether anybody has touched packs."""

    def names(self, store: Store) -> list[bytes]:
        (pack,) = packs(store)
        opened = store.own.opened(pack.stem)
        assert opened is not None
        return [opened.index.name(row) for row in range(opened.index.count)]

    def test_the_state_is_another_one_once_a_pack_is_touched(
        self, here: Repository, text: bytes
    ) -> None:
        store = fresh(here)
        names = self.names(store)
        (pack,) = packs(store)
        states = store.states(names)
        assert len(states) == 1
        assert store.states([*names, sha256().digest()]) == set() == store.states([])
        status = pack.stat()
        content = pack.read_bytes()
        damage(pack, len(content) // 2)
        # Who damages it may put its times back.
        os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
        pack.chmod(status.st_mode)
        touched = Store(store.folder).states(names)
        assert touched
        assert not touched & states
        pack.unlink()
        assert Store(store.folder).states(names) == set()
        assert NO_PAYLOAD.states(names) == set()

    def test_a_base_in_another_pack(self, here: Repository, tmp_path: Path) -> None:
        store = Store(tmp_path / "store")
        first = weights(1)
        (base,) = added(store, first)
        (before,) = packs(store)
        (name,) = added(store, trained(first), before=first)
        (entry,) = [entry for _, entry in store.own.copies(name)]
        assert entry.bases == (base,)
        states = store.states([name])
        assert len(states) == 2
        damage(before, 100)
        assert len(Store(store.folder).states([name]) & states) == 1
