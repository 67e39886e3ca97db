"""Inflating a zlib stream of a file; on several threads where it was made of pieces.

A full flush ends in the bytes 00 00 FF FF, and what follows refers to nothing
before it, so a stream that has them is cut there and its pieces are inflated
side by side. The same bytes may stand in a stream by chance: then what ends
there does not end a block, which inflating it shows, and it is joined to what
follows. They may stand there by design, too, and seem to end one: zlib knows
no rule by which a stream is cut, and the Adler-32 that is checked in the end
is no proof. What is given is right where its hash is the object's id.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from isal import isal_zlib

from wtxtgit.git.store import deflate
from wtxtgit.io.memory import keep_freed_memory

_READ = 1024 * 1024
_LOOK = 64 * 1024
"""Bytes in which the end of a piece is looked for at a time."""
_SKIPPED = 8
_LEAST_PIECE = 16 * 1024
"""Deflated bytes that hold at most 17 MiB; a piece of fewer is not worth a thread's attention."""
_WINDOW = 32 * 1024
_MOST_PIECE = 8 * 1024 * 1024
"""Deflated bytes up to which the end of a piece is looked for."""
_MOST_OUT = 32 * 1024 * 1024
"""Inflated bytes of a piece; what gives more is inflated step by step."""
_MOST_JOINED = 4
"""Marks in a row that end no piece; by chance there is one in 4 GiB."""
_HEAD_SIZE = 2


