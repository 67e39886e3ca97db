"""Writing the index, and the work tree from it.

The index is the one that git names, `GIT_INDEX_FILE` considered: a hook may
be given another one than the repository's.

Git writes all of an index but what it lets nobody else write: the stat fields
of its entries, gitformat-index(5). An entry whose stat fields are those of the
work-tree file is unchanged for git; without them it reads the file again,
through the filter. So git writes to a copy, the fields are written into that,
and the copy takes the index's place under git's own lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.driver import UNFILTERED
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.view import Buffer

# Of `git commit PATH`: prepare_index() in git's builtin/commit.c
_PARTIAL = re.compile(r"next-index-[0-9]+\.lock")


def write_blob(repo: Repository, data: Buffer) -> str:
    """Store bytes as they are, through no filter; gives the blob's object id."""
    written = repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin=data)
    return check_oid(written.decode("ascii", "backslashreplace").strip())


def stage(repo: Repository, files: Iterable[TreeEntry], removed: Iterable[bytes] = ()) -> None:
    """Put files into the index, and take others out, all of them or none.

    A conflict at a path ends with that. Raises GitFailure where the index is
    locked, or a folder stands at a path.
    """
    # One call for all of them: git writes the index once, or not at all.
    lines = _index_lines(files)
    # Mode 0 takes a path out; the object id counts for nothing, git-update-index(1).
    nothing = b"0" * (2 * hashlib.new(repo.object_format, usedforsecurity=False).digest_size)
    lines += [b"0 %b\t%b" % (nothing, path) for path in removed]
    if lines:
        repo.git("update-index", "-z", "--index-info", stdin=run.joined(lines))


def _index_lines(files: Iterable[TreeEntry | StagedFile]) -> list[bytes]:
    return [b"%06o %b 0\t%b" % (f.mode, check_oid(f.oid).encode(), f.path) for f in files]


def is_partial_commit(repo: Repository) -> bool:
    """Tell whether this is a hook of `git commit PATH`.

    The index is then a temporary one, made for that commit: what a hook
    stages is in the commit, but not in the index that the user goes on with.
    """
    return _PARTIAL.fullmatch(repo.git_path("index").name) is not None


_SIGNATURE = b"DIRC"
_HEAD = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")
"""ctime and mtime as seconds and nanoseconds, dev, ino, mode, uid, gid, size."""
_MTIME, _MODE = 2, 6
_EXTENDED = 0x4000
_STAGES = 0x3000
_PADDING = 8
_PACKED_NAMES = 4
"""The version whose names leave out what they share with the one before."""
_VERSIONS = (2, 3, _PACKED_NAMES)
_SPLIT = b"link"
_WORD = 0xFFFFFFFF
_WRAPPED_SIZE = 0x80000000
_WRAPPING = (2, 43)
"""The first git that writes another size than 0 for a multiple of 4 GiB."""
_NANO = 10**9
_HASHES = {20: "sha1", 32: "sha256"}


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A work-tree file whose content is a blob's: its path, mode as in a tree, and stat."""

    path: bytes
    mode: int
    oid: str
    status: os.stat_result


def stage_files(repo: Repository, files: Iterable[StagedFile]) -> None:
    """Put files into the index, all or none, in a way that git takes them for unchanged.

    A conflict at a path ends with that. Raises EnvironmentFailure where the
    index is locked, and GitFailure where a folder stands at a path.
    """
    chosen = list(files)
    if not chosen:
        return
    index = _index(repo)
    with _locked(index) as lock, _copied(index) as copy:
        lines = run.joined(_index_lines(chosen))
        there = {"GIT_INDEX_FILE": str(copy)}
        repo.git("update-index", "-z", "--index-info", stdin=lines, env=there)
        staged = _Index(copy, chosen)
        missing = staged.note()
        # Of a split index the entry may stand in the shared part, gitformat-index(5).
        if missing and not staged.is_split:
            name = ascii(os.fsdecode(missing[0]))
            raise EnvironmentFailure(f"git takes no file called {name} into the index")
        staged.put(lock, index)


def refresh_stats(repo: Repository, files: Iterable[StagedFile]) -> bool:
    """Note that work-tree files are what the index has; tells whether it could be done.

    An index that is locked, split or can't be written stays as it is: git then
    reads the files once more.
    """
    chosen = list(files)
    if not chosen or os.environ.get("GIT_OPTIONAL_LOCKS") == "0":
        return not chosen
    index = _index(repo)
    try:
        with _locked(index) as lock, contextlib.ExitStack() as closing:
            written = _Index(index, chosen)
            if written.is_split:
                return False
            if written.has_racy():
                copy = closing.enter_context(_copied(index))
                there = {"GIT_INDEX_FILE": str(copy)}
                repo.git(*UNFILTERED, "update-index", "--force-write-index", env=there)
                written = _Index(copy, chosen)
            written.note()
            written.put(lock, index)
    except (EnvironmentFailure, OSError):
        return False
    return True


