"""Who can write to a store, or damages it, puts no wrong byte into a file: only errors follow."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.kit import safetensors, text_of
from tests.text.naive_detached import detached
from wtxtgit.filter.smudge import smudge, smudge_into
from wtxtgit.store.pack import HEAD, STORED, ChunkEntry, format_end, index_of
from wtxtgit.store.store import Store

CHANCE = random.Random(11)  # noqa: S311 - the same in every run
VALUES = [CHANCE.gauss(0, 1) for _ in range(24_000)]
OLD, NEW = (safetensors(*VALUES, last) for last in (1.0, 2.0))
TEXT, PAYLOAD = detached(text_of(NEW))
CHUNKS = {bytes.fromhex(name): chunk for name, chunk in PAYLOAD.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two versions, the later one as what it differs by."""
    folder = tmp_path_factory.mktemp("made") / "store"
    for file, before in ((OLD, None), (NEW, OLD)):
        bases = [] if before is None else list(detached(text_of(before))[1])
        with Store(folder).writing() as writer:
            for n, (name, chunk) in enumerate(detached(text_of(file))[1].items()):
                base = bytes.fromhex(bases[n]) if bases else None
                writer.put(bytes.fromhex(name), memoryview(chunk), 4, base)
    return folder


def copy(made: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(made, to)
    for pack in (to / "packs").iterdir():
        pack.chmod(0o600)
    return to


class AllProved:
    """What knows every text as one that was proved before: chunks alone are checked."""

    def holds(self, text: object) -> bool:
        return True

    def put(self, text: object) -> None:
        pass

    def put_sound(self, text: object, states: object) -> None:
        pass


def results(store: Path, tmp_path: Path) -> Iterator[bytes]:
    """What each way of writing a file makes of the text."""
    here = Store(store)
    yield b"".join(smudge(memoryview(TEXT), threads=1, payload=lambda: here).pieces())
    for proved in (None, AllProved()):
        file = tmp_path / "file"
        with file.open("w+b") as opened:
            smudge_into(
                opened.fileno(),
                memoryview(TEXT),
                threads=1,
                payload=lambda: Store(store),
                proved=lambda proved=proved: proved,  # type: ignore[misc, return-value]
            )
        yield file.read_bytes()


def assert_nothing_wrong(store: Path, tmp_path: Path, *, may_hold: bool = True) -> None:
    for made in results(store, tmp_path):
        assert made == TEXT or (may_hold and made == NEW)


@pytest.mark.slow
def test_no_changed_byte_gets_into_a_file(made: Path, tmp_path: Path) -> None:
    store = copy(made, tmp_path / "store")
    held = Store(made).own
    for pack in sorted((store / "packs").iterdir()):
        content = pack.read_bytes()
        opened = held.opened(pack.stem)
        assert opened is not None
        index = opened.index
        rows = [index.entry(row) for row in range(index.count)]
        bounds = {0, 8, 12, len(HEAD), len(content) - 64, len(content) - 40, len(content) - 1}
        bounds |= {row.place + at for row in rows for at in (0, 1, row.length // 2)}
        end = max(row.place + row.length for row in rows)
        # The columns of the index, then names of bases.
        bounds |= {end + place for place in range(0, len(content) - end, 29)}
        for at in sorted(bounds):
            pack.write_bytes(content[:at] + bytes([content[at] ^ 0x11]) + content[at + 1 :])
            assert_nothing_wrong(store, tmp_path)
        for length in (0, 7, end, len(content) - 1):
            pack.write_bytes(content[:length])
            assert_nothing_wrong(store, tmp_path)
        pack.write_bytes(content)
    assert all(one == NEW for one in results(store, tmp_path))


def test_packs_under_each_other_s_names(made: Path, tmp_path: Path) -> None:
    store = copy(made, tmp_path / "store")
    one, two = sorted((store / "packs").iterdir())
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert_nothing_wrong(store, tmp_path)
    (store / "index").unlink(missing_ok=True)
    assert_nothing_wrong(store, tmp_path)


def claims(store: Path, contents: list[tuple[bytes, bytes, dict[str, object]]]) -> None:
    """A store of one pack, whose index calls other bytes by names that are wanted."""
    rows, place = [], len(HEAD)
    for name, data, other in contents:
        row = ChunkEntry(name, place, len(data), len(data), (), STORED, 1, 0)
        rows.append(row._replace(**other))  # type: ignore[arg-type]
        place += len(data)
    body = b"".join(data for _, data, _ in contents)
    content = HEAD + body + format_end(index_of(rows), place)
    path = store / "packs" / f"{sha256(content).hexdigest()}.pack"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_an_index_that_claims_other_chunks(tmp_path: Path) -> None:
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 1024 * 1024))
    for number, lie in enumerate((
        lambda name, chunk: (name, bytes(len(chunk)), {}),
        lambda name, chunk: (name, chunk[:-1] + b"!", {}),
        lambda name, chunk: (name, bomb, {"encoding": 1, "size": len(chunk)}),
        lambda name, chunk: (
            name, bomb, {"encoding": 3, "size": len(chunk), "bases": (name,), "depth": 1},
        ),
    )):  # fmt: skip
        store = tmp_path / f"store {number}"
        claims(store, [lie(name, chunk) for name, chunk in sorted(CHUNKS.items())])
        assert_nothing_wrong(store, tmp_path, may_hold=False)


def test_chunks_that_change_places(tmp_path: Path) -> None:
    """Whole chunks of the same text, under each other's names."""
    names = sorted(CHUNKS)
    swapped = [(name, CHUNKS[other], {}) for name, other in zip(names, names[::-1], strict=True)]
    claims(tmp_path / "store", swapped)  # type: ignore[arg-type]
    assert_nothing_wrong(tmp_path / "store", tmp_path, may_hold=False)
