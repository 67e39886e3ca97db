"""Deltas that a branch brings: where the base of each is in the repository."""

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
    """What changed, each delta at the head with its base where the repository has that.

    Raises EnvironmentFailure where git can't give a blob.
    """
    # Next to what it changes, mostly: at the base of the branch, and at its head.
    finder = BaseFinder(repo, [*branch.known[1:], branch.after.oid])
    return [_with_base(repo, finder, one) for one in changed]


def _with_base(repo: Repository, finder: BaseFinder, one: ChangedCheckpoint) -> ChangedCheckpoint:
    if not one.is_delta or one.after is None or not one.after.is_file:
        return one
    data = delta_in(blob(repo, one.after.oid), os.fsdecode(one.path), repo, None)
    wanted = base_of(data)
    return one if wanted is None else replace(one, delta_base=finder.find(wanted))
