"""Files `index` of stores, and ends of packs, that lie; each has the SHA-256 of what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wtxtgit.store.folder import INDEX, ChunkTable, format_table, parse_table
from wtxtgit.store.pack import STORED, XOR, ChunkEntry, format_end, index_of, parse_end

Row = tuple[bytes, int, int]
"""A chunk's name, the number of its pack, and its row there."""


def _other_rows(rows: list[Row]) -> list[Row]:
    held = [row for _, _, row in rows]
    return [(name, pack, row) for (name, pack, _), row in zip(rows, held[::-1], strict=True)]


def _other_packs(rows: list[Row]) -> list[Row]:
    packs = 1 + max(pack for _, pack, _ in rows)
    return [(name, (pack + 1) % packs, row) for name, pack, row in rows]


LIES: dict[str, Callable[[list[Row]], Sequence[Row]]] = {
    "rows of others": _other_rows,
    "packs of others": _other_packs,
    "rows past the end": lambda rows: [(name, pack, 2**32 - 1) for name, pack, _ in rows],
    "chunks that are missing": lambda rows: rows[::2],
    "no chunk": lambda rows: rows[:0],
    "other names": lambda rows: [(bytes([n]) * 32, p, r) for n, (_, p, r) in enumerate(rows)],
    "chunks too many": lambda rows: sorted([*rows, *((bytes([n]) * 32, 0, 0) for n in range(9))]),
    "one place of all": lambda rows: [(name, 0, 0) for name, _, _ in rows],
    "each twice": lambda rows: [row for row in rows for _ in range(2)],
    "in no order": lambda rows: rows[::-1],
    "one name of all": lambda rows: [(rows[0][0], pack, row) for _, pack, row in rows],
}  # fmt: skip


def forge(store: Path, lie: str | Callable[[list[Row]], Sequence[Row]]) -> None:
    """Have the index of a store's folder say something else of the packs that it lists."""
    path = store / INDEX
    told = parse_table(memoryview(path.read_bytes()))
    names = [bytes(told.names[at : at + 32]) for at in range(0, len(told.names), 32)]
    made = LIES[lie] if isinstance(lie, str) else lie
    rows = made(list(zip(names, told.packs, told.rows, strict=True)))
    held = b"".join(name for name, _, _ in rows)
    packs, places = (np.array([row[n] for row in rows], "<u4") for n in (1, 2))
    table = ChunkTable(told.files, held, packs.data, places.data)
    path.unlink()
    path.write_bytes(b"".join(format_table(table)))


def _other_names(rows: list[ChunkEntry]) -> list[ChunkEntry]:
    return [row._replace(name=bytes([n]) * 32) for n, row in enumerate(rows)]


def _other_places(rows: list[ChunkEntry]) -> list[ChunkEntry]:
    names = [row.name for row in rows]
    return [row._replace(name=name) for row, name in zip(rows, names[::-1], strict=True)]


def _last_left_out(rows: list[ChunkEntry]) -> list[ChunkEntry]:
    return sorted(rows, key=lambda row: row.place)[:-1]


def _first_left_out(rows: list[ChunkEntry]) -> list[ChunkEntry]:
    first, *others = sorted(rows, key=lambda row: row.place)
    return [row._replace(place=row.place - first.length) for row in others]


def _decoded_otherwise(rows: list[ChunkEntry]) -> list[ChunkEntry]:
    return [
        row._replace(size=row.length, encoding=STORED, item=1, bases=(), depth=0) for row in rows
    ]


def _with_unknown_bases(rows: list[ChunkEntry]) -> list[ChunkEntry]:
    return [
        row._replace(encoding=XOR, bases=(bytes([n]) * 32,), depth=1) if row.depth else row
        for n, row in enumerate(rows)
    ]


END_LIES: dict[str, Callable[[list[ChunkEntry]], list[ChunkEntry]]] = {
    "other names": _other_names,
    "places of others": _other_places,
    "the last left out": _last_left_out,
    "the first left out": _first_left_out,
    "decoded otherwise": _decoded_otherwise,
    "unknown bases": _with_unknown_bases,
    "a chunk more": lambda rows: [
        *rows,
        ChunkEntry(bytes(32), max(row.place + row.length for row in rows), 9, 9, (), STORED, 1, 0),
    ],
}  # fmt: skip


def forged_end(end: bytes, lie: str) -> bytes:
    """Return the end of a pack as another one, of which all checksums are right."""
    index, _ = parse_end(memoryview(end))
    rows = END_LIES[lie]([index.entry(row) for row in range(index.count)])
    place = max(row.place + row.length for row in rows)
    made = format_end(index_of(rows), place)
    assert made != end
    parse_end(memoryview(made))
    return made


def forge_end(path: Path, lie: str) -> bytes:
    """Have the file of an end say something else; returns what it said."""
    true = path.read_bytes()
    path.unlink()
    path.write_bytes(forged_end(true, lie))
    return true
