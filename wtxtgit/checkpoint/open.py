"""What a command is pointed at: a file, a URL, or a blob of a repository as REV:PATH.

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
from wtxtgit.filter.smudge import smudge_verified
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.git.store import reader
from wtxtgit.io.files import shown, view_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes import urls
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.verify import Report, verify


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The bytes of a target. `report` is there for a text that stands for no container."""

    name: str
    data: ByteView
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where targets are looked for.

    `folder` is where relative paths start. `clone` is a folder of the
    repository, and `prefix` the path in it where `./PATH` starts. Without them
    they are those of this process.
    """

    folder: Path | None = None
    clone: Path | None = None
    prefix: bytes = b""

    def file(self, path: Path | str) -> Path:
        """Where the file is that is named by `path`."""
        return Path(path) if self.folder is None else self.folder / path

    def repository(self) -> Repository:
        """The repository; raises EnvironmentFailure where there is none."""
        if self.clone is None:
            return Repository.discover(self.folder)
        repo = Repository.discover(self.clone)
        repo.prefix = self.prefix
        return repo


HERE = Place()


def read(target: str, place: Place = HERE) -> ByteView:
    """The bytes of a file or blob as they are. A file that exists wins over a revision."""
    if _is_url(target, place):
        return urls.read_url(target)
    return _blob(target, place) if is_blob(target, place) else view_file(Path(target), place.folder)


def is_blob(target: str, place: Place = HERE) -> bool:
    """Whether a target is REV:PATH; a file that exists wins."""
    return ":" in target and not urls.is_url(target) and not _exists(target, place)


def _is_url(target: str, place: Place) -> bool:
    return urls.is_url(target) and not _exists(target, place)


def _exists(target: str, place: Place) -> bool:
    return os.path.lexists(place.file(target))


def _blob(target: str, place: Place) -> ByteView:
    repo = place.repository()
    oid = history.resolve_blob(repo, blob_name(target, repo))
    return spooled(reader.blob_chunks(repo, oid), repo.state_dir)


def blob_name(target: str, repo: Repository) -> str:
    """REV:PATH as git takes it at the top level."""
    revision, _, path = target.partition(":")
    if path.startswith(("./", "../")):
        # Relative to the folder here, as for git itself.
        path = posixpath.normpath(os.fsdecode(repo.prefix) + path)
    return f"{revision}:{path}"


def open_target(target: str, *, threads: int | None = None) -> Target:
    """A target as the file that a checkout would give."""
    return _opened(target, read(target), threads)


def _opened(target: str, data: ByteView, threads: int | None) -> Target:
    if data[: len(MAGIC)] != MAGIC:
        return Target(target, data)
    report = verify(data, threads=threads)
    smudged = smudge_verified(data, report, threads=threads)
    if smudged.layout is None:
        return Target(target, data, report)
    return Target(target, spooled(smudged.pieces()))


def members(
    target: str, place: Place = HERE, *, threads: int | None = None
) -> Callable[[str], ByteView]:
    """A function that opens a file listed in the set `target`, by its path there.

    Raises InputError for what is not in the set's folder: paths that lead
    out of it, by themselves or through a symbolic link, included.
    """
    if _is_url(target, place) and (local := urls.local_path(target)) is not None:
        return members(str(local), place, threads=threads)

    def open_url(path: str) -> ByteView:
        return _opened(path, urls.member_of(target, path), threads).data

    def open_blob(path: str) -> ByteView:
        revision, _, index = target.partition(":")
        member = f"{revision}:{posixpath.join(posixpath.dirname(index), path)}"
        return _opened(member, _blob(member, place), threads).data

    def open_file(path: str) -> ByteView:
        file = Path(target).parent / path
        there, folder = place.file(file), place.file(target).parent
        if not there.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{shown(Path(path))} leads out of the set's folder")
        if not there.is_file():
            # A pipe or a device would be read without end.
            raise InputError(f"{shown(Path(path))} is no file")
        return _opened(str(file), view_file(file, place.folder), threads).data

    opener = open_file
    if _is_url(target, place):
        opener = open_url
    elif is_blob(target, place):
        opener = open_blob

    def open_member(path: str) -> ByteView:
        _refuse_outside(path)
        try:
            return opener(path)
        except (OSError, RuntimeError, ValueError, EnvironmentFailure) as error:
            # Of a set a file that can't be opened is a finding, not the end.
            raise InputError(f"{shown(Path(path))} can't be opened: {error}") from error

    return open_member


def tree_members(
    repo: Repository, tree: str, index: bytes, *, threads: int | None = None
) -> Callable[[str], ByteView]:
    """The same for a set in a tree, by the tree's object id and the path there.

    No file of the work tree comes in, whatever it is called.
    """

    def open_member(path: str) -> ByteView:
        _refuse_outside(path)
        try:
            member = posixpath.join(posixpath.dirname(index), os.fsencode(path))
            entry = next(iter(history.listing(repo, tree, member)), None)
            if entry is None or not entry.is_file:
                raise InputError("there is no such file")
            data = spooled(reader.blob_chunks(repo, entry.oid), repo.state_dir)
            return _opened(shown(Path(path)), data, threads).data
        except (OSError, ValueError, EnvironmentFailure, InputError) as error:
            raise InputError(f"{shown(Path(path))} can't be opened: {error}") from error

    return open_member


def _refuse_outside(path: str) -> None:
    parts = path.split("/")
    if not path or "\0" in path or "\\" in path or path.startswith("/") or ".." in parts:
        raise InputError(f"{shown(Path(path.replace(chr(0), '?')))} leads out of the set's folder")
