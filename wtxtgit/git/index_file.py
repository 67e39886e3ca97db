"""Writing stat fields of entries into the index file, which no git command does.

gitformat-index(5). Git considers an entry unchanged if its stat fields are those of the work-tree
file. Otherwise it reads the file again, through the filter, or, if the entry has another size,
always shows it as changed. So git writes everything else to a copy of the index, the stat fields
are written into that copy, and the copy replaces the index under git's own lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.driver import UNFILTERED
from wtxtgit.git.held import drop_stale, held, is_stale
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.files import stale_keeps
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.files import reason
from wtxtgit.io.temporary import (
    aside_folder,
    leftovers,
    new_file,
    new_folder,
    opened_folder,
    remove,
)
from wtxtgit.io.view import write_all

_SIGNATURE = b"DIRC"
_HEAD = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")
"""ctime and mtime as seconds and nanoseconds, dev, ino, mode, uid, gid, size."""
_MTIME, _MODE = 2, 6
_EXTENDED = 0x4000
_STAGES = 0x3000
_PADDING = 8
_PACKED_NAMES = 4
"""The version whose names omit the prefix that they share with the name before."""
_VERSIONS = (2, 3, _PACKED_NAMES)
_SPLIT = b"link"
_WORD = 0xFFFFFFFF
_WRAPPED_SIZE = 0x80000000
_WRAPPING = (2, 43)
"""The first version of git that does not write 0 as the size of a multiple of 4 GiB."""
_NANO = 10**9
_HASHES = {20: "sha1", 32: "sha256"}


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A work-tree file that has the content of a blob: path, mode as in a tree, and stat result."""

    path: bytes
    mode: int
    oid: str
    status: os.stat_result


def index_lines(files: Iterable[TreeEntry | StagedFile]) -> list[bytes]:
    """Return the lines for `git update-index --index-info`."""
    return [b"%06o %b 0\t%b" % (f.mode, check_oid(f.oid).encode(), f.path) for f in files]


_UNSPLIT = ("-c", "core.splitIndex=false")
"""Makes git write the index as one file: in a split index (gitformat-index(5), "Split index") the
entries to be updated may be in a shared file. With core.splitIndex git splits it again at the next
write; an index that was split by hand stays in one file."""


def stage_files(repo: Repository, files: Iterable[StagedFile]) -> None:
    """Put files into the index, all or none, with stat fields by which git sees them as unchanged.

    A conflict at such a path is resolved. Raises EnvironmentFailure if the index stays locked for
    over a second, and GitFailure if there is a folder at a path.
    """
    chosen = list(files)
    if not chosen:
        return
    index = _index(repo)
    with _locked(index, is_waited_for=True), _copied(index) as copy:
        lines = run.joined(index_lines(chosen))
        env = {"GIT_INDEX_FILE": str(copy)}
        repo.git(*_UNSPLIT, "update-index", "-z", "--index-info", stdin=lines, env=env)
        staged = _Index(copy, chosen)
        missing = staged.note()
        if missing:
            name = ascii(os.fsdecode(missing[0]))
            raise EnvironmentFailure(f"git does not allow a file named {name} in the index")
        staged.put(index)


def note_files(
    repo: Repository, files: Iterable[StagedFile], *, is_waited_for: bool = True
) -> None:
    """Write the stat fields of those files that have the blob and mode of their index entry.

    Raises EnvironmentFailure if the index can't be written or is locked, with `is_waited_for` for
    over a second.
    """
    chosen = list(files)
    if not chosen:
        return
    index = _index(repo)
    with _locked(index, is_waited_for=is_waited_for), contextlib.ExitStack() as closing:
        updated = _Index(index, chosen)
        if updated.is_split or updated.has_racy():
            copy = closing.enter_context(_copied(index))
            env = {"GIT_INDEX_FILE": str(copy)}
            options = (*UNFILTERED, *_UNSPLIT)
            repo.git(*options, "update-index", "--force-write-index", env=env)
            updated = _Index(copy, chosen)
        updated.note()
        updated.put(index)


