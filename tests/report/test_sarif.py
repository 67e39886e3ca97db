"""SARIF: the published schema, places as URI references, fingerprints, the golden text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from tests.data import DATA
from tests.report.reports import ALL_KINDS, COMMIT, HOLDS, HOSTILE, HOSTILE_PATHS
from wtxtgit.model.ledger import SIGNERS_PATH
from wtxtgit.report.audit import HINTS, UNTRUSTED, AuditReport, Finding, Severity
from wtxtgit.report.check import HINTS as CHECKED
from wtxtgit.report.forge_findings import ABOUT, of_audit
from wtxtgit.report.forges import SCHEMA, ForgeReport, sarif

_URI_REFERENCE = re.compile(r"(?:[\w.~/@!$&'()*+,;=-]|%[0-9A-F]{2})+", re.ASCII)

FINDINGS = st.builds(
    Finding,
    st.sampled_from(["", COMMIT]),
    st.binary(max_size=40).map(lambda path: path.replace(b"\0", b"")),
    st.sampled_from(list(HINTS)),
    st.text(max_size=40)
    | st.binary(max_size=40).map(lambda m: m.decode("utf-8", "surrogateescape")),
    st.sampled_from(Severity),
)
REPORTS = st.builds(
    AuditReport,
    st.integers(0, 9),
    signers=st.lists(st.text(max_size=20), max_size=2).map(tuple),
    findings=st.lists(FINDINGS, max_size=5).map(tuple),
    notes=st.lists(st.text(max_size=20), max_size=2).map(tuple),
)


@cache
def validator() -> Draft7Validator:
    schema = json.loads((DATA / "sarif/sarif-schema-2.1.0.json").read_bytes())
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def valid_run(report: ForgeReport) -> dict[str, Any]:
    """The one run of a log that is valid."""
    log: dict[str, Any] = json.loads(json.dumps(sarif(report, "1.2.3")))
    validator().validate(log)
    (run,) = log["runs"]
    return dict(run)


def run_of(report: AuditReport) -> dict[str, Any]:
    return valid_run(of_audit(report))


def place(result: dict[str, Any]) -> str:
    (location,) = result["locations"]
    found: dict[str, Any] = location["physicalLocation"]["artifactLocation"]
    assert found["uriBaseId"] == "%SRCROOT%"
    assert _URI_REFERENCE.fullmatch(found["uri"]), found
    return str(found["uri"])


def fingerprint(result: dict[str, Any]) -> str:
    return str(result["partialFingerprints"]["primaryLocationLineHash"])


@pytest.mark.parametrize("report", [HOLDS, HOSTILE, ALL_KINDS])
def test_the_schema_holds(report: AuditReport) -> None:
    assert len(run_of(report)["results"]) == len(report.findings)


def test_the_schema_refuses() -> None:
    log: Any = sarif(of_audit(HOSTILE), "1")
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert list(validator().iter_errors(log))
    assert list(validator().iter_errors({"version": "2.1.0"}))


def test_the_schema_is_the_one_that_is_named() -> None:
    named = json.loads((DATA / "sarif/sarif-schema-2.1.0.json").read_bytes())["$id"]
    assert SCHEMA.rpartition("/")[2] == named.rpartition("/")[2]


@given(REPORTS)
def test_any_report(report: AuditReport) -> None:
    results = run_of(report)["results"]
    assert [unquote_to_bytes(place(result)) for result in results] == [
        finding.path or SIGNERS_PATH for finding in report.findings
    ]
    for result in results:
        assert result["message"]["text"].isprintable()
    assert len({fingerprint(result) for result in results}) == len(results)


def test_names_make_no_links() -> None:
    """Of `[text](url)` in a plain message viewers make a link (SARIF 2.1.0, 3.11.6)."""
    named = "[the record](https://example.com) \\[of](https://example.com)"
    finding = Finding(COMMIT, b"m.fold", "unsealed", f"tensor {named}: m")
    run = run_of(AuditReport(1, findings=(finding,), notes=(named,)))
    (result,), (invocation,) = run["results"], run["invocations"]
    (note,) = invocation["toolExecutionNotifications"]
    for shown in (result["message"], note["message"]):
        assert "](" not in shown["text"]
        assert "https://example.com" in shown["text"]


def test_paths_are_uri_references() -> None:
    found = [place(r) for r in run_of(HOSTILE)["results"] if r["ruleId"] == "raw-binary"]
    assert [unquote_to_bytes(uri) for uri in found] == list(HOSTILE_PATHS)
    assert "not%20utf-8%20%FF%FE.fold" in found
    assert "%252e%252e/a%3Ab%3Fc%23d%2Ce%3Bf.fold" in found


def test_every_kind_is_a_rule() -> None:
    assert set(ABOUT) == set(HINTS) | set(CHECKED)
    rules = run_of(HOLDS)["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(HINTS)
    for rule in rules:
        assert re.fullmatch(r"[A-Z].*\.", rule["shortDescription"]["text"])
        assert rule["fullDescription"] == rule["shortDescription"]
        assert rule["help"]["text"] == HINTS[rule["id"]]
        assert ("trust" in rule["properties"]["tags"]) == (rule["id"] in UNTRUSTED)
    all_of_them = run_of(ALL_KINDS)
    rules = all_of_them["tool"]["driver"]["rules"]
    for result in all_of_them["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_severities() -> None:
    levels = [(r["ruleId"], r["level"]) for r in run_of(HOSTILE)["results"]]
    assert ("unsealed", "warning") in levels
    assert {level for kind, level in levels if kind != "unsealed"} == {"error"}


class TestFingerprints:
    """Forges follow a finding from one run to the next by them."""

    def of(self, *findings: Finding) -> list[str]:
        return [fingerprint(r) for r in run_of(AuditReport(1, findings=findings))["results"]]

    def test_stable(self) -> None:
        finding = Finding(COMMIT, b"m.fold", "unsealed", "m")
        assert self.of(finding) == ["5cbc54c399026bfb79c4644ec009c9ea:1"]
        assert self.of(replace(finding, message="other", severity=Severity.WARNING)) == (
            self.of(finding)
        )

    def test_all_that_differs_counts(self) -> None:
        finding = Finding(COMMIT, b"m.fold", "unsealed", "m")
        others = (
            replace(finding, commit=COMMIT[::-1]),
            replace(finding, path=b"n.fold"),
            replace(finding, kind="raw-binary"),
        )
        assert len(set(self.of(finding, *others))) == 4

    def test_the_same_twice(self) -> None:
        finding = Finding(COMMIT, b"m.fold", "missing-signature", "generation 2 is not signed")
        one, two = self.of(finding, replace(finding, message="generation 3 is not signed"))
        assert (one[-2:], two[-2:]) == (":1", ":2")
        assert one[:-2] == two[:-2]


def test_golden() -> None:
    text = json.dumps(sarif(of_audit(HOSTILE), "1.2.3"), indent=2) + "\n"
    assert text == (DATA / "reports/hostile.sarif").read_text("ascii")
