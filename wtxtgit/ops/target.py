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

from wtxtgit.errors import EnvironmentFailure, InputError
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
    return _blob(target) if is_blob(target) else map_file(Path(target))


def is_blob(target: str) -> bool:
    """Whether a target is REV:PATH; a file that exists wins."""
    return ":" in target and not os.path.lexists(target)


def _blob(target: str) -> memoryview:
    repo = Repository.discover()
    revision, _, path = target.partition(":")
    if path.startswith(("./", "../")):
        # Relative to the folder here, as for git itself.
        path = posixpath.normpath(os.fsdecode(repo.prefix) + path)
    oid = git_index.resolve_blob(repo, f"{revision}:{path}")
    return spooled(git_index.blob_chunks(repo, oid), repo.state_dir)


def open_target(target: str, *, threads: int | None = None) -> Target:
    """A target as the file that a checkout would give."""
    return _opened(target, read(target), threads)


def _opened(target: str, data: memoryview, threads: int | None) -> Target:
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
    from_commit = is_blob(target)

    def open_blob(path: str) -> memoryview:
        revision, _, index = target.partition(":")
        member = f"{revision}:{posixpath.join(posixpath.dirname(index), path)}"
        return _opened(member, _blob(member), threads).data

    def open_file(path: str) -> memoryview:
        folder = Path(target).parent
        file = folder / path
        if not file.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{shown(Path(path))} leads out of the set's folder")
        if not file.is_file():
            # A pipe or a device would be read without end.
            raise InputError(f"{shown(Path(path))} is no file")
        return _opened(str(file), map_file(file), threads).data

    def open_member(path: str) -> memoryview:
        _refuse_outside(path)
        try:
            return open_blob(path) if from_commit else open_file(path)
        except (OSError, RuntimeError, ValueError, EnvironmentFailure) as error:
            # Of a set a file that can't be opened is a finding, not the end.
            raise InputError(f"{shown(Path(path))} can't be opened: {error}") from error

    return open_member


def tree_members(
    repo: Repository, tree: str, index: bytes, *, threads: int | None = None
) -> Callable[[str], memoryview]:
    """The same for a set in a tree, by the tree's object id and the path there.

    No file of the work tree comes in, whatever it is called.
    """

    def open_member(path: str) -> memoryview:
        _refuse_outside(path)
        try:
            member = posixpath.join(posixpath.dirname(index), os.fsencode(path))
            entry = next(iter(git_index.listing(repo, tree, member)), None)
            if entry is None or not entry.is_file:
                raise InputError("there is no such file")
            data = spooled(git_index.blob_chunks(repo, entry.oid), repo.state_dir)
            return _opened(shown(Path(path)), data, threads).data
        except (OSError, ValueError, EnvironmentFailure, InputError) as error:
            raise InputError(f"{shown(Path(path))} can't be opened: {error}") from error

    return open_member


def _refuse_outside(path: str) -> None:
    parts = path.split("/")
    if not path or "\0" in path or "\\" in path or path.startswith("/") or ".." in parts:
        raise InputError(f"{shown(Path(path.replace(chr(0), '?')))} leads out of the set's folder")
