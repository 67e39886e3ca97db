"""Files in the making, of which nothing stays in sight whenever a process ends.

A new file has no name until it is whole, where the system knows such files (O_TMPFILE). Only where
it has to take the place of another one, or the file system knows none, it has a name for a time:
in the folder of the git repository around it, which git never adds from, or beside its target.
Whoever writes holds a lock on what it makes. So what a killed process left is known by its name,
and by nobody holding its lock; it is removed by the next writer that needs a name there.
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
NAME = re.compile(re.escape(_PREFIX) + rb"(?:[0-9a-f]{16}|[a-z0-9_]{8})")
"""Names of what was never finished; the shorter ones are those of Python's tempfile."""
_ASIDE = "tmp"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_HAS_NONE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""What open(2) gives where a system, or a file system, has no files without a name."""
_OPEN_FILES = "/proc/self/fd"
_MOST_POINTER = 4096
_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700


class FileInMaking:
    """A file that is written through `descriptor`, and gets its name when it is whole."""

    def __init__(self, folder: int, near: Path) -> None:
        self._folder = folder
        self._near = near
        self._place = folder
        # Known before anything has it: a signal may come right after that, too.
        self._name: bytes | None = None
        self.descriptor = -1

    def put(self, name: bytes | str, *, is_new: bool = False) -> None:
        """Give it its name in the folder, in the place of what has that.

        Where it `is_new`, nothing may have it: raises FileExistsError.
        """
        target = os.fsencode(name)
        if self._name is None:
            lock(self.descriptor)
            try:
                self._link(target, self._folder)
            except FileExistsError:
                # link(2) replaces nothing, and what rename(2) moves has a name.
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
        """Take the name away that it has for a time, if any."""
        if self._name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._place)
            self._name = None

    def close(self) -> None:
        self.drop()
        if self._place != self._folder:
            os.close(self._place)
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def open(self, mode: int) -> None:
        """Make the file; raises OSError."""
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
            # Before it was locked another process may have taken it for one left behind.
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
            # Of one file system that is mounted twice.
            if error.errno != errno.EXDEV or self._place == self._folder:
                raise
            os.close(self._place)
            self._place = self._folder
            self._link(name, self._place)
        return name

    def _link(self, name: bytes, folder: int) -> None:
        # open(2), O_TMPFILE: by its own link in /proc, since AT_EMPTY_PATH asks for a capability.
        source = f"{_OPEN_FILES}/{self.descriptor}"
        os.link(source, name, dst_dir_fd=folder, follow_symlinks=True)


@contextlib.contextmanager
def new_file(folder: int, near: Path, mode: int = _PRIVATE) -> Iterator[FileInMaking]:
    """Make a file that will stand in the open `folder`, which is `near`, or below it.

    It is gone unless it was `put` at its place.
    """
    made = FileInMaking(folder, near)
    try:
        made.open(mode)
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def new_folder(near: Path) -> Iterator[Path]:
    """Make a folder on the file system of `near`, which is gone at the end with what is in it."""
    with opened_folder(near) as beside:
        place = _aside(near, os.fstat(beside).st_dev) or near
    with _folder_in(place) as folder:
        yield folder


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder among the user's temporary files, which is gone at the end; raises OSError."""
    import tempfile

    with _folder_in(Path(tempfile.gettempdir())) as folder:
        yield folder


@contextlib.contextmanager
def _folder_in(place: Path) -> Iterator[Path]:
    _sweep(place)
    with contextlib.ExitStack() as until:
        while True:
            folder = place / os.fsdecode(_new_name())
            # First: a signal may come right after it was made.
            until.callback(_remove_folder, folder)
            folder.mkdir(_PRIVATE_FOLDER)
            # As with files: before it is locked another process may take it for one left behind.
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
        # A signal: it is the only one, and what is left of it would stay.
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Open a folder, for what is done in it by its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Say that what is open is in the making, for as long as it is; tells whether that is so.

    False where another process says so. A file system without locks is taken to have none left.
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
    """Whether nobody is at work on what was in the making; meanwhile it is as if we were."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _is_unlocked(descriptor, file)
    finally:
        os.close(descriptor)


def _is_unlocked(descriptor: int, file: Path) -> bool:
    """Lock what is open; tells whether nobody had, and it is what stands there."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The name may have been another's when the lock was got.
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    except OSError:
        # Where there are no locks nothing tells, and it stays.
        return False


def left_behind(file: Path) -> bool:
    """Whether a file or folder was in the making, by a process that is no more."""
    with _given_up(file) as is_given_up:
        return is_given_up


def remove(file: Path) -> bool:
    """Take away a file or folder that was left behind; tells whether it was. Raises OSError."""
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
    """What processes that were killed left in a folder; none where it can't be read."""
    return [file for file in _in_the_making(folder) if left_behind(file)]


def _in_the_making(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if NAME.fullmatch(os.fsencode(file.name))]
    except OSError:
        return []


def folder_of_git(near: Path) -> Path | None:
    """The folder of the git repository around a place, that of its main work tree; None outside.

    gitrepository-layout(5): `.git`, or where a file of that name leads to.
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
    """The path that one of git's files holds; raises OSError and ValueError."""
    with file.open("rb") as opened:
        content = opened.read(_MOST_POINTER)
    if not content.startswith(start):
        raise ValueError(content)
    return os.fsdecode(content[len(start) :].rstrip(b"\r\n"))


def aside_folder(git: Path) -> Path:
    """Where in a repository's folder files are in the making."""
    return git / STATE_FOLDER / _ASIDE


def _aside(near: Path, device: int) -> Path | None:
    """The folder for names that git never adds; None where there is none on that device."""
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
    """Open the folder in which a file that will stand in `folder` may have a name."""
    aside = _aside(near, os.fstat(folder).st_dev)
    if aside is None:
        # By its number: it may have been found without following links.
        _sweep(Path(f"{_OPEN_FILES}/{folder}") if _can_be_linked() else near)
        return folder
    _sweep(aside)
    return os.open(aside, _FOLDER)


def _sweep(place: Path) -> None:
    for file in _in_the_making(place):
        with contextlib.suppress(OSError):
            remove(file)


def _new_name() -> bytes:
    # Random: nobody can have put a link there before.
    return _PREFIX + os.urandom(8).hex().encode("ascii")


@cache
def _can_be_linked() -> bool:
    """Whether a file that is open can be given a name."""
    return os.path.isdir(_OPEN_FILES)  # noqa: PTH112 - asked at every start that writes
