"""An audit as forges read it: SARIF 2.1.0, and GitHub's workflow commands.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import quote

from wtxtgit.errors import MAX_MESSAGE, clipped, escaped
from wtxtgit.model.ledger import SIGNERS_PATH
from wtxtgit.report.audit import (
    HINTS,
    UNTRUSTED,
    AuditReport,
    Finding,
    Severity,
    hints,
)
from wtxtgit.report.figures import OID_SHOWN

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"

ABOUT = {
    "lfs-pointer": "A tracked path holds a git-lfs pointer, not the file it stands for.",
    "raw-binary": "A tracked path holds a raw binary, not the text that the filter makes.",
    "corrupt-text": "A text does not verify.",
    "odd-checkpoint": "The text of a checkpoint that verify --strict rejects.",
    "not-canonical": "A text verifies, but is not the text that the filter makes.",
    "untracked-artifact": "A checkpoint is no longer filtered, or was replaced by a link.",
    "altered-checkout": "Attributes make a checkout write other bytes than were sealed.",
    "unsealed": "A checkpoint has no ledger.",
    "content-mismatch": "The last record of a ledger does not match the content.",
    "bad-record": "A ledger or one of its records breaks the format's rules.",
    "moved-unsealed": "A checkpoint was moved with its ledger, but the move is not sealed.",
    "ledger-rewritten": "A ledger does not continue that of the commit before.",
    "ledger-removed": "A ledger is missing.",
    "bad-signature": "A signature does not verify.",
    "missing-signature": "A record is not signed.",
    "untrusted-signer": "A record is not signed by any trusted key.",
    "signers-changed": "The signers file changed without a seal by the signers before.",
    "bad-root": "The history does not descend from the trust root, or from the branch's old tip.",
    "shallow": "The history is incomplete: it is shallow, replaced or grafted.",
}
"""What each kind is, for people who meet it in a forge."""
MOST = 50
"""Annotations that are made: GitHub shows no more of one job."""
_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def sarif(report: AuditReport, version: str) -> dict[str, object]:
    """The report as plain data; `version` is the program's."""
    kinds = list(HINTS)
    seen: Counter[str] = Counter()
    results = [_result(finding, kinds, seen) for finding in report.findings]
    driver = {"name": "wtxtgit", "version": version, "rules": [_rule(kind) for kind in kinds]}
    notes = [{"level": "note", "message": {"text": escaped(note)}} for note in report.notes]
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {"driver": driver},
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def _rule(kind: str) -> dict[str, object]:
    return {
        "id": kind,
        "shortDescription": {"text": ABOUT[kind]},
        # GitHub asks for both, and shows this one where there is room.
        "fullDescription": {"text": ABOUT[kind]},
        "help": {"text": HINTS[kind]},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["trust" if kind in UNTRUSTED else "integrity"]},
    }


def _result(finding: Finding, kinds: list[str], seen: Counter[str]) -> dict[str, object]:
    where = f" (commit {finding.commit})" if finding.commit else ""
    # Code scanning takes no result without a place: what is wrong with the
    # history as a whole is shown at the file that trust is read from.
    uri = quote(finding.path or SIGNERS_PATH)
    place = {
        "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1},
    }
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": str(finding.severity),
        "message": {"text": escaped(finding.message) + where},
        "locations": [{"physicalLocation": place}],
        # The one name that GitHub reads. Without it one is made of the line at
        # that place, the same one for all generations of a checkpoint.
        "partialFingerprints": {"primaryLocationLineHash": _fingerprint(finding, seen)},
    }


def _fingerprint(finding: Finding, seen: Counter[str]) -> str:
    """What stays the same when messages are worded otherwise: what, where, and a count."""
    words = (finding.commit.encode("ascii"), finding.kind.encode("ascii"), finding.path)
    # Paths have no NUL, so no two findings spell the same bytes.
    digest = sha256(b"\0".join(words)).hexdigest()[:32]
    seen[digest] += 1
    return f"{digest}:{seen[digest]}"


def workflow_commands(report: AuditReport) -> Iterator[str]:
    """One line a finding, errors first, at most MOST of them."""
    order = sorted(report.findings, key=lambda finding: finding.severity is not Severity.ERROR)
    yield from map(_command, order[:MOST])


def outputs(report: AuditReport) -> dict[str, str]:
    """What later steps are told, by name: values of one line each."""
    return {"ok": str(report.ok).lower(), "findings": str(len(report.findings))}


def _command(finding: Finding) -> str:
    properties = {"title": f"wtxtgit: {finding.kind}"}
    if finding.path:
        properties["file"] = escaped(os.fsdecode(finding.path))
    listed = ",".join(
        f"{name}={value.translate(_IN_PROPERTY)}" for name, value in properties.items()
    )
    where = f" (commit {finding.commit[:OID_SHOWN]})" if finding.commit else ""
    hint = hints([finding])[finding.kind]
    message = f"{escaped(clipped(finding.message, MAX_MESSAGE))}{where}\n{hint}"
    return f"::{finding.severity} {listed}::{message.translate(_IN_MESSAGE)}"
