"""Records of the conflicts of a merge, stored beside git's own state of the merge.

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
_MAX_RECORD = 64 * 1024 * 1024
"""The largest record in bytes that is read."""


def save(
    repo: Repository, path: bytes, policy: Policy, report: MergeReport, blobs: Mapping[str, str]
) -> None:
    """Write the record of a path; raises EnvironmentFailure.

    `policy` has the decisions made so far. `blobs` are object ids of the merge's stages: only ours,
    or all of them if there are decisions.
    """
    file = _record_file(repo, path)
    record = {
        "path": os.fsdecode(path),
        "format": report.format,
        "strategy": str(policy.strategy),
        "conflicts": [conflict.as_dict() for conflict in report.conflicts],
        "taken": [[name, str(strategy)] for name, strategy in policy.takes],
        "blobs": dict(blobs),
    }
    content = json.dumps(record, indent=2).encode("ascii")
    # The path may have folders, which are created below ours.
    with failures(file, missing=EnvironmentFailure):
        file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, lambda descriptor: write_all(descriptor, (content, b"\n")))


def settled(repo: Repository, path: bytes, blobs: Mapping[str, str]) -> Policy | None:
    """Return the decisions made so far in the conflict of these blobs, given by stage.

    Returns None if there is no record, or if it is about other blobs. Raises InputError for a file
    that is not a record.
    """
    file = _record_file(repo, path)
    try:
        if not file.is_file():
            return None
    except OSError:
        # The name is too long for a file in this folder, so there can be no record.
        return None
    try:
        record = json.loads(read_small(file, _MAX_RECORD, "a record of conflicts"))
        takes = tuple((str(name), Strategy(strategy)) for name, strategy in record["taken"])
        policy = Policy(Strategy(record["strategy"]), takes)
        return policy if record["blobs"] == blobs else None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{file}: not a record of conflicts", hint="remove it; it will be written again"
        ) from None


def forget(repo: Repository, path: bytes) -> None:
    """Remove the record of a path, if any, and the folders that become empty.

    A record that can't be removed stays: it names its blobs, so it can't be taken for another
    conflict.
    """
    file = _record_file(repo, path)
    folder = file.parent
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
        while folder != repo.git_dir:
            folder.rmdir()
            folder = folder.parent


def dropped(repo: Repository) -> list[bytes]:
    """Return paths of the current merge where our file was staged and all of theirs was dropped."""
    if not any((repo.git_dir / head).is_file() for head in _UNDER_WAY):
        return []
    ours: dict[bytes, str] = {}
    for file in (repo.git_dir / FOLDER).rglob("*" + _SUFFIX):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, WtxtgitError):
            record = json.loads(read_small(file, _MAX_RECORD, "a record of conflicts"))
            # With no conflicts left, a `resolve` was interrupted before it removed the record.
            if record["conflicts"]:
                ours[os.fsencode(record["path"])] = record["blobs"][OURS]
    from wtxtgit.git import index  # a driver does not need it: it knows its one path

    staged = {entry.path: entry.oid for entry in index.entries(repo)} if ours else {}
    return sorted(path for path, oid in ours.items() if staged.get(path) == oid)


def _record_file(repo: Repository, path: bytes) -> Path:
    parts = PurePosixPath(os.fsdecode(path)).parts
    # A hostile path must not lead out of the folder of records.
    if not parts or ".." in parts or path.startswith(b"/"):
        raise InputError(f"{shown_path(path)} is not a path in a repository")
    return repo.git_dir / FOLDER / (os.fsdecode(path) + _SUFFIX)
