"""An audit in the formats that forges read: SARIF 2.1.0, and GitHub's workflow commands.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from wtxtgit.errors import MAX_MESSAGE, clipped, escaped
from wtxtgit.model.ledger import SIGNERS_PATH
from wtxtgit.report.audit import Severity
from wtxtgit.report.figures import OID_SHOWN

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
MOST = 50
"""The most annotations: GitHub shows no more for one job."""
_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


@dataclass(frozen=True, slots=True)
class ForgeRule:
    """A kind of finding: what it is, what to do about it, what it concerns, how bad it is."""

    about: str
    hint: str
    tag: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class ForgeFinding:
    """One finding: its `kind` is a rule's; `commit` is "" for none, `path` b"" for none.

    Two of one kind at one path that are about different things, such as tensors, name these in
    `subject`: forges follow a finding from one run to the next.
    """

    kind: str
    severity: Severity
    path: bytes
    message: str
    hint: str
    commit: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class ForgeReport:
    """What a `command` found, by the rules that it has."""

    command: str
    rules: Mapping[str, ForgeRule]
    findings: tuple[ForgeFinding, ...]
    notes: tuple[str, ...]
    ok: bool


def sarif(report: ForgeReport, version: str) -> dict[str, object]:
    """Return the report as plain data; `version` is the program's."""
    kinds = list(report.rules)
    counts: Counter[str] = Counter()
    results = [_result(finding, kinds, counts) for finding in report.findings]
    rules = [_rule(kind, rule) for kind, rule in report.rules.items()]
    driver = {"name": "wtxtgit", "version": version, "rules": rules}
    notes = [{"level": "note", "message": {"text": _without_links(note)}} for note in report.notes]
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {"driver": driver},
                # GitHub's category: of one tool, an upload replaces those of the same category.
                "automationDetails": {"id": f"{report.command}/"},
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def _rule(kind: str, rule: ForgeRule) -> dict[str, object]:
    return {
        "id": kind,
        "shortDescription": {"text": rule.about},
        # GitHub requires both, and shows this one if there is room.
        "fullDescription": {"text": rule.about},
        "help": {"text": rule.hint},
        "defaultConfiguration": {"level": str(rule.severity)},
        "properties": {"tags": [rule.tag]},
    }


def _result(finding: ForgeFinding, kinds: list[str], counts: Counter[str]) -> dict[str, object]:
    where = f" (commit {finding.commit})" if finding.commit else ""
    # Code scanning rejects results without a location: findings about the
    # history as a whole are shown at the file from which trust is read.
    uri = quote(finding.path or SIGNERS_PATH)
    place = {
        "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1},
    }
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": str(finding.severity),
        "message": {"text": _without_links(finding.message) + where},
        "locations": [{"physicalLocation": place}],
        # The only name that GitHub reads. Without it GitHub computes one from the line at
        # that location, which is the same for all generations of a checkpoint.
        "partialFingerprints": {"primaryLocationLineHash": _fingerprint(finding, counts)},
    }


def _without_links(message: str) -> str:
    """Return a message in which no name makes a link, as `[text](url)` would (SARIF, 3.11.6)."""
    return escaped(message).replace("](", "] (")


def _fingerprint(finding: ForgeFinding, counts: Counter[str]) -> str:
    """Return an id that survives rewording of the message: of what and where, with a count."""
    words = [finding.commit.encode("ascii"), finding.kind.encode("ascii"), finding.path]
    if finding.subject:
        words.append(finding.subject.encode("utf-8", "surrogatepass"))
    # Paths have no NUL, so no two findings spell the same bytes.
    digest = sha256(b"\0".join(words)).hexdigest()[:32]
    counts[digest] += 1
    return f"{digest}:{counts[digest]}"


def workflow_commands(report: ForgeReport) -> Iterator[str]:
    """Yield one line per finding, errors first, at most MOST lines."""
    order = sorted(report.findings, key=lambda finding: finding.severity is not Severity.ERROR)
    yield from map(_command, order[:MOST])


def outputs(report: ForgeReport) -> dict[str, str]:
    """Return the outputs for later steps, by name: values of one line each."""
    return {"ok": str(report.ok).lower(), "findings": str(len(report.findings))}


def _command(finding: ForgeFinding) -> str:
    properties = {"title": f"wtxtgit: {finding.kind}"}
    if finding.path:
        properties["file"] = escaped(os.fsdecode(finding.path))
    listed = ",".join(
        f"{name}={value.translate(_IN_PROPERTY)}" for name, value in properties.items()
    )
    where = f" (commit {finding.commit[:OID_SHOWN]})" if finding.commit else ""
    message = f"{escaped(clipped(finding.message, MAX_MESSAGE))}{where}\n{escaped(finding.hint)}"
    return f"::{finding.severity} {listed}::{message.translate(_IN_MESSAGE)}"
