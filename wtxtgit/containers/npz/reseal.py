"""npz files put together anew: of entries of several, or with another compression.

An entry is a member: a file, inflated.
Spec: `docs/spec/npz.md`, "Resealing" and "What is written".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.npz.read import Npz, inflated
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_read import (
    DEFLATED,
    ENTRY,
    STORED,
    UTF8_NAME,
    WITH_DESCRIPTOR,
    ZipMember,
)
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import Entry, NewContent, PackedBytes, PlacedEntry, ReadOptions

OF_THE_WRITING = UTF8_NAME | WITH_DESCRIPTOR
"""Flags that say how a name and where sizes stand."""
COMPRESSIONS = ("none",)
"""What chunks can be stored with."""


def entries(container: Npz, options: ReadOptions) -> list[Entry]:
    """The members in the order of the directory; nothing is inflated before it is asked for."""
    decoded = DecodedParts(options).of_file(len(container.data))
    return [_entry(container, n, decoded, options) for n in range(len(container.directory.members))]


def values(container: Npz, options: ReadOptions) -> dict[str, object]:
    """Nothing: an npz file has no metadata."""
    return {}


def rest(container: Npz, options: ReadOptions) -> dict[str, object]:
    """The comment of the zip, and hashes of bytes that are no member's, where there are any."""
    return zip_write.rest(container.data, container.directory)


def reseal(
    container: Npz,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """The file with these members, in pieces; the same bytes where they are its own.

    Members without content keep their payload as it is stored, those with
    content are stored or deflated as they were; local headers are written
    anew, the comment is that of `container`. Raises FormatError, before the
    first piece: for files whose members share bytes or are encrypted, for a
    comment that could be taken for the end of a zip, for content of members that do not hold or
    have a compression that is not read, where no array is left, for any
    metadata, and (limit) for what is deflated and over `options.max_chunk`.
    """
    if values:
        raise FormatError("npz has no metadata", field="metadata")
    if _is_own(container, placed):
        return pieces(container.data)
    if len(placed) > MAX_TENSORS:
        raise FormatError(f"{len(placed)} members are too many", kind="limit", field="entries")
    sources = {id(one.source): cast(Npz, one.source) for one in placed}
    for source in sources.values():
        refuse_unwritable(source)
    members = [_member(one, options) for one in placed]
    names = [cast(Npz, one.source).directory.members[one.number].name for one in placed]
    if not any(name.endswith(NPY_SUFFIX) for name in names):
        raise FormatError("npz holds at least one array", field="entries")
    return zip_write.build(members, zip_write.comment(container.data, container.directory))


def _entry(container: Npz, n: int, decoded: DecodedParts, options: ReadOptions) -> Entry:
    data, member = container.data, container.directory.members[n]
    said = attributes(data, member)
    flags = member.flags & ~OF_THE_WRITING
    form = (member.method, flags, said.internal, said.external, said.comment)
    held = data[member.start : member.end]
    if member.encrypted:
        return Entry(member.name, form, held, unread="encrypted")
    if n in container.shared:
        return Entry(member.name, form, None, unread="shares bytes with another member")
    try:
        zip_read.check_size(member, options.max_chunk)
        if member.stored:
            check_crc32(member, pieces(held))
    except FormatError as error:
        return Entry(member.name, form, None, unread=error.message)
    if member.stored:
        return Entry(member.name, form, held, file=held)

    def opened() -> ByteView:
        return decoded.open(n, member.size, lambda: inflated(data, member, options))

    return Entry(member.name, form, held, file=PackedBytes(member.size, opened))


def _is_own(container: Npz, placed: Sequence[PlacedEntry]) -> bool:
    """Whether these are all of the file's members, in order, as they are."""
    return len(placed) == len(container.directory.members) and all(
        one.source is container and one.number == n and one.content is None
        for n, one in enumerate(placed)
    )


def _member(one: PlacedEntry, options: ReadOptions) -> NewMember:
    source = cast(Npz, one.source)
    member = source.directory.members[one.number]
    same = kept(source.data, member)
    if one.content is None:
        return same
    # Content that is no better than what it replaces would get a CRC-32 that holds.
    check_crc32(member, zip_read.blocks(source.data, member, options.max_chunk))
    nbytes = one.content.nbytes
    if member.method == DEFLATED and nbytes > options.max_chunk:
        raise FormatError(
            f"content of member {quoted(member.name)} is over {options.max_chunk} bytes",
            kind="limit",
            field="payload",
        )
    length, crc32 = _measured(one.content, member)
    payload = partial(_stored, one.content, member)
    return replace(same, crc32=crc32, length=length, size=nbytes, payload=payload)


def _measured(content: NewContent, member: ZipMember) -> tuple[int, int]:
    """How many bytes the content has as its member stores it, and its CRC-32."""
    crc32 = 0

    def seen() -> Iterator[Buffer]:
        nonlocal crc32
        for block in content.blocks():
            crc32 = zlib.crc32(block, crc32)
            yield block

    length = sum(map(len, _stored(replace(content, blocks=seen), member)))
    return length, crc32


def _stored(content: NewContent, member: ZipMember) -> Iterator[Buffer]:
    """The content as its member stores it."""
    blocks = _counted(content, member)
    if member.method != DEFLATED:
        yield from blocks
        return
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()


def _counted(content: NewContent, member: ZipMember) -> Iterator[memoryview]:
    """The content in pieces of a block at most; it must have as many bytes as it says."""
    given = 0
    for block in content.blocks():
        given += len(block)
        if given > content.nbytes:
            break
        yield from pieces(memoryview(block))
    if given != content.nbytes:
        raise FormatError(
            f"content of member {quoted(member.name)} is not {content.nbytes} bytes any more"
        )


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


def attributes(data: ByteView, member: ZipMember) -> Attributes:
    """What the entry of a member says, beside what `ZipMember` has."""
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


def kept(data: ByteView, member: ZipMember) -> NewMember:
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


def check_crc32(member: ZipMember, blocks: Iterable[Buffer]) -> None:
    """Raise FormatError where a member's content, inflated, is not what the directory says."""
    if zip_write.crc32_of(blocks) != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has another crc32 than the directory",
            offset=member.start,
            field="crc32",
        )


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
    refuse_unwritable(container)
    data, members = container.data, container.directory.members
    for member in members:
        if _is_packed(member):
            check_crc32(member, zip_read.blocks(data, member, options.max_chunk))
    return zip_write.build(_unpacked(data, member, options) for member in members)


def _is_packed(member: ZipMember) -> bool:
    return member.method == DEFLATED and member.name.endswith(NPY_SUFFIX)


def _unpacked(data: ByteView, member: ZipMember, options: ReadOptions) -> NewMember:
    """A member with its payload, inflated where it is an array, under the same entry."""
    same = kept(data, member)
    if not _is_packed(member):
        return same
    payload = partial(zip_read.blocks, data, member, options.max_chunk)
    return replace(same, method=STORED, length=member.size, payload=payload)
