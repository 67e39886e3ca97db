"""Bytes that come in blocks: exactly so many of them, or their hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer


class Hasher(Protocol):
    """What hashes of hashlib and BLAKE3 have in common."""

    def update(self, data: Buffer, /) -> object:
        """Take in more bytes."""


H = TypeVar("H", bound=Hasher)


def hashed(hasher: H, blocks: Iterable[Buffer]) -> H:
    """The hasher, which has taken in all blocks."""
    for block in blocks:
        hasher.update(block)
    return hasher


def exactly(blocks: Iterable[Buffer], nbytes: int, what: str, field: str) -> Iterator[memoryview]:
    """The blocks as flat bytes; what is too much is not given.

    Raises FormatError, which says `what` gave them, unless they are `nbytes` together.
    """
    given = 0
    for block in blocks:
        view = memoryview(block).cast("B")
        given += len(view)
        if given > nbytes:
            break
        yield view
    if given != nbytes:
        raise FormatError(f"{what} gives {given} bytes, not {nbytes}", field=field)
