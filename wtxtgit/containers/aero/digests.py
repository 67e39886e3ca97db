"""BLAKE3 of many spans of one stream of bytes, in one pass over it.

Chunk, pages and tensors are hashed block by block, while the block is in the
processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from blake3 import blake3

from wtxtgit.io.view import Buffer, ByteView, Windowed, pieces

THREADED = 2**20
"""Bytes from which on hashing with several threads is faster."""

STEP = 8 * THREADED
"""Bytes of a file that are hashed at a time."""

SHOWN = 8

Span = tuple[int, int]
"""First byte and end."""


def hasher(size: int) -> Any:
    """BLAKE3 of about `size` bytes that come in pieces."""
    return blake3(max_threads=blake3.AUTO if size >= THREADED else 1)


def digest(data: Buffer | ByteView) -> bytes:
    one = hasher(len(data))
    for piece in pieces(data if isinstance(data, Windowed) else memoryview(data), STEP):
        one.update(piece)
    return bytes(one.digest())


def short(value: bytes) -> str:
    """The start of a digest, as messages show it."""
    return value[:SHOWN].hex()


def digest_spans(blocks: Iterable[Buffer], spans: Iterable[Span]) -> dict[Span, bytes]:
    """The digest of each span of the stream that `blocks` are; spans may overlap.

    Spans end within the stream.
    """
    waiting = sorted(set(spans), reverse=True)
    found: dict[Span, bytes] = {}
    running: list[tuple[Span, Any]] = []
    start = 0
    for block in blocks:
        end = start + len(block)
        view = memoryview(block)
        for span, one in running:
            one.update(view[: span[1] - start])
        while waiting and waiting[-1][0] < end:
            span = waiting.pop()
            piece = view[span[0] - start : span[1] - start]
            if span[1] <= end:
                found[span] = digest(piece)
            else:
                running.append((span, hasher(span[1] - span[0]).update(piece)))
        found.update((span, one.digest()) for span, one in running if span[1] <= end)
        running = [(span, one) for span, one in running if span[1] > end]
        start = end
    # Empty ones where the stream ends.
    found.update((span, digest(b"")) for span in waiting if span[0] == span[1])
    return found
