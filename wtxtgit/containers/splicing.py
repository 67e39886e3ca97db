"""Bytes of a file in pieces, and a file with others in some places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wtxtgit.model import Buffer

BLOCK = 1 << 20
"""Bytes of a file that are given at a time."""

Edit = tuple[int, int, Callable[[], Iterable[Buffer]]]
"""First byte, end, and what gives the bytes that come there instead."""


def pieces(data: memoryview) -> Iterator[memoryview]:
    """The bytes, a block at a time."""
    for start in range(0, len(data), BLOCK):
        yield data[start : start + BLOCK]


def spliced(data: memoryview, edits: Iterable[Edit]) -> Iterator[Buffer]:
    """The file with these edits, which come in its order and lie apart."""
    reached = 0
    for start, end, blocks in edits:
        yield from pieces(data[reached:start])
        yield from blocks()
        reached = end
    yield from pieces(data[reached:])
