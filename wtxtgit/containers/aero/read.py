"""AERO 0.1: chunks after a table of contents. Little-endian.

File header (96 bytes), TOC (16 bytes, then 80 for each chunk), string table, payloads. The first
TIDX chunk says where tensors are in the weight shards. Spec: `docs/spec/aero.md`, "Layout" and
"TIDX"; `docs/spec/containers.md`, "AERO", for how a file is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from struct import Struct

from wtxtgit.containers import msgpack_limits, ranges, zstd_limits
from wtxtgit.containers.cursor import (
    ITEM,
    MAX_QUOTED,
    TEXT,
    Cursor,
    ListingBudget,
    check_inside,
    fail,
    quoted,
)
from wtxtgit.containers.format import Container
from wtxtgit.containers.intervals import Span, aligned
from wtxtgit.containers.ranges import MAX_TENSORS, Range, Stored
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.array import bounded_product
from wtxtgit.model.tensor import ITEM_BYTES

HEADER = Struct("<4sHHIQQQQQ16s28s")
"""magic major minor header_size toc_offset toc_length st_offset st_length flags uuid reserved."""
FILE_FLAGS_OFFSET = 44
RESERVED_OFFSET = 68
VERSION = (0, 1)

TOC_HEADER = Struct("<IIQ")
"""entry_count reserved0 reserved1."""
TOC_ENTRY = Struct("<4sIQQQIIQ32s")
"""fourcc flags offset length ulen name_off name_len reserved0 blake3_256."""
FLAGS_AT, OFFSET_AT, NAME_AT, RESERVED_AT, HASH_AT = 4, 8, 32, 40, 48
"""Offsets of fields in a TOC entry."""
DIGEST_SIZE = 32
NO_HASH = bytes(DIGEST_SIZE)
NO_FOURCC = bytes(4)

COMPRESSED = 0x0001
MMAP_CRITICAL = 0x0002
IS_INDEX = 0x0004
OPTIONAL = 0x0008

INTEGRITY, JSON, MANIFEST, PAGES = b"IHSH", b"MJSN", b"MMSG", b"PHSH"
INDEX, SHARD = b"TIDX", b"WTSH"
METADATA = frozenset({INTEGRITY, JSON, MANIFEST, PAGES, INDEX})
"""Chunks to which MAX_METADATA_ULEN applies."""
NEVER_COMPRESSED = frozenset({INTEGRITY, PAGES, SHARD})
SHARD_NAME = b"weights.shard%d"
# An index can contain any MessagePack integer; no shard has a longer name.
MAX_SHARD_NAME = len(SHARD_NAME % -(2**64))
PAGES_SUFFIX = b".phsh"
NAME_END = b"\0"

# Payloads start at multiples of this, with zeros between them ("Layout").
PAYLOAD_ALIGNMENT = 16
NAMES_ALIGNMENT = 8
# These two are limits of the format ("Limits").
MAX_STRING_TABLE = 512 * 2**20
MAX_METADATA_ULEN = 2 * 2**30

DTYPES = {
    0: "f16",
    1: "f32",
    2: "bf16",
    3: "f64",
    4: "i8",
    5: "u8",
    6: "i16",
    7: "u16",
    8: "i32",
    9: "u32",
    10: "i64",
    11: "u64",
    12: "bool",
}
"""For each dtype number, the element, and the format's own name."""
PACKED = 0x8000
PACKED_WORD = "packed"
TENSORS_KEY = "tensors"
HASH_KEY = "hash_b3"
FLAGS_KEY = "flags"
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_INTEGERS = ("dtype", "shard_id", "data_off", "data_len")
_KNOWN = frozenset({"name", "shape", *_INTEGERS})
CONTROL_ROLE = "_control"
# What a byte of a TIDX counts in addition to its decoded value: the decoder holds it as well.
DECODED = 2


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The file header's offsets and lengths."""

    toc_offset: int
    toc_length: int
    names_offset: int
    names_length: int
    flags: int
    uuid: bytes

    @property
    def control_end(self) -> int:
        """Where TOC and string table end, not counting an empty string table."""
        toc_end = self.toc_offset + self.toc_length
        names_end = self.names_offset + self.names_length if self.names_length else 0
        return max(toc_end, names_end)

    def name(self, data: ByteView, chunk: AeroChunk, most: int | None = None) -> bytes:
        """Return a chunk's name in the file `data`, or its first `most` bytes."""
        start = self.names_offset + chunk.name_off
        length = chunk.name_len if most is None else min(chunk.name_len, most)
        return bytes(data[start : start + length])

    def entry_offset(self, place: int) -> int:
        """Return where in the file the TOC entry number `place` is."""
        return self.toc_offset + TOC_HEADER.size + place * TOC_ENTRY.size


