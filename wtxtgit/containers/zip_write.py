"""Writing zips, and describing what a zip has besides its members.

The same members give the same bytes, at any time, on any machine. Sizes and hashes are written
before payloads, zip64 fields only if they are needed. Spec: `docs/spec/npz.md`, "zip" and
"Resealing"; PKWARE's APPNOTE.TXT 6.3.10
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from struct import pack

from wtxtgit.containers import intervals, zip_read
from wtxtgit.containers.cursor import Cursor, quoted, unpack_at
from wtxtgit.containers.json_text import is_text
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.zip_read import (
    BLOCK,
    DESCRIPTOR,
    DESCRIPTOR_MAGIC,
    DESCRIPTOR_ZIP64,
    END,
    END_MAGIC,
    ENTRY,
    ENTRY_MAGIC,
    EXTRA,
    LOCAL,
    MAX_16,
    MAX_32,
    RECORD_SIZE_AFTER,
    STORED,
    UTF8_NAME,
    WITH_DESCRIPTOR,
    ZIP64_END,
    ZIP64_END_MAGIC,
    ZIP64_EXTRA,
    ZIP64_LOCATOR,
    ZIP64_LOCATOR_MAGIC,
    Directory,
    ZipMember,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces, same_bytes

VERSION = 20
VERSION_ZIP64 = 45
MADE_BY_UNIX = 3 << 8
MODE = 0o600 << 16
"""The mode that Python's zipfile gives a member."""
DATE_1980 = 1 << 5 | 1
"""1980-01-01, the first day that a zip can express."""
COMMENT, BEHIND, GAPS, EXTRAS = "comment", "behind the zip", "gaps", "extra fields"
PADDING = int.from_bytes(b"FB", "little")
"""torch's extra field that moves a payload to its place; it is filled with `Z`."""
_LONGEST = {
    ZIP64_EXTRA: 28,
    0x000A: 32,  # NTFS times
    0x5455: 13,  # times
    0x5855: 12,  # times and owner
    0x7855: 4,  # owner
    0x7875: 11,  # owner
}
"""Extra fields about when and by whom a member was written, and the most bytes that they need."""
OF_THE_WRITING = frozenset({*_LONGEST, PADDING})
"""These fields, and the one about a member's position."""


@dataclass(frozen=True, slots=True)
class ZipStyle:
    """What writers of zips do differently; the default is like Python's zipfile.

    With an `alignment`, payloads start at multiples of it: an extra field `padding` (id, and the
    byte that fills it) pads each local header. With `describes`, sizes and CRC-32 are in a
    descriptor after the payload, except for an empty one, and both sizes have 64 bits if either
    needs them. `end` is the maker's version in zip64's end record; with `always_zip64` there always
    is one.
    """

    version: int = VERSION
    alignment: int = 0
    padding: tuple[int, bytes] = (0, b"")
    describes: bool = False
    end: int = VERSION_ZIP64
    always_zip64: bool = False


PLAIN = ZipStyle()


@dataclass(frozen=True, slots=True, eq=False)
class NewMember:
    """A member to be written.

    `payload` yields `length` bytes, which `method` inflates to `size` bytes. `crc32` is that of the
    inflated bytes; None if that of the payload is to be computed for a descriptor. `name` is as in
    the file, UTF-8 if `flags` say so.
    """

    name: bytes
    crc32: int | None
    length: int
    size: int
    payload: Callable[[], Iterable[Buffer]]
    method: int = STORED
    flags: int = 0
    time: int = 0
    date: int = DATE_1980
    made_by: int = MADE_BY_UNIX | VERSION
    internal: int = 0
    external: int = MODE
    comment: bytes = b""


def encoded_name(name: str) -> tuple[bytes, int]:
    """Return a member's name as bytes, and the flags that go with it.

    Raises FormatError for a name that readers of zips would not return unchanged.
    """
    if not is_text(name):
        raise FormatError(f"name {quoted(name)} has a lone surrogate", field="name")
    raw = name.encode()
    if len(raw) > MAX_16:
        raise FormatError(f"name {quoted(name)} is too long for a zip", field="name")
    if "\0" in name:
        raise FormatError(
            f"name {quoted(name)} contains a NUL, which would cut it short in a zip", field="name"
        )
    return raw, 0 if name.isascii() else UTF8_NAME


