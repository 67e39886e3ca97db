"""Where files are delivered to, and fetched from: one interface for all kinds of places.

A target keeps files by name; a file's content is known by its SHA-256. Delivering the same content
again under its name has no effect; other content is refused unless the caller says `replace`. So a
delivery whose outcome is unknown, because a process died, can simply be repeated.

Errors are of two kinds: `RemoteUnavailable`, for which another try later makes sense, or
`RemoteRefused`, which is permanent until somebody changes something. Targets only retry what a
concurrent writer of the same place has caused. No message and no repr contains a credential.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from wtxtgit.errors import InputError, RemoteRefused, UsageError, clipped
from wtxtgit.io.files import shown
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, counted, hashed, pieces
from wtxtgit.model.array import Meta
from wtxtgit.trust.signing import SigningKey

MAX_NAME = 512
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Outgoing(NamedTuple):
    """A file to deliver: `sha256`, in lower-case hex, is that of the whole `content`.

    `progress` gets counts of bytes as they are sent, where the place can tell.
    """

    name: str
    content: ByteView
    sha256: str
    progress: Progress | None = None


class StoredFile(NamedTuple):
    """A file in a target. `sha256` is None if its listing does not state it."""

    name: str
    nbytes: int
    sha256: str | None = None


class Target(Protocol):
    """A place that keeps files by name. Used by one thread at a time, by any number of processes.

    Names are relative, of letters, digits and `._-`, with `/` between folders if the target has
    those; `check_name` is the rule, and an invalid name, or one that the target can't hold, raises
    UsageError. Every method raises RemoteUnavailable and RemoteRefused.
    """

    @property
    def label(self) -> str:
        """The name of the place in messages and logs: its spelling without credentials."""

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        """Deliver files, atomically if the place can; returns the names that were not there yet.

        `about` describes them, such as `gen` and `root`, for places that show such things. A name
        with other content is refused with RemoteRefused, before anything of the call is delivered
        if that is known by then; with `replace` it gets the new content, and never shows a part of
        it. Raises InputError if a content does not match its SHA-256: such a file never appears
        under its name.
        """

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        """Fetch a file's content, into a temporary file if it is large.

        Raises InputError if there is no such file, or its content does not match `sha256` or what
        the place itself states.
        """

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        """List all files whose name begins with `prefix`, sorted by name."""

    def has(self, name: str, sha256: str) -> bool:
        """Tell whether there is a complete file with that name and content."""


Span = tuple[int, int]
"""Start and end of a part of a file; the end is exclusive."""


@runtime_checkable
class RangedTarget(Target, Protocol):
    """A target that returns parts of files."""

    def ranges(self, name: str, spans: Sequence[Span]) -> Iterator[ByteView]:
        """Yield parts of a file, each complete, in the order of `spans`.

        Raises InputError if there is no such file, or it ends before a part does.
        """


@runtime_checkable
class PrunableTarget(Target, Protocol):
    """A target that tells how old files are, and removes them."""

    def time(self, name: str) -> float | None:
        """Return when a file was written, in seconds since 1970; None if unknown."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""


@dataclass(frozen=True, slots=True)
class FileSeal:
    """What the ledger's next record states about a file.

    `place` is the path, from the target's folder, whose next content it is. `sha256_all` (32 bytes)
    is the content's, together with a WSUM beside it: `docs/spec/trust.md`, "Artifacts".
    """

    place: str
    sha256_all: bytes
    meta: Meta


@dataclass(frozen=True, slots=True)
class FileSeals:
    """How files are sealed: by their names in the delivery, with a key if there is one.

    `hash_of` returns the content hash of any bytes as in a seal, 32 bytes.
    """

    seals: Mapping[str, FileSeal]
    key: SigningKey | None
    hash_of: Callable[[ByteView], bytes]


@runtime_checkable
class LedgerTarget(Target, Protocol):
    """A target that keeps a ledger beside its files."""

    def put_sealed(
        self, files: Sequence[Outgoing], sealing: FileSeals, *, about: Mapping[str, str]
    ) -> Sequence[str]:
        """Deliver files as `put` does, each of them sealed, all in one commit.

        They are found by their names like those that `put` delivers, wherever they stand. Raises
        RemoteRefused if the place does not trust the key.
        """


def outgoing(name: str, content: ByteView) -> Outgoing:
    """Return a file to deliver, computing its SHA-256."""
    return Outgoing(name, content, hashed(hashlib.sha256(), pieces(content)).hexdigest())


def check_name(name: str) -> str:
    """Return the name unchanged; raises UsageError if a file of a target can't have it."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageError(f'"{shown(clipped(name, 80))}" is not a valid file name for a target')
    return name


def is_name(name: str) -> bool:
    """Tell whether a file of a target may have that name; other files in a place are not ours."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def check_files(files: Sequence[Outgoing]) -> None:
    """Raise UsageError for names that are invalid or conflict, and for an invalid SHA-256."""
    names: set[str] = set()
    for name, _, sha256, _ in files:
        if check_name(name) in names:
            raise UsageError(f"{name} is given twice")
        if not _SHA256.fullmatch(sha256):
            raise UsageError(f"{name}: not a SHA-256 in lowercase hex")
        names.add(name)
    for name in names:
        if not names.isdisjoint(folders_of(name)):
            raise UsageError(f"{name} needs a folder, but another file has its name")


def folders_of(name: str) -> list[str]:
    """Return the folders in a name: `a` and `a/b` for `a/b/c`."""
    return [name[:at] for at, sign in enumerate(name) if sign == "/"]


def checked_pieces(file: Outgoing) -> Iterator[memoryview]:
    """Yield the content; the last piece only if the whole content matches the SHA-256.

    So a transfer with a stated length never completes with other content. The file's `progress`
    gets the size of each piece once it was taken. Raises InputError.
    """
    return counted(_checked(file), file.progress)


def _checked(file: Outgoing) -> Iterator[memoryview]:
    hasher, last = hashlib.sha256(), memoryview(b"")
    for piece in pieces(file.content):
        hasher.update(piece)
        if last.nbytes:
            yield last
        last = piece
    if hasher.hexdigest() != file.sha256:
        raise InputError(f"{file.name}: its content does not match the given SHA-256")
    if last.nbytes:
        yield last


def check_content(file: Outgoing) -> None:
    """Raise InputError unless the content matches the SHA-256."""
    for _ in _checked(file):
        pass


def check_fetched(label: str, name: str, content: ByteView, *expected: str | None) -> ByteView:
    """Return the content if it matches every SHA-256 known for it; raises InputError."""
    digests = {sha256 for sha256 in expected if sha256 is not None}
    if digests and digests != {hashed(hashlib.sha256(), pieces(content)).hexdigest()}:
        raise InputError(f"{label}: {name}: the received content does not match its SHA-256")
    return content


def missing(label: str, name: str) -> InputError:
    """Return the error for a missing file."""
    return InputError(f"{label}: has no {name}")


def taken(label: str, name: str) -> RemoteRefused:
    """Return the error for a name that has other content."""
    return RemoteRefused(f"{label}: already has {name}, with different content")
