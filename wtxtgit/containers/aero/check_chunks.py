"""Chunks of an AERO file that hide others of the same name or type, or that nothing can read.

Readers take the first chunk of a name, and the first one of a metadata type. The content of the
others is out of reach, unless it is a copy. Spec: `docs/spec/aero.md`, "What is checked".
"""

from __future__ import annotations

import re

from wtxtgit.containers import json_text, msgpack_limits
from wtxtgit.containers.aero.chunks import (
    INDEX_NAME,
    INTEGRITY_NAME,
    JSON_NAME,
    MANIFEST_NAME,
)
from wtxtgit.containers.aero.content import content
from wtxtgit.containers.aero.describe import MAX_SHOWN
from wtxtgit.containers.aero.read import (
    INDEX,
    INTEGRITY,
    JSON,
    MANIFEST,
    NAME_AT,
    NO_HASH,
    PAGES,
    SHARD,
    Aero,
    AeroChunk,
    index_content,
    parse_index,
)
from wtxtgit.containers.cursor import quoted
from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings

_TYPES = {
    JSON_NAME: JSON,
    MANIFEST_NAME: MANIFEST,
    INDEX_NAME: INDEX,
    INTEGRITY_NAME: INTEGRITY,
}
_NUMBERED = re.compile(rb"weights\.shard[0-9]{1,20}(\.phsh)?")
_LONGEST = 64
"""No name that a writer gives is longer."""


def check_types(aero: Aero, findings: Findings) -> None:
    """Check that metadata can be read, and that no chunk's type hides what its name promises."""
    for fourcc in (INDEX, JSON, MANIFEST):
        same = [chunk for chunk in aero.chunks if chunk.fourcc == fourcc]
        for chunk in same[1:2]:
            further = [chunk for chunk in same[1:] if _place(chunk) != _place(same[0])]
            # An index may be as large as the file: if there are several, none is read.
            is_bounded = fourcc != INDEX or len(set(map(_place, further))) < 2
            adds = not is_bounded or any(_adds(aero, chunk) for chunk in further)
            (findings.error if adds else findings.warn)(
                f"{len(same)} {fourcc.decode()} chunks; readers use the first",
                "fourcc",
                aero.header.entry_offset(chunk.place),
                chunk,
            )
    _check_metadata(aero, findings)
    shard = next((c for c in aero.chunks if c.fourcc == SHARD and c.ulen), None)
    if aero.first(INDEX) is None:
        say = findings.warn if shard is None else findings.error
        say("no TIDX chunk, so the file has no tensors", "fourcc", aero.header.toc_offset)
    for chunk in aero.chunks:
        if chunk.name_len > _LONGEST or chunk.is_wiped:
            continue
        usual = usual_type(aero.name(chunk))
        if usual is not None and usual != chunk.fourcc:
            findings.error(
                f"the type is {chunk.fourcc.decode('latin-1')!a}, "
                f"but chunks with this name are {usual.decode()}",
                "fourcc",
                aero.header.entry_offset(chunk.place),
                chunk,
            )


def check_taken_names(aero: Aero, findings: Findings) -> None:
    """Check chunks whose type and name another one has: readers find only the first."""
    by_name: dict[tuple[bytes, bytes], AeroChunk] = {}
    for chunk in aero.chunks:
        name = aero.name(chunk)
        if chunk.is_wiped or not name:
            continue
        first = by_name.setdefault((chunk.fourcc, name), chunk)
        if first is not chunk:
            (findings.warn if _is_same(first, chunk) else findings.error)(
                "chunk name appears more than once; readers use the first",
                "name_off",
                aero.header.entry_offset(chunk.place) + NAME_AT,
                chunk,
            )


def usual_type(name: bytes) -> bytes | None:
    """Return the type of chunks with this name, if writers use the name for only one type."""
    numbered = _NUMBERED.fullmatch(name)
    if numbered is not None:
        return SHARD if numbered[1] is None else PAGES
    return _TYPES.get(name)


def _is_same(one: AeroChunk, other: AeroChunk) -> bool:
    """Whether two chunks claim to hold the same content; their hashes are checked elsewhere."""
    if one.digest != NO_HASH and (one.ulen, one.digest) == (other.ulen, other.digest):
        return True
    return _place(one) == _place(other)


def _place(chunk: AeroChunk) -> tuple[int, int, int]:
    return chunk.offset, chunk.length, chunk.flags


def _adds(aero: Aero, chunk: AeroChunk) -> bool:
    """Whether a chunk after the first of its type holds anything that the first does not."""
    first = aero.first(chunk.fourcc)
    if first is None or _is_same(first, chunk):
        return False
    if chunk.fourcc != INDEX:
        return chunk.ulen > 0
    try:
        listing = aero.listing.apart()
        entries = parse_index(index_content(aero.data, chunk, listing), chunk.offset, listing)
    except FormatError:
        return True
    listed = {entry.name: entry for entry in aero.entries}
    return any(listed.get(entry.name) != entry for entry in entries)


def _check_metadata(aero: Aero, findings: Findings) -> None:
    for fourcc in (JSON, MANIFEST):
        chunk = aero.first(fourcc)
        if chunk is None:
            continue
        word = quoted(fourcc.decode().lower())
        try:
            raw_content = content(aero, chunk, MAX_SHOWN)
            listing = aero.listing.apart()
            if fourcc == JSON:
                json_text.parse(raw_content, "mjsn", offset=chunk.offset, listing=listing)
            else:
                raw = bytes(raw_content)
                msgpack_limits.parse(raw, "mmsg", offset=chunk.offset, listing=listing)
        except FormatError as error:
            if chunk.digest == NO_HASH and error.kind != "limit":
                findings.refuse(error, chunk)
            # Content that is too long to parse may be intact; a hash shows that it is unchanged.
            elif chunk.digest == NO_HASH or error.kind != "limit":
                findings.warn(
                    f"{word} can't be read: {error.message}", "chunk", chunk.offset, chunk
                )
