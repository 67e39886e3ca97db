"""A file with other bytes in some places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wtxtgit.io.view import Buffer, ByteView, pieces

Edit = tuple[int, int, Callable[[], Iterable[Buffer]]]
"""First byte, end, and what gives the bytes that come there instead."""


def spliced(data: ByteView, edits: Iterable[Edit]) -> Iterator[Buffer]:
    """The file with these edits, which come in its order and lie apart."""
    reached = 0
    for start, end, blocks in edits:
        yield from pieces(data[reached:start])
        yield from blocks()
        reached = end
    yield from pieces(data[reached:])
