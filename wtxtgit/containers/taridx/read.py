"""TARIDX, the index of a dataset's tar members. Little-endian.

TaridxHeader (64 bytes), extensions and crash stems (UTF-8, one a line), rows.
Rows are numpy arrays of which all is done in slices: an index of ten million
rows is checked without a loop over rows.
Spec: `docs/spec/containers.md`, "TARIDX", and `docs/spec/taridx.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import Struct, calcsize
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from wtxtgit.containers import ranges
from wtxtgit.containers.cursor import Cursor, decoded
from wtxtgit.containers.tar_index import Places, Rows
from wtxtgit.containers.taridx import MAGIC
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.tensor import Description, ReadOptions

_FIELDS = {
    "magic": "8s",
    "major": "H",
    "minor": "H",
    "rec_size": "H",
    "hdr_size": "H",
    "n_stems": "Q",
    "n_rows": "Q",
    "n_ext": "I",
    "n_crash": "I",
    "off_crash": "Q",
    "off_arr": "Q",
    "flags": "B",
    "reserved": "7s",
}
HEADER = Struct("<" + "".join(_FIELDS.values()))
MAJOR, MINOR = 1, 0
CONTIGUOUS = 1
"""The bit of flags that says that rows of a stem follow one another."""
ROW_LAYOUT = Struct("<HQQHIQ")
"""fid offset size extid crashid keyhash."""
ROW_SIZE = ROW_LAYOUT.size
# Bytes of a text block in which lines are counted at a time: the block is as long as the header
# says.
TEXT_BLOCK = 1 << 20
# Extensions that are read: as many as extid, a u16, tells apart.
MAX_EXTENSIONS = 1 << 16
# Crash stems that are read: of 10 million stems two have one xxh64 once in 370,000 indexes.
MAX_CRASH_STEMS = 1 << 20
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
# Rows that are looked at together: numpy's columns of them take 8 MiB each.
SLICE = 1 << 20
KEY_BITS = 64
# Keys of at most so many bits are no whole xxh64: one by chance is that small in 2^32.
CUT_KEY_BITS = 32
_ODD = np.uint64(0x9E3779B97F4A7C15)
_EXTID_BITS = np.uint64(16)
Numbers: TypeAlias = npt.NDArray[np.uint64]
Keys: TypeAlias = tuple[Places, Numbers, Numbers]
"""Places in the rows, and two numbers for each."""


@dataclass(frozen=True, slots=True)
class TaridxHeader:
    """The counts, offsets and flags of the header."""

    minor: int
    n_stems: int
    n_rows: int
    n_ext: int
    n_crash: int
    off_crash: int
    off_arr: int
    flags: int


@dataclass(frozen=True, slots=True, eq=False)
class Taridx:
    """A TARIDX file that was read."""

    data: ByteView
    header: TaridxHeader

    def ranges(self) -> Iterator[ranges.Range]:
        header = self.header
        yield ranges.literal(0, HEADER.size)
        yield ranges.part(HEADER.size, header.off_crash, "_extensions")
        yield ranges.part(header.off_crash, header.off_arr, "_crash_stems")
        yield ranges.rows(header.off_arr, len(self.data), "rows", ROW_SIZE)

    @property
    def version(self) -> str:
        return f"{MAJOR}.{self.header.minor}"

    @property
    def n_stems(self) -> int:
        return self.header.n_stems

    @property
    def is_contiguous(self) -> bool:
        return bool(self.header.flags & CONTIGUOUS)

    def rows(self) -> Rows:
        """The rows as a view of the file: shape (n_rows,), dtype ROW."""
        # numpy makes no view of nothing.
        if not self.header.n_rows:
            return np.empty(0, ROW)
        start = self.header.off_arr
        raw = self.data[start : start + self.header.n_rows * ROW.itemsize]
        return np.frombuffer(mapped(raw), ROW)

    def extensions(self) -> list[str]:
        """The extensions in the order of their ids; raises FormatError over MAX_EXTENSIONS."""
        return _lines(self.extension_block, self.header.n_ext, MAX_EXTENSIONS, "n_ext")

    def crash_stems(self) -> list[str]:
        """The crash stems, the first has id 1; raises FormatError over MAX_CRASH_STEMS."""
        return _lines(self.crash_block, self.header.n_crash, MAX_CRASH_STEMS, "n_crash")

    @property
    def extension_block(self) -> ByteView:
        return self.data[HEADER.size : self.header.off_crash]

    @property
    def crash_block(self) -> ByteView:
        return self.data[self.header.off_crash : self.header.off_arr]


def field_offset(field: str) -> int:
    """Where a field of the header starts, in bytes."""
    names = list(_FIELDS)
    return calcsize("<" + "".join(_FIELDS[name] for name in names[: names.index(field)]))


def count_lines(block: ByteView, claimed: int) -> int:
    """How many lines a text block has; an empty one has none or one, as the header claims."""
    if not len(block) and not claimed:
        return 0
    starts = range(0, len(block), TEXT_BLOCK)
    return 1 + sum(bytes(block[start : start + TEXT_BLOCK]).count(b"\n") for start in starts)


def describe(container: Taridx, options: ReadOptions) -> Description:
    """What the file says of itself; raises FormatError."""
    header = container.header
    return Description(
        "taridx",
        metadata={
            "version": container.version,
            "n_stems": header.n_stems,
            "n_rows": header.n_rows,
            "n_ext": header.n_ext,
            "n_crash": header.n_crash,
            "flags": header.flags,
            "extensions": container.extensions(),
        },
    )


def read(data: ByteView, *, is_cut: bool = False) -> Taridx:
    """Read a TARIDX file; one that `is_cut` has the rows that are there. Raises FormatError."""
    (
        magic,
        major,
        minor,
        rec_size,
        hdr_size,
        n_stems,
        n_rows,
        n_ext,
        n_crash,
        off_crash,
        off_arr,
        flags,
        _reserved,
    ) = Cursor(data).record(HEADER, "header")
    header = TaridxHeader(minor, n_stems, n_rows, n_ext, n_crash, off_crash, off_arr, flags)
    for field, found, wanted in (
        ("magic", magic, MAGIC),
        ("major", major, MAJOR),
        ("rec_size", rec_size, ROW_SIZE),
        ("hdr_size", hdr_size, HEADER.size),
    ):
        if found != wanted:
            raise FormatError(
                f"{field} is {found!r}, not {wanted!r}", offset=field_offset(field), field=field
            )
    if not HEADER.size <= off_crash <= off_arr <= len(data):
        raise FormatError(
            f"off_crash {off_crash} and off_arr {off_arr} do not fit {len(data)} bytes",
            offset=field_offset("off_crash"),
            field="off_crash",
        )
    if is_cut:
        header = replace(header, n_rows=min(n_rows, (len(data) - off_arr) // ROW_SIZE))
    elif n_rows * ROW_SIZE != len(data) - off_arr:
        raise FormatError(
            f"n_rows {n_rows} does not fit the {len(data) - off_arr} bytes at byte {off_arr}",
            offset=off_arr,
            field="n_rows",
        )
    blocks = (HEADER.size, off_crash, "extension block"), (off_crash, off_arr, "crash stem block")
    for start, end, field in blocks:
        for _ in decoded(data, start, end, field):
            pass  # Refused where it is no text, without a copy of all of it.
    return Taridx(data, header)


def _lines(block: ByteView, claimed: int, most: int, field: str) -> list[str]:
    """The lines of a text block; it splits at LF alone, as stems have spaces."""
    if not claimed:
        return []
    lines = count_lines(block, claimed)
    if lines > most:
        raise FormatError(
            f"{field} is {lines}, over the limit of {most}",
            kind="limit",
            offset=field_offset(field),
            field=field,
        )
    return bytes(block).decode().split("\n")


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


def headers(rows: Rows) -> Iterator[Keys]:
    """Every row: place, fid, and the offset of the header that it points to."""
    for start, part in slices(rows):
        yield np.arange(start, start + len(part)), _column(part, "fid"), _column(part, "offset")


def repeated(keys: Callable[[], Iterator[Keys]], most: int) -> Places:
    """The places whose two numbers stand at an earlier place too, in order.

    `keys` is called up to twice and gives up to `most` places. The two
    numbers are mixed into one, all of these are sorted (8 bytes a row), and
    only what is there twice is compared in full (48 bytes a row of these).
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
    # Of these arrays only what is filled takes memory; what is put together at the end would be
    # there twice.
    place, a, b = np.empty(most, np.intp), np.empty(most, np.uint64), np.empty(most, np.uint64)
    end = 0
    for part in keys():
        value = _mixed(part[1], part[2])
        at = np.minimum(np.searchsorted(twice, value), len(twice) - 1)
        is_twice = twice[at] == value
        first, end = end, end + int(np.count_nonzero(is_twice))
        for whole, column in zip((place, a, b), part, strict=True):
            whole[first:end] = column[is_twice]
    del twice
    place, a, b = place[:end], a[:end], b[:end]
    order = np.lexsort((b, a))
    # One after the other: each leaves the memory of what it was made of.
    place = place[order]
    a = a[order]
    b = b[order]
    del order
    # The sort is stable: of equal ones the earliest place comes first.
    again = a[1:] == a[:-1]
    again &= b[1:] == b[:-1]
    del a, b
    found: Places = place[1:][again]
    found.sort()
    return found


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
