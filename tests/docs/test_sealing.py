"""docs/sealing.md: its commands in order, each with what it prints."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.docs.pages import ROOT, blocks, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.report.audit import HINTS, AuditReport, Finding, Severity, hint

PAGE = "docs/sealing.md"


@pytest.mark.slow
def test_the_examples_do_what_the_page_shows(tmp_path: Path, home: Path) -> None:
    assert home.is_dir()
    for step in (1, 2, 3):
        save_file({"w": np.full((8, 8), step, "f4")}, tmp_path / f"step{step}.safetensors")
    folder = tmp_path / "work"
    folder.mkdir()
    for step in (1, 2, 3):
        (tmp_path / f"step{step}.safetensors").rename(folder / f"step{step}.safetensors")
    done = run(steps(*blocks(PAGE, "console")), folder)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 20


def kinds() -> list[tuple[str, str, int]]:
    """The table's kinds, each with its severity and exit code; a row without kinds goes on."""
    found: list[tuple[str, str, int]] = []
    named: list[str] = []
    for row in tables(PAGE, "The audit")[0]:
        named = spans(row[0]) or named
        found += [(kind, row[1], int(row[2])) for kind in named]
    return found


def test_every_kind_is_explained() -> None:
    assert {kind for kind, _, _ in kinds()} == set(HINTS)
    assert len(kinds()) == len(set(kinds()))


@pytest.mark.parametrize(("kind", "severity", "code"), kinds())
def test_severities_and_exit_codes(kind: str, severity: str, code: int) -> None:
    finding = Finding("", b"m", kind, "", Severity(severity))
    assert AuditReport(1, findings=(finding,)).exit_code == code


def test_what_may_be_a_warning() -> None:
    told = {kind for kind, severity, _ in kinds() if severity == "warning"}
    assert told == found_as_warnings()
    for kind in HINTS:
        words = {hint(Finding("", b"m", kind, "", severity)) for severity in Severity}
        assert (len(words) == 2) == (kind in told)


def found_as_warnings() -> set[str]:
    """Kinds that stand in the code beside another severity than that of errors."""
    found = set()
    for file in sorted((ROOT / "wtxtgit/chain").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            parts = node.elts if isinstance(node, ast.Tuple) else []
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
                parts = node.args
            if parts and ast.unparse(parts[-1]) in ("_WARNING", "Severity.WARNING", "severity"):
                words = {part.value for part in parts if isinstance(part, ast.Constant)}
                found |= words & set(HINTS)
    return found
