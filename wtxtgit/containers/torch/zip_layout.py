"""Zips as torch writes them: of new members, of the same ones stored, with other contents of some.

An extra field of the id `FB`, filled with `Z`, pads each local header so
that the payload starts at a multiple of the alignment. Sizes and CRC-32 stand
in a descriptor; an empty member has none. There is always a zip64 end record.
A member that is changed in place keeps its bytes' place; its CRC-32 is changed
wherever it stands: in the directory, in the local header, in the descriptor.
Spec: `docs/spec/torch.md`, "What is written" and "Resealing"; PKWARE's APPNOTE.TXT 6.3.10;
caffe2/serialize/inline_container.cc
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from struct import Struct, pack

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.replacing import Edit, spliced
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.torch.read import DEFAULT_ALIGNMENT, Torch
from wtxtgit.containers.zip_read import (
    BLOCK,
    DEFLATED,
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
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import ReadOptions

PADDING_ID = int.from_bytes(b"FB", "little")
PADDING = b"Z"
MADE_BY_ZIP64 = 3 << 8 | 30
VERSION_ZIP64 = 45


@dataclass(frozen=True, slots=True)
class Deflated:
    """Bytes of a deflate stream, and the CRC-32 of what it inflates to."""

    length: int
    crc32: int


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A member to be written: a UTF-8 name, and `size` bytes, given in blocks.

    Where it is `deflated` the blocks are those of the deflate stream.
    """

    name: bytes
    size: int
    blocks: Callable[[], Iterable[Buffer]]
    deflated: Deflated | None = None

    @property
    def length(self) -> int:
        """How many bytes the blocks have together."""
        return self.size if self.deflated is None else self.deflated.length

    @property
    def method(self) -> int:
        return STORED if self.deflated is None else DEFLATED


def build(contents: Iterable[Content], alignment: int = DEFAULT_ALIGNMENT) -> Iterator[Buffer]:
    """The bytes of a zip with these members; each one's blocks are asked for once.

    Raises FormatError where a member has more or fewer bytes than it said.
    """
    offset = 0
    entries: list[bytes] = []
    for content in contents:
        wide = _zip64_field(content, offset)
        flags = UTF8_NAME | (WITH_DESCRIPTOR if content.length else 0)
        header = _local(content, flags, wide, offset, alignment)
        yield header
        crc32 = length = 0
        for block in content.blocks():
            crc32 = zlib.crc32(block, crc32)
            length += memoryview(block).nbytes
            yield block
        if length != content.length:
            raise FormatError(f"member has {length} bytes, not {content.length}", field="payload")
        if content.deflated is not None:
            crc32 = content.deflated.crc32
        descriptor = b""
        if length:
            layout = DESCRIPTOR_ZIP64 if wide else DESCRIPTOR
            descriptor = layout.pack(DESCRIPTOR_MAGIC, crc32, length, content.size)
            yield descriptor
        entries.append(_entry(content, flags, wide, crc32, offset))
        offset += len(header) + length + len(descriptor)
    yield from entries
    yield _end(len(entries), sum(map(len, entries)), offset)


def _zip64_field(content: Content, offset: int) -> bytes:
    """Sizes and offset that have no room in 32 bits; both sizes where one has none."""
    is_wide = max(content.size, content.length) >= MAX_32
    sizes = (content.size, content.length) if is_wide else ()
    values = (*sizes, offset) if offset >= MAX_32 else sizes
    if not values:
        return b""
    body = Struct(f"<{len(values)}Q").pack(*values)
    return EXTRA.pack(ZIP64_EXTRA, len(body)) + body


def _local(content: Content, flags: int, wide: bytes, offset: int, alignment: int) -> bytes:
    unpadded = offset + LOCAL.size + len(content.name) + len(wide) + EXTRA.size
    padding = PADDING * (-unpadded % alignment)
    extra = wide + EXTRA.pack(PADDING_ID, len(padding)) + padding
    name_length, extra_length = len(content.name), len(extra)
    fields = (flags, content.method, 0, 0, 0, 0, 0, name_length, extra_length)
    header = LOCAL.pack(ZIP_MAGIC, 0, *fields)
    return header + content.name + extra


def _entry(content: Content, flags: int, wide: bytes, crc32: int, offset: int) -> bytes:
    is_wide = max(content.size, content.length) >= MAX_32
    header = ENTRY.pack(
        ENTRY_MAGIC,
        0,
        0,
        flags,
        content.method,
        0,
        0,
        crc32,
        MAX_32 if is_wide else content.length,
        MAX_32 if is_wide else content.size,
        len(content.name),
        len(wide),
        0,
        0,
        0,
        0,
        min(offset, MAX_32),
    )
    return header + content.name + wide


def _end(entries: int, size: int, offset: int) -> bytes:
    zip64 = ZIP64_END.pack(
        ZIP64_END_MAGIC,
        ZIP64_END.size - RECORD_SIZE_AFTER,
        MADE_BY_ZIP64,
        VERSION_ZIP64,
        0,
        0,
        entries,
        entries,
        size,
        offset,
    )
    locator = ZIP64_LOCATOR.pack(ZIP64_LOCATOR_MAGIC, 0, offset + size, 1)
    count = min(entries, MAX_16)
    end = END.pack(END_MAGIC, 0, 0, count, count, min(size, MAX_32), min(offset, MAX_32), 0)
    return zip64 + locator + end


COMPRESSIONS = ("none",)
"""What chunks can be stored with."""


