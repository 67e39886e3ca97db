"""Chunks as text: `ch` lines, armored lines and `endch`, a run of chunks at a time.

All lines have a fixed length, so the size of a chunk's text follows from the
size of the chunk alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from wtxtgit.text import armor, grammar

_CHUNK_LINE = len(grammar.format_chunk(grammar.ChunkLine(0, 0, 0, bytes(32), 0, 0))) - 2
"""Bytes of a `ch` line without the digits of `len` and `lines`."""


def chunk_line_size(size: int) -> int:
    """Bytes of the `ch` line of a chunk of `size` bytes; all its other fields are fixed."""
    return _CHUNK_LINE + len(str(size)) + len(str(armor.line_count(size)))


@lru_cache(maxsize=1024)
def chunk_text_size(size: int) -> int:
    """Bytes of text of a chunk of `size` bytes, from its `ch` line to its `endch`."""
    armored = armor.line_count(size) * grammar.LINE_TEXT
    return chunk_line_size(size) + armored + len(grammar.END_CHUNK)


def render_chunks(
    text: armor.U1,
    start: int,
    raw: memoryview,
    first: int,
    offset: int,
    sha256: Sequence[bytes],
    crc32c: Sequence[int],
) -> int:
    """Write chunks of one size into `text` from `start` on; returns where they end.

    `raw` holds the chunks back to back, one for each of `sha256` and `crc32c`.
    The first of them is number `first` of its array and stands at `offset` there.
    """
    count = len(sha256)
    size = raw.nbytes // count
    head, stride, lines = chunk_line_size(size), chunk_text_size(size), armor.line_count(size)
    view = text.data
    position = start
    for k in range(count):
        line = grammar.ChunkLine(first + k, offset + k * size, size, sha256[k], crc32c[k], lines)
        view[position : position + head] = grammar.format_chunk(line)
        position += stride
        view[position - len(grammar.END_CHUNK) : position] = grammar.END_CHUNK
    armor.encode(raw, count, size, text, start + head, stride)
    return position