def crc32_of(blocks: Iterable[Buffer]) -> int:
    """Return the CRC-32 of bytes that come in blocks."""
    return reduce(lambda crc32, block: zlib.crc32(block, crc32), blocks, 0)


def checked_crc32(
    member: ZipMember, blocks: Iterable[Buffer], *, is_in_directory: bool = True
) -> int:
    """Return the CRC-32 of a member's inflated content.

    Raises FormatError if the directory has another one, unless it has none at all.
    """
    crc32 = crc32_of(blocks)
    if is_in_directory and crc32 != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has a crc32 that differs from the central directory's",
            offset=member.start,
            field="crc32",
        )
    return crc32


def deflated(blocks: Callable[[], Iterable[Buffer]]) -> Iterator[bytes]:
    """Compress blocks to a deflate stream, at most BLOCK bytes at a time."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for block in blocks():
        yield from map(packer.compress, pieces(memoryview(block).cast("B"), BLOCK))
    yield packer.flush()


def kept(data: ByteView, member: ZipMember) -> NewMember:
    """Return the member with its payload and its entry unchanged."""
    _, made_by, _, _, _, time, date, *_, internal, external, _ = unpack_at(
        ENTRY, data, member.entry
    )
    name, _, comment = map(bytes, _texts_of_entry(data, member))
    return NewMember(
        name,
        member.crc32,
        member.end - member.start,
        member.size,
        partial(pieces, data[member.start : member.end]),
        member.method,
        member.flags,
        time,
        date,
        made_by,
        internal,
        external,
        comment,
    )


def build(
    members: Iterable[NewMember], comment: bytes = b"", style: ZipStyle = PLAIN
) -> Iterator[Buffer]:
    """Yield the bytes of a zip; each member is asked for, and its payload once, at its turn.

    `comment` is that of the zip. Raises FormatError, before the first piece, if readers could take
    it for the zip's end; later, if a member with a descriptor has more or fewer bytes than it said.
    """
    # Readers search for the magic from the end of the file.
    if END_MAGIC in comment or len(comment) > MAX_16:
        raise FormatError("comment does not fit a zip", field="comment")
    return _pieces(members, comment, style)


def _pieces(members: Iterable[NewMember], comment: bytes, style: ZipStyle) -> Iterator[Buffer]:
    offset = 0
    entries: list[bytes] = []
    for member in members:
        wide = _zip64_field(member, offset, style)
        header = _local(member, offset, wide, style)
        yield header
        descriptor = b""
        crc32 = member.crc32
        if style.describes:
            crc32 = yield from _described(member)
            layout = DESCRIPTOR_ZIP64 if wide else DESCRIPTOR
            if member.length:
                descriptor = layout.pack(DESCRIPTOR_MAGIC, crc32, member.length, member.size)
                yield descriptor
        else:
            yield from member.payload()
        entries.append(_entry(member, crc32, offset, wide, style))
        offset += len(header) + member.length + len(descriptor)
    yield from entries
    yield _end(len(entries), sum(map(len, entries)), offset, comment, style)


def _described(member: NewMember) -> Generator[Buffer, None, int]:
    """Yield the payload and check its length; return its CRC-32 if the member did not have one."""
    crc32 = length = 0
    for block in member.payload():
        if member.crc32 is None:
            crc32 = zlib.crc32(block, crc32)
        length += memoryview(block).nbytes
        yield block
    if length != member.length:
        raise FormatError(f"member has {length} bytes, not {member.length}", field="payload")
    return crc32 if member.crc32 is None else member.crc32


def _is_wide(member: NewMember) -> bool:
    # All ones mean that the number is in the zip64 field, so that can't be a size.
    return max(member.length, member.size) >= MAX_32


def _zip64_field(member: NewMember, offset: int, style: ZipStyle) -> bytes:
    """Format sizes and offset that exceed 32 bits; with descriptors both sizes or none."""
    least = 0 if style.describes and _is_wide(member) else MAX_32
    values = [value for value in (member.size, member.length) if value >= least]
    values += [offset] if offset >= MAX_32 else []
    return _extra(ZIP64_EXTRA, pack(f"<{len(values)}Q", *values)) if values else b""


def _extra(field: int, body: bytes) -> bytes:
    return EXTRA.pack(field, len(body)) + body


def _local(member: NewMember, offset: int, wide: bytes, style: ZipStyle) -> bytes:
    facts: tuple[int | None, ...] = member.crc32, member.length, member.size
    extra, version = b"", style.version
    if style.describes:
        # What the descriptor says is not known yet, except whether it is wide.
        facts, extra = (0, 0, 0), wide
    elif _is_wide(member):
        facts, version = (member.crc32, MAX_32, MAX_32), VERSION_ZIP64
        # In a local header the field has both sizes, and no offset.
        extra = _extra(ZIP64_EXTRA, pack("<2Q", member.size, member.length))
    if style.alignment:
        unpadded = offset + LOCAL.size + len(member.name) + len(extra) + EXTRA.size
        kind, fill = style.padding
        extra += _extra(kind, fill * (-unpadded % style.alignment))
    flags, lengths = _flags_of(member, style), (len(member.name), len(extra))
    fields = (version, flags, member.method, member.time, member.date, *facts, *lengths)
    return LOCAL.pack(ZIP_MAGIC, *fields) + member.name + extra


def _flags_of(member: NewMember, style: ZipStyle) -> int:
    is_described = style.describes and member.length
    return member.flags & ~WITH_DESCRIPTOR | (WITH_DESCRIPTOR if is_described else 0)


def _entry(
    member: NewMember, crc32: int | None, offset: int, wide: bytes, style: ZipStyle
) -> bytes:
    sizes = (min(member.length, MAX_32), min(member.size, MAX_32))
    if style.describes and _is_wide(member):
        sizes = MAX_32, MAX_32
    header = ENTRY.pack(
        ENTRY_MAGIC,
        member.made_by,
        VERSION_ZIP64 if wide and style.version else style.version,
        _flags_of(member, style),
        member.method,
        member.time,
        member.date,
        crc32,
        *sizes,
        len(member.name),
        len(wide),
        len(member.comment),
        0,
        member.internal,
        member.external,
        min(offset, MAX_32),
    )
    return header + member.name + wide + member.comment


def _end(entries: int, size: int, offset: int, comment: bytes, style: ZipStyle) -> bytes:
    """Format the end record with the comment, after zip64's if a number is too large."""
    zip64 = b""
    if style.always_zip64 or entries >= MAX_16 or max(size, offset) >= MAX_32:
        length = ZIP64_END.size - RECORD_SIZE_AFTER
        versions = (length, style.end, VERSION_ZIP64, 0, 0)
        zip64 = ZIP64_END.pack(ZIP64_END_MAGIC, *versions, entries, entries, size, offset)
        zip64 += ZIP64_LOCATOR.pack(ZIP64_LOCATOR_MAGIC, 0, offset + size, 1)
    count = min(entries, MAX_16)
    fields = (0, 0, count, count, min(size, MAX_32), min(offset, MAX_32), len(comment))
    return zip64 + END.pack(END_MAGIC, *fields) + comment


