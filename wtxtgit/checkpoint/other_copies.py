"""Where bytes that a damaged text has lost may still be: other texts and files.

Every chunk and array of a text is named by its SHA-256, so whatever else is at hand
can give it: an older generation in git's history, another file of the repository,
what stands in the work tree, a file, commit or URL that the user names. Bytes are
hashed before they are given.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from wtxtgit.checkpoint import open as opener
from wtxtgit.errors import InputError, WtxtgitError
from wtxtgit.filter import status
from wtxtgit.filter.clean import text_of
from wtxtgit.git import index
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.array import Rows
from wtxtgit.text import armor, grammar
from wtxtgit.text.delta.index import MAGIC as DELTA_MAGIC
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.recovery.chunks import decoded
from wtxtgit.text.recovery.reading import FoundChunk, read

_MOST = 1000
"""Blobs of a repository that are looked through."""

_LOGGED = re.compile(
    rb"\x01([0-9a-f]{40,64})|:[0-7]{6} [0-7]{6} [0-9a-f]{40,64} ([0-9a-f]{40,64}) [AMT]\0"
)

Part = Callable[[], "bytes | None"]
_Told = tuple[grammar.ArrayLine, "Rows | None"]


@dataclass(frozen=True, slots=True)
class Place:
    """Something that may hold lost bytes: its name, and how it is opened.

    One that the user named has to be there.
    """

    name: str
    open: Callable[[], ByteView]
    is_named: bool = False


class FoundCopies:
    """Bytes by their SHA-256, from places that are opened one by one, as far as need be."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._places = iter(places)
        self._parts: dict[str, tuple[Part, str]] = {}
        self._arrays: dict[str, tuple[grammar.ArrayLine, Rows | None, Part, str]] = {}

    def array(self, name: str) -> tuple[grammar.ArrayLine, Rows | None, bytes, str] | None:
        """An array called so that is whole, with what is said of it, and the place."""
        while name not in self._arrays and self._look_further():
            pass
        claim, rows, part, place = self._arrays.get(name, (None, None, None, ""))
        raw = None if part is None else part()
        if claim is None or raw is None or sha256(raw).digest() != claim.sha256:
            return None
        return claim, rows, raw, place

    def bytes_of(self, digest: str, nbytes: int) -> tuple[bytes, str] | None:
        """The bytes with a SHA-256, in hex, and the place that they are from."""
        while True:
            known = self._parts.pop(digest, None)
            if known is not None:
                part, name = known
                raw = part()
                if raw is not None and len(raw) == nbytes and _hash(raw) == digest:
                    self._parts[digest] = known
                    return raw, name
            elif not self._look_further():
                return None

    def _look_further(self) -> bool:
        """Take in one more place; tells whether there was one."""
        place = next(self._places, None)
        if place is None:
            return False
        try:
            data = place.open()
            for array, digest, part in _parts_of(data):
                self._parts.setdefault(digest, (part, place.name))
                if array is not None:
                    claim, rows = array
                    self._arrays.setdefault(claim.name, (claim, rows, part, place.name))
        except (WtxtgitError, OSError):
            # What can't be read has nothing to give; what is asked for may be elsewhere.
            if place.is_named:
                raise
        return True


