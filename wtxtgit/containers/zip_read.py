"""The members of a zip, as its central directory lists them. Little-endian.

The records at the end say where the directory is. Local headers only tell where payloads start:
their sizes may be left out in favour of a descriptor after the payload. The zip starts at a given
byte of the file. Members may share bytes with one another and with the directory, and there may be
bytes after the zip. Spec: `docs/spec/npz.md`, "zip"; PKWARE's APPNOTE.TXT 6.3.10
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import NamedTuple, NoReturn, Protocol

from wtxtgit.containers.cursor import Cursor, ListingBudget, check_inside, fail, quoted, unpack_at
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, is_zeros, mapped, pieces
from wtxtgit.model.tensor import NamedPart, PartNote, ReadOptions

STORED = 0
DEFLATED = 8
ENTRY_MAGIC = b"PK\x01\x02"

LOCAL = Struct("<4sHHHHHIIIHH")
"""signature version flags method time date crc32 compressed size name_length extra_length."""
ENTRY = Struct("<4sHHHHHHIIIHHHHHII")
"""signature made_by version flags method time date crc32 compressed size name_length
extra_length comment_length disk internal external offset."""
EXTRA = Struct("<HH")
"""id length."""

ZIP64_EXTRA = 1
ENCRYPTED = 1 << 0
WITH_DESCRIPTOR = 1 << 3
UTF8_NAME = 1 << 11
"""Flags of entries and local headers."""

# The most that one byte of a deflate stream can inflate to: 258 bytes for two bits (RFC 1951). A
# member that claims more is refused before anything is inflated.
MAX_RATIO = 1032
# Bytes inflated at a time: a member may claim to hold far more than there is memory.
BLOCK = 1 << 20
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
"""The size in a zip64 end record does not count this many bytes at its start."""
MAX_16 = 0xFFFF
MAX_32 = 0xFFFFFFFF
"""Fields with these values are in zip64 records, if there are any."""
MAX_COMMENT = MAX_16
DESCRIPTOR_MAGIC = b"PK\x07\x08"
DESCRIPTOR = Struct("<4sIII")
DESCRIPTOR_ZIP64 = Struct("<4sIQQ")
"""signature crc32 compressed_size size."""
LAYOUTS = (
    (DESCRIPTOR_ZIP64, (DESCRIPTOR_MAGIC,)),
    (DESCRIPTOR, (DESCRIPTOR_MAGIC,)),
    (Struct("<IQQ"), ()),
    (Struct("<III"), ()),
)
"""With 64 or 32 bits for sizes, with a signature or without one."""


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A member: its payload is [start, end) of the file, and inflates to `size` bytes.

    `header` is the offset of its local header, `entry` that of its entry in the directory; `flags`
    are those of the entry.
    """

    name: str
    method: int
    crc32: int
    start: int
    end: int
    size: int
    header: int
    entry: int
    flags: int

    @property
    def encrypted(self) -> bool:
        """Whether the payload is encrypted; such a payload is never examined."""
        return bool(self.flags & ENCRYPTED)

    @property
    def stored(self) -> bool:
        """Whether the payload is the member's content itself, not compressed."""
        plain = self.method == STORED and not self.encrypted
        return plain and self.size == self.end - self.start


@dataclass(frozen=True, slots=True)
class Directory:
    """Members in the directory's order; the directory is at `start`.

    `end_record` is where the end record is, which ends the zip except for its comment.
    """

    members: tuple[ZipMember, ...]
    start: int
    end_record: int


def read(
    data: ByteView, start: int = 0, end: int | None = None, listing: ListingBudget | None = None
) -> Directory:
    """Read the directory of the zip that is data[start:end]; offsets are in `data`.

    Its members count in the `listing` of the file. Raises FormatError, also if a member is on
    another disk.
    """
    zipped = data if end is None else data[:end]
    listing = listing or ListingBudget(len(zipped) - start)
    # Found from the end: bytes before the zip and between members belong to nothing.
    end_record = _read_end(zipped, start)
    first = start + end_record.offset
    # Bounded before an entry is read: the count is only the file's claim.
    if end_record.entries > MAX_TENSORS:
        fail(
            f"zip has {end_record.entries} members",
            offset=end_record.limit,
            field="entries",
            kind="limit",
        )
    # Each entry has a minimum size, so the list below can't be longer than the file.
    if end_record.entries * ENTRY.size > end_record.size:
        fail("central directory is cut short", offset=first, field="central directory")
    cursor = Cursor(zipped[: end_record.limit], first)
    members = tuple(_member(cursor, zipped, start, listing) for _ in range(end_record.entries))
    if cursor.remaining:
        fail(
            "central directory is longer than its entries",
            offset=cursor.pos,
            field="central directory",
        )
    return Directory(members, first, end_record.record)


