"""Other places where the lost bytes of a damaged text may be: other texts and files.

A text names every chunk and array by its SHA-256, so anything at hand may provide them: the
repository's store, an older generation in git's history, another file of the repository, the work
tree, or a file, commit or URL that the user names. Bytes are hashed before they are used.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path

from wtxtgit.checkpoint import open as opener
from wtxtgit.errors import (
    EnvironmentFailure,
    InputError,
    PayloadError,
    TextError,
    WtxtgitError,
)
from wtxtgit.filter import status
from wtxtgit.filter.clean import text_of
from wtxtgit.git import history, index
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, hashed, mapped, pieces
from wtxtgit.model.array import FindPayload, PayloadSource, Rows
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.git_urls import branches_of, repository_url
from wtxtgit.remotes.urls import shown_url
from wtxtgit.store.place import store_of
from wtxtgit.text import grammar
from wtxtgit.text.recovery.chunks import FoundElsewhere
from wtxtgit.text.recovery.pieces import view_of, view_of_all
from wtxtgit.text.recovery.reading import read
from wtxtgit.text.verify import verify

STORE = "the store"
_TEXT_ENDINGS = (b".wtxt", b".wtxtdelta")
"""Endings of files that are texts, or deltas, without a filter."""
_MOST = 1000
"""Most blobs of a repository that are searched."""

_LOGGED = re.compile(
    rb"\x01([0-9a-f]{40,64})|:[0-7]{6} [0-7]{6} [0-9a-f]{40,64} ([0-9a-f]{40,64}) [AMT]\0"
)

_HASH = re.compile(rb"=([0-9a-f]{64})[ \n]")
_MOST_LISTED = 5
"""Most versions of a text that are listed."""
_STASH = "refs/stash"

_MOST_VERSIONS = 16
"""Most different contents of one array that are kept as candidates."""

_Told = tuple[grammar.ArrayLine, "Rows | None"]


@dataclass(frozen=True, slots=True)
class Place:
    """Something that may hold lost bytes: its name, and how it is opened.

    If the user named it, it has to exist.
    """

    name: str
    open: Callable[[], ByteView]
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class OtherVersion(JsonObject):
    """A text that no branch has: its blob, how many hashes it has, and how many of them are also in
    the text that is recovered.
    """

    blob: str
    same: int
    hashes: int


class FoundCopies:
    """Finds bytes by their SHA-256, in places that are opened one by one as needed.

    `places` yields all of them each time it is called. Only what is wanted is kept of them, as
    views, because there may be many places. `store` returns one that has chunks by name.
    """

    def __init__(
        self, places: Callable[[], Iterable[Place]], store: FindPayload = lambda: None
    ) -> None:
        self._all_places = places
        self._store = cache(store)
        self._places: Iterator[Place] = iter(())
        self._digests: set[str] = set()
        self._names: set[str] = set()
        self._parts: dict[str, list[tuple[ByteView, str]]] = {}
        self._arrays: dict[str, list[FoundElsewhere]] = {}

    def want(self, digests: Collection[str], names: Collection[str]) -> None:
        """Declare which SHA-256, in hex, and arrays will be asked for."""
        self._digests.update(digests)
        self._names.update(names)
        # Places searched before were not searched for these.
        self._places = iter(self._all_places())

    def arrays(self, name: str) -> Iterator[FoundElsewhere]:
        """Yield intact arrays with this name, each content once: line, rows, bytes, and place."""
        number = 0
        while True:
            known = self._arrays.get(name, ())
            if number < len(known):
                yield known[number]
                number += 1
            elif number == _MOST_VERSIONS or not self._look_further():
                return

    def bytes_of(self, digest: str, nbytes: int) -> tuple[ByteView, str] | None:
        """Return the bytes with a SHA-256, in hex, and where they were found; None if nowhere."""
        if (stored := self._stored(digest, nbytes)) is not None:
            return stored, STORE
        while True:
            known = self._parts.get(digest, [])
            while known:
                raw, name = known[0]
                if len(raw) == nbytes and _hash(raw) == digest:
                    return raw, name
                del known[0]
            if not self._look_further():
                return None

    def _stored(self, digest: str, nbytes: int) -> ByteView | None:
        store, name = self._store(), bytes.fromhex(digest)
        if store is None or not store.has([name]):
            return None
        try:
            raw = store.read(name)
        except PayloadError:
            # Damaged in the store: it may be elsewhere.
            return None
        return raw if len(raw) == nbytes else None

    def _look_further(self) -> bool:
        """Search one more place; returns whether there was one."""
        place = next(self._places, None)
        if place is None:
            return False
        try:
            for array, digest, raw in _parts_of(place.open()):
                if digest in self._digests:
                    self._parts.setdefault(digest, []).append((raw, place.name))
                if array is not None and array[0].name in self._names:
                    self._keep_version((*array, raw, place.name))
        except (WtxtgitError, OSError):
            # An unreadable place has nothing to offer; another may.
            if place.is_named:
                raise
        return True

    def _keep_version(self, given: FoundElsewhere) -> None:
        """Keep an array if it is intact, and its content new: a damaged version may come first."""
        claim = given[0]
        known = self._arrays.setdefault(claim.name, [])
        kind = (claim.sha256, claim.dtype, claim.shape)
        if len(known) == _MOST_VERSIONS or any(
            kind == (one.sha256, one.dtype, one.shape) for one, *_ in known
        ):
            return
        if _hash(given[2]) == claim.sha256.hex():
            known.append(given)


def _hash(raw: ByteView) -> str | None:
    """Return the SHA-256 in hex; None if lines are malformed."""
    try:
        return hashed(sha256(), pieces(raw)).hexdigest()
    except TextError:
        return None


def _parts_of(data: ByteView) -> Iterator[tuple[_Told | None, str, ByteView]]:
    """Yield SHA-256 and bytes of each chunk and array in a text, a delta or a file.

    For an array also its line and rows. The stated SHA-256 is not checked.
    """
    if grammar.is_text(data) or grammar.is_delta(data):
        for found in read(data).arrays:
            for chunk in found:
                if (raw := view_of(data, chunk)) is not None:
                    yield None, chunk.sha256, raw
            parsed = None if found.line is None else grammar.parse_array(found.line + b"\n", 0)
            if parsed is not None and (whole := view_of_all(data, found)) is not None:
                rows = grammar.parse_rows((found.rows_line or b"") + b"\n", 0)
                told = parsed[0], None if rows is None else rows[0]
                yield told, parsed[0].sha256.hex(), whole
        return
    cleaned = text_of(data)
    if cleaned.writer is None:
        return
    for array in cleaned.writer.hashed():
        raw, size = array.source.data, grammar.chunk_size(array.source.rows)
        told = array.line, array.source.rows
        yield told, array.line.sha256.hex(), raw
        for ix, digest in enumerate(array.sha256):
            yield None, digest.hex(), raw[ix * size : (ix + 1) * size]


def store_of_target(target: str) -> PayloadSource | None:
    """Return the store of the repository that a target is in, else that of the current folder.

    None if there is no repository.
    """
    repo = _repository(target)
    if repo is None:
        # That of the current folder may be damaged, or somebody else's: the text is not in it.
        with contextlib.suppress(EnvironmentFailure):
            repo = Repository.find(None)
    return None if repo is None else store_of(repo)


def places(target: str, given: Iterable[str], threads: int | None = None) -> Iterator[Place]:
    """Yield where to look for what `target` has lost: what the user named, then what is at hand.

    At hand are, in the repository of the target, the file's own history, its index and work tree,
    and then all other files that it keeps as text, and its deltas. A folder that the user names is
    another clone, bare or not, and so is the URL of a repository. Raises UsageError for what was
    named and is no place.
    """
    repo = _repository(target)
    path = None if repo is None else path_in(target, repo)
    seen: set[str] = set()
    for one in given:
        if (url := repository_url(one)) is not None:
            # Outside of a repository only the file's name is known.
            name = os.fsencode(Path(target).name) if path is None else path
            shown_name = shown_url(one)
            for place in _of_repository(branches_of(url), name, seen, threads):
                yield replace(place, name=f"{shown_name} {place.name}")
            continue
        clone = Repository.find(Path(one)) if opener.is_file(one) and Path(one).is_dir() else None
        if clone is None:
            yield Place(one, partial(_open_given, one, target, threads), True)
        else:
            for place in _of_repository(clone, path, seen, threads):
                yield replace(place, name=f"{one} {place.name}")
    if repo is None:
        return
    if path is not None and not opener.is_file(target):
        file = repo.file(path)
        if file.is_file():
            yield Place(os.fsdecode(path), partial(opener.read, str(file)))
    yield from _of_repository(repo, path, seen, threads)


def _of_repository(
    repo: Repository, path: bytes | None, seen: set[str], threads: int | None
) -> Iterator[Place]:
    """Yield what stood at a path in any commit, then the repository's files that are kept as
    text.
    """
    if path is not None:
        yield from _blobs(repo, _history(repo, path), seen, threads)
    if repo.is_bare:
        return
    entries = {entry.path: entry.oid for entry in index.entries(repo) if entry.is_file}
    texts = status.filtered_alone(repo, entries)
    as_they_are = (one for one in entries if one.endswith(_TEXT_ENDINGS))
    for paths in (texts, as_they_are):
        yield from _blobs(repo, ((os.fsdecode(one), entries[one]) for one in paths), seen, threads)
    # They are the last resort, since git looks at all objects to find them.
    lost = ((f"blob {oid[:12]}", oid) for oid in _unreferenced_texts(repo))
    yield from _blobs(repo, lost, seen, threads)


def _unreferenced_texts(repo: Repository) -> Iterator[str]:
    from wtxtgit.git.store.reader import blob_heads

    # The reader keeps git's process for all of them.
    with BlobReader(repo):
        for oid in history.unreferenced_blobs(repo):
            # A damaged object must not hide the others.
            with contextlib.suppress(EnvironmentFailure):
                if grammar.is_text(blob_heads(repo, [oid])[oid].head):
                    yield oid


def versions(target: str, data: ByteView) -> tuple[OtherVersion, ...]:
    """Return the texts that git has and no branch refers to which share hashes with a damaged text.

    Those with the greatest share come first. They are what is left of a file that was never
    committed: it was stashed or staged, or the filter kept it when git replaced it by this text.
    """
    repo = _repository(target)
    if repo is None or not (ours := _hashes(data)):
        return ()
    path = path_in(target, repo)
    stashed = None if path is None else history.find(repo, f"{_STASH}:{os.fsdecode(path)}")
    found = []
    for oid in dict.fromkeys((*([stashed] if stashed else ()), *_unreferenced_texts(repo))):
        with contextlib.suppress(EnvironmentFailure):
            theirs = _hashes(opener.blob(repo, oid))
            if theirs and (same := len(theirs & ours)):
                found.append(OtherVersion(oid, same, len(theirs)))
    found.sort(key=lambda one: one.same / one.hashes, reverse=True)
    # Half of a stash that was made by hunks is as damaged as this text.
    whole = (one for one in found if _verifies(repo, one.blob))
    return tuple(islice(whole, _MOST_LISTED))


def _hashes(text: ByteView) -> set[bytes]:
    return set(_HASH.findall(mapped(text)))


def _verifies(repo: Repository, oid: str) -> bool:
    return verify(opener.blob(repo, oid), payload=store_of(repo)).ok


def _open_given(place: str, target: str, threads: int | None) -> ByteView:
    """Open a file, a URL or REV:PATH; a bare revision means the same path in it."""
    if opener.is_file(place) and not Path(place).exists():
        repo = _repository(target)
        path = None if repo is None else path_in(target, repo)
        if path is None:
            raise InputError(f"{shown(place)}: no such file")
        place = f"{place}:{os.fsdecode(path)}"
    return opener.read(place, threads=threads)


def _repository(target: str) -> Repository | None:
    if opener.is_url(target):
        return None
    return Repository.find(Path(target).parent if opener.is_file(target) else None)


def path_in(target: str, repo: Repository) -> bytes | None:
    """Return the path of a target from the top level of its repository; None if outside of it."""
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
    """Yield names and object ids of what stood at a path in any commit, newest first."""
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
