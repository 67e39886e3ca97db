"""Colours: on a terminal, of words that have one, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.e2e.sealed import checkpoint
from tests.kit import Repo, terminal

GREEN, RED, YELLOW, END = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


def on_a_terminal(wtxtgit: Command, *arguments: str, **given: str) -> str:
    """What a command writes to a terminal, on both of its outputs."""
    env = {**wtxtgit.options()["env"], "TERM": "xterm", "COLUMNS": "120", **given}
    return terminal.on_a_terminal(wtxtgit.argv(*arguments), env=env, cwd=wtxtgit.folder)[2]


@pytest.fixture
def files(wtxtgit: Command) -> Path:
    wtxtgit.folder.joinpath("a").write_bytes(checkpoint(1.0))
    wtxtgit.folder.joinpath("b").write_bytes(checkpoint(0.0))
    return wtxtgit.folder


@pytest.mark.usefixtures("files")
def test_words_and_risks_have_them(wtxtgit: Command) -> None:
    said = on_a_terminal(wtxtgit, "verify", "a", "nothing")
    assert f"{GREEN}ok{END}" in said
    assert f"{YELLOW}unknown{END}" in said
    assert f"wtxtgit: {RED}error{END}: " in on_a_terminal(wtxtgit, "inspect", "nothing")
    assert f"{RED}all-zero{END}" in on_a_terminal(wtxtgit, "diff", "a", "b")


def test_states_of_files_have_them(repo: Repo, driver: None) -> None:
    repo.track("*.safetensors")
    for name in ("a", "b"):
        repo.write(f"{name}.safetensors", checkpoint(1.0))
    repo.add()
    repo.write("a.safetensors", checkpoint(2.0))
    (repo.path / "b.safetensors").unlink()
    said = on_a_terminal(Command(repo.path, repo.path.parent), "status")
    assert f"{YELLOW}modified{END}" in said
    assert f"{RED}missing{END}" in said


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("given", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_none_gets_none(wtxtgit: Command, given: dict[str, str]) -> None:
    for arguments in (("verify", "a", "nothing"), ("inspect", "nothing")):
        assert "\x1b[3" not in on_a_terminal(wtxtgit, *arguments, **given)


@pytest.mark.usefixtures("files")
def test_a_pipe_gets_none(wtxtgit: Command) -> None:
    done = wtxtgit("diff", "a", "b")
    assert b"all-zero" in done.out
    assert b"\x1b" not in done.out
