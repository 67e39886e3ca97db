"""Intervals [start, end) of bytes: which ones overlap, which lie apart, what is in none.

What is in none is told by a hash. Zeros that start or end a gap are padding,
and where a gap stands follows from what stands around it: neither counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from wtxtgit.io.view import PIECE, Buffer, ByteView, pieces

Span = tuple[int, int]
"""First byte and end."""
T = TypeVar("T")


def aligned(position: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return position + -position % alignment


def overlaps(items: Iterable[T], span: Callable[[T], Span]) -> Iterator[tuple[T, T]]:
    """Items that start before another one's end, each with that which reaches furthest before it.

    They come by where they start; of equal starts, the shorter first.
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
    """Items by where they start, those that overlap, or overlap the same ones, together."""
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
    """What of `size` bytes is in none of the spans, in order."""
    between: list[Span] = []
    reached = 0
    for start, end in sorted(spans):
        if start > reached and reached < size:
            between.append((reached, min(start, size)))
        reached = max(reached, end)
    # Spans may reach beyond the end: what they claim was not checked here.
    if reached < size:
        between.append((reached, size))
    return between


def digest(data: ByteView, spans: Iterable[Span]) -> bytes | None:
    """The SHA-256 over what is in none of the spans; None where that is zeros."""
    hashed = _Gaps()
    # A hash of hashes: where one gap ends and the next starts counts, where they stand does not.
    for start, end in gaps(spans, len(data)):
        for piece in pieces(data[start:end]):
            hashed.add(piece)
        hashed.close()
    return hashed.digest()


def digest_of(blocks: Iterable[Buffer], places: Sequence[Span]) -> bytes | None:
    """As `digest`, over bytes that come in blocks; `places` are their gaps as `gaps` has them."""
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
    """A hash of the hashes of gaps, without their zeros at both ends."""

    def __init__(self) -> None:
        self._all = hashlib.sha256()
        self._one = hashlib.sha256()
        self._zeros = 0
        self._is_open = self._is_any = False

    def add(self, piece: Buffer) -> None:
        """The next bytes of a gap."""
        raw = bytes(piece)
        body = raw.rstrip(b"\0")
        if body and self._is_open:
            # Zeros were left out as long as they could be the last bytes.
            while self._zeros:
                zeros = bytes(min(self._zeros, PIECE))
                self._one.update(zeros)
                self._zeros -= len(zeros)
        if body:
            self._one.update(body if self._is_open else body.lstrip(b"\0"))
            self._is_open = True
        self._zeros += len(raw) - len(body)

    def close(self) -> None:
        """The gap is at its end."""
        if self._is_open:
            self._all.update(self._one.digest())
            self._is_any = True
        self._one = hashlib.sha256()
        self._zeros = 0
        self._is_open = False

    def digest(self) -> bytes | None:
        return self._all.digest() if self._is_any else None
