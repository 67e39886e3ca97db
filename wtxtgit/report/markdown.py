"""An audit as GitHub-flavoured Markdown: the summary of a job.

Whatever comes out of a repository is spelled as `markdown_text` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.report.audit import AuditReport, Finding, hints
from wtxtgit.report.markdown_text import code, table, text
from wtxtgit.report.totals import totals

MOST_FINDINGS = 100
MOST_SIGNERS = 50
"""With all at its most a summary stays below the 1 MiB of a step."""
_OID_SHOWN = 12


def summary(report: AuditReport) -> str:
    """The report: a verdict, the findings in a table, what to do, who is trusted."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: AuditReport) -> Iterator[str]:
    yield f"### wtxtgit audit: {'ok' if report.ok else 'FAILED'}"
    yield ""
    yield totals(report)
    shown = report.findings[:MOST_FINDINGS]
    if shown:
        columns = ("", "commit", "path", "kind", "finding")
        yield from table(columns, [_row(finding) for finding in shown])
    if len(report.findings) > len(shown):
        yield ""
        yield f"and {len(report.findings) - len(shown)} more"
    if report.findings:
        rows = [(code(kind), text(hint)) for kind, hint in hints(report.findings).items()]
        yield from table(("kind", "what to do"), rows)
    if report.signers:
        more = len(report.signers) - MOST_SIGNERS
        named = ", ".join(code(signer) for signer in report.signers[:MOST_SIGNERS])
        yield ""
        yield f"trusted: {named}{f', and {more} more' if more > 0 else ''}"
    for note in report.notes:
        yield ""
        yield f"note: {text(clipped(note, MAX_MESSAGE))}"


def _row(finding: Finding) -> tuple[str, ...]:
    return (
        str(finding.severity),
        code(finding.commit[:_OID_SHOWN]),
        code(os.fsdecode(finding.path)),
        code(finding.kind),
        text(clipped(finding.message, MAX_MESSAGE)),
    )
