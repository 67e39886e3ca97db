"""Where files are delivered to, and fetched from: one interface for all kinds of places.

A target keeps files by name; what is known of a file's content is its SHA-256. The same name with
the same content is no second delivery, with another content it is refused unless the caller says
`replace`. So a delivery whose outcome nobody knows, since a process died, can simply be repeated.

What goes wrong is one of two: `RemoteUnavailable`, worth another try later, or `RemoteRefused`,
which stays so until somebody changes something. Targets do not try again by themselves, but for
what another writer of the same place causes. No message and no repr holds a credential.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from wtxtgit.errors import InputError, RemoteRefused, UsageError, clipped
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.array import Meta
from wtxtgit.trust.signing import SigningKey

MAX_NAME = 512
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Outgoing(NamedTuple):
    """A file to deliver: `sha256`, in lower-case hex, is of all of `content`."""

    name: str
    content: ByteView
    sha256: str


class StoredFile(NamedTuple):
    """A file that a target has. `sha256` is None where its listing does not tell."""

    name: str
    nbytes: int
    sha256: str | None = None


class Target(Protocol):
    """A place that keeps files by name. Used by one thread at a time, by any number of processes.

    Names are relative, of letters, digits and `._-`, with `/` between folders where the target has
    those; `check_name` is the rule, and a name against it, or that a target has no room for,
    raises UsageError. Every method raises RemoteUnavailable and RemoteRefused.
    """

    @property
    def label(self) -> str:
        """What the place is called in messages and logs: its spelling without credentials."""

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        """Deliver files, all at once where the place can; gives the names that were not there yet.

        `about` says what they are, such as `gen` and `root`, for places that show such things.
        A name that has another content is refused with RemoteRefused, before anything of the
        call is delivered where that is known by then; with `replace` it gets the new content, and
        at no time a part of it. Raises InputError where a content is not of its SHA-256: nothing
        of such a file is ever seen under its name.
        """

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        """Fetch a file's content, in a temporary file if it is large.

        Raises InputError where there is no such file, or its content is not of `sha256` or of
        what the place itself says of it.
        """

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        """All files whose name begins with `prefix`, in order of names."""

    def has(self, name: str, sha256: str) -> bool:
        """Whether there is a file of that name with that content, all of it."""


Span = tuple[int, int]
"""Where a part of a file begins, and where it ends: the first byte after it."""


@runtime_checkable
class RangedTarget(Target, Protocol):
    """A target that gives parts of files."""

    def ranges(self, name: str, spans: Sequence[Span]) -> Iterator[ByteView]:
        """Parts of a file, each whole, in the order in which they are asked for.

        Raises InputError where there is no such file or it ends before a part does.
        """


@runtime_checkable
class PrunableTarget(Target, Protocol):
    """A target that tells how old files are, and takes them away."""

    def time(self, name: str) -> float | None:
        """When a file was written, in seconds since 1970; None where nobody knows."""

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""


@dataclass(frozen=True, slots=True)
class FileSeal:
    """What the ledger's next record says of a file.

    `place` is the path that it is the next content of, from the target's folder. `sha256_all` (32
    bytes) is the content's, with that of a WSUM beside it: `docs/spec/trust.md`, "Artifacts".
    """

    place: str
    sha256_all: bytes
    meta: Meta


@dataclass(frozen=True, slots=True)
class FileSeals:
    """How files are sealed: by their names in the delivery, with a key if there is one.

    `hash_of` gives the content of any bytes as a seal has it, 32 bytes.
    """

    seals: Mapping[str, FileSeal]
    key: SigningKey | None
    hash_of: Callable[[ByteView], bytes]


@runtime_checkable
class LedgerTarget(Target, Protocol):
    """A target that keeps a ledger beside what it gets."""

    def put_sealed(
        self, files: Sequence[Outgoing], sealing: FileSeals, *, about: Mapping[str, str]
    ) -> Sequence[str]:
        """Deliver files as `put` does, and have each one sealed, all in one commit.

        They are found by their names as those that `put` delivers, wherever they stand. Raises
        RemoteRefused where the place trusts others than the key.
        """


def outgoing(name: str, content: ByteView) -> Outgoing:
    """A file to deliver, of which only the content is known."""
    return Outgoing(name, content, hashed(hashlib.sha256(), pieces(content)).hexdigest())


def check_name(name: str) -> str:
    """The name, if a file of a target may have it; raises UsageError."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageError(f'"{shown(clipped(name, 80))}" is not a valid file name for a target')
    return name


def is_name(name: str) -> bool:
    """Whether a file of a target may have that name; others, found in a place, are not ours."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def check_files(files: Sequence[Outgoing]) -> None:
    """Raise UsageError for names that can't be, or not side by side, or what is no SHA-256."""
    names: set[str] = set()
    for name, _, sha256 in files:
        if check_name(name) in names:
            raise UsageError(f"{name} is given twice")
        if not _SHA256.fullmatch(sha256):
            raise UsageError(f"{name}: not a SHA-256 in lowercase hex")
        names.add(name)
    for name in names:
        if not names.isdisjoint(folders_of(name)):
            raise UsageError(f"{name} needs a folder whose name another file has")


def folders_of(name: str) -> list[str]:
    """The folders that a name is in: `a` and `a/b` for `a/b/c`."""
    return [name[:at] for at, sign in enumerate(name) if sign == "/"]


def checked_pieces(file: Outgoing) -> Iterator[memoryview]:
    """The content, piece by piece; the last piece is given only if all is of the SHA-256.

    So a transfer whose length was told before never becomes whole with another content. Raises
    InputError.
    """
    hasher, held = hashlib.sha256(), memoryview(b"")
    for piece in pieces(file.content):
        hasher.update(piece)
        if held.nbytes:
            yield held
        held = piece
    if hasher.hexdigest() != file.sha256:
        raise InputError(f"{file.name}: its content does not match the given SHA-256")
    if held.nbytes:
        yield held


def check_content(file: Outgoing) -> None:
    """Raise InputError unless the content is of the SHA-256."""
    for _ in checked_pieces(file):
        pass


def check_fetched(label: str, name: str, content: ByteView, *expected: str | None) -> ByteView:
    """The content, if it is of each SHA-256 that is known for it; raises InputError."""
    wanted = {sha256 for sha256 in expected if sha256 is not None}
    if wanted and wanted != {hashed(hashlib.sha256(), pieces(content)).hexdigest()}:
        raise InputError(f"{label}: {name}: the received content does not match its SHA-256")
    return content


def missing(label: str, name: str) -> InputError:
    """The error for a file that is not there."""
    return InputError(f"{label}: has no {name}")


def taken(label: str, name: str) -> RemoteRefused:
    """The error for a name that has another content."""
    return RemoteRefused(f"{label}: already has {name}, with different content")
