"""Commands that change what they have read take turns, so that none writes over another's change.

Git's index has its own lock, and a file is replaced whole; but a ledger, the signers and
gitattributes files go on from what was read before.
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
    """Wait until no other process has its turn in this repository or one of its worktrees.

    Git's folder itself is locked: nothing has to be written, and a lock ends with its process.
    No command that git may start as a hook is to be waited for meanwhile: it may want its turn.
    """
    with failures(repo.common_dir), contextlib.ExitStack() as closing:
        descriptor = closing.enter_context(opened_folder(repo.common_dir))
        # A file system without locks has everybody go on.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        keep = closing.pop_all()
    with keep:
        yield
