"""Zlib streams, written and read on several threads: RFC 1950 and 1951.

A stream is deflated in independent pieces. A piece ends with a full flush: it ends on a byte
boundary and nothing after it refers to bytes before that, so threads can deflate and inflate pieces
in parallel.

A full flush ends in the bytes 00 00 FF FF, so a stream is cut after these to be inflated. The same
bytes may occur by chance: then no block ends there, inflating fails, and the piece is joined to the
next. They may also be placed on purpose so that a block seems to end: zlib itself does not cut
streams, and the Adler-32 that is checked in the end proves nothing. The bytes are only known to be
right once their hash is the object's id.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.io.workers import Workers, address_space, keep_freed_memory, worthwhile

try:
    from isal import isal_zlib
except (ImportError, OSError):
    isal_zlib = None  # type: ignore[assignment]

codec: Any = isal_zlib or zlib
"""ISA-L takes a third of zlib's time. A broken install of it must not stop `git add`."""

HEAD = b"\x78\x01"
"""Deflate, a window of 32 KiB, the fastest level: what `zlib` writes for level 1."""
FLUSH = b"\x00\x00\xff\xff"
"""The end of the empty stored block of a flush."""
END = b"\x03\x00"
"""An empty last block, where a piece could begin."""
RAW = -15
Error: type[Exception] = codec.error
"""The error of the codec for a stream that can't be inflated."""
CHECKSUM_SIZE = 4

_LEVEL = 1
_NEAR = -9
"""A window of 512 bytes, which is some lines of armor.

Weights hardly repeat at larger distances: searching 32 KiB takes up to twice the time for the same
size, within 2%.
"""
_STORED_MOST = 0xFFFF
_ADLER_BASE = 65521


def deflated_piece(data: Buffer) -> bytes:
    """Deflate bytes to one independent piece."""
    # The first level of ISA-L compresses armor to its six bits per character; zlib's is no better.
    compressor = codec.compressobj(_LEVEL, zlib.DEFLATED, _NEAR)
    return bytes(compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH))


def stored_blocks(data: Buffer) -> bytes:
    """Encode bytes as stored (uncompressed) blocks."""
    view = memoryview(data).cast("B")
    blocks = bytearray()
    for start in range(0, view.nbytes, _STORED_MOST):
        block = view[start : start + _STORED_MOST]
        blocks += b"\0" + block.nbytes.to_bytes(2, "little")
        blocks += (block.nbytes ^ _STORED_MOST).to_bytes(2, "little")
        blocks += block
    return bytes(blocks)


def adler32(data: Buffer) -> int:
    """Return the Adler-32 of bytes."""
    value: int = codec.adler32(data)
    return value


def joined_adler32(first: int, second: int, nbytes: int) -> int:
    """Combine the Adler-32 of two adjacent runs of bytes; the second run has `nbytes`."""
    low, high = first & 0xFFFF, first >> 16
    second_low, second_high = second & 0xFFFF, second >> 16
    high = (high + second_high + nbytes * (low - 1)) % _ADLER_BASE
    return (low + second_low - 1) % _ADLER_BASE | high << 16


class ObjectContent(Protocol):
    """The content of an object: `size` bytes, which `stream` yields in order, in pieces.

    A yielded piece has to stay valid while some more are yielded.
    """

    @property
    def size(self) -> int: ...

    def stream(self) -> Iterable[Buffer]: ...


class PlainContent:
    """Content that is in memory or mapped, as a flat view."""

    def __init__(self, data: ByteView) -> None:
        self._data = data
        self.size = data.nbytes

    def stream(self) -> Iterator[Buffer]:
        # Copied: a mapped file may change between being hashed and being deflated.
        return map(bytes, pieces(self._data))


def deflated(
    content: ObjectContent, put: Callable[[bytes], None], threads: int, lead: bytes = b""
) -> Iterator[Buffer]:
    """Yield the pieces of a content, while `put` gets their zlib stream in order.

    The stream is complete when all pieces were taken. `lead` precedes the content in the stream.
    `put` is called in the thread that takes the pieces.
    """
    keep_freed_memory()
    # `lead` is a stored block of its own, so a reader of only the first bytes finds it.
    put(HEAD + stored_blocks(lead))
    adler = adler32(lead)
    tasks = (partial(_deflated, piece) for piece in content.stream())
    with Workers(tasks, worthwhile(threads, content.size)) as deflating:
        for piece, compressed, own in deflating:
            put(compressed)
            adler = joined_adler32(adler, own, memoryview(piece).nbytes)
            yield piece
    put(END + adler.to_bytes(CHECKSUM_SIZE, "big"))


