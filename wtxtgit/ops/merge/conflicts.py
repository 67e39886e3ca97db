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

from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.git.repository import Repository
from wtxtgit.ops.files import failures, read_small, replace_file, shown_path, write_all
from wtxtgit.report.merge import MergeReport, Strategy

FOLDER = "wtxt-conflicts"
_SUFFIX = ".json"
_MOST = 64 * 1024 * 1024
"""Bytes of a record that are read."""


@dataclass(frozen=True, slots=True)
class Record:
    """A merge with conflicts; `taken` are things settled since: by name or pattern.

    `blobs` are the object ids of the merge's stages that something was settled of.
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


def save(repo: Repository, path: bytes, record: Record) -> None:
    """Write the record of a path; raises EnvironmentFailure."""
    place = _place(repo, path)
    content = json.dumps(record.as_dict(path), indent=2).encode("ascii")
    with failures(place, missing=EnvironmentFailure):
        place.parent.mkdir(parents=True, exist_ok=True)
    replace_file(place, lambda descriptor: write_all(descriptor, (content, b"\n")))


def begun(repo: Repository, path: bytes, blobs: Mapping[str, str]) -> Begun:
    """What was settled so far of the conflict of these blobs, by stage; of others nothing.

    Raises InputError for a file that is no record.
    """
    place = _place(repo, path)
    if not place.is_file():
        return Begun()
    try:
        found = json.loads(read_small(place, _MOST, "a record of conflicts"))
        taken = tuple((str(name), Strategy(how)) for name, how in found["taken"])
        begun_with = Begun(Strategy(found["strategy"]), taken)
        return begun_with if found["blobs"] == blobs else Begun()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{place}: no record of conflicts", hint="remove it: it is made again"
        ) from None


def forget(repo: Repository, path: bytes) -> None:
    """Remove the record of a path, if any, and folders that are empty then."""
    place = _place(repo, path)
    try:
        place.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise EnvironmentFailure(f"{place}: can't be removed: {error.strerror}") from error
    top = repo.git_dir / FOLDER
    folder = place.parent
    with contextlib.suppress(OSError):
        while folder != top.parent:
            folder.rmdir()
            folder = folder.parent


def _place(repo: Repository, path: bytes) -> Path:
    parts = PurePosixPath(os.fsdecode(path)).parts
    if not parts or ".." in parts or path.startswith(b"/"):
        raise InputError(f"{shown_path(path)} is no path in a repository")
    return repo.git_dir / FOLDER / (os.fsdecode(path) + _SUFFIX)
