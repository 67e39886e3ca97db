"""AERO 0.1: chunks behind a table of contents. Little-endian.

File header (96 bytes), TOC (16 bytes, then 80 for each chunk), string table,
payloads. The first TIDX chunk says where in the weight shards tensors stand.
Spec: `docs/spec/containers.md`, "AERO", for how a file is cut; `docs/spec/aero.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wtxtgit.containers import ranges, zstd_limits
from wtxtgit.containers.aero import index
from wtxtgit.containers.aero.index import IndexEntry
from wtxtgit.containers.aero.records import (
    HEADER,
    INDEX,
    MAX_SHARD_NAME,
    SHARD,
    SHARD_NAME,
    TOC_ENTRY,
    TOC_HEADER,
    VERSION,
    Chunk,
    Header,
    chunk_label,
    chunk_name,
)
from wtxtgit.containers.cursor import Cursor, check_inside, fail, quoted
from wtxtgit.containers.ranges import MAX_TENSORS, Range, Stored
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.reading import Description, ReadOptions

CONTROL_ROLE = "_control"


@dataclass(frozen=True, slots=True, eq=False)
class Aero:
    """An AERO file that was read.

    `shards` are the first weight shards of each name; `entries` are the
    index's, and `tensors` the same where they stand in the file as they are:
    those in no shard of the file, or in a compressed one, are empty there.
    """

    data: ByteView
    header: Header
    chunks: tuple[Chunk, ...]
    shards: dict[bytes, Chunk]
    entries: tuple[IndexEntry, ...]
    tensors: tuple[Stored, ...]

    def ranges(self) -> Iterator[Range]:
        yield ranges.part(0, self.header.control_end, CONTROL_ROLE)
        for chunk in self.chunks:
            if not chunk.is_raw_shard:
                yield ranges.part(chunk.offset, chunk.end, chunk.role)
        for tensor in self.tensors:
            yield ranges.tensor(tensor)

    def describe(self, options: ReadOptions) -> Description:
        """List tensors and metadata; raises FormatError where chunk names are too long."""
        from wtxtgit.containers.aero.description import describe  # not needed for cutting

        return describe(self, options)

    def shard(self, shard_id: int) -> Chunk | None:
        return self.shards.get(SHARD_NAME % shard_id)

    def first(self, fourcc: bytes) -> Chunk | None:
        return next((chunk for chunk in self.chunks if chunk.fourcc == fourcc), None)

    def stored(self, chunk: Chunk) -> ByteView:
        """The chunk's bytes as they stand in the file."""
        return self.data[chunk.offset : chunk.end] if chunk.length else self.data[:0]

    def label(self, chunk: Chunk) -> str:
        return chunk_label(self.data, self.header, chunk)


def read(data: ByteView) -> Aero:
    """Read an AERO file; raises FormatError."""
    header = _read_header(data)
    chunks = _read_toc(data, header)
    entries = _read_index(data, chunks)
    shards: dict[bytes, Chunk] = {}
    for chunk in chunks:
        if chunk.fourcc == SHARD and chunk.name_len <= MAX_SHARD_NAME:
            shards.setdefault(chunk_name(data, header, chunk), chunk)
    tensors = tuple(_locate(shards.get(SHARD_NAME % entry.shard_id), entry) for entry in entries)
    return Aero(data, header, chunks, shards, tuple(entries), tensors)


def index_content(data: ByteView, chunk: Chunk) -> bytes:
    """The content of a TIDX of the file `data`, a byte over MAX_JSON at most.

    Raises FormatError where it can't be decoded.
    """
    payload = data[chunk.offset : chunk.end] if chunk.length else data[:0]
    if chunk.is_compressed:
        return zstd_limits.decode(payload, MAX_JSON, "tidx", offset=chunk.offset)
    return bytes(payload[: MAX_JSON + 1])


def _read_header(data: ByteView) -> Header:
    _magic, major, minor, size, *rest = Cursor(data).record(HEADER, "file header")
    if (major, minor) != VERSION:
        fail(f"version {major}.{minor} is not 0.1", offset=4, field="version_major")
    if size != HEADER.size:
        fail(f"header_size is {size}, not {HEADER.size}", offset=8, field="header_size")
    toc_offset, toc_length, names_offset, names_length, flags, uuid, _reserved = rest
    check_inside(toc_offset, toc_length, len(data), "toc")
    check_inside(names_offset, names_length, len(data), "string table")
    return Header(toc_offset, toc_length, names_offset, names_length, flags, uuid)


def _read_toc(data: ByteView, header: Header) -> tuple[Chunk, ...]:
    start = header.toc_offset
    toc = Cursor(data[: start + header.toc_length], start)
    count, _reserved0, _reserved1 = toc.record(TOC_HEADER, "toc header")
    if count > MAX_TENSORS:
        fail(f"toc lists {count} chunks", offset=start, field="entry_count", kind="limit")
    entries = TOC_ENTRY.iter_unpack(mapped(toc.take(TOC_ENTRY.size * count, "toc")))
    chunks = tuple(Chunk(*fields) for fields in entries)
    for number, chunk in enumerate(chunks):
        name, at = f"name of chunk {number}", header.entry_offset(number)
        check_inside(chunk.name_off, chunk.name_len, header.names_length, name, at)
        check_inside(chunk.offset, chunk.length, len(data), f"chunk {number}")
    return chunks


def _read_index(data: ByteView, chunks: tuple[Chunk, ...]) -> list[IndexEntry]:
    """The entries of the first TIDX."""
    chunk = next((chunk for chunk in chunks if chunk.fourcc == INDEX), None)
    return [] if chunk is None else index.parse(index_content(data, chunk), chunk.offset)


def _locate(shard: Chunk | None, entry: IndexEntry) -> Stored:
    """The tensor where it stands in the file, empty where it does not."""
    start = end = 0
    if shard is not None and not shard.is_compressed:
        name = f"tensor {quoted(entry.name)}"
        check_inside(entry.data_off, entry.data_len, shard.length, name, shard.offset)
        start = shard.offset + entry.data_off
        end = start + entry.data_len
    return Stored(entry.name, entry.dtype_name, entry.shape, start, end, entry.element)
