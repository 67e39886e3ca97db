"""Writing files of the work tree, and nothing outside of it.

Paths are the repository's, which may be hostile: no folder on the way may be
a link, and what stands at a path is replaced whole, never written through.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(
    top: Path, path: bytes, *, is_executable: bool, write: Callable[[int], None]
) -> os.stat_result:
    """Put a new file at a path below `top`; gives its stat, as git's index wants it.

    `write` gets a descriptor. Folders on the way are made. The file is there
    when it is whole; permissions follow the user's umask, as git's do. Raises
    OSError where a file or a link stands in a folder's place, or a folder in
    the file's.
    """
    *folders, name = path.split(b"/")
    with _folder(top, folders) as folder:
        temporary = b".wtxtgit-" + secrets.token_hex(8).encode("ascii")
        mode = 0o777 if is_executable else 0o666
        descriptor = os.open(temporary, _NEW_FILE, mode, dir_fd=folder)
        try:
            try:
                write(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


def find_file(top: Path, path: bytes) -> os.stat_result | None:
    """The stat of what stands at a path below `top`, None where nothing does, or behind a link."""
    *folders, name = path.split(b"/")
    try:
        with _folder(top, folders, make=False) as folder:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


@contextlib.contextmanager
def _folder(top: Path, names: list[bytes], *, make: bool = True) -> Iterator[int]:
    """Open a folder below `top`, one by one, without following a link."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            try:
                inner = os.open(name, _FOLDER, dir_fd=here)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(name, dir_fd=here)
                inner = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)
