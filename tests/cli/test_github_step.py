"""`wtxtgit audit --format github`: what a step leaves, and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command, Done
from tests.e2e.runner import commands
from tests.kit import Repo


@pytest.fixture
def given(wtxtgit: Command, tmp_path: Path) -> dict[str, str]:
    """A repository with a tracked binary, and the files that a runner gives to a step."""
    repo = Repo(wtxtgit.folder)
    repo.git("init", "-q")
    repo.track("*.fold")
    repo.add_raw("##[error].fold", b"raw")
    repo.commit()
    names = {"GITHUB_STEP_SUMMARY": "summary", "GITHUB_OUTPUT": "output"}
    for name in names.values():
        (tmp_path / name).write_text("before\n")
    found = {variable: str(tmp_path / name) for variable, name in names.items()}
    return {**found, "RUNNER_TEMP": str(tmp_path)}


def audit(wtxtgit: Command, env: dict[str, str]) -> Done:
    done = wtxtgit("audit", "--format", "github", env=env)
    assert (done.code, done.err) == (1, "")
    found = commands(done.out.decode())
    assert [(one.name, one.properties["title"]) for one in found] == [
        ("error", "wtxtgit: raw-binary"),
        ("warning", "wtxtgit: unsealed"),
    ]
    assert {one.properties["file"] for one in found} == {"##[error].fold"}
    assert b"FAILED: 1 commit judged" in done.out
    return done


def test_what_a_step_leaves(wtxtgit: Command, given: dict[str, str], tmp_path: Path) -> None:
    audit(wtxtgit, given)
    before, summary = (tmp_path / "summary").read_text().split("\n", 1)
    assert (before, summary.partition("\n")[0]) == ("before", "### wtxtgit audit: FAILED")
    lines = (tmp_path / "output").read_text().splitlines()
    assert lines[:3] == ["before", "ok=false", "findings=2"]
    name, _, path = lines[3].partition("=")
    assert name == "json"
    assert Path(path).parent == tmp_path
    told = wtxtgit("audit", "--json")
    assert json.loads(Path(path).read_bytes()) == json.loads(told.out)


@pytest.mark.slow
def test_each_run_has_a_report_of_its_own(
    wtxtgit: Command, given: dict[str, str], tmp_path: Path
) -> None:
    audit(wtxtgit, given)
    audit(wtxtgit, given)
    assert len(list(tmp_path.glob("wtxtgit-audit-*.json"))) == 2


@pytest.mark.slow
def test_without_a_runner(wtxtgit: Command, given: dict[str, str], tmp_path: Path) -> None:
    audit(wtxtgit, {})
    audit(wtxtgit, dict.fromkeys(given, ""))
    audit(wtxtgit, {"GITHUB_OUTPUT": given["GITHUB_OUTPUT"]})
    assert (tmp_path / "summary").read_text() == "before\n"
    assert (tmp_path / "output").read_text() == "before\nok=false\nfindings=2\n"
    assert not list(tmp_path.glob("wtxtgit-audit-*"))


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_other_formats_leave_nothing(
    wtxtgit: Command, given: dict[str, str], tmp_path: Path, form: str
) -> None:
    assert wtxtgit("audit", "--format", form, env=given).code == 1
    assert (tmp_path / "summary").read_text() == (tmp_path / "output").read_text() == "before\n"


@pytest.mark.parametrize("variable", ["GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "RUNNER_TEMP"])
def test_a_place_that_cannot_be_written(
    wtxtgit: Command, given: dict[str, str], tmp_path: Path, variable: str
) -> None:
    (tmp_path / "file").touch()
    done = wtxtgit("audit", "--format", "github", env={**given, variable: str(tmp_path / "file/x")})
    assert done.code == 5
    assert "not a directory" in done.complaint()
