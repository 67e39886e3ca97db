"""Data descriptors: CRC-32 and sizes behind a payload. Little-endian.

Spec: `docs/spec/npz.md`, "zip"; PKWARE's APPNOTE.TXT 6.3.10, 4.3.9
"""

from __future__ import annotations

from struct import Struct

from wtxtgit.containers.zip_directory import Member
from wtxtgit.containers.zip_end import MAX_32
from wtxtgit.io.view import ByteView

MAGIC = b"PK\x07\x08"
DESCRIPTOR = Struct("<4sIII")
DESCRIPTOR_ZIP64 = Struct("<4sIQQ")
"""signature crc32 compressed_size size."""
LAYOUTS = (
    (DESCRIPTOR_ZIP64, (MAGIC,)),
    (DESCRIPTOR, (MAGIC,)),
    (Struct("<IQQ"), ()),
    (Struct("<III"), ()),
)
"""With 64 or 32 bits for sizes, with a signature or without one."""


def find(data: ByteView, member: Member, limit: int) -> tuple[int, int] | None:
    """Where the CRC-32 stands behind the member, and where its descriptor ends.

    None where there is none that says what the directory says and ends at
    byte `limit` at the latest.
    """
    length = member.end - member.start
    for layout, magic in LAYOUTS:
        is_narrow = layout.size < DESCRIPTOR_ZIP64.size - len(MAGIC)
        if is_narrow and max(length, member.size) > MAX_32:
            continue
        raw = layout.pack(*magic, member.crc32, length, member.size)
        end = member.end + len(raw)
        if end <= limit and data[member.end : end] == raw:
            return member.end + sum(map(len, magic)), end
    return None
