"""What a damaged text replaces in the work tree, kept as an object of git.

`git checkout -p`, `git restore -p` and `git stash -p` apply single hunks to the text of a file, and
then smudge the result. It is no longer a text that verifies, and the file that stood there, which
git does not have, is gone by then. But the same process was given it just before, to clean it.
"""

from __future__ import annotations

from collections.abc import Callable

from wtxtgit.filter.clean import Cleaned
from wtxtgit.git import staging
from wtxtgit.git.repository import Repository
from wtxtgit.io.spool import Spool
from wtxtgit.io.view import ByteView, mapped


class ReplacedFiles:
    """The files that one process of `git apply` has cleaned, until it smudges their paths."""

    def __init__(self, repo: Callable[[], Repository]) -> None:
        self._repo = repo
        self._held: dict[bytes, Spool] = {}

    def hold(self, path: bytes, content: Spool) -> None:
        """Hold what stands at a path; the spool is closed by `drop`."""
        self.drop(path)
        self._held[path] = content

    def drop(self, path: bytes) -> None:
        """Hold nothing more of a path."""
        if (content := self._held.pop(path, None)) is not None:
            content.close()

    def keep(self, path: bytes, clean: Callable[[ByteView], Cleaned]) -> str | None:
        """Store the text of what stood at a path; return the blob's id, None if it is not known.

        Git removes the blob after two weeks, with others that nothing refers to.
        """
        if path not in self._held:
            return None
        repo = self._repo()
        text = Spool(repo.state_dir)
        try:
            for piece in clean(self._held[path].view()).pieces():
                text.write(piece)
            text.end()
            return staging.write_blob(repo, mapped(text.view()))
        finally:
            text.close()
