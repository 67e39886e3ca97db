"""Reports as GitHub-flavoured Markdown, in which nothing from a repository can become markup.

It is also read as it is, in a terminal or a mail: names are code spans, other words have a
backslash where markup could begin, and only what neither can hold is spelled in character
references, which no parser takes for structure (CommonMark, section "Entity and numeric character
references"). GitHub also looks for mentions of people and teams, issue numbers and addresses in the
resulting text: a zero-width space is put into everything that it would find. A commit's id may
become a link to a commit of the same repository. A comment on a review begins with the worst, and
ends within GitHub's limit.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import chain
from typing import TypeVar

from wtxtgit.errors import MAX_MESSAGE, clipped, counted, escaped
from wtxtgit.report import check
from wtxtgit.report.audit import AuditReport, Finding, hints, totals
from wtxtgit.report.check import CheckReport
from wtxtgit.report.figures import NONE, OID_SHOWN, count, digits, percent
from wtxtgit.report.review import Fate, Review, Reviewed
from wtxtgit.report.tables import (
    COMMITS,
    FLAGS,
    GENERATIONS,
    LAYERS,
    METADATA,
    MOST_VALUE,
    OTHERS,
    TENSORS,
    Cell,
    ChangeCell,
    Json,
    Measure,
    Message,
    Name,
    Share,
    SignersCell,
    Table,
    Words,
    parameters_changed,
    relative_change,
    sizes_told,
    tensors_changed,
)

MOST_OF_A_NAME = 200
"""The most characters of a path, a principal or another name."""
_BREAK = "\u200b"
_REFERENCE = f"&#{ord(_BREAK)};"
_REFERRED = re.compile(rf"[<|${_BREAK}]|^ ")
"""What is spelled as a character reference: HTML is not left to a backslash, which does not reach a
pipe in every parser's tables, nor a formula's dollar; and words that begin with blanks may be a
block of code."""
_MARKUP = re.compile(r"[\\`*\[\]~{}#]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])|^[-+=>]|(?<=^[0-9])[.)]")
"""Where emphasis, code, links, HTML, references, headings and lists may begin, anywhere and at the
start of a line. Within a word `_` is itself."""
_NOT_IN_SPANS = frozenset(f"`|<{_BREAK}")
_LISTED = re.compile(r"^([0-9]{2,9})([.)])")
_FOUND = re.compile(
    r"(?i)(?<=[@#])(?=\w|$)|(?<=(?<![a-z0-9])GH)(?=-[0-9])|(?<=www)(?=\.)|(?<=:)(?=//)"
)
"""Where GitHub's mentions, references (`#1`, `GH-1`), e-mail addresses and URLs are interrupted."""
MOST_FINDINGS = 100
MOST_SIGNERS = 50
"""With this bound, and all others reached, a summary stays below the 1 MiB of a step."""
MOST_CHARACTERS = 65_000
"""GitHub accepts 65,536 characters in a comment: whoever posts it can add a line."""
MOST_ROWS = 20
"""The most rows of a table in a checkpoint's section."""
MOST_LISTED = 100
"""The most checkpoints in the table of all of them."""
_ALIGNED = 120
"""The most characters of a line of a table whose columns are aligned."""
MOST_NAME = 120
MOST_MESSAGE = 300
"""The most characters of a name, and of a message."""
_OVERVIEW_SHARE = 0.5
"""Largest share of a comment for the table of all checkpoints."""
_SECTION_SHARE = 0.5
"""Largest share of the remaining space for a checkpoint's section if others follow."""
_RESERVE = 400
"""Characters reserved for notes on what was left out."""
_T = TypeVar("_T")
_END = ["", "</details>"]
_ELSEWHERE = "the HTML page and the JSON list everything"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, aligned if it is not too wide; cells are Markdown."""
    widths = [max(3, *map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    if sum(widths) + 3 * len(widths) > _ALIGNED:
        widths = [3] * len(widths)
    yield ""
    for row in (columns, ["-" * width for width in widths], *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"


def code(name: str, most: int = MOST_OF_A_NAME) -> str:
    """Return a name as code, with its middle left out if it is long."""
    shown = _shown(name, most)
    if not shown:
        return ""
    # Within backticks no character can be escaped, and a pipe ends a table's cell all the same.
    # HTML would be harmless there, but a poor parser might not see the backticks.
    if shown != shown.strip() or not _NOT_IN_SPANS.isdisjoint(shown):
        return f"<code>{_literal(shown)}</code>"
    return f"`{shown}`"


def code_in_html(name: str, most: int = MOST_OF_A_NAME) -> str:
    """Do the same for a block of HTML, in which nothing is Markdown."""
    return f"<code>{escape(_shown(name, most), quote=False).replace(_BREAK, _REFERENCE)}</code>"


def text(words: str) -> str:
    """Return any text as Markdown that shows it literally, also at the start of a line."""
    return _literal(_FOUND.sub(_BREAK, escaped(words)))


def _shown(name: str, most: int) -> str:
    return _FOUND.sub(_BREAK, clipped(escaped(name), most))


def _literal(shown: str) -> str:
    marked = _LISTED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", shown))
    return _REFERRED.sub(lambda match: f"&#{ord(match[0])};", marked)


def summary(report: AuditReport) -> str:
    """Return the report: a verdict, the findings in a table, what to do, who is trusted."""
    verdict = f"### wtxtgit audit: {report.word}"
    todo = hints(report.findings, report.settled)
    lines = [verdict, "", totals(report), *_findings(report.findings, todo)]
    if report.signers:
        more = len(report.signers) - MOST_SIGNERS
        named = ", ".join(code(signer) for signer in report.signers[:MOST_SIGNERS])
        lines += ["", f"trusted: {named}{f', and {more} more' if more > 0 else ''}"]
    return "\n".join([*lines, *_notes(report.notes)]) + "\n"


def check_summary(report: CheckReport) -> str:
    """Return the report of a check of the index in the same form as `summary`."""
    verdict = f"### wtxtgit check: {report.word}"
    todo = check.hints(report)
    lines = [verdict, "", check.totals(report), *_findings(report.findings, todo)]
    return "\n".join([*lines, *_notes(report.notes)]) + "\n"


def _findings(findings: Sequence[Finding], todo: Mapping[str, str]) -> Iterator[str]:
    """Two tables: of the first findings, and what to do about each kind."""
    shown = findings[:MOST_FINDINGS]
    if shown:
        columns = ("", "commit", "path", "kind", "finding")
        yield from table(columns, [_finding(finding) for finding in shown])
    if len(findings) > len(shown):
        yield ""
        yield f"and {len(findings) - len(shown)} more"
    if findings:
        rows = [(code(kind), text(hint)) for kind, hint in todo.items()]
        yield from table(("kind", "what to do"), rows)


def _notes(notes: Sequence[str]) -> Iterator[str]:
    for note in notes:
        yield ""
        yield f"note: {text(clipped(note, MAX_MESSAGE))}"


def _finding(finding: Finding) -> tuple[str, ...]:
    return (
        str(finding.severity),
        code(finding.commit[:OID_SHOWN]),
        code(os.fsdecode(finding.path)),
        code(finding.kind),
        text(clipped(finding.message, MAX_MESSAGE)),
    )


def comment(review: Review) -> str:
    """Return the review: totals, a table of all checkpoints, and a collapsed section for each."""
    lines = [*_head(review)]
    room = MOST_CHARACTERS - _RESERVE - _length(lines)
    overview = _overview(review.artifacts, int(room * _OVERVIEW_SHARE))
    lines += overview
    room -= _length(overview)
    left = len(review.artifacts)
    for artifact in review.artifacts:
        section = _section(artifact, int(room * _SECTION_SHARE) if left > 1 else room)
        if not section:
            break
        lines += section
        room -= _length(section)
        left -= 1
    # Say what did not fit, so that nobody mistakes a part for the whole.
    if left:
        lines += ["", f"{counted(left, 'checkpoint')} without a section: {_ELSEWHERE}"]
    return "\n".join(lines) + "\n"


def _head(review: Review) -> Iterator[str]:
    flags = review.flags
    checkpoints = counted(len(review.artifacts), "checkpoint")
    yield f"### wtxtgit review: {checkpoints}, {counted(flags, 'risk flag')}"
    yield ""
    yield (
        f"{code(review.base, MOST_NAME)} to {code(review.head, MOST_NAME)}"
        f" ({code(review.base_commit[:OID_SHOWN])} to {code(review.head_commit[:OID_SHOWN])}),"
        f" {counted(review.commits, 'commit')}"
    )
    for note in review.notes[:MOST_ROWS]:
        yield ""
        yield f"note: {text(clipped(note, MOST_MESSAGE))}"
    yield from _more(len(review.notes), "note")


def _overview(artifacts: Sequence[Reviewed], room: int) -> list[str]:
    """Return the table of checkpoints, with as many rows as there is room for."""
    if not artifacts:
        return ["", "No checkpoint changes."]
    columns = (
        "checkpoint", "change", "changed tensors", "changed parameters", "relative L2", "risks",
        "seal",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for artifact in artifacts[:MOST_LISTED]:
        row = _row(artifact)
        room -= sum(map(len, row)) + 3 * len(row) + 1
        if room < 0:
            break
        rows.append(row)
    lines = list(table(columns, rows))
    if len(rows) < len(artifacts):
        lines += ["", f"and {counted(len(artifacts) - len(rows), 'more checkpoint')}"]
    return lines


def _row(reviewed: Reviewed) -> tuple[str, ...]:
    risks = Counter(str(flag.risk) for flag in reviewed.flags)
    named = [risk if times == 1 else f"{risk} ({times})" for risk, times in risks.items()]
    changed = parameters = change = NONE
    if reviewed.diff is not None:
        changed = tensors_changed(reviewed.diff)
        parameters = parameters_changed(reviewed.diff)
        change = relative_change(reviewed.diff)
    return (
        code(os.fsdecode(reviewed.path), MOST_NAME),
        str(reviewed.fate),
        changed,
        parameters,
        change,
        ", ".join(named),
        str(reviewed.seal.state),
    )


def _section(reviewed: Reviewed, room: int) -> list[str]:
    """Return a checkpoint's section, leaving out the least important first; empty without room."""
    lines = [*_summary_of(reviewed)]
    room -= _length([*lines, *_END])
    if room < 0:
        return []
    metadata = reviewed.diff.metadata if reviewed.diff is not None else ()
    for part in (
        _facts(reviewed),
        _table(FLAGS, reviewed.flags),
        _table(TENSORS, reviewed.changed),
        _table(OTHERS, reviewed.others),
        _table(METADATA, metadata),
        _table(LAYERS, reviewed.layers),
        chain(_table(GENERATIONS, reviewed.seal.generations), _table(COMMITS, reviewed.commits)),
    ):
        lines_of_part = list(part)
        if _length(lines_of_part) <= room:
            lines += lines_of_part
            room -= _length(lines_of_part)
    return lines + _END


