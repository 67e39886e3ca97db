"""Salvaging a damaged TARIDX file: its rows, which have no hash.

The tables of names come first, so a truncated index lacks rows. The tars contain everything that
rows say: an index can be rebuilt from them, and each row compared with its header. Spec:
`docs/spec/taridx.md`, "Salvage".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from wtxtgit.containers.cursor import Cursor
from wtxtgit.containers.taridx.read import HEADER, Taridx, field_offset, read, slices
from wtxtgit.containers.taridx.tar import BLOCK
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.salvage import Salvage
from wtxtgit.model.tensor import ReadOptions

_COUNT_SIZE = 8
_MOST_END = 2**63
"""The offset before which a member of a tar must end."""
NOTES = (
    "nothing proves the rows: wtxtgit taridx verify compares them with the tars",
    "wtxtgit taridx build makes a new index from the tars",
)


def salvage(data: ByteView, _options: ReadOptions) -> Salvage:
    """Return the existing rows; raises FormatError if header or names can't be read."""
    index = read(data, is_cut=True)
    claimed = Cursor(data, field_offset("n_rows")).integer(_COUNT_SIZE, "n_rows")
    existing = index.header.n_rows
    kept = sum(int(_holds(index, start, end).sum()) for start, end in _slices(index))
    missing = []
    if existing < claimed:
        missing.append(f"rows {existing} to {claimed}: cut off by the end of the file")
    if kept < existing:
        missing.append(f"{existing - kept} rows with impossible offsets")
    notes = (f"{kept} of {claimed} rows are left", *NOTES)
    return Salvage(missing=tuple(missing), notes=notes, keep=partial(_keep, index))


def _slices(index: Taridx) -> Iterator[tuple[int, int]]:
    for start, part in slices(index.rows()):
        yield start, start + len(part)


def _holds(index: Taridx, start: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which of these rows are valid by themselves."""
    rows, header = index.rows()[start:end], index.header
    last = np.uint64(_MOST_END - BLOCK)
    has_names = (rows["extid"] < header.n_ext) & (rows["crashid"] <= header.n_crash)
    # Two sums of 64 bits: neither may overflow.
    is_placed = (rows["offset"] % BLOCK == 0) & (rows["offset"] < last)
    fits: np.ndarray[tuple[int], np.dtype[np.bool_]] = has_names & is_placed
    fits &= rows["size"] < last - np.minimum(rows["offset"], last)
    return fits


def _keep(index: Taridx, _numbers: Sequence[int]) -> Iterator[Buffer]:
    """Yield the index with the existing rows."""
    header = bytearray(bytes(index.data[: HEADER.size]))
    at = field_offset("n_rows")
    parts = [index.rows()[start:end][_holds(index, start, end)] for start, end in _slices(index)]
    header[at : at + _COUNT_SIZE] = sum(map(len, parts)).to_bytes(_COUNT_SIZE, "little")
    yield bytes(header)
    yield from pieces(index.data[HEADER.size : index.header.off_arr])
    for part in parts:
        yield part.tobytes()
