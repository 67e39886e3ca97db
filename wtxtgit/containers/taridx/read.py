"""TARIDX, the index of a dataset's tar members. Little-endian.

TaridxHeader (64 bytes), extensions and crash stems (UTF-8, one per line), rows. Rows are numpy
arrays that are processed in slices: an index of ten million rows is checked without a loop over
rows. Spec: `docs/spec/containers.md`, "TARIDX", and `docs/spec/taridx.md`.
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
from wtxtgit.containers.format import Container
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
"""The bit of flags that says that the rows of each stem are adjacent."""
ROW_LAYOUT = Struct("<HQQHIQ")
"""fid offset size extid crashid keyhash."""
ROW_SIZE = ROW_LAYOUT.size
# Lines are counted in steps of this many bytes: the block is as long as the header says.
TEXT_BLOCK = 1 << 20
# The most extensions: as many as extid, a u16, can distinguish.
MAX_EXTENSIONS = 1 << 16
# The most crash stems: among 10 million stems, one in 370,000 indexes has two with equal xxh64.
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
STEMS_ROLE = "_crash_stems"
# Rows in a slice: numpy's columns of them take 8 MiB each.
SLICE = 1 << 20
KEY_BITS = 64
# Keys of at most this many bits are truncated xxh64: by chance one in 2^32 is that small.
CUT_KEY_BITS = 32
_ODD = np.uint64(0x9E3779B97F4A7C15)
_EXTID_BITS = np.uint64(16)
Numbers: TypeAlias = npt.NDArray[np.uint64]
Keys: TypeAlias = tuple[Places, Numbers, Numbers]
"""Places of rows, and two numbers for each."""


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
class Taridx(Container):
    """A TARIDX file that was read."""

    data: ByteView
    header: TaridxHeader

    def ranges(self) -> Iterator[ranges.Range]:
        header = self.header
        yield ranges.literal(0, HEADER.size)
        yield ranges.part(HEADER.size, header.off_crash, "_extensions")
        yield ranges.part(header.off_crash, header.off_arr, STEMS_ROLE)
        yield ranges.rows(header.off_arr, len(self.data), "rows", ROW_SIZE)

    def is_padding(self, start: int, end: int) -> bool:
        return False

    def unlisted_parts(self) -> frozenset[str]:
        return frozenset({STEMS_ROLE})

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
        # numpy can't make a view of an empty buffer.
        if not self.header.n_rows:
            return np.empty(0, ROW)
        start = self.header.off_arr
        raw = self.data[start : start + self.header.n_rows * ROW.itemsize]
        return np.frombuffer(mapped(raw), ROW)

    def extensions(self) -> list[str]:
        """Return the extensions in the order of their ids; raises FormatError for too many."""
        return _lines(self.extension_block, self.header.n_ext, MAX_EXTENSIONS, "n_ext")

    def crash_stems(self) -> list[str]:
        """Return the crash stems, the first with id 1; raises FormatError over MAX_CRASH_STEMS."""
        return _lines(self.crash_block, self.header.n_crash, MAX_CRASH_STEMS, "n_crash")

    @property
    def extension_block(self) -> ByteView:
        return self.data[HEADER.size : self.header.off_crash]

    @property
    def crash_block(self) -> ByteView:
        return self.data[self.header.off_crash : self.header.off_arr]


def field_offset(field: str) -> int:
    """Return the offset of a field of the header in bytes."""
    names = list(_FIELDS)
    return calcsize("<" + "".join(_FIELDS[name] for name in names[: names.index(field)]))


def count_lines(block: ByteView, claimed: int) -> int:
    """Return how many lines a text block has; an empty one has as many as claimed, up to one."""
    if not len(block) and not claimed:
        return 0
    starts = range(0, len(block), TEXT_BLOCK)
    return 1 + sum(bytes(block[start : start + TEXT_BLOCK]).count(b"\n") for start in starts)


def describe(container: Taridx, options: ReadOptions) -> Description:
    """Describe the file; raises FormatError."""
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


def rest(container: Taridx, options: ReadOptions) -> dict[str, object]:
    """Return reserved bytes that are not 0."""
    reserved = bytes(container.data[field_offset("reserved") : HEADER.size])
    return {"reserved": reserved} if any(reserved) else {}


def read(data: ByteView, *, is_cut: bool = False) -> Taridx:
    """Read a TARIDX file; if it `is_cut`, with only the existing rows. Raises FormatError."""
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
    for field, value, expected in (
        ("magic", magic, MAGIC),
        ("major", major, MAJOR),
        ("rec_size", rec_size, ROW_SIZE),
        ("hdr_size", hdr_size, HEADER.size),
    ):
        if value != expected:
            raise FormatError(
                f"{field} is {value!r}, not {expected!r}", offset=field_offset(field), field=field
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
            pass  # Refuse bytes that are not text, without copying all of them.
    return Taridx(data, header)


def _lines(block: ByteView, claimed: int, most: int, field: str) -> list[str]:
    """Return the lines of a text block; they end only at LF, since stems have spaces."""
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
    """Yield runs of up to SLICE rows, each with the number of its first row."""
    for start in range(0, len(rows), SLICE):
        yield start, rows[start : start + SLICE]


def run_starts(rows: Rows) -> Iterator[Keys]:
    """Yield the first row of each run with one (keyhash, crashid): place, keyhash, crashid."""
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
    """Yield, for every row: place, keyhash, crashid and extid in one number."""
    for start, part in slices(rows):
        names = _column(part, "crashid") << _EXTID_BITS | _column(part, "extid")
        yield np.arange(start, start + len(part)), _column(part, "keyhash"), names


def headers(rows: Rows) -> Iterator[Keys]:
    """Yield, for every row: place, fid, and the offset of the header to which it points."""
    for start, part in slices(rows):
        yield np.arange(start, start + len(part)), _column(part, "fid"), _column(part, "offset")


def repeated(keys: Callable[[], Iterator[Keys]], most: int) -> Places:
    """Return the places whose two numbers also occur at an earlier place, in order.

    `keys` is called up to twice and yields up to `most` places. The two numbers are mixed into one,
    all of these are sorted (8 bytes per row), and only duplicates are compared completely (48 bytes
    per row of these).
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
    # Only the filled part of these arrays takes memory; concatenating at the end would need twice
    # as much.
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
    # Step by step: each step releases the memory of its input.
    place = place[order]
    a = a[order]
    b = b[order]
    del order
    # The sort is stable: the earliest place of equal ones comes first.
    again = a[1:] == a[:-1]
    again &= b[1:] == b[:-1]
    del a, b
    places: Places = place[1:][again]
    places.sort()
    return places


def key_bits(rows: Rows) -> int:
    """Return how many low bits of xxh64 the keyhashes hold: 64, or fewer if they were truncated.

    The original writer can be told to use a weaker hash.
    """
    if not len(rows):
        return KEY_BITS
    bits = max(int(part["keyhash"].max()) for _, part in slices(rows)).bit_length()
    return bits if bits <= CUT_KEY_BITS else KEY_BITS


def _column(part: Rows, field: str) -> Numbers:
    """Return a field as contiguous numbers."""
    return part[field].astype(np.uint64)


def _mixed(a: Numbers, b: Numbers) -> Numbers:
    return a ^ (b * _ODD)
