"""The records at the end of a zip, which say where its directory stands. Little-endian.

Spec: `docs/spec/npz.md`, "zip"; PKWARE's APPNOTE.TXT 6.3.10
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from wtxtgit.containers.cursor import Cursor, check_inside, fail, unpack_at
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView

END_MAGIC = b"PK\x05\x06"
ZIP64_END_MAGIC = b"PK\x06\x06"
ZIP64_LOCATOR_MAGIC = b"PK\x06\x07"

END = Struct("<4sHHHHIIH")
"""signature disk directory_disk disk_entries entries size offset comment_length."""
ZIP64_END = Struct("<4sQHHIIQQQQ")
"""signature record_size made_by version disk directory_disk disk_entries entries size offset."""
ZIP64_LOCATOR = Struct("<4sIQI")
"""signature disk offset disks."""

RECORD_SIZE_AFTER = 12
"""A zip64 record's size counts from here."""
MAX_16 = 0xFFFF
MAX_32 = 0xFFFFFFFF
"""Fields with these values stand in zip64 records, where there is one."""
MAX_COMMENT = MAX_16


@dataclass(frozen=True, slots=True)
class End:
    """What the end of a zip says of its directory, which ends at `limit`.

    `record` is where the end record stands, behind zip64's where there is one.
    """

    entries: int
    size: int
    offset: int
    limit: int
    record: int


def read(data: ByteView, start: int) -> End:
    """Read the last end record whose numbers fit, and its zip64 record.

    Bytes may stand behind it and its comment. Offsets that it names count from
    `start`. Raises FormatError, of the last record where none fits.
    """
    size = len(data)
    lowest = max(start, size - END.size - MAX_COMMENT)
    tail = bytes(data[lowest:size])
    found = len(tail)
    refused: FormatError | None = None
    while (found := tail.rfind(END_MAGIC, 0, found + len(END_MAGIC) - 1)) >= 0:
        comment = found + END.size
        if comment > len(tail) or comment + END.unpack_from(tail, found)[-1] > len(tail):
            continue
        try:
            return _end(data, start, lowest + found)
        except FormatError as error:
            refused = refused or error
    if refused is None:
        fail("zip has no end of central directory", offset=size, field="end of central directory")
    raise refused


def _end(data: ByteView, start: int, pos: int) -> End:
    """Read the end record at `pos`; raises FormatError where its directory does not end there."""
    _, disk, directory_disk, disk_entries, *rest, _comment = unpack_at(END, data, pos)
    entries, length, offset = rest
    zip64 = _zip64_end(data, start, pos)
    for field, value, expected, unknown in (
        ("disk", disk, 0, MAX_16),
        ("directory disk", directory_disk, 0, MAX_16),
        ("disk entries", disk_entries, zip64.entries if zip64 else entries, MAX_16),
        ("entries", entries, zip64.entries if zip64 else entries, MAX_16),
        ("directory size", length, zip64.size if zip64 else length, MAX_32),
        ("directory offset", offset, zip64.offset if zip64 else offset, MAX_32),
    ):
        if value != expected and not (zip64 and value == unknown):
            fail(f"{field} is {value}, not {expected}", offset=pos, field=field)
    end = zip64 or End(entries, length, offset, pos, pos)
    first = start + end.offset
    if first + end.size != end.limit:
        fail(
            f"central directory of {end.size} bytes at byte {first} does not end",
            offset=end.limit,
            field="central directory",
        )
    return end


def _zip64_end(data: ByteView, start: int, end: int) -> End | None:
    """The zip64 record before the end record at `end`, None where there is no locator."""
    place = end - ZIP64_LOCATOR.size
    if place < start or data[place : place + 4] != ZIP64_LOCATOR_MAGIC:
        return None
    field = "zip64 end of central directory"
    _, disk, offset, disks = Cursor(data, place).record(ZIP64_LOCATOR, "zip64 locator")
    if disk != 0 or disks > 1:
        fail("zip is one of several disks", offset=place, field="zip64 locator")
    pos = start + offset
    check_inside(pos, ZIP64_END.size, place, field)
    magic, length, _, _, disk, directory_disk, disk_entries, entries, size, first = Cursor(
        data, pos
    ).record(ZIP64_END, field)
    if magic != ZIP64_END_MAGIC or pos + RECORD_SIZE_AFTER + length != place:
        fail(f"{field} is not where its locator says", offset=pos, field=field)
    if disk or directory_disk or disk_entries != entries:
        fail("zip is one of several disks", offset=pos, field=field)
    return End(entries, size, first, pos, end)
