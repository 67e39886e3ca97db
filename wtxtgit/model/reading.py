"""What readers of containers are told, and what they tell.

Plain data; the readers are in `containers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.model import Problem

MAX_CHUNK = 1024**3
"""Bytes that a chunk may have, stored or decoded, unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Limits and keys for reading what a container holds; no part of cutting.

    `max_chunk` is the most bytes that a compressed chunk may decode to, or a
    FOLD chunk may have. `decryption_key` (32 bytes, AES-256) opens encrypted
    FOLD chunks, `integrity_key` is the HMAC key of FOLD hashes.
    """

    max_chunk: int = MAX_CHUNK
    decryption_key: bytes | None = field(default=None, repr=False)
    integrity_key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Bytes that are decoded whenever they are asked for, `nbytes` of them.

    `open` raises FormatError where they can't be.
    """

    nbytes: int
    open: Callable[[], ByteView]

    def part(self, start: int, nbytes: int) -> Packed:
        """`nbytes` of the bytes, from byte `start` on."""
        return Packed(nbytes, lambda: self.open()[start : start + nbytes])


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor as its container lists it.

    `dtype` and `shape` are the container's own. `element` is the common name
    of what its items are (`model.elements`), None where they are no numbers
    of whole bytes. `held` has the stored bytes: the items lie in `order`, "C",
    "F" (columns first) or "reversed" (the shape names its fastest dimension
    first), or `strides` apart (in items; shape and strides as in numpy, the
    first item at byte 0). `absent` says why a tensor that is listed has no
    bytes. A tensor nested in a chunk is named `chunk/tensor`; `offset` is in
    the file, None where the bytes do not stand there as they are.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    held: ByteView | Packed
    offset: int | None
    element: str | None = None
    order: str = "C"
    byteorder: str = "little"
    strides: tuple[int, ...] | None = None
    absent: str | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes are stored; nothing is decoded."""
        return self.held.nbytes

    @property
    def data(self) -> memoryview:
        """The stored bytes; raises FormatError where they can't be decoded."""
        return mapped(self.view)

    @property
    def view(self) -> ByteView:
        """The stored bytes, not mapped as a whole; raises FormatError as `data` does."""
        return self.held.open() if isinstance(self.held, Packed) else self.held

    def first(self, nbytes: int) -> Tensor:
        """The tensor without what is stored behind its first `nbytes` bytes."""
        if nbytes == self.nbytes:
            return self
        if isinstance(self.held, Packed):
            return replace(self, held=self.held.part(0, nbytes))
        return replace(self, held=self.held[:nbytes])


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """A file in a chunk of a container, which has tensors of its own.

    `open` gives the file's bytes, decoded; it raises FormatError. `offset` is
    where they stand in the outer file, None where they are decoded.
    """

    name: str
    open: Callable[[], ByteView]
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartNote:
    """What a container says of the bytes that start at `offset`: type, compression, sizes.

    A small change of what compressed or encrypted bytes hold changes all of
    them.
    """

    offset: int
    about: str
    is_compressed: bool = False
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """What a container says of itself: its tensors and its metadata.

    `metadata` is plain data that `json.dumps` takes. `tags` is what of it
    can go to a file of another format: short texts by name. `untold` names
    what else such a file would lack. `parts` are words on what stands where.
    `size` is that of all files of a set, in
    bytes, None for a single file.
    """

    format: str
    tensors: tuple[Tensor, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict)
    nested: tuple[Nested, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    untold: tuple[str, ...] = ()
    size: int | None = None
    parts: tuple[PartNote, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberFindings:
    """What a check of one file of a set found, by itself and against the set's index.

    `nbytes` are those of its tensors that the index lists.
    """

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    nbytes: int = 0


@dataclass(slots=True)
class Findings:
    """What a check of a container found; errors and warnings in the order found.

    `kind` is structure, limit, or the name of the hash that does not hold:
    crc32, crc32c, sha256, hmac, blake3, manifest, merkle, ecc. At most MOST of
    either are kept, the last of them says so. `authenticated` is True where a
    key was given and everything that it can prove holds.
    """

    MOST = 1000

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    authenticated: bool | None = None

    def error(
        self,
        kind: str,
        message: str,
        *,
        offset: int | None = None,
        field: str | None = None,
        chunk: str | None = None,
    ) -> None:
        """Add something that does not hold."""
        self._add(self.errors, Problem(kind, message, offset=offset, field=field, chunk=chunk))

    def warn(
        self,
        kind: str,
        message: str,
        *,
        offset: int | None = None,
        field: str | None = None,
        chunk: str | None = None,
    ) -> None:
        """Add something that a user should know and that loses nothing."""
        self._add(self.warnings, Problem(kind, message, offset=offset, field=field, chunk=chunk))

    def refuse(self, error: FormatError, *, chunk: str | None = None) -> None:
        """Add what a reader refused as an error."""
        # Its message ends with the place, which a problem has of its own.
        message = error.message.removesuffix(f" at byte {error.offset}")
        self.error(error.kind, message, offset=error.offset, field=error.field, chunk=chunk)

    def add(self, member: MemberFindings) -> None:
        """Add what was found in a file of a set."""
        for problem in member.errors:
            self._add(self.errors, problem)
        for problem in member.warnings:
            self._add(self.warnings, problem)

    def of_member(self, nbytes: int = 0) -> MemberFindings:
        """What was found, as of a file of a set."""
        return MemberFindings(tuple(self.errors), tuple(self.warnings), nbytes)

    def _add(self, found: list[Problem], problem: Problem) -> None:
        if len(found) < self.MOST:
            found.append(problem)
        elif len(found) == self.MOST:
            found.append(Problem("limit", f"more than {self.MOST} findings, the rest is left out"))


@dataclass(frozen=True, slots=True, eq=False)
class TensorSource:
    """A tensor to be written: `blocks` gives its bytes, little-endian, in C order.

    `element` is a name of `model.elements`, `shape` as in numpy. `blocks` may
    be called more than once and gives `nbytes` bytes each time.
    """

    name: str
    element: str
    shape: tuple[int, ...]
    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]