@dataclass(frozen=True, slots=True)
class AeroChunk:
    """Entry `place` of the TOC; `name_off` is relative to the string table."""

    place: int
    fourcc: bytes
    flags: int
    offset: int
    length: int
    ulen: int
    name_off: int
    name_len: int
    reserved: int
    digest: bytes

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def is_compressed(self) -> bool:
        return bool(self.flags & COMPRESSED)

    @property
    def is_raw_shard(self) -> bool:
        return self.fourcc == SHARD and not self.is_compressed

    @property
    def is_wiped(self) -> bool:
        """Whether the entry consists only of zeros."""
        # Most entries differ in these fields: others are only compared if these are equal.
        if self.fourcc != NO_FOURCC or self.digest != NO_HASH:
            return False
        numbers = (self.flags, self.offset, self.length, self.ulen, self.name_off, self.name_len)
        return not any(numbers) and not self.reserved

    @property
    def role(self) -> str:
        # bytes.isalnum only accepts ASCII.
        return "_" + self.fourcc.decode().lower() if self.fourcc.isalnum() else "_chunk"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A tensor of the TIDX; `data_off` is relative to the shard's start.

    `extra` has the keys that do not say where the tensor is.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    shard_id: int
    data_off: int
    data_len: int
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def data_end(self) -> int:
        return self.data_off + self.data_len

    @property
    def digest(self) -> bytes | None:
        """The BLAKE3 that the index has for the tensor's bytes; None if it has none."""
        value = self.extra.get(HASH_KEY)
        return bytes.fromhex(value) if isinstance(value, str) and _HASH.fullmatch(value) else None

    @property
    def span(self) -> Span:
        """Where the tensor is in its shard's content."""
        return self.data_off, self.data_end

    def is_inside(self, shard: AeroChunk) -> bool:
        """Whether the shard's content contains the tensor's bytes."""
        return self.data_len == 0 or 0 <= self.data_off < self.data_end <= shard.ulen

    @property
    def dtype_name(self) -> str:
        return PACKED_WORD if self.dtype == PACKED else DTYPES.get(self.dtype, str(self.dtype))

    @property
    def element(self) -> str | None:
        return DTYPES.get(self.dtype)

    def least_size(self) -> int | None:
        """The number of bytes that dtype and shape need, None for dtypes of unknown size.

        If they need more than `data_len`, it is some number over that.
        """
        if self.element is None or any(dim < 0 for dim in self.shape):
            return None
        return bounded_product(ITEM_BYTES[self.element], self.shape, self.data_len)


def parse_index(raw: bytes, offset: int, listing: ListingBudget | None = None) -> list[IndexEntry]:
    """Return the entries of a TIDX whose chunk is at `offset`; raises FormatError."""
    listing = listing or ListingBudget(len(raw))
    index = msgpack_limits.parse(raw, "tidx", offset=offset, listing=listing)
    tensors = index.get(TENSORS_KEY) if isinstance(index, dict) else None
    if not isinstance(tensors, list):
        fail("tidx is not a map that lists tensors", offset=offset, field=TENSORS_KEY)
    if len(tensors) > MAX_TENSORS:
        fail("tidx lists too many tensors", offset=offset, field=TENSORS_KEY, kind="limit")
    entries = [_index_entry(number, item, offset) for number, item in enumerate(tensors)]
    for entry in entries:
        listing.item((entry.name,), offset, "tidx")
    return entries


