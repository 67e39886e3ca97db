"""Which commits and files of a repository need payload: of now, lately, and at all.

Git is asked as its own gc asks: all refs, reflogs, work trees with their indexes, and what they are
in the middle of. No replaced object stands for another one, and what a partial clone lacks is told,
not fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.git.work_tree import work_trees
from wtxtgit.io.files import read_small
from wtxtgit.remotes.payload.detached_texts import DetachedText, of_blobs

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED = re.compile(r"[0-9a-f]{7,64}")
_OBJECT = re.compile(rb"([0-9a-f]{40,64}) (.*)")
_BUSY = (
    "MERGE_HEAD", "ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_HEAD",
    "AUTO_MERGE", "MERGE_AUTOSTASH",
)  # fmt: skip
"""Refs of a work tree that name what it is in the middle of: gitrevisions(7)."""
_BUSY_FILES = (
    "MERGE_HEAD", "rebase-merge/onto", "rebase-merge/orig-head", "rebase-merge/stopped-sha",
    "rebase-merge/autostash", "rebase-merge/git-rebase-todo", "rebase-merge/done",
    "rebase-apply/onto", "rebase-apply/orig-head", "rebase-apply/original-commit",
    "rebase-apply/autostash", "sequencer/head", "sequencer/todo",
)  # fmt: skip
"""Files of its git folder that do, some in several lines with other words."""
_MOST = 16 * 1024 * 1024


class FoundTexts(NamedTuple):
    """Detached texts, and whether all that there may be are known."""

    texts: list[DetachedText]
    is_whole: bool


def reached(repo: Repository, tips: Iterable[str] = ()) -> FoundTexts:
    """The texts that anything in the repository leads to, or some objects more."""
    every = ("--all", "--reflog", "--indexed-objects")
    return _listed(repo, [*_busy_with(repo), *tips], *every)


def of_now(repo: Repository) -> FoundTexts:
    """The texts of the files of work trees, of their indexes, of stashes, and of what is merged,
    picked or rebased."""
    commits = [*_heads(repo), *_busy_with(repo), *_stashed(repo)]
    return _listed(repo, commits, "--no-walk=unsorted", "--indexed-objects")


def since(repo: Repository, time: float) -> FoundTexts:
    """The texts of the commits of any ref that are not older than `time`, in seconds since 1970."""
    # `--since` ends at the first old commit: dates need not be in order.
    dated = repo.git("rev-list", "--all", "--timestamp", env=run.TRUE_OBJECTS).decode("ascii")
    rows = (line.split() for line in dated.splitlines())
    commits = [oid for made, oid in rows if int(made) >= time]
    return _listed(repo, commits, "--no-walk=unsorted") if commits else FoundTexts([], True)


def unpushed(repo: Repository) -> FoundTexts:
    """The texts of commits that no remote is known to have.

    A remote may have their payload; but nothing there leads to it.
    """
    asked = ("--branches", "--tags", "--not", "--remotes")
    return _listed(repo, _heads(repo), *asked)


def _listed(repo: Repository, tips: Iterable[str], *arguments: str) -> FoundTexts:
    answers = repo.git(
        "rev-list", "--objects", "--missing=print", "--stdin", *arguments,
        stdin="".join(f"{oid}\n" for oid in tips).encode("ascii"), env=run.TRUE_OBJECTS,
    ).splitlines()  # fmt: skip
    found = [match for line in answers if (match := _OBJECT.fullmatch(line))]
    texts = list(of_blobs(repo, {match[1].decode("ascii"): match[2] for match in found}))
    # gitrepository-layout(5): grafts hide parents.
    is_cut = repo.is_shallow or (repo.common_dir / "info/grafts").exists()
    is_whole = not (is_cut or any(line.startswith(b"?") for line in answers))
    return FoundTexts(texts, is_whole)


def _heads(repo: Repository) -> list[str]:
    """The commits that work trees are at."""
    heads = [one.get(b"HEAD", b"").decode("utf-8", "replace") for one in work_trees(repo)]
    return there(repo, [head for head in heads if _OID.fullmatch(head)])


def _stashed(repo: Repository) -> list[str]:
    """The commits of stashes, with those of their indexes and untracked files."""
    if not repo.git("for-each-ref", "--count=1", "refs/stash"):
        return []
    asked = ("log", "--walk-reflogs", "--format=%H %P", "refs/stash", "--")
    return repo.git(*asked, env=run.TRUE_OBJECTS).decode("ascii").split()


def _busy_with(repo: Repository) -> list[str]:
    """What work trees are merging, picking or rebasing, or were a moment ago."""
    trees = repo.common_dir / "worktrees"
    names = sorted(path.name for path in trees.iterdir()) if trees.is_dir() else []
    places = [("main-worktree", repo.common_dir)]
    places += [(f"worktrees/{name}", trees / name) for name in names]
    refs = [f"{place}/{name}" for place, _ in places for name in _BUSY]
    words = [word for _, folder in places for name in _BUSY_FILES for word in _words(folder / name)]
    return there(repo, refs + words)


def _words(path: Path) -> list[str]:
    """The words of a file that may be ids, abbreviated or not."""
    if not path.is_file():
        return []
    words = read_small(path, _MOST, "a file of git's").decode("utf-8", "replace").split()
    return [word for word in words if _ABBREVIATED.fullmatch(word)]


def there(repo: Repository, names: Sequence[str]) -> list[str]:
    """The ids of what names stand for, as far as it is there."""
    asked = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
    told = repo.git(
        "cat-file", "--batch-check=%(objectname)", stdin=asked, env=run.TRUE_OBJECTS
    ).decode("utf-8", "replace")
    return [line for line in told.splitlines() if _OID.fullmatch(line)]
