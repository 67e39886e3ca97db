"""Where payloads stand: aligned, apart from one another, with zeros between them."""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    HEADER,
    OFFSET_AT,
    PAYLOAD_ALIGNMENT,
)
from wtxtgit.io.view import ByteView
from wtxtgit.model.reading import Findings

BLOCK = 2**20

FILE_HEADER, TOC, NAMES = -3, -2, -1
_CALLED = {FILE_HEADER: "file header", TOC: "TOC", NAMES: "string table"}

Extent = tuple[int, int, int]
"""Start, end, and what stands there: a chunk by its place in the TOC, or one of the above."""


def check(aero: Aero, found: Findings) -> None:
    """Check alignment, overlaps and gaps of header, TOC, string table and payloads."""
    for place, chunk in enumerate(aero.chunks):
        offset = aero.header.entry_offset(place) + OFFSET_AT
        if chunk.length == 0 and chunk.offset > len(aero.data):
            found.warn(
                "structure",
                f"chunk_offset {chunk.offset} of an empty chunk is past the file's end",
                offset=offset,
                field="chunk_offset",
                chunk=aero.label(chunk),
            )
        elif chunk.length and chunk.offset % PAYLOAD_ALIGNMENT:
            found.warn(
                "structure",
                f"chunk_offset {chunk.offset} is no multiple of {PAYLOAD_ALIGNMENT}",
                offset=offset,
                field="chunk_offset",
                chunk=aero.label(chunk),
            )
    end, before = 0, FILE_HEADER
    for start, stop, what in sorted(extents(aero)):
        if start < end:
            found.warn(
                "structure",
                f"{_called(aero, what)} overlaps {_called(aero, before)}",
                offset=start,
                field="chunk_offset",
            )
        else:
            _check_gap(aero.data, end, start, found)
        if stop > end:
            end, before = stop, what
    _check_gap(aero.data, end, len(aero.data), found)


def extents(aero: Aero) -> Iterator[Extent]:
    header = aero.header
    yield 0, HEADER.size, FILE_HEADER
    yield header.toc_offset, header.toc_offset + header.toc_length, TOC
    if header.names_length:
        yield header.names_offset, header.names_offset + header.names_length, NAMES
    for place, chunk in enumerate(aero.chunks):
        if chunk.length:
            yield chunk.offset, chunk.end, place


def _called(aero: Aero, what: int) -> str:
    return _CALLED.get(what) or f"chunk {aero.label(aero.chunks[what])!a}"


def _check_gap(data: ByteView, start: int, end: int, found: Findings) -> None:
    for pos in range(start, end, BLOCK):
        block = bytes(data[pos : min(pos + BLOCK, end)])
        if block.count(0) != len(block):
            found.warn(
                "structure",
                f"bytes {start} to {end} are in no chunk and not all zero",
                offset=start,
                field="chunk_offset",
            )
            return
