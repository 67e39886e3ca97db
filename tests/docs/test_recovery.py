"""docs/recovery.md: its commands."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.data import fixture_path
from tests.docs.pages import blocks
from tests.docs.shell import assert_as_shown, run, steps

PAGE = "docs/recovery.md"


def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copy(fixture_path("plain/pair_v1.safetensors"), tmp_path / "model.safetensors")
    assert_as_shown(run(steps(*blocks(PAGE, "console")), tmp_path))
