"""A pattern changes between the two forms, and git's commands join commits from both sides of that.

One side of each history stores the checkpoint in the other form; the other side goes on with its
values. Whatever joins them leaves both: the values, in the form that was chosen. All combinations
of forms are in `tests/merge/test_forms.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors, text_of
from tests.kit.templates import Templates, copyable
from tests.text.naive_detached import detached
from wtxtgit.git import run

NAME = "model.safetensors"
LINES = {
    is_detached: f"*.safetensors filter={driver} diff=wtxt merge=wtxt -text\n"
    for is_detached, driver in ((False, "wtxt"), (True, "wtxt-detached"))
}
CHANCE = random.Random(5)  # noqa: S311 - the same in every run
VALUES = [CHANCE.gauss(0, 1) for _ in range(24_000)]
JOINED = 1.0, 2.0


def model(first: float = 0.0, last: float = 0.0) -> bytes:
    return safetensors(first, *VALUES, last)


def stored(content: bytes, is_detached: bool) -> bytes:
    whole = text_of(content)
    return detached(whole)[0] if is_detached else whole


def put(repo: Repo, content: bytes) -> None:
    repo.write(NAME, content)
    repo.git("commit", "-qam", "values")


def switch(repo: Repo, to: bool) -> str:
    """Track in a form, as the documentation says that it is done."""
    repo.write(".gitattributes", LINES[to])
    repo.git("add", "--renormalize", ".")
    return repo.commit("switched")


def assert_is(repo: Repo, content: bytes, is_detached: bool) -> None:
    """The file stands there, and is stored in the form that the attributes say."""
    assert (repo.path / NAME).read_bytes() == content
    assert (repo.path / ".gitattributes").read_text() == LINES[is_detached]
    assert repo.blob(NAME) == stored(content, is_detached)
    # Also where git has to filter it again.
    os.utime(repo.path / NAME, (1, 1))
    assert repo.status() == b""


def _begin(to: bool, folder: Path) -> Repo:
    repo = copyable(folder)
    repo.git("symbolic-ref", "HEAD", "refs/heads/main")
    repo.write(".gitattributes", LINES[not to])
    repo.write(NAME, model())
    repo.add()
    repo.commit()
    return repo


def _diverge(to: bool, switched_on: str, folder: Path) -> None:
    """The branch `switched_on` changes the form, then both a value at an end of their own."""
    repo = _begin(to, folder)
    repo.git("branch", "theirs")
    for branch, content in (("theirs", model(last=2.0)), ("main", model(first=1.0))):
        repo.git("checkout", "-q", branch)
        if branch == switched_on:
            switch(repo, to)
        put(repo, content)


@pytest.fixture
def diverged(templates: Templates, tmp_path: Path, driver: None) -> Callable[[bool, str], Repo]:
    def copy(to: bool, switched_on: str) -> Repo:
        make = partial(_diverge, to, switched_on)
        return Repo(templates.copy(f"forms {to} {switched_on}", make, tmp_path / "repo"))

    return copy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "switched_on", "words"),
    [
        (True, "theirs", ("merge", "-q", "--no-edit", "theirs")),
        (True, "theirs", ("rebase", "-q", "theirs")),
        (True, "theirs", ("cherry-pick", "main..theirs")),
        (False, "main", ("merge", "-q", "--no-edit", "theirs")),
    ],
)
def test_branches_are_joined(
    diverged: Callable[[bool, str], Repo], to: bool, switched_on: str, words: tuple[str, ...]
) -> None:
    repo = diverged(to, switched_on)
    repo.git(*words)
    assert_is(repo, model(*JOINED), to)


@pytest.mark.slow
@pytest.mark.parametrize("to", [True, False], ids=["to detached", "to whole"])
def test_a_switch_in_one_history(tmp_path: Path, driver: None, to: bool) -> None:
    repo = _begin(to, tmp_path / "repo")
    repo.write(NAME, model(last=2.0))
    repo.git("stash", "-q")
    switched = switch(repo, to)
    # What was changed before the switch is brought over it.
    put(repo, model(first=1.0))
    repo.git("stash", "pop", "-q")
    repo.git("commit", "-qam", "stashed")
    assert_is(repo, model(*JOINED), to)
    for revision, values in (("main~3", ()), ("main~2", ()), ("main~1", (1.0,))):
        repo.git("checkout", "-q", revision)
        assert_is(repo, model(*values), (revision == "main~3") != to)
    repo.git("checkout", "-q", "main")
    # The switch alone is taken back, and what came after it stays.
    repo.git("revert", "--no-edit", switched)
    assert_is(repo, model(*JOINED), not to)


@pytest.mark.slow
def test_a_conflict_over_a_switch_is_settled(diverged: Callable[[bool, str], Repo]) -> None:
    repo = diverged(True, "theirs")
    put(repo, model(last=6.0))
    repo.run(run.executable(), "merge", "-q", "theirs", ok=(1,))
    # Ours stands there, whole, under attributes that want it detached.
    repo.wtxtgit("resolve", NAME, "--take", "*=theirs")
    repo.git("commit", "-qm", "merged")
    assert_is(repo, model(last=2.0), True)


@pytest.mark.slow
def test_all_that_shows_changes_tells_of_the_form(tmp_path: Path, driver: None) -> None:
    repo = _begin(True, tmp_path / "repo")
    told = repo.wtxtgit("track", "--detached", "*.safetensors").stderr.decode()
    assert "stored in their old form" in told
    assert f"git add --renormalize -- {NAME}" in told
    found = repo.wtxtgit("doctor", ok=(0, 1)).stdout.decode()
    assert f"form: git add --renormalize -- {NAME}, then commit" in found
    note = "note: stored as a whole text before, as a detached text after"
    os.utime(repo.path / NAME, (1, 1))
    assert note in repo.git("diff", "--", NAME).decode()
    repo.git("add", "--renormalize", ".")
    assert note in repo.git("diff", "--cached", "--", NAME).decode()
    repo.commit()
    sides = f"HEAD~1:{NAME}", f"HEAD:{NAME}"
    assert note in repo.wtxtgit("diff", *sides).stdout.decode()
    assert note in repo.wtxtgit("review", "HEAD~1...HEAD", ok=(0, 1)).stdout.decode()
    assert "as before" not in repo.wtxtgit("track", "--detached", "*.safetensors").stderr.decode()
    # And back.
    told = repo.wtxtgit("track", "*.safetensors").stderr.decode()
    assert f"git add --renormalize -- {NAME}" in told
