"""What a command is pointed at: a file, or a blob of a repository as REV:PATH.

A text that stands for a container is looked at as that container. Files that
a set lists are found beside it, and nowhere else.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import InputError
from wtxtgit.git import index as git_index
from wtxtgit.git.repository import Repository
from wtxtgit.ops.files import map_file, shown
from wtxtgit.ops.smudge import smudge_verified
from wtxtgit.ops.spool import spooled
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.verify import Report, verify


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The bytes of a target. `report` is there for a text that stands for no container."""

    name: str
    data: memoryview
    report: Report | None = None


def read(target: str) -> memoryview:
    """The bytes of a file or blob as they are. A file that exists wins over a revision."""
    if ":" not in target or os.path.lexists(target):
        return map_file(Path(target))
    repo = Repository.discover()
    revision, _, path = target.partition(":")
    if path.startswith(("./", "../")):
        # Relative to the folder here, as for git itself.
        path = posixpath.normpath(os.fsdecode(repo.prefix) + path)
    oid = git_index.resolve_blob(repo, f"{revision}:{path}")
    return spooled(git_index.blob_chunks(repo, oid), repo.state_dir)


def open_target(target: str, *, threads: int | None = None) -> Target:
    """A target as the file that a checkout would give."""
    data = read(target)
    if data[: len(MAGIC)] != MAGIC:
        return Target(target, data)
    report = verify(data, threads=threads)
    smudged = smudge_verified(data, report, threads=threads)
    if smudged.layout is None:
        return Target(target, data, report)
    return Target(target, spooled(smudged.pieces()))


def members(target: str, *, threads: int | None = None) -> Callable[[str], memoryview]:
    """A function that opens a file listed in the set `target`, by its path there.

    Raises InputError for what is not in the set's folder: paths that lead
    out of it, by themselves or through a symbolic link, included.
    """
    in_tree = ":" in target and not os.path.lexists(target)

    def open_blob(path: str) -> memoryview:
        _refuse_outside(path)
        revision, _, index = target.partition(":")
        folder = posixpath.dirname(index)
        return open_target(f"{revision}:{posixpath.join(folder, path)}", threads=threads).data

    def open_file(path: str) -> memoryview:
        _refuse_outside(path)
        folder = Path(target).parent.resolve()
        file = (folder / path).resolve()
        if not file.is_relative_to(folder):
            raise InputError(f"{shown(Path(path))} leads out of the set's folder")
        return open_target(str(file), threads=threads).data

    return open_blob if in_tree else open_file


def _refuse_outside(path: str) -> None:
    parts = path.split("/")
    if not path or "\0" in path or "\\" in path or path.startswith("/") or ".." in parts:
        raise InputError(f"{shown(Path(path.replace(chr(0), '?')))} leads out of the set's folder")
