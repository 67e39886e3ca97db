"""MLCP files at the edges of the spec."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.containers.edges.pieces import (
    FOUR,
    Case,
    Made,
    Piece,
    nested,
    opaque,
    part,
    tensor,
)


def net_string(text: bytes) -> bytes:
    assert len(text) < 128
    return bytes([len(text)]) + text


def mlcp_record(
    name: bytes, dtype: bytes, shape: Sequence[int], size: int, *, length: int | None = None
) -> bytes:
    head = struct.pack("<i", len(name) if length is None else length) + name + net_string(dtype)
    return head + struct.pack(f"<i{len(shape)}qq", len(shape), *shape, size)


def made() -> Made:
    record = mlcp_record(b"w", b"Float32", [1], 4)
    one = struct.pack("<i", 1)

    def head(metadata: bytes, version: bytes = net_string(b"1.0.0")) -> bytes:
        return b"PCLM" + version + struct.pack("<i", len(metadata)) + metadata

    listed = b'{"shards":[{}]}'
    none = b"{}"

    def bare(start: bytes, records: bytes, note: str) -> Case:
        held = (part("_records", records),) if records else ()
        return Case(note, "mlcp", (part("_header", start), *held))

    w = tensor("w", FOUR, "Float32", [1], "f32", held=[1])
    yield "mlcp_bare", bare(head(listed), one + record, "no tensor bytes")
    yield (
        "mlcp_after_each",
        Case(
            "the bytes after the record",
            "mlcp",
            (part("_header", head(listed)), Piece(one + record), w),
        ),
    )
    yield (
        "mlcp_long_length",
        bare(head(none, b"\x85\x80\x00" + b"1.0.0"), one + record, "a length in needless groups"),
    )
    yield (
        "mlcp_longest_length",
        bare(
            head(none, b"\x85\x80\x80\x80\x00" + b"1.0.0"), one + record, "a length in five groups"
        ),
    )
    yield (
        "mlcp_too_long_length",
        opaque(head(none, b"\x85\x80\x80\x80\x80\x00" + b"1.0.0") + one + record, "in six"),
    )
    yield (
        "mlcp_length_of_32_bits",
        opaque(
            head(none, b"\x85\x80\x80\x80\x10" + b"1.0.0") + one + record, "a length over 2^31 - 1"
        ),
    )
    yield (
        "mlcp_version_not_utf_8",
        opaque(head(none, net_string(b"1.\xff")) + one + record, "no UTF-8"),
    )
    yield "mlcp_no_version", bare(head(none, b"\0"), one + record, "a version of no characters")
    yield (
        "mlcp_negative_size",
        bare(
            head(listed),
            one + mlcp_record(b"w", b"Float32", [1], -4),
            "without tensor bytes nobody looks at sizes",
        ),
    )
    negative = one + mlcp_record(b"w", b"Float32", [1], -4) + FOUR
    yield (
        "mlcp_negative_size_with_bytes",
        opaque(head(listed) + negative, "with tensor bytes a size is not negative"),
    )
    yield (
        "mlcp_negative_shape",
        bare(head(listed), one + mlcp_record(b"w", b"Float32", [-1], 4), "sizes may be negative"),
    )
    yield (
        "mlcp_negative_rank",
        opaque(head(listed) + one + one + b"w\0" + struct.pack("<iq", -1, 4), "a rank is not"),
    )
    yield (
        "mlcp_negative_name",
        opaque(
            head(listed) + one + mlcp_record(b"", b"", [], 0, length=-1), "nor is a name's length"
        ),
    )
    yield "mlcp_negative_count", opaque(head(listed) + struct.pack("<i", -1), "nor is a count")
    yield "mlcp_no_shards", bare(head(none), b"", "no shard at all")
    yield "mlcp_empty_shards", bare(head(none), bytes(12), "three shards without tensors")
    yield "mlcp_metadata_no_object", bare(head(b" 7\n"), one + record, "the JSON may be any value")
    yield (
        "mlcp_metadata_byte_order_mark",
        opaque(head(b"\xef\xbb\xbf{}") + one + record, "a byte order mark is no JSON"),
    )
    yield (
        "mlcp_shards_no_list",
        opaque(
            head(b'{"shards":1}') + one + record + FOUR,
            "no list, so no shard is listed: the bytes are left",
        ),
    )
    deep = head(b'{"x":' + nested(63).encode() + b"}")
    yield "mlcp_metadata_deepest", bare(deep, one + record, "64 levels")
    yield (
        "mlcp_metadata_too_deep",
        opaque(head(b'{"x":' + nested(64).encode() + b"}") + one + record, "65 levels"),
    )