def overlapping(members: Sequence[ZipMember], limit: int | None = None) -> frozenset[int]:
    """Return the positions of members that lose bytes to others or reach beyond byte `limit`.

    If members share bytes, the one that starts first keeps them; then the longer one, then the one
    with the smaller name, then the first. Files may claim the same bytes as many members: a caller
    that only reads members not returned here reads each byte once.
    """

    def place(n: int) -> tuple[int, int, bytes]:
        return members[n].start, -members[n].end, members[n].name.encode()

    reached = 0
    lost = set()
    for n in sorted(range(len(members)), key=place):
        member = members[n]
        if member.start == member.end:
            continue
        if member.start < reached or (limit is not None and member.end > limit):
            lost.add(n)
        else:
            reached = member.end
    return frozenset(lost)


def part_notes(directory: Directory) -> tuple[PartNote, ...]:
    """Return notes on members that are compressed or encrypted."""
    return tuple(_note(member) for member in directory.members if not member.stored)


def _note(member: ZipMember) -> PartNote:
    if member.encrypted:
        return PartNote(member.start, f"{member.name}, encrypted", member.method != STORED, True)
    about = f"{member.name}, deflated, {member.size} bytes when inflated"
    return PartNote(member.start, about, is_compressed=True)


class ZipContainer(Protocol):
    """A file of any format that is a zip."""

    @property
    def data(self) -> ByteView:
        """The file."""

    @property
    def directory(self) -> Directory:
        """Its members."""


def named_parts(container: ZipContainer, options: ReadOptions) -> Iterator[NamedPart]:
    """Yield the members, none of which is inflated to over `options.max_chunk` bytes."""
    for member in container.directory.members:
        content = partial(blocks, container.data, member, options.max_chunk)
        yield NamedPart(member.name, member.start, member.end - member.start, content)


def content(data: ByteView, member: ZipMember, limit: int) -> ByteView:
    """Return what the member holds: its payload, inflated if it is deflated.

    Raises FormatError, with kind "limit" if it inflates to over `limit` bytes.
    """
    check_size(member, limit)
    if member.stored:
        return data[member.start : member.end]
    from wtxtgit.io.spool import spooled  # most members are stored

    return spooled(_inflated(data, member))


def blocks(data: ByteView, member: ZipMember, limit: int, step: int = BLOCK) -> Iterator[Buffer]:
    """Yield the same content in pieces of at most `step` bytes."""
    check_size(member, limit)
    if member.stored:
        yield from pieces(data[member.start : member.end], step)
    else:
        yield from _inflated(data, member, step)


def check_size(member: ZipMember, limit: int) -> None:
    """Raise FormatError if the sizes already show that the content can't be read.

    The kind is "limit" if it would inflate to over `limit` bytes.
    """
    length = member.end - member.start
    if member.encrypted:
        fail(f"member {quoted(member.name)} is encrypted", offset=member.entry, field="flags")
    if member.method not in (STORED, DEFLATED):
        _fail_member(member, f"has compression method {member.method}, which is not supported")
    if member.method == STORED and member.size != length:
        _fail_member(member, f"is stored with {length} bytes, not {member.size}")
    if member.method == DEFLATED and member.size > limit:
        _fail_member(member, f"is over {limit} bytes", kind="limit")
    # No deflate stream does better, so a false size is found before anything is inflated.
    if member.size > length * MAX_RATIO:
        _fail_member(member, f"has {length} bytes, which can't inflate to {member.size}")


def _inflated(data: ByteView, member: ZipMember, step: int = BLOCK) -> Iterator[bytes]:
    """Inflate in steps of at most `step` bytes, in and out; raises FormatError unless complete."""
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    length, pos = 0, member.start
    pending: Buffer = b""
    while not decoder.eof:
        if not pending:
            pending = mapped(data[pos : min(pos + step, member.end)])
            pos += len(pending)
        try:
            block = decoder.decompress(pending, step)
        except zlib.error:
            _fail_member(member, "is not valid deflate data")
        pending = decoder.unconsumed_tail
        if not block and not pending and not decoder.eof and pos >= member.end:
            _fail_member(member, "ends inside its deflate stream")
        length += len(block)
        if length > member.size:
            _fail_member(member, f"inflates to more than {member.size} bytes")
        yield block
    if length != member.size:
        _fail_member(member, f"inflates to {length} bytes, not {member.size}")
    # Bytes after the stream would be lost if the member were written anew.
    if decoder.unused_data or pos < member.end:
        _fail_member(member, "continues after its deflate stream")


