"""Deltas that a branch brings, and finding their bases in the repository."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from wtxtgit.checkpoint.delta_base import BaseFinder, base_of, delta_in
from wtxtgit.checkpoint.open import blob
from wtxtgit.git.repository import Repository
from wtxtgit.review.changes import Branch, ChangedCheckpoint


def with_bases(
    repo: Repository, branch: Branch, changed: Sequence[ChangedCheckpoint]
) -> list[ChangedCheckpoint]:
    """Add to each delta at the head its base, if that is in the repository.

    Raises EnvironmentFailure if git can't provide a blob.
    """
    # Mostly found next to what it changes: at the base of the branch, and at its head.
    finder = BaseFinder(repo, [*branch.known[1:], branch.after.oid])
    return [_with_base(repo, finder, one) for one in changed]


def _with_base(repo: Repository, finder: BaseFinder, one: ChangedCheckpoint) -> ChangedCheckpoint:
    if not one.is_delta or one.after is None or not one.after.is_file:
        return one
    data = delta_in(blob(repo, one.after.oid), os.fsdecode(one.path), repo, None)
    wanted = base_of(data)
    return one if wanted is None else replace(one, delta_base=finder.find(wanted))
