"""What an audit came to, in a line."""

from __future__ import annotations

from wtxtgit.errors import counted
from wtxtgit.report.audit import AuditReport


def totals(report: AuditReport) -> str:
    """What was judged, and with what outcome."""
    judged = f"{counted(report.commits, 'commit')} judged"
    if report.unjudged:
        judged += f" (not the {counted(report.unjudged, 'commit')} that the trust root reaches)"
    warnings = len(report.findings) - len(report.errors)
    return ", ".join(
        (
            judged,
            counted(report.artifacts, "artifact"),
            counted(report.generations, "generation"),
            counted(len(report.errors), "error"),
            counted(warnings, "warning"),
        )
    )
