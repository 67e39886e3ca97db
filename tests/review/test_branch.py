"""Ranges: what is reviewed, and what it is compared with."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.review.changes import branch_of


@pytest.fixture
def diverged(repo: Repo) -> Repo:
    """main and topic, each one commit past the tag `fork`; topic is checked out."""
    repo.commit("first")
    repo.git("tag", "fork")
    repo.git("checkout", "-q", "-b", "topic")
    repo.commit("theirs")
    repo.git("checkout", "-q", "main")
    repo.commit("ours")
    repo.git("checkout", "-q", "topic")
    return repo


def oid(repo: Repo, name: str) -> str:
    return repo.git("rev-parse", name).decode().strip()


@pytest.mark.parametrize(
    ("asked", "base", "head", "before", "after"),
    [
        ("main...topic", "main", "topic", "fork", "topic"),
        ("main..topic", "main", "topic", "main", "topic"),
        ("main", "main", "HEAD", "fork", "topic"),
        ("main...", "main", "HEAD", "fork", "topic"),
        ("...main", "HEAD", "main", "fork", "main"),
        ("..main", "HEAD", "main", "topic", "main"),
        ("fork", "fork", "HEAD", "fork", "topic"),
    ],
)
def test_ranges(asked: str, base: str, head: str, before: str, after: str, diverged: Repo) -> None:
    found = branch_of(diverged.repository, asked)
    assert (found.base, found.head, found.tip) == (base, head, oid(diverged, base))
    assert (found.before.oid, found.after.oid) == (oid(diverged, before), oid(diverged, after))


def test_the_default_is_the_upstreams_default_branch(diverged: Repo) -> None:
    clone = diverged.clone("clone")
    clone.git("checkout", "-q", "-b", "mine", "origin/main")
    clone.git("remote", "set-head", "origin", "topic")
    found = branch_of(clone.repository, None)
    assert (found.base, found.head) == ("origin/topic", "HEAD")
    assert found.before.oid == oid(diverged, "fork")


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_before_the_first_push_all_is_new(tmp_path: Path, algorithm: str) -> None:
    repo = Repo(tmp_path)
    repo.git("init", "-q", "-b", "main", f"--object-format={algorithm}")
    with pytest.raises(EnvironmentFailure, match="no commits yet"):
        branch_of(repo.repository, None)
    tip = repo.commit("first")
    empty = repo.git("mktree", stdin=b"").decode().strip()
    found = branch_of(repo.repository, None)
    assert (found.base, found.head, found.after.oid) == ("nothing", "HEAD", tip)
    assert (found.is_whole, found.known) == (True, [])
    assert (found.before.oid, found.before.tree) == ("0" * len(empty), empty)


def test_the_hint_about_an_unknown_default_branch_ends_that(diverged: Repo) -> None:
    """As in the clone of a repository that was empty, once it has two branches."""
    clone = diverged.clone("clone")
    clone.git("remote", "set-head", "origin", "--delete")
    with pytest.raises(UsageError, match="'origin' is not known") as refused:
        branch_of(clone.repository, None)
    assert refused.value.hint is not None
    clone.run(*shlex.split(refused.value.hint))
    assert branch_of(clone.repository, None).base.startswith("origin/")


@pytest.mark.parametrize("asked", ["nowhere...topic", "main..nowhere", "", "main...topic:x"])
def test_revisions_that_are_none(asked: str, diverged: Repo) -> None:
    with pytest.raises(EnvironmentFailure, match="names nothing"):
        branch_of(diverged.repository, asked)


def test_no_option_gets_to_git(diverged: Repo) -> None:
    with pytest.raises(UsageError, match="is not a revision"):
        branch_of(diverged.repository, "--all...topic")


def test_histories_apart(diverged: Repo) -> None:
    diverged.git("checkout", "-q", "--orphan", "apart")
    diverged.commit("another first")
    with pytest.raises(EnvironmentFailure, match="no common commit"):
        branch_of(diverged.repository, "main...apart")
    assert branch_of(diverged.repository, "main..apart").before.oid == oid(diverged, "main")
