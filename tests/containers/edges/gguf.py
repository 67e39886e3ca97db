"""GGUF files at the edges of the spec."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.containers.edges.pieces import (
    FOUR,
    Case,
    Made,
    Piece,
    opaque,
    part,
    tensor,
)


def gguf_string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def gguf_info(name: bytes, dims: Sequence[int], kind: int, offset: int) -> bytes:
    return gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def made() -> Made:
    def pieces(
        infos: Sequence[bytes], entries: Sequence[bytes] = (), *held: Piece, alignment: int = 32
    ) -> tuple[Piece, ...]:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries))
        head += b"".join(entries) + b"".join(infos)
        return part("_header", head + bytes(-len(head) % alignment)), *held

    def bad(infos: Sequence[bytes], note: str, entries: Sequence[bytes] = ()) -> Case:
        file = b"".join(piece.raw for piece in pieces(infos, entries, Piece(FOUR)))
        return opaque(file, note)

    def good(
        infos: Sequence[bytes], note: str, *held: Piece, entries: Sequence[bytes] = (), **also: int
    ) -> Case:
        return Case(note, "gguf", pieces(infos, entries, *held, **also))

    w = tensor("w", FOUR, "F32", [1], "f32", held=[1], order="F")
    info = gguf_info(b"w", [1], 0, 0)
    yield (
        "gguf_no_dimensions",
        good(
            [gguf_info(b"w", [], 0, 0)],
            "a tensor without dimensions is one item",
            tensor("w", FOUR, "F32", [], "f32", held=[], order="F"),
        ),
    )
    yield (
        "gguf_no_dimensions_of_blocks",
        bad([gguf_info(b"w", [], 2, 0)], "one item is no multiple of a block of 32"),
    )
    yield "gguf_half_a_block", bad([gguf_info(b"w", [16], 2, 0)], "the first dimension is none")
    yield (
        "gguf_zero_dimension",
        good([info, gguf_info(b"v", [0], 0, 2**60)], "a range of length 0 points nowhere", w),
    )
    yield (
        "gguf_zero_dimension_of_blocks",
        good([info, gguf_info(b"v", [32, 0], 2, 2**60)], "a range of length 0 points nowhere", w),
    )
    yield (
        "gguf_unknown_type",
        good([gguf_info(b"w", [1], 999, 2**60)], "it gives no extent", Piece(FOUR)),
    )
    yield "gguf_outside", bad([gguf_info(b"w", [2], 0, 0)], "outside of the file")
    key = gguf_string(b"general.alignment")

    def aligned(value: int) -> bytes:
        return key + struct.pack("<II", 4, value)

    yield (
        "gguf_alignment_twice",
        good([info], "the last one counts", w, entries=[aligned(3), aligned(64)], alignment=64),
    )
    yield "gguf_alignment_of_3", bad([info], "no power of two", [aligned(3)])
    yield "gguf_alignment_int32", bad([info], "no uint32", [key + struct.pack("<Ii", 5, 64)])
    yield "gguf_key_not_utf_8", bad([info], "no UTF-8", [gguf_string(b"\xff") + b"\0\0\0\0\1"])
    yield "gguf_name_not_utf_8", bad([gguf_info(b"\xff", [1], 0, 0)], "no UTF-8")
    yield (
        "gguf_value_not_utf_8",
        good(
            [info],
            "values may be any bytes",
            w,
            entries=[gguf_string(b"k") + struct.pack("<I", 8) + gguf_string(b"\xff")],
        ),
    )
    yield (
        "gguf_bool_of_7",
        good(
            [info],
            "a bool is not looked at",
            w,
            entries=[gguf_string(b"k") + struct.pack("<IB", 7, 7)],
        ),
    )
    yield "gguf_type_13", bad([info], "there is no such type", [gguf_string(b"k") + b"\x0d\0\0\0"])

    def arrays(depth: int) -> bytes:
        held = gguf_string(b"k") + struct.pack("<I", 9)
        return held + struct.pack("<IQ", 9, 1) * (depth - 1) + struct.pack("<IQB", 0, 1, 7)

    yield "gguf_deepest", good([info], "64 arrays inside one another", w, entries=[arrays(64)])
    yield "gguf_too_deep", bad([info], "65 arrays", [arrays(65)])
    yield "gguf_9_dimensions", bad([gguf_info(b"w", [1] * 9, 0, 0)], "8 dimensions at most")
