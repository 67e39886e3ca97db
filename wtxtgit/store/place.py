"""Locating a repository's store. `docs/spec/store.md`, section "Folder"."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from wtxtgit.git.repository import Repository

if TYPE_CHECKING:
    from wtxtgit.store.store import Store

PATH_KEY = "wtxtgit.storePath"
"""The key for the path of the store; relative paths start from the common git directory."""
_FOLDER = Path("wtxt", "store")
_MAKING = Lock()


def store_of(repo: Repository) -> Store:
    """Return the store that all work trees of a repository share, with the stores that it borrows
    from.

    All who ask get the same: its packs are listed once. Nothing is made or read before it is
    needed. Raises EnvironmentFailure if git fails.
    """
    with _MAKING:
        if repo.store is None:
            repo.store = _found(repo)
        return repo.store  # type: ignore[return-value]


def _found(repo: Repository) -> Store:
    # Imported here: most repositories have no detached texts.
    from wtxtgit.git.store.files import Places
    from wtxtgit.store.store import Store

    folder = _folder(repo)
    # gitrepository-layout(5): the store is in the git directory that contains the objects.
    places = Places.of(repo)
    borrowed = (objects.parent / _FOLDER for objects in places.borrowed)
    others = [path for path in borrowed if not _is_same(path, folder)]
    return Store(folder, alternates=others, shared=places.shared)


def is_own(repo: Repository) -> bool:
    """Tell whether the store is inside the repository, so that no other repository adds to it."""
    inside = os.path.realpath(repo.common_dir)
    return Path(os.path.realpath(_folder(repo))).is_relative_to(inside)


def _folder(repo: Repository) -> Path:
    return repo.common_dir / (repo.config.path(PATH_KEY) or _FOLDER)


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