def _deflated(piece: Buffer) -> tuple[Buffer, bytes, int]:
    return piece, deflated_piece(piece), adler32(piece)


_READ = 1024 * 1024
_SEARCHED = 64 * 1024
"""Bytes that are searched for the end of a piece at a time."""
_SKIPPED = 8
_LEAST_PIECE = 16 * 1024
"""Deflated bytes, which inflate to at most 17 MiB; smaller pieces are not worth a thread."""
_WINDOW = 32 * 1024
_MOST_PIECE = 8 * 1024 * 1024
"""Most deflated bytes that are searched for the end of a piece."""
_MOST_OUT = 32 * 1024 * 1024
"""Most inflated bytes of a piece; larger ones are inflated step by step."""
_PIECES_PART = 8
"""Inflated pieces may take one part in this many of a limited address space."""
_MOST_JOINED = 4
"""Most consecutive marks that end no piece; by chance there is one in 4 GiB."""
_AHEAD = 2
"""Inflated pieces, of some MiB each, that may wait for the consumer."""
_HEAD_SIZE = 2


class Damaged(Exception):
    """A stream does not inflate to what was expected."""


@dataclass(frozen=True, slots=True)
class _DeflatedPiece:
    """A range of deflated bytes in the file; the last piece may be followed by other data.

    `is_skipped`: its first part was not searched for marks, so it may be several pieces.
    """

    start: int
    end: int
    is_skipped: bool = False


@dataclass(frozen=True, slots=True)
class _Inflated:
    data: bytes
    adler: int
    is_last: bool
    unused: int


def inflated(
    descriptor: int, start: int, nbytes: int, threads: int = 1, *, is_last: bool = False
) -> Iterator[bytes]:
    """Yield, in pieces, the `nbytes` that a zlib stream at `start` of an open file inflates to.

    Raises Damaged, perhaps after some pieces, if the stream is invalid or gives another number of
    bytes, and with `is_last` if it does not end with the file. A stream can be crafted so that zlib
    inflates it to something else: the caller has to check the hash.
    """
    keep_freed_memory()
    check = _InflatedBytes(nbytes)
    head = os.pread(descriptor, _HEAD_SIZE, start)
    # RFC 1950, section 2.2: method 8 is deflate, and the two bytes are a multiple of 31.
    if len(head) != _HEAD_SIZE or head[0] & 0xF != 8 or int.from_bytes(head, "big") % 31:
        raise Damaged("it does not begin like a zlib stream")
    # FDICT: git never writes a preset dictionary.
    if head[1] & 0x20:
        raise Damaged("it needs a dictionary")
    start += _HEAD_SIZE
    # What could not be cut into pieces is inflated in this thread.
    if threads > 1:
        start = yield from _inflate_in_parallel(descriptor, start, threads, check)
    if not check.is_done:
        yield from _inflate_serially(descriptor, start, check)
    if is_last and os.fstat(descriptor).st_size != check.end:
        raise Damaged("more data follows it")


class _InflatedBytes:
    """Counts and hashes inflated bytes; `window` are those that may still be referred to."""

    def __init__(self, nbytes: int) -> None:
        self._left = nbytes
        self._adler = 1
        self.window = b""
        self.end = 0

    def take(self, data: bytes, adler: int | None = None) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise Damaged("it has more bytes than it states")
        own = adler32(data) if adler is None else adler
        self._adler = joined_adler32(self._adler, own, len(data))
        self.window = (self.window + data[-_WINDOW:])[-_WINDOW:]
        return data

    @property
    def is_done(self) -> bool:
        return self.end > 0

    def finish(self, descriptor: int, end: int) -> None:
        """Check the size, and the checksum that follows the deflated bytes at `end`."""
        if self._left:
            raise Damaged(f"{self._left} bytes are missing")
        checksum = os.pread(descriptor, CHECKSUM_SIZE, end)
        if checksum != self._adler.to_bytes(CHECKSUM_SIZE, "big"):
            raise Damaged("its checksum does not match")
        self.end = end + CHECKSUM_SIZE


