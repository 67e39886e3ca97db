"""docs/merge.md: its commands, and its tables against what the code has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks, lines, spans, tables
from tests.docs.shell import Step, assert_as_shown, run, steps
from wtxtgit.merge import conflicts
from wtxtgit.report.merge import MergedKind, Strategy

pytestmark = pytest.mark.slow

PAGE = "docs/merge.md"


KEEP = Step("", f"cp .git/{conflicts.FOLDER}/model.safetensors.json ../record.json", ())
"""Keeps the record of the conflicts that the page stops in, with one thing settled."""


def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    todo = steps(*blocks(PAGE, "console"))
    (last,) = [n for n, step in enumerate(todo) if "--take head=theirs" in step.command]
    done = run([*todo[: last + 1], KEEP, *todo[last + 1 :]], tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 7
    folder = tmp_path / "merging"
    assert not (folder / ".git" / conflicts.FOLDER).exists()
    for name in ("model.safetensors", "../merged.wtxt"):
        subprocess.run(["wtxtgit", "verify", name], cwd=folder, check=True, capture_output=True)
    assert_keys_of_the_table(json.loads((tmp_path / "record.json").read_bytes()))


def assert_keys_of_the_table(record: dict[str, Any]) -> None:
    table = tables(PAGE, "Conflicts")[0]
    assert set(record) == {key for row in table for key in spans(row[0])}
    (about,) = [row[1] for row in table if spans(row[0]) == ["conflicts"]]
    assert set(record["conflicts"][0]) | set(MergedKind) == set(spans(about))
    assert record["taken"] == [["head", "theirs"]]
    assert set(record["blobs"]) == {"1", "2", "3"}


def test_the_strategies_are_those_that_there_are() -> None:
    listed = [spans(row[0])[0] for row in tables(PAGE, "Strategies")[0]]
    assert listed == [strategy for strategy in Strategy if strategy is not Strategy.BASE]
    named = " ".join(line.text for line in lines(PAGE, "Conflicts"))
    sides = ", ".join(f"`{s}`" for s in ("ours", "theirs", "base", "average"))
    assert f"{sides} or `task`" in named