def _fail_member(member: ZipMember, why: str, *, kind: str = "structure") -> NoReturn:
    fail(f"member {quoted(member.name)} {why}", offset=member.start, field="payload", kind=kind)


class ZipEntry(NamedTuple):
    """An entry of the directory, at byte `at`; `header` is where its local header is."""

    name: str
    flags: int
    method: int
    crc32: int
    length: int
    size: int
    header: int
    at: int


def read_entry(cursor: Cursor, start: int = 0) -> ZipEntry:
    """Read the entry at the cursor of a zip that starts at `start`; raises FormatError."""
    at = cursor.pos
    magic, _, _, flags, method, _, _, crc32, length, size, *rest = cursor.record(ENTRY, "entry")
    name_length, extra_length, comment_length, disk, _, _, offset = rest
    if magic != ENTRY_MAGIC:
        fail("entry has no signature", offset=at, field="entry")
    name = read_name(cursor, name_length, flags)
    extra = cursor.take(extra_length, "extra fields")
    cursor.skip(comment_length, "comment")
    # The zip64 field contains only the fields that are all ones in the entry, in this order
    # (APPNOTE 4.5.3).
    wide = zip64_extra(extra, at) if extra_length else None
    if wide is not None:
        try:
            size, length, offset = (
                wide.integer(8, "zip64 field") if value == MAX_32 else value
                for value in (size, length, offset)
            )
            disk = wide.integer(4, "zip64 field") if disk == MAX_16 else disk
        except FormatError:
            fail("zip64 field is cut short", offset=at, field="zip64 field")
    if disk != 0:
        fail(f"member {quoted(name)} is on another disk", offset=at, field="disk")
    return ZipEntry(name, flags, method, crc32, length, size, start + offset, at)


def _member(cursor: Cursor, data: ByteView, start: int, listing: ListingBudget) -> ZipMember:
    """Read the entry at the cursor and find where its payload starts."""
    name, flags, method, crc32, length, size, header, at = read_entry(cursor, start)
    listing.item((name,), at, "zip")
    # The directory's sizes are used: with a descriptor, the local header has zeros.
    payload = _payload(data, header) if length else _nowhere(data, header)
    check_inside(payload, length, len(data), f"member {quoted(name)}")
    return ZipMember(name, method, crc32, payload, payload + length, size, header, at, flags)


def read_name(cursor: Cursor, length: int, flags: int) -> str:
    """Read a member's name of `length` bytes; raises FormatError."""
    if flags & UTF8_NAME:
        return cursor.text(length, "name")
    # Without the flag a name is in the code page of the first PCs, 437 (APPNOTE, appendix D).
    return bytes(cursor.take(length, "name")).decode("cp437")


def zip64_extra(extra: ByteView, offset: int) -> Cursor | None:
    """Return the first zip64 field, None if there is no such field.

    It has size, length and offset, so far as they are all ones in the entry, of 8 bytes each; then
    the disk, of 4.
    """
    for kind, body in extra_fields(extra):
        if kind is None and len(body) >= EXTRA.size:
            fail("extra field is cut short", offset=offset, field="extra fields")
        if kind == ZIP64_EXTRA:
            return Cursor(body)
    return None


def wide_sizes(extra: ByteView, length: int, size: int) -> tuple[int, int]:
    """Return the sizes of a local header, taken from its zip64 field if they are all ones."""
    if MAX_32 in (length, size):
        with contextlib.suppress(FormatError):
            field = zip64_extra(extra, 0)
            if field is not None:
                size = field.integer(8, "zip64 field") if size == MAX_32 else size
                length = field.integer(8, "zip64 field") if length == MAX_32 else length
    return length, size


def extra_fields(raw: ByteView) -> Iterator[tuple[int | None, ByteView]]:
    """Yield ids and bodies of extra fields; bytes that are no field, except padding, have no id."""
    cursor = Cursor(raw)
    while cursor.remaining >= EXTRA.size:
        start = cursor.pos
        kind, length = cursor.record(EXTRA, "extra field")
        if length > cursor.remaining:
            yield None, raw[start:]
            return
        yield kind, cursor.take(length, "extra field")
    if not is_zeros(raw[cursor.pos :]):
        yield None, raw[cursor.pos :]