def refresh_stats(repo: Repository, files: Iterable[StagedFile]) -> bool:
    """Do the same as `note_files` if possible, to save git time; returns whether it was possible.

    An index that is locked or can't be written is left alone: git then reads the files once more. A
    lock that a dead process of ours left is removed even if there are no files: that process may
    have had nothing more to write.
    """
    chosen = list(files)
    if os.environ.get("GIT_OPTIONAL_LOCKS") == "0":
        return not chosen
    with contextlib.suppress(OSError):
        drop_stale_lock(repo)
    try:
        note_files(repo, chosen, is_waited_for=False)
    except EnvironmentFailure:
        return False
    return True


class _Index:
    """An index file in memory, in which the stat fields of some files are updated.

    Raises EnvironmentFailure if the file is not a valid index.
    """

    def __init__(self, path: Path, files: Sequence[StagedFile]) -> None:
        try:
            status = path.stat()
            self._data = bytearray(path.read_bytes())
        except OSError as error:
            raise EnvironmentFailure(f"{path}: can't be read: {reason(error)}") from error
        self._mode = stat.S_IMODE(status.st_mode)
        self._seconds = status.st_mtime_ns // _NANO
        self._files = {file.path: file for file in files}
        self._digest_size = len(files[0].oid) // 2
        try:
            self._entries, end = self._read()
        except (struct.error, IndexError, ValueError) as error:
            raise EnvironmentFailure(f"{path}: not a valid git index") from error
        self.is_split = self._data[end : end + len(_SPLIT)] == _SPLIT

    def note(self) -> list[bytes]:
        """Write the stat fields of the files whose entry has their blob and mode.

        Returns the paths of the other files.
        """
        size = self._digest_size
        missing = dict.fromkeys(self._files)
        for start, path in self._entries:
            file = self._files.get(path)
            # An entry with a stage belongs to a conflict; it is not the staged file.
            if file is None or self._flags(start) & _STAGES:
                continue
            oid = self._data[start + _STAT.size : start + _STAT.size + size].hex()
            mode = _STAT.unpack_from(self._data, start)[_MODE]
            if (mode, oid) == (file.mode, file.oid):
                _STAT.pack_into(self._data, start, *_stat_fields(file))
                missing.pop(path, None)
        return list(missing)

    def has_racy(self) -> bool:
        """Whether git would check other files again because they are as young as this index.

        A file written in the same second as the index may differ from its entry. An index that is
        written later hides that; git marks such entries when it writes an index (racy-git.txt).
        """
        return any(
            _STAT.unpack_from(self._data, start)[_MTIME] >= self._seconds
            for start, path in self._entries
            if path not in self._files
        )

    def put(self, index: Path) -> None:
        """Replace the file `index` with this index; the caller holds its lock."""
        size = self._digest_size
        # With index.skipHash the hash is all zeros, and stays so.
        if any(self._data[-size:]):
            covered = memoryview(self._data)[:-size]
            digest = hashlib.new(_HASHES[size], covered, usedforsecurity=False).digest()
            covered.release()
            self._data[-size:] = digest
        folder = index.parent
        try:
            with opened_folder(folder) as descriptor, new_file(descriptor, folder) as file:
                write_all(file.descriptor, (self._data,))
                os.fchmod(file.descriptor, self._mode)
                file.put(index.name)
        except OSError as error:
            raise EnvironmentFailure(f"{index}: can't be written: {reason(error)}") from error

    def _read(self) -> tuple[list[tuple[int, bytes]], int]:
        """Return where each entry begins, with its path, and where the last one ends."""
        data = self._data
        signature, version, count = _HEAD.unpack_from(data)
        if signature != _SIGNATURE or version not in _VERSIONS:
            raise ValueError(version)
        entries = []
        start, path = _HEAD.size, b""
        for _ in range(count):
            name = start + _STAT.size + self._digest_size + 2
            # gitformat-index(5): version 3 added sixteen more bits of flags.
            if self._flags(start) & _EXTENDED:
                name += 2
            if version == _PACKED_NAMES:
                dropped, name = _offset(data, name)
                end = data.index(b"\0", name)
                path = path[: len(path) - dropped] + bytes(data[name:end])
                following = end + 1
            else:
                end = data.index(b"\0", name)
                path = bytes(data[name:end])
                # Padded with one to eight NULs.
                following = start + (end - start + _PADDING) // _PADDING * _PADDING
            entries.append((start, path))
            start = following
        return entries, start

    def _flags(self, start: int) -> int:
        place = start + _STAT.size + self._digest_size
        return int.from_bytes(self._data[place : place + 2], "big")


