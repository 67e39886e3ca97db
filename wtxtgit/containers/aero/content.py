"""The content of chunks, decompressed within bounds, and its BLAKE3 hashes.

TOC entries may share bytes, and compressed ones may hold far more than their stored bytes: what is
decoded and hashed of a whole file is bounded. A chunk, its pages and its tensors are hashed in one
pass, block by block, while the block is in the processor's cache. Spec: `docs/spec/aero.md`,
"Limits".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from wtxtgit.containers.aero.read import MAX_METADATA_ULEN, METADATA, Aero, AeroChunk
from wtxtgit.containers.budget import Budget, DecodingBudget
from wtxtgit.containers.cursor import fail
from wtxtgit.containers.intervals import Span
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.zstd_limits import Frame
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, Windowed, hashed, pieces
from wtxtgit.io.workers import blake3_hasher
from wtxtgit.model.tensor import ReadOptions

# Bytes of content in a block: all hashes of a block are computed while it is in the processor's
# cache, and it is enough for several threads.
BLOCK = 4 * 2**20
# How many times a file's size may be hashed. Each byte of a usual file is hashed three times: as
# part of a chunk, a page, a tensor. Entries of a hostile file share bytes.
MOST_PASSES = 8
# This many bytes may be hashed however small the file is.
LEAST_HASHED = 2**20
MAX_NAMES = MAX_JSON
# Bytes of all chunk names per byte of the file, up to MAX_NAMES: names may share bytes of the
# string table, so a small file can claim long ones.
NAMES_A_BYTE = 8
# Bytes of a file that are read and hashed at a time.
STEP = 2**23
SHOWN = 8


class Allowance:
    """What may still be decoded, parsed and hashed of one file.

    Spending more raises FormatError.
    """

    def __init__(self, size: int, options: ReadOptions) -> None:
        self.progress = options.progress
        self._max_chunk = options.max_chunk
        self._decoding = DecodingBudget(size, options, "chunk_ulen")
        message = "hashes cover the same bytes too many times"
        self._hashing = Budget(max(MOST_PASSES * size, LEAST_HASHED), message, "chunk_offset")
        message = "chunks share the same bytes too many times"
        self._parsing = Budget(size, message, "chunk_offset")

    def decode(self, chunk: AeroChunk) -> None:
        """Spend what decoding the chunk costs, by its `chunk_ulen`; nothing for a plain chunk."""
        if not chunk.is_compressed:
            return
        refuse_over(chunk, self._max_chunk)
        self._decoding.take(chunk.ulen, chunk.offset)
        # Decoded bytes are hashed as often as bytes in the file.
        self._hashing.left += MOST_PASSES * chunk.ulen

    def parse(self, chunk: AeroChunk) -> None:
        """Spend what parsing an uncompressed chunk costs."""
        self._parsing.take(chunk.length, chunk.offset)

    def hash(self, count: int, offset: int) -> None:
        """Spend `count` bytes."""
        self._hashing.take(count, offset)


def check_length(chunk: AeroChunk) -> None:
    """Refuse a metadata chunk over 2 GB, and one whose `chunk_ulen` is evidently wrong."""
    if chunk.fourcc in METADATA:
        refuse_over(chunk, MAX_METADATA_ULEN)
    if not chunk.is_compressed and chunk.length != chunk.ulen:
        _wrong_ulen(chunk, str(chunk.length))


class ChunkContent:
    """The content of a chunk in blocks, `chunk_ulen` bytes in total.

    To be iterated once. In the end `unused` is the number of stored bytes after a compressed
    chunk's frame. Raises FormatError if the content can't be decoded or has another length.
    """

    def __init__(self, aero: Aero, chunk: AeroChunk) -> None:
        self._stored = aero.stored(chunk)
        self._chunk = chunk
        self.unused = 0

    def __iter__(self) -> Iterator[Buffer]:
        chunk = self._chunk
        if not chunk.is_compressed:
            check_length(chunk)
            yield from pieces(self._stored, BLOCK)
            return
        frame = Frame(self._stored, "chunk", offset=chunk.offset)
        yield from frame.exactly(chunk.ulen, partial(_wrong_ulen, chunk))
        self.unused = chunk.length - frame.end


def content(aero: Aero, chunk: AeroChunk, limit: int = MAX_JSON) -> ByteView:
    """Return the whole content; raises FormatError, kind "limit" if it is over `limit` bytes."""
    refuse_over(chunk, limit)
    if not chunk.is_compressed:
        return aero.stored(chunk)[: chunk.ulen]
    return spooled(ChunkContent(aero, chunk))


def refuse_over(chunk: AeroChunk, limit: int) -> None:
    """Raise FormatError (limit) if a chunk's content has over `limit` bytes."""
    if chunk.ulen > limit:
        fail(
            f"chunk_ulen is {chunk.ulen}, over {limit}",
            offset=chunk.offset,
            field="chunk_ulen",
            kind="limit",
        )


def _wrong_ulen(chunk: AeroChunk, length: str) -> NoReturn:
    fail(
        f"chunk_ulen is {chunk.ulen}, but the content has {length} bytes",
        offset=chunk.offset,
        field="chunk_ulen",
    )


def digest(data: Buffer | ByteView) -> bytes:
    view = data if isinstance(data, Windowed) else memoryview(data)
    return bytes(hashed(blake3_hasher(len(data)), pieces(view, STEP)).digest())


def short(value: bytes) -> str:
    """Return the start of a digest, for messages."""
    return value[:SHOWN].hex()


def page_spans(size: int, page_size: int) -> list[Span]:
    """Return the pages of a content of `size` bytes; the last one may be shorter."""
    return [(start, min(start + page_size, size)) for start in range(0, size, page_size)]


def digest_spans(blocks: Iterable[Buffer], spans: Iterable[Span]) -> dict[Span, bytes]:
    """Return the digest of each span of the stream in `blocks`; spans may overlap.

    Spans must end within the stream.
    """
    waiting = sorted(set(spans), reverse=True)
    digests: dict[Span, bytes] = {}
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
                digests[span] = digest(piece)
            else:
                running.append((span, blake3_hasher(span[1] - span[0]).update(piece)))
        digests.update((span, one.digest()) for span, one in running if span[1] <= end)
        running = [(span, one) for span, one in running if span[1] > end]
        start = end
    # Empty spans at the end of the stream.
    digests.update((span, digest(b"")) for span in waiting if span[0] == span[1])
    return digests