def _summary_of(reviewed: Reviewed) -> Iterator[str]:
    yield ""
    words = [
        str(reviewed.fate),
        str(reviewed.seal.state),
        counted(len(reviewed.flags), "risk flag"),
    ]
    path = code_in_html(os.fsdecode(reviewed.path))
    yield f"<details><summary>{path}: {', '.join(words)}</summary>"


def _facts(reviewed: Reviewed) -> Iterator[str]:
    if reviewed.fate is Fate.RENAMED:
        yield ""
        yield f"- was {code(os.fsdecode(reviewed.base_path or b''))}"
    else:
        yield ""
    if reviewed.delta is not None:
        yield f"- delta: {text(clipped(reviewed.delta.message, MOST_MESSAGE))}"
    elif reviewed.reason is not None:
        yield f"- not compared: {text(clipped(reviewed.reason, MOST_MESSAGE))}"
    if reviewed.diff is not None:
        counts = reviewed.diff.summary.counts
        by_status = [f"{count(n)} {status}" for status, n in counts.items() if n]
        yield f"- tensors: {', '.join(by_status) or 'none'}"
        for note in reviewed.diff.notes[:MOST_ROWS]:
            yield f"- {text(clipped(note, MOST_MESSAGE))}"
        if reviewed.diff.metadata:
            yield f"- {counted(len(reviewed.diff.metadata), 'metadata change')}"
    yield f"- {reviewed.seal.state}: {text(clipped(reviewed.seal.message, MOST_MESSAGE))}"
    yield f"- {sizes_told(reviewed.sizes, 'to')}"