def repack(container: Torch, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """The bytes of the file with all its members stored ("none"), laid out as torch does.

    Raises FormatError before the first of the bytes: for other compressions,
    and for members that share bytes, are over `max_chunk` bytes once
    inflated, or do not have the CRC-32 that the directory says, where it says any.
    """
    if compression != "none":
        raise FormatError(f"torch has no {compression} in its files", field="method")
    data, members = container.data, container.directory.members
    if zip_read.overlapping(members, container.directory.start):
        raise FormatError("members share bytes", field="payload")
    has_crc32 = any(member.crc32 for member in members)
    contents = []
    for member in members:
        most = max(options.max_chunk, member.end - member.start)
        blocks = partial(zip_read.blocks, data, member, most)
        check_crc32(member, blocks, has_crc32=has_crc32)
        contents.append(Content(encoded_name(member), member.size, blocks))
    return build(contents, container.alignment)


def encoded_name(member: ZipMember) -> bytes:
    """A member's name in UTF-8; raises FormatError where that is too long."""
    name = member.name.encode()
    if len(name) > MAX_16:
        raise FormatError(f"name {quoted(member.name)} is too long in UTF-8", field="name")
    return name


def check_crc32(
    member: ZipMember, blocks: Callable[[], Iterable[Buffer]], *, has_crc32: bool
) -> int:
    """The CRC-32 of a member's content, which `blocks` gives.

    Raises FormatError where the directory has another one, unless it has none
    at all.
    """
    found = zip_write.crc32_of(blocks())
    if has_crc32 and found != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has another crc32 than the directory",
            offset=member.start,
            field="crc32",
        )
    return found


LOCAL_CRC32 = 14
ENTRY_CRC32 = 16
"""Where the CRC-32 stands in a local header, and in an entry of the directory."""

Blocks = Callable[[], Iterable[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class ChangedMember:
    """Another content of a member, of as many bytes, and its CRC-32."""

    member: ZipMember
    blocks: Blocks
    crc32: int


def in_place(
    data: ByteView, directory: Directory, changed: Sequence[ChangedMember], *, has_crc32: bool
) -> Iterator[Buffer]:
    """The bytes of the zip with other contents of stored members, everything else as it is.

    Raises FormatError before the first of the bytes where members share bytes.
    """
    limits = _limits(directory)
    patches: list[Edit] = []
    for one in changed:
        member = one.member
        patches.append((member.start, member.end, one.blocks))
        if has_crc32:
            places = _crc32_places(data, member, limits[member.entry])
            blocks = partial(iter, (pack("<I", one.crc32),))
            patches += [(place, place + 4, blocks) for place in places]
    return spliced(data, sorted(patches, key=lambda patch: patch[0]))


def laid_out(
    data: ByteView,
    directory: Directory,
    changed: Mapping[int, ChangedMember],
    alignment: int,
    most: int,
    *,
    has_crc32: bool,
) -> Iterator[Buffer]:
    """The bytes of a zip as torch lays it out, with other contents of some members.

    `changed` has them by the place of their entries. Members are compressed as
    they were. Raises FormatError before the first of the bytes for members
    that can't be read, inflate to over `most` bytes, or do not have the CRC-32
    that the directory says, where it says any.
    """
    contents = []
    for member in directory.members:
        name = encoded_name(member)
        one = changed.get(member.entry)
        if one is None:
            limit = max(most, member.end - member.start)
            blocks: Blocks = partial(zip_read.blocks, data, member, limit)
            found = check_crc32(member, blocks, has_crc32=has_crc32)
            if member.method == DEFLATED:
                blocks = partial(pieces, data[member.start : member.end])
            length = member.end - member.start
        else:
            blocks, found, length = one.blocks, one.crc32, member.size
            if member.method == DEFLATED:
                blocks = partial(_deflated, one.blocks)
                length = sum(len(block) for block in blocks())
        contents.append(
            Content(
                name,
                member.size,
                blocks,
                Deflated(length, found) if member.method == DEFLATED else None,
            )
        )
    return build(contents, alignment)


def _limits(directory: Directory) -> dict[int, int]:
    """Where each member ends, headers and payloads, by its entry: where the next one starts.

    Raises FormatError where they reach into one another or into the directory:
    what would be changed of one would be another's.
    """
    members = sorted((m for m in directory.members if m.end > m.start), key=lambda m: m.header)
    limits: dict[int, int] = {}
    for member, follows in pairwise(members):
        limits[member.entry] = follows.header
    if members:
        limits[members[-1].entry] = directory.start
    for member in members:
        if member.end > limits[member.entry]:
            raise FormatError("members share bytes", offset=member.start, field="payload")
    return limits


def _crc32_places(data: ByteView, member: ZipMember, limit: int) -> Iterator[int]:
    """Where a member's CRC-32 stands, outside of fields that are left empty for a descriptor."""
    yield member.entry + ENTRY_CRC32
    _, _, flags, _, _, _, crc32, *_ = unpack_at(LOCAL, data, member.header)
    is_described = bool(flags & WITH_DESCRIPTOR)
    if crc32 == member.crc32 and (crc32 or not is_described):
        yield member.header + LOCAL_CRC32
    if not is_described:
        return
    found = zip_read.find(data, member, limit)
    if found is not None:
        yield found[0]


def _deflated(blocks: Blocks) -> Iterator[bytes]:
    codec = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for block in blocks():
        view = memoryview(block).cast("B")
        for start in range(0, len(view), BLOCK):
            yield codec.compress(view[start : start + BLOCK])
    yield codec.flush()
