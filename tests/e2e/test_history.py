"""`wtxtgit history`: versions along the commits, and the values of their tensors."""

from __future__ import annotations

import json
import shutil
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.sealed import MODEL, Sealed
from tests.kit import Repo, text_of
from tests.review.repos import file, put, started, weights
from wtxtgit.cli.history import sparkline
from wtxtgit.git.repository import Repository
from wtxtgit.report.figures import size
from wtxtgit.review import history
from wtxtgit.review.history import HistoryRequest, life
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import DETACHED_MAGIC

pytestmark = pytest.mark.slow


def told(repo: Repo, *arguments: str) -> dict[str, Any]:
    done = repo.wtxtgit("history", MODEL, "--json", *arguments)
    assert done.stderr == b""
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def series(report: dict[str, Any], kind: str, name: str, key: str) -> list[float | None]:
    (found,) = [one for one in report[kind] if one["name"] == name]
    return [None if point is None else point[key] for point in found["points"]]


@pytest.fixture
def versions(repo: Repo) -> tuple[Repo, list[dict[str, Any]]]:
    """Four contents of a checkpoint that nobody seals, and a commit between that leaves it."""
    first = weights(layers=2)
    second = first | {"layers.0.q": first["layers.0.q"] * np.float32(1.5)}
    third = second | {"new": np.array([0, 0, 3, np.nan], "f4")}
    fourth = {name: value for name, value in third.items() if name != "head"}
    fourth["moved"] = third["head"]
    contents = [first, second, third, fourth]
    started(repo, first)
    for number, content in enumerate(contents[1:]):
        put(repo, content)
        repo.commit(f"step {number + 2}")
        repo.write("readme", str(number))
        repo.add("readme")
        repo.commit("words")
    return repo, contents


def test_each_content_is_a_version(versions: tuple[Repo, list[dict[str, Any]]]) -> None:
    repo, contents = versions
    report = told(repo)
    assert [one["subject"] for one in report["versions"]] == ["base", "step 2", "step 3", "step 4"]
    assert [one["tensors"] for one in report["versions"]] == [5, 5, 6, 6]
    keys = ("changed", "added", "removed", "renamed")
    assert [[one[key] for key in keys] for one in report["versions"]] == [
        [None, None, None, None],
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 0, 1],
    ]
    assert all("gen" not in one and "reason" not in one for one in report["versions"])
    assert report["versions"][-1]["commit"] == repo.git("rev-parse", "HEAD~1").decode().strip()
    assert report["versions"][0]["file_size"] == len(file(contents[0]))


def test_values_are_those_of_numpy(versions: tuple[Repo, list[dict[str, Any]]]) -> None:
    repo, contents = versions
    report = told(repo)
    before, after = (np.linalg.norm(one["layers.0.q"].astype("f8")) for one in contents[:2])
    norms = series(report, "tensors", "layers.0.q", "norm")
    for norm, wanted in zip(norms, (before, after, after, after), strict=True):
        assert norm is not None
        assert isclose(norm, wanted, rel_tol=1e-12)
    changes = series(report, "tensors", "layers.0.q", "relative_change")
    assert changes[0] is None
    assert isclose(changes[1] or 0, 0.5, rel_tol=1e-6)
    assert changes[2:] == [0, 0]
    # Of a layer the change is that of its tensors that changed.
    assert series(report, "layers", "layers.0", "relative_change") == changes
    names = [one["name"] for one in report["tensors"][:2]]
    assert names == ["new", "layers.0.q"], "NaN comes first, then what changed most"
    assert series(report, "tensors", "new", "zeros_share") == [None, None, 0.5, 0.5]
    assert series(report, "tensors", "new", "nan") == [None, None, 1, 1]
    # A tensor under another name keeps its numbers.
    head = series(report, "tensors", "head", "norm")
    assert series(report, "tensors", "moved", "norm") == [None, None, None, head[2]]


