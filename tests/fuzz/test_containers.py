"""Mutants of every container format: read in every way, within bounds, never lost.

Some hundreds of each format in each run, 20,000 in the slow ones if it changed, 2,000 otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from tests.data import FIXTURES, seeded
from tests.fuzz.container_oracle import KEYED, KINDS, Members, Oracle, check_findings, check_refusal
from tests.fuzz.mutations import bytes_mutant
from tests.fuzz.numbers import number_mutant
from tests.fuzz.seeds import FORMATS, legacy, seeds, sets
from tests.fuzz.structure import STRUCTURED, container_mutant
from tests.kit.changes import is_nightly, share
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.fold.read import Fold
from wtxtgit.containers.fold.repack import repair
from wtxtgit.containers.format import Container
from wtxtgit.containers.tar_index import Tar
from wtxtgit.containers.taridx.read import Taridx
from wtxtgit.containers.taridx.shards import check_shards, find, find_in_shards
from wtxtgit.errors import FormatError

SETS = ("aeroset", "safetensors-index", "gguf-split", "torch-distributed", "sharded-mlcp")
GROUPS = (*FORMATS, "legacy", *SETS)
PACKAGES = {
    "legacy": "torch",
    "aeroset": "aero",
    "safetensors-index": "safetensors",
    "gguf-split": "gguf",
    "torch-distributed": "torch",
    "sharded-mlcp": "mlcp",
}
"""The package of a group that has not its name."""
MEMBERS = {
    "aeroset": "aero",
    "safetensors-index": "safetensors",
    "gguf-split": "gguf",
    "torch-distributed": "torch",
    "sharded-mlcp": "mlcp-shard",
}
"""The format of a set's files."""
FEWER = dict.fromkeys(SETS, 4)
"""Of sets fewer are tried: what their files are made of has mutants of its own."""
QUICK = 200
BATCHES = 20
BATCH = 1000
MEASURED = 50 if is_nightly() else 200
"""Of so many mutants the memory of one is measured, which takes long."""
READ_AGAIN = 20
"""Of so many mutants two are read anew by each who reads them, with and without a key."""
TARS = 100

Mutant = tuple[bytes, Members | None]


