"""The content of chunks, decoded where it is compressed, within bounds, and its BLAKE3.

TOC entries may share bytes, and compressed ones may hold far more than their
bytes: what a whole file is worth decoding and hashing is counted. A chunk, its
pages and its tensors are hashed in one pass, block by block, while the block
is in the processor's cache.
Spec: `docs/spec/aero.md`, "Limits".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from wtxtgit.containers.aero.read import MAX_METADATA_ULEN, METADATA, Aero, Chunk
from wtxtgit.containers.cursor import fail
from wtxtgit.containers.decoded import most_decoded
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.zstd_limits import Frame
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, Windowed, pieces
from wtxtgit.model.tensor import ReadOptions

BLOCK = 4 * 2**20
"""Bytes of content looked at together."""
MOST_PASSES = 8
"""Each byte of a file may be hashed about so often: as part of a chunk, a page, a tensor."""
LEAST_HASHED = 2**20
"""Bytes that may be hashed however small the file is."""


MAX_NAMES = MAX_JSON
NAMES_A_BYTE = 8
"""Bytes of all chunk names of a file together, as far as they are looked at, and so many
times the file's own: names may share bytes."""


class Allowance:
    """What may still be decoded, parsed and hashed of one file.

    Spending more raises FormatError.
    """

    def __init__(self, size: int, options: ReadOptions) -> None:
        self._decoding = most_decoded(size, options)
        self._hashing = max(MOST_PASSES * size, LEAST_HASHED)
        self._parsing = size
        self._max_chunk = options.max_chunk

    def decode(self, chunk: Chunk) -> None:
        """Take what decoding the chunk costs, as its `chunk_ulen` says."""
        if chunk.ulen > self._max_chunk:
            _too_long(chunk, f"chunk_ulen is {chunk.ulen}, over {self._max_chunk}")
        if chunk.ulen > self._decoding:
            _too_long(chunk, "chunks decode to too much for a file of this size")
        self._decoding -= chunk.ulen
        self._hashing += MOST_PASSES * chunk.ulen

    def parse(self, chunk: Chunk) -> None:
        """Take what parsing a chunk that is not compressed costs."""
        if chunk.length > self._parsing:
            fail(
                "chunks share the same bytes too often",
                offset=chunk.offset,
                field="chunk_offset",
                kind="limit",
            )
        self._parsing -= chunk.length

    def hash(self, count: int, offset: int) -> None:
        """Take `count` bytes."""
        if count > self._hashing:
            fail(
                "hashes cover the same bytes too often",
                offset=offset,
                field="chunk_offset",
                kind="limit",
            )
        self._hashing -= count


def check_length(chunk: Chunk) -> None:
    """Refuse a metadata chunk over 2 GB, and one whose `chunk_ulen` shows to be wrong."""
    if chunk.fourcc in METADATA and chunk.ulen > MAX_METADATA_ULEN:
        _too_long(chunk, f"chunk_ulen is {chunk.ulen}, over {MAX_METADATA_ULEN}")
    if not chunk.is_compressed:
        _check_ulen(chunk, chunk.length)


class Content:
    """The content of a chunk in blocks, `chunk_ulen` bytes together.

    To be gone through once. `unused` is at last how many stored bytes stand
    after a compressed chunk's frame. Raises FormatError where the content
    can't be decoded or has another length.
    """

    def __init__(self, aero: Aero, chunk: Chunk) -> None:
        self._stored = aero.stored(chunk)
        self._chunk = chunk
        self.unused = 0

    def __iter__(self) -> Iterator[Buffer]:
        if self._chunk.is_compressed:
            yield from self._decoded()
            return
        _check_ulen(self._chunk, self._chunk.length)
        yield from pieces(self._stored, BLOCK)

    def _decoded(self) -> Iterator[bytes]:
        frame = Frame(self._stored, "chunk", offset=self._chunk.offset)
        length = 0
        try:
            for block in frame.content(self._chunk.ulen):
                length += len(block)
                yield block
        except FormatError as error:
            if error.kind == "limit":
                _wrong_ulen(self._chunk, "more")
            raise
        _check_ulen(self._chunk, length)
        self.unused = self._chunk.length - frame.end


def content(aero: Aero, chunk: Chunk, limit: int = MAX_JSON) -> ByteView:
    """The whole content; raises FormatError, with kind "limit" where it is over `limit` bytes."""
    if chunk.ulen > limit:
        _too_long(chunk, f"chunk_ulen is {chunk.ulen}, over {limit}")
    if not chunk.is_compressed:
        return aero.stored(chunk)[: chunk.ulen]
    return memoryview(b"".join(Content(aero, chunk)))


def _check_ulen(chunk: Chunk, length: int) -> None:
    if length != chunk.ulen:
        _wrong_ulen(chunk, str(length))


def _wrong_ulen(chunk: Chunk, found: str) -> NoReturn:
    fail(
        f"chunk_ulen is {chunk.ulen}, the content has {found} bytes",
        offset=chunk.offset,
        field="chunk_ulen",
    )


def _too_long(chunk: Chunk, message: str) -> NoReturn:
    fail(message, offset=chunk.offset, field="chunk_ulen", kind="limit")


THREADED = 2**20
"""Bytes from which on hashing with several threads is faster."""

STEP = 8 * THREADED
"""Bytes of a file that are hashed at a time."""

SHOWN = 8

Span = tuple[int, int]
"""First byte and end."""


def hasher(size: int) -> Any:
    """BLAKE3 of about `size` bytes that come in pieces."""
    from blake3 import blake3  # not needed to list tensors, or to tell an index by its start

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
