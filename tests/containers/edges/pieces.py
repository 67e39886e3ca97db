"""The files of `tests/data/files.json`: places at which two readers of containers could differ.

A case is put together of the pieces into which the spec cuts the file, so the
text that clean has to give follows from it without the package: it is spelled
by `tests.text.edge_texts`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tests.text.edge_texts import CAP, Arr, Text

FOUR = struct.pack("<f", 1.0)
DEEPEST = 64


@dataclass(frozen=True)
class Piece:
    """A piece of a file: an array of a text (`array`) or none, and what its extent says."""

    raw: bytes
    array: str | None = None
    says: dict[str, Any] | None = None
    dtype: str = "u8"
    shape: tuple[int, ...] | None = None

    @property
    def extent(self) -> dict[str, Any]:
        if self.array is not None:
            return {"array": self.array, **(self.says or {})}
        return {"hex": self.raw.hex()} if any(self.raw) else {"zeros": len(self.raw)}


@dataclass(frozen=True)
class Case:
    """A file, the format that it is stored as, and the pieces of which it consists."""

    note: str
    format: str
    pieces: tuple[Piece, ...]

    @property
    def file(self) -> bytes:
        return b"".join(piece.raw for piece in self.pieces)

    @property
    def layout(self) -> str:
        extents = [piece.extent for piece in self.pieces]
        said = {"extents": extents, "format": self.format, "size": len(self.file), "v": 1}
        return json.dumps(said, sort_keys=True, separators=(",", ":"))

    @property
    def text(self) -> bytes:
        """The text that clean has to give."""
        arrays = [Arr("_layout", self.layout.encode())] + [
            Arr(piece.array, piece.raw, piece.dtype, piece.shape)
            for piece in self.pieces
            if piece.array is not None
        ]
        ordered = tuple(sorted(arrays, key=lambda arr: arr.name))
        return Text(ordered, f"{self.format}/v1", CAP + ",layout").bytes

    def record(self, name: str) -> dict[str, Any]:
        """What the list says of the case."""
        text = self.text
        return {
            "name": name,
            "format": self.format,
            "note": self.note,
            "file": self.file.hex(),
            "layout": self.layout,
            "bytes": len(text),
            "sha256": sha256(text).hexdigest(),
        }


Made = Iterator[tuple[str, Case]]


def opaque(file: bytes, note: str) -> Case:
    return Case(note, "opaque", (part("data", file),))


def part(array: str, raw: bytes, name: str | None = None) -> Piece:
    return Piece(raw, array, None if name is None else {"name": name})


def tensor(
    array: str,
    raw: bytes,
    word: str,
    shape: Sequence[int],
    dtype: str = "u8",
    *,
    name: str | None = None,
    held: Sequence[int] | None = None,
    order: str | None = None,
) -> Piece:
    """A tensor; its array has shape `held`, the bytes' count where that is None."""
    says = {"dtype": word, "name": array if name is None else name, "shape": list(shape)}
    if order is not None:
        says["order"] = order
    return Piece(raw, array, says, dtype, (len(raw),) if held is None else tuple(held))


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


def sized(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


W = '"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
