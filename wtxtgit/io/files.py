"""Files on disk: written completely or not at all.

Reading copies a part of the file when that is looked at (`read_view`). Writing goes to a file of
`io/temporary.py`, which replaces the other only when it is complete and on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Lock

from wtxtgit.errors import (
    EnvironmentFailure,
    FormatError,
    InputError,
    UsageError,
    WtxtgitError,
)
from wtxtgit.io.view import (
    AT_ONCE,
    ByteView,
    FileReads,
    Windowed,
    mapped,
    pieces,
    view_of,
    write_all,
)

NOT_REGULAR = "not a regular file"
_UMASK_PROBE = 0o666
_READABLE = 0o444
_UMASK_LOCK = Lock()


def user_folder(
    variable: str, otherwise: str, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Return our folder among the user's, by the XDG Base Directory Specification.

    `variable` names the folder that contains ours; if it is not set that is `otherwise` in the
    home. Returns None if there is no home.
    """
    base = Path(environment.get(variable, ""))
    if not base.is_absolute():
        # By the specification a relative path has to be ignored, too.
        try:
            base = Path.home() / otherwise
        except RuntimeError:
            return None
    return base / "wtxtgit"


def view_file(path: Path, folder: Path | None = None) -> ByteView:
    """Return the content of a regular file, read-only.

    Relative paths start from `folder`, if given. A large file is read a part at a time. Raises
    InputError for a missing file or a folder, and EnvironmentFailure if it can't be read; looking
    at a part raises as in `FileReads`.
    """
    with failures(path), (path if folder is None else folder / path).open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            # A pipe, a device, a file of /proc: its whole content is what reading returns.
            return memoryview(file.read())
        return read_view(file.fileno(), path)


def read_view(descriptor: int, path: Path, *, by_time: bool = True) -> ByteView:
    """Return the content of an open regular file; `descriptor` may be closed afterwards.

    Messages name `path`. Raises EnvironmentFailure as `FileReads` does.
    """
    reads = FileReads(descriptor, shown(path), partial(failures, path), by_time=by_time)
    if reads.nbytes > AT_ONCE:
        return Windowed(reads)
    return reads.read(0, reads.nbytes) if reads.nbytes else memoryview(b"")


def read_whole(path: Path, folder: Path | None = None) -> memoryview:
    """Return a file's content as one buffer.

    Raises EnvironmentFailure if there is no room for it.
    """
    return mapped(view_file(path, folder))


@contextlib.contextmanager
def opened_regular(
    file: Path, *, follow_links: bool = False
) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file; yields its descriptor for reading, and its stat result.

    Raises OSError for a link unless `follow_links`, for a file that can't be read and, with the
    message NOT_REGULAR, for a pipe or a device.
    """
    # Opening a pipe would block for ever; a link may lead out of its folder.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    descriptor = os.open(file, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, os.fspath(file))
        yield descriptor, status
    finally:
        os.close(descriptor)


def read_small(path: Path, limit: int, what: str) -> bytes:
    """Return the content of a small file such as a key; raises InputError over `limit` bytes."""
    with failures(path), path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{shown(path)}: over {limit} bytes, too large for {what}")
    return content


def make_folder(path: Path, shared: int) -> None:
    """Create a folder if missing, with permission bits beyond the umask; raises OSError."""
    if path.is_dir():
        return
    path.mkdir(exist_ok=True)
    if shared:
        mode = stat.S_IMODE(path.stat().st_mode) | shared
        # Whoever may read it may enter it, and files made in it belong to its group.
        path.chmod(mode | (mode & _READABLE) >> 2 | stat.S_ISGID)


def replace_file(path: Path, write: Callable[[int], None], *, is_new: bool = False) -> None:
    """Call `write` with the descriptor of a new file, then put that in place of `path`.

    If anything fails nothing is left of it. A symbolic link is replaced, not followed. An existing
    file's permission bits are kept. Raises UsageError for a pipe or a device, which can't be
    replaced. With `is_new` nothing is replaced: raises EnvironmentFailure if the name exists by
    then.
    """
    with failures(path, missing=EnvironmentFailure):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{shown(path)} is not a regular file", hint="-o - writes to standard output"
            )
        # Imported here: readers start without it.
        from wtxtgit.io.temporary import new_file, opened_folder

        with opened_folder(path.parent) as folder, new_file(folder, path.parent) as file:
            write(file.descriptor)
            os.fchmod(file.descriptor, _mode_for(path))
            # Synced before it gets its name: after a crash the name could lead to an empty file.
            os.fsync(file.descriptor)
            file.put(path.name, is_new=is_new)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk; raises EnvironmentFailure."""
    from wtxtgit.io.temporary import opened_folder

    with failures(folder, missing=EnvironmentFailure), opened_folder(folder) as descriptor:
        os.fsync(descriptor)


