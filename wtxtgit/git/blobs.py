"""Objects by their ids, blobs above all: many from one running `git cat-file`.

A partial clone fetches what it misses, and git inflates as it goes. Objects
are the true ones: what `git replace` puts in their place is not read. Git
inflates them and does not hash what it gives, so that is done here: no object
is given whole whose hash is not its id.
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
"""The hash that makes an object's id, by its hexadecimal digits."""
_BLOCK = 1024 * 1024
_FEW = 64
"""Objects that are asked for at once: a pipe holds the questions and the answers."""


class TooLarge(EnvironmentFailure):
    """An object of `size` bytes, which are more than its reader takes."""

    def __init__(self, kind: str, oid: str, size: int, most: int) -> None:
        super().__init__(f"{kind} {oid} has {size} bytes, over the limit of {most}")
        self.size = size


class CatFiles:
    """Running `git cat-file`s of a repository, which its readers share while there are any.

    One that is lent out belongs to who has it. Threads may share this; a process
    that was forked starts its own, since answers go to whoever reads first.
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
        """Those of a repository, which are its own in every process."""
        shared = repo.cat_files
        if not isinstance(shared, CatFiles) or shared._process != os.getpid():
            fresh = cls(repo)
            # Kept: what closes them would wait for another process's children.
            fresh._inherited.append(shared)
            shared = repo.cat_files = fresh
        return shared

    def enter(self) -> None:
        with self._lock:
            self._readers += 1

    def leave(self) -> None:
        """One reader less; with the last one all processes end."""
        with self._lock:
            self._readers -= 1
            ended = [] if self._readers else [s for some in self._idle.values() for s in some]
            # Ended outside of the lock: waiting for a process may take a while.
            if not self._readers:
                self._idle = {}
        for stream in ended:
            stream.__exit__()

    @contextlib.contextmanager
    def lent(self, how: str) -> Iterator[run.GitStream]:
        """Lend out a process, `--batch` or `--batch-check`, that has nothing more to say.

        After an exception it ends: then it may still have content on its way.
        """
        with self._lock:
            idle = self._idle.get(how)
            stream = idle.pop() if idle else None
        # Outside of the lock: other threads need not wait until a process has started.
        if stream is None:
            stream = self._repo.stream("cat-file", how, env=run.TRUE_OBJECTS)
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
    """Objects of one kind (`blob`, `commit`), one after the other; a context manager.

    Processes start when first needed. Every method raises EnvironmentFailure
    for an object that is not there or of another kind, and those that give
    bytes for bytes of another hash; reading goes on after that.
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
        """Give the size in bytes that an object says it has; its content is not read."""
        with self._asked("--batch-check", oid) as (_, size):
            return size

    def read(self, oid: str, most: int) -> bytes:
        """Read an object; raises TooLarge, too, where it has over `most` bytes."""
        with self._content(oid) as (stream, size):
            if size > most:
                raise TooLarge(self._kind, oid, size, most)
            content = stream.stdout.read(size)
            if len(content) != size:
                raise self._cut_off(oid, size)
            return b"".join(hashed((content,), self._kind, oid, size))

    def chunks(self, oid: str) -> Iterator[bytes]:
        """Give an object's bytes block by block, the last one once the hash of all is its id.

        The rest is dropped where the reading ends early: what was taken then
        is not known to be the object's.
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
        """Lend out a process that is about to give an object of this size."""
        with self._asked("--batch", oid) as (stream, size):
            yield stream, size
            if stream.stdout.read(1) != b"\n":
                raise self._cut_off(oid, size)

    @contextlib.contextmanager
    def _asked(self, how: str, oid: str) -> Iterator[tuple[run.GitStream, int]]:
        """Lend out a process that was asked about an object, and the size that it told."""
        check_oid(oid)
        with self._open().lent(how) as stream:
            stream.ask(oid.encode("ascii") + b"\n")
            # A process that died gives an empty line.
            told_oid, size = _parse_answer(stream.stdout.readline(), self._kind, oid)
            # Whatever git makes of the question: only the object that was asked for counts.
            if told_oid != oid:
                raise EnvironmentFailure(
                    f"git returned {self._kind} {told_oid} when asked for {oid}"
                )
            yield stream, size

    def _cut_off(self, oid: str, size: int) -> EnvironmentFailure:
        return EnvironmentFailure(f"git did not return the {size} bytes of {self._kind} {oid}")


class BlobReader(ObjectReader):
    """Blobs, one after the other, as an ObjectReader gives them."""

    def __init__(self, repo: Repository) -> None:
        super().__init__(repo, "blob")


def sizes(repo: Repository, oids: Iterable[str]) -> dict[str, int]:
    """Ask for the sizes of many blobs; raises EnvironmentFailure for one that is not there."""
    return dict(_parse_answer(line, "blob", oid) for oid, line in _size_answers(repo, oids))


def known_sizes(repo: Repository, oids: Iterable[str]) -> dict[str, int]:
    """Ask for the sizes of blobs, as far as they are there."""
    there = {}
    for oid, line in _size_answers(repo, oids):
        with contextlib.suppress(EnvironmentFailure):
            there[oid] = _parse_answer(line, "blob", oid)[1]
    return there


def _size_answers(repo: Repository, oids: Iterable[str]) -> list[tuple[str, bytes]]:
    """What git says of each object, asked once."""
    wanted = list(dict.fromkeys(map(check_oid, oids)))
    asked = "".join(f"{oid}\n" for oid in wanted).encode("ascii")
    # More questions than a pipe holds would wait for us to read answers: git reads them all first.
    if len(wanted) <= _FEW:
        with CatFiles.of(repo).lent("--batch-check") as stream:
            stream.ask(asked)
            answers = [line for _ in wanted if (line := stream.stdout.readline())]
    else:
        how = ("cat-file", "--batch-check")
        answers = repo.git(*how, stdin=asked, env=run.TRUE_OBJECTS).splitlines()
    if len(answers) != len(wanted):
        raise EnvironmentFailure(f"git returned {len(answers)} of {len(wanted)} sizes")
    return list(zip(wanted, answers, strict=True))


def blob_id(pieces: Iterable[Buffer], size: int, *, like: str) -> str:
    """The id of a blob of `size` bytes, in a repository whose ids are as long as `like`."""
    digest = new_hash("blob", size, like=like)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def new_hash(kind: str, size: int, *, like: str) -> hashlib._Hash:
    """Begin the hash of an object of `size` bytes; its id is as long as `like`.

    With the object's bytes it becomes the id: git hashes `KIND SIZE`, NUL, and them.
    """
    begin = f"{kind} {size}\0".encode("ascii")
    return hashlib.new(_ALGORITHMS[len(like)], begin, usedforsecurity=False)


def hashed(pieces: Iterable[bytes], kind: str, oid: str, size: int) -> Iterator[bytes]:
    """Give an object's pieces on, the last one once the hash of all is its id.

    `size` is that of all. Raises EnvironmentFailure where the hash is another.
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
    """Give `oid` back; raises EnvironmentFailure unless it is a whole object id."""
    # Anything else may be a revision's name, or more than one line.
    if not _OID.fullmatch(oid):
        raise EnvironmentFailure(f"{oid!a} is not an object id")
    return oid


def _parse_answer(line: bytes, kind: str, asked: str) -> tuple[str, int]:
    """Read `OID KIND SIZE`: the id and the size of an object of the kind."""
    words = line.split()
    if len(words) != 3 or words[1] != kind.encode("ascii") or not words[2].isdigit():
        raise EnvironmentFailure(f"git has no {kind} {asked}")
    return words[0].decode("ascii", "backslashreplace"), int(words[2])
