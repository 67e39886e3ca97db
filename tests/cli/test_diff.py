"""`wtxtgit diff`: what is printed, and what ends it."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.containers import aero_files as aero
from tests.data import FIXTURES, all_entries, path_of
from tests.kit import Repo, safetensors

pytestmark = pytest.mark.slow

PAIRS = [
    (entry, other)
    for entry in all_entries()
    for other in all_entries()
    if "changed_tensor" in entry.get("pair", {})
    and entry["pair"]["version"] == "v1"
    and other.get("pair", {}).get("id") == entry["pair"]["id"]
    and other["pair"]["version"] == "v2"
]


def as_json(wtxtgit: Command, *arguments: str | Path) -> dict[str, Any]:
    done = wtxtgit("diff", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.parametrize(("entry", "other"), PAIRS, ids=lambda e: e["file"])
def test_pairs_as_data(entry: dict[str, Any], other: dict[str, Any], wtxtgit: Command) -> None:
    found = as_json(wtxtgit, path_of(entry), path_of(other))
    assert (found["a"], found["b"]) == (str(path_of(entry)), str(path_of(other)))
    (changed,) = [t for t in found["tensors"] if t["status"] != "same"]
    assert changed["status"] == "changed"
    assert changed["name"].endswith(entry["pair"]["changed_tensor"])
    rows = [row for first, end in changed["row_ranges"] for row in range(first, end)]
    assert rows == entry["pair"]["changed_rows"]
    assert changed["changed_rows"] == len(rows)
    assert 0 < changed["relative_l2"] < 1
    assert found["summary"]["changed"] == 1
    assert found["summary"]["same"] == len(entry["tensors"]) - 1


def test_all_pairs_are_there() -> None:
    assert len(PAIRS) == 8


def test_json_is_a_format(wtxtgit: Command) -> None:
    sides = [FIXTURES / f"plain/pair_v{n}.safetensors" for n in (1, 2)]
    long = wtxtgit("diff", *sides, "--format", "json")
    assert long.out == wtxtgit("diff", *sides, "--json").out
    assert wtxtgit("diff", *sides, "--format", "text").out == wtxtgit("diff", *sides).out


SHOWN = """\
pair_v1.safetensors -> pair_v2.safetensors
2 tensors: 1 changed; 128 elements, L2 5.66 (2.68% of the changed tensors); 1 metadata change

tensor  relative  elements  rows                L2  max    cosine                mean             std  flips
embed      2.68%    0.286%  2 of 700: 2, 600  5.66  0.5  0.999641  0.00217 -> 0.00359  0.997 -> 0.998     34

metadata /__metadata__/which: "v1" -> "v2"

