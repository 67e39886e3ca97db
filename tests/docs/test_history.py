"""docs/history.md: its commands, its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import blocks, lines, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.cli import history as command
from wtxtgit.report.history import Point

PAGE = "docs/history.md"


@pytest.mark.slow
def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    done = run(steps(*blocks(PAGE, "console")), tmp_path)
    assert_as_shown(done)
    (as_json,) = [one for one in done if one.step.command.endswith("--json")]
    assert len(json.loads(as_json.output)["versions"]) == 4


def test_numbers_and_bounds_are_those_of_the_code() -> None:
    (numbers,) = tables(PAGE, "Numbers")
    told = [name for row in numbers for name in spans(row[0])]
    assert told == [word.partition("=")[0] for word in Point.KEYS.split()]
    text = " ".join(line.text for line in lines(PAGE))
    assert f"the last {command._MOST_STEPS} versions" in text
    assert f"single change; {command._MOST} layers are shown" in text
