"""A secret of this user on this machine: what authenticates their own notes to themselves.

It is made when first asked for, stands outside of every repository, and is
never shown, so what a repository came with can't have been written with it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from wtxtgit.io.files import create_file

SECRET_SIZE = 32

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_OF_OTHERS = 0o077
_WRITTEN_BY_OTHERS = 0o022


def local_secret(path: Path, *, make: bool = True) -> bytes | None:
    """The secret in a file, 32 bytes; with `make` it is made where there is none.

    None where it can't be had, or can't be a secret: a file that others may
    read, in a folder that others may write, or not this user's. None of that
    is worth an error: what it is for is found out anew then.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        if not make or not _is_own(_nearest(path.parent)):
            return None
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        # The one of another process, which came in between, is left alone.
        with contextlib.suppress(FileExistsError):
            create_file(path, os.urandom(SECRET_SIZE), _FILE_MODE)
        return _read(path)
    except OSError:
        return None


def _read(path: Path) -> bytes | None:
    """The content of a file that is a secret, None for another; raises OSError."""
    # A pipe without a writer would be waited for.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        # By the open descriptor: a file that is exchanged after the look would be believed.
        is_secret = (
            stat.S_ISREG(facts.st_mode)
            and facts.st_uid == os.geteuid()
            and not facts.st_mode & _OF_OTHERS
            and _is_own(path.parent)
        )
        content = file.read(SECRET_SIZE + 1) if is_secret else b""
    return content if len(content) == SECRET_SIZE else None


def _nearest(folder: Path) -> Path:
    """The folder, or the first one above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _is_own(folder: Path) -> bool:
    """Whether nobody else can put files there; as root in another user's home, they can."""
    facts = folder.stat()
    return facts.st_uid == os.geteuid() and not facts.st_mode & _WRITTEN_BY_OTHERS
