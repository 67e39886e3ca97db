"""docs/sealing.md: its commands in order, each with what it prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.docs.pages import blocks, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.report.audit import HINTS

PAGE = "docs/sealing.md"


@pytest.mark.slow
def test_the_examples_do_what_the_page_shows(tmp_path: Path, home: Path) -> None:
    assert home.is_dir()
    for step in (1, 2, 3):
        save_file({"w": np.full((8, 8), step, "f4")}, tmp_path / f"step{step}.safetensors")
    folder = tmp_path / "work"
    folder.mkdir()
    for step in (1, 2, 3):
        (tmp_path / f"step{step}.safetensors").rename(folder / f"step{step}.safetensors")
    done = run(steps(*blocks(PAGE, "console")), folder)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 20


def test_every_kind_is_explained() -> None:
    table = tables(PAGE, "The audit")[0]
    assert {kind for row in table for kind in spans(row[0])} == set(HINTS)
