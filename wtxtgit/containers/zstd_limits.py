"""One zstd frame from an untrusted file, decoded within a bound.

No size that the frame claims is trusted. Frames of the formats before zstd 1.0 and skippable
frames, which only some builds of the library can read, are refused here. `decode` is for content
that decides how a file is cut; what it refuses must never change. `Frame` is for content that may
be long. Spec: `docs/spec/containers.md`, "What is opaque"; RFC 8878, section 3.1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from wtxtgit.containers.cursor import fail
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, mapped

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
# Largest window in bytes that a frame may request: what zstd's own tools accept without a flag. The
# decoder allocates it at once, whatever the content is.
MAX_WINDOW = 2**27
# How much of a window may be filled, whatever the frame's own size.
FREE_WINDOW = 2**25
# Bytes given to the decoder at a time: it can return at most FEED / 4 blocks of 128 KiB, 4 MiB. A
# bomb is noticed after that much.
FEED = 128
MAX_FRAME_HEADER = 18
BLOCK_HEADER = 3
# Most bytes of content in a compressed block (RFC 8878, section 3.1.1.2.4).
MAX_BLOCK = 2**17
RLE, COMPRESSED = 1, 2
CHECKSUM = 4
# No further block is added to a batch after this many bytes of content, or of blocks: the decoder
# returns a whole batch in one piece of memory.
BATCH = 2**20


def decode(data: ByteView, limit: int, what: str, *, offset: int = 0) -> bytes:
    """Return the content of the frame with which `data` starts; bytes after it are ignored.

    Raises FormatError, with kind "limit" if there are more than `limit` bytes of content.
    """
    if data[: len(FRAME_MAGIC)] != FRAME_MAGIC:
        fail(f"{what} is not a zstd frame", offset=offset, field=what)

    import zstandard  # only compressed chunks need it, and it takes time to import

    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    content: list[bytes] = []
    length = pos = 0
    while not decoder.eof:
        if pos >= len(data):
            fail(f"{what} ends inside its zstd frame", offset=offset + pos, field=what)
        try:
            block = decoder.decompress(bytes(data[pos : pos + FEED]))
        except zstandard.ZstdError:
            fail(f"{what} can't be decompressed with zstd", offset=offset + pos, field=what)
        content.append(block)
        length += len(block)
        if length > limit:
            fail(f"{what} is over {limit} bytes", offset=offset, field=what, kind="limit")
        pos += FEED
    return b"".join(content)


def packed(blocks: Iterable[Buffer], nbytes: int, level: int) -> Iterator[bytes]:
    """Compress `nbytes` bytes to one frame that states its size; without a checksum."""
    import zstandard

    packer = zstandard.ZstdCompressor(level=level).compressobj(size=nbytes)
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()


class Frame:
    """The frame with which `data` starts; `offset` is the position of `data` in its file.

    Its blocks are parsed, so that the decoder never gets more of them at a time than it can answer
    with about 2 MiB. `content_size` is what the frame claims, None if it claims nothing. `end` is
    how far the frame has been decoded, in the end its length. Raises FormatError if there is no
    frame.
    """

    def __init__(self, data: ByteView, what: str, *, offset: int = 0) -> None:
        self._data = data
        self._what = what
        self._offset = offset
        if data[: len(FRAME_MAGIC)] != FRAME_MAGIC:
            fail(f"{what} is not a zstd frame", offset=offset, field=what)

        import zstandard

        head = bytes(data[:MAX_FRAME_HEADER])
        try:
            parameters = zstandard.get_frame_parameters(head)
            self._start = zstandard.frame_header_size(head)
        except zstandard.ZstdError:
            fail(f"{what} can't be decompressed with zstd", offset=offset, field=what)
        if parameters.window_size > MAX_WINDOW:
            # For a frame that comes in one piece the library does not check this.
            fail(f"{what} has too large a zstd window", offset=offset, field=what, kind="limit")
        unknown = parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN
        self.content_size = None if unknown else int(parameters.content_size)
        self._window = parameters.window_size
        self._is_too_wide = False
        self._checksum = CHECKSUM if parameters.has_checksum else 0
        self.end = 0

    def content(self, limit: int) -> Iterator[bytes]:
        """Yield the content, in pieces of at most about 2 MiB; to be called once.

        Raises FormatError, with kind "limit" if there are more than `limit` bytes of content.
        """
        import zstandard

        decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
        # The decoder keeps as much of the content as the window's size.
        most_kept = max(FREE_WINDOW, len(self._data))
        length = 0
        last = False
        pos = self._start
        while not last:
            pos, last = self._batch(pos)
            try:
                block = decoder.decompress(mapped(self._data[self.end : pos]))
            except zstandard.ZstdError:
                self._fail("can't be decompressed with zstd")
            length += len(block)
            if min(length, self._window) > most_kept:
                self._is_too_wide = True
                what = f"{self._what} has too large a zstd window for so few bytes"
                fail(what, offset=self._offset, field=self._what, kind="limit")
            if length > limit:
                fail(
                    f"{self._what} is over {limit} bytes",
                    offset=self._offset,
                    field=self._what,
                    kind="limit",
                )
            self.end = pos
            yield block
        if not decoder.eof:
            self._fail("can't be decompressed with zstd")

    def exactly(self, nbytes: int, refuse: Callable[[str], NoReturn]) -> Iterator[bytes]:
        """Yield the content; `refuse` is called with the number of bytes if it is not `nbytes`."""
        count = 0
        try:
            for block in self.content(nbytes):
                count += len(block)
                yield block
        except FormatError as error:
            if error.kind == "limit" and not self._is_too_wide:
                refuse("more")
            raise
        if count != nbytes:
            refuse(str(count))

    def _batch(self, pos: int) -> tuple[int, bool]:
        """Return where the next batch of blocks ends, and whether it is the last one."""
        start, size = pos, len(self._data)
        content, last = 0, False
        while not last and content < BATCH and pos - start < BATCH:
            head = int.from_bytes(self._data[pos : pos + BLOCK_HEADER], "little")
            last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
            content += MAX_BLOCK if kind == COMPRESSED else length
            pos += BLOCK_HEADER + (1 if kind == RLE else length)
            if last:
                pos += self._checksum
            if pos > size:
                fail(
                    f"{self._what} ends inside its zstd frame",
                    offset=self._offset + size,
                    field=self._what,
                )
        return pos, last

    def _fail(self, reason: str) -> None:
        fail(f"{self._what} {reason}", offset=self._offset + self.end, field=self._what)
