"""TARIDX, the index of a dataset's tar members. Little-endian.

Header (64 bytes), extensions and crash stems (UTF-8, one a line), rows.
Spec: `docs/spec/containers.md`, "TARIDX".
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from wtxtgit.containers import ranges
from wtxtgit.containers.cursor import Cursor, fail
from wtxtgit.containers.magic import TARIDX_MAGIC
from wtxtgit.errors import FormatError
from wtxtgit.model import Description

HEADER = Struct("<8sHHHHQQIIQQB7s")
"""magic major minor rec_size hdr_size n_stems n_rows n_ext n_crash off_crash off_arr flags."""
MAJOR = 1
ROW_SIZE = 32
TEXT_BLOCK = 1 << 20
"""Bytes of a text block that are decoded at a time."""


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

    data: memoryview
    header: Header

    def ranges(self) -> Iterator[ranges.Range]:
        header = self.header
        yield ranges.literal(0, HEADER.size)
        yield ranges.part(HEADER.size, header.off_crash, "_extensions")
        yield ranges.part(header.off_crash, header.off_arr, "_crash_stems")
        yield ranges.rows(header.off_arr, len(self.data), "rows", ROW_SIZE)

    def describe(self) -> Description:
        header = self.header
        extensions = bytes(self.data[HEADER.size : header.off_crash]).decode()
        return Description(
            "taridx",
            metadata={
                "version": f"{MAJOR}.{header.minor}",
                "n_stems": header.n_stems,
                "n_rows": header.n_rows,
                "n_ext": header.n_ext,
                "n_crash": header.n_crash,
                "flags": header.flags,
                "extensions": extensions.split("\n") if header.n_ext else [],
            },
        )


def read(data: memoryview) -> Taridx:
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
        ("major version", major, MAJOR),
        ("rec_size", rec_size, ROW_SIZE),
        ("hdr_size", hdr_size, HEADER.size),
    ):
        if found != wanted:
            raise FormatError(f"{field} is {found!r}, not {wanted!r}", offset=0, field=field)
    if not HEADER.size <= off_crash <= off_arr <= len(data):
        raise FormatError(
            f"off_crash {off_crash} and off_arr {off_arr} do not fit {len(data)} bytes",
            offset=0,
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


def _check_text(data: memoryview, start: int, end: int, field: str) -> None:
    """Refuse a block that is not UTF-8, without a copy of all of it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for pos in range(start, end, TEXT_BLOCK):
        stop = min(pos + TEXT_BLOCK, end)
        held, _flags = decoder.getstate()
        try:
            decoder.decode(data[pos:stop], final=stop == end)
        except UnicodeDecodeError as error:
            fail(f"{field} is not UTF-8", offset=pos - len(held) + error.start, field=field)
