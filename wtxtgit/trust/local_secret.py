"""A secret of this user on this machine, which authenticates data that wtxtgit caches for them.

It is made when first needed, is stored outside of every repository, and is never shown. So nothing
that came with a repository can have been authenticated with it.
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
_ACCESSIBLE_TO_OTHERS = 0o077
_WRITABLE_BY_OTHERS = 0o022


def local_secret(path: Path, *, make: bool = True) -> bytes | None:
    """Return the secret in a file, 32 bytes; with `make` it is created if missing.

    Returns None if there is none, or if the file can't be trusted: it is readable by others, in a
    folder that others can write to, or not this user's. That is no error, because cached data can
    be computed again.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        if not make or not _is_own(_nearest(path.parent)):
            return None
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        # If another process created it in between, that one is used.
        with contextlib.suppress(FileExistsError):
            create_file(path, os.urandom(SECRET_SIZE), _FILE_MODE)
        return _read(path)
    except OSError:
        return None


def _read(path: Path) -> bytes | None:
    """Return the secret in a file; None if it is none. Raises OSError."""
    # Non-blocking: opening a pipe without a writer would wait.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        # Checked by the open descriptor: otherwise the file could be exchanged after the check.
        is_secret = (
            stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and not status.st_mode & _ACCESSIBLE_TO_OTHERS
            and _is_own(path.parent)
        )
        content = file.read(SECRET_SIZE + 1) if is_secret else b""
    return content if len(content) == SECRET_SIZE else None


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _is_own(folder: Path) -> bool:
    """Tell whether nobody else can put files there; as root in another user's home, others can."""
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS
