"""Targets: packs of payload, and the index of a store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.containers.zip_files import example
from tests.fuzz.guided.target import Target, refused
from tests.store.chunks import added, packs, trained, weights
from wtxtgit.errors import FormatError, PayloadError
from wtxtgit.store.folder import format_table, parse_table
from wtxtgit.store.pack import TRAILER_SIZE, parse_index
from wtxtgit.store.store import Store


def pack(data: bytes) -> bool:
    """Any file as a pack: what is read of it has the name that it was asked for by."""
    try:
        index = parse_index(memoryview(data))
    except FormatError as refusal:
        return refused(refusal)
    with TemporaryDirectory(prefix="wtxtgit-fuzz-") as folder:
        path = Path(folder, "packs", f"{sha256(data).hexdigest()}.pack")
        path.parent.mkdir()
        path.write_bytes(data)
        store = Store(Path(folder))
        names = [index.name(row) for row in range(index.count)]
        assert store.has(names) == set(names)
        taken = False
        for name in names:
            try:
                assert sha256(store.read(name)).digest() == name  # type: ignore[arg-type]
                taken = True
            except PayloadError as refusal:
                refused(refusal)
    return taken


def index(data: bytes) -> bool:
    """The index of a store: taken as it is spelled, or not at all."""
    try:
        table = parse_table(memoryview(data))
    except ValueError:
        return False
    assert b"".join(format_table(table)) == data
    for name in (bytes(32), b"\xff" * 32, bytes(table.names[:32])):
        if len(name) == 32:
            assert len(list(table.find(name))) <= table.count
    return True


@cache
def _seeds() -> tuple[list[bytes], list[bytes]]:
    """Packs, and indexes."""
    with TemporaryDirectory(prefix="wtxtgit-fuzz-") as folder:
        store = Store(Path(folder))
        old = [chunk[:512] for chunk in weights(2)]
        added(store, old)
        added(store, [*trained(old), b"some words"], before=[*old, b""])
        held = [path.read_bytes() for path in packs(store)]
        # Who added packs leaves the file `index` to the next who looks for some.
        assert len(Store(Path(folder)).own.names) == len(held)
        return [example("store.md"), *held], [(Path(folder) / "index").read_bytes()]


def pack_seeds() -> Iterator[bytes]:
    yield from _seeds()[0]


def index_seeds() -> Iterator[bytes]:
    yield from _seeds()[1]


def pack_mutant(data: bytes, chance: random.Random) -> bytes:
    """With other bytes, and an index whose hash holds all the same."""
    made = _touched(data, chance)
    end = len(made) - TRAILER_SIZE
    place = int.from_bytes(made[end : end + 8], "little")
    if end < 0 or place > end:
        return bytes(made)
    made[end + 24 : end + 56] = sha256(made[place : end + 24]).digest()
    return bytes(made)


def index_mutant(data: bytes, chance: random.Random) -> bytes:
    made = _touched(data, chance)[:-32]
    return bytes(made) + sha256(made).digest()


def _touched(data: bytes, chance: random.Random) -> bytearray:
    made = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        if made:
            # Half of them in the columns that stand behind the names.
            at = chance.randrange(len(made) // 2 if chance.random() < 0.5 else 0, len(made))
            made[at] = chance.choice((0, 1, 2, 3, 4, 8, 255, chance.randrange(256)))
    return made


TARGETS = {
    "payload-pack": Target(pack_seeds, pack, pack_mutant),
    "payload-index": Target(index_seeds, index, index_mutant),
}
