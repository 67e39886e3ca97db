"""What a merge left open, kept beside git's own state of the merge.

`wtxt-conflicts/<path>.json` in the worktree's own git folder. It is a report,
and has what was settled so far; all else follows from the index.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from wtxtgit.errors import EnvironmentFailure, InputError, WtxtgitError
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import failures, read_small, replace_file, shown_path
from wtxtgit.io.view import write_all
from wtxtgit.report.merge import MergeReport, Strategy

FOLDER = "wtxt-conflicts"
OURS = "2"
"""The stage of our side, in the index and in records."""
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_SUFFIX = ".json"
_MOST = 64 * 1024 * 1024
"""Bytes of a record that are read."""


@dataclass(frozen=True, slots=True)
class ConflictRecord:
    """A merge with conflicts; `taken` are things settled since: by name or pattern.

    `blobs` are object ids of the merge's stages: ours, or all where something
    was settled.
    """

    strategy: Strategy
    report: MergeReport
    taken: tuple[tuple[str, Strategy], ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self, path: bytes) -> dict[str, object]:
        return {
            "path": os.fsdecode(path),
            "format": self.report.format,
            "strategy": str(self.strategy),
            "conflicts": [one.as_dict() for one in self.report.conflicts],
            "taken": [[name, str(how)] for name, how in self.taken],
            "blobs": dict(self.blobs),
        }


@dataclass(frozen=True, slots=True)
class Begun:
    """What a record says of a merge that `resolve` goes on with."""

    strategy: Strategy = Strategy.FAIL
    taken: tuple[tuple[str, Strategy], ...] = field(default=())


def save(repo: Repository, path: bytes, record: ConflictRecord) -> None:
    """Write the record of a path; raises EnvironmentFailure."""
    place = _place(repo, path)
    content = json.dumps(record.as_dict(path), indent=2).encode("ascii")
    # The path may have folders of its own, which are made below ours.
    with failures(place, missing=EnvironmentFailure):
        place.parent.mkdir(parents=True, exist_ok=True)
    replace_file(place, lambda descriptor: write_all(descriptor, (content, b"\n")))


def begun(repo: Repository, path: bytes, blobs: Mapping[str, str]) -> Begun | None:
    """What was settled so far of the conflict of these blobs, by stage; None of others.

    Raises InputError for a file that is no record.
    """
    place = _place(repo, path)
    try:
        if not place.is_file():
            return None
    except OSError:
        # A name that no record can have.
        return None
    try:
        record = json.loads(read_small(place, _MOST, "a record of conflicts"))
        taken = tuple((str(name), Strategy(how)) for name, how in record["taken"])
        begun_with = Begun(Strategy(record["strategy"]), taken)
        return begun_with if record["blobs"] == blobs else None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{place}: no record of conflicts", hint="remove it: it is made again"
        ) from None


def forget(repo: Repository, path: bytes) -> None:
    """Remove the record of a path, if any, and folders that are empty then.

    One that can't be removed is left: it says of which blobs it is.
    """
    place = _place(repo, path)
    folder = place.parent
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)
        while folder != repo.git_dir:
            folder.rmdir()
            folder = folder.parent


def dropped(repo: Repository) -> list[bytes]:
    """Conflicts of the merge under way that are staged as our own file, nothing of theirs in it."""
    if not any((repo.git_dir / head).is_file() for head in _UNDER_WAY):
        return []
    ours = {}
    for place in (repo.git_dir / FOLDER).rglob("*" + _SUFFIX):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, WtxtgitError):
            record = json.loads(read_small(place, _MOST, "a record of conflicts"))
            ours[os.fsencode(record["path"])] = record["blobs"][OURS]
    from wtxtgit.git import index  # a driver does without: it knows its one path

    staged = {entry.path: entry.oid for entry in index.entries(repo)} if ours else {}
    return sorted(path for path, oid in ours.items() if staged.get(path) == oid)


def _place(repo: Repository, path: bytes) -> Path:
    parts = PurePosixPath(os.fsdecode(path)).parts
    # Records stay within their folder, whatever a tree calls its files.
    if not parts or ".." in parts or path.startswith(b"/"):
        raise InputError(f"{shown_path(path)} is no path in a repository")
    return repo.git_dir / FOLDER / (os.fsdecode(path) + _SUFFIX)
