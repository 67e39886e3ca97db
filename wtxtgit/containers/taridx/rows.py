"""The rows of a TARIDX file as arrays, and what is repeated among them.

Everything works on slices of the rows: an index of ten million rows is checked
without a loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from wtxtgit.containers.taridx.read import Taridx
from wtxtgit.io.view import mapped

ROW = np.dtype(
    [
        ("fid", "<u2"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("extid", "<u2"),
        ("crashid", "<u4"),
        ("keyhash", "<u8"),
    ]
)
SLICE = 1 << 20
"""Rows that are looked at together."""
KEY_BITS = 64
CUT_KEY_BITS = 32
"""Keys of at most so many bits are no whole xxh64: one by chance is that small in 2^32."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_EXTID_BITS = np.uint64(16)

Rows: TypeAlias = npt.NDArray[np.void]
Numbers: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.intp]
Keys: TypeAlias = tuple[Places, Numbers, Numbers]
"""Places in the rows, and two numbers for each."""


def rows_of(index: Taridx) -> Rows:
    """The rows as a view of the file: shape (n_rows,), dtype ROW."""
    if not index.header.n_rows:
        return np.empty(0, ROW)
    start = index.header.off_arr
    held = index.data[start : start + index.header.n_rows * ROW.itemsize]
    return np.frombuffer(mapped(held), ROW)


def slices(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Runs of up to SLICE rows, each with the place of its first."""
    for start in range(0, len(rows), SLICE):
        yield start, rows[start : start + SLICE]


def run_starts(rows: Rows) -> Iterator[Keys]:
    """The first row of each run of one (keyhash, crashid): place, keyhash, crashid."""
    for start, part in slices(rows):
        key, crash = _column(part, "keyhash"), _column(part, "crashid")
        changed = np.ones(len(part), bool)
        changed[1:] = (key[1:] != key[:-1]) | (crash[1:] != crash[:-1])
        if start:
            before = rows[start - 1]
            changed[0] = bool(key[0] != before["keyhash"] or crash[0] != before["crashid"])
        places = np.flatnonzero(changed)
        yield places + start, key[places], crash[places]


def members(rows: Rows) -> Iterator[Keys]:
    """Every row: place, keyhash, crashid and extid in one number."""
    for start, part in slices(rows):
        names = _column(part, "crashid") << _EXTID_BITS | _column(part, "extid")
        yield np.arange(start, start + len(part)), _column(part, "keyhash"), names


def repeated(keys: Callable[[], Iterator[Keys]], most: int) -> Places:
    """The places whose two numbers stand at an earlier place too, in order.

    `keys` is called up to twice and gives up to `most` places. The two
    numbers are mixed into one, all of these are sorted (8 bytes a row), and
    only what is there twice is compared in full (32 bytes a row of these).
    """
    mixed = np.empty(most, np.uint64)
    end = 0
    for _, a, b in keys():
        mixed[end : end + len(a)] = _mixed(a, b)
        end += len(a)
    mixed = mixed[:end]
    mixed.sort()
    twice = mixed[1:][mixed[1:] == mixed[:-1]]
    del mixed
    if not len(twice):
        return np.empty(0, np.intp)
    places, first, second = [], [], []
    for place, a, b in keys():
        value = _mixed(a, b)
        at = np.minimum(np.searchsorted(twice, value), len(twice) - 1)
        held = twice[at] == value
        places.append(place[held])
        first.append(a[held])
        second.append(b[held])
    place, a, b = np.concatenate(places), np.concatenate(first), np.concatenate(second)
    order = np.lexsort((b, a))
    place, a, b = place[order], a[order], b[order]
    # The sort is stable: of equal ones the earliest place comes first.
    again = (a[1:] == a[:-1]) & (b[1:] == b[:-1])
    return np.sort(place[1:][again])


def key_bits(rows: Rows) -> int:
    """How many low bits of xxh64 the keyhashes hold: 64, or less where they were cut.

    The original writer can be told to use a weaker hash.
    """
    if not len(rows):
        return KEY_BITS
    bits = max(int(part["keyhash"].max()) for _, part in slices(rows)).bit_length()
    return bits if bits <= CUT_KEY_BITS else KEY_BITS


def _column(part: Rows, field: str) -> Numbers:
    """A field as numbers that lie side by side."""
    return part[field].astype(np.uint64)


def _mixed(a: Numbers, b: Numbers) -> Numbers:
    return a ^ (b * _ODD)
