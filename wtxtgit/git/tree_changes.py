"""Which files of a tree were renamed, as git finds them by content."""

from __future__ import annotations

from collections.abc import Sequence

from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.repository import Repository


def renames(
    repo: Repository, before: str, after: str, paths: Sequence[bytes]
) -> dict[bytes, bytes] | None:
    """Find which of these paths came from which other one of them: path after to path before.

    By content, the same or as similar as git takes for renamed. `before` and
    `after` are trees' object ids. None where git takes no paths that long.
    """
    if not run.fit(paths):
        return None
    output = repo.git(
        "--literal-pathspecs", "diff-tree", "-r", "-z", "--name-status", "--find-renames",
        "--diff-filter=R", check_oid(before), check_oid(after), "--", *paths,
        env=run.TRUE_OBJECTS,
    )  # fmt: skip
    fields = run.records(output)
    return dict(zip(fields[2::3], fields[1::3], strict=True))
