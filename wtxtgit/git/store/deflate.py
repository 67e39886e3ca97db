"""Deflate in independent pieces, which join to one zlib stream: RFC 1950 and 1951.

A piece ends with a full flush: it stands on a byte's boundary and refers to
nothing before it, so threads make, and read, pieces side by side.
"""

from __future__ import annotations

import zlib

from isal import isal_zlib

from wtxtgit.io.view import Buffer

HEAD = b"\x78\x01"
"""Deflate, a window of 32 KiB, the fastest level: what `zlib` writes for level 1."""
FLUSH = b"\x00\x00\xff\xff"
"""How the empty stored block of a flush ends."""
END = b"\x03\x00"
"""An empty last block, where a piece could begin."""
RAW = -15
Error: type[Exception] = isal_zlib.error  # type: ignore[assignment]
"""What ISA-L raises for a stream that it can't inflate; its stubs call it an instance."""
CHECKSUM_SIZE = 4

_LEVEL = 1
_NEAR = -9
"""A window of 512 bytes, some lines of armor.

Weights hardly repeat further apart than that; looking for it in 32 KiB takes
up to twice the time for the same size, within 2%.
"""
_STORED_MOST = 0xFFFF
_ADLER_BASE = 65521


def piece(data: Buffer) -> bytes:
    """Deflate bytes to a piece."""
    # ISA-L's first level takes armor down to its six bits a character, zlib's no further.
    compressor = isal_zlib.compressobj(_LEVEL, zlib.DEFLATED, _NEAR)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


def stored(data: Buffer) -> bytes:
    """Put bytes into stored blocks, as they are."""
    view = memoryview(data).cast("B")
    made = bytearray()
    for start in range(0, view.nbytes, _STORED_MOST):
        block = view[start : start + _STORED_MOST]
        made += b"\0" + block.nbytes.to_bytes(2, "little")
        made += (block.nbytes ^ _STORED_MOST).to_bytes(2, "little")
        made += block
    return bytes(made)


def adler32(data: Buffer) -> int:
    """Adler-32 of bytes."""
    value: int = isal_zlib.adler32(data)
    return value


def joined_adler32(first: int, second: int, nbytes: int) -> int:
    """Adler-32 of two runs of bytes from that of each; the second has `nbytes`."""
    low, high = first & 0xFFFF, first >> 16
    low_then, high_then = second & 0xFFFF, second >> 16
    high = (high + high_then + nbytes * (low - 1)) % _ADLER_BASE
    return (low + low_then - 1) % _ADLER_BASE | high << 16