def _inflate_serially(descriptor: int, start: int, check: _InflatedBytes) -> Iterator[bytes]:
    """Inflate from the start of a piece to the end of the stream, in this thread."""
    inflater = codec.decompressobj(RAW, check.window)
    pending = b""
    is_full = False
    while not inflater.eof:
        if not (pending or is_full):
            pending = os.pread(descriptor, _READ // 4, start)
            start += len(pending)
            if not pending:
                raise Damaged("it is cut short")
        try:
            data = inflater.decompress(pending, _READ)
        except Error as error:
            raise Damaged(str(error)) from error
        pending = inflater.unconsumed_tail
        # The codec may have taken all input, and have more to give than was asked for.
        is_full = len(data) == _READ
        if data:
            yield check.take(data)
    check.finish(descriptor, start - len(inflater.unused_data))


def _inflate_in_parallel(
    descriptor: int, start: int, threads: int, check: _InflatedBytes
) -> Generator[bytes, None, int]:
    """Inflate pieces on threads; returns the offset of the first byte that was not inflated."""
    remaining = yield from _inflate_pieces(descriptor, start, threads, check, may_skip=True)
    if remaining.is_skipped:
        # Perhaps too much was skipped: from here on marks are searched for everywhere.
        remaining = yield from _inflate_pieces(
            descriptor, remaining.start, threads, check, may_skip=False
        )
    return remaining.start


def _inflate_pieces(
    descriptor: int, start: int, threads: int, check: _InflatedBytes, *, may_skip: bool
) -> Generator[bytes, None, _DeflatedPiece]:
    """Inflate pieces as `_pieces` finds them; returns the rest that was not inflated.

    The rest `is_skipped` if marks may be in parts that were not searched.
    """
    incomplete: _DeflatedPiece | None = None
    joined = 0
    cut_pieces = _pieces(descriptor, start, may_skip=may_skip)
    tasks = (partial(_inflate, descriptor, piece) for piece in cut_pieces)
    # Zeros inflate to a thousand times the size of the piece.
    room = address_space() // _PIECES_PART // _MOST_OUT
    ahead = max(1, min(threads + _AHEAD, room))
    with Workers(tasks, threads, ahead=ahead) as inflating:
        for piece, content in inflating:
            if incomplete is None:
                joined = 0
            else:
                piece = _DeflatedPiece(incomplete.start, piece.end, piece.is_skipped)
                joined += 1
                if joined > _MOST_JOINED or piece.end - piece.start > _MOST_PIECE:
                    return _DeflatedPiece(piece.start, piece.end)
                _, content = _inflate(descriptor, piece)
            if content is None:
                if piece.is_skipped:
                    return piece
                incomplete = piece
                continue
            incomplete = None
            start = piece.end
            yield check.take(content.data, content.adler)
            if content.is_last:
                check.finish(descriptor, start - content.unused)
                break
    return incomplete or _DeflatedPiece(start, start)


def _pieces(descriptor: int, start: int, *, may_skip: bool) -> Iterator[_DeflatedPiece]:
    """Yield pieces of the file from `start` on, cut after the marks of flushes.

    With `may_skip` not all bytes are searched for marks. Stops if no mark is found for long; the
    last piece is the file's rest without a mark.
    """
    skipped = 0
    at = start + _LEAST_PIECE
    while at - start <= _MOST_PIECE:
        block = os.pread(descriptor, _SEARCHED, at)
        mark = block.find(FLUSH)
        if mark < 0 and len(block) == _SEARCHED:
            at += _SEARCHED - len(FLUSH) + 1
            continue
        end = os.fstat(descriptor).st_size if mark < 0 else at + mark + len(FLUSH)
        if start < end <= start + 2 * _MOST_PIECE:
            yield _DeflatedPiece(start, end, is_skipped=skipped > 0)
        if mark < 0:
            return
        # Most pieces are about as long as the one before, and searching costs a third of inflating.
        skipped = (end - start) // _SKIPPED * (_SKIPPED - 1) if may_skip else 0
        start = end
        at = start + max(skipped, _LEAST_PIECE)


def _inflate(descriptor: int, piece: _DeflatedPiece) -> tuple[_DeflatedPiece, _Inflated | None]:
    """Inflate a piece, and return both; None if it is not a complete piece, or too large."""
    data = os.pread(descriptor, piece.end - piece.start, piece.start)
    inflater = codec.decompressobj(RAW)
    try:
        out = inflater.decompress(data, _MOST_OUT)
        if len(out) >= _MOST_OUT or inflater.unconsumed_tail:
            return piece, None
        if inflater.eof:
            return piece, _Inflated(out, adler32(out), True, len(inflater.unused_data))
        # If an empty last block is accepted here and nothing remains, a block ended here.
        out += inflater.decompress(END)
    except Error:
        return piece, None
    if not inflater.eof or inflater.unused_data:
        return piece, None
    return piece, _Inflated(out, adler32(out), False, 0)
