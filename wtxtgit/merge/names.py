"""What git calls ours and theirs, in words: a rebase swaps the two."""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.git.repository import Repository

_MERGES = ("merge", "pull")


@dataclass(frozen=True, slots=True)
class SideNames:
    """Words for the two sides of the merge that is under way."""

    ours: str
    theirs: str


def side_names(repo: Repository, action: str = "") -> SideNames:
    """Tell from git's own state what its two sides are.

    `action` is what git says that it does (GIT_REFLOG_ACTION): a merge may be
    made while a rebase has stopped.
    """
    rebase = repo.git_dir / "rebase-merge"
    apply = repo.git_dir / "rebase-apply"
    if (apply / "applying").is_file():
        return SideNames("ours (HEAD)", "theirs (the patch)")
    if action.startswith(_MERGES) or (repo.git_dir / "MERGE_HEAD").is_file():
        return SideNames("ours (HEAD)", "theirs (what comes in)")
    if rebase.is_dir() or apply.is_dir():
        return SideNames("ours (what you rebase onto)", "theirs (your own commit)")
    return SideNames("ours (HEAD)", "theirs (what comes in)")
