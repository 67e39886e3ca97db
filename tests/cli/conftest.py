"""Fixtures of the command's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.fixture
def wtxtgit(tmp_path: Path) -> Command:
    """The command, in an empty folder and with an empty home."""
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    return Command(folder, home)
