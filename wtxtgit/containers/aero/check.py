"""Checks of what an AERO file says of its own bytes: structure here, hashes in `hashes`.

First the control region (file header, TOC, string table), then the positions of payloads, what the
MMSG says of chunks, and the TIDX's entries. An error is something that no writer produces, or that
hides content from readers; a warning is something that loses nothing. Spec: `docs/spec/aero.md`,
"What is checked".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter

from wtxtgit.containers.aero import check_chunks, hashes
from wtxtgit.containers.aero.content import MAX_NAMES, NAMES_A_BYTE, Allowance
from wtxtgit.containers.aero.describe import mmsg
from wtxtgit.containers.aero.read import (
    DTYPES,
    FILE_FLAGS_OFFSET,
    FLAGS_AT,
    HASH_AT,
    HASH_KEY,
    HEADER,
    INDEX,
    MANIFEST,
    MAX_STRING_TABLE,
    NAME_AT,
    NAMES_ALIGNMENT,
    NEVER_COMPRESSED,
    NO_HASH,
    OFFSET_AT,
    PACKED,
    PAYLOAD_ALIGNMENT,
    RESERVED_AT,
    RESERVED_OFFSET,
    SHARD,
    TOC_ENTRY,
    TOC_HEADER,
    Aero,
    AeroChunk,
    IndexEntry,
)
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.intervals import overlaps
from wtxtgit.io.view import ByteView, is_zeros
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

FILE_HEADER, TOC, NAMES = -3, -2, -1
_CALLED = {FILE_HEADER: "file header", TOC: "TOC", NAMES: "string table"}
# Padding after a tensor's items that some writers, which align to 32, include in its size.
MOST_PADDING = 31

Extent = tuple[int, int, int]
"""Start, end, and what is there: a chunk, by its place in the TOC, or one of the above."""


def check(container: Aero, options: ReadOptions) -> Findings:
    """Check structure, limits and hashes; raises nothing."""
    elsewhere = lists_no_shards(container)
    findings = check_file(container, options, shards_elsewhere=elsewhere)
    if elsewhere and container.entries:
        findings.warn(
            f"{len(container.entries)} tensors are in other files, which are not checked",
            "shard_id",
            container.header.toc_offset,
        )
    return findings


def check_file(aero: Aero, options: ReadOptions, *, shards_elsewhere: bool) -> Findings:
    """Check a file that may be the index of a set, whose weight shards are in other files."""
    findings = Findings(label=aero.label)
    allowance = Allowance(len(aero.data), options)
    check_control(aero, findings)
    _check_placement(aero, findings)
    _check_manifest(aero, findings)
    _check_index(aero, findings, shards_elsewhere=shards_elsewhere)
    hashes.check_seal(aero, findings, allowance)
    hashes.check_contents(aero, findings, allowance)
    return findings


def check_control(aero: Aero, findings: Findings) -> None:
    """Check the header, the TOC's entries, and the names in the string table."""
    _check_header(aero, findings)
    _check_toc(aero, findings)
    _check_names(aero, findings)


def _check_header(aero: Aero, findings: Findings) -> None:
    header = aero.header
    entries_length = TOC_HEADER.size + TOC_ENTRY.size * len(aero.chunks)
    if header.flags:
        findings.error(f"file_flags is {header.flags:#x}, not 0", "file_flags", FILE_FLAGS_OFFSET)
    if any(bytes(aero.data[RESERVED_OFFSET : HEADER.size])):
        findings.error("reserved bytes are not 0", "reserved", RESERVED_OFFSET)
    if header.toc_offset != HEADER.size:
        findings.error(f"toc_offset is {header.toc_offset}, not {HEADER.size}", "toc_offset", 12)
    if header.toc_length != entries_length:
        findings.error(
            f"toc_length is {header.toc_length}, its entries take {entries_length}",
            "toc_length",
            20,
        )
    if header.names_length > MAX_STRING_TABLE:
        findings.error(
            f"string table has {header.names_length} bytes, over {MAX_STRING_TABLE}",
            "string_table_length",
            36,
            kind="limit",
        )
    for value, offset, field in (
        (header.names_offset, 28, "string_table_offset"),
        (header.names_length, 36, "string_table_length"),
    ):
        # The offset of an empty string table means nothing.
        if header.names_length and value % NAMES_ALIGNMENT:
            findings.error(f"{field} {value} is not a multiple of {NAMES_ALIGNMENT}", field, offset)


