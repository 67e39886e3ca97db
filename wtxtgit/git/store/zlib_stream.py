"""One zlib stream in a file, from spans of a content that arrive in any order.

A content is made by several threads, and its first lines, which hold its
hashes, are known last. They are stored, not deflated, so their room is known
before; everything else is deflated where it was made, and goes to the file in
order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Protocol

from wtxtgit.git.store import deflate
from wtxtgit.model import Buffer
from wtxtgit.model.windows import ByteView, pieces


class Span(Protocol):
    """`size` bytes of a content; a late one is known when the others are, and small."""

    @property
    def size(self) -> int: ...

    @property
    def is_late(self) -> bool: ...


class Content(Protocol):
    """What an object holds: `size` bytes, cut into spans.

    `render` makes them: it calls what it is given once for each span, with its
    number and its bytes, from several threads; spans that are not late begin
    in order. `stream` gives the bytes in order, after `render`.
    """

    @property
    def size(self) -> int: ...

    @property
    def spans(self) -> Sequence[Span]: ...

    def render(self, place: Callable[[int, memoryview], None]) -> None: ...

    def stream(self) -> Iterator[Buffer]: ...


class ZlibStream:
    """A stream that begins at `position` of an open file.

    `lead` are bytes that stand before the content.
    """

    def __init__(
        self, descriptor: int, position: int, spans: Sequence[Span], lead: bytes = b""
    ) -> None:
        self._descriptor = descriptor
        self._spans = spans
        self._adlers = [1] * len(spans)
        self._rooms: dict[int, int] = {}
        self._waiting: dict[int, bytes] = {}
        self._next = 0
        self._lock = Lock()
        # One block that the content follows: a reader of the first bytes alone finds it.
        head = deflate.HEAD + deflate.stored(lead)
        self._lead = lead
        write_at(descriptor, head, position)
        self._end = position + len(head)
        self._advance()

    def place(self, number: int, data: memoryview) -> None:
        """Take the bytes of a span, each once."""
        self._adlers[number] = deflate.adler32(data)
        is_late = self._spans[number].is_late
        made = deflate.stored(data) if is_late else deflate.piece(data)
        with self._lock:
            position = self._rooms.pop(number, None)
            if position is None:
                self._waiting[number] = made
                ready = self._advance()
            else:
                ready = [(position, made)]
        for position, made in ready:
            write_at(self._descriptor, made, position)

    def finish(self) -> int:
        """End the stream when all spans were placed; gives where it ends in the file."""
        if self._next != len(self._spans) or self._rooms:
            raise AssertionError("a span was never placed")
        adler = deflate.adler32(self._lead)
        for span, own in zip(self._spans, self._adlers, strict=True):
            adler = deflate.joined_adler32(adler, own, span.size)
        tail = deflate.END + adler.to_bytes(deflate.CHECKSUM_SIZE, "big")
        write_at(self._descriptor, tail, self._end)
        return self._end + len(tail)

    def _advance(self) -> list[tuple[int, bytes]]:
        """Give places to all spans whose predecessors have theirs; to late ones beforehand."""
        ready = []
        while self._next < len(self._spans):
            span = self._spans[self._next]
            made = self._waiting.pop(self._next, None)
            if made is not None:
                ready.append((self._end, made))
                self._end += len(made)
            elif span.is_late:
                self._rooms[self._next] = self._end
                self._end += deflate.stored_size(span.size)
            else:
                break
            self._next += 1
        return ready


class Plain:
    """A content that is at hand, `data`, a flat view of bytes."""

    SPAN = 1024 * 1024

    def __init__(self, data: ByteView) -> None:
        self._data = data
        self.size = data.nbytes
        starts = range(0, self.size, self.SPAN)
        self.spans = [_PlainSpan(min(self.SPAN, self.size - start)) for start in starts]

    def render(self, place: Callable[[int, memoryview], None]) -> None:
        for number, part in enumerate(self._parts()):
            place(number, part)

    def stream(self) -> Iterator[Buffer]:
        return self._parts()

    def _parts(self) -> Iterator[memoryview]:
        return pieces(self._data, self.SPAN)


class _PlainSpan:
    is_late = False

    def __init__(self, size: int) -> None:
        self.size = size


def write_at(descriptor: int, data: Buffer, position: int) -> None:
    """Write all of `data` at a position, whatever the system takes at a time."""
    view = memoryview(data).cast("B")
    while view.nbytes:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
