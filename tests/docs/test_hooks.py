"""docs/hooks.md: its commands in order, each with what it prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from tests.docs.pages import ROOT, blocks, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from wtxtgit.report import audit, check
from wtxtgit.setup import hooks

PAGE = "docs/hooks.md"


@pytest.mark.slow
def test_the_examples_do_what_the_page_shows(tmp_path: Path, home: Path) -> None:
    assert home.is_dir()
    folder = tmp_path / "work"
    folder.mkdir()
    for step in (1, 2, 3):
        save_file({"w": np.full((8, 8), step, "f4")}, folder / f"step{step}.safetensors")
    done = run(steps(*blocks(PAGE, "console")), folder)
    assert_as_shown(done)
    assert sum(one.step.fails for one in done) == 3
    assert (folder / "model/.git/hooks/pre-push").is_file()


def test_every_hook_is_listed() -> None:
    (table,) = tables(PAGE, "Set up")
    assert tuple(name for row in table for name in spans(row[0])) == hooks.NAMES


def test_kinds_that_only_a_check_finds_are_listed() -> None:
    (table,) = tables(PAGE, "What the pre-commit hook checks")
    assert {name for row in table for name in spans(row[0])} == set(check.HINTS) - set(audit.HINTS)


def test_the_framework_gets_the_hooks_that_there_are() -> None:
    (block,) = blocks(PAGE, "yaml", "The pre-commit framework")
    shown = yaml.safe_load(block.text.replace("<", "").replace(">", ""))
    shipped = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    used = [hook["id"] for hook in shown["repos"][0]["hooks"]]
    assert used == [hook["id"] for hook in shipped]
    stages = {stage for hook in shipped for stage in hook["stages"]}
    assert set(shown["default_install_hook_types"]) == stages
    for hook in shipped:
        assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == (
            "python", False, True,
        )  # fmt: skip
        assert hook["entry"].removeprefix("wtxtgit hook ") in hooks.NAMES