def _check_toc(aero: Aero, findings: Findings) -> None:
    start = aero.header.toc_offset
    _count, *reserved = unpack_at(TOC_HEADER, aero.data, start)
    for number, value in enumerate(reserved):
        if value:
            name, at = f"reserved{number}", start + 4 + 4 * number
            findings.error(f"{name} is not 0", name, at)
    wiped = [chunk for chunk in aero.chunks if chunk.is_wiped]
    if wiped:
        # A writer that dies before it writes the TOC leaves zeros, and the chunks can't be found.
        findings.error(
            f"TOC entries filled with zeros: {len(wiped)} of {len(aero.chunks)}",
            "fourcc",
            aero.header.entry_offset(wiped[0].place),
        )
    for chunk in aero.chunks:
        if chunk.is_wiped:
            continue
        at = aero.header.entry_offset(chunk.place)
        if chunk.reserved:
            findings.error("reserved0 is not 0", "reserved0", at + RESERVED_AT, chunk)
        if chunk.digest == NO_HASH:
            findings.warn(
                "no hash: the field is all zeros", "blake3_256", at + HASH_AT, chunk, kind="blake3"
            )
        if chunk.is_compressed and chunk.fourcc in NEVER_COMPRESSED:
            # Weights are still readable; chunks that serve to check others are not.
            (findings.warn if chunk.fourcc == SHARD else findings.error)(
                f"{chunk.fourcc.decode()} is compressed, but must not be",
                "chunk_flags",
                at + FLAGS_AT,
                chunk,
            )


def _check_names(aero: Aero, findings: Findings) -> None:
    most = min(MAX_NAMES, NAMES_A_BYTE * len(aero.data))
    if aero.names_length > most:
        findings.error(
            f"chunk names take over {most} bytes in total",
            "name_len",
            aero.header.toc_offset,
            kind="limit",
        )
        return
    for chunk in aero.chunks:
        if chunk.is_wiped:
            continue
        name = aero.name(chunk)
        at = aero.header.entry_offset(chunk.place) + NAME_AT
        try:
            name.decode()
        except UnicodeDecodeError:
            findings.error("chunk name is not UTF-8", "name_off", at, chunk)
        if b"\0" in name:
            findings.warn("chunk name contains a NUL", "name_off", at, chunk)
        if not _is_whole_name(aero, chunk):
            findings.error(
                "chunk name is only part of a name in the string table", "name_off", at, chunk
            )
    check_chunks.check_taken_names(aero, findings)
    check_chunks.check_types(aero, findings)


def _is_whole_name(aero: Aero, chunk: AeroChunk) -> bool:
    """Whether a chunk's name is delimited by NULs, or by the ends of the string table."""
    start, end = chunk.name_off, chunk.name_off + chunk.name_len
    table = aero.data[aero.header.names_offset :][: aero.header.names_length]
    around = (table[max(start - 1, 0) : start], table[end : end + 1])
    return all(not any(bytes(byte)) for byte in around)


def _check_placement(aero: Aero, findings: Findings) -> None:
    """Check alignment, overlaps and gaps of header, TOC, string table and payloads."""
    for chunk in aero.chunks:
        at = aero.header.entry_offset(chunk.place) + OFFSET_AT
        if chunk.length == 0 and chunk.offset > len(aero.data):
            findings.warn(
                f"chunk_offset {chunk.offset} of an empty chunk is past the file's end",
                "chunk_offset",
                at,
                chunk,
            )
        elif chunk.length and chunk.offset % PAYLOAD_ALIGNMENT:
            findings.warn(
                f"chunk_offset {chunk.offset} is not a multiple of {PAYLOAD_ALIGNMENT}",
                "chunk_offset",
                at,
                chunk,
            )
    end, before = 0, FILE_HEADER
    for start, stop, what in sorted(extents(aero)):
        if start < end:
            # Only a hash shows that shared bytes really belong to both.
            (findings.warn if _is_hashed(aero, what, before) else findings.error)(
                f"{_called(aero, what)} overlaps {_called(aero, before)}", "chunk_offset", start
            )
        else:
            _check_gap(aero.data, end, start, findings)
        if stop > end:
            end, before = stop, what
    _check_gap(aero.data, end, len(aero.data), findings)


def extents(aero: Aero) -> Iterator[Extent]:
    """Yield where header, TOC, string table and payloads are, without empty ones."""
    header = aero.header
    yield 0, HEADER.size, FILE_HEADER
    yield header.toc_offset, header.toc_offset + header.toc_length, TOC
    if header.names_length:
        yield header.names_offset, header.names_offset + header.names_length, NAMES
    yield from ((chunk.offset, chunk.end, chunk.place) for chunk in aero.chunks if chunk.length)


def _called(aero: Aero, what: int) -> str:
    return _CALLED.get(what) or f"chunk {aero.label(aero.chunks[what])!a}"