def _hash(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def _parts_of(data: ByteView) -> Iterator[tuple[_Told | None, str, Part]]:
    """SHA-256 and bytes of each chunk and array that a text, a delta or a file has.

    Of an array what is said of it, too.
    """
    if any(data[: len(magic)] == magic for magic in (MAGIC, DELTA_MAGIC)):
        text = mapped(data)
        for found in read(text).arrays:
            for chunk in found.chunks:
                yield None, chunk.sha256, partial(_decoded, text, [chunk])
            parsed = None if found.line is None else grammar.parse_array(found.line + b"\n", 0)
            if parsed is not None:
                rows = grammar.parse_rows((found.rows_line or b"") + b"\n", 0)
                told = parsed[0], None if rows is None else rows[0]
                yield told, parsed[0].sha256.hex(), partial(_decoded, text, found.chunks)
        return
    cleaned = text_of(data)
    if cleaned.writer is None:
        return
    for hashed in cleaned.writer.hashed():
        raw, size = hashed.source.data, armor.chunk_size(hashed.source.rows)
        told = hashed.line, hashed.source.rows
        yield told, hashed.line.sha256.hex(), partial(_slice, raw, 0, len(raw))
        for ix, digest in enumerate(hashed.sha256):
            yield None, digest.hex(), partial(_slice, raw, ix * size, (ix + 1) * size)


def _slice(raw: ByteView, start: int, end: int) -> bytes:
    return bytes(raw[start:end])


def _decoded(text: memoryview, chunks: Iterable[FoundChunk]) -> bytes | None:
    """The bytes of chunks whose lines are as a writer writes them."""
    whole = bytearray()
    for chunk in chunks:
        raw = None if chunk.size is None else decoded(text, chunk, chunk.size)
        if raw is None:
            return None
        whole += raw
    return bytes(whole)


def places(target: str, given: Iterable[str], threads: int | None = None) -> Iterator[Place]:
    """Where to look for what `target` has lost: what the user named, then what is at hand.

    At hand are, of the repository around, the file's own history, its index and work
    tree, and then all other files that it keeps as text. Raises UsageError for what was
    named and is no place.
    """
    for one in given:
        yield Place(one, partial(_open_given, one, target, threads), True)
    repo = _repository(target)
    if repo is None:
        return
    path = path_in(target, repo)
    seen: set[str] = set()
    if path is not None:
        yield from _blobs(repo, _history(repo, path), seen, threads)
        if not opener.is_file(target):
            file = repo.file(path)
            if file.is_file():
                yield Place(os.fsdecode(path), partial(opener.read, str(file)))
    entries = {entry.path: entry.oid for entry in index.entries(repo) if entry.is_file}
    texts = status.filtered_alone(repo, entries)
    yield from _blobs(repo, ((os.fsdecode(one), entries[one]) for one in texts), seen, threads)


def _open_given(place: str, target: str, threads: int | None) -> ByteView:
    """Open a file, a URL or REV:PATH; a bare revision is that of the same path."""
    if opener.is_file(place) and not Path(place).exists():
        repo = _repository(target)
        path = None if repo is None else path_in(target, repo)
        if path is None:
            raise InputError(f"{shown(place)}: there is no such file")
        place = f"{place}:{os.fsdecode(path)}"
    return opener.read(place, threads=threads)


def _repository(target: str) -> Repository | None:
    if opener.is_url(target):
        return None
    return Repository.find(Path(target).parent if opener.is_file(target) else None)


def path_in(target: str, repo: Repository) -> bytes | None:
    """The path of a target from the top level of its repository."""
    if opener.is_blob(target):
        path = target.partition(":")[2]
        if path.startswith(("./", "../")):
            path = posixpath.normpath(os.fsdecode(repo.prefix) + path)
        return os.fsencode(path)
    if opener.is_url(target) or repo.is_bare:
        return None
    real = Path(target).parent.resolve() / Path(target).name
    top = repo.worktree.resolve()
    return os.fsencode(real.relative_to(top)) if real.is_relative_to(top) else None


def _history(repo: Repository, path: bytes) -> Iterator[tuple[str, str]]:
    """Names and object ids of what stood at a path in any commit, newest first."""
    log = repo.git(
        *("log", "--all", "--full-history", "--no-renames", "--raw", "-z", "-m", "--no-abbrev"),
        *("--format=%x01%H", f"--max-count={_MOST}", "--", f":(top,literal){os.fsdecode(path)}"),
    )
    commit = ""
    for commit_oid, blob_oid in _LOGGED.findall(log):
        if commit_oid:
            commit = commit_oid[:12].decode("ascii")
        else:
            yield f"{commit}:{os.fsdecode(path)}", blob_oid.decode("ascii")


def _blobs(
    repo: Repository, named: Iterable[tuple[str, str]], seen: set[str], threads: int | None
) -> Iterator[Place]:
    for name, oid in named:
        if oid not in seen:
            seen.add(oid)
            yield Place(name, partial(opener.blob, repo, oid, threads))