unchanged: 1 tensor
"""  # noqa: E501


def test_the_report(wtxtgit: Command) -> None:
    for n in (1, 2):
        name = f"pair_v{n}.safetensors"
        (wtxtgit.folder / name).write_bytes((FIXTURES / "plain" / name).read_bytes())
    done = wtxtgit("diff", "pair_v1.safetensors", "pair_v2.safetensors")
    assert (done.code, done.err, done.out.decode()) == (0, "", SHOWN)


def changed_pair(folder: Path) -> tuple[Path, Path]:
    """Two npz files with every kind of change."""
    old = {
        "model.layers.0.self_attn.q_proj.weight": np.arange(64, dtype="f4").reshape(16, 4),
        "model.layers.0.norm": np.ones(8, "f4"),
        "renamed_before": np.arange(5, dtype="f4"),
        "removed": np.zeros(3, "i8"),
        "wide": np.arange(4.0),
        "shaped": np.zeros((2, 3), "f4"),
        "same": np.ones(2),
    }
    new = {
        **{key: old[key] for key in ("model.layers.0.norm", "same")},
        "model.layers.0.self_attn.q_proj.weight": old["model.layers.0.self_attn.q_proj.weight"] * 2,
        "renamed_after": old["renamed_before"],
        "added": np.zeros((3, 1), "i4"),
        "wide": np.array([0, 1, np.nan, np.inf], "f4"),
        "shaped": np.zeros((3, 2), "f4"),
    }
    np.savez(folder / "a.npz", **old)
    np.savez(folder / "b.npz", **new)
    return folder / "a.npz", folder / "b.npz"


def test_every_change_is_shown(wtxtgit: Command) -> None:
    done = wtxtgit("diff", *changed_pair(wtxtgit.folder))
    assert (done.code, done.err) == (0, "")
    lines = done.out.decode().splitlines()
    assert lines[1].startswith("8 tensors: 3 changed, 1 added, 1 removed, 1 renamed; 65 elements")
    cells = [line.split() for line in lines]
    assert ["added", "added", "i32", "3", "x", "1"] in cells
    assert ["removed", "removed", "i64", "3"] in cells
    assert ["renamed", "renamed_before", "->", "renamed_after", "f32", "5"] in cells
    assert "wide: f64 -> f32" in lines
    assert "shaped: 2 x 3 -> 3 x 2" in lines
    assert "unchanged: 2 tensors" in lines
    (wide,) = [line for line in lines if line.startswith("wide  ")]
    assert wide.endswith("1/1")
    (weight,) = [line for line in lines if line.startswith("model.layers.0.self_attn")]
    assert "16 of 16" in weight
    assert lines.index(wide) < lines.index(weight), "what has new NaN comes first"
    assert ["new-nan", "wide", "1", "item", "of", "4", "became", "NaN"] in cells


def output(terminal: int) -> bytes:
    """What a program wrote to its terminal; nothing where it has ended."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_a_terminal_of_any_width(columns: int, wtxtgit: Command) -> None:
    sides = changed_pair(wtxtgit.folder)
    leader, follower = pty.openpty()
    given = {**wtxtgit.options()["env"], "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(wtxtgit.argv("diff", *sides), stdout=follower, env=given) as process:
        os.close(follower)
        read = b"".join(iter(lambda: output(leader), b""))
        assert process.wait(60) == 0
    os.close(leader)
    lines = re.sub("\x1b\\[[0-9;]*m", "", read.decode()).splitlines()
    tables = [line for line in lines if "  " in line.strip() or "━" in line or "─" in line]
    assert tables
    assert max(map(len, tables)) <= columns
    text = "".join("".join(lines).split())
    assert "…" not in text
    assert "16of16" in text
    assert "cosine" in text


class TestRevisions:
    """REV:PATH, with real git."""

    @pytest.fixture
    def commits(self, repo: Repo, driver: None) -> Repo:
        repo.track("*.safetensors")
        for values in ((1.0, 2.0, 3.0), (1.0, -2.0, 3.0)):
            repo.write("m/w.safetensors", safetensors(*values))
            repo.add()
            repo.commit()
        return repo

    def test_a_file_alone_is_compared_with_head(self, commits: Repo) -> None:
        commits.write("m/w.safetensors", safetensors(1.0, -2.0, 5.0))
        for cwd, name in (("", "m/w.safetensors"), ("m", "w.safetensors")):
            found = self.found(commits, name, cwd=cwd)
            assert (found["a"], found["b"]) == ("HEAD:m/w.safetensors", name)
            assert found["summary"]["changed_elements"] == 1
        said = commits.wtxtgit("diff", "nothing", ok=(2,)).stderr
        assert b"no such file to compare with HEAD" in said
        said = commits.wtxtgit("diff", "HEAD:m/w.safetensors", ok=(2,), cwd="m").stderr
        assert b"HEAD:m/w.safetensors: a file of a commit, and none to compare it with" in said
        assert b"wtxtgit diff HEAD:m/w.safetensors w.safetensors compares" in said

    @staticmethod
    def found(repo: Repo, *sides: str, cwd: str = "") -> dict[str, Any]:
        done = repo.wtxtgit("diff", *sides, "--json", cwd=cwd)
        assert done.stderr == b""
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def test_two_commits(self, commits: Repo) -> None:
        found = self.found(commits, "HEAD~1:m/w.safetensors", "HEAD:m/w.safetensors")
        (tensor,) = found["tensors"]
        assert (tensor["row_ranges"], tensor["l2"], tensor["sign_flips"]) == ([[1, 2]], 4.0, 1)
        assert found["a"] == "HEAD~1:m/w.safetensors"

    @pytest.mark.parametrize(
        ("sides", "named"),
        [
            ("HEAD~1 HEAD", "review HEAD~1..HEAD"),
            ("HEAD~1", "review HEAD~1..HEAD"),
            ("HEAD~1..", "review HEAD~1.."),
            ("HEAD~1...HEAD w.safetensors", "review HEAD~1...HEAD"),
            ("HEAD~1 w.safetensors", "diff HEAD~1:m/w.safetensors w.safetensors"),
            ("w.safetensors HEAD~1", "diff w.safetensors HEAD~1:m/w.safetensors"),
        ],
    )
    def test_revisions_without_a_path(self, commits: Repo, sides: str, named: str) -> None:
        said = commits.wtxtgit("diff", *sides.split(), ok=(2,), cwd="m").stderr.decode()
        assert ": a revision, not a file of it\n" in said
        (hint,) = re.findall(r"hint: wtxtgit (.+?) shows", said)
        assert shlex.split(hint) == named.split()
        assert b"w.safetensors" in commits.wtxtgit(*named.split(), cwd="m").stdout

    def test_a_file_named_like_a_revision(self, commits: Repo) -> None:
        commits.write("HEAD", safetensors(1.0, -2.0, 3.0))
        assert self.found(commits, "HEAD:m/w.safetensors", "HEAD")["summary"]["same"] == 1

    def test_a_commit_and_a_file(self, commits: Repo) -> None:
        commits.write("m/w.safetensors", safetensors(1.0, -2.0, 4.0))
        found = self.found(commits, "HEAD:m/w.safetensors", "m/w.safetensors")
        assert found["tensors"][0]["row_ranges"] == [[2, 3]]
        beside = self.found(commits, "HEAD:./w.safetensors", "w.safetensors", cwd="m")
        assert beside["tensors"] == found["tensors"]

    def test_a_commit_and_another_name(self, commits: Repo) -> None:
        commits.write("copy.safetensors", safetensors(1.0, -2.0, 3.0))
        found = self.found(commits, "HEAD:m/w.safetensors", "copy.safetensors")
        assert found["summary"]["same"] == 1

    def test_a_raw_blob(self, commits: Repo) -> None:
        commits.add_raw("raw.safetensors", safetensors(5.0, -2.0, 3.0))
        commits.commit()
        found = self.found(commits, "HEAD:m/w.safetensors", "HEAD:raw.safetensors")
        assert found["tensors"][0]["row_ranges"] == [[0, 1]]

    @pytest.mark.parametrize(
        ("side", "code"), [("HEAD:nothing", 5), ("nowhere:m/w.safetensors", 5), ("HEAD:m", 3)]
    )
    def test_what_is_not_there(self, side: str, code: int, commits: Repo) -> None:
        done = commits.wtxtgit("diff", side, "HEAD:m/w.safetensors", ok=(code,))
        assert done.stdout == b""
        assert done.stderr.startswith(b"wtxtgit: error: ")


class TestFailures:
    @pytest.fixture
    def good(self, wtxtgit: Command) -> Path:
        path = wtxtgit.folder / "good.safetensors"
        path.write_bytes(safetensors(1.0, 2.0))
        return path

    @pytest.mark.parametrize(
        ("content", "code", "words"),
        [
            (b"", 3, "empty"),
            (b"junk", 3, "no known magic"),
            (struct.pack("<Q", 1 << 40) + b"{}", 3, "no known magic"),
            (b"WTXT 1\njunk\n", 1, "line 2"),
            (safetensors(1.0)[:-1], 3, ""),
        ],
    )
    def test_one_line_and_no_output(
        self, content: bytes, code: int, words: str, good: Path, wtxtgit: Command
    ) -> None:
        (wtxtgit.folder / "bad").write_bytes(content)
        for sides in (("bad", good), (good, "bad")):
            done = wtxtgit("diff", *sides)
            assert (done.code, done.out) == (code, b"")
            assert words in done.complaint()
            assert "bad" in done.complaint()

    def test_files_that_are_not_there(self, good: Path, wtxtgit: Command) -> None:
        assert wtxtgit("diff", good, "missing").code == 3
        assert wtxtgit("diff", good).code == 5, "there is no HEAD"
        assert wtxtgit("diff").code == 2
        assert wtxtgit("diff", good, good, "--format", "xml").code == 2

    def test_no_tensor_in_common(self, good: Path, wtxtgit: Command) -> None:
        (wtxtgit.folder / "other").write_bytes(safetensors(9.0, name="v"))
        done = wtxtgit("diff", good, "other")
        assert (done.code, done.err) == (0, "")
        assert "note: the two have no tensor in common" in done.out.decode().splitlines()

    def test_names_that_control_a_terminal_are_escaped(self, good: Path, wtxtgit: Command) -> None:
        for name, value in (("a", 0.0), ("b", 1.0)):
            api.dump({"x\x1b[31m\ny": np.full(3, value)}, wtxtgit.folder / f"{name}.wtxt")
        out = wtxtgit("diff", "a.wtxt", "b.wtxt").out
        assert b"\x1b" not in out
        assert b"x\\x1b[31m\\x0ay" in out

    def test_encrypted_parts_need_the_key(self, wtxtgit: Command) -> None:
        path = FIXTURES / "fold/encrypted_high_a.fold"
        without = as_json(wtxtgit, path, path)
        assert any("--key F" in note for note in without["notes"])
        (wtxtgit.folder / "key").write_bytes(bytes(range(32)))
        with_key = as_json(wtxtgit, path, path, "--key", "key")
        assert len(with_key["tensors"]) > len(without["tensors"])
        assert with_key["summary"]["same"] == len(with_key["tensors"])


class TestStoredHashes:
    """What `wtxtgit verify` would find in the second file and not in the first is a note."""

    @pytest.fixture
    def pair(self, wtxtgit: Command) -> tuple[Path, Path]:
        stale = aero.digest(aero.WEIGHTS)
        other = bytes(reversed(aero.WEIGHTS))
        tidx = aero.tidx(aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], 200, 200))
        files = wtxtgit.folder / "a.aero", wtxtgit.folder / "b.aero"
        for file, weights in zip(files, (aero.WEIGHTS, other), strict=True):
            file.write_bytes(aero.file([tidx, aero.shard(weights, digest=stale)]))
        return files

    def notes(self, wtxtgit: Command, *sides: str | Path) -> list[str]:
        said = wtxtgit("diff", *sides).out.decode().splitlines()
        told = [line.removeprefix("note: ") for line in said if line.startswith("note: ")]
        assert as_json(wtxtgit, *sides)["notes"] == told
        return told

    def test_one_that_no_longer_fits(self, pair: tuple[Path, Path], wtxtgit: Command) -> None:
        verdict = json.loads(wtxtgit("verify", pair[1], "--json").out)["files"][0]
        (error,) = (one for one in verdict["errors"] if one["kind"] == "blake3")
        (note,) = self.notes(wtxtgit, *pair)
        assert note.startswith(f'new error in {pair[1]}: chunk "{error["chunk"]}"')
        assert note.endswith(error["message"])
        assert self.notes(wtxtgit, pair[1], pair[0]) == []

    def test_one_that_did_not_fit_before(self, pair: tuple[Path, Path], wtxtgit: Command) -> None:
        before, after = pair
        twice = bytearray(after.read_bytes())
        twice[twice.index(bytes(reversed(aero.WEIGHTS)))] ^= 1
        before.write_bytes(bytes(twice))
        assert self.notes(wtxtgit, before, after) == []

    def test_in_texts(self, pair: tuple[Path, Path], wtxtgit: Command) -> None:
        texts = [path.with_suffix(".wtxt") for path in pair]
        for path, text in zip(pair, texts, strict=True):
            assert wtxtgit("emit", path, "-o", text).code == 0
        (note,) = self.notes(wtxtgit, *texts)
        assert note.startswith(f"new error in {texts[1]}: ")

    def test_very_many(self, wtxtgit: Command) -> None:
        names = [f"t{n}" for n in range(40)]
        stale = {"hash_b3": aero.digest(b"other").hex()}
        for file, more in (("a.aero", {}), ("b.aero", stale)):
            entries = [aero.entry(name, [10], 40 * n, 40) for n, name in enumerate(names)]
            weights = bytes(1600) if more else bytes([1] * 1600)
            chunks = [aero.tidx(*({**one, **more} for one in entries)), aero.shard(weights)]
            (wtxtgit.folder / file).write_bytes(aero.file(chunks))
        told = [note for note in self.notes(wtxtgit, "a.aero", "b.aero") if "b.aero" in note]
        assert len(told) == 21
        assert told[-1] == "20 more new problems in b.aero: wtxtgit verify lists them"


def test_a_page_replaces_no_checkpoint(wtxtgit: Command) -> None:
    """Whoever takes --html for a flag names the first file as the page."""
    (wtxtgit.folder / "old.safetensors").write_bytes(safetensors(1.0))
    (wtxtgit.folder / "new.safetensors").write_bytes(safetensors(2.0))
    done = wtxtgit("diff", "--html", "old.safetensors", "new.safetensors")
    message = "old.safetensors: not a page, so --html does not replace it"
    assert (done.code, done.complaint()) == (2, message)
    assert (wtxtgit.folder / "old.safetensors").read_bytes() == safetensors(1.0)
    for page in ("page.html", "page.html", "-", "/dev/null"):
        asked = ("old.safetensors", "new.safetensors", "--html", page)
        assert wtxtgit("diff", *asked).code == 0
    (wtxtgit.folder / "empty").touch()
    assert wtxtgit("inspect", "old.safetensors", "--html", "empty").code == 0