def _offset(data: bytearray, place: int) -> tuple[int, int]:
    """Read an offset as encoded in OFS_DELTA of packs; returns it and the position after it."""
    byte = data[place]
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        byte = data[place]
        value = (value + 1) << 7 | byte & 0x7F
    return value, place + 1


def _stat_fields(file: StagedFile) -> Iterator[int]:
    """Yield the ten numbers that git stores for a file, each the lowest 32 bits."""
    status = file.status
    size = status.st_size & _WORD
    if status.st_size and not size and run.version() >= _WRAPPING:
        size = _WRAPPED_SIZE
    # In the order in which gitformat-index(5) has the fields.
    for moment in (status.st_ctime_ns, status.st_mtime_ns):
        yield moment // _NANO & _WORD
        yield moment % _NANO
    yield status.st_dev & _WORD
    yield status.st_ino & _WORD
    yield file.mode
    yield status.st_uid & _WORD
    yield status.st_gid & _WORD
    yield size


def _index(repo: Repository) -> Path:
    """Return the path of the index, GIT_INDEX_FILE included, with links resolved as git does."""
    return Path(os.path.realpath(repo.git_path("index")))


_WAITS = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.4)
"""Seconds between attempts to take a lock, one second in all: most are held for less."""


@contextlib.contextmanager
def _locked(index: Path, *, is_waited_for: bool) -> Iterator[None]:
    """Hold git's own lock of an index, which git does not read: the index is written elsewhere."""
    lock = _lock_of(index)
    with contextlib.ExitStack() as closing:
        for wait in (*(_WAITS if is_waited_for else ()), None):
            try:
                closing.enter_context(held(lock))
                break
            except FileExistsError as error:
                if wait is None:
                    raise _lock_error(lock) from error
                time.sleep(wait)
            except OSError as error:
                raise EnvironmentFailure(f"{lock}: can't be created: {reason(error)}") from error
        yield


def refuse_locked(repo: Repository) -> None:
    """Raise EnvironmentFailure if another process is writing the index."""
    lock = lock_path(repo)
    drop_stale(lock)
    if os.path.lexists(lock):
        raise _lock_error(lock)


def _lock_error(lock: Path) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"{lock} exists: another git process seems to be running in this repository",
        hint=run.LOCKED,
    )


def stale_lock(repo: Repository) -> Path | None:
    """Return the index's lock if a process of ours left it that no longer runs."""
    lock = lock_path(repo)
    return lock if is_stale(lock) else None


def drop_stale_lock(repo: Repository) -> None:
    """Remove the index's lock if a process of ours left it that no longer runs.

    Call this before git is asked to write the index.
    """
    drop_stale(lock_path(repo))


def sweep(repo: Repository) -> None:
    """Remove what killed processes of ours left that would be in the way: the index's lock,
    temporary files, and what keeps packs.
    """
    drop_stale_lock(repo)
    for file in (*leftovers(aside_folder(repo.common_dir)), *stale_keeps(repo)):
        with contextlib.suppress(OSError):
            remove(file)


def lock_path(repo: Repository) -> Path:
    """Return where the index's lock is while somebody holds it."""
    return _lock_of(_index(repo))


def _lock_of(index: Path) -> Path:
    return index.with_name(index.name + ".lock")


@contextlib.contextmanager
def _copied(index: Path) -> Iterator[Path]:
    """Copy an index for git to change; if there is none, git will create the copy."""
    with contextlib.ExitStack() as closing:
        try:
            copy = closing.enter_context(new_folder(index.parent)) / index.name
            with contextlib.suppress(FileNotFoundError):
                # With its time stamp: git checks files again that are as young as their index.
                shutil.copy2(index, copy)
        except OSError as error:
            raise EnvironmentFailure(f"{index}: can't be copied: {reason(error)}") from error
        yield copy
