"""Merges by tensor and row, through git: what both sides did is in a file that holds."""

from __future__ import annotations

import io
import json
import re
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.e2e.conftest import assert_clean, version
from tests.e2e.merging import (
    WAYS,
    Sides,
    assert_merged,
    bring,
    diverge,
    file_of,
    held,
    open_names,
    resolve,
    unmerged,
)
from tests.e2e.sealed import Sealed
from tests.e2e.weights import (
    CHUNK,
    FOLD,
    FOLD_ZSTD,
    KINDS,
    SAFETENSORS,
    Kind,
    Model,
    Rows,
    assert_model,
    base,
    edited,
    fold,
    fold_with,
    read_fold,
)
from tests.kit import Repo

pytestmark = pytest.mark.usefixtures("driver")
slow = pytest.mark.slow

OURS: Rows = {"embed": {3: -1.0, 40: -2.0}, "head": {0: -3.0}}
THEIRS: Rows = {"embed": {4: -4.0, 63: -5.0}, "norm": {7: -6.0}}
CROSSING: Rows = {"embed": {3: -7.0, 63: -5.0}, "norm": {7: -6.0}}
"""Row 3 of embed is theirs and ours."""
FAST = {"merge"}


def sides_of(kind: Kind, ours: Model, theirs: Model, before: Model | None) -> Sides:
    return None if before is None else kind.make(before), kind.make(ours), kind.make(theirs)


def in_all(ours: Model, theirs: Model, before: Model | None) -> dict[str, Sides]:
    """The same three models as a file of every kind."""
    return {kind.name: sides_of(kind, ours, theirs, before) for kind in KINDS}


def inside(kind: Kind, name: str) -> str:
    """The name that a tensor has in files of a kind."""
    return f"{CHUNK}/{name}" if kind in (FOLD, FOLD_ZSTD) else name


def take_all(repo: Repo, name: str, side: str) -> None:
    """Settle one tensor in the files of all kinds."""
    for kind in KINDS:
        resolve(repo, kind.name, "--take", f"{inside(kind, name)}={side}")


def assert_all(repo: Repo, wanted: Model) -> None:
    for kind in KINDS:
        assert_merged(repo, kind, wanted)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in FAST else slow) for way in WAYS]
)
def test_rows_that_are_apart(repo: Repo, way: str) -> None:
    both = edited(edited(base(), OURS), THEIRS)
    diverge(repo, in_all(edited(base(), OURS), edited(base(), THEIRS), base()))
    said = bring(repo, way).stderr.decode()
    assert_all(repo, both)
    for kind in KINDS:
        (told,) = [line for line in said.splitlines() if f" {kind.name}: " in line]
        outcome = told.removeprefix(f"wtxtgit: note: {kind.name}: merged, ")
        words = [re.sub(r" \([^)]*\)", "", word) for word in outcome.split(", ")]
        assert words == ["1 tensor from ours", "1 from theirs", "1 row by row"]
    if way == "stash pop":
        assert repo.git("stash", "list") == b""
        repo.git("commit", "-qam", "popped")
    assert_clean(repo)
    index, _ = read_fold(file_of(repo, FOLD.name))
    assert (index["created_at_unix"], index["metadata"]["tags"]) == (7.5, {"run": "1"})
    assert [entry["ecc_algo"] for entry in index["chunks"]] == ["rs(16)"] * 2
    if way == "merge":
        assert_all(repo.clone("clone"), both)


@slow
@pytest.mark.parametrize("way", WAYS)
def test_rows_that_both_changed(repo: Repo, way: str) -> None:
    ours = edited(base(), OURS)
    diverge(repo, in_all(ours, edited(base(), CROSSING), base()))
    said = bring(repo, way, ok=(1,)).stderr.decode()
    mine = "what you rebase onto" if way == "rebase" else "HEAD"
    assert unmerged(repo) == sorted(kind.name for kind in KINDS)
    for kind in KINDS:
        assert (
            f"wtxtgit: error: {kind.name}: both sides changed it; ours ({mine}) is kept for now: "
            f"{inside(kind, 'embed')} row 3; the file has no changes from " in said
        )
        assert f"wtxtgit: hint: wtxtgit resolve {kind.name} lists all conflicts" in said
        assert file_of(repo, kind.name) == kind.make(ours)
        assert_model(held(repo, kind), ours)
        assert open_names(repo, kind.name) == {inside(kind, "embed"): [[3, 4]]}
    if way == "stash pop":
        assert repo.git("stash", "list") != b"", "a stash that conflicts is kept"
    take_all(repo, "embed", "theirs")
    assert_all(repo, edited(ours, CROSSING))