def create_file(path: Path, content: bytes, mode: int) -> None:
    """Create a file, completely or not at all; raises FileExistsError if it exists, and OSError."""
    from wtxtgit.io.temporary import new_file, opened_folder

    with opened_folder(path.parent) as folder, new_file(folder, path.parent) as file:
        os.fchmod(file.descriptor, mode)
        write_all(file.descriptor, (content,))
        os.fsync(file.descriptor)
        file.put(path.name, is_new=True)


def write_output(path: Path, write: Callable[[int], None]) -> None:
    """Write the output file that a user named: as `replace_file`, or into a stream.

    What can't be replaced (a pipe, a device, `/dev/stdout`) is written to once the output is
    complete: `write` gets a temporary file, in which it may write anywhere and read what it wrote.
    """
    with failures(path, missing=EnvironmentFailure):
        stream = _stream(path)
        if stream is None:
            replace_file(path, write)
            return
        import tempfile

        try:
            with tempfile.TemporaryFile(prefix="wtxtgit-") as whole:
                write(whole.fileno())
                write_all(stream, pieces(view_of(whole.fileno())))
        finally:
            os.close(stream)


def _stream(path: Path) -> int | None:
    """Open the stream that a path stands for; None if a regular file can be written there."""
    link = path
    if link.is_symlink() and os.path.realpath(link.parent) == "/dev":
        # /dev/stdout leads to an open file of this process: with `> FILE` that is a regular one,
        # which must neither be replaced nor be written from its start.
        link = link.parent / link.readlink()
    if os.path.realpath(link.parent) == f"/proc/{os.getpid()}/fd" and link.name.isdecimal():
        return os.dup(int(link.name))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def failures(path: Path, *, missing: type[WtxtgitError] = InputError) -> Iterator[None]:
    """Turn the system's errors about `path` into ours; `missing` if it does not exist."""
    try:
        yield
    except WtxtgitError:
        raise
    except BrokenPipeError:
        # Not about this path: it is reported at the boundary that standard output was closed.
        raise
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise missing(f"{shown(path)}: {reason(error)}") from error
    except OSError as error:
        raise EnvironmentFailure(f"{shown(path)}: {reason(error)}") from error


@contextlib.contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Put a file's name before the message when a format's reader or writer refuses it."""
    try:
        yield
    except FormatError as error:
        raise InputError.because(f"{shown(Path(path))}: {error.message}", error) from error


def reason(error: OSError) -> str:
    """Return the system's message for an error as a lower-case phrase."""
    words = error.strerror or type(error).__name__
    return words[:1].lower() + words[1:]


def shown(path: Path | str) -> str:
    """Return a path for a message, with control characters and undecodable bytes escaped."""
    return (
        str(path)
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "backslashreplace")
        .translate({code: f"\\x{code:02x}" for code in (*range(32), 127)})
    )


def shown_path(path: bytes) -> str:
    """Return a path from git for a message."""
    return shown(Path(os.fsdecode(path)))


def _mode_for(path: Path) -> int:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return _UMASK_PROBE & ~_umask()
    if stat.S_ISREG(status.st_mode):
        return stat.S_IMODE(status.st_mode)
    return _UMASK_PROBE & ~_umask()


def _umask() -> int:
    # The umask belongs to the process, and can only be read by setting it.
    with _UMASK_LOCK:
        mask = os.umask(0)
        os.umask(mask)
    return mask
