"""Reading and writing files of the work tree, never outside of it; and listing work trees.

Paths come from the repository and may be hostile: no folder above a file may be a link. A file is
never written in place: a new one replaces it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from wtxtgit.git.blobs import new_hash
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import opened_regular
from wtxtgit.io.temporary import new_file

EXECUTABLE = 0o100755
"""The mode of an executable file in trees."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Moment = tuple[int, ...]
_WRITTEN = "was written meanwhile"


def write_file(
    top: Path,
    path: bytes,
    *,
    is_executable: bool,
    write: Callable[[int], None],
    replaces: Moment | None,
) -> os.stat_result:
    """Write a file at a path below `top`; returns its stat result, as git's index needs it.

    `write` gets a descriptor. Missing folders are made. The file appears when it is complete; its
    permissions follow the user's umask, as git's do. `replaces` is what may be replaced, None for
    nothing. Raises OSError if something else is there by now, if a file or link is in a folder's
    place, or a folder in the file's.
    """
    *folders, name = path.split(b"/")
    mode = 0o777 if is_executable else 0o666
    with _folder(top, folders) as folder, new_file(folder, top, mode) as file:
        write(file.descriptor)
        if _moment_at(name, folder) != replaces:
            raise OSError(errno.EBUSY, _WRITTEN)
        try:
            file.put(name, is_new=replaces is None)
        except FileExistsError as error:
            raise OSError(errno.EBUSY, _WRITTEN) from error
        return os.fstat(file.descriptor)


def moment(top: Path, path: bytes) -> Moment | None:
    """Return a value that changes when the path is written or replaced; None if nothing is
    there.
    """
    try:
        return _moment_at(os.fsencode(top) + b"/" + path, None)
    # A folder of the path is a file.
    except NotADirectoryError:
        return None


def _moment_at(name: bytes, folder: int | None) -> Moment | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return moment_of(status)


def moment_of(status: os.stat_result) -> Moment:
    """Return the parts of a stat result that change when a file is written or replaced."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@contextlib.contextmanager
def _folder(top: Path, names: list[bytes]) -> Iterator[int]:
    """Open a folder below `top`, created if missing, without following links."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            try:
                inner = os.open(name, _FOLDER, dir_fd=here)
            except FileNotFoundError:
                # Another process may be making the same folder.
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                inner = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


HEAD_SIZE = 1024
"""First bytes of a blob that show what it is; they contain the lines `meta` and `cap`."""


_BLOCK = 1024 * 1024


_NO_FILE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.EINVAL)
)
"""Errors of opening what is no regular file: ELOOP for a link, EINVAL by `opened_regular`."""


def file_head(path: Path) -> bytes | None:
    """Read a work-tree file's first bytes; None if it is not a regular file.

    Raises OSError if the file can't be read.
    """
    try:
        with opened_regular(path) as (descriptor, _):
            return os.read(descriptor, HEAD_SIZE)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None


def file_size(path: Path) -> int | None:
    """Return a regular file's size in bytes; None if there is no such file."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def file_is_blob(path: Path, oid: str) -> bool:
    """Tell whether a file's own bytes, unfiltered, are those of the blob.

    Raises OSError if the file can't be read.
    """
    try:
        with opened_regular(path) as (descriptor, status):
            digest = new_hash("blob", status.st_size, like=oid)
            # Read, not mapped: somebody may truncate the file meanwhile.
            while block := os.read(descriptor, _BLOCK):
                digest.update(block)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return False
    return digest.hexdigest() == oid


def work_trees(repo: Repository) -> list[dict[bytes, bytes]]:
    """Return git's description of each work tree of a repository, main one first:
    git-worktree(1).
    """
    records = repo.git("worktree", "list", "--porcelain").removesuffix(b"\n\n").split(b"\n\n")
    lines = (text.split(b"\n") for text in records)
    return [
        {key: value for key, _, value in (o.partition(b" ") for o in fields)} for fields in lines
    ]
