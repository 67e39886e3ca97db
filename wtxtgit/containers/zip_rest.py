"""What a zip holds beside its members and what its directory says of them.

Spec: "Resealing" in `docs/spec/npz.md` and `torch.md`; PKWARE's APPNOTE.TXT 6.3.10
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from wtxtgit.containers import loose, zip_descriptor
from wtxtgit.containers.cursor import Cursor, unpack_at
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.zip_directory import (
    ENTRY,
    EXTRA,
    LOCAL,
    WITH_DESCRIPTOR,
    ZIP64_EXTRA,
    Directory,
    Member,
)
from wtxtgit.containers.zip_end import END
from wtxtgit.io.view import ByteView

COMMENT, BEHIND, GAPS, EXTRAS = "comment", "behind the zip", "gaps", "extra fields"
OF_THE_WRITING = frozenset(
    {
        ZIP64_EXTRA,
        0x000A,  # NTFS times
        0x5455,  # times
        0x5855,  # times and owner
        0x7855,  # owner
        0x7875,  # owner
        int.from_bytes(b"FB", "little"),  # torch's padding
    }
)
"""Extra fields that say when and by whom a member was written, and where it stands."""


def comment(data: ByteView, directory: Directory) -> bytes:
    """The comment of the zip."""
    start = directory.end_record + END.size
    return bytes(data[start : start + unpack_at(END, data, directory.end_record)[-1]])


def rest(data: ByteView, directory: Directory) -> dict[str, object]:
    """The comment, and hashes of bytes that are no member's; what there is of them.

    Zeros, and extra fields that follow from the writing, are left out.
    """
    held = comment(data, directory)
    behind = directory.end_record + END.size + len(held)
    told: dict[str, object] = {
        COMMENT: held or None,
        BEHIND: loose.digest(data[behind:], ()),
        GAPS: loose.digest(data[: directory.start], _spans(data, directory)),
        EXTRAS: _extras(data, directory),
    }
    return {name: value for name, value in told.items() if value is not None}


def member_comment(data: ByteView, member: Member) -> bytes:
    """The comment that the directory has on a member."""
    *_, name, extra, length, _, _, _, _ = unpack_at(ENTRY, data, member.entry)
    start = member.entry + ENTRY.size + name + extra
    return bytes(data[start : start + length])


def _spans(data: ByteView, directory: Directory) -> Iterator[loose.Span]:
    """Where members stand, with headers and descriptors."""
    for member in directory.members:
        end = member.end
        if _has_local(data, member) and _flags(data, member) & WITH_DESCRIPTOR:
            found = zip_descriptor.find(data, member, directory.start)
            end = member.end if found is None else found[1]
        yield member.header, end


def _extras(data: ByteView, directory: Directory) -> bytes | None:
    """The SHA-256 over extra fields that tell something, None where none does."""
    hashed, is_any = hashlib.sha256(), False
    for member in directory.members:
        for raw in (_of_entry(data, member), _of_local(data, member)):
            kept = b"".join(_kept(raw))
            if kept:
                name = member.name.encode("utf-8", "surrogatepass")
                for part in (name, kept):
                    hashed.update(len(part).to_bytes(8, "little") + part)
                is_any = True
    return hashed.digest() if is_any else None


def _kept(raw: ByteView) -> Iterator[bytes]:
    cursor = Cursor(raw)
    while cursor.remaining >= EXTRA.size:
        start = cursor.pos
        kind, length = cursor.record(EXTRA, "extra field")
        if length > cursor.remaining:
            cursor.pos = start
            break
        cursor.skip(length, "extra field")
        if kind not in OF_THE_WRITING:
            yield bytes(raw[start : cursor.pos])
    left = bytes(raw[cursor.pos :])
    if left.strip(b"\0"):
        yield left


def _of_entry(data: ByteView, member: Member) -> ByteView:
    *_, name, extra, _, _, _, _, _ = unpack_at(ENTRY, data, member.entry)
    start = member.entry + ENTRY.size + name
    return data[start : start + extra]


def _of_local(data: ByteView, member: Member) -> ByteView:
    if not _has_local(data, member):
        return data[:0]
    *_, name, extra = unpack_at(LOCAL, data, member.header)
    start = member.header + LOCAL.size + name
    return data[start : start + extra]


def _flags(data: ByteView, member: Member) -> int:
    return int(unpack_at(LOCAL, data, member.header)[2]) | member.flags


def _has_local(data: ByteView, member: Member) -> bool:
    """Whether there is a local header; an empty member may have none."""
    end = member.header + LOCAL.size
    return end <= len(data) and data[member.header : member.header + 4] == ZIP_MAGIC
