"""AERO files at the edges of the spec."""

from __future__ import annotations

import struct
from typing import Any

import msgpack

from tests.containers.edges.pieces import (
    Case,
    Made,
    Piece,
    opaque,
    part,
    tensor,
)


def toc_entry(
    fourcc: bytes,
    offset: int,
    length: int,
    *,
    flags: int = 0,
    ulen: int | None = None,
    name: tuple[int, int] = (0, 0),
) -> bytes:
    ulen = length if ulen is None else ulen
    return struct.pack("<4sIQQQIIQ32s", fourcc, flags, offset, length, ulen, *name, 0, bytes(32))


SHARD = b"weights.shard0\0\0"
TENSORS = [{"name": "w", "dtype": 5, "shape": [3], "shard_id": 0, "data_off": 0, "data_len": 3}]


def packed(tensors: object, **also: object) -> bytes:
    raw: bytes = msgpack.packb({"tensors": tensors, **also})
    return raw


def raw_frame(content: bytes, checksum: bytes = b"") -> bytes:
    """A zstd frame of one raw block: RFC 8878, section 3.1.1."""
    descriptor = 0b011_00000 if not checksum else 0b011_00100
    head = b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + struct.pack("<H", len(content) - 256)
    return head + (len(content) << 3 | 1).to_bytes(3, "little") + content + checksum


