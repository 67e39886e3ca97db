"""Finds out which trees git is merging, as far as a merge driver can.

Git gives a driver only three contents and a path. `git merge` also exports the commit that it
merges. A rebase, and a pick of several commits, record each step in a file before they begin with
it. A pick of one commit is only known from git's command line. The caller still has to compare the
contents that the driver was given with those in the trees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import WtxtgitError
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import read_small

_MOST = 64 * 1024 * 1024
_STEP = re.compile(
    rb"(?:pick|p|reword|r|edit|e|squash|s|fixup|f|(?P<revert>revert)) (?P<commit>[0-9a-f]{4,64})\b"
)
"""A line of the sequencer's lists: git's sequencer.c. Those with options are not taken."""


class MergedTrees(NamedTuple):
    """Object ids of the trees of the three versions."""

    base: str
    ours: str
    theirs: str


def merged_trees(
    repo: Repository, merged: Sequence[str], words: Sequence[str]
) -> MergedTrees | None:
    """Return the trees of the merge that started this process; None if they are not known.

    `merged` are the commits that `git merge` says it merges, `words` are git's command and its
    arguments. Several merge bases have no tree, because git invents one.
    """
    try:
        head = history.head(repo)
        if head is None:
            return None
        if merged:
            bases = history.merge_bases(repo, head.oid, *merged) if len(merged) == 1 else []
            sides = (bases[0], merged[0]) if len(bases) == 1 else None
        else:
            sides = _picked(repo, words)
        if sides is None:
            return None
        with history.CommitReader(repo) as commits:
            base, theirs = (commits.commit(oid).tree for oid in sides)
    except WtxtgitError:
        return None
    return MergedTrees(base, head.tree, theirs)


def _picked(repo: Repository, words: Sequence[str]) -> tuple[str, str] | None:
    """Return base and theirs of the commit that is being picked or reverted."""
    done_file = repo.git_dir / "rebase-merge" / "done"
    todo_file = repo.git_dir / "sequencer" / "todo"
    is_revert = words[:1] == ["revert"]
    if words[:1] == ["rebase"] or done_file.is_file():
        step = _STEP.match(_lines(done_file)[-1])
    elif todo_file.is_file():
        step = _STEP.match(_lines(todo_file)[0])
    elif words[:1] in (["cherry-pick"], ["revert"]):
        # Values of options are no commits, or make it two.
        oids = {history.find(repo, f"{word}^{{commit}}") for word in words[1:] if word[:1] != "-"}
        commits = [oid for oid in oids if oid is not None]
        return _with_parent(repo, commits[0], is_revert=is_revert) if len(commits) == 1 else None
    elif words in (["stash", "pop"], ["stash", "apply"]):
        # A stash has two parents: the commit that it was made on, and the index.
        stash = history.resolve_commit(repo, "refs/stash")
        return history.resolve_commit(repo, "refs/stash^1"), stash
    else:
        return None
    if step is None:
        return None
    oid = history.resolve_commit(repo, step["commit"].decode("ascii"))
    return _with_parent(repo, oid, is_revert=step["revert"] is not None)


def _lines(file: Path) -> list[bytes]:
    return bytes(read_small(file, _MOST, "a list of git's sequencer")).splitlines() or [b""]


def _with_parent(repo: Repository, oid: str, *, is_revert: bool) -> tuple[str, str] | None:
    with history.CommitReader(repo) as commits:
        parents = commits.commit(oid).parents
    if len(parents) != 1:
        return None
    return (oid, parents[0]) if is_revert else (parents[0], oid)
