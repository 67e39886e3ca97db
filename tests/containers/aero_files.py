"""AERO files for tests, built and read from the spec alone, without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgpack
import zstandard
from blake3 import blake3

from wtxtgit.containers import any_format
from wtxtgit.model.findings import Findings, Problem
from wtxtgit.model.tensor import ReadOptions

HEADER, TOC_HEADER, ENTRY = "<4sHHIQQQQQ16s28s", "<IIQ", "<4sIQQQIIQ32s"
COMPRESSED, CRITICAL, OPTIONAL = 1, 2, 8
TOC = 96 + 16
"""Where the first TOC entry stands."""


def digest(data: bytes) -> bytes:
    return blake3(data).digest()


@dataclass(frozen=True)
class Chunk:
    """A chunk: `content` is what is hashed; the other fields say otherwise what is true."""

    fourcc: bytes
    name: bytes
    content: bytes
    flags: int = 0
    stored: bytes | None = None
    ulen: int | None = None
    digest: bytes | None = None
    offset: int | None = None
    reserved: int = 0

    @property
    def bytes_stored(self) -> bytes:
        if self.stored is not None:
            return self.stored
        return zstandard.compress(self.content) if self.flags & COMPRESSED else self.content


def aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def file(chunks: Sequence[Chunk], *, ihsh: bool = False, **header: int | bytes) -> bytes:
    """A whole file; `header` replaces fields of the file header."""
    if ihsh:
        chunks = [Chunk(b"IHSH", b"control.integrity", bytes(256), OPTIONAL), *chunks]
    names = b"".join(chunk.name + b"\0" for chunk in chunks)
    names += bytes(-len(names) % 8)
    toc_length = 16 + 80 * len(chunks)
    start = aligned(96 + toc_length + len(names), 16)
    fields: dict[str, int | bytes] = {
        "magic": b"AERO",
        "major": 0,
        "minor": 1,
        "header_size": 96,
        "toc_offset": 96,
        "toc_length": toc_length,
        "names_offset": 96 + toc_length,
        "names_length": len(names),
        "flags": 0,
        "uuid": bytes(range(16)),
        "reserved": b"",
    }
    head = struct.pack(HEADER, *(fields | header).values())

    def control() -> bytes:
        toc, pos, name_off = struct.pack(TOC_HEADER, len(chunks), 0, 0), start, 0
        for chunk in chunks:
            if chunk.offset is None:
                pos = aligned(pos, 16)
            toc += struct.pack(
                ENTRY,
                chunk.fourcc,
                chunk.flags,
                pos if chunk.offset is None else chunk.offset,
                len(chunk.bytes_stored),
                len(chunk.content) if chunk.ulen is None else chunk.ulen,
                name_off,
                len(chunk.name),
                chunk.reserved,
                digest(chunk.content) if chunk.digest is None else chunk.digest,
            )
            if chunk.offset is None:
                pos += len(chunk.bytes_stored)
            name_off += len(chunk.name) + 1
        return (head + toc + names).ljust(start, b"\0")

    if ihsh:
        seal = integrity(digest(without_hashes(control(), len(chunks))), [[0, start]])
        chunks = [replace(chunks[0], content=seal), *chunks[1:]]
    body = bytearray(control())
    for chunk in chunks:
        if chunk.offset is None:
            body += bytes(-len(body) % 16) + chunk.bytes_stored
    return bytes(body)


def without_hashes(control: bytes, entries: int) -> bytes:
    zeroed = bytearray(control)
    for place in range(entries):
        zeroed[TOC + 80 * place + 48 : TOC + 80 * place + 80] = bytes(32)
    return bytes(zeroed)


def integrity(value: bytes, ranges: object, algo: object = "blake3-256") -> bytes:
    packed: bytes = msgpack.packb({"algo": algo, "covered_ranges": ranges, "digest": value})
    return packed.ljust(256, b"\0")


def entry(name: str, shape: list[int], start: int, length: int, **more: Any) -> dict[str, Any]:
    """A tensor of f32 in shard 0, unless `more` says otherwise."""
    fields = {"name": name, "dtype": 1, "shape": shape, "shard_id": 0}
    return fields | {"data_off": start, "data_len": length, "flags": 0} | more


def tidx(*entries: dict[str, Any], **more: Any) -> Chunk:
    return Chunk(
        b"TIDX", b"tensors", msgpack.packb({"tensors": list(entries)}), **({"flags": 4} | more)
    )


def shard(content: bytes, number: int = 0, **more: Any) -> Chunk:
    return Chunk(b"WTSH", b"weights.shard%d" % number, content, **({"flags": CRITICAL} | more))


def phsh(shard_name: object, page_size: object, digests: object, **more: Any) -> Chunk:
    value = {"shard_name": shard_name, "page_size": page_size, "digests": digests}
    name = str(shard_name).encode() + b".phsh"
    return Chunk(b"PHSH", name, msgpack.packb(value), **({"flags": OPTIONAL} | more))


def pages(content: bytes, size: int) -> list[bytes]:
    return [digest(content[start : start + size]) for start in range(0, len(content), size)]


WEIGHTS = bytes(n * n * 31 % 251 for n in range(400))


def model(*more: Chunk, **options: Any) -> bytes:
    """A sound file: two tensors of 200 bytes in one shard."""
    chunks = [tidx(entry("a", [50], 0, 200), entry("b", [5, 10], 200, 200)), shard(WEIGHTS)]
    return file([*chunks, *more], **options)


def changed(data: bytes, offset: int, layout: str, *values: object) -> bytes:
    raw = bytearray(data)
    struct.pack_into(layout, raw, offset, *values)
    return bytes(raw)


def check(data: bytes, **options: Any) -> Findings:
    return any_format.check(memoryview(data), ReadOptions(**options))


def brief(problems: list[Problem]) -> list[tuple[str, str | None, int | None]]:
    """Kind, field and offset of each."""
    return [(problem.kind, problem.field, problem.offset) for problem in problems]


@dataclass(frozen=True)
class Reading:
    """What the reader below found: chunks by (type, name), tensors by name."""

    chunks: dict[tuple[bytes, str], bytes]
    tensors: dict[str, tuple[int, tuple[int, ...], bytes]]
    uuid: bytes


def read_strictly(data: bytes) -> Reading:
    """Read a file that has to follow every rule of the spec."""
    head = struct.unpack_from(HEADER, data)
    assert head[:5] == (b"AERO", 0, 1, 96, 96)
    _, _, _, _, toc_offset, toc_length, names_offset, names_length, flags, uuid, reserved = head
    assert (flags, reserved) == (0, bytes(28))
    count, *zeros = struct.unpack_from(TOC_HEADER, data, toc_offset)
    assert (zeros, toc_length) == ([0, 0], 16 + 80 * count)
    assert names_offset == toc_offset + toc_length
    assert (names_offset % 8, names_length % 8) == (0, 0)
    chunks: dict[tuple[bytes, str], bytes] = {}
    end = names_offset + names_length
    for place in range(count):
        fourcc, flags, offset, length, ulen, name_off, name_len, zero, hashed = struct.unpack_from(
            ENTRY, data, TOC + 80 * place
        )
        assert (zero, offset) == (0, aligned(end, 16))
        assert not any(data[end:offset])
        content = data[offset : offset + length]
        assert len(content) == length
        end = offset + length
        if flags & COMPRESSED:
            assert fourcc not in {b"WTSH", b"IHSH", b"PHSH"}
            content = zstandard.ZstdDecompressor().decompress(content, max_output_size=ulen)
        assert (len(content), digest(content)) == (ulen, hashed)
        name = data[names_offset + name_off :][:name_len].decode()
        assert data[names_offset + name_off + name_len] == 0
        assert (fourcc, name) not in chunks
        chunks[fourcc, name] = content
        if fourcc == b"IHSH":
            assert (place, flags, length) == (0, OPTIONAL, 256)
            sealed = msgpack.Unpacker()
            sealed.feed(content)
            value = sealed.unpack()
            assert (value["algo"], value["covered_ranges"]) == ("blake3-256", [[0, offset]])
            assert value["digest"] == digest(without_hashes(data[:offset], count))
    assert end == len(data)
    for (fourcc, name), content in chunks.items():
        if fourcc == b"PHSH":
            value = msgpack.unpackb(content)
            assert name == value["shard_name"] + ".phsh"
            whole = chunks[b"WTSH", value["shard_name"]]
            assert value["digests"] == pages(whole, value["page_size"])
    tensors = {}
    for item in msgpack.unpackb(chunks[b"TIDX", "tensors"])["tensors"]:
        whole = chunks[b"WTSH", f"weights.shard{item['shard_id']}"]
        content = whole[item["data_off"] : item["data_off"] + item["data_len"]]
        assert len(content) == item["data_len"]
        assert item.get("hash_b3", digest(content).hex()) == digest(content).hex()
        assert item["name"] not in tensors
        tensors[item["name"]] = (item["dtype"], tuple(item["shape"]), content)
    return Reading(chunks, tensors, uuid)


def manifest(**value: object) -> Chunk:
    return Chunk(b"MMSG", b"manifest", msgpack.packb(value))