def made() -> Made:
    abc = b"abc"
    w = tensor("w", abc, "u8", [3], held=[3])

    def pieces(
        index: bytes,
        *held: Piece,
        shard_flags: int = 2,
        more: bytes = b"",
        names_of: bytes = SHARD,
        **index_fields: Any,
    ) -> tuple[Piece, ...]:
        held = held or (w,)
        shard = b"".join(piece.raw for piece in held)
        count = 2 + len(more) // 80
        names = 96 + 16 + 80 * count
        start = names + len(names_of)
        toc = struct.pack("<IIQ", count, 0, 0)
        toc += toc_entry(b"TIDX", start, len(index), **index_fields)
        place = start + len(index)
        toc += toc_entry(b"WTSH", place, len(shard), flags=shard_flags, name=(0, 14)) + more
        head = struct.pack(
            "<4sHHIQQQQQ16s28s", b"AERO", 0, 1, 96, 96, len(toc), names, len(names_of), 0, b"", b""
        )
        return part("_control", head + toc + names_of), part("_tidx", index), *held

    def good(index: bytes, note: str, *held: Piece, **also: Any) -> Case:
        return Case(note, "aero", pieces(index, *held, **also))

    def bad(index: bytes, note: str, *held: Piece, **also: Any) -> Case:
        return opaque(b"".join(piece.raw for piece in pieces(index, *held, **also)), note)

    def other(**changes: object) -> bytes:
        return packed([{**TENSORS[0], **changes}])

    gap = (Piece(abc),)
    plain = packed(TENSORS)
    yield "aero_plain", good(plain, "")
    named = SHARD + b"\xff\xfe\0\0"
    yield (
        "aero_name_not_utf_8",
        good(plain, "names of chunks are any bytes", names_of=named, name=(len(SHARD), 2)),
    )
    yield "aero_ulen_wrong", good(plain, "chunk_ulen is not looked at", ulen=2**63)
    yield "aero_after_the_value", good(plain + b"\xc1\xff", "bytes after the value are ignored")
    yield "aero_large_tidx_ulen", good(plain, "nor is a chunk_ulen of 0", ulen=0)
    long = packed(TENSORS, pad="x" * 256)
    frame = raw_frame(long)
    yield "aero_zstd", good(frame, "one frame", flags=1, ulen=len(long))
    yield "aero_zstd_ulen_wrong", good(frame, "chunk_ulen is not looked at", flags=1, ulen=1)
    yield (
        "aero_zstd_bytes_after",
        good(frame + b"behind", "bytes after the frame are ignored", flags=1),
    )
    yield (
        "aero_zstd_frame_after",
        good(frame + raw_frame(bytes(300)), "and so is a second frame", flags=1),
    )
    yield (
        "aero_zstd_skippable_first",
        bad(b"\x50\x2a\x4d\x18\1\0\0\0x" + frame, "no skippable frame", flags=1),
    )
    yield "aero_zstd_cut", bad(frame[:-1], "the frame is cut short", flags=1)
    yield (
        "aero_zstd_checksum_wrong",
        bad(
            raw_frame(long, b"\1\2\3\4"),
            "a frame whose own checksum does not hold does not decode",
            flags=1,
        ),
    )
    yield (
        "aero_zstd_dictionary",
        bad(
            frame[:4] + bytes([frame[4] | 1]) + b"\7" + frame[5:],
            "a frame with a dictionary",
            flags=1,
        ),
    )
    yield (
        "aero_zstd_window",
        bad(b"\x28\xb5\x2f\xfd\0\x90" + frame[7:], "a window of 256 MiB", flags=1),
    )
    yield (
        "aero_zstd_window_128_mib",
        good(b"\x28\xb5\x2f\xfd\0\x88" + frame[7:], "a window of 128 MiB", flags=1),
    )
    yield "aero_zstd_not_compressed", bad(frame, "the flag decides, not the bytes")
    yield "aero_zstd_flag_alone", bad(plain, "a chunk with the flag is a frame", flags=1)
    yield (
        "aero_empty_tensor_outside",
        good(other(data_off=-(2**63), data_len=0), "a range of length 0 points nowhere", *gap),
    )
    yield "aero_negative_offset", bad(other(data_off=-1), "outside of its shard")
    yield "aero_negative_length", bad(other(data_len=-1), "outside of its shard")
    yield "aero_outside", bad(other(data_len=4), "outside of its shard")
    yield (
        "aero_no_shard",
        good(
            other(shard_id=1, data_off=-5, data_len=-7), "its shard is not there: no extent", *gap
        ),
    )
    yield (
        "aero_compressed_shard",
        good(
            other(data_off=99),
            "its shard is compressed: no extent",
            part("_wtsh", abc),
            shard_flags=3,
        ),
    )
    yield (
        "aero_negative_shape",
        good(other(shape=[-3]), "sizes may be negative", tensor("w", abc, "u8", [-3])),
    )
    yield (
        "aero_dtype_unknown",
        good(other(dtype=99), "any integer is a dtype", tensor("w", abc, "99", [3])),
    )
    yield "aero_dtype_true", bad(other(dtype=True), "true is no integer")
    yield "aero_shape_float", bad(other(shape=[3.0]), "3.0 is no integer")
    yield "aero_name_bytes", bad(other(name=b"w"), "a name is a string, not bytes")
    yield (
        "aero_no_flags",
        bad(
            packed([{"name": "w", "dtype": 5, "shape": [3], "shard_id": 0, "data_off": 0}]),
            "data_len is missing",
        ),
    )
    yield (
        "aero_further_keys",
        good(packed([{**TENSORS[0], "x": None, 7: 1.5}]), "other keys say nothing"),
    )
    ext = msgpack.packb({"a": msgpack.ExtType(5, b"xyz"), 1.5: b"\xff", "tensors": TENSORS})
    yield "aero_extension", good(ext, "extensions, bytes and keys of any type are read")
    stamp = ext.replace(b"\x05xyz", b"\xffxyz")
    yield "aero_wrong_timestamp", good(stamp, "what is in an extension is not looked at")
    yield (
        "aero_key_is_list",
        good(b"\x82\x91\x01\x02" + plain[1:], "a key may be a list, which no tensor asks for"),
    )
    yield (
        "aero_not_utf_8",
        bad(
            packed(TENSORS, x="??").replace(b"??", b"\xff\xfe"),
            "a string that is not UTF-8, anywhere",
        ),
    )
    yield (
        "aero_key_twice",
        good(b"\x82\xa7tensors\x01" + plain[1:], "of equal keys the last one counts"),
    )
    yield "aero_never_used", bad(plain[:1] + b"\xa1x\xc1" + plain[1:], "0xc1 is no value")
    yield "aero_deepest", good(packed(TENSORS, x=_lists(63)), "64 levels, the map is the first")
    yield "aero_too_deep", bad(packed(TENSORS, x=_lists(64)), "65 levels")
    large = packed(TENSORS, x=2**64 - 1)
    yield "aero_largest_integer", good(large, "2^64 - 1")
    yield "aero_no_list", bad(packed({"w": 1}), "tensors is no list")
    second = toc_entry(b"TIDX", 0, 4)
    yield "aero_second_index", good(plain, "the first TIDX counts", more=second[:16] + bytes(64))
    far = toc_entry(b"XXXX", 2**40, 0)
    yield "aero_empty_chunk_outside", good(plain, "a chunk of no bytes stands nowhere", more=far)
    odd = toc_entry(b"A-\xff?", 2**40, 0)
    yield "aero_odd_type", good(plain, "a type may be any bytes", more=odd)
    outside = toc_entry(b"XXXX", 2**40, 1)
    yield "aero_chunk_outside", bad(plain, "a chunk outside of the file", more=outside)


def _lists(depth: int) -> list[Any]:
    held: list[Any] = []
    for _ in range(depth - 1):
        held = [held]
    return held
