"""Audits, checks and reviews as forges are told of them: one form, the same promises."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote_to_bytes

import pytest

from tests.e2e.runner import commands
from tests.report import reviews
from tests.report.reports import ALL_KINDS, HOSTILE, HOSTILE_PATHS
from tests.report.test_sarif import fingerprint, place, valid_run
from wtxtgit.report import check
from wtxtgit.report.audit import Finding, Severity
from wtxtgit.report.check import CheckReport, Occasion
from wtxtgit.report.forge_findings import RISKS, of_audit, of_check, of_review
from wtxtgit.report.forges import MOST, ForgeReport, outputs, workflow_commands
from wtxtgit.report.review import SEVERE, Flag, Review, Risk

CHECKED = CheckReport(
    findings=(
        *(Finding("", path, "raw-binary", "a binary\n::error::") for path in HOSTILE_PATHS),
        *(Finding("", b"m", kind, "m") for kind in check.HINTS),
        Finding("", b"", "bad-root", "the history does not descend from it"),
        Finding("", b"m", "large-blob", "90 MiB", Severity.WARNING),
    ),
    notes=("a shallow clone\n::error::",),
)
REPORTS = [
    of_audit(HOSTILE),
    of_audit(ALL_KINDS),
    of_check(CHECKED),
    of_check(CheckReport()),
    of_review(reviews.sample()),
    of_review(reviews.hostile()),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.command)
def test_code_scanning_takes_it(report: ForgeReport) -> None:
    run = valid_run(report)
    # Of one tool, what is uploaded replaces that of the same category.
    assert run["automationDetails"]["id"] == f"{report.command}/"
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(report.rules)
    for result, finding in zip(run["results"], report.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.kind
        assert result["level"] == finding.severity
        assert result["message"]["text"].isprintable()
        assert unquote_to_bytes(place(result)) == (finding.path or b".wtxt/signers")
    assert len(set(map(fingerprint, run["results"]))) == len(run["results"])


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.command)
def test_a_runner_takes_a_line_for_each(report: ForgeReport) -> None:
    found = list(workflow_commands(report))
    assert len(found) == min(len(report.findings), MOST)
    kinds = []
    for line in found:
        assert line.isprintable()
        (command,) = commands(line)
        assert set(command.properties) <= {"title", "file"}
        kinds.append(command.name)
    assert kinds == sorted(kinds), "errors first"
    wanted = {"ok": str(report.ok).lower(), "findings": str(len(report.findings))}
    assert outputs(report) == wanted


class TestChecks:
    def test_a_hint_can_be_pasted(self) -> None:
        finding = Finding("", b"a b.fold", "content-mismatch", "m")
        for occasion in Occasion:
            (found,) = of_check(CheckReport(findings=(finding,), occasion=occasion)).findings
            assert found.hint == check.hint(finding, CheckReport(occasion=occasion))
            assert "'a b.fold'" in found.hint

    def test_it_is_ok_where_the_check_is(self) -> None:
        warning = Finding("", b"m", "unsealed", "m", Severity.WARNING)
        assert of_check(CheckReport(findings=(warning,))).ok
        assert not of_check(CheckReport(findings=(replace(warning, severity=Severity.ERROR),))).ok


class TestReviews:
    def flagged(self, *flags: Flag) -> ForgeReport:
        one = reviews.reviewed(b"m.safetensors", [], flags)
        return of_review(Review("main", "topic", "1" * 40, "2" * 40, 1, (one,)))

    def test_every_risk_is_a_rule(self) -> None:
        assert list(RISKS) == list(map(str, Risk))
        rules = of_review(reviews.sample()).rules
        severe = {kind for kind, rule in rules.items() if rule.severity is Severity.ERROR}
        assert severe == set(map(str, SEVERE))

    def test_what_a_merge_should_wait_for_is_an_error(self) -> None:
        report = self.flagged(Flag(Risk.SINGLE, "layers.1 alone"), Flag(Risk.NEW_NAN, "1", "w"))
        assert [one.severity for one in report.findings] == [Severity.WARNING, Severity.ERROR]
        assert not report.ok
        assert self.flagged(Flag(Risk.SINGLE, "layers.1 alone")).ok
        assert self.flagged().ok

    def test_a_tensor_is_named(self) -> None:
        report = self.flagged(Flag(Risk.NEW_NAN, "1 item of 4 became NaN", "w" * 500))
        (found,) = report.findings
        assert found.message.endswith("www: 1 item of 4 became NaN")
        assert len(found.message) < 200
        assert found.path == b"m.safetensors"

    def test_tensors_are_followed_from_run_to_run(self) -> None:
        """Whatever is flagged besides, and however it is worded."""
        first = Flag(Risk.NEW_NAN, "1 item of 4 became NaN", "a")
        second = Flag(Risk.NEW_NAN, "2 items of 4 became NaN", "b")
        both = valid_run(self.flagged(first, second))["results"]
        (alone,) = valid_run(self.flagged(replace(second, message="other")))["results"]
        assert fingerprint(alone) == fingerprint(both[1])
