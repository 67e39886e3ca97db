"""Work-tree files whose stat fields are not the index's: those that git would read again."""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.config import UNFILTERED
from wtxtgit.git.index import Change
from wtxtgit.git.repository import Repository


@dataclass(frozen=True, slots=True)
class Touched:
    """What `change` a file's stat fields and mode tell of; `is_content` where the mode is the same.

    Then only its content can tell whether it is changed.
    """

    change: Change
    is_content: bool


def touched(repo: Repository) -> dict[bytes, Touched]:
    """Compare the work tree with the index by stat fields; no filter is run."""
    output = run.records(
        repo.git(
            *UNFILTERED,
            "diff-files",
            "--raw",
            "-z",
            "--no-renames",
            "--ignore-submodules=all",
        )
    )
    found = {}
    for about, path in zip(output[::2], output[1::2], strict=True):
        fields = about.removeprefix(b":").split(b" ")
        if len(fields) != 5:
            raise EnvironmentFailure(f"git diff-files gives {about[:200]!a}")
        change = Change(fields[4][:1].decode("ascii", "replace"))
        found[path] = Touched(change, change is Change.MODIFIED and fields[0] == fields[1])
    return found
