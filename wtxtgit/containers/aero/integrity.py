"""The IHSH chunk: BLAKE3 of the control region with the TOC's hashes zeroed.

Spec: `docs/spec/aero.md`, "IHSH".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wtxtgit.containers import msgpack_limits
from wtxtgit.containers.aero.content import Allowance, content
from wtxtgit.containers.aero.digests import STEP, Span, hasher, short
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    DIGEST_SIZE,
    HASH_AT,
    INTEGRITY,
    TOC_ENTRY,
    TOC_HEADER,
    Chunk,
)
from wtxtgit.containers.cursor import fail
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.reading import Findings

ALGORITHM = "blake3-256"
PAYLOAD_SIZE = 256
"""The map is padded with zeros to this length."""


def check(aero: Aero, found: Findings, allowance: Allowance) -> None:
    """Check the digest in the first IHSH chunk; a file needs none."""
    chunk = aero.first(INTEGRITY)
    if chunk is None:
        return
    label = aero.label(chunk)
    try:
        _check_digest(aero, chunk, found, allowance)
    except FormatError as error:
        found.refuse(error, chunk=label)
    first = min((one.offset for one in aero.chunks if one.length), default=chunk.offset)
    if chunk.offset != first:
        found.warn(
            "structure",
            "IHSH is not the first payload",
            offset=chunk.offset,
            field="chunk_offset",
            chunk=label,
        )


def _check_digest(aero: Aero, chunk: Chunk, found: Findings, allowance: Allowance) -> None:
    label = aero.label(chunk)
    value = _parsed(aero, chunk)
    if value["algo"] != ALGORITHM:
        found.warn(
            "blake3",
            f"the algorithm is not {ALGORITHM}, so the control region can't be checked",
            offset=chunk.offset,
            field="algo",
            chunk=label,
        )
        return
    spans = _covered(value.get("covered_ranges"), chunk, len(aero.data))
    wanted = value.get("digest")
    if not isinstance(wanted, bytes) or len(wanted) != DIGEST_SIZE:
        fail("ihsh has a wrong digest", offset=chunk.offset, field="digest")
    if not _cover(spans, aero.header.control_end):
        found.warn(
            "structure",
            "IHSH does not cover all of header, TOC and string table",
            offset=chunk.offset,
            field="covered_ranges",
            chunk=label,
        )
    allowance.hash(sum(end - start for start, end in spans), chunk.offset)
    got = digest(aero.data, aero.header.toc_offset, len(aero.chunks), spans)
    if got != wanted:
        found.error(
            "blake3",
            f"BLAKE3 of the control region is {short(got)}, IHSH has {short(wanted)}",
            offset=chunk.offset,
            field="digest",
            chunk=label,
        )


def covered(aero: Aero) -> list[Span]:
    """What the digest of the first IHSH is of, nothing where there is none.

    Raises FormatError where it can't be read or its algorithm is not known.
    """
    chunk = aero.first(INTEGRITY)
    if chunk is None:
        return []
    value = _parsed(aero, chunk)
    if value["algo"] != ALGORITHM:
        fail(f"the algorithm is not {ALGORITHM}", offset=chunk.offset, field="algo")
    return _covered(value.get("covered_ranges"), chunk, len(aero.data))


def digest(data: ByteView, toc_offset: int, entries: int, spans: Sequence[Span]) -> bytes:
    """BLAKE3 of the spans of a file one after another, its TOC's hashes zeroed."""
    one = hasher(sum(end - start for start, end in spans))
    parts = list(_zeroed(data, toc_offset, entries))
    for start, end in spans:
        for offset, part in parts:
            for piece in pieces(part[max(start - offset, 0) : max(end - offset, 0)], STEP):
                one.update(piece)
    return bytes(one.digest())


def _parsed(aero: Aero, chunk: Chunk) -> dict[str, object]:
    """The map in an IHSH, with a text as `algo`."""
    value = msgpack_limits.parse(bytes(content(aero, chunk)), "ihsh", offset=chunk.offset)
    if not isinstance(value, dict):
        fail("ihsh is not a map", offset=chunk.offset, field="IHSH")
    if not isinstance(value.get("algo"), str):
        fail("ihsh names no algorithm", offset=chunk.offset, field="algo")
    return value


def _zeroed(data: ByteView, toc_offset: int, entries: int) -> Iterator[tuple[int, ByteView]]:
    """The file in three parts, each with where it starts, its TOC's hashes zeroed."""
    start = toc_offset + TOC_HEADER.size
    end = start + TOC_ENTRY.size * entries
    toc = bytearray(bytes(data[start:end]))
    for place in range(HASH_AT, HASH_AT + DIGEST_SIZE):
        toc[place :: TOC_ENTRY.size] = bytes(entries)
    yield 0, data[:start]
    yield start, memoryview(toc)
    yield end, data[end:]


def _covered(value: object, chunk: Chunk, size: int) -> list[Span]:
    if not isinstance(value, list):
        fail("ihsh has no list of ranges", offset=chunk.offset, field="covered_ranges")
    spans: list[Span] = []
    for item in value:
        match item:
            case [int(start), int(end)] if 0 <= start <= end <= size:
                spans.append((start, end))
            case _:
                fail("ihsh has a wrong range", offset=chunk.offset, field="covered_ranges")
    return spans


def _cover(spans: Sequence[Span], size: int) -> bool:
    end = 0
    for start, stop in sorted(spans):
        if start > end:
            break
        end = max(end, stop)
    return end >= size
