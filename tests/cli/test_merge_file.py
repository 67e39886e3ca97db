"""`wtxtgit merge-file`: three files, texts or blobs into one, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Command
from tests.data import fixture
from tests.e2e.sealed import Said, Sealed
from tests.e2e.weights import (
    AERO,
    CHUNK,
    FOLD,
    KINDS,
    SAFETENSORS,
    Kind,
    Model,
    assert_model,
    base,
    edited,
    fold_with,
    read_fold,
)
from tests.kit import Repo, text_of
from wtxtgit.containers import registry

NAME = SAFETENSORS.name
OURS = edited(base(), {"embed": {3: -1.0}, "norm": {0: 4.0}})
THEIRS = edited(base(), {"embed": {3: -7.0, 63: -5.0}})
APART = edited(base(), {"embed": {63: -5.0}})
BOTH = edited(OURS, {"embed": {63: -5.0}})
ROW = {"ours": -1.0, "theirs": -7.0, "average": -4.0}


@pytest.fixture
def folder(tmp_path: Path) -> Sealed:
    """A folder with `base`, `ours`, `theirs`, which conflict, and `apart`, which does not."""
    here = Sealed(tmp_path)
    models = {"base": base(), "ours": OURS, "theirs": THEIRS, "apart": APART}
    for name, model in models.items():
        here.write(name, SAFETENSORS.make(model))
    here.write("empty", b"")
    return here


def merge(here: Sealed, *arguments: str, ok: tuple[int, ...] = (0,)) -> Said:
    return here.call("merge-file", *arguments, ok=ok)


def report(here: Sealed, *arguments: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(merge(here, *arguments, "--json", ok=ok).out)
    return found


def held(here: Sealed, name: str, kind: Kind = SAFETENSORS) -> Model:
    return kind.read((here.path / name).read_bytes())


def contents(here: Sealed) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in here.path.iterdir()}


def flipped(content: bytes) -> bytes:
    """The same with another last byte."""
    return content[:-1] + bytes([content[-1] ^ 1])


def settled(row: float) -> Model:
    return edited(BOTH, {"embed": {3: row}}) if row != -1 else BOTH


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind(tmp_path: Path, kind: Kind) -> None:
    here = Sealed(tmp_path)
    for name, model in {"base": base(), "ours": OURS, "theirs": APART}.items():
        here.write(name, kind.make(model))
    merge(here, "base", "ours", "theirs")
    assert_model(held(here, "ours", kind), BOTH)
    here.call("verify", "ours")


def test_it_replaces_ours(folder: Sealed) -> None:
    said = merge(folder, "base", "ours", "apart")
    assert said.out == (
        "merged  what    taken\n"
        "embed   tensor  both\n"
        "norm    tensor  ours\n"
        "ours: merged, 1 tensor from ours, 1 row by row\n"
    )
    assert said.err == ""
    assert_model(held(folder, "ours"), BOTH)
    assert held(folder, "apart")["norm"][0] == 1, "theirs stays"


def test_it_writes_elsewhere(folder: Sealed) -> None:
    before = contents(folder)
    assert "out: merged" in merge(folder, "base", "ours", "apart", "-o", "out").out
    assert_model(held(folder, "out"), BOTH)
    assert contents(folder) == {**before, "out": contents(folder)["out"]}


@pytest.mark.parametrize("output", [(), ("-o", "out")])
def test_a_conflict_writes_nothing(folder: Sealed, output: tuple[str, ...]) -> None:
    before = contents(folder)
    said = merge(folder, "base", "ours", "theirs", *output, ok=(1,))
    assert "embed  tensor  row 3  both sides changed the same rows\n" in said.out
    assert said.err == (
        "wtxtgit: error: 1 conflict, nothing written\n"
        "wtxtgit: hint: --take NAME=theirs settles one, --strategy ours or theirs all of them\n"
    )
    assert contents(folder) == before


def test_as_data(folder: Sealed) -> None:
    assert report(folder, "base", "ours", "apart", "-o", "out") == {
        "ok": True,
        "format": "safetensors",
        "taken": None,
        "merged": [
            {"name": "embed", "kind": "tensor", "how": "both"},
            {"name": "norm", "kind": "tensor", "how": "ours"},
        ],
        "conflicts": [],
        "notes": [],
    }
    found = report(folder, "base", "ours", "theirs", ok=(1,))
    assert (found["ok"], found["taken"]) == (False, None)
    assert found["conflicts"] == [
        {
            "name": "embed",
            "kind": "tensor",
            "reason": "both sides changed the same rows",
            "rows": 1,
            "row_ranges": [[3, 4]],
            "row_ranges_exact": True,
        }
    ]


@pytest.mark.parametrize(("strategy", "row"), [*ROW.items(), ("task", None)])
def test_strategies(folder: Sealed, strategy: str, row: float | None) -> None:
    merge(folder, "base", "ours", "theirs", "--strategy", strategy)
    found = held(folder, "ours")
    if row is None:
        wanted = BOTH["embed"].copy()
        wanted[3] = -8 - base()["embed"][3]
        assert found.pop("embed").tolist() == wanted.tolist()
        assert_model(found, {name: BOTH[name] for name in ("head", "norm")})
        return
    assert_model(found, settled(row))


@pytest.mark.parametrize(
    ("takes", "row"),
    [
        (("embed=theirs",), -7.0),
        (("e*=theirs",), -7.0),
        (("*=theirs", "embed=ours"), -1.0),
        (("embed=ours", "*=theirs"), -1.0),
        (("e*=theirs", "*d=average"), -4.0),
        (("embed=theirs", "embed=average"), -4.0),
    ],
)
def test_takes(folder: Sealed, takes: tuple[str, ...], row: float) -> None:
    options = [word for take in takes for word in ("--take", take)]
    merge(folder, "base", "ours", "theirs", *options)
    assert_model(held(folder, "ours"), settled(row))


def test_a_take_of_the_base(folder: Sealed) -> None:
    """It is for the rows that both changed: those of one side alone stay."""
    merge(folder, "base", "ours", "theirs", "--take", "embed=base")
    wanted = {**BOTH, "embed": BOTH["embed"].copy()}
    wanted["embed"][3] = base()["embed"][3]
    assert_model(held(folder, "ours"), wanted)


@pytest.mark.parametrize(
    "options",
    [
        ("--take", "embe=theirs"),
        ("--take", "x*=theirs"),
        ("--take", "embed"),
        ("--take", "embed=fail"),
        ("--strategy", "base"),
        ("--strategy", "union"),
        ("--strategy", ""),
    ],
)
def test_usage(folder: Sealed, options: tuple[str, str]) -> None:
    before = contents(folder)
    said = merge(folder, "base", "ours", "theirs", *options, ok=(2,))
    assert said.out == ""
    assert said.err.startswith("wtxtgit: error: ")
    assert contents(folder) == before


class TestBase:
    def test_there_is_none(self, folder: Sealed) -> None:
        """Every row that differs was changed by both."""
        found = report(folder, "empty", "ours", "apart", ok=(1,))
        rows = {one["name"]: one["row_ranges"] for one in found["conflicts"]}
        assert rows == {"embed": [[3, 4], [63, 64]], "norm": [[0, 1]]}
        found = report(folder, "empty", "ours", "ours", "-o", "out")
        assert (found["ok"], found["taken"]) == (True, "ours")

    def test_average_needs_none(self, folder: Sealed) -> None:
        merge(folder, "empty", "ours", "theirs", "--strategy", "average")
        assert held(folder, "ours")["embed"][3].tolist() == [-4.0] * 8
        assert held(folder, "ours")["norm"][0] == 2.5

    def test_task_can_do_nothing_without(self, folder: Sealed) -> None:
        found = report(folder, "empty", "ours", "theirs", "--strategy", "task", ok=(1,))
        assert [one["name"] for one in found["conflicts"]] == ["embed", "norm"]

    @pytest.mark.parametrize(
        ("ours", "theirs", "taken"),
        [("ours", "base", "ours"), ("base", "theirs", "theirs"), ("ours", "ours", "ours")],
    )
    def test_one_side_alone_changed_it(
        self, folder: Sealed, ours: str, theirs: str, taken: str
    ) -> None:
        before = contents(folder)
        said = merge(folder, "base", ours, theirs, "-o", "out")
        assert said.out == f"out: {taken} is taken\n"
        assert contents(folder)["out"] == before[ours if taken == "ours" else theirs]

    def test_one_side_is_taken_whatever_it_is(self, folder: Sealed) -> None:
        """As in git: what nobody else changed is not looked into."""
        folder.write("noise", b"\x93NUMPY damaged")
        merge(folder, "base", "base", "noise", "-o", "out")
        assert contents(folder)["out"] == b"\x93NUMPY damaged"


class TestTexts:
    @pytest.mark.parametrize("texts", [("base", "ours", "apart"), ("ours",), ("base", "apart")])
    def test_the_result_is_what_ours_is(self, folder: Sealed, texts: tuple[str, ...]) -> None:
        for name in texts:
            folder.write(name, text_of(contents(folder)[name]))
        merge(folder, "base", "ours", "apart")
        if "ours" in texts:
            folder.call("verify", "ours")
            folder.call("restore", "ours", "-o", "restored")
            assert contents(folder)["ours"] == text_of(contents(folder)["restored"])
            assert_model(held(folder, "restored"), BOTH)
        else:
            assert_model(held(folder, "ours"), BOTH)

    @pytest.mark.parametrize("side", ["base", "ours", "apart"])
    def test_a_damaged_one(self, folder: Sealed, side: str) -> None:
        text = text_of(contents(folder)[side])
        at = len(text) // 2
        folder.write(
            side, text[:at] + (b"B" if text[at : at + 1] == b"A" else b"A") + text[at + 1 :]
        )
        before = contents(folder)
        (conflict,) = report(folder, "base", "ours", "apart", ok=(1,))["conflicts"]
        name = "theirs" if side == "apart" else side
        assert (conflict["name"], conflict["kind"]) == ("*", "file")
        assert conflict["reason"].startswith(f"{name} is not the text of a file: damaged: line ")
        assert contents(folder) == before
        merge(folder, "base", "ours", "apart", "--take", "*=theirs", "-o", "out")
        assert contents(folder)["out"] == before["apart"]

    def test_a_native_one(self, folder: Sealed) -> None:
        import wtxtgit

        for name, value in (("a", 1), ("b", 2), ("c", 3)):
            made = wtxtgit.dumps({"w": np.full(4, value, "f4")})
            folder.write(name, made)
        (conflict,) = report(folder, "a", "b", "c", ok=(1,))["conflicts"]
        assert conflict["reason"].startswith("base is a native text")


class TestBlobs:
    @pytest.fixture
    def committed(self, tracked: Repo) -> Sealed:
        """A repository with the base in `one`, ours in `two`, and what is apart in `three`."""
        for tag, model in (("one", base()), ("two", OURS), ("three", APART)):
            tracked.write(NAME, SAFETENSORS.make(model))
            tracked.commit(tag, "-a")
            tracked.git("tag", tag)
        return Sealed(tracked.path)

    @pytest.mark.slow
    def test_blobs_of_commits(self, committed: Sealed) -> None:
        sides = [f"{revision}:{NAME}" for revision in ("one", "two", "three")]
        merge(committed, *sides, "-o", "out.wtxt")
        committed.call("restore", "out.wtxt", "-o", "out")
        assert_model(held(committed, "out"), BOTH)
        merge(committed, *sides[:1], NAME, sides[1])
        assert_model(held(committed, NAME), BOTH)

    @pytest.mark.slow
    def test_ours_in_a_commit_needs_a_place(self, committed: Sealed) -> None:
        said = merge(committed, f"one:{NAME}", f"two:{NAME}", NAME, ok=(2,))
        assert f"two:{NAME} is in a commit: -o FILE names the output" in said.err
        said = merge(committed, f"one:{NAME}", f"none:{NAME}", NAME, "-o", "out", ok=(5,))
        assert not (committed.path / "out").exists()


class TestRefused:
    def test_no_known_format(self, folder: Sealed) -> None:
        for name, content in (("a", b"one"), ("b", b"two"), ("c", b"three")):
            folder.write(name, content)
        said = merge(folder, "a", "b", "c", ok=(1,))
        assert "files in unknown formats can't be merged by tensor" in said.out
        merge(folder, "a", "b", "c", "--strategy", "theirs")
        assert contents(folder)["b"] == b"three"
        folder.write("b", b"two")
        said = merge(folder, "a", "b", "c", "--strategy", "average", ok=(1,))
        assert contents(folder)["b"] == b"two"

    def test_two_formats(self, folder: Sealed) -> None:
        folder.write("aero", AERO.make(THEIRS))
        said = merge(folder, "base", "ours", "aero", ok=(1,))
        assert "the formats differ: aero, safetensors" in said.out

    def test_a_file_that_does_not_hold(self, folder: Sealed) -> None:
        """Parity is no reason to refuse: what it mends is merged."""
        for kind, is_mended in ((AERO, False), (FOLD, True)):
            for name, model in (("base", base()), ("ours", OURS), ("theirs", APART)):
                folder.write(name, kind.make(model))
            good = contents(folder)["theirs"]
            at = good.index(APART["embed"][5].tobytes())
            folder.write("theirs", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            found = report(folder, "base", "ours", "theirs", ok=(0 if is_mended else 1,))
            if is_mended:
                assert_model(held(folder, "ours", kind), BOTH)
                continue
            (conflict,) = found["conflicts"]
            assert conflict["reason"].startswith("theirs is not valid: ")

    def test_a_file_that_is_not_there(self, folder: Sealed) -> None:
        before = contents(folder)
        for sides in (("x", "ours", "apart"), ("base", "x", "apart"), ("base", "ours", "x")):
            said = merge(folder, *sides, ok=(3, 5))
            assert said.err.startswith("wtxtgit: error: x: ")
        assert contents(folder) == before


@pytest.mark.parametrize(
    ("name", "signature"),
    [("trust_block_high_a", "trust_block"), ("neuron_signed_high_a", "signature")],
)
def test_a_signature_in_the_file_is_kept_and_told(
    folder: Sealed, name: str, signature: str
) -> None:
    before = fixture(f"fold/{name}.fold")
    _, held_before = read_fold(before)
    model = flipped(held_before[CHUNK])
    (other,) = [key for key in held_before if key in ("x", "metrics")]
    folder.write("base", before)
    folder.write("ours", fold_with(before, CHUNK, model))
    folder.write("theirs", fold_with(before, other, b'{"other":1}'))
    said = merge(folder, "base", "ours", "theirs")
    assert f"note: {signature}: kept, but it signs the content before the merge\n" in said.out
    index, merged = read_fold(contents(folder)["ours"])
    assert merged == {**held_before, CHUNK: model, other: b'{"other":1}'}
    assert index.get("trust_block") == read_fold(before)[0].get("trust_block")
    assert index["metadata"].get("signature") == read_fold(before)[0]["metadata"].get("signature")


def test_an_encrypted_chunk_is_taken_whole(folder: Sealed) -> None:
    """Without its key; what both sides changed of it takes a side."""
    before = fixture("fold/encrypted_high_a.fold")
    _, held_before = read_fold(before)
    message, model = flipped(held_before["msg"]), flipped(held_before[CHUNK])
    folder.write("base", before)
    folder.write("ours", fold_with(before, "msg", message))
    folder.write("theirs", fold_with(before, CHUNK, model))
    merge(folder, "base", "ours", "theirs", "-o", "out")
    assert read_fold(contents(folder)["out"])[1] == {"msg": message, CHUNK: model}
    folder.write("theirs", fold_with(before, "msg", bytes(len(message))))
    (conflict,) = report(folder, "base", "ours", "theirs", ok=(1,))["conflicts"]
    assert (conflict["name"], conflict["kind"]) == ("msg", "part")
    merge(folder, "base", "ours", "theirs", "--take", "msg=theirs")
    assert read_fold(contents(folder)["ours"])[1]["msg"] == bytes(len(message))


def test_names_that_could_fake_lines(folder: Sealed) -> None:
    """Names come out of files, and are shown on terminals."""
    name = "a\n\x1b[31mwtxtgit: error: fake"
    for side, value in (("base", 1.0), ("ours", 2.0), ("theirs", 3.0)):
        folder.write(side, SAFETENSORS.make({name: np.full(2, value, "<f4")}))
    said = merge(folder, "base", "ours", "theirs", ok=(1,))
    assert "\x1b" not in said.out + said.err
    assert not any(line.startswith("wtxtgit: error: fake") for line in said.out.splitlines())


def test_the_installed_command(wtxtgit: Command) -> None:
    for name, model in (("base", base()), ("ours", OURS), ("theirs", THEIRS)):
        (wtxtgit.folder / name).write_bytes(SAFETENSORS.make(model))
    done = wtxtgit("merge-file", "base", "ours", "theirs")
    assert (done.code, done.complaint()) == (1, "1 conflict, nothing written")
    done = wtxtgit("merge-file", "base", "ours", "theirs", "--take", "embed=average")
    assert (done.code, done.err) == (0, "")
    found = SAFETENSORS.read((wtxtgit.folder / "ours").read_bytes())
    assert_model(found, settled(-4.0))


def test_the_driver_leaves_files_of_a_format_that_nothing_merges(wtxtgit: Command) -> None:
    versions = [fixture(f"taridx/{name}/train.taridx") for name in ("dots_a", "pair_v1", "pair_v2")]
    names = ["base", "ours", "theirs"]
    for name, content in zip(names, versions, strict=True):
        (wtxtgit.folder / name).write_bytes(content)
    done = wtxtgit("merge-driver", *names)
    assert (done.code, done.out) == (1, b"")
    assert "taridx files can't be merged by tensor" in done.complaint()
    assert (wtxtgit.folder / "ours").read_bytes() == versions[1]


def test_a_format_without_a_resealer_is_settled_by_a_side(
    wtxtgit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a format that was just added."""
    npy = registry.by_name("npy")
    assert npy is not None
    formats = tuple(f._replace(reseal=None) if f is npy else f for f in registry.FORMATS)
    monkeypatch.setattr(registry, "FORMATS", formats)
    for number, name in enumerate(("base", "ours", "theirs")):
        np.save(wtxtgit.folder / f"{name}.npy", np.full(3, number))
    files = ("base.npy", "ours.npy", "theirs.npy")
    done = wtxtgit("merge-file", *files, "--json", "-o", "out")
    assert done.code == 1
    assert json.loads(done.out)["conflicts"][0]["reason"] == "npy files can't be merged by tensor"
    assert wtxtgit("merge-file", *files, "--strategy", "theirs", "-o", "out").code == 0
    assert (wtxtgit.folder / "out").read_bytes() == (wtxtgit.folder / "theirs.npy").read_bytes()
