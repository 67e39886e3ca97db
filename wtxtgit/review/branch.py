"""The two ends of a branch: what is reviewed, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.chain.walk import commit_of
from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import history
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository


@dataclass(frozen=True, slots=True)
class Branch:
    """A range of commits.

    `base` and `head` are as they were asked for. `tip` is the commit that
    `base` names, `before` what is compared with `after`: that commit, or where
    the branch left it.
    """

    base: str
    head: str
    tip: str
    before: Commit
    after: Commit


def branch_of(repo: Repository, asked: str | None) -> Branch:
    """Read `BASE...HEAD`, `BASE..HEAD`, or `BASE` for `BASE...HEAD`.

    An end that is left out is HEAD; without anything asked the base is the
    upstream's default branch. Raises UsageError where there is none, and
    EnvironmentFailure for a revision that names no commit.
    """
    base, head, is_direct = _ends(asked if asked is not None else _default(repo))
    tip, after = commit_of(repo, base), commit_of(repo, head)
    before: str | None = tip
    if not is_direct:
        before = history.merge_base(repo, tip, after)
    if before is None:
        raise EnvironmentFailure(
            f"{base!r} and {head!r} have no commit in common",
            hint="git fetch --unshallow gets a whole history; BASE..HEAD needs no common commit",
        )
    with CommitReader(repo) as reader:
        return Branch(base, head, tip, reader.commit(before), reader.commit(after))


def _ends(asked: str) -> tuple[str, str, bool]:
    """Base and head of a range, and whether the base itself is compared with."""
    if asked.startswith("-"):
        raise UsageError(f"{asked!r} is no revision")
    for dots in ("...", ".."):
        base, found, head = asked.partition(dots)
        if found:
            return base or "HEAD", head or "HEAD", dots == ".."
    return asked, "HEAD", False


def _default(repo: Repository) -> str:
    name = history.default_branch(repo)
    if name is None:
        raise UsageError(
            "there is no upstream whose default branch is known",
            hint="wtxtgit review main...HEAD names what to compare with",
        )
    return name.removeprefix("refs/remotes/")
