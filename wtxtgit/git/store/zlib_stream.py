"""One zlib stream of a content, deflated on all cores while the content passes by."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from wtxtgit.git.store import deflate
from wtxtgit.io.memory import keep_freed_memory
from wtxtgit.io.view import Buffer, ByteView, pieces

_SMALL = 64 * 1024
"""Bytes that are deflated sooner than another thread gets to them."""


class Content(Protocol):
    """What an object holds: `size` bytes, which `stream` gives in order, in pieces.

    A piece may be kept until some more were given.
    """

    @property
    def size(self) -> int: ...

    def stream(self) -> Iterable[Buffer]: ...


class Plain:
    """A content that is at hand, a flat view of bytes."""

    def __init__(self, data: ByteView) -> None:
        self._data = data
        self.size = data.nbytes

    def stream(self) -> Iterator[Buffer]:
        # Copied: a file that is mapped may change between being hashed and deflated.
        return map(bytes, pieces(self._data))


def deflated(
    content: Iterable[Buffer], put: Callable[[bytes], None], threads: int, lead: bytes = b""
) -> Iterator[Buffer]:
    """Give pieces of a content on, while `put` gets their zlib stream in order.

    The stream is whole when all pieces were taken. `lead` stands before the
    content in it. `put` is called in the thread that takes the pieces.
    """
    keep_freed_memory()
    # One block that the content follows: a reader of the first bytes alone finds it.
    put(deflate.HEAD + deflate.stored(lead))
    adler = deflate.adler32(lead)
    waiting: deque[tuple[int, Future[tuple[bytes, int]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:

        def take() -> None:
            nonlocal adler
            nbytes, future = waiting.popleft()
            made, own = future.result()
            put(made)
            adler = deflate.joined_adler32(adler, own, nbytes)

        for piece in content:
            nbytes = memoryview(piece).nbytes
            waiting.append((nbytes, _submitted(pool, piece, nbytes)))
            yield piece
            while len(waiting) > 2 * threads or (waiting and waiting[0][1].done()):
                take()
        while waiting:
            take()
    put(deflate.END + adler.to_bytes(deflate.CHECKSUM_SIZE, "big"))


def _submitted(pool: ThreadPoolExecutor, piece: Buffer, nbytes: int) -> Future[tuple[bytes, int]]:
    if nbytes > _SMALL:
        return pool.submit(_deflated, piece)
    done: Future[tuple[bytes, int]] = Future()
    done.set_result(_deflated(piece))
    return done


def _deflated(piece: Buffer) -> tuple[bytes, int]:
    return deflate.piece(piece), deflate.adler32(piece)