@slow
@pytest.mark.parametrize("name", ["none.fold", "zstd.fold"])
@pytest.mark.parametrize("apart", [True, False])
def test_files_of_the_original_writer(repo: Repo, name: str, apart: bool) -> None:
    """Theirs is the pair's second version, ours another change of the first one."""
    first, second = version(name, 1), version(name, 2)
    _, before = read_fold(first)
    _, after = read_fold(second)
    tensor, changed = load(before[CHUNK])["embed.weight"], load(after[CHUNK])
    rows = np.flatnonzero((tensor != changed["embed.weight"]).any(axis=1))
    row = 20 if apart else int(rows[0])
    assert (row not in rows) == apart
    at = before[CHUNK].index(tensor[row].tobytes())
    edit = before[CHUNK][:at] + np.float32(0.5).tobytes() + before[CHUNK][at + 4 :]
    ours = fold_with(first, CHUNK, edit)
    diverge(repo, {name: (first, ours, second)})
    bring(repo, "merge", ok=(0 if apart else 1,))
    Sealed(repo.path).call("verify", name)
    if not apart:
        assert file_of(repo, name) == ours
        assert open_names(repo, name) == {f"{CHUNK}/embed.weight": [[row, row + 1]]}
        return
    index, merged = read_fold(file_of(repo, name))
    changed["embed.weight"][row, 0] = 0.5
    assert_model(load(merged[CHUNK]), changed)
    assert {**merged, CHUNK: b""} == {**after, CHUNK: b""}
    assert index["metadata"]["which"] == "v2"
    assert_clean(repo)


class TestTensors:
    """What is there on one side alone, or is something else there."""

    pytestmark = slow

    def test_each_side_adds_one(self, repo: Repo) -> None:
        mine, other = {"bias": np.full(3, 2, "<f4")}, {"scale": np.full((2, 2), 3, "<f2")}
        diverge(repo, in_all({**base(), **mine}, {**base(), **other}, base()))
        bring(repo, "merge")
        assert_all(repo, {**base(), **mine, **other})
        assert_clean(repo)

    def test_both_add_one_of_a_name(self, repo: Repo) -> None:
        mine, other = {"bias": np.full(3, 2, "<f4")}, {"bias": np.full(3, 4, "<f4")}
        diverge(repo, in_all({**base(), **mine}, {**base(), **other}, base()))
        bring(repo, "merge", ok=(1,))
        for kind in KINDS:
            assert open_names(repo, kind.name) == {inside(kind, "bias"): [[0, 3]]}
        take_all(repo, "bias", "average")
        assert_all(repo, {**base(), "bias": np.full(3, 3, "<f4")})

    def test_one_side_takes_one_out(self, repo: Repo) -> None:
        less = {name: array for name, array in base().items() if name != "head"}
        diverge(repo, in_all(edited(base(), {"norm": {0: 5.0}}), less, base()))
        bring(repo, "merge")
        assert_all(repo, edited(less, {"norm": {0: 5.0}}))

    @pytest.mark.parametrize("side", ["ours", "theirs"])
    def test_one_side_takes_out_what_the_other_changed(self, repo: Repo, side: str) -> None:
        less = {name: array for name, array in base().items() if name != "head"}
        ours = edited(base(), {"head": {1: 5.0}})
        diverge(repo, in_all(ours, less, base()))
        said = bring(repo, "merge", ok=(1,)).stderr
        assert said.count(b"head: theirs removed it, ours changed it") == len(KINDS)
        assert_model(held(repo, SAFETENSORS), ours)
        take_all(repo, "head", side)
        assert_all(repo, ours if side == "ours" else less)

    def test_one_side_has_another_dtype(self, repo: Repo) -> None:
        wide = {**base(), "head": base()["head"].astype("<f4")}
        diverge(repo, in_all(edited(base(), {"embed": {0: 9.0}}), wide, base()))
        bring(repo, "merge")
        assert_all(repo, edited(wide, {"embed": {0: 9.0}}))

    def test_another_dtype_of_what_the_other_changed(self, repo: Repo) -> None:
        wide = {**base(), "head": base()["head"].astype("<f4")}
        repo.git("config", "wtxtgit.mergeStrategy", "average")
        diverge(repo, in_all(edited(base(), {"head": {1: 5.0}}), wide, base()))
        said = bring(repo, "merge", ok=(1,)).stderr
        assert said.count(b"head: f16 16 x 4 in ours, f32 16 x 4 in theirs") == len(KINDS)
        take_all(repo, "head", "theirs")
        assert_all(repo, wide)

    def test_both_add_the_file(self, repo: Repo) -> None:
        """Without a base each row that differs was changed by both."""
        ours, theirs = edited(base(), {"embed": {3: -2.0}}), edited(base(), {"embed": {9: -4.0}})
        diverge(repo, in_all(ours, theirs, None))
        bring(repo, "merge", ok=(1,))
        for kind in KINDS:
            assert_model(held(repo, kind), ours)
            assert open_names(repo, kind.name) == {inside(kind, "embed"): [[3, 4], [9, 10]]}
        take_all(repo, "embed", "theirs")
        assert_all(repo, theirs)


