"""Reading objects by id, mostly blobs: many from one running `git cat-file`.

Git inflates the objects, and fetches missing ones in a partial clone. Objects that `git replace`
puts in the place of others are not read. Git does not hash what it returns, so that is done here:
no object is returned whole unless its hash is its id.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Self

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import Buffer

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ALGORITHMS = {40: "sha1", 64: "sha256"}
"""The hash of object ids, by their number of hexadecimal digits."""
_BLOCK = 1024 * 1024
_MOST_AT_ONCE = 64
"""Most objects that are asked for at once: questions and answers fit into pipes."""
_STREAMED = ("-c", "core.bigFileThreshold=8m")
"""Blobs over this size, unless stored as deltas, git inflates as it goes: it would hold them whole
in memory up to 512 MiB.
"""


class TooLarge(EnvironmentFailure):
    """An object has `size` bytes, more than its reader accepts."""

    def __init__(self, kind: str, oid: str, size: int, most: int) -> None:
        super().__init__(f"{kind} {oid} has {size} bytes, over the limit of {most}")
        self.size = size


class CatFiles:
    """The running `git cat-file` processes of a repository, shared by its readers.

    A process that is lent out is used by one borrower at a time. Threads may share this object; a
    forked process starts its own, since two processes would take each other's answers.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._lock = Lock()
        self._process = os.getpid()
        self._readers = 0
        self._idle: dict[str, list[run.GitStream]] = {}
        self._inherited: list[object] = []

    @classmethod
    def of(cls, repo: Repository) -> CatFiles:
        """Return the shared processes of a repository, in this operating system process."""
        shared = repo.cat_files
        if not isinstance(shared, CatFiles) or shared._process != os.getpid():
            fresh = cls(repo)
            # Kept alive: closing it here would wait for children of another process.
            fresh._inherited.append(shared)
            shared = repo.cat_files = fresh
        return shared

    def enter(self) -> None:
        with self._lock:
            self._readers += 1

    def leave(self) -> None:
        """Unregister a reader; when the last one leaves, all processes end."""
        with self._lock:
            self._readers -= 1
            streams = [] if self._readers else [s for some in self._idle.values() for s in some]
            # Outside of the lock: waiting for a process to end may take a while.
            if not self._readers:
                self._idle = {}
        for stream in streams:
            stream.__exit__()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the processes for readers that come one after the other."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    @contextlib.contextmanager
    def lend(self, how: str) -> Iterator[run.GitStream]:
        """Lend an idle process; `how` is `--batch` or `--batch-check`.

        After an exception the process is ended, because unread content may still be in its pipe.
        """
        with self._lock:
            idle = self._idle.get(how)
            stream = idle.pop() if idle else None
        # Outside of the lock: other threads need not wait while a process starts.
        if stream is None:
            stream = self._repo.stream(*_STREAMED, "cat-file", how, env=run.TRUE_OBJECTS)
        is_kept = False
        try:
            yield stream
            with self._lock:
                is_kept = self._readers > 0
                if is_kept:
                    self._idle.setdefault(how, []).append(stream)
        finally:
            if not is_kept:
                stream.__exit__()


class ObjectReader:
    """Reads objects of one kind (`blob`, `commit`); a context manager.

    Processes start when first needed. Every method raises EnvironmentFailure if the object does not
    exist or is of another kind; methods that return content also raise it if the hash is not the
    id. The reader stays usable after that.
    """

    def __init__(self, repo: Repository, kind: str) -> None:
        self.repo = repo
        self._kind = kind
        self._shared: CatFiles | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave()

    def size(self, oid: str) -> int:
        """Return the size in bytes that git reports for an object, without reading its content."""
        with self._ask("--batch-check", oid) as (_, size):
            return size

    def read(self, oid: str, most: int) -> bytes:
        """Read an object; raises TooLarge if it has more than `most` bytes."""
        with self._content(oid) as (stream, size):
            if size > most:
                raise TooLarge(self._kind, oid, size, most)
            content = stream.stdout.read(size)
            if len(content) != size:
                raise self._cut_off(oid, size)
            return b"".join(hashed((content,), self._kind, oid, size))

    def chunks(self, oid: str) -> Iterator[bytes]:
        """Yield an object's bytes in blocks.

        The last block is only yielded if the hash of all of them is the id. If the caller stops
        early the rest is discarded, and what was yielded so far is unverified.
        """
        with self._content(oid) as (stream, size):
            yield from hashed(self._blocks(stream, oid, size), self._kind, oid, size)

    def _open(self) -> CatFiles:
        if self._shared is None or self._shared is not CatFiles.of(self.repo):
            self._shared = CatFiles.of(self.repo)
            self._shared.enter()
        return self._shared

    def _blocks(self, stream: run.GitStream, oid: str, size: int) -> Iterator[bytes]:
        left = size
        while left:
            block = stream.stdout.read(min(left, _BLOCK))
            if not block:
                raise self._cut_off(oid, size)
            left -= len(block)
            yield block

    @contextlib.contextmanager
    def _content(self, oid: str) -> Iterator[tuple[run.GitStream, int]]:
        """Lend a process whose next output is an object's content.

        Also yields the size in bytes.
        """
        with self._ask("--batch", oid) as (stream, size):
            yield stream, size
            if stream.stdout.read(1) != b"\n":
                raise self._cut_off(oid, size)

    @contextlib.contextmanager
    def _ask(self, how: str, oid: str) -> Iterator[tuple[run.GitStream, int]]:
        """Lend a process that was asked about an object; also yields the size in its answer."""
        check_oid(oid)
        with self._open().lend(how) as stream:
            stream.ask(oid.encode("ascii") + b"\n")
            # A process that died gives an empty line here.
            answered_oid, size = _parse_answer(stream.stdout.readline(), self._kind, oid)
            # Git may have understood the question differently: only an answer with this id counts.
            if answered_oid != oid:
                raise EnvironmentFailure(
                    f"git returned {self._kind} {answered_oid} when asked for {oid}"
                )
            yield stream, size

    def _cut_off(self, oid: str, size: int) -> EnvironmentFailure:
        return EnvironmentFailure(f"git did not return the {size} bytes of {self._kind} {oid}")


