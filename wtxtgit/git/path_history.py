"""What stands at a few paths along a history, and which commits change it.

Far cheaper than snapshots: git looks at the paths alone, and at the commits
that are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from wtxtgit.git import history, index
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
            name = index.object_format(self._repo)
            self._empty = hashlib.new(name, b"tree 0\0", usedforsecurity=False).hexdigest()
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
