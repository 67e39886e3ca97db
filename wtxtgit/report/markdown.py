"""Reports as GitHub-flavoured Markdown, in which nothing of a repository is structure.

Whatever comes out of one is spelled in character references, which no parser
takes for structure (CommonMark, section "Entity and numeric character
references"). GitHub looks for more in the text that comes out: people, teams,
issues, addresses. A space without width is put into what it would find. A
commit's id may become a link to a commit of the same repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.report.audit import AuditReport, Finding, hints, totals
from wtxtgit.report.figures import escaped

MOST_CHARACTERS = 200
"""Of a path, a principal or another name."""
_PLAIN = frozenset(" -0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_BREAK = "\u200b"
_FOUND = re.compile(r"(?i)(?<=[@#])|(?<=(?<![a-z0-9])GH)(?=-[0-9])|(?<=www)(?=\.)|(?<=:)(?=//)")
"""Where GitHub's mentions, references (`#1`, `GH-1`), e-mail addresses and URLs are broken."""
MOST_FINDINGS = 100
MOST_SIGNERS = 50
"""With all at its most a summary stays below the 1 MiB of a step."""
_OID_SHOWN = 12


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the lines of a table; cells are Markdown."""
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def code(name: str, most: int = MOST_CHARACTERS) -> str:
    """Spell a name, its middle left out where it is long."""
    # An element, not backticks: in those no character can be spelled otherwise.
    return f"<code>{text(clipped(escaped(name), most))}</code>" if name else ""


def text(words: str) -> str:
    """Spell any text."""
    return "".join(map(_spelled, _FOUND.sub(_BREAK, escaped(words))))


def _spelled(c: str) -> str:
    return c if c in _PLAIN or (not c.isascii() and c != _BREAK) else f"&#{ord(c)};"


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
