"""FOLD files at the edges of the spec."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tests.containers.edges.pieces import (
    FOUR,
    Case,
    Made,
    Piece,
    W,
    nested,
    opaque,
    part,
    sized,
    tensor,
)


def fold_chunk(ctype: bytes, payload: bytes, *, flags: int = 0, ecc: bytes = b"") -> bytes:
    return struct.pack(">4sIQQII", ctype, flags, 7, len(payload), 7, len(ecc))


def fold_head(index_off: int, index_len: int) -> bytes:
    return struct.pack(">8sIQQ", b"FOLDv1\0\0", 28, index_off, index_len)


def made() -> Made:
    inner = sized(f"{{{W}}}".encode())
    cut = (
        part("c_header", inner),
        tensor("c_w", FOUR, "F32", [1], "f32", name="c/w", held=[1]),
    )
    whole = (part("c", inner + FOUR, "c"),)

    def pieces(
        index: str | bytes, held: Sequence[Piece] = cut, ctype: bytes = b"STEN", flags: int = 0
    ) -> tuple[Piece, ...]:
        raw = index if isinstance(index, bytes) else index.encode()
        payload = b"".join(piece.raw for piece in held)
        chunk = fold_chunk(ctype, payload, flags=flags)
        head = fold_head(28 + len(chunk) + len(payload), len(raw))
        return Piece(head), Piece(chunk), *held, part("_index", raw)

    def good(index: str | bytes, note: str, *held: Piece, **also: Any) -> Case:
        return Case(note, "fold", pieces(index, held or cut, **also))

    def bad(index: str | bytes, note: str) -> Case:
        return opaque(b"".join(piece.raw for piece in pieces(index)), note)

    entry = '{"chunks":[{"name":"c","offset":28%s}]%s}'
    plain = entry % ("", "")
    yield "fold_index_blanks", good(f"\n {plain} \t\r\n", "JSON's whitespace around the index")
    yield (
        "fold_index_byte_order_mark",
        bad(b"\xef\xbb\xbf" + plain.encode(), "a byte order mark is no JSON"),
    )
    yield (
        "fold_index_not_utf_8",
        bad((entry % ("", ',"x":"?"')).encode().replace(b"?", b"\xff"), "no UTF-8"),
    )
    yield "fold_index_empty", opaque(fold_head(28, 0), "no JSON")
    yield "fold_index_deepest", good(entry % ("", ',"x":' + nested(63)), "64 levels")
    yield "fold_index_too_deep", bad(entry % ("", ',"x":' + nested(64)), "65 levels")
    yield "fold_index_large_integer", bad(entry % ("", ',"x":18446744073709551616'), "2^64")
    yield (
        "fold_offset_twice",
        good(
            '{"chunks":[{"name":"c","offset":9999,"offset":28}]}',
            "of equal keys the last one counts",
        ),
    )
    yield "fold_offset_true", bad('{"chunks":[{"name":"c","offset":true}]}', "no integer")
    yield "fold_offset_float", bad(plain.replace("28", "28.0"), "no integer")
    yield "fold_name_surrogate", bad(plain.replace('"c"', r'"\udc00"'), "a lone surrogate")
    yield "fold_encrypted", good(entry % (',"encrypted":true', ""), "not looked into", *whole)
    for name, value in (("one", "1"), ("text", '"yes"'), ("false", "false"), ("null", "null")):
        yield (
            f"fold_encrypted_{name}",
            good(entry % (f',"encrypted":{value}', ""), "true alone means encrypted"),
        )
    yield "fold_compressed", good(plain, "flags are not 0: not looked into", *whole, flags=2)
    yield "fold_other_type", good(plain, "not STEN: not looked into", *whole, ctype=b"sten")
    blank = sized(f" {{{W}}}".encode()) + FOUR
    yield (
        "fold_nested_blank",
        good(plain, "byte 8 of a nested file is a brace, too", part("c", blank, "c")),
    )
    outside = sized(f"{{{W}}}".encode()) + FOUR[:3]
    yield (
        "fold_nested_outside",
        good(plain, "a tensor outside of its payload: it stays whole", part("c", outside, "c")),
    )
    yield (
        "fold_chunk_twice",
        good(
            '{"chunks":[{"name":"d","offset":28},{"name":"c","offset":28}]}',
            "two entries of one chunk: of equal ranges the smaller name counts",
            part("c", b"abc", "c"),
            ctype=b"JSON",
        ),
    )
    yield "fold_not_finalized", opaque(fold_head(0, 0) + bytes(64), "index_off and index_len are 0")
