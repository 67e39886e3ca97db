"""The command, and clusters that it works on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cluster.fixtures import lone, shared

__all__ = ["lone", "shared", "wtxtgit"]


@pytest.fixture
def wtxtgit(tmp_path: Path) -> Command:
    """The command, in an empty folder and with an empty home."""
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    return Command(folder, home)
