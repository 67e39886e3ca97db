"""TARIDX, the index of a dataset's tar members. Little-endian.

Header (64 bytes), extensions and crash stems (UTF-8, one a line), rows.
Spec: `docs/spec/containers.md`, "TARIDX", and `docs/spec/taridx.md`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, calcsize

from wtxtgit.containers import ranges
from wtxtgit.containers.cursor import Cursor, fail
from wtxtgit.containers.magic import TARIDX_MAGIC
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
ROW = Struct("<HQQHIQ")
"""fid offset size extid crashid keyhash."""
ROW_SIZE = ROW.size
TEXT_BLOCK = 1 << 20
"""Bytes of a text block that are decoded at a time."""
MAX_EXTENSIONS = 1 << 16
"""As many as extid tells apart."""
MAX_CRASH_STEMS = 1 << 20
"""Of 10 million stems two have one xxh64 once in 370,000 indexes."""


@dataclass(frozen=True, slots=True)
class Header:
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
    header: Header

    def ranges(self) -> Iterator[ranges.Range]:
        header = self.header
        yield ranges.literal(0, HEADER.size)
        yield ranges.part(HEADER.size, header.off_crash, "_extensions")
        yield ranges.part(header.off_crash, header.off_arr, "_crash_stems")
        yield ranges.rows(header.off_arr, len(self.data), "rows", ROW_SIZE)

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

    def describe(self, options: ReadOptions) -> Description:
        header = self.header
        return Description(
            "taridx",
            metadata={
                "version": f"{MAJOR}.{header.minor}",
                "n_stems": header.n_stems,
                "n_rows": header.n_rows,
                "n_ext": header.n_ext,
                "n_crash": header.n_crash,
                "flags": header.flags,
                "extensions": self.extensions(),
            },
        )


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


def read(data: ByteView) -> Taridx:
    """Read a TARIDX file; raises FormatError."""
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
    header = Header(minor, n_stems, n_rows, n_ext, n_crash, off_crash, off_arr, flags)
    for field, found, wanted in (
        ("magic", magic, TARIDX_MAGIC),
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
    if n_rows * ROW_SIZE != len(data) - off_arr:
        raise FormatError(
            f"n_rows {n_rows} does not fit the {len(data) - off_arr} bytes at byte {off_arr}",
            offset=off_arr,
            field="n_rows",
        )
    _check_text(data, HEADER.size, off_crash, "extension block")
    _check_text(data, off_crash, off_arr, "crash stem block")
    return Taridx(data, header)


def _lines(block: ByteView, claimed: int, most: int, field: str) -> list[str]:
    """The lines of a text block; it splits at LF alone, as stems have spaces."""
    if not claimed:
        return []
    found = count_lines(block, claimed)
    if found > most:
        raise FormatError(
            f"{field} is {found}, at most {most} are read",
            kind="limit",
            offset=field_offset(field),
            field=field,
        )
    return bytes(block).decode().split("\n")


def _check_text(data: ByteView, start: int, end: int, field: str) -> None:
    """Refuse a block that is not UTF-8, without a copy of all of it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for pos in range(start, end, TEXT_BLOCK):
        stop = min(pos + TEXT_BLOCK, end)
        held, _flags = decoder.getstate()
        try:
            decoder.decode(mapped(data[pos:stop]), final=stop == end)
        except UnicodeDecodeError as error:
            fail(f"{field} is not UTF-8", offset=pos - len(held) + error.start, field=field)
