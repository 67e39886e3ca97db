"""An audit as GitHub's workflow commands: annotations on files of a pull request.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.report.audit import AuditReport, Finding, Severity, hints
from wtxtgit.report.escaping import escaped

MOST = 50
"""Annotations that are made: GitHub shows no more of one job."""
_OID_SHOWN = 12
_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


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
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    where = f" (commit {finding.commit[:_OID_SHOWN]})" if finding.commit else ""
    told = hints([finding])[finding.kind]
    message = f"{escaped(clipped(finding.message, MAX_MESSAGE))}{where}\n{told}"
    return f"::{finding.severity} {listed}::{message.translate(_IN_MESSAGE)}"


def _property(value: str) -> str:
    return value.translate(_IN_PROPERTY)
