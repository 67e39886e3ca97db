"""Entries of files that are resealed, for the tests of formats whose tensors stand as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import NewContent, PlacedEntry


def content(raw: bytes) -> NewContent:
    """New bytes of an entry, in blocks of odd sizes."""

    def blocks() -> Iterator[Buffer]:
        for start in range(0, len(raw), 7):
            yield memoryview(raw)[start : start + 7]

    return NewContent(len(raw), blocks)


def own(source: object, count: int) -> list[PlacedEntry]:
    """All entries of a file, as it has them."""
    return [PlacedEntry(source, number) for number in range(count)]


def changed(placed: Sequence[PlacedEntry], contents: dict[int, bytes]) -> list[PlacedEntry]:
    """The same entries, some of them with other bytes."""
    return [
        PlacedEntry(each.source, each.number, content(contents[n])) if n in contents else each
        for n, each in enumerate(placed)
    ]


def inverted(raw: bytes | memoryview) -> bytes:
    """As many other bytes."""
    return bytes(byte ^ 0xFF for byte in raw)
