"""Files that wtxtgit's own processes left behind in a repository when they were killed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from wtxtgit.git import index_file, run
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.files import stale_keeps
from wtxtgit.io import temporary

_NAMES = (":(top,glob)**/.wtxtgit-*", ":(top,glob)**/.wtxtgit-*/**")


def find(repo: Repository) -> list[Path]:
    """List unfinished files and folders, what keeps packs from a repack, and the index's lock.

    Those of running processes are left out. In the work tree only untracked paths count: a tracked
    name of this kind came with the repository.
    """
    leftover = temporary.leftovers(temporary.aside_folder(repo.common_dir))
    # If git's own folder is on another disk, they are in the folders of the files they replace.
    leftover += temporary.leftovers(repo.git_dir)
    # Ignored files as well: without --exclude-standard git lists both kinds.
    untracked = run.records(repo.git("ls-files", "--others", "-z", "--", *_NAMES))
    for path in dict.fromkeys(filter(None, map(_temporary_part, untracked))):
        if temporary.left_behind(repo.file(path)):
            leftover.append(repo.file(path))
    leftover += stale_keeps(repo)
    lock = index_file.stale_lock(repo)
    return leftover if lock is None else [*leftover, lock]


def remove(repo: Repository) -> list[Path]:
    """Remove what `find` lists; return what was removed."""
    removed = []
    for path in find(repo):
        with contextlib.suppress(OSError):
            if temporary.remove(path):
                removed.append(path)
    return removed


def _temporary_part(path: bytes) -> bytes:
    """Return the part of a path up to the first name of ours, empty if there is none."""
    parts = path.split(b"/")
    for count, part in enumerate(parts, 1):
        if temporary.NAME.fullmatch(part):
            return b"/".join(parts[:count])
    return b""


def shown_from(repo: Repository, path: Path) -> bytes:
    """Return a leftover's path relative to the top level."""
    return os.fsencode(os.path.relpath(path, repo.home))
