"""Finding objects of a repository, and reading blobs without git.

Blobs stored whole are inflated here, on all cores if they were written in pieces. Git is asked for
deltas, and for objects that are missing here (in a partial clone).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Container, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.blobs import BlobReader, check_oid, hashed, sizes
from wtxtgit.git.index import entries
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.files import PACKS, PackIndex, Places
from wtxtgit.git.store.streams import Damaged, Error, codec, inflated
from wtxtgit.git.work_tree import HEAD_SIZE
from wtxtgit.io.progress import Progress, expect, finish_file

_BLOB = 3
_HEAD_DEFLATED = 512
"""Deflated bytes that contain an object's header, which follows the codes of a first block."""
_HEAD_MOST = 32
"""Most bytes of an entry's type and size in a pack, or of the header of a loose blob."""
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_LOOSE_HEAD = re.compile(rb"blob (0|[1-9][0-9]{0,18})\0")


@dataclass(frozen=True, slots=True)
class Location:
    """A file, and the offset of an object in it; a loose object has a file of its own."""

    path: Path
    offset: int
    is_loose: bool


@dataclass(frozen=True, slots=True)
class _BlobStream:
    """Where a blob's zlib stream begins; the first `lead` inflated bytes precede the blob's `size`.

    `is_all`: the file of a loose object contains nothing else.
    """

    start: int
    lead: int
    size: int
    is_all: bool


class ObjectStore:
    """Reads the objects that a repository has when first asked; a context manager.

    Threads may share it. `places` are other folders than the repository's own.
    """

    def __init__(self, repo: Repository, places: Places | None = None) -> None:
        self._repo = repo
        self.places = Places.of(repo) if places is None else places
        self._idle: list[BlobReader] = []

    @classmethod
    def ahead_of_git(cls, repo: Repository) -> Self | None:
        """Return the store in which we may write an object before git looks for it there.

        Returns None if git has to write it, because the user wants objects to be synced at once.
        """
        if repo.config.get("core.fsync") or repo.config.is_true("core.fsyncObjectFiles"):
            return None
        return cls(repo)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._idle:
            self._idle.pop().__exit__()

    def find(self, oid: str) -> Location | None:
        """Find an object in this repository and those it borrows from; None if it is not there."""
        raw = bytes.fromhex(check_oid(oid))
        # Packs first: they have most objects of a history, and looking there costs no system call.
        for index in self._indexes:
            offset = index.offset(raw)
            # A pack may have been removed, and its index left.
            if offset is not None and index.pack.is_file():
                return Location(index.pack, offset, is_loose=False)
        for folder in self.places.all:
            path = folder / oid[:2] / oid[2:]
            if path.is_file():
                return Location(path, 0, is_loose=True)
        return None

    def keep(self, oid: str) -> bool:
        """Tell whether an object exists, and protect it from the next garbage collection.

        Its file's time is updated, as git does for an object that it need not write: `git gc` may
        be about to remove old objects that nothing refers to.
        """
        location = self.find(oid)
        if location is None:
            return False
        try:
            os.utime(location.path)
        except OSError:
            return False
        return True

    def blob(self, oid: str, threads: int = 1) -> Generator[bytes, None, None]:
        """Yield a blob's bytes in pieces; raises EnvironmentFailure, perhaps after some pieces.

        The last piece comes only if the hash of all of them is the blob's id. Objects that `git
        replace` puts in the place of others are not used.
        """
        with self._opened(oid) as opened:
            if opened is None:
                with self._git_reader() as git:
                    yield from git.chunks(oid)
                return
            descriptor, stream = opened
            # Closed before the file is: threads may still be inflating pieces that nobody will
            # take.
            with contextlib.closing(_content(descriptor, stream, threads)) as pieces:
                try:
                    yield from hashed(pieces, "blob", oid, stream.size)
                except (Damaged, OSError) as error:
                    raise EnvironmentFailure(
                        f"blob {oid} can't be read: {error}", hint="git fsck --full"
                    ) from error

    def size(self, oid: str) -> int:
        """Return the size in bytes that a blob's header states; raises EnvironmentFailure."""
        with self._opened(oid) as opened:
            if opened is not None:
                return opened[1].size
        with self._git_reader() as git:
            return git.size(oid)

    @contextlib.contextmanager
    def _opened(self, oid: str) -> Iterator[tuple[int, _BlobStream] | None]:
        """Open the file in which a blob is stored whole.

        Yields None if git has to be asked for it.
        """
        location = self.find(oid)
        with contextlib.ExitStack() as closing:
            stream = None
            if location is not None:
                # A pack may vanish at any time (gc); git then knows where the object is.
                with contextlib.suppress(OSError):
                    descriptor = os.open(location.path, _READING)
                    closing.callback(os.close, descriptor)
                    stream = _stream(descriptor, location)
            yield None if stream is None else (descriptor, stream)

    @contextlib.contextmanager
    def _git_reader(self) -> Iterator[BlobReader]:
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = BlobReader(self._repo)
        try:
            yield reader
        finally:
            self._idle.append(reader)

    @cached_property
    def _indexes(self) -> list[PackIndex]:
        """The indexes of all packs, newest first."""
        files = []
        for folder in self.places.all:
            for path in (folder / PACKS).glob("pack-*.idx"):
                with contextlib.suppress(OSError):
                    files.append((path.stat().st_mtime_ns, path))
        indexes = []
        for _, path in sorted(files, reverse=True):
            # The pack has vanished, or its index is empty: its objects are found elsewhere.
            with contextlib.suppress(OSError, ValueError):
                indexes.append(PackIndex(path, self.places.digest_size))
        return indexes


