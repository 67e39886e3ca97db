"""Checks of what an AERO file says of its own bytes: structure here, hashes in `hashes`.

First the control region (file header, TOC, string table), then where payloads
stand, what the MMSG says of chunks, and the TIDX's entries. What upstream
readers refuse although nothing is lost is a warning.
Spec: `docs/spec/aero.md`, "What is checked".
"""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.containers.aero import hashes
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
    JSON,
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
    Chunk,
    IndexEntry,
    chunk_name,
)
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions


def check(container: Aero, options: ReadOptions) -> Findings:
    """Check structure, limits and hashes; raises nothing."""
    elsewhere = lists_no_shards(container)
    found = check_file(container, options, shards_elsewhere=elsewhere)
    if elsewhere and container.entries:
        found.warn(
            "structure",
            f"{len(container.entries)} tensors are in other files, which are not looked at",
            offset=container.header.toc_offset,
            field="shard_id",
        )
    return found


def check_file(aero: Aero, options: ReadOptions, *, shards_elsewhere: bool) -> Findings:
    """Check a file that may be the index of a set, whose weight shards are in other files."""
    found = Findings()
    allowance = Allowance(len(aero.data), options)
    check_control(aero, found)
    check_placement(aero, found)
    check_manifest(aero, found)
    check_index(aero, found, shards_elsewhere=shards_elsewhere)
    hashes.check_seal(aero, found, allowance)
    hashes.check_contents(aero, found, allowance)
    return found


def check_control(aero: Aero, found: Findings) -> None:
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


BLOCK = 2**20

FILE_HEADER, TOC, NAMES = -3, -2, -1
_CALLED = {FILE_HEADER: "file header", TOC: "TOC", NAMES: "string table"}

Extent = tuple[int, int, int]
"""Start, end, and what stands there: a chunk by its place in the TOC, or one of the above."""


def check_placement(aero: Aero, found: Findings) -> None:
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


def lists_no_shards(aero: Aero) -> bool:
    """Whether the file is the index of a set: no weight shards, and none are missed."""
    return aero.first(SHARD) is None and mmsg(aero).get("shards") == []


def check_manifest(aero: Aero, found: Findings) -> None:
    """Warn where the manifest lists other chunks than the TOC."""
    chunk = aero.first(MANIFEST)
    if chunk is None:
        return
    manifest = mmsg(aero)
    for item in _maps(manifest.get("chunks")):
        listed = _listed(aero, item)
        fourcc = item.get("fourcc")
        if isinstance(fourcc, str) and (
            listed is None or listed.fourcc != fourcc.encode("latin-1", "replace")
        ):
            _warn(found, aero, chunk, "chunks", item, f"is no {fourcc!a}")
    for item in _maps(manifest.get("shards")):
        listed = _listed(aero, item)
        if listed is None or listed.fourcc != SHARD:
            _warn(found, aero, chunk, "shards", item, "is no WTSH")
        elif item.get("size_bytes") != listed.ulen:
            _warn(found, aero, chunk, "shards", item, "has another size")


def _maps(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _listed(aero: Aero, item: dict[str, object]) -> Chunk | None:
    place = item.get("toc_index")
    if type(place) is not int or not 0 <= place < len(aero.chunks):
        return None
    return aero.chunks[place]


def _warn(
    found: Findings, aero: Aero, chunk: Chunk, field: str, item: dict[str, object], problem: str
) -> None:
    found.warn(
        "structure",
        f"manifest and TOC disagree: TOC entry {ascii(item.get('toc_index'))[:20]} {problem}",
        offset=chunk.offset,
        field=field,
        chunk=aero.label(chunk),
    )


MOST_PADDING = 31
"""Bytes after a tensor's items that writers who align to 32 count as its own."""


def check_index(aero: Aero, found: Findings, *, shards_elsewhere: bool) -> None:
    """Check the entries; `shards_elsewhere` is for the index of a set of files."""
    chunk = aero.first(INDEX)
    if chunk is None:
        return
    rules = _Rules(aero, chunk, found)
    names: set[str] = set()
    for entry in aero.entries:
        if entry.name in names:
            rules.warn(entry, "is there twice", "name")
        names.add(entry.name)
        rules.check_size(entry)
        rules.check_hash(entry)
        if not shards_elsewhere:
            rules.check_place(entry)
    rules.check_overlaps()


class _Rules:
    """Findings on entries, told with the place of the index chunk."""

    def __init__(self, aero: Aero, chunk: Chunk, found: Findings) -> None:
        self._aero = aero
        self._found = found
        self._offset = chunk.offset
        self._chunk = aero.label(chunk)

    def warn(self, entry: IndexEntry, problem: str, field: str) -> None:
        self._found.warn(
            "structure",
            f"tensor {quoted(entry.name)} {problem}",
            offset=self._offset,
            field=field,
            chunk=self._chunk,
        )

    def error(self, entry: IndexEntry, problem: str, field: str) -> None:
        self._found.error(
            "structure",
            f"tensor {quoted(entry.name)} {problem}",
            offset=self._offset,
            field=field,
            chunk=self._chunk,
        )

    def check_size(self, entry: IndexEntry) -> None:
        if any(dim < 0 for dim in entry.shape):
            self.error(entry, "has a negative dimension", "shape")
            return
        if entry.dtype not in DTYPES and entry.dtype != PACKED:
            self.warn(entry, f"has the unknown dtype {entry.dtype}", "dtype")
        least = entry.least_size()
        if least is None:
            return
        if entry.data_len < least:
            self.error(entry, f"has {entry.data_len} bytes, fewer than its shape needs", "data_len")
        elif entry.data_len - least > MOST_PADDING:
            self.warn(entry, f"has {entry.data_len} bytes, its shape needs {least}", "data_len")

    def check_hash(self, entry: IndexEntry) -> None:
        # Upstream readers take an empty hash for none.
        if entry.extra.get(HASH_KEY) and entry.digest is None:
            self.error(entry, "has a hash_b3 that is no BLAKE3 in hex", HASH_KEY)

    def check_place(self, entry: IndexEntry) -> None:
        shard = self._aero.shard(entry.shard_id)
        if shard is None:
            self.error(entry, f"is in shard {entry.shard_id}, which is not there", "shard_id")
        elif not entry.is_inside(shard):
            self.error(entry, f"reaches outside of shard {entry.shard_id}", "data_off")

    def check_overlaps(self) -> None:
        held = [entry for entry in self._aero.entries if entry.data_len > 0]
        held.sort(key=lambda entry: (entry.shard_id, entry.data_off))
        last: IndexEntry | None = None
        for entry in held:
            if last is None or last.shard_id != entry.shard_id:
                last = entry
                continue
            if entry.data_off < last.data_end:
                self.warn(entry, f"shares bytes with {quoted(last.name)}", "data_off")
            if entry.data_end > last.data_end:
                last = entry
