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
from zlib import crc32

from wtxtgit.containers.registry import FORMATS

ROOT = Path(__file__).parents[2]
CONTAINERS = "wtxtgit/containers/"
MUTANTS = "WTXTGIT_MUTANTS"
PACKAGES = sorted(one.name for one in FORMATS)
TEXT, TRUST, AUDIT = "text", "trust", "audit"
SAMPLED = LIMITS, PAGES, PRODUCT = "limits", "pages", "product"
_ONE_OF = 5
"""Of cases that are sampled so many are one that runs."""
_TRIED = ("wtxtgit/errors.py", "pyproject.toml", "tests/fuzz/", "tests/data/fixtures/")
"""What all that is mutated hangs on, and the mutants themselves."""
_ALL = ("wtxtgit/", "pyproject.toml")
_ROOMS = {
    LIMITS: (
        *(f"wtxtgit/{room}/" for room in ("containers", "text", "model", "io", "tensors", "store")),
        *(f"wtxtgit/{room}/" for room in ("comparison", "merge", "review", "checkpoint", "trust")),
        *("wtxtgit/git/", "wtxtgit/errors.py", "pyproject.toml"),
        *("tests/fuzz/many.py", "tests/fuzz/test_limits"),
    ),
    PAGES: (
        *("wtxtgit/report/", "wtxtgit/review/", "wtxtgit/comparison/", "wtxtgit/tensors/"),
        *("pyproject.toml", "tests/browser/"),
    ),
    PRODUCT: (
        *_ALL,
        "tests/kit/",
        "tests/scale/",
        "tests/torture/",
        "tests/e2e/test_true_starts.py",
    ),
    TEXT: ("wtxtgit/text/", "wtxtgit/io/", "wtxtgit/model/", *_TRIED),
    TRUST: ("wtxtgit/trust/", "wtxtgit/text/", "wtxtgit/model/", "tests/trust/"),
    AUDIT: (
        *("wtxtgit/chain/", "wtxtgit/trust/", "wtxtgit/git/", "wtxtgit/text/", "wtxtgit/model/"),
        *("wtxtgit/filter/content.py", "wtxtgit/cli/audit.py", "wtxtgit/report/audit.py"),
        *("wtxtgit/errors.py", "pyproject.toml", "tests/e2e/hostile.py", "tests/e2e/sealed.py"),
        "tests/chain/",
    ),
}
"""What is tried beside the formats, or sampled, and what that hangs on."""
SHARED = (
    *(f"wtxtgit/io/{name}.py" for name in ("__init__", "compressed", "progress", "spool")),
    *("wtxtgit/io/view.py", "wtxtgit/io/workers.py"),
    *(f"wtxtgit/model/{name}.py" for name in ("__init__", "array", "checksum", "findings")),
    *(f"wtxtgit/model/{name}.py" for name in ("dtypes", "ggml", "plain", "salvage", "tensor")),
    *("wtxtgit/tensors/", *_TRIED),
)
"""What all formats use."""
_OTHER = (
    # What mends texts decides nothing about those that are whole.
    *("wtxtgit/text/recovery/", "tests/fuzz/guided/", "tests/fuzz/test_guided.py"),
    # Those have no mutants, and nothing that mutants are made by.
    *("tests/fuzz/test_limits", "tests/fuzz/many.py", "tests/fuzz/test_memory.py"),
    *("tests/fuzz/test_container_memory.py", "tests/fuzz/test_changes.py"),
)
"""What mutants do not go through, though it is beside what they do."""


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


def is_nightly() -> bool:
    """Whether all is tried that there is, whatever changed, as every night."""
    return os.environ.get(MUTANTS) == "all"


def _concerns(path: str, subject: str) -> bool:
    if subject in SAMPLED:
        return path.startswith(_ROOMS[subject])
    if path.startswith(_OTHER):
        return False
    if subject in _ROOMS:
        return path.startswith(_ROOMS[subject])
    folder = path.removeprefix(CONTAINERS).partition("/")[0]
    if path.startswith(CONTAINERS) and folder in PACKAGES:
        return folder == subject
    return path.startswith((CONTAINERS, *SHARED))


def share(subject: str, count: int) -> int:
    """How many of so many mutants, or batches of them, are tried: all, or a tenth."""
    return count if why_all(subject) else max(1, count // 10)


def is_chosen(subject: str, case: str) -> bool:
    """Whether a case runs that is sampled: always where something changed, else one of a few."""
    return bool(why_all(subject)) or crc32(case.encode()) % _ONE_OF == 0


def told(subjects: Iterable[str]) -> list[str]:
    """How much is tried of each, and why: a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for subject in subjects:
        by_reason.setdefault(why_all(subject), []).append(subject)
    amounts = {why: f"all ({why})" if why else "a tenth (nothing changed)" for why in by_reason}
    return [f"mutants: {amounts[why]} of {', '.join(by_reason[why])}" for why in sorted(by_reason)]


def told_of_sampled() -> list[str]:
    """How much runs of what is sampled, and why: a line each."""
    amounts = {one: f"all ({why})" if (why := why_all(one)) else "a fifth" for one in SAMPLED}
    return [f"cases that are sampled: {amount} of {one}" for one, amount in amounts.items()]
