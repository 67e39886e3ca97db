"""The payload of detached texts: the bytes of their chunks, which are kept elsewhere.

`docs/spec/detached.md`. A text asks for a chunk by its SHA-256. Where chunks are kept is
not the business of this room: a `PayloadSource` is what a reader is given, and `NO_PAYLOAD`
where there is nothing to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol

from wtxtgit.io.view import ByteView

MISSING = "payload-missing"
"""The kind of problem that a text has whose chunks are not all at hand."""
DAMAGED = "payload"
"""The kind of problem of a chunk that is at hand, and not what its name says."""


class PayloadSource(Protocol):
    """Chunks by their SHA-256 (32 bytes); threads may share it."""

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the names whose chunks are at hand."""

    def read(self, name: bytes) -> ByteView:
        """A chunk, which has this SHA-256; raises WtxtgitError where it is damaged or gone."""


class PayloadState(StrEnum):
    """How much of a detached text's payload is at hand, and is what its names say."""

    COMPLETE = "complete"
    PARTLY = "partly"
    ABSENT = "absent"


Keep = Callable[[bytes, memoryview, int, str, int], None]
"""Takes a chunk of an array on its way into a detached text, from any thread.

Its SHA-256, its bytes, which are good during the call only, the bytes of an item, the
array's name, and the chunk's number.
"""


class _NoPayload:
    def has(self, names: Iterable[bytes]) -> set[bytes]:
        return set()

    def read(self, name: bytes) -> ByteView:
        raise AssertionError("nothing is at hand")


FindPayload = Callable[[], PayloadSource | None]
"""Gives where the payload of detached texts is, None where it can't be had.

Most texts are attached: only where one is not a repository is looked at.
"""

NO_PAYLOAD: PayloadSource = _NoPayload()
