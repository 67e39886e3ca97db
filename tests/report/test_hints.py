"""What is to be done about findings, as commands for a shell."""

from __future__ import annotations

import shlex

import pytest

from wtxtgit.report import audit, check
from wtxtgit.report.audit import Finding
from wtxtgit.report.check import CheckReport, Occasion

PATH = "a 'PATH' $(x); LEDGER COMMIT.fold"


@pytest.mark.parametrize("kind", sorted(check.HINTS))
@pytest.mark.parametrize("occasion", list(Occasion))
def test_names_are_quoted(kind: str, occasion: Occasion) -> None:
    said = check.hint(Finding("", PATH.encode(), kind, ""), CheckReport(occasion=occasion))
    spelled = {shlex.quote(PATH), shlex.quote(f"{PATH}.wsum")}
    for name in spelled:
        said = said.replace(name, "")
    assert "PATH" not in said
    assert "LEDGER" not in said


@pytest.mark.parametrize("kind", sorted(audit.HINTS))
def test_hints_of_commits(kind: str) -> None:
    said = audit.hint(Finding("1" * 40, PATH.encode(), kind, ""))
    for name in (shlex.quote(PATH), shlex.quote(f"{PATH}.wsum")):
        said = said.replace(name, "")
    assert "COMMIT" not in said
    assert "PATH" not in said


def test_every_kind_of_the_audit_has_a_hint_before_the_commit() -> None:
    assert set(audit.HINTS) - set(check.HINTS) == {"shallow"}


def test_a_merge_and_a_commit_of_unstaged_files_are_told_of_their_own_ways() -> None:
    finding = Finding("", b"m.fold", "content-mismatch", "")
    assert check.hint(finding) == "wtxtgit seal --staged -- m.fold"
    assert check.hint(finding, CheckReport(occasion=Occasion.MERGE)).startswith(
        "wtxtgit seal --reseal -- m.fold"
    )
    assert check.hint(finding, CheckReport(occasion=Occasion.UNSTAGED)).startswith(
        "git add -- m.fold && "
    )
