"""Pointers of git-lfs: the lines that git stores in place of an object on a server.

`docs/spec/containers.md`, section "Pointers of git-lfs", defines which files are pointers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wtxtgit.errors import InputError, counted
from wtxtgit.text.grammar import LFS_MAGIC

if TYPE_CHECKING:  # clean asks of a content alone, and needs no repository
    from wtxtgit.git.repository import Repository
    from wtxtgit.io.view import ByteView

_FIRST = "https://git-lfs.github.com/spec/v1"
_VERSIONS = {
    _FIRST.encode("ascii"),
    # Written by git-lfs before its first release.
    b"https://hawser.github.com/spec/v1",
    b"http://git-media.io/v/2",
}
_LINE = re.compile(rb"(?P<key>[a-z0-9.-]+) (?P<value>[^\r\n]+)")
_OID = re.compile(rb"sha256:(?P<sha256>[0-9a-f]{64})")
_SIZE = re.compile(rb"[0-9]{1,19}")
_EXTENSION = b"ext-"
POINTER = "a git-lfs pointer, not the file that it points to"
MOST_POINTER = 1024
"""Most bytes of a pointer."""


class LfsObject(NamedTuple):
    """An object on a server: its SHA-256 in lower-case hex, and its size in bytes."""

    sha256: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """The content of a pointer; if it `is_extended`, tools changed the file to get the object."""

    to: LfsObject
    is_extended: bool

    @property
    def file(self) -> LfsObject | None:
        """The object if it is the file itself, else None."""
        return None if self.is_extended else self.to

    def __str__(self) -> str:
        return f"{POINTER} ({counted(self.to.nbytes, 'byte')}, sha256 {self.to.sha256[:12]})"


def format_pointer(to: LfsObject) -> bytes:
    """Return the pointer to an object, which must not be empty."""
    return f"version {_FIRST}\noid sha256:{to.sha256}\nsize {to.nbytes}\n".encode("ascii")


def read_pointer(content: ByteView | bytes) -> Pointer | None:
    """Parse a pointer; returns None if a file is none."""
    if content[: len(LFS_MAGIC)] != LFS_MAGIC or len(content) > MOST_POINTER:
        return None
    first, *lines = bytes(content).rstrip(b" \t\r\n").split(b"\n")
    if first.removesuffix(b"\r").removeprefix(LFS_MAGIC) not in _VERSIONS:
        return None
    try:
        bytes(content).decode("utf-8")
    except UnicodeDecodeError:
        return None
    fields: dict[bytes, list[bytes]] = {}
    for line in filter(None, (line.removesuffix(b"\r") for line in lines)):
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        fields.setdefault(match["key"], []).append(match["value"])
    oids, sizes = fields.get(b"oid", ()), fields.get(b"size", ())
    if len(oids) != 1 or len(sizes) != 1:
        return None
    oid, size = _OID.fullmatch(oids[0]), _SIZE.fullmatch(sizes[0])
    if oid is None or size is None:
        return None
    is_extended = any(key.startswith(_EXTENSION) for key in fields)
    return Pointer(LfsObject(oid["sha256"].decode(), int(size[0])), is_extended)


_PULL = "git lfs install, then git lfs pull; wtxtgit fetch, if wtxtgit tracks it"


def refuse_pointer(name: str, content: ByteView, hint: str = _PULL) -> None:
    """Raise InputError if a content is a pointer instead of the file itself."""
    pointer = read_pointer(content)
    if pointer is not None:
        raise InputError(f"{name}: {pointer}", hint=hint)


def parse_pointer(content: ByteView | bytes) -> LfsObject | None:
    """Return the object that is the file of a pointer; None for other files, and with
    extensions.
    """
    pointer = read_pointer(content)
    return None if pointer is None else pointer.file


def pointed(repo: Repository, oids: Iterable[str]) -> dict[str, LfsObject | None]:
    """Return the objects that blobs point to; None for blobs that are no pointers to their
    files.
    """
    return {
        oid: None if pointer is None else pointer.file
        for oid, pointer in pointers(repo, oids).items()
    }


def pointed_of(repo: Repository, sizes: Mapping[str, int]) -> dict[str, LfsObject]:
    """Return the objects that blobs of these sizes point to, without those that are no such
    pointers.
    """
    small = [oid for oid, size in sizes.items() if 0 < size <= MOST_POINTER]
    objects = pointed(repo, small) if small else {}
    return {oid: to for oid, to in objects.items() if to is not None}


def pointers(repo: Repository, oids: Iterable[str]) -> dict[str, Pointer | None]:
    """Parse the pointers among blobs; None for blobs that are none."""
    from wtxtgit.git.store.reader import blob_heads

    return {
        oid: read_pointer(blob.head) if blob.size == len(blob.head) else None
        for oid, blob in blob_heads(repo, oids).items()
    }
