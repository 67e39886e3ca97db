"""A review as a comment: what it says, that nothing of a repository is markup, that it fits."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from html import unescape
from itertools import product
from typing import Any

import pytest

from tests.data import DATA
from tests.report.reviews import (
    BASE,
    HEAD,
    HOSTILE_NAMES,
    big,
    changed_tensor,
    hostile,
    reviewed,
    sample,
)
from tests.report.test_markdown import STRUCTURE, tokens
from tests.report.test_markdown_text import BREAK
from wtxtgit.errors import escaped
from wtxtgit.report.markdown import MOST_CHARACTERS, MOST_LISTED, MOST_ROWS, comment
from wtxtgit.report.review import Flag, LayerGroup, Review, ReviewedCommit, ReviewedGeneration, Risk

_SUMMARY = re.compile(r"<details><summary><code>([^<>]*)</code>: [a-z0-9 ,]+</summary>")
COLUMNS = ["tensor", "relative", "elements", "L2", "max", "dtype", "shape"]
_LISTS = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}


def inline(text: str) -> list[str]:
    """The text of every paragraph and cell; markup other than ours is an error."""
    found = []
    for token in tokens(text):
        if token.type == "html_block":
            said = token.content.strip()
            assert said == "</details>" or _SUMMARY.fullmatch(said), said
            continue
        assert token.type in STRUCTURE | _LISTS, token
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


def many(count: int, tensors: int = 3, name: str = "m") -> Review:
    """So many checkpoints, each with flags, layers, generations and commits without end."""
    changed = [changed_tensor(n, f"{name}{n}", (4, 4)) for n in range(tensors)]
    one = reviewed(b"", changed)
    worst = replace(
        one,
        flags=tuple(Flag(risk, name * 50, name) for risk in Risk) * 5,
        groups=tuple(LayerGroup(f"{name}{n}", 1, 1, 1, 1, 1.0, 1.0) for n in range(200)),
        seal=replace(
            one.seal,
            message=name * 500,
            generations=(ReviewedGeneration(1, name, HEAD, (name,) * 50, name),) * 100,
        ),
        commits=(ReviewedCommit(HEAD, name * 200),) * 50,
    )
    artifacts = tuple(replace(worst, path=f"{name}{n}".encode()) for n in range(count))
    return Review("main", "topic", BASE, HEAD, 1, artifacts, (name,) * 100)


def test_golden() -> None:
    assert comment(sample()) == (DATA / "reports/review.md").read_text("utf-8")


def test_nothing() -> None:
    assert inline(comment(Review("main", "topic", BASE, HEAD, 2))) == [
        "wtxtgit review: 0 checkpoints, 0 risk flags",
        f"main to topic ({BASE[:12]} to {HEAD[:12]}), 2 commits",
        "No checkpoint changes.",
    ]


def test_what_is_hostile_stays_text() -> None:
    text = comment(hostile())
    found = inline(text)
    for name in HOSTILE_NAMES:
        if len(name) < 100:
            assert escaped(name) in found
    assert all(piece.isprintable() for piece in found)
    assert "<script" not in text
    assert not re.search(r"@\w", text), "nobody is called"
    text.encode("utf-8")


def test_sections_unfold() -> None:
    text = comment(sample())
    assert text.count("<details>") == text.count("</details>") == 2
    names = [os.fsencode(unescape(name)) for name in _SUMMARY.findall(text)]
    assert names == [one.path for one in sample().artifacts]


def test_worst_rows_come_first() -> None:
    one = sample().artifacts[0]
    found = inline(comment(sample()))
    start = found.index("elements") - 2
    rows = found[start + len(COLUMNS) :: len(COLUMNS)]
    assert found[start : start + len(COLUMNS)] == COLUMNS
    assert rows[:MOST_ROWS] == [tensor.name for tensor in one.changed[:MOST_ROWS]]
    assert f"and {len(one.changed) - MOST_ROWS} more changed tensors" in found


@pytest.mark.parametrize(
    ("count", "name"),
    [
        *product((1, 2, 200), ("m", "&", "|" * 300, "\U0001f600" * 300, "<" * 5000)),
        *((1000, name) for name in ("m", "<" * 5000)),
    ],
)
def test_it_fits_into_a_comment(count: int, name: str) -> None:
    text = comment(many(count, name=name))
    assert len(text) <= MOST_CHARACTERS
    assert text.count("<details>") == text.count("</details>") >= 1
    rows = sum(token.type == "tr_open" for token in tokens(text))
    assert rows > 2
    inline(text)
    if count > MOST_LISTED:
        assert re.search(r"^and [0-9]+ more checkpoints$", text, re.MULTILINE)
        assert re.search(r"^[0-9]+ checkpoints without a section: ", text, re.MULTILINE)


@pytest.mark.slow
def test_ten_thousand_tensors() -> None:
    text = comment(big(10_000))
    assert len(text) <= MOST_CHARACTERS
    assert f"and {10_000 - MOST_ROWS:,} more changed tensors" in text


def test_names_without_end() -> None:
    review = replace(many(3), base="x" * 100_000, head="\n" * 100_000)
    assert len(comment(review)) <= MOST_CHARACTERS


def test_every_part_is_told() -> None:
    found: Any = inline(comment(sample()))
    one = sample().artifacts[0]
    for flag in one.flags:
        assert flag.message in found
    for commit in one.commits:
        assert commit.subject in found
    for group in one.groups:
        assert group.name in found or not group.changed
    assert any(piece.startswith("file 61 MiB to 62 MiB") for piece in found)
    assert any(piece.startswith("untrusted: generation 9 is signed by nobody") for piece in found)
