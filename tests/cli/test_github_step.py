"""`--format github` of audit, check and review: what a step leaves, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


class TestOtherCommands:
    def test_check(self, wtxtgit: Command, given: dict[str, str], tmp_path: Path) -> None:
        done = wtxtgit("check", "--staged", "--format", "github", env=given)
        assert (done.code, done.err) == (1, "")
        first, *_ = commands(done.out.decode())
        assert (first.name, first.properties) == (
            "error",
            {"title": "wtxtgit: raw-binary", "file": "##[error].fold"},
        )
        assert first.value.endswith("git add --renormalize -- '##[error].fold'")
        assert b"\nFAILED: 1 file checked" in done.out
        report = self.left(wtxtgit, tmp_path, "### wtxtgit check: FAILED", "check", "--staged")
        assert report["ok"] is False

    def test_review(self, wtxtgit: Command, given: dict[str, str], tmp_path: Path) -> None:
        repo = Repo(wtxtgit.folder)
        repo.write("other", "x")
        repo.add("other")
        base = repo.commit()
        repo.add_raw("##[error].fold", b"raw, too")
        head = repo.commit()
        done = wtxtgit("review", f"{base}..HEAD", "--format", "github", env=given)
        assert (done.code, done.err) == (0, ""), "it informs"
        found = commands(done.out.decode())
        assert {one.properties["file"] for one in found} == {"##[error].fold"}
        assert found[0].name == "error"
        assert found[0].properties["title"] == "wtxtgit: raw-binary"
        assert b"\n##[error].fold: changed" in done.out
        report = self.left(
            wtxtgit, tmp_path, "### wtxtgit review: 1 checkpoint", "review", f"{base}..HEAD"
        )
        assert report["head_commit"] == head

    def left(self, wtxtgit: Command, folder: Path, title: str, *words: str) -> dict[str, Any]:
        """The report that a step left, beside summary and outputs."""
        assert (folder / "summary").read_text().startswith(f"before\n{title}")
        before, ok, findings, path = (folder / "output").read_text().splitlines()
        assert (before, ok) == ("before", "ok=false")
        assert int(findings.removeprefix("findings=")) > 0
        left = Path(path.removeprefix("json="))
        assert left.parent == folder
        report: dict[str, Any] = json.loads(left.read_bytes())
        assert report["notes"] == json.loads(wtxtgit(*words, "--json").out)["notes"]
        return report

    def test_sarif(self, wtxtgit: Command, given: dict[str, str], tmp_path: Path) -> None:
        done = wtxtgit("check", "--staged", "--format", "sarif", env=given)
        assert done.code == 1
        (run,) = json.loads(done.out)["runs"]
        assert run["results"][0]["ruleId"] == "raw-binary"
        done = wtxtgit("review", "HEAD..HEAD", "--format", "sarif", "-o", "review.sarif")
        assert (done.code, done.out) == (0, b"")
        (run,) = json.loads((wtxtgit.folder / "review.sarif").read_bytes())["runs"]
        assert (run["automationDetails"]["id"], run["results"]) == ("review/", [])
        assert (tmp_path / "output").read_text() == "before\n"

    def test_a_runner_reads_what_is_printed(self, wtxtgit: Command, given: dict[str, str]) -> None:
        done = wtxtgit("review", "HEAD..HEAD", "--format", "github", "-o", "x", env=given)
        assert done.code == 2
        assert "no -o" in done.complaint()
