"""AERO 0.1: chunks behind a table of contents. Little-endian.

File header (96 bytes), TOC (16 bytes, then 80 for each chunk), string table,
payloads. The first TIDX chunk says where in the weight shards tensors stand.
Spec: `docs/spec/containers.md`, "AERO".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from wtxtgit.containers import msgpack_limits, ranges, zstd_limits
from wtxtgit.containers.cursor import Cursor, check_inside, fail, quoted
from wtxtgit.containers.magic import MAX_JSON
from wtxtgit.containers.ranges import MAX_TENSORS, Numeric, Range, Stored
from wtxtgit.model import Description

HEADER = Struct("<4sHHIQQQQQ16s28s")
"""magic major minor header_size toc_offset toc_length st_offset st_length flags uuid."""
TOC_HEADER = Struct("<IIQ")
TOC_ENTRY = Struct("<4sIQQQIIQ32s")
"""fourcc flags offset length ulen name_off name_len reserved blake3."""
VERSION = (0, 1)
COMPRESSED = 0x0001
INDEX = b"TIDX"
SHARD = b"WTSH"
SHARD_NAME = b"weights.shard%d"
MAX_SHARD_NAME = len(SHARD_NAME % -(2**64))
MAX_NAMES = MAX_JSON
"""Bytes of all chunk names of a file together, as far as they are listed."""
CONTROL_ROLE = "_control"
UNNAMED_CHUNK_ROLE = "_chunk"

DTYPES = {
    0: ("f16", Numeric("u16")),
    1: ("f32", Numeric("f32")),
    2: ("bf16", Numeric("u16")),
    3: ("f64", Numeric("f64")),
    4: ("i8", Numeric("i8")),
    5: ("u8", Numeric("u8")),
    6: ("i16", Numeric("i16")),
    7: ("u16", Numeric("u16")),
    8: ("i32", Numeric("i32")),
    9: ("u32", Numeric("u32")),
    10: ("i64", Numeric("i64")),
    11: ("u64", Numeric("u64")),
    12: ("bool", Numeric("u8")),
    0x8000: ("packed", None),
}
"""Name and WTXT dtype of each number that the format gives a meaning."""
NUMERIC = dict(DTYPES.values())

_FOURCC = re.compile(rb"[A-Za-z0-9]{4}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """An entry of the TOC; `name_off` counts from the string table's start."""

    fourcc: bytes
    flags: int
    offset: int
    length: int
    ulen: int
    name_off: int
    name_len: int

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
    def role(self) -> str:
        if not _FOURCC.fullmatch(self.fourcc):
            return UNNAMED_CHUNK_ROLE
        return "_" + self.fourcc.decode("ascii").lower()


