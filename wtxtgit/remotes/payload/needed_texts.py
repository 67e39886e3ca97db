"""Which commits and files of a repository need payload: at present, recently, and at all.

Git is asked in the way of its own gc: all refs, reflogs, work trees with their indexes, and
operations in progress. Replaced objects are not followed, and what a partial clone lacks is
reported, not fetched.
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
"""Refs of a work tree that name the commits of an operation in progress: gitrevisions(7)."""
_BUSY_FILES = (
    "MERGE_HEAD", "rebase-merge/onto", "rebase-merge/orig-head", "rebase-merge/stopped-sha",
    "rebase-merge/autostash", "rebase-merge/git-rebase-todo", "rebase-merge/done",
    "rebase-apply/onto", "rebase-apply/orig-head", "rebase-apply/original-commit",
    "rebase-apply/autostash", "sequencer/head", "sequencer/todo",
)  # fmt: skip
"""Files in its git folder that do so, some in several lines and among other words."""
_MOST = 16 * 1024 * 1024
_EVERYTHING = ("--all", "--reflog", "--indexed-objects")


class FoundTexts(NamedTuple):
    """Detached texts; `is_whole` says whether these are all that can exist."""

    texts: list[DetachedText]
    is_whole: bool


def reached(repo: Repository, tips: Iterable[str] = ()) -> FoundTexts:
    """Return the texts that anything in the repository, or some objects given, leads to."""
    return _listed(repo, [*_busy_with(repo), *tips], *_EVERYTHING)


def of_now(repo: Repository) -> FoundTexts:
    """Return the texts in work trees, their indexes, stashes, and operations in progress.

    Such operations are merges, cherry-picks, reverts and rebases.
    """
    commits = [*_heads(repo), *_busy_with(repo), *_stashed(repo)]
    return _listed(repo, commits, "--no-walk=unsorted", "--indexed-objects")


def since(repo: Repository, time: float) -> FoundTexts:
    """Return the texts of commits of any ref made at or after `time`, in seconds since 1970."""
    # `--since` stops at the first old commit, but dates need not be in order.
    dated = repo.git("rev-list", "--all", "--timestamp", env=run.TRUE_OBJECTS).decode("ascii")
    rows = (line.split() for line in dated.splitlines())
    commits = [oid for time_of_commit, oid in rows if int(time_of_commit) >= time]
    return _listed(repo, commits, "--no-walk=unsorted") if commits else FoundTexts([], True)


def only_here(repo: Repository, remote_tips: Iterable[str]) -> FoundTexts:
    """Return the texts that something here leads to, and none of the commits that remotes have.

    A remote may have their payload, but nothing there leads to it.
    """
    without = (f"^{oid}" for oid in there(repo, [*remote_tips]))
    return _listed(repo, [*_busy_with(repo), *_heads(repo), *without], *_EVERYTHING)


def of_commit(repo: Repository, commit: str) -> FoundTexts:
    """Return the texts among a commit's files."""
    return _here(repo, [commit], "--no-walk=unsorted")


def _listed(repo: Repository, tips: Iterable[str], *arguments: str) -> FoundTexts:
    texts, is_whole = _here(repo, tips, *arguments)
    # gitrepository-layout(5): grafts hide parents.
    is_cut = repo.is_shallow or (repo.common_dir / "info/grafts").exists()
    return FoundTexts(texts, is_whole and not is_cut)


def _here(repo: Repository, tips: Iterable[str], *arguments: str) -> FoundTexts:
    """Return the texts that git finds without fetching; a partial clone may lack some."""
    answers = repo.git(
        "rev-list", "--objects", "--missing=print", "--stdin", *arguments,
        stdin="".join(f"{oid}\n" for oid in tips).encode("ascii"), env=run.TRUE_OBJECTS,
    ).splitlines()  # fmt: skip
    matches = [match for line in answers if (match := _OBJECT.fullmatch(line))]
    texts = list(of_blobs(repo, {match[1].decode("ascii"): match[2] for match in matches}))
    return FoundTexts(texts, not any(line.startswith(b"?") for line in answers))


def _heads(repo: Repository) -> list[str]:
    """Return the commits that work trees are at."""
    heads = [
        work_tree.get(b"HEAD", b"").decode("utf-8", "replace") for work_tree in work_trees(repo)
    ]
    return there(repo, [head for head in heads if _OID.fullmatch(head)])


def _stashed(repo: Repository) -> list[str]:
    """Return the commits of stashes, with those of their indexes and untracked files."""
    if not repo.git("for-each-ref", "--count=1", "refs/stash"):
        return []
    arguments = ("log", "--walk-reflogs", "--format=%H %P", "refs/stash", "--")
    return repo.git(*arguments, env=run.TRUE_OBJECTS).decode("ascii").split()


def _busy_with(repo: Repository) -> list[str]:
    """Return the commits of merges, cherry-picks and rebases in progress, or just finished."""
    trees = repo.common_dir / "worktrees"
    names = sorted(path.name for path in trees.iterdir()) if trees.is_dir() else []
    places = [("main-worktree", repo.common_dir)]
    places += [(f"worktrees/{name}", trees / name) for name in names]
    refs = [f"{place}/{name}" for place, _ in places for name in _BUSY]
    words = [word for _, folder in places for name in _BUSY_FILES for word in _words(folder / name)]
    return there(repo, refs + words)


def _words(path: Path) -> list[str]:
    """Return the words in a file that may be object ids, abbreviated or not."""
    if not path.is_file():
        return []
    words = read_small(path, _MOST, "a file of git's").decode("utf-8", "replace").split()
    return [word for word in words if _ABBREVIATED.fullmatch(word)]


def there(repo: Repository, names: Sequence[str]) -> list[str]:
    """Return the ids of the objects that names stand for, without those that do not exist."""
    queries = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
    answers = repo.git(
        "cat-file", "--batch-check=%(objectname)", stdin=queries, env=run.TRUE_OBJECTS
    ).decode("utf-8", "replace")
    return [line for line in answers.splitlines() if _OID.fullmatch(line)]
