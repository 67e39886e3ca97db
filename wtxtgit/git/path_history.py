"""What stands at a few paths along a history, and which commits change it.

Far cheaper than snapshots: no folder is read that is not on the way to a path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from wtxtgit.git import history
from wtxtgit.git.entry import Entry
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import Chosen, TreeReader


class PathReader:
    """Reads what trees have at some paths; a context manager."""

    def __init__(self, repo: Repository, paths: Sequence[bytes]) -> None:
        self._paths = tuple(paths)
        self._trees = TreeReader(repo)

    def __enter__(self) -> PathReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._trees.__exit__()

    def entries(self, tree: str) -> Mapping[bytes, Entry]:
        """Give what stands at the paths of a tree, whatever it is but a folder."""
        return self._trees.at(tree, self._paths)


def touching(
    repo: Repository, tips: Iterable[str], excluded: Iterable[str], patterns: Sequence[bytes]
) -> set[str]:
    """Choose the commits that have something else at paths than one of their parents.

    Of what `tips` reach and `excluded` do not; `patterns` are git's pathspecs.
    Git finds them, and may pass over one whose tree is out of order: nothing
    that is trusted may depend on a commit's not being among them.
    """
    found = history.commits(repo, tips, excluded, touching=patterns)
    return {commit.oid for commit in found}


def changing(
    repo: Repository, commits: Sequence[Commit], paths: Collection[bytes], reader: CommitReader
) -> dict[bytes, list[int]]:
    """List, for each path, the numbers of commits that have something else there than a parent.

    Raises EnvironmentFailure for a parent that is not there.
    """
    found: dict[bytes, list[int]] = {path: [] for path in paths}
    of = {commit.oid: commit.tree for commit in commits}
    chosen = Chosen.of(paths)
    with TreeReader(repo) as trees:
        for number, commit in enumerate(commits):
            for parent in commit.parents:
                if parent not in of:
                    of[parent] = reader.commit(parent).tree
            before: set[str | None] = {of[parent] for parent in commit.parents} or {None}
            changes = (trees.between(tree, commit.tree, chosen) for tree in before)
            for path in {change.path for some in changes for change in some} & found.keys():
                found[path].append(number)
    return found
