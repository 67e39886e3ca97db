"""Unfinished files, of which nothing visible remains whenever a process ends.

A new file has no name until it is complete, on systems with such files (O_TMPFILE). Only if it has
to replace another one, or the file system can't do that, it temporarily has a name: in the folder
of the surrounding git repository, from which git never adds files, or beside its target. Writers
hold a lock on what they make. So what a killed process left is recognized by its name, and by
nobody holding its lock; it is removed by the next writer that needs a name there. Only what a
`kept_file` has stays: the next process goes on with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from wtxtgit.version import STATE_FOLDER

_PREFIX = b".wtxtgit-"
NAME = re.compile(re.escape(_PREFIX) + rb"[0-9a-f]{16}")
"""The names of unfinished files and folders; nothing else has such names."""
_ASIDE = "tmp"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_HAS_NONE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""The errors of open(2) if the system or file system does not support unnamed files."""
_OPEN_FILES = "/proc/self/fd"
_MOST_POINTER = 4096
_PRIVATE = 0o600
_OWN_WRITES = 0o644
_PRIVATE_FOLDER = 0o700


class FileInMaking:
    """A file that is written through `descriptor`, and gets its name when it is complete."""

    def __init__(self, folder: int, near: Path) -> None:
        self._folder = folder
        self._near = near
        self._place = folder
        # Set before the name exists: a signal may come right after its creation.
        self._name: bytes | None = None
        self._is_kept = False
        self.descriptor = -1

    def put(self, name: bytes | str, *, is_new: bool = False) -> None:
        """Give it its name in the folder, replacing what has that name.

        With `is_new` nothing is replaced: raises FileExistsError.
        """
        target = os.fsencode(name)
        if self._name is None:
            lock(self.descriptor)
            try:
                self._link(target, self._folder)
            except FileExistsError:
                # link(2) replaces nothing, and rename(2) needs a name to move.
                if is_new:
                    raise
            else:
                return
        own = self._name or self._take_name()
        if is_new:
            os.link(own, target, src_dir_fd=self._place, dst_dir_fd=self._folder)
            self.drop()
        else:
            os.rename(own, target, src_dir_fd=self._place, dst_dir_fd=self._folder)
            self._name = None

    def drop(self) -> None:
        """Remove its temporary name, if it has one."""
        if self._name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._place)
            self._name = None

    def keep(self, name: bytes) -> None:
        """Have it stay under a name in its folder until it is dropped or put in its place."""
        self._name, self._is_kept = name, True

    def close(self) -> None:
        if not self._is_kept:
            self.drop()
        if self._place != self._folder:
            os.close(self._place)
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def open(self, mode: int) -> None:
        """Create the file; raises OSError."""
        if _UNNAMED and _can_be_linked():
            flags = _UNNAMED | os.O_RDWR | os.O_CLOEXEC
            try:
                self.descriptor = os.open(".", flags, mode, dir_fd=self._folder)
                return
            except OSError as error:
                if error.errno not in _HAS_NONE:
                    raise
        self._place = _place(self._near, self._folder)
        while True:
            self._name = _new_name()
            self.descriptor = os.open(self._name, _NAMED, mode, dir_fd=self._place)
            # Before it was locked another process may have removed it as left behind.
            if lock(self.descriptor) and os.fstat(self.descriptor).st_nlink:
                return
            os.close(self.descriptor)
            self.descriptor = -1

    def _take_name(self) -> bytes:
        self._place = _place(self._near, self._folder)
        self._name = name = _new_name()
        try:
            self._link(name, self._place)
        except OSError as error:
            # A file system that is mounted twice.
            if error.errno != errno.EXDEV or self._place == self._folder:
                raise
            os.close(self._place)
            self._place = self._folder
            self._link(name, self._place)
        return name

    def _link(self, name: bytes, folder: int) -> None:
        # open(2), O_TMPFILE: linked through /proc, because AT_EMPTY_PATH requires a capability.
        source = f"{_OPEN_FILES}/{self.descriptor}"
        os.link(source, name, dst_dir_fd=folder, follow_symlinks=True)


@contextlib.contextmanager
def new_file(folder: int, near: Path, mode: int = _PRIVATE) -> Iterator[FileInMaking]:
    """Create a file that will be put into the open `folder`, whose path is `near`, or below it.

    It is discarded unless it was `put` in its place.
    """
    made = FileInMaking(folder, near)
    try:
        made.open(mode)
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def kept_file(folder: int, near: Path, name: str) -> Iterator[FileInMaking | None]:
    """Open or create an unfinished file in the open `folder`, whose path is `near`.

    It keeps its name until it is dropped, or `put` in its place. Yields None if another process is
    writing it, if it can't be locked or written, or if something else has that name.
    """
    made = FileInMaking(folder, near)
    try:
        made.descriptor = os.open(name, _KEPT, _OWN_WRITES, dir_fd=folder)
    except OSError:
        # Another user of a shared repository has begun it, or it is a link or a folder.
        yield None
        return
    try:
        is_file = stat.S_ISREG(os.fstat(made.descriptor).st_mode)
        if is_file and _is_unlocked(made.descriptor, near / name):
            made.keep(os.fsencode(name))
            yield made
        else:
            yield None
    finally:
        made.close()


