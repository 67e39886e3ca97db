"""docs/diff.md: its commands, and its table against the data."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import blocks, lines, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.cli import diff_table
from wtxtgit.comparison.compare import MAX_CHANGES
from wtxtgit.tensors import numbers

pytestmark = pytest.mark.slow

PAGE = "docs/diff.md"


def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    done = run(steps(*blocks(PAGE, "console")), tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 4

    (as_json,) = [one for one in done if one.step.command.endswith("--json")]
    found = json.loads(as_json.output)
    fields = {field for tensor in found["tensors"] for field in tensor}
    fields |= set(found["tensors"][0]["before"])
    table = tables(PAGE, "Numbers")[0]
    told = {span for row in table for span in spans(row[0])}
    assert told == fields & told
    identity = {"name", "status", "dtype", "shape", "base_name"}
    in_prose = {"elements", "rows", "row_ranges_exact", "zeros", "nan", "inf"}
    assert fields - told == identity | in_prose
    columns = {word for row in table for word in row[1].split(", ") if word}
    assert columns == set(diff_table._LISTED[1:]) | set(diff_table._VALUES)

    longer = subprocess.run(
        ["wtxtgit", "diff", "HEAD:model.safetensors", "model.safetensors", "--format", "json"],
        cwd=tmp_path / "comparing",
        capture_output=True,
        check=True,
    )
    assert longer.stdout.decode() == as_json.output


def test_the_bounds_that_the_page_names() -> None:
    text = " ".join(line.text for line in lines(PAGE))
    assert f"at most {numbers.MAX_RANGES} `row_ranges`" in text
    assert f"at most {numbers.MAX_BLOCKS} blocks" in text
    assert f"At most {MAX_CHANGES:,} changes" in text
