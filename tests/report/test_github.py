"""Workflow commands: each a line, and what is in it can be no other one."""

from __future__ import annotations

from hypothesis import given

from tests.data import DATA
from tests.e2e.runner import commands
from tests.report.reports import ALL_KINDS, COMMIT, HOLDS, HOSTILE
from tests.report.test_sarif import REPORTS
from wtxtgit.report.audit import HINTS, AuditReport, Finding, Severity, hints
from wtxtgit.report.forge_findings import of_audit
from wtxtgit.report.forges import MOST, outputs, workflow_commands


def lines(report: AuditReport) -> list[str]:
    return list(workflow_commands(of_audit(report)))


def test_golden() -> None:
    text = "".join(f"{line}\n" for line in lines(HOSTILE))
    assert text == (DATA / "reports/hostile.github").read_text("utf-8")


def test_nothing_found() -> None:
    assert lines(HOLDS) == []
    assert outputs(of_audit(HOLDS)) == {"ok": "true", "findings": "0"}


@given(REPORTS)
def test_any_report(report: AuditReport) -> None:
    """A runner takes each line for one annotation, whatever is in it."""
    order = sorted(report.findings, key=lambda finding: finding.severity is Severity.WARNING)
    for line, finding in zip(lines(report), order, strict=True):
        assert line.isprintable()
        (command,) = commands(line)
        assert command.name == finding.severity
        assert command.properties["title"] == f"wtxtgit: {finding.kind}"
        assert set(command.properties) == ({"title", "file"} if finding.path else {"title"})
        assert command.value.endswith(f"\n{hints([finding])[finding.kind]}")


def test_what_it_says() -> None:
    (line,) = lines(AuditReport(1, findings=(Finding(COMMIT, b"a,b:c%", "unsealed", "50%\nx"),)))
    (command,) = commands(line)
    assert command.properties == {"title": "wtxtgit: unsealed", "file": "a,b:c%"}
    assert command.value == f"50%\\x0ax (commit 0123456789ab)\n{HINTS['unsealed']}"
    assert len(lines(ALL_KINDS)) == len(HINTS)


def test_errors_come_first_and_no_more_than_are_shown() -> None:
    warning = Finding(COMMIT, b"w", "unsealed", "m", Severity.WARNING)
    error = Finding(COMMIT, b"e", "unsealed", "m")
    found = lines(AuditReport(1, findings=(warning,) * MOST + (error,)))
    assert [line[: line.index(" ")] for line in found] == ["::error"] + ["::warning"] * (MOST - 1)


def test_outputs() -> None:
    assert outputs(of_audit(HOSTILE)) == {"ok": "false", "findings": str(len(HOSTILE.findings))}
    warning = Finding(COMMIT, b"w", "unsealed", "m", Severity.WARNING)
    assert outputs(of_audit(AuditReport(1, findings=(warning,)))) == {"ok": "true", "findings": "1"}
