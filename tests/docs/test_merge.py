"""docs/merge.md: its commands, and its tables against what the code has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import blocks, lines, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.merge import conflicts
from wtxtgit.report.merge import MergedKind, Strategy

pytestmark = pytest.mark.slow

PAGE = "docs/merge.md"


def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    done = run(steps(*blocks(PAGE, "console")), tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 7
    folder = tmp_path / "merging"
    assert not (folder / ".git" / conflicts.FOLDER).exists()
    for name in ("model.safetensors", "../merged.wtxt"):
        subprocess.run(["wtxtgit", "verify", name], cwd=folder, check=True, capture_output=True)


def test_the_record_has_the_keys_of_the_table(tmp_path: Path) -> None:
    """Of the merge that the page stops in, with one thing settled."""
    todo = steps(*blocks(PAGE, "console"))
    (last,) = [n for n, step in enumerate(todo) if "--take head=theirs" in step.command]
    run(todo[: last + 1], tmp_path)
    record = tmp_path / "merging/.git" / conflicts.FOLDER / "model.safetensors.json"
    found = json.loads(record.read_bytes())
    table = tables(PAGE, "Conflicts")[0]
    assert set(found) == {key for row in table for key in spans(row[0])}
    (about,) = [row[1] for row in table if spans(row[0]) == ["conflicts"]]
    assert set(found["conflicts"][0]) | set(MergedKind) == set(spans(about))
    assert found["taken"] == [["head", "theirs"]]
    assert set(found["blobs"]) == {"1", "2", "3"}


def test_the_strategies_are_those_that_there_are() -> None:
    listed = [spans(row[0])[0] for row in tables(PAGE, "Strategies")[0]]
    assert listed == [strategy for strategy in Strategy if strategy is not Strategy.BASE]
    named = " ".join(line.text for line in lines(PAGE, "Conflicts"))
    sides = ", ".join(f"`{s}`" for s in ("ours", "theirs", "base", "average"))
    assert f"{sides} or `task`" in named
