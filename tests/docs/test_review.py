"""docs/review.md: its commands, its tables, its bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import blocks, lines, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.cli import review as command
from wtxtgit.comparison import compare
from wtxtgit.report import markdown
from wtxtgit.report.review import Risk, Sealing
from wtxtgit.review import changes, flags
from wtxtgit.tensors import statistics

PAGE = "docs/review.md"


@pytest.mark.slow
def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    done = run(steps(*blocks(PAGE, "console")), tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 3
    (as_json,) = [one for one in done if one.step.command.endswith("--json")]
    found = json.loads(as_json.output)
    assert found["summary"]["artifacts"] == 1
    page = (tmp_path / "reviewing/review.html").read_text("utf-8")
    assert "layers.3" in page


def test_all_risks_and_seals_are_told() -> None:
    (risks,) = tables(PAGE, "Risks")
    assert [name for row in risks for name in spans(row[0])] == [
        *map(str, (Risk.NEW_NAN, Risk.NEW_INF, Risk.DEAD, Risk.ZERO, Risk.CONSTANT)),
        *map(str, (Risk.NEGATED, Risk.MOVED, Risk.REORDERED)),
        *map(str, (Risk.COLLAPSED, Risk.SATURATED, Risk.NORM)),
        *map(str, (Risk.DTYPE, Risk.SHAPE, Risk.REMOVED)),
        *map(str, (Risk.SINGLE, Risk.UNUSUAL, Risk.CODE, Risk.REPEATED)),
        *map(str, (Risk.NAME, Risk.HIDDEN, Risk.PART)),
        *map(str, (Risk.METADATA, Risk.UNREAD, Risk.UNSEALED, Risk.SIGNER)),
        *map(str, (Risk.CHAIN, Risk.OPAQUE, Risk.DAMAGED)),
        *map(str, (Risk.POINTER, Risk.RAW, Risk.LARGE)),
    ]
    assert {name for row in risks for name in spans(row[0])} == set(map(str, Risk))
    (seals,) = tables(PAGE, "Seals")
    assert [name for row in seals for name in spans(row[0])] == list(map(str, Sealing))


def test_formats_are_the_commands() -> None:
    (table,) = tables(PAGE, "Formats")
    (option,) = [one for one in command.review.params if one.name == "form"]
    assert [name for row in table for name in spans(row[0])] == list(option.type.choices)  # type: ignore[attr-defined]


def test_layers_are_cut_as_told() -> None:
    told = [span for line in lines(PAGE, "Layers") for span in line.spans]
    assert told[:6:2] == [flags.group_of(name) for name in told[1:6:2]]


def test_the_bounds_that_the_page_names() -> None:
    text = " ".join(line.text for line in lines(PAGE))
    assert f"of at least {flags.LEAST_GROUPS}, and" in text
    assert f"At most {flags.MOST_TENSORS} tensors with a risk are listed" in text
    assert f"of at least {flags.LEAST_CHANGES} layers" in text
    assert f"of {flags.LEAST_SCORE} on" in text
    assert f"counts as at least {flags.LEAST_SPREAD}" in text
    assert f"about {10 ** (flags.LEAST_SCORE * flags.LEAST_SPREAD):.1f} times" in text
    assert f"of the {compare.MOST_DISTRIBUTIONS} tensors" in text
    assert f"have {statistics.BINS} bins" in text
    assert statistics.SPREAD == 4
    assert f"of {command._MOST} rows each" in text
    assert f"in Markdown the first {command._MOST}" in text
    assert command._MOST == markdown.MOST_ROWS
    assert f"If more than {changes.MOST_SEARCHED} files" in text
