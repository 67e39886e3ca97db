"""Objects that git-lfs has in a repository, or can fetch, found by their pointers.

Where they are: https://github.com/git-lfs/git-lfs/blob/main/docs/man/git-lfs-config.adoc
(`lfs.storage`). Every object is compared with its pointer before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from wtxtgit.errors import EnvironmentFailure, InputError, UsageError, WtxtgitError
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.files import Places
from wtxtgit.io.files import failures, opened_regular, read_view, replace_file
from wtxtgit.io.view import ByteView, hashed, pieces, write_all
from wtxtgit.remotes.lfs_pointer import LfsObject

STORAGE_KEY = "lfs.storage"
"""git-lfs's key for its folder; relative paths start from the common git directory."""
MISSING = "git-lfs has not fetched it"
DAMAGED = "git-lfs has different content"
_OBJECTS = "objects"
_REMOTE_KEY = "remote.lfsDefault"
_ORIGIN = "origin"
_Used = TypeVar("_Used")


class LfsObjects:
    """The objects of a repository, and of its alternates."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        own = repo.common_dir / (repo.config.path(STORAGE_KEY) or "lfs")
        borrowed = (folder.parent / "lfs" for folder in Places.of(repo).borrowed)
        self._folders = [folder / _OBJECTS for folder in (own, *borrowed)]

    def held(self, lfs_object: LfsObject) -> ByteView | None:
        """Return the file with the object's name and size; None if there is none.

        Its content is unchecked.
        """
        return self._opened(lfs_object, read_view)

    def place(self, lfs_object: LfsObject) -> Path | None:
        """Return the path of the file that `held` returns; None if there is none."""
        return self._opened(lfs_object, lambda _, path: path)

    def _opened(self, lfs_object: LfsObject, use: Callable[[int, Path], _Used]) -> _Used | None:
        """Return what `use` returns for the descriptor and path of the first file that fits."""
        for folder in self._folders:
            path = _place(folder, lfs_object)
            with suppress(OSError), opened_regular(path) as (descriptor, status):
                if status.st_size == lfs_object.nbytes:
                    return use(descriptor, path)
        return None

    def checked(self, lfs_object: LfsObject) -> tuple[ByteView | None, str]:
        """Return the object after checking its content; else None, and why."""
        content = self.held(lfs_object)
        why = MISSING if content is None else _why_damaged(content, lfs_object)
        return (None, why) if why is not None else (content, "")

    def put(self, content: ByteView) -> LfsObject:
        """Store a content as if git-lfs had added it; raises EnvironmentFailure."""
        lfs_object = LfsObject(hashed(sha256(), pieces(content)).hexdigest(), len(content))
        if self.checked(lfs_object)[0] is None:
            path = _place(self._folders[0], lfs_object)
            with failures(path, missing=EnvironmentFailure):
                path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, lambda descriptor: write_all(descriptor, pieces(content)))
        return lfs_object

    def fetch(self, objects: Sequence[LfsObject]) -> str | None:
        """Fetch objects from the remote's git-lfs server, as far as it has them, in one operation.

        Returns why one of them could not be fetched, if that is known.
        """
        names = self._repo.git("remote").decode("utf-8", "surrogateescape").splitlines()
        chosen = self._repo.config.get(_REMOTE_KEY) or _ORIGIN
        remote = chosen if chosen in names else names[0] if len(names) == 1 else None
        if remote is None or not objects:
            return None
        try:
            # Imported here: most users of this module need no HTTP.
            from wtxtgit.remotes.http import received
            from wtxtgit.remotes.lfs_batch import LfsServer

            server = LfsServer(self._repo, remote, f"lfs+{remote}")
        except (ImportError, UsageError):
            return None
        why = None
        try:
            with closing(server.contents(objects)) as coming:
                for one, content in coming:
                    try:
                        arrived = received(remote, one.sha256, content, one.nbytes)
                    except InputError as error:
                        # The others may be valid.
                        why = error.message
                        continue
                    if _why_damaged(arrived, one) is None:
                        self.put(arrived)
                    else:
                        why = f"{remote}: {one.sha256}: received different content"
        except WtxtgitError as error:
            return error.message
        return why


def _why_damaged(content: ByteView, lfs_object: LfsObject) -> str | None:
    """Return why a content is not the object; None if it is."""
    is_it = hashed(sha256(), pieces(content)).hexdigest() == lfs_object.sha256
    return None if is_it else DAMAGED


def _place(folder: Path, lfs_object: LfsObject) -> Path:
    return folder / lfs_object.sha256[:2] / lfs_object.sha256[2:4] / lfs_object.sha256
