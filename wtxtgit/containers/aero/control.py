"""Rules of the control region: file header, TOC and string table."""

from __future__ import annotations

from wtxtgit.containers.aero.content import MAX_NAMES, NAMES_A_BYTE
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    FILE_FLAGS_OFFSET,
    FLAGS_AT,
    HASH_AT,
    HEADER,
    INDEX,
    JSON,
    MANIFEST,
    MAX_STRING_TABLE,
    NAME_AT,
    NAMES_ALIGNMENT,
    NEVER_COMPRESSED,
    NO_HASH,
    RESERVED_AT,
    RESERVED_OFFSET,
    TOC_ENTRY,
    TOC_HEADER,
    chunk_name,
)
from wtxtgit.containers.cursor import unpack_at
from wtxtgit.model.reading import Findings


def check(aero: Aero, found: Findings) -> None:
    """Check the header, the TOC's entries, and the names in the string table."""
    _check_header(aero, found)
    _check_toc(aero, found)
    _check_names(aero, found)


def _check_header(aero: Aero, found: Findings) -> None:
    header = aero.header
    if header.flags:
        found.error(
            "structure",
            f"file_flags is {header.flags:#x}, not 0",
            offset=FILE_FLAGS_OFFSET,
            field="file_flags",
        )
    if any(bytes(aero.data[RESERVED_OFFSET : HEADER.size])):
        found.warn(
            "structure", "reserved bytes are not 0", offset=RESERVED_OFFSET, field="reserved"
        )
    if header.toc_offset != HEADER.size:
        found.warn(
            "structure",
            f"toc_offset is {header.toc_offset}, not {HEADER.size}",
            offset=12,
            field="toc_offset",
        )
    wanted = TOC_HEADER.size + TOC_ENTRY.size * len(aero.chunks)
    if header.toc_length != wanted:
        found.warn(
            "structure",
            f"toc_length is {header.toc_length}, the entries take {wanted}",
            offset=20,
            field="toc_length",
        )
    if header.names_length > MAX_STRING_TABLE:
        found.error(
            "limit",
            f"string table has {header.names_length} bytes, over {MAX_STRING_TABLE}",
            offset=36,
            field="string_table_length",
        )
    for value, offset, field in (
        (header.names_offset, 28, "string_table_offset"),
        (header.names_length, 36, "string_table_length"),
    ):
        if header.names_length and value % NAMES_ALIGNMENT:
            found.warn(
                "structure",
                f"{field} {value} is no multiple of {NAMES_ALIGNMENT}",
                offset=offset,
                field=field,
            )


def _check_toc(aero: Aero, found: Findings) -> None:
    start = aero.header.toc_offset
    _count, *reserved = unpack_at(TOC_HEADER, aero.data, start)
    for number, value, offset in zip((0, 1), reserved, (4, 8), strict=True):
        if value:
            field = f"reserved{number}"
            found.warn("structure", f"{field} is not 0", offset=start + offset, field=field)
    wiped = [place for place, chunk in enumerate(aero.chunks) if chunk.is_wiped]
    if wiped:
        found.error(
            "structure",
            f"TOC entries are zero-filled: {len(wiped)} of {len(aero.chunks)}",
            offset=aero.header.entry_offset(wiped[0]),
            field="fourcc",
        )
    for place, chunk in enumerate(aero.chunks):
        if chunk.is_wiped:
            continue
        entry = aero.header.entry_offset(place)
        if chunk.reserved:
            found.warn(
                "structure",
                "reserved0 is not 0",
                offset=entry + RESERVED_AT,
                field="reserved0",
                chunk=aero.label(chunk),
            )
        if chunk.digest == NO_HASH:
            found.warn(
                "blake3",
                "no hash: it is all zero",
                offset=entry + HASH_AT,
                field="blake3_256",
                chunk=aero.label(chunk),
            )
        if chunk.is_compressed and chunk.fourcc in NEVER_COMPRESSED:
            found.warn(
                "structure",
                f"{chunk.fourcc.decode()} is compressed, which it never should be",
                offset=entry + FLAGS_AT,
                field="chunk_flags",
                chunk=aero.label(chunk),
            )
    for fourcc in (INDEX, JSON, MANIFEST):
        places = [place for place, chunk in enumerate(aero.chunks) if chunk.fourcc == fourcc]
        if len(places) > 1:
            found.warn(
                "structure",
                f"{len(places)} {fourcc.decode()} chunks, the first is used",
                offset=aero.header.entry_offset(places[1]),
                field="fourcc",
                chunk=aero.label(aero.chunks[places[1]]),
            )
    if aero.first(INDEX) is None:
        found.warn("structure", "no TIDX chunk, so no tensors", offset=start, field="fourcc")


def _check_names(aero: Aero, found: Findings) -> None:
    most = min(MAX_NAMES, NAMES_A_BYTE * len(aero.data))
    if sum(chunk.name_len for chunk in aero.chunks) > most:
        found.error(
            "limit",
            f"chunk names have over {most} bytes together",
            offset=aero.header.toc_offset,
            field="name_len",
        )
        return
    taken: set[tuple[bytes, bytes]] = set()
    for place, chunk in enumerate(aero.chunks):
        if chunk.is_wiped:
            continue
        name = chunk_name(aero.data, aero.header, chunk)
        for problem in _name_problems(name, (chunk.fourcc, name) in taken):
            found.warn(
                "structure",
                f"chunk name {problem}",
                offset=aero.header.entry_offset(place) + NAME_AT,
                field="name_off",
                chunk=aero.label(chunk),
            )
        taken.add((chunk.fourcc, name))


def _name_problems(name: bytes, taken: bool) -> list[str]:
    problems = []
    try:
        name.decode()
    except UnicodeDecodeError:
        problems.append("is not UTF-8")
    if b"\0" in name:
        problems.append("holds a NUL")
    if name and taken:
        problems.append("is there twice, the first is used")
    return problems