@slow
def test_metadata(repo: Repo) -> None:
    def made(**metadata: str) -> bytes:
        return save(base(), metadata=metadata)

    files = {
        "apart.safetensors": (made(a="1", b="1"), made(a="2", b="1"), made(a="1", b="2")),
        "both.safetensors": (made(a="1", b="1"), made(a="2", b="1"), made(a="3", b="1")),
    }
    diverge(repo, files)
    bring(repo, "merge", ok=(1,))
    assert unmerged(repo) == ["both.safetensors"]
    pointer = "metadata:/__metadata__/a"
    assert open_names(repo, "both.safetensors") == {pointer: None}
    resolve(repo, "both.safetensors", "--take", f"{pointer}=theirs")
    for name, wanted in (("apart", {"a": "2", "b": "2"}), ("both", {"a": "3", "b": "1"})):
        header = file_of(repo, f"{name}.safetensors")[8:].decode("latin-1")
        assert json.JSONDecoder().raw_decode(header)[0]["__metadata__"] == wanted


@slow
def test_what_is_not_merged_by_tensor(repo: Repo) -> None:
    """Ours is damaged, another format, or no checkpoint: a side is all that can be taken."""
    good, theirs = FOLD.make(base()), FOLD.make(edited(base(), THEIRS))
    files = {
        "damaged.fold": (good, good[:40] + bytes([good[40] ^ 1]) + good[41:], theirs),
        "format.fold": (good, SAFETENSORS.make(edited(base(), OURS)), theirs),
        "opaque.fold": (b"one", b"two", b"three"),
    }
    diverge(repo, files)
    said = bring(repo, "merge", ok=(1,)).stderr.decode()
    kept = "both sides changed it; ours (HEAD) is kept for now: "
    assert f"damaged.fold: {kept}ours is not valid: chunk " in said
    assert f"format.fold: {kept}the formats differ: fold, safetensors" in said
    assert f"opaque.fold: {kept}files in unknown formats can't be merged by tensor" in said
    for name, (_, ours, other) in files.items():
        assert file_of(repo, name) == ours
        assert open_names(repo, name) == {"*": None}
        resolve(repo, name, "--take", "*=theirs")
        assert file_of(repo, name) == other
    assert unmerged(repo) == []


@slow
def test_parts_of_a_fold(repo: Repo) -> None:
    def made(one: bytes, two: bytes) -> bytes:
        return fold({"one": (b"JSON", one), "two": (b"JSON", two)})

    ours = edited(base(), OURS)
    files = {
        "apart.fold": (made(b"1", b"2"), made(b"10", b"2"), made(b"1", b"20")),
        "both.fold": (made(b"1", b"2"), made(b"10", b"2"), made(b"11", b"2")),
        "compressed.fold": (FOLD.make(base()), FOLD.make(ours), FOLD_ZSTD.make(base())),
    }
    diverge(repo, files)
    bring(repo, "merge", ok=(1,))
    assert unmerged(repo) == ["both.fold"]
    assert read_fold(file_of(repo, "apart.fold"))[1] == {"one": b"10", "two": b"20"}
    assert open_names(repo, "both.fold") == {"one": None}
    resolve(repo, "both.fold", "--take", "one=theirs")
    assert read_fold(file_of(repo, "both.fold"))[1] == {"one": b"11", "two": b"2"}
    index, _ = read_fold(file_of(repo, "compressed.fold"))
    assert [entry["flags"] for entry in index["chunks"]] == [1, 1]
    assert_merged(repo, FOLD, ours, "compressed.fold")


@slow
@pytest.mark.parametrize("way", ["merge", "rebase"])
def test_a_large_merged_text_is_written_before_git_does(repo: Repo, way: str) -> None:
    """Deflating it takes git longer than the merge."""
    model = {"w": np.random.default_rng(1).standard_normal((1024, 256), np.float32)}
    ours, theirs = edited(model, {"w": {3: 1.0}}), edited(model, {"w": {700: 2.0}})
    both = edited(ours, {"w": {700: 2.0}})
    diverge(repo, {"m.safetensors": (save(model), save(ours), save(theirs))})
    bring(repo, way)
    assert (repo.path / "m.safetensors").read_bytes() == save(both)
    oid = repo.git("rev-parse", "HEAD:m.safetensors").decode().strip()
    stored = (repo.path / ".git/objects" / oid[:2] / oid[2:]).read_bytes()
    # Its head stands in a block that is not deflated, which git's own writing has none of.
    assert stored[2] == 0
    assert_clean(repo)


@pytest.mark.torch
@pytest.mark.parametrize("as_zip", [True, False])
@pytest.mark.parametrize("way", ["merge", "rebase"])
def test_checkpoints_of_torch_that_both_gave_a_tensor_have_both(
    repo: Repo, way: str, as_zip: bool
) -> None:
    import torch

    def saved(**further: float) -> bytes:
        file = io.BytesIO()
        made = {name: torch.full((4, 4), value) for name, value in further.items()}
        state = {"w": torch.ones(4, 4), **made}
        torch.save(state, file, _use_new_zipfile_serialization=as_zip)
        return file.getvalue()

    repo.track("*.pt")
    diverge(repo, {"model.pt": (saved(), saved(ours=2.0), saved(theirs=3.0))})
    bring(repo, way)
    found = torch.load(repo.path / "model.pt", weights_only=True)
    assert {name: float(tensor[0, 0]) for name, tensor in found.items()} == {
        "w": 1.0,
        "ours": 2.0,
        "theirs": 3.0,
    }
    assert zipfile.is_zipfile(repo.path / "model.pt") is as_zip
    assert_clean(repo)
