"""The fixed records of an AERO file: file header, TOC, chunk entries. Little-endian.

Spec: `docs/spec/aero.md`, "Layout".
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from wtxtgit.containers.cursor import MAX_QUOTED
from wtxtgit.io.view import ByteView

HEADER = Struct("<4sHHIQQQQQ16s28s")
"""magic major minor header_size toc_offset toc_length st_offset st_length flags uuid reserved."""
FILE_FLAGS_OFFSET = 44
RESERVED_OFFSET = 68
VERSION = (0, 1)

TOC_HEADER = Struct("<IIQ")
"""entry_count reserved0 reserved1."""
TOC_ENTRY = Struct("<4sIQQQIIQ32s")
"""fourcc flags offset length ulen name_off name_len reserved0 blake3_256."""
FLAGS_AT, OFFSET_AT, NAME_AT, RESERVED_AT, HASH_AT = 4, 8, 32, 40, 48
"""Where fields of a TOC entry start in it."""
DIGEST_SIZE = 32
NO_HASH = bytes(DIGEST_SIZE)
NO_FOURCC = bytes(4)

COMPRESSED = 0x0001
MMAP_CRITICAL = 0x0002
IS_INDEX = 0x0004
OPTIONAL = 0x0008

INTEGRITY, JSON, MANIFEST, PAGES = b"IHSH", b"MJSN", b"MMSG", b"PHSH"
INDEX, SHARD = b"TIDX", b"WTSH"
METADATA = frozenset({INTEGRITY, JSON, MANIFEST, PAGES, INDEX})
"""Chunks that MAX_METADATA_ULEN holds for."""
NEVER_COMPRESSED = frozenset({INTEGRITY, PAGES, SHARD})
SHARD_NAME = b"weights.shard%d"
MAX_SHARD_NAME = len(SHARD_NAME % -(2**64))
PAGES_SUFFIX = b".phsh"

PAYLOAD_ALIGNMENT = 16
NAMES_ALIGNMENT = 8
MAX_STRING_TABLE = 512 * 2**20
MAX_METADATA_ULEN = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Header:
    """The file header's offsets and lengths."""

    toc_offset: int
    toc_length: int
    names_offset: int
    names_length: int
    flags: int
    uuid: bytes

    @property
    def control_end(self) -> int:
        """Where TOC and string table end; an empty string table stands nowhere."""
        toc_end = self.toc_offset + self.toc_length
        names_end = self.names_offset + self.names_length if self.names_length else 0
        return max(toc_end, names_end)

    def entry_offset(self, place: int) -> int:
        """Where in the file the TOC entry number `place` stands."""
        return self.toc_offset + TOC_HEADER.size + place * TOC_ENTRY.size


@dataclass(frozen=True, slots=True)
class Chunk:
    """An entry of the TOC; `name_off` counts from the string table's start."""

    fourcc: bytes
    flags: int
    offset: int
    length: int
    ulen: int
    name_off: int
    name_len: int
    reserved: int
    digest: bytes

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def is_compressed(self) -> bool:
        return bool(self.flags & COMPRESSED)

    @property
    def is_raw_shard(self) -> bool:
        return self.fourcc == SHARD and not self.is_compressed

    @property
    def is_wiped(self) -> bool:
        """Whether nothing but zeros was left of the entry."""
        if self.fourcc != NO_FOURCC or self.digest != NO_HASH:
            return False
        numbers = (self.flags, self.offset, self.length, self.ulen, self.name_off, self.name_len)
        return not any((*numbers, self.reserved))

    @property
    def role(self) -> str:
        # isalnum of bytes is that of ASCII.
        return "_" + self.fourcc.decode().lower() if self.fourcc.isalnum() else "_chunk"


def chunk_name(data: ByteView, header: Header, chunk: Chunk) -> bytes:
    start = header.names_offset + chunk.name_off
    return bytes(data[start : start + chunk.name_len])


def chunk_label(data: ByteView, header: Header, chunk: Chunk) -> str:
    """The chunk as findings call it: its name, or its type where it has none."""
    start = header.names_offset + chunk.name_off
    raw = bytes(data[start : start + min(chunk.name_len, 4 * MAX_QUOTED)])
    name = raw.decode("utf-8", "backslashreplace")[:MAX_QUOTED]
    name = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
    return name or chunk.fourcc.decode("ascii", "backslashreplace")
