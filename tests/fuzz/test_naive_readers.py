"""What `verify` calls ok a second, naive reader reads as it was, notes or not.

Files of the original writers are damaged in one place. Where no check finds it, nothing that they
held may be out of reach, or be read as something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.containers.test_manifest import options_of
from tests.data import FIXTURES, all_entries, path_of, seeded
from tests.fuzz import naive, record_damage
from tests.kit.changes import share
from wtxtgit.containers import any_format
from wtxtgit.containers.tar_index import Tar
from wtxtgit.containers.taridx.check import check as check_index
from wtxtgit.containers.taridx.read import read as read_index
from wtxtgit.containers.taridx.shards import check_shards
from wtxtgit.errors import FormatError, InputError
from wtxtgit.model.tensor import ReadOptions

FORMATS = ("fold", "aero", "aeroset", "mlcp", "taridx")
PACKAGES = {"aeroset": "aero"}
QUICK = 60
"""Mutants of each format in each run."""
BATCHES, BATCH = 20, 500
FEWER = {"aeroset": 4}
"""Of sets fewer are tried: their files have mutants of their own."""


@dataclass(frozen=True)
class Whole:
    """A file of an original writer: how it is checked, and how it is read naively.

    `check` is whether there are no errors. `spans` is where damage goes.
    """

    path: str
    name: str
    data: bytes
    check: Callable[[bytes], bool]
    read: Callable[[bytes], naive.Reading]

    @property
    def spans(self) -> list[tuple[int, int]]:
        return record_damage.structure(self.name, self.data)


@cache
def wholes(name: str) -> tuple[Whole, ...]:
    """The files of a format that hold, all of them; never an empty table."""
    made = [
        one
        for entry in all_entries()
        if entry["format"].lower() == name and entry["valid"]
        for one in _WHOLES[name](entry)
    ]
    found = tuple(one for one in made if one.data and one.check(one.data))
    assert found
    return found


def _file(entry: dict[str, Any]) -> Iterator[Whole]:
    options = options_of(entry)
    name = entry["format"].lower()

    def check(data: bytes) -> bool:
        return not any_format.check(memoryview(data), options).errors

    def read(data: bytes) -> naive.Reading:
        if name == "fold":
            return naive.fold(data, options.decryption_key)
        return naive.aero(data) if name == "aero" else naive.mlcp(data)

    yield Whole(entry["file"], name, path_of(entry).read_bytes(), check, read)


def _set(entry: dict[str, Any]) -> Iterator[Whole]:
    """A set whose list is damaged, then each of its files."""
    listing = path_of(entry)
    files = {path.name: path.read_bytes() for path in listing.parent.glob("*.aero")}
    files[listing.name] = listing.read_bytes()
    for damaged in sorted(files):

        def check(data: bytes, damaged: str = damaged) -> bool:
            held = files | {damaged: data}

            def open_member(path: str) -> memoryview:
                if path not in held:
                    raise InputError("no such file")
                return memoryview(held[path])

            index = memoryview(held[listing.name])
            # What is no list of a set any more is nothing that verify calls ok.
            is_set = any_format.identify(index) == "aeroset"
            return is_set and not any_format.check(index, ReadOptions(), open_member).errors

        def read(data: bytes, damaged: str = damaged) -> naive.Reading:
            held = files | {damaged: data}
            return naive.aeroset(held[listing.name], held)

        kind = "aero" if damaged.endswith(".aero") else "aeroset"
        yield Whole(f"{entry['file']}: {damaged}", kind, files[damaged], check, read)


def _index(entry: dict[str, Any]) -> Iterator[Whole]:
    paths = [FIXTURES / shard["file"] for shard in entry["shards"]]
    tars = [path.read_bytes() for path in paths]
    shards = [Tar(path.name, memoryview(data)) for path, data in zip(paths, tars, strict=True)]

    def check(data: bytes) -> bool:
        try:
            index = read_index(memoryview(data))
        except FormatError:
            return False
        alone, together = check_index(index, ReadOptions()), check_shards(index, shards)
        return not alone.errors and not together.errors

    def read(data: bytes) -> naive.Reading:
        return naive.taridx(data, tars)

    yield Whole(entry["file"], "taridx", path_of(entry).read_bytes(), check, read)


_WHOLES: dict[str, Callable[[dict[str, Any]], Iterator[Whole]]] = {
    "fold": _file,
    "aero": _file,
    "aeroset": _set,
    "mlcp": _file,
    "taridx": _index,
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_naive_reader_reads_what_the_writers_wrote(name: str) -> None:
    readings = [naive.outcome(lambda one=one: one.read(one.data)) for one in wholes(name)]
    told = [reading for reading in readings if isinstance(reading, str)]
    # A file that its own writer's reader can't follow is none to hold others against.
    assert told == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_mutant_is_no_false_ok(name: str) -> None:
    check_mutants(name, "quick", QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch"),
    [
        (name, n)
        for name in FORMATS
        for n in range(share(PACKAGES.get(name, name), BATCHES // FEWER.get(name, 1)))
    ],
)
def test_many_mutants_are_no_false_ok(name: str, batch: int) -> None:
    check_mutants(name, str(batch), BATCH)


def check_mutants(name: str, batch: str, count: int) -> None:
    rng = seeded(f"no false ok, {name}, {batch}")
    read: dict[str, naive.Reading] = {}
    for number in range(count):
        whole = rng.choice(wholes(name))
        mutant = record_damage.damaged(whole.name, whole.data, whole.spans, rng)
        if not whole.check(mutant):
            continue
        if whole.path not in read:
            read[whole.path] = naive.outcome(lambda one=whole: one.read(one.data))
        got = naive.outcome(lambda one=whole, data=mutant: one.read(data))
        assert got == read[whole.path], f"mutant {number} of {name}, batch {batch}: {whole.path}"