def test_no_number_is_computed_twice(
    versions: tuple[Repo, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, _ = versions
    counted: list[str] = []
    real = history.statistics

    def counting(tensor: Any) -> Any:
        counted.append(tensor.name)
        return real(tensor)

    monkeypatch.setattr(history, "statistics", counting)
    monkeypatch.chdir(repo.path)
    life(Repository.discover(), HistoryRequest(MODEL))
    assert sorted(counted) == [
        "head",
        "layers.0.k",
        "layers.0.q",
        "layers.1.k",
        "layers.1.q",
        "new",
    ]


def test_of_chosen_tensors_no_other_is_read(versions: tuple[Repo, list[dict[str, Any]]]) -> None:
    repo, contents = versions
    whole = text_of(file(contents[0]))
    lines = whole.split(b"\n")
    at = next(n for n, line in enumerate(lines) if b"layers_1_k" in line)
    # A letter of the second line of data, after those that begin array, index and chunk.
    data = lines[at + 4]
    lines[at + 4] = (b"B" if data[:1] == b"A" else b"A") + data[1:]
    repo.write(MODEL, b"\n".join(lines))
    repo.git("-c", "filter.wtxt.clean=", "-c", "filter.wtxt.process=", "add", MODEL)
    repo.commit("damaged")
    (damaged,) = told(repo, "-n", "1")["versions"]
    assert "layers_1_k" in damaged["reason"]
    report = told(repo, "--tensor", "layers.0.*", "-n", "2")
    assert [one.get("reason") for one in report["versions"]] == [None, None]
    assert {one["name"] for one in report["tensors"]} == {"layers.0.q", "layers.0.k"}


def test_what_cannot_be_read_has_a_reason_and_is_passed_by(repo: Repo) -> None:
    first = weights(layers=1)
    started(repo, first)
    repo.add_raw(MODEL, b"no checkpoint at all")
    repo.commit("broken")
    put(repo, first | {"head": first["head"] * 2})
    repo.commit("mended")
    report = told(repo)
    assert ["reason" in one for one in report["versions"]] == [False, True, False]
    assert series(report, "tensors", "head", "relative_change") == [None, None, 1]
    assert series(report, "tensors", "layers.0.q", "relative_change") == [None, None, 0]
    lines = repo.wtxtgit("history", MODEL).stdout.decode().splitlines()
    assert any("not a known checkpoint" in line for line in lines)


def test_of_a_detached_text(repo: Repo, driver: None) -> None:
    repo.write(".gitattributes", "*.safetensors filter=wtxt-detached diff=wtxt merge=wtxt -text\n")
    body = np.ones((300, 200), "f4")
    for head in (np.ones(40_000, "f4"), np.zeros(40_000, "f4")):
        repo.write(MODEL, file({"body": body, "head": head}))
        repo.add()
        repo.commit()
        assert repo.blob(MODEL, "HEAD").startswith(DETACHED_MAGIC)
    report = told(repo)
    assert series(report, "tensors", "head", "zeros_share") == [0, 1]
    assert series(report, "tensors", "body", "relative_change") == [None, 0]
    shutil.rmtree(store_of(Repository.discover(repo.path)).folder)
    lacking = told(repo, "--tensor", "body")["versions"]
    assert all("payload" in one["reason"] for one in lacking)


def test_generations_are_told_with_their_signers(chain: Sealed, tmp_path: Path) -> None:
    chain.generation(2.0)
    chain.put(3.0)
    chain.commit("nobody seals this")
    chain.git("mv", MODEL, "moved.safetensors")
    chain.git("mv", f"{MODEL}.wsum", "moved.safetensors.wsum")
    chain.put(4.0, name="moved.safetensors")
    chain.seal("moved.safetensors")
    chain.commit("moved")
    report = chain.call("history", "moved.safetensors", "--json", "--trust-root", "root").report
    versions = report["versions"]
    assert [one.get("gen") for one in versions] == [1, 2, None, 3]
    assert [one.get("signers") for one in versions] == [
        ["alice@example.com"],
        ["alice@example.com"],
        None,
        ["alice@example.com"],
    ]
    assert [one["path"] for one in versions] == [MODEL, MODEL, MODEL, "moved.safetensors"]
    (norms,) = [one["points"] for one in report["tensors"] if one["name"] == "first"]
    assert [round(one["norm"] / norms[0]["norm"]) for one in norms] == [1, 2, 3, 4]
    said = chain.call("history", "moved.safetensors", "-n", "2").out
    assert "moved.safetensors: 2 versions" in said
    assert "alice@example.com" in said


def test_a_version_that_was_moved_keeps_its_generation(chain: Sealed) -> None:
    """A move that is sealed is a generation of its own, and not a version."""
    chain.generation(2.0)
    chain.git("mv", MODEL, "moved.safetensors")
    chain.git("mv", f"{MODEL}.wsum", "moved.safetensors.wsum")
    chain.seal("moved.safetensors")
    chain.commit("moved")
    logged = chain.call("log", "moved.safetensors", "--json").report["generations"]
    assert [one["gen"] for one in logged] == [3, 2, 1]
    versions = chain.call("history", "moved.safetensors", "--json").report["versions"]
    assert [(one["gen"], one["commit"]) for one in versions] == [
        (one["gen"], one["commit"]) for one in logged[:0:-1]
    ]


def test_a_version_that_is_sealed_later_has_that_generation(chain: Sealed) -> None:
    chain.put(2.0)
    chain.commit("not sealed")
    chain.seal()
    chain.commit("sealed")
    versions = chain.call("history", MODEL, "--json").report["versions"]
    assert [one["gen"] for one in versions] == [1, 2]


def test_sizes_are_those_of_the_file(repo: Repo) -> None:
    """The blob, a text, is a third larger."""
    started(repo, weights(layers=2))
    (one,) = told(repo)["versions"]
    assert one["size"] > one["file_size"]
    title, row = repo.wtxtgit("history", MODEL).stdout.decode().splitlines()[2:4]
    assert "file size" in title
    assert size(one["file_size"]) in row
    assert size(one["size"]) not in row
    page = repo.wtxtgit("history", MODEL, "--html", "-").stdout.decode()
    assert f">{size(one['file_size'])}<" in page
    assert size(one["size"]) not in page


def test_what_is_not_there(repo: Repo) -> None:
    started(repo, weights(layers=1))
    done = repo.wtxtgit("history", "none.safetensors", ok=(3,))
    assert b"no commit of HEAD has it" in done.stderr
    done = repo.wtxtgit("history", MODEL, "--tensor", "none", ok=(2,))
    assert b"no tensor matches" in done.stderr


def test_lines_are_drawn_between_the_least_and_the_largest() -> None:
    assert sparkline([1.0, 2.0, None, 8.0]) == "\u2581\u2582\u00b7\u2588"
    assert sparkline([4.0, 8.0], low=0.0) == "\u2585\u2588"
    assert sparkline([3.0, 3.0]) == "\u2581\u2581"
