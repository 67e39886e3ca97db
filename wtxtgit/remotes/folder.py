"""A folder as a target: of this machine, or of any store that fsspec knows by URL.

On this machine a file is on disk before its name is, and needs no package; elsewhere it is what the
store makes of it: one that would show a part of a file gets it under another name first.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from wtxtgit.errors import EnvironmentFailure, InputError, RemoteRefused, RemoteUnavailable
from wtxtgit.io.files import replace_file, shown, view_file
from wtxtgit.io.temporary import sync_folder
from wtxtgit.io.view import ByteView, write_all
from wtxtgit.remotes import urls
from wtxtgit.remotes.target import (
    Outgoing,
    StoredFile,
    check_fetched,
    check_files,
    check_name,
    checked_pieces,
    is_name,
    missing,
    taken,
)

_NEVER = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EXDEV)
)
"""What the system says that waiting does not change."""


class Folder:
    """The folder at a path or URL; made when something is put there. See `Target`.

    A listing does not tell digests. Two writers of one name on this machine: the first wins, the
    other one is refused. In a store the later one wins, as stores have no way to tell.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        named = os.fspath(url)
        local = Path(named)
        if urls.is_url(named):
            found = urls.local_path(named)
            self._files: _Files = _Store(named) if found is None else _Disk(found)
        else:
            self._files = _Disk(local.absolute())
        self.label = self._files.label

    def __repr__(self) -> str:
        return f"Folder({self.label!r})"

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        """Deliver files one after another; `about` has no place here."""
        check_files(files)
        written = []
        for file in [file for file in files if not self._is_there(file, replace)]:
            try:
                self._files.write(file, replace)
                written.append(file.name)
            except EnvironmentFailure:
                # Another writer was faster: with the same content, mostly.
                if replace or not self._is_there(file, replace):
                    raise
        # Also of what was there: a process that was killed may have had no time for it.
        self._files.settle([file.name for file in files])
        return written

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        check_name(name)
        if self._files.size(name) is None:
            raise missing(self.label, name)
        return check_fetched(self.label, name, self._files.read(name), sha256)

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        found = (StoredFile(name, nbytes) for name, nbytes in self._files.all(prefix))
        return sorted(file for file in found if file.name.startswith(prefix) and is_name(file.name))

    def has(self, name: str, sha256: str) -> bool:
        """Whether it is there, by reading it."""
        try:
            self.get(name, sha256)
        except InputError:
            return False
        return True

    def _is_there(self, file: Outgoing, replace: bool) -> bool:
        nbytes = self._files.size(file.name)
        if nbytes is None:
            return False
        if nbytes == len(file.content) and self.has(file.name, file.sha256):
            return True
        if not replace:
            raise taken(self.label, file.name)
        return False


class _Files(Protocol):
    label: str

    def size(self, name: str) -> int | None: ...
    def read(self, name: str) -> ByteView: ...
    def write(self, file: Outgoing, replace: bool) -> None: ...
    def settle(self, names: Sequence[str]) -> None: ...
    def all(self, prefix: str) -> Iterator[tuple[str, int]]: ...


class _Disk:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.label = shown(root)

    def size(self, name: str) -> int | None:
        with _failures(), contextlib.suppress(FileNotFoundError):
            return (self._root / name).stat().st_size
        return None

    def read(self, name: str) -> ByteView:
        with _failures():
            return view_file(self._root / name)

    def write(self, file: Outgoing, replace: bool) -> None:
        path = self._root / file.name
        with _failures():
            path.parent.mkdir(parents=True, exist_ok=True)
            content = checked_pieces(file)
            replace_file(path, lambda fd: write_all(fd, content), is_new=not replace)

    def settle(self, names: Sequence[str]) -> None:
        """Have names on disk, and those of the folders that they stand in."""
        files = [self._root / name for name in names]
        folders = {folder for file in files for folder in file.parents}
        for folder in sorted(f for f in folders if f == self._root or self._root in f.parents):
            with _failures():
                sync_folder(folder)

    def all(self, prefix: str) -> Iterator[tuple[str, int]]:
        start = self._root / prefix.rpartition("/")[0]
        for folder, _, names in os.walk(start):
            for name in names:
                file = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if file.is_file():
                        yield file.relative_to(self._root).as_posix(), file.stat().st_size


class _Store:
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.label = urls.shown_url(self._url)

    def size(self, name: str) -> int | None:
        return urls.size_at(self._at(name))

    def read(self, name: str) -> ByteView:
        return urls.read_url(self._at(name))

    def write(self, file: Outgoing, replace: bool) -> None:
        content = checked_pieces(file)
        urls.write_url(self._at(file.name), lambda fd: write_all(fd, content))

    def settle(self, names: Sequence[str]) -> None:
        """Nothing: what a store has taken, it has."""

    def all(self, prefix: str) -> Iterator[tuple[str, int]]:
        return iter(urls.files_below(self._url))

    def _at(self, name: str) -> str:
        return f"{self._url}/{name}"


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Say of what the system refuses whether it is for good."""
    try:
        yield
    except (OSError, EnvironmentFailure) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        kind = RemoteRefused if cause.errno in _NEVER else RemoteUnavailable
        words = error.message if isinstance(error, EnvironmentFailure) else _words(error)
        raise kind(words) from None


def _words(error: OSError) -> str:
    where = f"{shown(str(error.filename))}: " if error.filename else ""
    return f"{where}{(error.strerror or type(error).__name__).lower()}"
