"""How often commands start git: each start takes as long as most of what git is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Repo, safetensors
from wtxtgit.git import run

MOST = {
    "add model.safetensors": 9,
    "hook pre-commit": 13,
    "check --staged": 11,
    "status": 8,
    "checkout": 6,
    "audit": 8,
}
LONG_AGO = 1_700_000_000
AFTER_A_CHECK = 9
"""For a hook's commit that touches nothing of ours."""
BEFORE_THE_FIRST = 4
"""For a hook's first commit, of files that are none of ours."""


class Counter:
    """A git on PATH that writes down each start."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.bin = folder / "bin"
        self.bin.mkdir()
        git = self.bin / "git"
        git.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\nexec {run.executable()} "$@"\n')
        git.chmod(0o755)

    def starts(self, repo: Repo, command: str) -> int:
        self.log.write_text("")
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        repo.wtxtgit(*command.split(), env={"PATH": path})
        return len(self.log.read_text().splitlines())


@pytest.fixture
def changed(tracked: Repo) -> Repo:
    """A checkpoint that is changed, and not staged; no file is as young as the index.

    Git, and commands of ours, look once more at those that are.
    """
    tracked.write("model.safetensors", safetensors(9.0))
    for file in tracked.path.iterdir():
        if file.is_file():
            os.utime(file, (LONG_AGO, LONG_AGO))
    return tracked


@pytest.mark.slow
def test_commands_start_git_as_often_as_told(changed: Repo, tmp_path: Path) -> None:
    counter = Counter(tmp_path)
    counts = {command: counter.starts(changed, command) for command in MOST}
    assert {command: count for command, count in counts.items() if count > MOST[command]} == {}


@pytest.mark.slow
def test_a_hook_that_has_nothing_to_do(tracked: Repo, tmp_path: Path) -> None:
    counter = Counter(tmp_path)
    tracked.write("notes", "one")
    tracked.add("notes")
    tracked.wtxtgit("hook", "pre-commit")
    tracked.commit()
    tracked.write("notes", "two")
    tracked.add("notes")
    assert counter.starts(tracked, "hook pre-commit") == AFTER_A_CHECK


@pytest.mark.slow
def test_a_hook_before_the_first_commit(repo: Repo, tmp_path: Path) -> None:
    repo.write("notes", "one")
    repo.add()
    assert Counter(tmp_path).starts(repo, "hook pre-commit") == BEFORE_THE_FIRST
