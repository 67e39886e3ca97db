"""What a delta makes of its base is its target: random texts and edits, and real files."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.data import all_entries, fixture, golden
from tests.text.deltas import applied, made, side
from wtxtgit.containers import any_format
from wtxtgit.model.array import Meta, Snapshot, rows_for
from wtxtgit.tensors.program_arrays import snapshot_from
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.index import check
from wtxtgit.text.delta.patch import Regeneration, apply, make
from wtxtgit.text.delta.sides import DeltaSide, side_of_writer
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.verify import verify
from wtxtgit.text.write import TextWriter, dumps

pytestmark = pytest.mark.slow

Arrays = dict[str, NDArray[Any]]
DTYPES = ("f4", "i2", "u1", "f8", "<f2", "?")
NAMES = st.sampled_from(["R", "S", "W_base", "a", "a.b", "z"])


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 3)))
    return rng.integers(0, 2, shape).astype(dtype)


@st.composite
def edited(draw: st.DrawFn, before: Arrays) -> Arrays:
    after = dict(before)
    for name in sorted(before):
        array = before[name]
        match draw(st.sampled_from(["keep", "change", "remove", "reshape", "retype", "other"])):
            case "change" if array.size:
                array = array.copy()
                for at in draw(st.lists(st.integers(0, array.size - 1), max_size=3)):
                    array.reshape(-1)[at] = 1 - array.reshape(-1)[at].astype("i1")
                after[name] = array
            case "remove":
                del after[name]
            case "reshape":
                after[name] = array.reshape(-1)
            case "retype":
                after[name] = array.view("u1") if array.ndim and array.size else array
            case "other":
                after[name] = draw(arrays())
    if draw(st.booleans()):
        after[draw(NAMES)] = draw(arrays())
    return after


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    before: Arrays = draw(st.dictionaries(NAMES, arrays(), max_size=4))
    after = draw(edited(before))
    rows = draw(st.sampled_from([None, 1, 2, 4]))
    others = draw(st.sampled_from([rows, rows, None, 3]))
    audit = draw(st.sampled_from([None, "nan=0"]))
    base = snapshot_from(before, rows_per_chunk=rows)
    return base, snapshot_from(after, meta=Meta(gen=1), rows_per_chunk=others, audit=audit)


@given(pairs())
def test_the_target_comes_back(pair: tuple[Snapshot, Snapshot]) -> None:
    base, target = map(dumps, pair)
    delta = made(base, target)
    assert check(memoryview(delta)).ok
    assert applied(base, delta) == target
    assert made(base, applied(base, delta)) == delta


@given(pairs())
def test_what_is_not_written_down_gives_the_same_delta(pair: tuple[Snapshot, Snapshot]) -> None:
    base, target = (side_of_writer(TextWriter(one)) for one in pair)
    delta = b"".join(make(base, target).pieces())
    assert delta == made(*map(dumps, pair))
    applying = apply(base, memoryview(delta), check(memoryview(delta)).index, Regeneration())
    assert b"".join(sides.text_pieces(applying.side)) == dumps(pair[1])


@given(st.data())
def test_a_plain_delta_gives_the_same_arrays(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 40))
    before = {name: np.zeros(size, "u2") for name in ("R", "S")}
    after = {name: array.copy() for name, array in before.items()}
    for name in after:
        for at in data.draw(st.lists(st.integers(0, size - 1), max_size=3)):
            after[name][at] = 1
    base = dumps(snapshot_from(before, meta=Meta(gen=4), rows_per_chunk=3))
    root = side(base).root
    wanted = replace(
        snapshot_from(after, meta=Meta(gen=5, ts="2026-01-02T00:00:00Z"), rows_per_chunk=3),
        prev=root.merkle_this,
    )
    delta = made(base, dumps(wanted), plain=True)
    assert applied(base, delta, ts="2026-01-02T00:00:00Z") == dumps(wanted)


@given(pairs())
def test_what_applying_gives_verifies(pair: tuple[Snapshot, Snapshot]) -> None:
    base, target = map(dumps, pair)
    assert verify(memoryview(applied(base, made(base, target)))).ok


def side_of_file(path: str) -> DeltaSide:
    snapshot = snapshot_of(any_format.split(memoryview(fixture(path))))
    return side_of_writer(TextWriter(snapshot))


def check_files(before: str, after: str) -> bytes:
    """Make and apply a delta between two files; returns the delta."""
    base, target = side_of_file(before), side_of_file(after)
    delta = b"".join(make(base, target).pieces())
    report = check(memoryview(delta))
    assert report.ok
    done = apply(base, memoryview(delta), report.index, Regeneration())
    assert done.layout is not None
    assert b"".join(sides.file_pieces(done.side, done.layout)) == fixture(after)
    return delta


def paired() -> list[tuple[str, str]]:
    """The fixtures' pairs: two versions of a checkpoint."""
    versions: dict[str, dict[str, str]] = {}
    for entry in all_entries():
        if (pair := entry.get("pair")) is not None:
            versions.setdefault(pair["id"], {})[pair["version"]] = entry["file"]
    found = [(v["v1"], v["v2"]) for v in versions.values()]
    assert len(found) >= 9
    return found


@pytest.mark.parametrize(("before", "after"), paired())
def test_pairs_of_files_in_both_directions(before: str, after: str) -> None:
    assert len(check_files(before, after)) < 1.5 * len(fixture(after)) + 4096
    check_files(after, before)


def of_formats() -> list[tuple[str, str]]:
    """Each file with the next of its format; all formats are there."""
    by_format: dict[str, list[str]] = {}
    for path, record in golden().items():
        by_format.setdefault(record["format"], []).append(path)
    assert len(by_format) == 10
    found = [pair for paths in by_format.values() for pair in pairwise([*paths[:12], paths[0]])]
    assert len(found) >= 50
    return found


@pytest.mark.parametrize(("before", "after"), of_formats())
def test_any_file_on_any_other(before: str, after: str) -> None:
    check_files(before, after)


def test_a_file_of_one_format_on_one_of_another() -> None:
    check_files("plain/pair_v1.safetensors", "fold/pair_none_v2.fold")
    check_files("", "plain/pair_v1.safetensors")
    check_files("plain/pair_v1.safetensors", "")


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_rows_that_changed_are_the_chunks_it_carries(rows: int | None) -> None:
    rng = np.random.default_rng(7)
    weights = {"w": rng.standard_normal((2000, 64), "f4")}
    changed = {"w": weights["w"].copy()}
    changed["w"][[5, 6, 999, 1999]] += 1
    base = snapshot_from(weights, rows_per_chunk=rows)
    delta = made(dumps(base), dumps(snapshot_from(changed, rows_per_chunk=rows)))
    step = rows_for("f32", (2000, 64), rows).rows_per_chunk
    wanted = sorted({row // step for row in (5, 6, 999, 1999)})
    found = check(memoryview(delta)).index.changes
    assert [(c.name, [k.claim.ix for k in c.chunks]) for c in found] == [("w", wanted)]