class _Index:
    """An index file in memory, in which the stat fields of some files' entries are written.

    Raises EnvironmentFailure for a file that is not as git writes it.
    """

    def __init__(self, path: Path, files: Sequence[StagedFile]) -> None:
        status = path.stat()
        self._path = path
        self._mode = stat.S_IMODE(status.st_mode)
        self._seconds = status.st_mtime_ns // _NANO
        self._data = bytearray(path.read_bytes())
        self._files = {file.path: file for file in files}
        self._digest_size = len(files[0].oid) // 2
        try:
            self._entries, end = self._read()
        except (struct.error, IndexError, ValueError) as error:
            raise EnvironmentFailure(f"{path}: not an index that git writes") from error
        self.is_split = self._data[end : end + len(_SPLIT)] == _SPLIT

    def note(self) -> list[bytes]:
        """Write the stat fields of the files that have an entry here with their blob.

        Gives the paths of the others.
        """
        size = self._digest_size
        missing = dict.fromkeys(self._files)
        for start, path in self._entries:
            file = self._files.get(path)
            # An entry of a conflict is no file that was staged.
            if file is None or self._flags(start) & _STAGES:
                continue
            oid = self._data[start + _STAT.size : start + _STAT.size + size].hex()
            mode = _STAT.unpack_from(self._data, start)[_MODE]
            if (mode, oid) == (file.mode, file.oid):
                _STAT.pack_into(self._data, start, *_stat_fields(file))
                missing.pop(path, None)
        return list(missing)

    def has_racy(self) -> bool:
        """Whether git would look again at other files, for this index's age.

        A file that was written in the second in which the index was may hold
        something else than its entry says. An index that is written later
        hides that; git marks such entries when it writes one: racy-git.txt.
        """
        return any(
            _STAT.unpack_from(self._data, start)[_MTIME] >= self._seconds
            for start, path in self._entries
            if path not in self._files
        )

    def put(self, lock: Path, index: Path) -> None:
        """Write it to the lock's file, and give that the index's place."""
        size = self._digest_size
        # With index.skipHash there is none, but zeros.
        if any(self._data[-size:]):
            covered = memoryview(self._data)[:-size]
            digest = hashlib.new(_HASHES[size], covered, usedforsecurity=False).digest()
            covered.release()
            self._data[-size:] = digest
        try:
            lock.write_bytes(self._data)
            lock.chmod(self._mode)
            lock.replace(index)
        except OSError as error:
            raise EnvironmentFailure(f"{index}: can't be written: {error.strerror}") from error

    def _read(self) -> tuple[list[tuple[int, bytes]], int]:
        """Find where entries begin, with their paths, and where the last one ends."""
        data = self._data
        signature, version, count = _HEAD.unpack_from(data)
        if signature != _SIGNATURE or version not in _VERSIONS:
            raise ValueError(version)
        entries = []
        start, path = _HEAD.size, b""
        for _ in range(count):
            name = start + _STAT.size + self._digest_size + 2
            # gitformat-index(5): sixteen more bits of flags, from version 3 on.
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
                # One to eight NULs.
                following = start + (end - start + _PADDING) // _PADDING * _PADDING
            entries.append((start, path))
            start = following
        return entries, start

    def _flags(self, start: int) -> int:
        place = start + _STAT.size + self._digest_size
        return int.from_bytes(self._data[place : place + 2], "big")


def _offset(data: bytearray, place: int) -> tuple[int, int]:
    """Read a number as in a pack's OFS_DELTA; gives it and where it ends."""
    byte = data[place]
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        byte = data[place]
        value = (value + 1) << 7 | byte & 0x7F
    return value, place + 1


def _stat_fields(file: StagedFile) -> Iterator[int]:
    """The ten numbers that git writes for a file, each its lowest 32 bits."""
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
    """Find the index that git names, GIT_INDEX_FILE considered; links are followed, as git does."""
    return Path(os.path.realpath(repo.git_path("index")))


@contextlib.contextmanager
def _locked(index: Path) -> Iterator[Path]:
    """Take git's own lock of an index; gives the file that may take the index's place."""
    lock = index.with_name(index.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise EnvironmentFailure(
            f"{lock} is there: another git process seems to be at work in this repository",
            hint="remove that file if one crashed earlier",
        ) from error
    except OSError as error:
        raise EnvironmentFailure(f"{lock}: can't be made: {error.strerror}") from error
    # By its inode it is known as ours, see below.
    os.close(descriptor)
    mine = lock.stat()
    try:
        yield lock
    finally:
        # Once it took the index's place, the name may be another's lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(lock.stat(), mine):
                lock.unlink()


@contextlib.contextmanager
def _copied(index: Path) -> Iterator[Path]:
    """Copy an index for git to change; where there is none git makes one."""
    with tempfile.TemporaryDirectory(prefix="wtxtgit-index-", dir=index.parent) as folder:
        copy = Path(folder) / index.name
        with contextlib.suppress(FileNotFoundError):
            # With its time: git looks again at files that are as young as their index.
            shutil.copy2(index, copy)
        yield copy


def rewrite_files(repo: Repository, paths: Iterable[bytes]) -> None:
    """Let git write the files of these paths again from the index, through the filter.

    The caller has made sure that nothing is lost. Git writes only what it
    takes for changed, so their times are made to differ first.
    """
    chosen = list(paths)
    for path in chosen:
        # No file was last written a second into the epoch: it can't match the index.
        os.utime(repo.file(path), (1, 1), follow_symlinks=False)
    checkout(repo, chosen)


def checkout(repo: Repository, paths: Iterable[bytes]) -> None:
    """Let git write the files of these paths from the index, whatever stands there."""
    repo.git("checkout-index", "--index", "--force", "-z", "--stdin", stdin=run.joined(paths))


def add(repo: Repository, paths: Iterable[bytes], *options: str) -> None:
    """Have git add paths, from the top level, each as it is; raises GitFailure.

    `--renormalize` stages tracked files again through the filter. `--refresh`
    notes the stat fields of files that have what is staged; until then git
    reads them again, through the filter, to see that they are unchanged.
    """
    from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
    chosen = run.joined(paths)
    # Without any path git would add nothing, and say so.
    if chosen:
        repo.git("--literal-pathspecs", "add", *options, *from_stdin, stdin=chosen)
