"""What stands at a few paths along a history, and which commits change it.

Far cheaper than snapshots: git looks at the paths alone, and at the commits
that are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from wtxtgit.git import history, index
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository
from wtxtgit.git.tree_changes import TreeChanges


class PathReader:
    """Reads what trees have at some paths; a context manager."""

    def __init__(self, repo: Repository, paths: Sequence[bytes]) -> None:
        self._repo = repo
        self._paths = frozenset(paths)
        self._changes = TreeChanges(repo, paths)
        self._empty: str | None = None

    def __enter__(self) -> PathReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._changes.__exit__()

    def entries(self, tree: str) -> Mapping[bytes, Entry]:
        """Give what stands at the paths of a tree, whatever it is but a folder."""
        if self._empty is None:
            self._empty = empty_tree(self._repo)
        if tree == self._empty:
            return {}
        changes = self._changes.between(self._empty, tree)
        # A path that is a folder stands for all that is in it.
        return {c.path: c.after for c in changes if c.after is not None and c.path in self._paths}


def touching(
    repo: Repository, tips: Iterable[str], excluded: Iterable[str], patterns: Sequence[bytes]
) -> set[str]:
    """Choose the commits that have something else at paths than one of their parents.

    Of what `tips` reach and `excluded` do not; `patterns` are git's pathspecs.
    """
    found = history.commits(repo, tips, excluded, touching=patterns)
    return {commit.oid for commit in found}


def changing(
    repo: Repository, commits: Sequence[Commit], paths: Collection[bytes], reader: CommitReader
) -> dict[bytes, list[int]]:
    """List, for each path, the numbers of commits that have something else there than a parent.

    One process compares all trees, however many paths there are.
    Raises EnvironmentFailure for a parent that is not there.
    """
    found: dict[bytes, list[int]] = {path: [] for path in paths}
    trees = {commit.oid: commit.tree for commit in commits}
    with TreeChanges(repo, tuple(found)) as changes:
        for number, commit in enumerate(commits):
            for parent in commit.parents:
                if parent not in trees:
                    trees[parent] = reader.commit(parent).tree
            before = {trees[parent] for parent in commit.parents} or {empty_tree(repo)}
            changed = {c.path for tree in before for c in changes.between(tree, commit.tree)}
            for path in changed & found.keys():
                found[path].append(number)
    return found


def empty_tree(repo: Repository) -> str:
    """Give the id of the tree without files."""
    name = index.object_format(repo)
    return hashlib.new(name, b"tree 0\0", usedforsecurity=False).hexdigest()