def _table(columns: Table[_T], things: Sequence[_T]) -> Iterator[str]:
    """Yield a table of the first things, and how many are left out; nothing if there are none."""
    if things:
        rows = columns.rows(things[:MOST_ROWS])
        yield from table(tuple(columns.columns), [list(map(_cell, row)) for row in rows])
        yield from _more(len(things), columns.noun)


def _cell(cell: Cell) -> str:
    """Return a cell as Markdown; text that is not ours is escaped, and cut to a bounded length."""
    match cell:
        case None:
            return NONE
        case Name():
            return code(cell, MOST_NAME)
        case Json():
            return code(cell, MOST_VALUE)
        case Message():
            return text(clipped(cell, MOST_MESSAGE))
        case Words():
            return text(clipped(cell, MOST_NAME))
        case str():
            return clipped(cell, MOST_NAME)
        case int():
            return count(cell)
        case Share():
            return percent(cell.value)
        case Measure():
            return digits(cell.value)
        case ChangeCell():
            return f"{_cell(cell.before)} to {_cell(cell.after)}"
        case SignersCell():
            return text(clipped(", ".join(cell) or "nobody", MOST_NAME))


def _more(total: int, noun: str) -> Iterator[str]:
    if total > MOST_ROWS:
        first, _, what = noun.partition(" of ")
        yield ""
        yield f"and {counted(total - MOST_ROWS, f'more {first}')}{what and f' of {what}'}"


def _length(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