@dataclass(frozen=True, slots=True)
class Header:
    """The file header's offsets and lengths."""

    toc_offset: int
    toc_length: int
    names_offset: int
    names_length: int
    flags: int
    uuid: bytes

    @property
    def control_end(self) -> int:
        """Where TOC and string table end; an empty string table stands nowhere."""
        toc_end = self.toc_offset + self.toc_length
        names_end = self.names_offset + self.names_length if self.names_length else 0
        return max(toc_end, names_end)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A tensor of the TIDX; `data_off` counts from the shard's start."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    shard_id: int
    data_off: int
    data_len: int

    @property
    def dtype_name(self) -> str:
        return DTYPES[self.dtype][0] if self.dtype in DTYPES else str(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Aero:
    """An AERO file that was read.

    `tensors` are in the index's order; those of `absent` have no bytes that
    can be read as they stand, because their shard is compressed or in
    another file.
    """

    data: memoryview
    header: Header
    chunks: tuple[Chunk, ...]
    tensors: tuple[Stored, ...]
    absent: tuple[IndexEntry, ...]

    def ranges(self) -> Iterator[Range]:
        yield ranges.part(0, self.header.control_end, CONTROL_ROLE)
        for chunk in self.chunks:
            if not chunk.is_raw_shard:
                yield ranges.part(chunk.offset, chunk.end, chunk.role)
        for tensor in self.tensors:
            yield ranges.tensor(tensor, NUMERIC.get(tensor.dtype))

    def describe(self) -> Description:
        if sum(chunk.name_len for chunk in self.chunks) > MAX_NAMES:
            fail("chunk names are too long", offset=0, field="name_len", kind="limit")
        return Description(
            "aero",
            tuple(tensor.listed(self.data) for tensor in self.tensors),
            {
                "version": ".".join(map(str, VERSION)),
                "uuid": self.header.uuid.hex(),
                "file_flags": self.header.flags,
                "chunks": [self._chunk_as_dict(chunk) for chunk in self.chunks],
                "absent": [{"name": e.name, "size": e.data_len} for e in self.absent],
            },
        )

    def _chunk_as_dict(self, chunk: Chunk) -> dict[str, object]:
        name = _chunk_name(self.data, self.header, chunk)
        return {
            "name": name.decode("utf-8", "backslashreplace"),
            "fourcc": chunk.fourcc.decode("ascii", "backslashreplace"),
            "flags": chunk.flags,
            "offset": chunk.offset,
            "length": chunk.length,
            "ulen": chunk.ulen,
        }


def read(data: memoryview) -> Aero:
    """Read an AERO file; raises FormatError."""
    header = _read_header(data)
    chunks = _read_toc(data, header)
    entries = _read_index(data, chunks)
    tensors, absent = _locate(data, header, chunks, entries)
    return Aero(data, header, chunks, tensors, absent)


def _read_header(data: memoryview) -> Header:
    _magic, major, minor, size, *rest = Cursor(data).record(HEADER, "file header")
    if (major, minor) != VERSION:
        fail(f"version {major}.{minor} is not 0.1", offset=4, field="version_major")
    if size != HEADER.size:
        fail(f"header_size is {size}, not {HEADER.size}", offset=8, field="header_size")
    toc_offset, toc_length, names_offset, names_length, flags, uuid, _reserved = rest
    check_inside(toc_offset, toc_length, len(data), "toc")
    check_inside(names_offset, names_length, len(data), "string table")
    return Header(toc_offset, toc_length, names_offset, names_length, flags, uuid)


def _read_toc(data: memoryview, header: Header) -> tuple[Chunk, ...]:
    start = header.toc_offset
    toc = Cursor(data[: start + header.toc_length], start)
    count, _reserved0, _reserved1 = toc.record(TOC_HEADER, "toc header")
    if count > MAX_TENSORS:
        fail(f"toc lists {count} chunks", offset=start, field="entry_count", kind="limit")
    entries = TOC_ENTRY.iter_unpack(toc.take(TOC_ENTRY.size * count, "toc"))
    chunks = tuple(Chunk(*fields[:7]) for fields in entries)
    for number, chunk in enumerate(chunks):
        check_inside(chunk.name_off, chunk.name_len, header.names_length, f"name of chunk {number}")
        check_inside(chunk.offset, chunk.length, len(data), f"chunk {number}")
    return chunks


def _chunk_name(data: memoryview, header: Header, chunk: Chunk) -> bytes:
    start = header.names_offset + chunk.name_off
    return bytes(data[start : start + chunk.name_len])


def _read_index(data: memoryview, chunks: tuple[Chunk, ...]) -> list[IndexEntry]:
    """The entries of the first TIDX."""
    chunk = next((chunk for chunk in chunks if chunk.fourcc == INDEX), None)
    if chunk is None:
        return []
    payload = data[chunk.offset : chunk.end] if chunk.length else data[:0]
    if chunk.is_compressed:
        raw = zstd_limits.decode(payload, MAX_JSON, "tidx", offset=chunk.offset)
    else:
        raw = bytes(payload[: MAX_JSON + 1])
    index = msgpack_limits.parse(raw, "tidx", offset=chunk.offset)
    tensors = index.get("tensors") if isinstance(index, dict) else None
    if not isinstance(tensors, list):
        fail("tidx is not a map with a list of tensors", offset=chunk.offset, field="tensors")
    if len(tensors) > MAX_TENSORS:
        fail("tidx lists too many tensors", offset=chunk.offset, field="tensors", kind="limit")
    return [_entry(number, item, chunk.offset) for number, item in enumerate(tensors)]


def _entry(number: int, item: object, offset: int) -> IndexEntry:
    if not isinstance(item, dict):
        fail(f"tensor {number} of the tidx is not a map", offset=offset, field="tensors")
    name, shape = item.get("name"), item.get("shape")
    if not isinstance(name, str):
        fail(f"tensor {number} of the tidx has no name", offset=offset, field="name")
    if not isinstance(shape, list) or any(type(dim) is not int for dim in shape):
        fail(f"tensor {quoted(name)} has a wrong shape", offset=offset, field="shape")
    numbers = []
    for key in ("dtype", "shard_id", "data_off", "data_len"):
        value = item.get(key)
        if type(value) is not int:
            fail(f"tensor {quoted(name)} has a wrong {key}", offset=offset, field=key)
        numbers.append(value)
    dtype, shard_id, data_off, data_len = numbers
    return IndexEntry(name, dtype, tuple(shape), shard_id, data_off, data_len)


def _locate(
    data: memoryview, header: Header, chunks: tuple[Chunk, ...], entries: list[IndexEntry]
) -> tuple[tuple[Stored, ...], tuple[IndexEntry, ...]]:
    """The tensors where they stand in the file, and those that do not."""
    shards: dict[bytes, Chunk] = {}
    for chunk in chunks:
        if chunk.fourcc == SHARD and chunk.name_len <= MAX_SHARD_NAME:
            shards.setdefault(_chunk_name(data, header, chunk), chunk)
    tensors, absent = [], []
    for entry in entries:
        shard = shards.get(SHARD_NAME % entry.shard_id)
        start = end = 0
        if shard is None or shard.is_compressed:
            absent.append(entry)
        else:
            check_inside(
                entry.data_off, entry.data_len, shard.length, f"tensor {quoted(entry.name)}"
            )
            start = shard.offset + entry.data_off
            end = start + entry.data_len
        tensors.append(Stored(entry.name, entry.dtype_name, entry.shape, start, end))
    return tuple(tensors), tuple(absent)
