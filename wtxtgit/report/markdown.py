"""An audit as GitHub-flavoured Markdown: the summary of a job.

Whatever comes out of a repository is spelled in character references, which
no parser takes for structure (CommonMark, section "Entity and numeric
character references").
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.report.audit import HINTS, AuditReport, Finding
from wtxtgit.report.escaping import escaped
from wtxtgit.report.totals import totals

MOST_FINDINGS = 100
MOST_SIGNERS = 50
MOST_CHARACTERS = 200
"""Of a path or a principal. With all at its most a summary stays below the 1 MiB of a step."""
_OID_SHOWN = 12
_PLAIN = frozenset(" -0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


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
        yield from _table(columns, [_row(finding) for finding in shown])
    if len(report.findings) > len(shown):
        yield ""
        yield f"and {len(report.findings) - len(shown)} more"
    kinds = dict.fromkeys(finding.kind for finding in report.findings)
    if kinds:
        rows = [(_code(kind), _text(HINTS[kind])) for kind in kinds]
        yield from _table(("kind", "what to do"), rows)
    if report.signers:
        more = len(report.signers) - MOST_SIGNERS
        named = ", ".join(_code(signer) for signer in report.signers[:MOST_SIGNERS])
        yield ""
        yield f"trusted: {named}{f', and {more} more' if more > 0 else ''}"
    for note in report.notes:
        yield ""
        yield f"note: {_text(clipped(note, MAX_MESSAGE))}"


def _row(finding: Finding) -> tuple[str, ...]:
    return (
        str(finding.severity),
        _code(finding.commit[:_OID_SHOWN]),
        _code(os.fsdecode(finding.path)),
        _code(finding.kind),
        _text(clipped(finding.message, MAX_MESSAGE)),
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(text: str) -> str:
    # An element, not backticks: in those no character can be spelled otherwise.
    return f"<code>{_text(clipped(escaped(text), MOST_CHARACTERS))}</code>" if text else ""


def _text(text: str) -> str:
    return "".join(c if c in _PLAIN or not c.isascii() else f"&#{ord(c)};" for c in escaped(text))
