"""npz files at the edges of the spec, and zips of stored members."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

from tests.containers.edges.npy import npy_head, npy_text
from tests.containers.edges.pieces import (
    FOUR,
    Case,
    Made,
    Piece,
    opaque,
    part,
    tensor,
)


def zip_head(name: bytes, content: bytes, magic: bytes = b"PK\3\4") -> bytes:
    fields = (20, 0, 0, 0, 33, zlib.crc32(content), len(content), len(content), len(name), 0)
    return magic + struct.pack("<HHHHHIIIHH", *fields) + name


def zip_entry(name: bytes, content: bytes, offset: int, extra: bytes = b"") -> bytes:
    sizes = (zlib.crc32(content), len(content), len(content), len(name), len(extra))
    fields = (20, 20, 0, 0, 0, 33, *sizes, 0, 0, 0, 0, offset)
    return b"PK\1\2" + struct.pack("<HHHHHHIIIHHHHHII", *fields) + name + extra


def zip_end(entries: int, size: int, offset: int) -> bytes:
    return b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, entries, entries, size, offset, 0)


Member = tuple[str, Sequence[Piece]]


def zip_pieces(
    members: Sequence[Member],
    *,
    magic: bytes = b"PK\3\4",
    extra: bytes = b"",
    count: int | None = None,
    locator: int | None = None,
) -> tuple[Piece, ...]:
    """A zip of stored members; `magic` is that of all local headers but the first.

    `extra` is an extra field of each entry, `count` what the end record says,
    `locator` how many disks a zip64 locator says.
    """
    pieces: list[Piece] = []
    directory = b""
    offset = 0
    for n, (name, held) in enumerate(members):
        content = b"".join(piece.raw for piece in held)
        head = zip_head(name.encode(), content, magic if n else b"PK\3\4")
        directory += zip_entry(name.encode(), content, offset, extra)
        pieces += [Piece(head), *held]
        offset += len(head) + len(content)
    entries = len(members) if count is None else count
    end = b""
    if locator is not None:
        fields = (44, 45, 45, 0, 0, entries, entries, len(directory), offset)
        end = b"PK\6\6" + struct.pack("<QHHIIQQQQ", *fields)
        end += b"PK\6\7" + struct.pack("<IQI", 0, offset + len(directory), locator)
    last = directory + end + zip_end(entries, len(directory), offset)
    return *pieces, part("_directory", last)


def made() -> Made:
    whole = part("a_npy", b"abc", "a.npy")
    head = npy_head(npy_text("'<f4'", "(1,)"))
    array = part("_npy", head), tensor("b", FOUR, "<f4", [1], "f32", held=[1])
    members: list[Member] = [("a.npy", [whole]), ("b.npy", array)]

    def good(note: str, **also: Any) -> Case:
        return Case(note, "npz", zip_pieces(members, **also))

    def bad(note: str, **also: Any) -> Case:
        return opaque(b"".join(piece.raw for piece in zip_pieces(members, **also)), note)

    yield "npz_plain", good("a member that is no npy file stays whole")
    yield "npz_local_signature", bad("a local header without its signature", magic=b"PK\3\5")
    yield "npz_too_few_entries", bad("the directory has more than the end says", count=1)
    yield "npz_too_many_entries", bad("the directory has fewer", count=3)
    yield "npz_locator_1_disk", good("zip64's locator says 1 disk", locator=1)
    yield "npz_locator_0_disks", good("or 0, as some writers do", locator=0)
    yield "npz_locator_2_disks", bad("a zip of 2 disks", locator=2)
    stamp = struct.pack("<HHB", 0x5455, 1, 0)
    yield "npz_extra", good("an extra field of another kind", extra=stamp)
    yield "npz_extra_rest", good("three bytes that are no field are ignored", extra=stamp + b"xyz")
    broken = struct.pack("<HHB", 0x5455, 9, 0)
    yield "npz_extra_too_long", bad("an extra field that is longer than the rest", extra=broken)
    zip64 = struct.pack("<HHB", 1, 1, 7)
    yield "npz_extra_zip64_not_needed", good("a zip64 field that nothing asks for", extra=zip64)
    yield (
        "npz_extra_behind_zip64",
        good("fields behind the first zip64 field are not looked at", extra=zip64 + broken),
    )
    empty: list[Member] = [("b.npy", array), ("x", [])]
    pieces = zip_pieces(empty, magic=b"....")
    yield "npz_empty_member", Case("a member of no bytes needs no local header", "npz", pieces)
