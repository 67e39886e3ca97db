"""A shell that finds the installed command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.starts import BIN


@pytest.fixture(autouse=True)
def path(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wtxtgit` and `python` are those of the environment that runs the tests."""
    assert command.is_file(), f"{command} is not installed"
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (command.parent, BIN, os.environ["PATH"]))))
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Lines in the order in which a terminal has them.
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")