class BlobReader(ObjectReader):
    """Reads blobs by id; see ObjectReader."""

    def __init__(self, repo: Repository) -> None:
        super().__init__(repo, "blob")


def sizes(repo: Repository, oids: Iterable[str]) -> dict[str, int]:
    """Return the sizes of many blobs; raises EnvironmentFailure if one does not exist."""
    return dict(_parse_answer(line, "blob", oid) for oid, line in _size_answers(repo, oids))


def known_sizes(repo: Repository, oids: Iterable[str]) -> dict[str, int]:
    """Return the sizes of those of the blobs that exist."""
    sizes_by_oid = {}
    for oid, line in _size_answers(repo, oids):
        with contextlib.suppress(EnvironmentFailure):
            sizes_by_oid[oid] = _parse_answer(line, "blob", oid)[1]
    return sizes_by_oid


def _size_answers(repo: Repository, oids: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return git's `--batch-check` answer for each object; repeated ids are asked once."""
    ordered = list(dict.fromkeys(map(check_oid, oids)))
    questions = "".join(f"{oid}\n" for oid in ordered).encode("ascii")
    # A long list is sent to a process of its own, which reads all questions first: writing more
    # than a pipe holds to a shared process would block, with its answers unread.
    if len(ordered) <= _MOST_AT_ONCE:
        with CatFiles.of(repo).lend("--batch-check") as stream:
            stream.ask(questions)
            answers = [line for _ in ordered if (line := stream.stdout.readline())]
    else:
        command = ("cat-file", "--batch-check")
        answers = repo.git(*command, stdin=questions, env=run.TRUE_OBJECTS).splitlines()
    if len(answers) != len(ordered):
        raise EnvironmentFailure(f"git returned {len(answers)} of {len(ordered)} sizes")
    return list(zip(ordered, answers, strict=True))


def blob_id(pieces: Iterable[Buffer], size: int, *, like: str) -> str:
    """Return the id of a blob of `size` bytes; `like` is any id of the repository (SHA-1 or
    SHA-256).
    """
    digest = new_hash("blob", size, like=like)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def new_hash(kind: str, size: int, *, like: str) -> hashlib._Hash:
    """Start the hash of an object of `size` bytes, with the algorithm that made the id `like`.

    Git hashes `KIND SIZE`, NUL and the content: updated with the content it becomes the id.
    """
    begin = f"{kind} {size}\0".encode("ascii")
    return hashlib.new(_ALGORITHMS[len(like)], begin, usedforsecurity=False)


def hashed(pieces: Iterable[bytes], kind: str, oid: str, size: int) -> Iterator[bytes]:
    """Yield an object's pieces, the last one only if the hash of all of them is the id.

    `size` is the size of the whole object. Raises EnvironmentFailure if the hash differs.
    """
    digest = new_hash(kind, size, like=oid)
    last: bytes | None = None
    for piece in pieces:
        digest.update(piece)
        if last is not None:
            yield last
        last = piece
    if digest.hexdigest() != oid:
        raise EnvironmentFailure(
            f"{kind} {oid}: the bytes that git returned have another hash", hint="git fsck --full"
        )
    if last is not None:
        yield last


def check_oid(oid: str) -> str:
    """Return `oid` unchanged; raises EnvironmentFailure unless it is a full object id."""
    # Anything else could be the name of a revision, or contain a second line.
    if not _OID.fullmatch(oid):
        raise EnvironmentFailure(f"{oid!a} is not an object id")
    return oid


def _parse_answer(line: bytes, kind: str, oid: str) -> tuple[str, int]:
    """Parse `OID KIND SIZE` and return id and size; raises EnvironmentFailure for another kind."""
    words = line.split()
    if len(words) != 3 or words[1] != kind.encode("ascii") or not words[2].isdigit():
        raise EnvironmentFailure(f"git has no {kind} {oid}")
    return words[0].decode("ascii", "backslashreplace"), int(words[2])