def _index_entry(number: int, item: object, offset: int) -> IndexEntry:
    if not isinstance(item, dict):
        fail(f"tensor {number} of the tidx is not a map", offset=offset, field=TENSORS_KEY)
    name, shape = item.get("name"), item.get("shape")
    if not isinstance(name, str):
        fail(f"tensor {number} of the tidx has no name", offset=offset, field="name")
    if not isinstance(shape, list) or any(type(dim) is not int for dim in shape):
        fail(f"tensor {quoted(name)} has an invalid shape", offset=offset, field="shape")
    numbers = []
    for key in _INTEGERS:
        value = item.get(key)
        if type(value) is not int:
            fail(f"tensor {quoted(name)} has an invalid {key}", offset=offset, field=key)
        numbers.append(value)
    dtype, shard_id, data_off, data_len = numbers
    extra = {key: value for key, value in item.items() if key not in _KNOWN}
    return IndexEntry(name, dtype, tuple(shape), shard_id, data_off, data_len, extra)


@dataclass(frozen=True, slots=True, eq=False)
class Aero(Container):
    """An AERO file that was read.

    `shards` are the first weight shards of each name. `entries` are the index's, and `tensors` the
    same where they stand in the file uncompressed; those in no shard of the file, or in a
    compressed one, are empty there. `listing` is what the file may still list.
    """

    data: ByteView
    header: FileHeader
    chunks: tuple[AeroChunk, ...]
    shards: dict[bytes, AeroChunk]
    entries: tuple[IndexEntry, ...]
    tensors: tuple[Stored, ...]
    listing: ListingBudget = field(default_factory=partial(ListingBudget, 0))

    def is_padding(self, start: int, end: int) -> bool:
        return end == aligned(start, PAYLOAD_ALIGNMENT) and end < len(self.data)

    def used_spans(self) -> Iterator[Span]:
        header = self.header
        yield 0, HEADER.size
        yield header.toc_offset, header.entry_offset(len(self.chunks))
        for chunk in self.chunks:
            start = header.names_offset + chunk.name_off
            end = start + chunk.name_len
            yield start, end + (bytes(self.data[end : end + 1]) == NAME_END)
            if not chunk.is_raw_shard:
                yield chunk.offset, chunk.end
        yield from ((tensor.start, tensor.end) for tensor in self.tensors)

    def part_orders(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The orders of the chunks' payloads, and of their names."""
        for place in ("offset", "name_off"):
            yield place, tuple(map(self.label, sorted(self.chunks, key=attrgetter(place))))

    def tensor_shards(self) -> Iterator[tuple[str, int]]:
        yield from ((entry.name, entry.shard_id) for entry in self.entries)

    def ranges(self) -> Iterator[Range]:
        yield ranges.part(0, self.header.control_end, CONTROL_ROLE)
        for chunk in self.chunks:
            if not chunk.is_raw_shard:
                yield ranges.part(chunk.offset, chunk.end, chunk.role)
        for tensor in self.tensors:
            yield ranges.tensor(tensor)

    def shard(self, shard_id: int) -> AeroChunk | None:
        return self.shards.get(SHARD_NAME % shard_id)

    def first(self, fourcc: bytes) -> AeroChunk | None:
        return next((chunk for chunk in self.chunks if chunk.fourcc == fourcc), None)

    def stored(self, chunk: AeroChunk) -> ByteView:
        """Return the chunk's bytes as they are in the file."""
        return self.data[chunk.offset : chunk.end] if chunk.length else self.data[:0]

    def name(self, chunk: AeroChunk) -> bytes:
        return self.header.name(self.data, chunk)

    @property
    def names_length(self) -> int:
        """The length of all chunk names together; they may share bytes of the string table."""
        return sum(chunk.name_len for chunk in self.chunks)

    def label(self, chunk: AeroChunk) -> str:
        """Return what findings call the chunk: its name, or its type if it has none."""
        raw = self.header.name(self.data, chunk, 4 * MAX_QUOTED)
        name = raw.decode("utf-8", "backslashreplace")[:MAX_QUOTED]
        name = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
        return name or chunk.fourcc.decode("ascii", "backslashreplace")


def read(data: ByteView, listing: ListingBudget | None = None) -> Aero:
    """Read an AERO file; what it lists counts in the `listing` of its set. Raises FormatError."""
    listing = listing or ListingBudget(len(data))
    header = _read_header(data)
    chunks = _read_toc(data, header, listing)
    index = next((chunk for chunk in chunks if chunk.fourcc == INDEX), None)
    entries = []
    if index is not None:
        raw = index_content(data, index, listing)
        entries = parse_index(raw, index.offset, listing)
    shards: dict[bytes, AeroChunk] = {}
    for chunk in chunks:
        if chunk.fourcc == SHARD and chunk.name_len <= MAX_SHARD_NAME:
            # Of equal names the first one counts ("Layout").
            shards.setdefault(header.name(data, chunk), chunk)
    tensors = tuple(_locate(shards.get(SHARD_NAME % entry.shard_id), entry) for entry in entries)
    return Aero(data, header, chunks, shards, tuple(entries), tensors, listing)


def index_content(data: ByteView, chunk: AeroChunk, listing: ListingBudget | None = None) -> bytes:
    """Return the content of a TIDX of the file `data`, but at most MAX_JSON bytes plus one.

    Raises FormatError if it can't be decoded, or would be too long for the `listing`.
    """
    listing = listing or ListingBudget(len(data))
    most = min(MAX_JSON, listing.left // (TEXT + chunk.is_compressed * DECODED))
    payload = data[chunk.offset : chunk.end] if chunk.length else data[:0]
    if chunk.is_compressed:
        raw = zstd_limits.decode(payload, most, "tidx", offset=chunk.offset)
        listing.count(DECODED * len(raw), chunk.offset, "tidx")
        return raw
    # One byte over the limit shows that it is too long; copying all could take gigabytes.
    return bytes(payload[: most + 1])


def _read_header(data: ByteView) -> FileHeader:
    _magic, major, minor, size, *rest = Cursor(data).record(HEADER, "file header")
    if (major, minor) != VERSION:
        fail(f"version {major}.{minor} is not 0.1", offset=4, field="version_major")
    if size != HEADER.size:
        fail(f"header_size is {size}, not {HEADER.size}", offset=8, field="header_size")
    toc_offset, toc_length, names_offset, names_length, flags, uuid, _reserved = rest
    check_inside(toc_offset, toc_length, len(data), "toc")
    check_inside(names_offset, names_length, len(data), "string table")
    return FileHeader(toc_offset, toc_length, names_offset, names_length, flags, uuid)


def _read_toc(data: ByteView, header: FileHeader, listing: ListingBudget) -> tuple[AeroChunk, ...]:
    start = header.toc_offset
    toc = Cursor(data[: start + header.toc_length], start)
    count, _reserved0, _reserved1 = toc.record(TOC_HEADER, "toc header")
    if count > MAX_TENSORS:
        fail(f"toc lists {count} chunks", offset=start, field="entry_count", kind="limit")
    if count * TOC_ENTRY.size <= toc.remaining:
        listing.count(ITEM * count, start, "toc")
    entries = TOC_ENTRY.iter_unpack(mapped(toc.take(TOC_ENTRY.size * count, "toc")))
    chunks = tuple(AeroChunk(place, *fields) for place, fields in enumerate(entries))
    for place, chunk in enumerate(chunks):
        # Payloads may overlap, as may names: only their ends are checked here.
        name, at = f"name of chunk {place}", header.entry_offset(place)
        check_inside(chunk.name_off, chunk.name_len, header.names_length, name, at)
        check_inside(chunk.offset, chunk.length, len(data), f"chunk {place}")
    return chunks


def _locate(shard: AeroChunk | None, entry: IndexEntry) -> Stored:
    """Return the tensor's place in the file, empty if it is not there."""
    start = end = 0
    # Only uncompressed content decides how the file is cut: nothing is decoded for that.
    if shard is not None and not shard.is_compressed:
        name = f"tensor {quoted(entry.name)}"
        check_inside(entry.data_off, entry.data_len, shard.length, name, shard.offset)
        start = shard.offset + entry.data_off
        end = start + entry.data_len
    return Stored(entry.name, entry.dtype_name, entry.shape, start, end, entry.element)
