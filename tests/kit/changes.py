"""What changed since the last state that was tested, which says how much of it is tried.

Compared are the files as they lie here with a commit: WTXTGIT_BASE, or where the branch left
`origin/main`, or on that itself the commit before. Where git can't tell, everything changed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from wtxtgit.containers.registry import FORMATS

ROOT = Path(__file__).parents[2]
CONTAINERS = "wtxtgit/containers/"
MUTANTS = "WTXTGIT_MUTANTS"
PACKAGES = sorted(one.name for one in FORMATS)
TEXT, TRUST, AUDIT = "text", "trust", "audit"
_ROOMS = {
    TEXT: ("wtxtgit/text/",),
    TRUST: ("wtxtgit/trust/", "wtxtgit/text/", "wtxtgit/model/", "tests/trust/"),
    AUDIT: (
        *("wtxtgit/chain/", "wtxtgit/trust/", "wtxtgit/text/", "wtxtgit/model/", "wtxtgit/git/"),
        *("wtxtgit/filter/", "wtxtgit/cli/", "wtxtgit/report/", "tests/e2e/", "pyproject.toml"),
    ),
}
"""What is tried beside the formats, and what that hangs on."""
_SHARED = (
    *("wtxtgit/io/", "wtxtgit/model/", "wtxtgit/errors.py", "pyproject.toml"),
    *("tests/fuzz/", "tests/data/fixtures/"),
)
"""What all formats use, and the mutants themselves."""


def _git(*arguments: str) -> str | None:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def _base() -> str | None:
    given = os.environ.get("WTXTGIT_BASE")
    if given:
        return given
    head, left = _git("rev-parse", "HEAD"), _git("merge-base", "HEAD", "origin/main")
    return left.strip() if left and left != head else "HEAD^"


@cache
def _changed() -> tuple[str, ...] | None:
    """The paths of files that are not as they were; None where git can't tell."""
    tracked = _git("diff", "--name-only", "--no-renames", "-z", _base() or "", "--")
    other = _git("ls-files", "--others", "--exclude-standard", "-z")
    if tracked is None or other is None:
        return None
    return tuple(path for path in (tracked + other).split("\0") if path)


@cache
def why_all(subject: str) -> str:
    """Why a container format, or a room, is to be tried in full; "" where a sample is enough."""
    asked = os.environ.get(MUTANTS)
    if asked is not None:
        assert asked in ("all", "sample"), f"{MUTANTS} is all or sample"
        return f"{MUTANTS}=all" if asked == "all" else ""
    changed = _changed()
    if changed is None:
        return "git does not tell what changed"
    return next((path for path in changed if _concerns(path, subject)), "")


def _concerns(path: str, subject: str) -> bool:
    # What mends texts decides nothing about those that are whole.
    if path.startswith("wtxtgit/text/recovery/"):
        return False
    if subject in (TRUST, AUDIT):
        return path.startswith(_ROOMS[subject])
    if subject == TEXT:
        return path.startswith((*_ROOMS[TEXT], *_SHARED))
    folder = path.removeprefix(CONTAINERS).partition("/")[0]
    if path.startswith(CONTAINERS) and folder in PACKAGES:
        return folder == subject
    return path.startswith((CONTAINERS, *_SHARED))


def share(subject: str, count: int) -> int:
    """How many of so many mutants, or batches of them, are tried: all, or a tenth."""
    return count if why_all(subject) else max(1, count // 10)


def told(subjects: Iterable[str]) -> list[str]:
    """How much is tried of each, and why: a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for subject in subjects:
        by_reason.setdefault(why_all(subject), []).append(subject)
    amounts = {why: f"all ({why})" if why else "a tenth (nothing changed)" for why in by_reason}
    return [f"mutants: {amounts[why]} of {', '.join(by_reason[why])}" for why in sorted(by_reason)]