def missing(repo: Repository, oids: Iterable[str]) -> set[str]:
    """Return those objects that the repository does not have now."""
    with ObjectStore(repo) as store:
        return {oid for oid in oids if store.find(oid) is None}


def without_blob(
    repo: Repository, pathspecs: Sequence[str] = (), but: Container[bytes] = ()
) -> list[bytes]:
    """List files of the index whose blobs are missing, other than `but`; for `pathspecs` see
    `entries`.
    """
    listed = [
        entry
        for entry in entries(repo, pathspecs)
        if entry.is_file and not (entry.stage or entry.skipped or entry.intended)
    ]
    gone = missing(repo, {entry.oid for entry in listed})
    return [entry.path for entry in listed if entry.oid in gone and entry.path not in but]


def _content(descriptor: int, stream: _BlobStream, threads: int) -> Generator[bytes, None, None]:
    lead = stream.lead
    nbytes = lead + stream.size
    # Git refuses a loose object that is followed by more data.
    for data in inflated(descriptor, stream.start, nbytes, threads, is_last=stream.is_all):
        yield data[lead:] if lead else data
        lead = max(0, lead - len(data))


def _stream(descriptor: int, location: Location) -> _BlobStream | None:
    """Find the zlib stream of a blob that is stored whole; None for a delta or anything odd."""
    head = os.pread(descriptor, _HEAD_DEFLATED, location.offset)
    if location.is_loose:
        with contextlib.suppress(Error):
            begin = codec.decompressobj().decompress(head, _HEAD_MOST)
            if (matched := _LOOSE_HEAD.match(begin)) is not None:
                return _BlobStream(0, matched.end(), int(matched[1]), is_all=True)
        return None
    # gitformat-pack(5): three bits of type and four of size, then seven bits of size per byte.
    kind, size, shift = 0, 0, 4
    for number, byte in enumerate(head[:_HEAD_MOST]):
        if number == 0:
            kind, size = byte >> 4 & 7, byte & 0xF
        else:
            size |= (byte & 0x7F) << shift
            shift += 7
        if not byte & 0x80:
            start = location.offset + number + 1
            return _BlobStream(start, 0, size, is_all=False) if kind == _BLOB else None
    return None


_SMALL_BLOB = 1024 * 1024
"""Blobs up to this size are read completely by the running `cat-file --batch`."""


@dataclass(frozen=True, slots=True)
class BlobHead:
    """A blob's size and its first HEAD_SIZE bytes."""

    size: int
    head: bytes


def blob_heads(
    repo: Repository, oids: Iterable[str], progress: Progress | None = None
) -> dict[str, BlobHead]:
    """Read sizes and first bytes of blobs, to show what they are; `progress` counts them as files.

    Small ones come from one running `cat-file --batch`; of large ones only the beginning is
    inflated, if they are stored whole. No decision may rest on that: their hash is not checked.
    """
    size_of = sizes(repo, oids)
    expect(progress, None, len(size_of))
    heads = {}
    with BlobReader(repo) as blobs:
        for oid, size in size_of.items():
            if size <= _SMALL_BLOB:
                heads[oid] = BlobHead(size, blobs.read(oid, size)[:HEAD_SIZE])
                finish_file(progress)
    large = {oid: size for oid, size in size_of.items() if oid not in heads}
    if large:
        # Git inflates a packed blob to its end, even if only a few bytes are read.
        with ObjectStore(repo) as store:
            for oid, size in large.items():
                heads[oid] = BlobHead(size, _first(store.blob(oid), HEAD_SIZE))
                finish_file(progress)
    return heads


def _first(pieces: Iterable[bytes], count: int) -> bytes:
    head = b""
    for piece in pieces:
        head += piece[:count]
        if len(head) >= count:
            break
    return head[:count]