class Damaged(Exception):
    """A stream that can't be inflated to what it should be."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where deflated bytes stand in the file; the last ones may have more behind their end.

    Where `is_skipped`, its first part was not looked through: it may be several.
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
    """Give the `nbytes` that a zlib stream at `start` of an open file holds, in pieces.

    Raises Damaged, maybe after some pieces, for any other stream, and with
    `is_last` for one that does not end with the file. A stream can be made so
    that it holds something else for zlib: whoever takes the bytes hashes them.
    """
    keep_freed_memory()
    check = _Check(nbytes)
    head = os.pread(descriptor, _HEAD_SIZE, start)
    if len(head) != _HEAD_SIZE or head[0] & 0xF != 8 or int.from_bytes(head, "big") % 31:
        raise Damaged("it does not begin as zlib's streams do")
    if head[1] & 0x20:
        raise Damaged("it needs a dictionary")
    start += _HEAD_SIZE
    if threads > 1:
        start = yield from _side_by_side(descriptor, start, threads, check)
    if not check.is_done:
        yield from _one_by_one(descriptor, start, check)
    if is_last and os.fstat(descriptor).st_size != check.end:
        raise Damaged("more stands behind it")


class _Check:
    """Counts and hashes what was given; `window` is what may still be referred to."""

    def __init__(self, nbytes: int) -> None:
        self._left = nbytes
        self._adler = 1
        self.window = b""
        self.end = 0

    def take(self, data: bytes, adler: int | None = None) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise Damaged("it holds more bytes than it says")
        own = deflate.adler32(data) if adler is None else adler
        self._adler = deflate.joined_adler32(self._adler, own, len(data))
        self.window = (self.window + data[-_WINDOW:])[-_WINDOW:]
        return data

    @property
    def is_done(self) -> bool:
        return self.end > 0

    def finish(self, descriptor: int, end: int) -> None:
        """Compare with the checksum behind the deflated bytes, which stop at `end`."""
        if self._left:
            raise Damaged(f"it lacks {self._left} bytes")
        checksum = os.pread(descriptor, deflate.CHECKSUM_SIZE, end)
        if checksum != self._adler.to_bytes(deflate.CHECKSUM_SIZE, "big"):
            raise Damaged("its checksum is another")
        self.end = end + deflate.CHECKSUM_SIZE


def _one_by_one(descriptor: int, start: int, check: _Check) -> Iterator[bytes]:
    """Inflate from a piece's begin to the end, in this thread."""
    inflater = isal_zlib.decompressobj(deflate.RAW, check.window)
    given = b""
    while not inflater.eof:
        if not given:
            given = os.pread(descriptor, _READ // 4, start)
            start += len(given)
            if not given:
                raise Damaged("it is cut short")
        try:
            data = inflater.decompress(given, _READ)
        except deflate.Error as error:
            raise Damaged(str(error)) from error
        given = inflater.unconsumed_tail
        if data:
            yield check.take(data)
    check.finish(descriptor, start - len(inflater.unused_data))


def _side_by_side(
    descriptor: int, start: int, threads: int, check: _Check
) -> Generator[bytes, None, int]:
    """Inflate pieces on threads; gives where the rest begins, of which none was given."""
    carried: _Piece | None = None
    joined = 0
    with ThreadPoolExecutor(threads) as pool:
        window: deque[tuple[_Piece, Future[_Inflated | None]]] = deque()
        pieces = _pieces(descriptor, start, may_skip=True)
        try:
            while True:
                while len(window) <= 2 * threads and (piece := next(pieces, None)) is not None:
                    window.append((piece, pool.submit(_inflate, descriptor, piece)))
                if not window:
                    return carried.start if carried else start
                piece, future = window.popleft()
                if carried is None:
                    made, joined = future.result(), 0
                else:
                    future.cancel()
                    piece = _Piece(carried.start, piece.end, piece.is_skipped)
                    joined += 1
                    if joined > _MOST_JOINED or piece.end - piece.start > _MOST_PIECE:
                        return piece.start
                    made = _inflate(descriptor, piece)
                if made is None:
                    carried = piece
                    if piece.is_skipped:
                        # Too many at once, perhaps: from here on they are looked for one by one.
                        while window:
                            window.popleft()[1].cancel()
                        pieces, carried = _pieces(descriptor, piece.start, may_skip=False), None
                    continue
                carried = None
                start = piece.end
                yield check.take(made.data, made.adler)
                if made.is_last:
                    check.finish(descriptor, start - made.unused)
                    return start
        finally:
            for _, future in window:
                future.cancel()


def _pieces(descriptor: int, start: int, *, may_skip: bool) -> Iterator[_Piece]:
    """Cut what stands from `start` on behind marks of a flush.

    With `may_skip` not all of a piece is looked through. Ends where none is found
    for long; the file's rest, without a mark, is the last.
    """
    skipped = 0
    at = start + _LEAST_PIECE
    while at - start <= _MOST_PIECE:
        block = os.pread(descriptor, _LOOK, at)
        found = block.find(deflate.FLUSH)
        if found < 0 and len(block) == _LOOK:
            at += _LOOK - len(deflate.FLUSH) + 1
            continue
        end = os.fstat(descriptor).st_size if found < 0 else at + found + len(deflate.FLUSH)
        if start < end <= start + 2 * _MOST_PIECE:
            yield _Piece(start, end, is_skipped=skipped > 0)
        if found < 0:
            return
        # Most pieces are about as long as the one before: looking costs a third of inflating.
        skipped = (end - start) // _SKIPPED * (_SKIPPED - 1) if may_skip else 0
        start = end
        at = start + max(skipped, _LEAST_PIECE)


def _inflate(descriptor: int, piece: _Piece) -> _Inflated | None:
    """Inflate a piece; None where it is none, or is too large."""
    data = os.pread(descriptor, piece.end - piece.start, piece.start)
    inflater = isal_zlib.decompressobj(deflate.RAW)
    try:
        out = inflater.decompress(data, _MOST_OUT)
        if len(out) >= _MOST_OUT or inflater.unconsumed_tail:
            return None
        if inflater.eof:
            return _Inflated(out, deflate.adler32(out), True, len(inflater.unused_data))
        # A block that could begin here, and nothing left of it: one ended here.
        out += inflater.decompress(deflate.END)
    except deflate.Error:
        return None
    if not inflater.eof or inflater.unused_data:
        return None
    return _Inflated(out, deflate.adler32(out), False, 0)
