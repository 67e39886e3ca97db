"""Records of what a merge left open, stored beside git's own state of the merge.

They are `wtxt-conflicts/<path>.json` in the worktree's own git folder. A record is a report, plus
what has been settled so far; everything else follows from the index.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from wtxtgit.errors import EnvironmentFailure, InputError, WtxtgitError
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import failures, read_small, replace_file, shown_path
from wtxtgit.io.view import write_all
from wtxtgit.merge.policy import Policy
from wtxtgit.report.merge import MergeReport, Strategy

FOLDER = "wtxt-conflicts"
OURS = "2"
"""The number of our side's stage, in the index and in records."""
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_SUFFIX = ".json"
_MOST = 64 * 1024 * 1024
"""The largest record in bytes that is read."""


def save(
    repo: Repository, path: bytes, policy: Policy, report: MergeReport, blobs: Mapping[str, str]
) -> None:
    """Write the record of a path; raises EnvironmentFailure.

    `policy` has what has been settled so far. `blobs` are object ids of the merge's stages: only
    ours, or all of them if something has been settled.
    """
    place = _place(repo, path)
    record = {
        "path": os.fsdecode(path),
        "format": report.format,
        "strategy": str(policy.strategy),
        "conflicts": [one.as_dict() for one in report.conflicts],
        "taken": [[name, str(how)] for name, how in policy.takes],
        "blobs": dict(blobs),
    }
    content = json.dumps(record, indent=2).encode("ascii")
    # The path may have folders, which are created below ours.
    with failures(place, missing=EnvironmentFailure):
        place.parent.mkdir(parents=True, exist_ok=True)
    replace_file(place, lambda descriptor: write_all(descriptor, (content, b"\n")))


def settled(repo: Repository, path: bytes, blobs: Mapping[str, str]) -> Policy | None:
    """Return what has been settled so far in the conflict of these blobs (by stage).

    Returns None if there is no record, or if it is about other blobs. Raises InputError for a file
    that is not a record.
    """
    place = _place(repo, path)
    try:
        if not place.is_file():
            return None
    except OSError:
        # The name is too long for a file in this folder, so there can be no record.
        return None
    try:
        record = json.loads(read_small(place, _MOST, "a record of conflicts"))
        takes = tuple((str(name), Strategy(how)) for name, how in record["taken"])
        policy = Policy(Strategy(record["strategy"]), takes)
        return policy if record["blobs"] == blobs else None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{place}: not a record of conflicts", hint="remove it; it will be written again"
        ) from None


def forget(repo: Repository, path: bytes) -> None:
    """Remove the record of a path, if any, and the folders that become empty.

    A record that can't be removed stays: it names its blobs, so it can't be taken for another
    conflict.
    """
    place = _place(repo, path)
    folder = place.parent
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)
        while folder != repo.git_dir:
            folder.rmdir()
            folder = folder.parent


def dropped(repo: Repository) -> list[bytes]:
    """Return paths of the current merge where our file was staged and all of theirs was dropped."""
    if not any((repo.git_dir / head).is_file() for head in _UNDER_WAY):
        return []
    ours: dict[bytes, str] = {}
    for place in (repo.git_dir / FOLDER).rglob("*" + _SUFFIX):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, WtxtgitError):
            record = json.loads(read_small(place, _MOST, "a record of conflicts"))
            # With nothing open, it was resolved, and then interrupted before it was forgotten.
            if record["conflicts"]:
                ours[os.fsencode(record["path"])] = record["blobs"][OURS]
    from wtxtgit.git import index  # a driver does not need it: it knows its one path

    staged = {entry.path: entry.oid for entry in index.entries(repo)} if ours else {}
    return sorted(path for path, oid in ours.items() if staged.get(path) == oid)


def _place(repo: Repository, path: bytes) -> Path:
    parts = PurePosixPath(os.fsdecode(path)).parts
    # Records stay within their folder, whatever a tree calls its files.
    if not parts or ".." in parts or path.startswith(b"/"):
        raise InputError(f"{shown_path(path)} is not a path in a repository")
    return repo.git_dir / FOLDER / (os.fsdecode(path) + _SUFFIX)