def comment(data: ByteView, directory: Directory) -> bytes:
    """Return the comment of the zip."""
    start = directory.end_record + END.size
    return bytes(data[start : start + unpack_at(END, data, directory.end_record)[-1]])


def rest(data: ByteView, directory: Directory) -> dict[str, object]:
    """Return the comment, and hashes of bytes that belong to no member, so far as there are any.

    Zeros are left out, as are extra fields that result from the writing.
    """
    of_zip = comment(data, directory)
    behind = directory.end_record + END.size + len(of_zip)
    parts: dict[str, object] = {
        COMMENT: of_zip or None,
        BEHIND: intervals.digest(data[behind:], ()),
        GAPS: intervals.digest(data[: directory.start], _spans(data, directory)),
        EXTRAS: _extras(data, directory),
    }
    return {name: value for name, value in parts.items() if value is not None}


def records(data: ByteView, directory: Directory) -> Iterator[tuple[int, int]]:
    """Yield the [start, end) of all that a zip needs besides payloads: headers, descriptors, ends.

    Comments, bytes after the zip, and extra fields or names that no reader asks for are left out.
    Spans may overlap.
    """
    at = directory.start
    for member in directory.members:
        descriptor = zip_read.find(data, member, directory.start)
        if descriptor is not None:
            yield member.end, descriptor[1]
        name, extra, comment = _texts_of_entry(data, member)
        at = member.entry + ENTRY.size + len(name)
        yield member.entry, at
        yield from _of_the_writing(extra, at)
        at += len(extra) + len(comment)
    yield from _local_headers(data, directory)
    yield directory.end_record, directory.end_record + END.size
    if at < directory.end_record:
        # The reader has proved that zip64's records fill this gap; the first may be any length.
        yield at, at + ZIP64_END.size
        yield directory.end_record - ZIP64_LOCATOR.size, directory.end_record


