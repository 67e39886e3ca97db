"""What targets share that take files one after the other: only what is there is the place's own.

A `Session` is a place for the time of one operation, and does what its server offers; `OneByOne` is
the `Target` that is made of it.
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
    """A place, for one operation. Every method raises RemoteUnavailable and RemoteRefused."""

    label: str

    @abstractmethod
    def find(self, name: str) -> StoredFile | None:
        """The file of a name, all of it; None where there is none, InputError for what is none."""

    @abstractmethod
    def read(self, stored: StoredFile) -> ByteView:
        """The content of a file that was found."""

    @abstractmethod
    def all(self, prefix: str) -> Iterable[StoredFile]:
        """All files whose name begins with `prefix`, and maybe others."""

    @abstractmethod
    def write(self, file: Outgoing, about: Mapping[str, str], *, replace: bool) -> bool:
        """Have a file there, in the place of what has its name; False where it came to be there."""

    def has(self, stored: StoredFile, sha256: str) -> bool:
        """Whether a file that was found has that content."""
        return is_same(stored.sha256, sha256, lambda: self.read(stored))

    def prepare(self) -> None:  # noqa: B027 - few places have to
        """Have the place be there, before files are looked for that are to be written."""

    def settle(  # noqa: B027
        self, files: Sequence[Outgoing], about: Mapping[str, str], *, is_new: bool
    ) -> None:
        """Do what is left when all are there; `is_new` says whether one was not before."""

    def holds(self, file: Outgoing, *, replace: bool) -> bool:
        """Whether a file is there; raises RemoteRefused for another one, unless to `replace` it."""
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


def is_same(told: str | None, sha256: str, read: Callable[[], ByteView]) -> bool:
    """Whether a content is of `sha256`, by reading it where the place has not told its digest."""
    found = told or hashed(hashlib.sha256(), pieces(read())).hexdigest()
    return found == sha256


class OneByOne(ABC):
    """A `Target` whose files are delivered one after the other."""

    label: str

    @abstractmethod
    def _session(self) -> AbstractContextManager[Session]:
        """The place, for one operation."""

    def _check(self, name: str) -> None:
        """Raise UsageError for a name that a file can't have there."""
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
        """See `Target`. What is there is found out of all files before the first is written."""
        check_files(files)
        for file in files:
            self._check(file.name)
        with self._session() as session:
            session.prepare()
            wanted = [file for file in files if not session.holds(file, replace=replace)]
            new = [f.name for f in wanted if session.write(f, about or {}, replace=replace)]
            # Also of what was there: a process that was killed may have had no time for it.
            session.settle(files, about or {}, is_new=bool(wanted))
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
        """See `Target`; by reading the file where the place tells no digest."""
        self._check(name)
        with self._session() as session:
            try:
                stored = session.find(name)
                return stored is not None and session.has(stored, sha256)
            except InputError:
                return False
