"""The pre-commit hook where it has nothing to do, without click: git waits for it each time."""

from __future__ import annotations

from wtxtgit.chain import settled
from wtxtgit.cli import environment
from wtxtgit.errors import WtxtgitError
from wtxtgit.git.repository import Repository

AUTO_SEAL = "wtxtgit.autoSeal"


def is_settled() -> bool:
    """Whether the hook would find nothing; it is run where that is not known."""
    try:
        repo = Repository.discover()
        if environment.merged_commits() or repo.config.get(AUTO_SEAL) is not None:
            return False
        return settled.is_settled(repo, environment.facts_key())
    except (WtxtgitError, OSError):
        # The full command meets the same, and tells it.
        return False