def _is_hashed(aero: Aero, *places: int) -> bool:
    return all(place < 0 or aero.chunks[place].digest != NO_HASH for place in places)


def _check_gap(data: ByteView, start: int, end: int, findings: Findings) -> None:
    if not is_zeros(data[start:end]):
        findings.error(
            f"bytes {start} to {end} are in no chunk, but not all zero", "chunk_offset", start
        )


def lists_no_shards(aero: Aero) -> bool:
    """Whether the file is the index of a set: it has no weight shards, and its MMSG lists none."""
    return aero.first(SHARD) is None and mmsg(aero).get("shards") == []


def _check_manifest(aero: Aero, findings: Findings) -> None:
    """Check that the manifest lists the same chunks as the TOC."""
    chunk = aero.first(MANIFEST)
    if chunk is None:
        return
    manifest = mmsg(aero)
    for key in ("chunks", "shards"):
        items = manifest.get(key)
        for item in items if isinstance(items, list) else []:
            problem = _disagreement(aero, key, item) if isinstance(item, dict) else None
            if problem is not None:
                place = ascii(item.get("toc_index"))[:20]
                findings.error(
                    f"manifest and TOC disagree: TOC entry {place} {problem}",
                    key,
                    chunk.offset,
                    chunk,
                )


def _disagreement(aero: Aero, key: str, item: dict[str, object]) -> str | None:
    """Return how an item of the manifest's list `key` differs from the TOC, None if it does not."""
    place, fourcc = item.get("toc_index"), item.get("fourcc")
    is_there = type(place) is int and 0 <= place < len(aero.chunks)
    listed = aero.chunks[place] if is_there and isinstance(place, int) else None
    if key == "chunks":
        is_right = not isinstance(fourcc, str) or (
            listed is not None and listed.fourcc == fourcc.encode("latin-1", "replace")
        )
        return None if is_right else f"is not of type {fourcc!a}"
    if listed is None or listed.fourcc != SHARD:
        return "is not of type WTSH"
    return None if item.get("size_bytes") == listed.ulen else "differs in size"


def _check_index(aero: Aero, findings: Findings, *, shards_elsewhere: bool) -> None:
    """Check the TIDX's entries; `shards_elsewhere` is for the index of a set of files."""
    chunk = aero.first(INDEX)
    if chunk is None:
        return
    listed: dict[str, IndexEntry] = {}
    for entry in aero.entries:
        first = listed.setdefault(entry.name, entry)
        if first is not entry:
            # Lookup by name finds only one of them.
            (findings.warn if first == entry else findings.error)(
                f"tensor {quoted(entry.name)} appears twice", "name", chunk.offset, chunk
            )
        for say, problem, field in _entry_problems(aero, entry, findings, shards_elsewhere):
            say(f"tensor {quoted(entry.name)} {problem}", field, chunk.offset, chunk)
    shard_id = attrgetter("shard_id")
    with_bytes = sorted((entry for entry in aero.entries if entry.data_len > 0), key=shard_id)
    for _, entries in groupby(with_bytes, shard_id):
        for entry, before in overlaps(entries, attrgetter("span")):
            findings.warn(
                f"tensor {quoted(entry.name)} shares bytes with {quoted(before.name)}",
                "data_off",
                chunk.offset,
                chunk,
            )


def _entry_problems(
    aero: Aero, entry: IndexEntry, findings: Findings, shards_elsewhere: bool
) -> Iterator[tuple[Callable[[str, str, int, AeroChunk], None], str, str]]:
    """Yield what is wrong with an entry by itself: severity, message, and field."""
    least = entry.least_size()
    if any(dim < 0 for dim in entry.shape):
        yield findings.error, "has a negative dimension", "shape"
    elif entry.dtype not in DTYPES and entry.dtype != PACKED:
        yield findings.error, f"has unknown dtype {entry.dtype}", "dtype"
    elif least is not None and entry.data_len < least:
        yield findings.error, f"has {entry.data_len} bytes, fewer than its shape needs", "data_len"
    elif least is not None and entry.data_len - least > MOST_PADDING:
        yield findings.error, f"has {entry.data_len} bytes, its shape needs {least}", "data_len"
    # Upstream readers treat an empty hash as no hash.
    if entry.extra.get(HASH_KEY) and entry.digest is None:
        yield findings.error, "has a hash_b3 that is not a BLAKE3 hash in hex", HASH_KEY
    if shards_elsewhere:
        return
    shard = aero.shard(entry.shard_id)
    if shard is None:
        yield findings.error, f"is in shard {entry.shard_id}, which does not exist", "shard_id"
    elif not entry.is_inside(shard):
        yield findings.error, f"reaches outside shard {entry.shard_id}", "data_off"