@contextlib.contextmanager
def new_folder(near: Path) -> Iterator[Path]:
    """Create a folder on the file system of `near`; it is removed at the end with its contents."""
    with opened_folder(near) as beside:
        place = _aside(near, os.fstat(beside).st_dev) or near
    _sweep(place)
    with _folder_in(place) as folder:
        yield folder


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder among the user's temporary files, removed at the end; raises OSError."""
    import tempfile

    place = Path(tempfile.gettempdir())
    # Only this user's: others may have put large trees of such names there, to keep root busy.
    _sweep(place, owner=os.geteuid())
    with _folder_in(place) as folder:
        yield folder


@contextlib.contextmanager
def _folder_in(place: Path) -> Iterator[Path]:
    with contextlib.ExitStack() as until:
        while True:
            folder = place / os.fsdecode(_new_name())
            # Registered first: a signal may come right after its creation.
            until.callback(_remove_folder, folder)
            folder.mkdir(_PRIVATE_FOLDER)
            # As with files, before it is locked another process may have removed it as left behind.
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(folder, _FOLDER)
                until.callback(os.close, descriptor)
                if lock(descriptor) and folder.exists():
                    break
        yield folder


def _remove_folder(folder: Path) -> None:
    import shutil

    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        # A signal came: no other follows, and the rest of the folder would stay.
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Open a folder, to use it by its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock an open file or folder as unfinished, until it is closed; returns whether that worked.

    Returns False if another process has locked it. On a file system without locks it returns True.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _given_up(file: Path) -> Iterator[bool]:
    """Lock a file or folder that may be left behind; yields whether no process holds its lock.

    Until the end of the block other processes then see it as being in use.
    """
    with looked_at(file) as descriptor:
        yield descriptor is not None and _is_unlocked(descriptor, file)


@contextlib.contextmanager
def looked_at(file: Path) -> Iterator[int | None]:
    """Open whatever is at a path, without following a link or waiting for a pipe's writer.

    Yields its descriptor, or None if it can't be opened.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_unlocked(descriptor: int, file: Path) -> bool:
    """Lock an open file; returns whether nobody held it and it is still the one with that name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # When the lock was acquired the name may have belonged to another file.
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    except OSError:
        # Without locks there is no evidence, so the file stays.
        return False


def left_behind(file: Path) -> bool:
    """Tell whether an unfinished file or folder was left by a process that no longer runs."""
    with _given_up(file) as is_given_up:
        return is_given_up


def remove(file: Path) -> bool:
    """Remove a file or folder that was left behind; returns whether it was. Raises OSError."""
    with _given_up(file) as is_given_up:
        if not is_given_up:
            return False
        if file.is_dir():
            import shutil

            shutil.rmtree(file)
        else:
            file.unlink()
        return True


def leftovers(folder: Path) -> list[Path]:
    """List what killed processes left in a folder; empty if it can't be read."""
    return [file for file in _in_the_making(folder) if left_behind(file)]


def _in_the_making(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if NAME.fullmatch(os.fsencode(file.name))]
    except OSError:
        return []


def folder_of_git(near: Path) -> Path | None:
    """Return the git folder of the repository around a path, that of its main work tree.

    gitrepository-layout(5): `.git`, or what a file of that name refers to. Returns None outside of
    a repository.
    """
    here = Path(os.path.realpath(near))
    for folder in (here, *here.parents):
        entry = folder / ".git"
        with contextlib.suppress(OSError, ValueError):
            found = entry
            if not entry.is_dir():
                found = folder / _pointer(entry, b"gitdir: ")
            with contextlib.suppress(OSError):
                found /= _pointer(found / "commondir", b"")
            if (found / "HEAD").is_file():
                return Path(os.path.normpath(found))
    return None


def _pointer(file: Path, start: bytes) -> str:
    """Return the path in one of git's files; raises OSError and ValueError."""
    with file.open("rb") as opened:
        content = opened.read(_MOST_POINTER)
    if not content.startswith(start):
        raise ValueError(content)
    return os.fsdecode(content[len(start) :].rstrip(b"\r\n"))


def aside_folder(git: Path) -> Path:
    """Return the folder of unfinished files in a repository's git folder."""
    return git / STATE_FOLDER / _ASIDE


def _aside(near: Path, device: int) -> Path | None:
    """Return the folder for names that git never adds; None if there is none on that device."""
    git = folder_of_git(near)
    if git is None:
        return None
    aside = aside_folder(git)
    try:
        for folder in (aside.parent, aside):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(_PRIVATE_FOLDER)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_dev != device:
                return None
        return aside if os.access(aside, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def _place(near: Path, folder: int) -> int:
    """Open the folder in which a file that will be put into `folder` may have a temporary name."""
    aside = _aside(near, os.fstat(folder).st_dev)
    if aside is None:
        # By its descriptor: the folder may have been opened without following links.
        _sweep(Path(f"{_OPEN_FILES}/{folder}") if _can_be_linked() else near)
        return folder
    _sweep(aside)
    return os.open(aside, _FOLDER)


def _sweep(place: Path, owner: int | None = None) -> None:
    """Remove what was left behind in a folder; with `owner` only what belongs to that user."""
    for file in _in_the_making(place):
        with contextlib.suppress(OSError):
            if owner is None or file.lstat().st_uid == owner:
                remove(file)


def _new_name() -> bytes:
    # Random, so that nobody can have placed a link there before.
    return _PREFIX + os.urandom(8).hex().encode("ascii")


@cache
def _can_be_linked() -> bool:
    """Tell whether an open file can be given a name."""
    return os.path.isdir(_OPEN_FILES)  # noqa: PTH112 - asked at every start that writes
