"""Members of npz files that were read, as members of one that is written.

Spec: `docs/spec/npz.md`, "What is written"
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wtxtgit.containers import zip_write
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.npz.read import Npz
from wtxtgit.containers.zip_directory import ENTRY, Member
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the directory says of a member that neither its content nor its place decides.

    `time` and `date` are as a zip has them, `name` and `comment` as they stand in the file.
    """

    name: bytes
    time: int
    date: int
    made_by: int
    internal: int
    external: int
    comment: bytes


def attributes(data: ByteView, member: Member) -> Attributes:
    """What the entry of a member says, beside what `Member` has."""
    (
        _,
        made_by,
        _,
        _,
        _,
        time,
        date,
        _,
        _,
        _,
        name_length,
        extra_length,
        comment_length,
        _,
        internal,
        external,
        _,
    ) = unpack_at(ENTRY, data, member.entry)
    start = member.entry + ENTRY.size
    comment = start + name_length + extra_length
    return Attributes(
        bytes(data[start : start + name_length]),
        time,
        date,
        made_by,
        internal,
        external,
        bytes(data[comment : comment + comment_length]),
    )


def kept(data: ByteView, member: Member) -> NewMember:
    """The member with its payload and its entry as they are."""
    said = attributes(data, member)
    return NewMember(
        said.name,
        member.crc32,
        member.end - member.start,
        member.size,
        lambda: pieces(data[member.start : member.end]),
        member.method,
        member.flags,
        said.time,
        said.date,
        said.made_by,
        said.internal,
        said.external,
        said.comment,
    )


def refuse_unwritable(container: Npz) -> None:
    """Raise FormatError for a file whose members can't be written again one by one."""
    if container.shared:
        raise FormatError("members share bytes", field="payload")
    if any(member.encrypted for member in container.directory.members):
        # The check of a password rests on fields that would change.
        raise FormatError("a member is encrypted", field="flags")


def check_crc32(member: Member, blocks: Iterable[Buffer]) -> None:
    """Raise FormatError where a member's content, inflated, is not what the directory says."""
    if zip_write.crc32_of(blocks) != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has another crc32 than the directory",
            offset=member.start,
            field="crc32",
        )