def _payload(data: ByteView, header: int) -> int:
    """Return where the payload after a local header starts."""
    check_inside(header, LOCAL.size, len(data), "local header")
    magic, *_, name_length, extra_length = unpack_at(LOCAL, data, header)
    if magic != ZIP_MAGIC:
        fail("local header has no signature", offset=header, field="local header")
    start = header + LOCAL.size + int(name_length) + int(extra_length)
    if start > len(data):
        fail("local header is cut short", offset=header, field="local header")
    return start


def _nowhere(data: ByteView, header: int) -> int:
    """Return the position of an empty payload, which needs no local header."""
    try:
        return _payload(data, header)
    except FormatError:
        return min(header, len(data))


@dataclass(frozen=True, slots=True)
class _End:
    """What the end of a zip says of its directory, which ends at `limit`.

    `record` is where the end record is, which follows zip64's if there is one.
    """

    entries: int
    size: int
    offset: int
    limit: int
    record: int


def _read_end(data: ByteView, start: int) -> _End:
    """Read the last end record whose numbers fit, and its zip64 record.

    There may be bytes after it and its comment. Its offsets count from `start`. Raises FormatError
    for the last record if none fits.
    """
    size = len(data)
    lowest = max(start, size - END.size - MAX_COMMENT)
    tail = bytes(data[lowest:size])
    at = len(tail)
    refused: FormatError | None = None
    # Search backwards: a comment may contain the magic, and bytes may follow the record.
    while (at := tail.rfind(END_MAGIC, 0, at + len(END_MAGIC) - 1)) >= 0:
        comment = at + END.size
        if comment > len(tail) or comment + END.unpack_from(tail, at)[-1] > len(tail):
            continue
        try:
            return _end(data, start, lowest + at)
        except FormatError as error:
            refused = refused or error
    if refused is None:
        fail("zip has no end of central directory", offset=size, field="end of central directory")
    raise refused


def _end(data: ByteView, start: int, pos: int) -> _End:
    """Read the end record at `pos`; raises FormatError if its directory does not end there."""
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
    end = zip64 or _End(entries, length, offset, pos, pos)
    first = start + end.offset
    if first + end.size != end.limit:
        fail(
            f"central directory of {end.size} bytes at byte {first} does not end",
            offset=end.limit,
            field="central directory",
        )
    return end


def _zip64_end(data: ByteView, start: int, end: int) -> _End | None:
    """Read the zip64 record before the end record at `end`; None if there is no locator."""
    place = end - ZIP64_LOCATOR.size
    if place < start or data[place : place + 4] != ZIP64_LOCATOR_MAGIC:
        return None
    field = "zip64 end of central directory"
    _, disk, offset, disks = Cursor(data, place).record(ZIP64_LOCATOR, "zip64 locator")
    if disk != 0 or disks > 1:
        fail("zip spans several disks", offset=place, field="zip64 locator")
    pos = start + offset
    check_inside(pos, ZIP64_END.size, place, field)
    magic, length, _, _, disk, directory_disk, disk_entries, entries, size, first = Cursor(
        data, pos
    ).record(ZIP64_END, field)
    if magic != ZIP64_END_MAGIC or pos + RECORD_SIZE_AFTER + length != place:
        fail(f"{field} is not where its locator says", offset=pos, field=field)
    if disk or directory_disk or disk_entries != entries:
        fail("zip spans several disks", offset=pos, field=field)
    return _End(entries, size, first, pos, end)


def find(data: ByteView, member: ZipMember, limit: int) -> tuple[int, int] | None:
    """Return where the CRC-32 after a member is, and where its descriptor ends.

    Returns None if there is no descriptor that agrees with the directory and ends at or before
    `limit`.
    """
    length = member.end - member.start
    # The signature is optional, and nothing says how wide the sizes are (APPNOTE 4.3.9): a
    # descriptor is recognised by agreeing with the directory.
    for layout, magic in LAYOUTS:
        is_narrow = layout.size < DESCRIPTOR_ZIP64.size - len(DESCRIPTOR_MAGIC)
        if is_narrow and max(length, member.size) > MAX_32:
            continue
        raw = layout.pack(*magic, member.crc32, length, member.size)
        end = member.end + len(raw)
        if end <= limit and data[member.end : end] == raw:
            return member.end + sum(map(len, magic)), end
    return None
