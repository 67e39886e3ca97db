"""Intervals [start, end) of bytes: which ones overlap, which are disjoint, and gaps between them.

The bytes in gaps are summarised by a hash. Zeros at the start or end of a gap are padding, and the
position of a gap follows from what surrounds it: neither counts in the hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from wtxtgit.io.view import PIECE, Buffer, ByteView, pieces

Span = tuple[int, int]
"""First byte, and end."""
T = TypeVar("T")


def aligned(position: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is not below `position`."""
    return position + -position % alignment


def overlaps(items: Iterable[T], span: Callable[[T], Span]) -> Iterator[tuple[T, T]]:
    """Yield items that start before the end of another one, with the farthest-reaching of those.

    They are ordered by start, and for equal starts the shorter first.
    """
    before: T | None = None
    reached = 0
    for item in sorted(items, key=span):
        start, end = span(item)
        if before is not None and start < reached:
            yield item, before
        if before is None or end > reached:
            before, reached = item, end


def groups(items: Iterable[T], span: Callable[[T], Span]) -> Iterator[list[T]]:
    """Yield items ordered by start, in groups that are connected by overlaps."""
    group: list[T] = []
    reached = 0
    for item in sorted(items, key=span):
        start, end = span(item)
        if group and start >= reached:
            yield group
            group = []
        group.append(item)
        reached = max(reached, end)
    if group:
        yield group


def gaps(spans: Iterable[Span], size: int) -> list[Span]:
    """Return the parts of `size` bytes that no span contains, in order."""
    between: list[Span] = []
    reached = 0
    for start, end in sorted(spans):
        if start > reached and reached < size:
            between.append((reached, min(start, size)))
        reached = max(reached, end)
    # Spans may reach beyond the end: what they claim has not been checked.
    if reached < size:
        between.append((reached, size))
    return between


def digest(data: ByteView, spans: Iterable[Span]) -> bytes | None:
    """Return the SHA-256 over the bytes in no span; None if these are all zeros."""
    hashed = _Gaps()
    # A hash of hashes: the division into gaps counts, their positions do not.
    for start, end in gaps(spans, len(data)):
        for piece in pieces(data[start:end]):
            hashed.add(piece)
        hashed.close()
    return hashed.digest()


def digest_of(blocks: Iterable[Buffer], places: Sequence[Span]) -> bytes | None:
    """Do the same for bytes that come in blocks; `places` are their gaps, as from `gaps`."""
    hashed = _Gaps()
    pos = n = 0
    for block in blocks:
        end = pos + len(block)
        while n < len(places) and places[n][0] < end:
            start, stop = places[n]
            hashed.add(block[max(start - pos, 0) : min(stop, end) - pos])
            if stop > end:
                break
            hashed.close()
            n += 1
        pos = end
    return hashed.digest()


class _Gaps:
    """A hash of the hashes of gaps, without the zeros at both ends of each."""

    def __init__(self) -> None:
        self._all = hashlib.sha256()
        self._one = hashlib.sha256()
        self._zeros = 0
        self._is_open = self._is_any = False

    def add(self, piece: Buffer) -> None:
        """Add the next bytes of a gap."""
        raw = bytes(piece)
        body = raw.rstrip(b"\0")
        if body and self._is_open:
            # Zeros are held back as long as they could be the last bytes.
            while self._zeros:
                zeros = bytes(min(self._zeros, PIECE))
                self._one.update(zeros)
                self._zeros -= len(zeros)
        if body:
            self._one.update(body if self._is_open else body.lstrip(b"\0"))
            self._is_open = True
        self._zeros += len(raw) - len(body)

    def close(self) -> None:
        """End the current gap."""
        if self._is_open:
            self._all.update(self._one.digest())
            self._is_any = True
        self._one = hashlib.sha256()
        self._zeros = 0
        self._is_open = False

    def digest(self) -> bytes | None:
        return self._all.digest() if self._is_any else None
