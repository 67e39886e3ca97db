"""What wtxtgit's own processes left in a repository when they were killed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from wtxtgit.git import index_file, run
from wtxtgit.git.repository import Repository
from wtxtgit.io import temporary

_NAMES = (":(top,glob)**/.wtxtgit-*", ":(top,glob)**/.wtxtgit-*/**")


def find(repo: Repository) -> list[Path]:
    """Files and folders that were in the making, and the index's lock; those of running ones not.

    In the work tree only what is not tracked counts: names that a repository came with say nothing.
    """
    found = temporary.leftovers(temporary.aside_folder(repo.common_dir))
    # Beside the index and the work tree's files, where git's own folder is on another disk.
    found += temporary.leftovers(repo.git_dir)
    # Ignored or not: without --exclude-standard git lists both.
    listed = run.records(repo.git("ls-files", "--others", "-z", "--", *_NAMES))
    for path in dict.fromkeys(filter(None, map(_in_the_making, listed))):
        if temporary.left_behind(repo.file(path)):
            found.append(repo.file(path))
    lock = index_file.stale_lock(repo)
    return found if lock is None else [*found, lock]


def remove(repo: Repository) -> list[Path]:
    """Take them away; gives those that are gone."""
    removed = []
    for path in find(repo):
        with contextlib.suppress(OSError):
            if temporary.remove(path):
                removed.append(path)
    return removed


def _in_the_making(path: bytes) -> bytes:
    """The part of a path that ends with a name of ours, empty for one without."""
    parts = path.split(b"/")
    for count, part in enumerate(parts, 1):
        if temporary.NAME.fullmatch(part):
            return b"/".join(parts[:count])
    return b""


def shown_from(repo: Repository, path: Path) -> bytes:
    """A leftover's path, as short as it is from the top level."""
    return os.fsencode(os.path.relpath(path, repo.home))
