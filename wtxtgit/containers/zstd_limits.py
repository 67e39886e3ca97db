"""One zstd frame from an untrusted file, decoded within a bound.

No size that the frame claims is trusted. Frames of the formats before zstd
1.0 and skippable frames, which only some builds of the library read, are
refused here.
Spec: `docs/spec/containers.md`, "What is opaque"; RFC 8878.
"""

from __future__ import annotations

from wtxtgit.containers.cursor import fail

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 2**27
"""Largest window that a frame may ask for, in bytes."""
FEED = 512
"""Bytes given to the decoder at a time: the most that it can answer is
FEED / 4 blocks of 128 KiB, 16 MiB."""


def decode(data: memoryview, limit: int, what: str, *, offset: int = 0) -> bytes:
    """The content of the frame that `data` starts with; bytes after it are ignored.

    Raises FormatError, with kind "limit" where there are more than `limit`
    bytes of content.
    """
    if data[: len(FRAME_MAGIC)] != FRAME_MAGIC:
        fail(f"{what} is not a zstd frame", offset=offset, field=what)

    import zstandard  # only AERO needs it, and it takes time to import

    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    content: list[bytes] = []
    length = pos = 0
    while not decoder.eof:
        if pos >= len(data):
            fail(f"{what} ends inside its zstd frame", offset=offset + pos, field=what)
        try:
            block = decoder.decompress(bytes(data[pos : pos + FEED]))
        except zstandard.ZstdError:
            fail(f"{what} is not readable zstd", offset=offset + pos, field=what)
        content.append(block)
        length += len(block)
        if length > limit:
            fail(f"{what} is over {limit} bytes", offset=offset, field=what, kind="limit")
        pos += FEED
    return b"".join(content)
