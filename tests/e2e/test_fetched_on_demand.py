"""What commands fetch of detached texts whose data are elsewhere: what they read, and no more."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.e2e.test_delayed import SKIP
from tests.e2e.test_detached import ATTRIBUTES, NAME
from tests.kit import Repo
from tests.kit.templates import Templates
from wtxtgit.checkpoint.inspect_tensors import inspect_tensors
from wtxtgit.comparison.diff import diff
from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import TensorStatus

pytestmark = pytest.mark.slow

TENSORS = 5
SHAPE = (64, 512)
OPTIONS = ReadOptions()


def model(**changed: int) -> bytes:
    """Tensors t0 to t4 of 128 KiB, in two chunks each; of those that changed the first row did."""
    chance = np.random.default_rng(1)
    header, content = {}, b""
    for number in range(TENSORS):
        values = chance.standard_normal(SHAPE, dtype=np.float32)
        if seed := changed.get(f"t{number}"):
            values[0] = np.random.default_rng(seed).standard_normal(SHAPE[1], dtype=np.float32)
        offsets = [len(content), len(content) + values.nbytes]
        header[f"t{number}"] = {"dtype": "F32", "shape": list(SHAPE), "data_offsets": offsets}
        content += values.tobytes()
    spelled = json.dumps(header).encode()
    return struct.pack("<Q", len(spelled)) + spelled + content


def _make(folder: Path) -> None:
    run.git("init", "-q", str(folder / "repo"))
    repo = Repo(folder / "repo")
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write(NAME, model())
    repo.add()
    repo.commit()
    repo.git("config", "wtxtgit.store", (folder / "there").as_uri())
    for branch, version in {"main": model(t1=2), "side": model(t3=3)}.items():
        repo.git("checkout", "-q", "-B", branch, "HEAD" if branch == "main" else "main~1")
        repo.write(NAME, version)
        repo.git("commit", "-qam", branch)
        repo.wtxtgit("push")


@pytest.fixture
def clone(
    templates: Templates, tmp_path: Path, driver: None, monkeypatch: pytest.MonkeyPatch
) -> Repo:
    """A clone that has texts, and whose data lie in a folder."""
    folder = templates.copy("demand", _make, tmp_path / "world")
    made = Repo(folder / "clone")
    store = ("-c", f"wtxtgit.store={(folder / 'there').as_uri()}")
    Repo(folder).git("clone", "-q", *store, "repo", "clone", "-b", "main", env=SKIP)
    monkeypatch.chdir(made.path)
    return made


def came(clone: Repo) -> float:
    """The bytes that came, as a part of those that are there."""
    there = clone.path.parent / "there"
    own = clone.path / ".git/wtxt/store/packs"
    return _size(own) / _size(there)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.pack"))


class TestWhatComes:
    def test_a_diff_gets_the_tensors_that_differ(self, clone: Repo) -> None:
        report = diff(f"HEAD~1:{NAME}", f"HEAD:{NAME}", OPTIONS)
        (changed,) = report.of(TensorStatus.CHANGED)
        assert (changed.name, len(report.tensors)) == ("t1", TENSORS)
        assert 0.15 < came(clone) < 0.3

    def test_a_diff_of_git_gets_these_and_warns_of_nothing(self, clone: Repo) -> None:
        done = clone.run(run.executable(), "diff", "HEAD~1")
        assert b"t1" in done.stdout
        assert b"unchanged: 4 tensors" in done.stdout
        assert done.stderr == b""
        assert 0.15 < came(clone) < 0.3

    def test_a_review_gets_these_and_has_no_risk_of_others(self, clone: Repo) -> None:
        done = clone.wtxtgit("review", "HEAD~1..HEAD", "--json")
        (checkpoint,) = json.loads(done.stdout)["artifacts"]
        assert {flag["risk"] for flag in checkpoint["flags"]} == {"single-layer"}
        assert 0.15 < came(clone) < 0.3

    def test_inspecting_a_tensor_gets_that(self, clone: Repo) -> None:
        found = inspect_tensors(f"HEAD:{NAME}", OPTIONS, ["t2"])
        (tensor,) = found.tensors
        assert (tensor.name, tensor.array, tensor.shape) == ("t2", "t2", SHAPE)
        assert tensor.statistics is not None
        assert 0.15 < came(clone) < 0.25
        file = clone.path.parent / "file.safetensors"
        file.write_bytes(model(t1=2))
        assert inspect_tensors(str(file), OPTIONS, ["t2"]).tensors == found.tensors

    def test_rows_of_an_array_get_their_chunks(self, clone: Repo) -> None:
        with wtxtgit.open(NAME) as text:
            first = text["t0"][:4]
        wanted = np.frombuffer(model()[-TENSORS * 131072 :], np.float32)[: first.size]
        assert first.tobytes() == wanted.tobytes()
        assert 0.05 < came(clone) < 0.15

    def test_loading_gets_the_file(self, clone: Repo) -> None:
        assert {"t0", "t4"} < wtxtgit.load(NAME).keys()
        assert came(clone) > 0.9

    def test_a_merge_gets_what_it_lacks(self, clone: Repo) -> None:
        clone.git("merge", "-q", "--no-edit", "origin/side")
        assert (clone.path / NAME).read_bytes() == model(t1=2, t3=3)
        assert clone.status() == b""

    def test_what_only_looks_gets_nothing(self, clone: Repo) -> None:
        clone.wtxtgit("status")
        clone.wtxtgit("ls-files")
        clone.wtxtgit("log", NAME)
        clone.wtxtgit("verify", NAME)
        clone.wtxtgit("check", "--staged")
        clone.git("blame", NAME)
        clone.git("log", "-p", "--no-ext-diff")
        clone.git("status")
        assert came(clone) == 0


class TestWhatDoesNotCome:
    def test_without_leave_it_is_told_what_brings_it(self, clone: Repo) -> None:
        clone.git("config", "wtxtgit.fetch", "false")
        with pytest.raises(CheckError, match="not available here"):
            diff(f"HEAD~1:{NAME}", f"HEAD:{NAME}", OPTIONS)
        assert came(clone) == 0

    def test_a_remote_of_the_tree_alone_is_not_asked(self, clone: Repo) -> None:
        there = clone.path.parent / "there"
        clone.git("config", "--unset", "wtxtgit.store")
        clone.write(".wtxt/store", f"[store]\n\turl = {there.as_uri()}\n")
        with pytest.raises(CheckError, match="not available here"):
            inspect_tensors(f"HEAD:{NAME}", OPTIONS, ["t2"])
        assert came(clone) == 0

    def test_a_damaged_pack_is_named(self, clone: Repo) -> None:
        packs = sorted((clone.path.parent / "there").glob("*.pack"))
        for pack in packs:
            content = bytearray(pack.read_bytes())
            content[16:1000] = bytes(984)
            pack.chmod(0o644)
            pack.write_bytes(content)
        with pytest.raises(EnvironmentFailure, match=r"pack [0-9a-f]{64} "):
            wtxtgit.load(NAME)

    def test_a_remote_that_is_gone_ends_the_command(self, clone: Repo) -> None:
        clone.git("config", "wtxtgit.store", "git+https://127.0.0.1:1/gone.git")
        done = clone.wtxtgit("diff", f"HEAD~1:{NAME}", f"HEAD:{NAME}", ok=(5,))
        assert b"127.0.0.1" in done.stderr
        # A merge keeps ours, and says so.
        merged = clone.run(run.executable(), "merge", "origin/side", ok=(1,))
        assert b"127.0.0.1" in merged.stderr
        assert b"ours is kept" in merged.stderr