def _local_headers(data: ByteView, directory: Directory) -> Iterator[tuple[int, int]]:
    end = 0
    for member in sorted(directory.members, key=lambda member: member.header):
        # Headers within one another could make their extra fields be read any number of times.
        if member.header < end or not _has_local(data, member):
            continue
        named = next(_texts_of_entry(data, member))
        *_, length, _ = unpack_at(LOCAL, data, member.header)
        start = member.header + LOCAL.size
        yield member.header, start
        # Readers go by the directory's name.
        if same_bytes(data[start : start + length], named):
            yield start, start + length
        extra = _of_local(data, member)
        yield from _of_the_writing(extra, start + length)
        end = start + length + len(extra)


def _of_the_writing(extra: ByteView, at: int) -> Iterator[tuple[int, int]]:
    """Yield where fields are that result from the writing, of those that start at byte `at`."""
    for kind, body in zip_read.extra_fields(extra):
        end = at + len(body) + (0 if kind is None else EXTRA.size)
        is_filling = kind == PADDING and not bytes(body).strip(b"Z")
        if is_filling or (kind is not None and len(body) <= _LONGEST.get(kind, -1)):
            yield at, end
        at = end


def _texts_of_entry(data: ByteView, member: ZipMember) -> Iterator[ByteView]:
    """Yield name, extra fields and comment of a member in the directory."""
    cursor = Cursor(data, member.entry)
    lengths = cursor.record(ENTRY, "entry")[10:13]
    return (cursor.take(length, "entry") for length in lengths)


def _spans(data: ByteView, directory: Directory) -> Iterator[intervals.Span]:
    """Yield where members are, with headers and descriptors."""
    for member in directory.members:
        end = member.end
        if _has_local(data, member):
            flags = unpack_at(LOCAL, data, member.header)[2] | member.flags
            descriptor = zip_read.find(data, member, directory.start)
            if flags & WITH_DESCRIPTOR and descriptor is not None:
                _, end = descriptor
        yield member.header, end


def _extras(data: ByteView, directory: Directory) -> bytes | None:
    """Return the SHA-256 over significant extra fields, None if there are none."""
    hashed, is_any = hashlib.sha256(), False
    for member in directory.members:
        _, of_entry, _ = _texts_of_entry(data, member)
        for raw in (of_entry, _of_local(data, member)):
            telling = b"".join(_telling(raw))
            if telling:
                name = member.name.encode("utf-8", "surrogatepass")
                for part in (name, telling):
                    hashed.update(len(part).to_bytes(8, "little") + part)
                is_any = True
    return hashed.digest() if is_any else None


def _telling(raw: ByteView) -> Iterator[bytes]:
    """Yield extra fields that do not result from the writing, and bytes that are in no field."""
    for kind, body in zip_read.extra_fields(raw):
        if kind is None:
            yield bytes(body)
        elif kind not in OF_THE_WRITING:
            yield _extra(kind, bytes(body))


def _of_local(data: ByteView, member: ZipMember) -> ByteView:
    if not _has_local(data, member):
        return data[:0]
    *_, name, extra = unpack_at(LOCAL, data, member.header)
    start = member.header + LOCAL.size + name
    return data[start : start + extra]


def _has_local(data: ByteView, member: ZipMember) -> bool:
    """Whether there is a local header; an empty member may have none."""
    end = member.header + LOCAL.size
    return end <= len(data) and data[member.header : member.header + 4] == ZIP_MAGIC
