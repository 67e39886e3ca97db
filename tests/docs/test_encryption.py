"""docs/encryption.md: its commands, and the tests that it names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.data import fixture_path
from tests.docs.pages import blocks
from tests.docs.shell import assert_as_shown, run, steps

PAGE = "docs/encryption.md"
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    shutil.which("age") is None, reason="age, the program, is not installed: apt install age"
)
@pytest.mark.skipif(
    shutil.which("ssh-keygen") is None,
    reason="ssh-keygen is not installed: apt install openssh-client",
)
def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copy(fixture_path("plain/pair_v1.safetensors"), tmp_path / "model.safetensors")
    assert_as_shown(run(steps(*blocks(PAGE, "console")), tmp_path))


def test_the_tests_that_show_it_are_there() -> None:
    named = re.findall(r"`(tests/[a-z_/0-9]+\.py)`", ROOT.joinpath(PAGE).read_text())
    assert named
    assert all(ROOT.joinpath(name).is_file() for name in named)
