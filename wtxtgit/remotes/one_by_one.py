"""What targets share that take files one by one; only the access to the place is their own.

A `Session` is a place during one operation, with what its server offers; `OneByOne` makes a
`Target` of it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from wtxtgit.errors import InputError
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.remotes.target import (
    Outgoing,
    StoredFile,
    check_fetched,
    check_files,
    check_name,
    is_name,
    missing,
    taken,
)


class Session(ABC):
    """A place during one operation. Every method raises RemoteUnavailable and RemoteRefused."""

    label: str

    @abstractmethod
    def find(self, name: str) -> StoredFile | None:
        """Return the complete file with a name; None if there is none.

        Raises InputError if invalid.
        """

    @abstractmethod
    def read(self, stored: StoredFile) -> ByteView:
        """Return the content of a file that was found."""

    @abstractmethod
    def all(self, prefix: str) -> Iterable[StoredFile]:
        """Yield all files whose name begins with `prefix`, and perhaps others."""

    @abstractmethod
    def write(self, file: Outgoing, about: Mapping[str, str], *, replace: bool) -> bool:
        """Write a file, replacing one with its name; returns False if it appeared meanwhile."""

    def has(self, stored: StoredFile, sha256: str) -> bool:
        """Tell whether a file that was found has this content."""
        return is_same(stored.sha256, sha256, lambda: self.read(stored))

    def prepare(self) -> None:  # noqa: B027 - few places have to
        """Create the place if needed, before it is searched for the files to be written."""

    def settle(  # noqa: B027
        self, files: Sequence[Outgoing], about: Mapping[str, str], *, is_new: bool
    ) -> None:
        """Finish after all files are written; `is_new` says whether any was not there before."""

    def holds(self, file: Outgoing, *, replace: bool) -> bool:
        """Tell whether a file is there.

        Raises RemoteRefused for another content unless `replace`.
        """
        try:
            stored = self.find(file.name)
            if stored is None:
                return False
            if stored.nbytes == len(file.content) and is_same(
                stored.sha256, file.sha256, lambda: self.read(stored)
            ):
                return True
        except InputError:
            pass  # it is another one, whatever it is
        if not replace:
            raise taken(self.label, file.name)
        return False


def is_same(stated: str | None, sha256: str, read: Callable[[], ByteView]) -> bool:
    """Tell whether a content has this SHA-256, reading it if the place did not state its digest."""
    actual = stated or hashed(hashlib.sha256(), pieces(read())).hexdigest()
    return actual == sha256


class OneByOne(ABC):
    """A `Target` whose files are delivered one after the other."""

    label: str

    @abstractmethod
    def _session(self) -> AbstractContextManager[Session]:
        """Open the place for one operation."""

    def _check(self, name: str) -> None:
        """Raise UsageError for a name that is not possible there."""
        check_name(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        """Deliver files; see `Target`. All names are looked up before the first file is written."""
        check_files(files)
        for file in files:
            self._check(file.name)
        with self._session() as session:
            session.prepare()
            missing = [file for file in files if not session.holds(file, replace=replace)]
            new = [f.name for f in missing if session.write(f, about or {}, replace=replace)]
            # Also for existing files: a killed process may not have done this.
            session.settle(files, about or {}, is_new=bool(missing))
        return new

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        self._check(name)
        with self._session() as session:
            stored = session.find(name)
            if stored is None:
                raise missing(self.label, name)
            return check_fetched(self.label, name, session.read(stored), sha256, stored.sha256)

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        with self._session() as session:
            return sorted(
                file
                for file in session.all(prefix)
                if file.name.startswith(prefix) and is_name(file.name)
            )

    def has(self, name: str, sha256: str) -> bool:
        """See `Target`; reads the file if the place states no digest."""
        self._check(name)
        with self._session() as session:
            try:
                stored = session.find(name)
                return stored is not None and session.has(stored, sha256)
            except InputError:
                return False
