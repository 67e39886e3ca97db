"""A lock for commands that change what they have read, so that none overwrites another's change.

Git's index has a lock of its own, and files are replaced whole; but a new ledger, signers or
gitattributes file is based on what was read before.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from wtxtgit.git.repository import Repository
from wtxtgit.io.files import failures
from wtxtgit.io.temporary import opened_folder


@contextlib.contextmanager
def turn(repo: Repository) -> Iterator[None]:
    """Wait until no other process holds the turn in this repository or its other worktrees.

    Git's own folder is locked: no file has to be written, and the lock ends with its process. While
    holding the turn, do not wait for a command that git may run as a hook: it may want the turn
    too.
    """
    with failures(repo.common_dir), contextlib.ExitStack() as closing:
        descriptor = closing.enter_context(opened_folder(repo.common_dir))
        # On a file system without locks nobody waits.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        keep = closing.pop_all()
    with keep:
        yield