def batches(groups: Iterable[str], count: int) -> list[tuple[str, int]]:
    """Numbers of batches of each group, as many as what changed asks for."""
    return [
        (group, batch)
        for group in groups
        for batch in range(share(PACKAGES.get(group, group), count // FEWER.get(group, 1)))
    ]


def test_every_format_is_mutated_often_enough() -> None:
    known = {*(f.name for f in registry.FORMATS), *registry.set_names()}
    assert set(GROUPS) >= set(STRUCTURED) | known
    assert BATCHES * BATCH >= 20_000
    for group in FORMATS:
        assert sum(len(seed) <= 8192 for seed in seeds(group)) >= 5


@pytest.mark.parametrize("group", GROUPS)
def test_a_mutant_is_read_within_bounds(group: str) -> None:
    check_mutants(group, "quick", QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(("group", "batch"), batches(GROUPS, BATCHES))
def test_many_mutants_are_read_within_bounds(group: str, batch: int) -> None:
    check_mutants(group, str(batch), BATCH)


@pytest.mark.parametrize("group", sorted(f.name for f in registry.FORMATS if f.repack))
def test_a_mutant_is_rewritten_or_refused(group: str) -> None:
    check_rewriting(group, "quick", QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "batch"), batches(sorted(f.name for f in registry.FORMATS if f.repack), 5)
)
def test_many_mutants_are_rewritten_or_refused(group: str, batch: int) -> None:
    check_rewriting(group, str(batch), BATCH)


def test_a_mutant_of_an_index_or_a_tar_is_checked_without_a_surprise() -> None:
    check_tars("quick", TARS)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(share("taridx", 5)))
def test_many_mutants_of_indexes_and_tars_are_checked_without_a_surprise(batch: int) -> None:
    check_tars(str(batch), BATCH)


def check_mutants(group: str, batch: str, count: int) -> None:
    oracles = Oracle(), Oracle(KEYED)
    for number, (data, members) in enumerate(mutants(group, batch, count)):
        try:
            if number % MEASURED:
                oracles[number % 2].hold(data, members, once=number % READ_AGAIN >= 2)
            else:
                Oracle().hold_in_memory(data, members)
        except BaseException as error:
            error.add_note(f"mutant {number} of {group}, batch {batch}")
            raise


def check_rewriting(group: str, batch: str, count: int) -> None:
    """A file is repacked and mended, or refused; what was made of a good one is good."""
    for number, (data, _) in enumerate(mutants(group, f"rewritten {batch}", count)):
        view = memoryview(data)
        if registry.detect(view) != group:
            continue
        try:
            container = any_format.read(view)
        except FormatError:
            continue
        try:
            rewrite(group, container, view)
        except BaseException as error:
            error.add_note(f"mutant {number} of {group}, batch rewritten {batch}")
            raise


def rewrite(group: str, container: Container, data: memoryview) -> None:
    known = registry.by_name(group)
    assert known is not None
    assert known.repack is not None
    repack = known.repack().repack
    holds = not any_format.check(data, KEYED).errors
    held = tensors_of(data) if holds else []
    for compression in ("none", "zstd"):
        try:
            made = memoryview(b"".join(repack(container, compression, KEYED)))
        except FormatError as refusal:
            check_refusal(refusal, KINDS)
            continue
        if holds:
            assert not any_format.check(made, KEYED).errors
            assert tensors_of(made) == held
    if isinstance(container, Fold):
        pieces, mended, lost = repair(data, KEYED)
        assert len(b"".join(pieces)) == len(data)
        assert len(mended) + len(lost) <= len(container.chunks)


def tensors_of(data: memoryview) -> list[tuple[object, ...]]:
    listed = any_format.tensors(any_format.describe(data, KEYED), KEYED)
    return [(t.name, t.dtype, t.shape, t.strides, t.absent is None, bytes(t.data)) for t in listed]


def check_tars(batch: str, count: int) -> None:
    rng = seeded(f"tars {batch}")
    for number in range(count):
        index, tars, name = rng.choice(folders())
        if rng.random() < 0.5:
            index = container_mutant("taridx", (index,), rng)
        else:
            place = rng.randrange(len(tars))
            changed = tar_mutant(tars[place], rng)
            tars = (*tars[:place], changed, *tars[place + 1 :])
        try:
            container = any_format.read(memoryview(index))
        except FormatError:
            continue
        shards = [Tar(f"t_{n}.tar", memoryview(tar)) for n, tar in enumerate(tars)]
        try:
            hold_with_tars(container, shards, name)
        except BaseException as error:
            error.add_note(f"mutant {number} of tars, batch {batch}")
            raise


def hold_with_tars(container: Container, shards: list[Tar], name: str) -> None:
    assert isinstance(container, Taridx)
    check_findings(check_shards(container, shards), is_set=True)
    try:
        places = find(container, name)
    except FormatError as refusal:
        check_refusal(refusal)
        return
    for found in find_in_shards(container, places, name, shards):
        assert isinstance(found.data, memoryview)


@cache
def folders() -> tuple[tuple[bytes, tuple[bytes, ...], str], ...]:
    """Indexes with their tars, and the name of a member."""
    found = []
    for path in sorted(FIXTURES.glob("taridx/*/train.taridx")):
        tars = tuple(tar.read_bytes() for tar in sorted(path.parent.glob("train_*.tar")))
        if sum(map(len, tars)) <= 24_000:
            found.append((path.read_bytes(), tars, tars[0][:100].rstrip(b"\0").decode()))
    assert len(found) > 5
    return tuple(found)


def tar_mutant(tar: bytes, rng: random.Random) -> bytes:
    """A tar with a header changed, its checksum made right mostly; or any bytes of it."""
    if rng.random() < 0.3:
        return bytes_mutant(tar, rng)
    blocks = [at for at in range(0, len(tar), 512) if tar[at + 257 : at + 262] == b"ustar"]
    if not blocks:
        return number_mutant(tar[:512], rng) + tar[512:]
    at = rng.choice(blocks)
    block = bytearray(tar[at : at + 512])
    start, end = rng.choice(((0, 100), (124, 136), (124, 136), (156, 157), (257, 265), (345, 500)))
    if start == 124:
        sizes = (b"00000000000\0", b"77777777777\0", b"00000001000\0", b"\x80" + b"\xff" * 11)
        sizes += (b"\xff" * 12, b"-0000000001\0", b"0000000000x\0", b"\x80" + bytes(10) + b"\1")
        block[start:end] = rng.choice(sizes)
    elif start == 156:
        block[start] = rng.choice(b"0157xgLKSVD\0\xff")
    else:
        block[start:end] = rng.randbytes(end - start)
    if rng.random() < 0.9:
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return tar[:at] + bytes(block) + tar[at + 512 :]


def mutants(group: str, batch: str, count: int) -> Iterator[Mutant]:
    """Mutants of a format, or of a set; the same of a batch each time."""
    rng = seeded(f"{group} {batch}")
    for _ in range(count):
        if group in MEMBERS:
            yield set_mutant(group, rng)
        else:
            yield (
                container_mutant(group, legacy() if group == "legacy" else seeds(group), rng),
                None,
            )


def set_mutant(group: str, rng: random.Random) -> Mutant:
    """A set with its index changed, or one of its files, or both; or a file gone."""
    index, members = rng.choice(sets()[group])
    made = dict(members)
    kind = rng.randrange(10)
    if kind < 7:
        index = container_mutant(group, (index,), rng)
    if kind in (6, 7, 8):
        path = rng.choice(sorted(made))
        made[path] = container_mutant(MEMBERS[group], (made[path],), rng)
    elif kind == 9:
        one, two = rng.choice(sorted(made)), rng.choice(sorted(made))
        made[one], made[two] = made[two], made[one]
        if rng.random() < 0.5:
            del made[one]
    return index, made
