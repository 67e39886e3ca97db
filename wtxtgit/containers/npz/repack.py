"""Changing the compression of npz files.

Spec: `docs/spec/npz.md`, "What is written"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from wtxtgit.containers import zip_directory, zip_write
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.magic import NPY_SUFFIX
from wtxtgit.containers.npz.read import Npz
from wtxtgit.containers.zip_directory import DEFLATED, ENTRY, STORED, Member
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.model import Buffer
from wtxtgit.model.reading import ReadOptions

COMPRESSIONS = ("none",)
"""What chunks can be stored with."""


def repack(container: Npz, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """The bytes of the file with its arrays stored ("none"); other members stay as they are.

    Local headers and descriptors are written anew. Raises FormatError before
    the first of the bytes: for other compressions, and for arrays that do not
    inflate to what the directory says or are over `max_chunk` bytes.
    """
    if compression != "none":
        raise FormatError(
            f"numpy reads no {compression} in a zip, only none and deflate", field="method"
        )
    if container.shared:
        raise FormatError("members share bytes", field="payload")
    if any(member.encrypted for member in container.directory.members):
        # The check of a password rests on fields that would change.
        raise FormatError("a member is encrypted", field="flags")
    data, members = container.data, container.directory.members
    for member in members:
        if _is_packed(member):
            _check_crc32(member, zip_directory.blocks(data, member, options.max_chunk))
    return zip_write.build(_kept(data, member, options) for member in members)


def _is_packed(member: Member) -> bool:
    return member.method == DEFLATED and member.name.endswith(NPY_SUFFIX)


def _kept(data: memoryview, member: Member, options: ReadOptions) -> NewMember:
    """A member with its payload, inflated where it is an array, under the same entry."""
    (
        _,
        made_by,
        _,
        flags,
        method,
        time,
        date,
        crc32,
        _,
        _,
        name_length,
        extra_length,
        comment_length,
        _,
        internal,
        external,
        _,
    ) = ENTRY.unpack_from(data, member.entry)
    name = member.entry + ENTRY.size
    comment = name + name_length + extra_length
    length = member.end - member.start
    payload: Callable[[], Iterable[Buffer]] = partial(_raw, data, member)
    if _is_packed(member):
        method, length = STORED, member.size
        payload = partial(zip_directory.blocks, data, member, options.max_chunk)
    return NewMember(
        bytes(data[name : name + name_length]),
        crc32,
        length,
        member.size,
        payload,
        method,
        flags,
        time,
        date,
        made_by,
        internal,
        external,
        bytes(data[comment : comment + comment_length]),
    )


def _raw(data: memoryview, member: Member) -> Iterator[Buffer]:
    yield data[member.start : member.end]


def _check_crc32(member: Member, blocks: Iterable[Buffer]) -> None:
    if zip_write.crc32_of(blocks) != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has another crc32 than the directory",
            offset=member.start,
            field="crc32",
        )
