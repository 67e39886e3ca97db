"""Zips as torch writes them: payloads aligned, hashes and sizes behind them.

An extra field of the id `FB`, filled with `Z`, pads each local header so
that the payload starts at a multiple of the alignment. Sizes and CRC-32 stand
in a descriptor; an empty member has none. There is always a zip64 end record.
Spec: `docs/spec/torch.md`, "What is written"; caffe2/serialize/inline_container.cc
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.zip_descriptor import DESCRIPTOR, DESCRIPTOR_ZIP64
from wtxtgit.containers.zip_descriptor import MAGIC as DESCRIPTOR_MAGIC
from wtxtgit.containers.zip_directory import (
    DEFLATED,
    ENTRY,
    ENTRY_MAGIC,
    EXTRA,
    LOCAL,
    STORED,
    UTF8_NAME,
    WITH_DESCRIPTOR,
    ZIP64_EXTRA,
)
from wtxtgit.containers.zip_end import (
    END,
    END_MAGIC,
    MAX_16,
    MAX_32,
    RECORD_SIZE_AFTER,
    ZIP64_END,
    ZIP64_END_MAGIC,
    ZIP64_LOCATOR,
    ZIP64_LOCATOR_MAGIC,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer

PADDING_ID = int.from_bytes(b"FB", "little")
PADDING = b"Z"
MADE_BY_ZIP64 = 3 << 8 | 30
VERSION_ZIP64 = 45
DEFAULT_ALIGNMENT = 64
MAX_ALIGNMENT = 4096


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
