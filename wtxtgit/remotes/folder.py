"""A folder as a target: on this machine, or in any store that fsspec opens by URL.

On this machine no package is needed, and a file's content is on disk before its name appears.
Elsewhere this is up to the store; if a store would show part of a file, the file is first written
under another name.
"""

from __future__ import annotations

import contextlib
import errno
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, InputError, RemoteRefused, RemoteUnavailable
from wtxtgit.io.files import replace_file, shown, sync_folder, view_file
from wtxtgit.io.view import ByteView, write_all
from wtxtgit.remotes import urls
from wtxtgit.remotes.one_by_one import OneByOne, Session
from wtxtgit.remotes.target import (
    Outgoing,
    Span,
    StoredFile,
    checked_pieces,
)

_NEVER = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EXDEV)
)
"""Errors of the system that waiting does not resolve."""


class Folder(OneByOne):
    """The folder at a path or URL, created when something is put there. See `Target`.

    Listings have no digests. If two writers on this machine use the same name the first one wins,
    and the other is refused. In a store the later one wins, since stores can't detect this.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        named = os.fspath(url)
        local = Path(named)
        if urls.is_url(named):
            path = urls.local_path(named)
            self._files: _Files = _Url(named) if path is None else _Disk(path)
        else:
            self._files = _Disk(local.absolute())
        self.label = self._files.label

    def time(self, name: str) -> float | None:
        """See `PrunableTarget`."""
        self._check(name)
        return self._files.time(name)

    def remove(self, name: str) -> None:
        """See `PrunableTarget`."""
        self._check(name)
        self._files.remove(name)

    def ranges(self, name: str, spans: Sequence[Span]) -> Iterator[ByteView]:
        """See `RangedTarget`."""
        self._check(name)
        return self._files.ranges(name, spans)

    @contextlib.contextmanager
    def _session(self) -> Iterator[_Files]:
        yield self._files


class _Files(Session):
    def write(self, file: Outgoing, about: Mapping[str, str], *, replace: bool) -> bool:
        try:
            self.put(file, replace)
        except EnvironmentFailure:
            # Another writer was faster, mostly with the same content.
            if replace or not self.holds(file, replace=False):
                raise
            return False
        return True

    @abstractmethod
    def put(self, file: Outgoing, replace: bool) -> None:
        """Write a file, completely or not at all."""

    @abstractmethod
    def time(self, name: str) -> float | None: ...

    @abstractmethod
    def remove(self, name: str) -> None: ...

    @abstractmethod
    def ranges(self, name: str, spans: Sequence[Span]) -> Iterator[ByteView]:
        """Yield parts of a file; see `RangedTarget`."""


class _Disk(_Files):
    def __init__(self, root: Path) -> None:
        self._root = root
        self.label = shown(root)

    def find(self, name: str) -> StoredFile | None:
        with _failures(), contextlib.suppress(FileNotFoundError):
            return StoredFile(name, (self._root / name).stat().st_size)
        return None

    def read(self, stored: StoredFile) -> ByteView:
        with _failures():
            return view_file(self._root / stored.name)

    def put(self, file: Outgoing, replace: bool) -> None:
        path = self._root / file.name
        with _failures():
            path.parent.mkdir(parents=True, exist_ok=True)
            content = checked_pieces(file)
            replace_file(path, lambda fd: write_all(fd, content), is_new=not replace)

    def time(self, name: str) -> float | None:
        with _failures(), contextlib.suppress(FileNotFoundError):
            return (self._root / name).stat().st_mtime
        return None

    def remove(self, name: str) -> None:
        with _failures():
            (self._root / name).unlink(missing_ok=True)

    def ranges(self, name: str, spans: Sequence[Span]) -> Iterator[ByteView]:
        with _failures():
            content = view_file(self._root / name)
            for start, stop in spans:
                if stop > len(content):
                    raise InputError(f"{self.label}: {name} ends before byte {stop}")
                yield content[start:stop]

    def settle(self, files: Sequence[Outgoing], about: Mapping[str, str], *, is_new: bool) -> None:
        """Sync the names to disk, and those of the folders that contain them."""
        folders = {folder for file in files for folder in (self._root / file.name).parents}
        for folder in sorted(f for f in folders if f == self._root or self._root in f.parents):
            with _failures():
                sync_folder(folder)

    def all(self, prefix: str) -> Iterator[StoredFile]:
        start = self._root / prefix.rpartition("/")[0]
        for folder, _, names in os.walk(start):
            for name in names:
                file = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if file.is_file():
                        own = file.relative_to(self._root).as_posix()
                        yield StoredFile(own, file.stat().st_size)


class _Url(_Files):
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.label = urls.shown_url(self._url)

    def find(self, name: str) -> StoredFile | None:
        nbytes = urls.size_at(self._at(name))
        return None if nbytes is None else StoredFile(name, nbytes)

    def read(self, stored: StoredFile) -> ByteView:
        return urls.read_url(self._at(stored.name))

    def put(self, file: Outgoing, replace: bool) -> None:
        # It is sent from a file, once that is complete.
        content = checked_pieces(file._replace(progress=None))
        url = self._at(file.name)
        urls.write_url(url, lambda fd: write_all(fd, content), file.progress)

    def time(self, name: str) -> float | None:
        return urls.time_at(self._at(name))

    def remove(self, name: str) -> None:
        urls.remove_url(self._at(name))

    def ranges(self, name: str, spans: Sequence[Span]) -> Iterator[ByteView]:
        return urls.ranges_at(self._at(name), spans)

    def all(self, prefix: str) -> Iterator[StoredFile]:
        return (StoredFile(*entry) for entry in urls.files_below(self._url))

    def _at(self, name: str) -> str:
        return f"{self._url}/{name}"


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn errors of the system into RemoteRefused if they are permanent, else
    RemoteUnavailable.
    """
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
