"""Small container files built by hand, and the fixtures with their manifests."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgpack
import zstandard

from wtxtgit.containers.any_format import split
from wtxtgit.model.array import ITEM_SIZE, Cut

DATA = Path(__file__).parents[1] / "data"
FIXTURES = DATA / "fixtures"


def manifest_entries() -> list[dict[str, Any]]:
    """The manifest's entries for single files; never an empty list."""
    entries = json.loads((FIXTURES / "manifest.json").read_bytes())["entries"]
    assert entries
    return [entry for entry in entries if entry["format"] != "AEROSET"]


def joined(cut: Cut) -> bytes:
    """The file that a cut's extents give."""
    held = {array.name: array.data for array in cut.arrays}
    assert len(held) == len(cut.arrays)
    parts: list[bytes] = []
    for extent in cut.layout.extents:
        if extent.array is not None:
            parts.append(bytes(held.pop(extent.array)))
        elif extent.hex is not None:
            parts.append(extent.hex)
        else:
            parts.append(bytes(extent.zeros or 0))
    assert not held
    return b"".join(parts)


def check_cut(cut: Cut, data: bytes) -> None:
    """What holds for every cut of every file."""
    assert joined(cut) == data
    assert cut.layout.size == len(data)
    assert (cut.reason is not None) == (cut.layout.format == "opaque")
    zeros = [extent.zeros for extent in cut.layout.extents if extent.zeros is not None]
    assert all(0 < run <= 65_536 for run in zeros)
    assert sum(zeros) <= 16 * 2**20 + len(data) - sum(zeros)
    for extent in cut.layout.extents:
        assert [extent.array, extent.hex, extent.zeros].count(None) == 2
        assert extent.hex is None or 1 <= len(extent.hex) <= 64
    for array in cut.arrays:
        assert array.rows is None
        assert array.nbytes == len(array.data) > 0
        assert array.dtype in ITEM_SIZE


def spelled(cut: Cut) -> list[str]:
    """The extents as short words: array names, `hex:..`, `zeros:n`."""
    words = []
    for extent in cut.layout.extents:
        if extent.array is not None:
            words.append(extent.array)
        elif extent.hex is not None:
            words.append("hex:" + extent.hex.hex())
        else:
            words.append(f"zeros:{extent.zeros}")
    return words


def safetensors(header: object, data: bytes = b"") -> bytes:
    """A safetensors file; a header given as bytes is taken as it is."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def tensor_item(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def fold_chunk(ctype: bytes, payload: bytes, *, flags: int = 0, ecc: bytes = b"") -> bytes:
    head = struct.pack(">4sIQQII", ctype, flags, len(payload), len(payload), 0, len(ecc))
    return head + payload + ecc


def fold(chunks: list[bytes], index: object = None, *, names: list[str] | None = None) -> bytes:
    """A FOLD file; the index lists the chunks unless it is given (bytes as they are)."""
    offsets, pos = [], 28
    for chunk in chunks:
        offsets.append(pos)
        pos += len(chunk)
    if index is None:
        names = names or [f"c{n}" for n in range(len(chunks))]
        listed = zip(names, offsets, strict=True)
        index = {"version": "1.2.0", "chunks": [{"name": n, "offset": o} for n, o in listed]}
    raw = index if isinstance(index, bytes) else json.dumps(index).encode()
    return struct.pack(">8sIQQ", b"FOLDv1\0\0", 28, pos, len(raw)) + b"".join(chunks) + raw


def aero_entry(title: str, start: int, length: int, **changes: object) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": title,
        "dtype": 1,
        "shape": [length // 4],
        "shard_id": 0,
        "data_off": start,
        "data_len": length,
    }
    return entry | changes


def tidx(entries: object, *, compress: bool = False) -> bytes:
    raw: bytes = msgpack.packb({"tensors": entries})
    return zstandard.compress(raw) if compress else raw


def aero(chunks: list[tuple[bytes, bytes, bytes] | tuple[bytes, bytes, bytes, int]]) -> bytes:
    """An AERO file of (fourcc, name, payload[, flags]), payloads back to back."""
    names = b"\0".join(chunk[1] for chunk in chunks) + b"\0"
    toc_length = 16 + 80 * len(chunks)
    names_offset = 96 + toc_length
    pos = names_offset + len(names)
    name_off = 0
    toc = struct.pack("<IIQ", len(chunks), 0, 0)
    for fourcc, name, payload, *flags in chunks:
        toc += struct.pack(
            "<4sIQQQIIQ32s",
            fourcc,
            flags[0] if flags else 0,
            pos,
            len(payload),
            len(payload),
            name_off,
            len(name),
            0,
            b"",
        )
        pos += len(payload)
        name_off += len(name) + 1
    head = struct.pack(
        "<4sHHIQQQQQ16s28s",
        b"AERO",
        0,
        1,
        96,
        96,
        toc_length,
        names_offset,
        len(names),
        0,
        bytes(range(16)),
        b"",
    )
    return head + toc + names + b"".join(chunk[2] for chunk in chunks)


def net_string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    length, out = len(raw), b""
    while length >= 0x80:
        out += bytes([length & 0x7F | 0x80])
        length >>= 7
    return out + bytes([length]) + raw


def mlcp_record(name: bytes, dtype: str, shape: list[int], size: int) -> bytes:
    return (
        struct.pack("<i", len(name))
        + name
        + net_string(dtype)
        + struct.pack(f"<i{len(shape)}qq", len(shape), *shape, size)
    )


def mlcp(metadata: object, body: bytes = b"", *, version: str = "1.0.0") -> bytes:
    """An MLCP file; metadata given as bytes is taken as it is."""
    raw = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    return b"PCLM" + net_string(version) + struct.pack("<i", len(raw)) + raw + body


def taridx(extensions: bytes, stems: bytes, rows: bytes, **changes: object) -> bytes:
    """A TARIDX file; `changes` replace fields of its header."""
    fields: dict[str, object] = {
        "magic": b"TARIDX\0\0",
        "major": 1,
        "minor": 0,
        "rec_size": 32,
        "hdr_size": 64,
        "n_stems": 1,
        "n_rows": len(rows) // 32,
        "n_ext": extensions.count(b"\n") + 1,
        "n_crash": 0,
        "off_crash": 64 + len(extensions),
        "off_arr": 64 + len(extensions) + len(stems),
        "flags": 1,
    }
    head = struct.pack("<8sHHHHQQIIQQB7s", *(fields | changes).values(), b"")
    return head + extensions + stems + rows


def words(data: bytes) -> list[str]:
    """The layout of a file that is cut as it should be, as `spelled` tells it."""
    result = split(memoryview(data))
    check_cut(result, data)
    return spelled(result)


def count(n: int) -> bytes:
    """A count as MLCP has it."""
    return struct.pack("<i", n)
