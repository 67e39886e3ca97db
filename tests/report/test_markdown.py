"""The job summary: a parser of Markdown finds our tables in it, and nothing of what they hold."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from markdown_it import MarkdownIt

from tests.data import DATA
from tests.report.reports import ALL_KINDS, COMMIT, HOLDS, HOSTILE
from tests.report.test_markdown_text import BREAK
from tests.report.test_sarif import REPORTS
from wtxtgit.errors import escaped
from wtxtgit.report import check
from wtxtgit.report.audit import HINTS, AuditReport, Finding, totals
from wtxtgit.report.check import CheckReport, Occasion
from wtxtgit.report.markdown import MOST_FINDINGS, MOST_SIGNERS, check_summary, summary

STRUCTURE = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close",
    "table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close",
    "tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close", "inline",
}  # fmt: skip
"""All that a summary is made of."""
MOST_BYTES = 1024 * 1024
"""What a step's summary may have."""


def tokens(text: str) -> list[Any]:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return parser.parse(text)


def inline(text: str) -> list[str]:
    """The text of each heading, paragraph and cell; markup within it is an error."""
    found = []
    for token in tokens(text):
        assert token.type in STRUCTURE, token
        pieces = []
        for child in token.children or ():
            if child.type == "html_inline":
                assert child.content in ("<code>", "</code>")
            else:
                assert child.type in ("text", "text_special", "entity", "code_inline"), child
                pieces.append(child.content.replace(BREAK, ""))
        if token.type == "inline":
            found.append("".join(pieces))
    return found


def test_golden() -> None:
    assert summary(HOSTILE) == (DATA / "reports/hostile.md").read_text("utf-8")


def test_what_holds() -> None:
    assert inline(summary(HOLDS)) == [
        "wtxtgit audit: ok",
        totals(HOLDS),
        "trusted: alice@example.com, bob@example.com",
    ]


def test_totals() -> None:
    assert totals(HOLDS) == (
        "12 commits judged (1 older commit covered by the trust root), 3 artifacts, "
        "20 generations, 0 errors, 0 warnings"
    )
    assert totals(HOSTILE).endswith("15 errors, 1 warning")


@pytest.mark.parametrize(
    ("commits", "unjudged", "words"),
    [
        (2, 0, "2 commits judged"),
        (1, 1, "1 commit judged (1 older commit covered by the trust root)"),
        (2, 3, "2 commits judged (3 older commits covered by the trust root)"),
        (0, 1, "nothing to judge (1 commit covered by the trust root)"),
        (0, 3, "nothing to judge (3 commits covered by the trust root)"),
    ],
)
def test_which_commits_are_judged(commits: int, unjudged: int, words: str) -> None:
    said = totals(replace(HOLDS, commits=commits, unjudged=unjudged))
    assert said.startswith(f"{words}, 3 artifacts, ")


def test_what_is_hostile_stays_text() -> None:
    found = inline(summary(HOSTILE))
    for finding in HOSTILE.findings:
        assert escaped(os.fsdecode(finding.path)) in found
        assert escaped(finding.message) in found
    assert found[0] == "wtxtgit audit: FAILED"
    assert "note: trust starts at <script>, ::notice::\\x0a| `x` |" in found


def test_what_to_do_stands_once_for_a_kind() -> None:
    twice = AuditReport(1, findings=ALL_KINDS.findings * 2)
    found = inline(summary(twice))
    rows = list(pairwise(found))
    for kind, hint in HINTS.items():
        assert rows.count((kind, hint)) == 1


def test_what_to_do_about_a_check_is_for_its_kind_of_commit() -> None:
    found = (Finding("", b"a", "unsealed", "m"), Finding("", b"b", "unsealed", "m"))
    told = set()
    for occasion in Occasion:
        shown = inline(check_summary(CheckReport(findings=found, occasion=occasion)))
        (todo,) = (cell for cell in shown if "PATH" in cell)
        assert todo.replace("PATH", "a") == check.hint(found[0], CheckReport(occasion=occasion))
        told.add(todo)
    assert len(told) == len(Occasion)


@given(REPORTS)
def test_any_report(report: AuditReport) -> None:
    text = summary(report)
    found = inline(text)
    rows = sum(token.type == "tr_open" for token in tokens(text))
    kinds = {finding.kind for finding in report.findings}
    assert rows == (len(report.findings) + len(kinds) + 2 if kinds else 0)
    assert all(piece.isprintable() for piece in found)
    text.encode("utf-8")


def test_it_stays_within_what_a_step_may_say() -> None:
    worst = Finding(COMMIT, b"&" * 4096, "missing-signature", "|" * 5000)
    wide = Finding(COMMIT, "\U0001f600".encode() * 1000, "bad-root", "\U0001f600" * 5000)
    for finding in (worst, wide):
        many = AuditReport(
            1,
            findings=(finding,) * 5000,
            signers=tuple(f"{n}{'@' * 500}" for n in range(1000)),
            notes=("|" * 5000,) * 2,
        )
        text = summary(many)
        assert len(text.encode()) < MOST_BYTES
        assert f"and {5000 - MOST_FINDINGS} more" in text
        assert f"and {1000 - MOST_SIGNERS} more" in text
    few = replace(many, findings=(worst,), signers=("a",))
    assert " more" not in summary(few)
