"""Rewriting npz files: from the entries of several, or with another compression.

An entry is a member: a file, inflated. Spec: `docs/spec/npz.md`, "Resealing" and "What is written".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import cast

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.budget import DecodedParts, refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.npz.read import Npz, inflated
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_read import (
    DEFLATED,
    STORED,
    UTF8_NAME,
    WITH_DESCRIPTOR,
    ZipMember,
)
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, exactly, pieces
from wtxtgit.model.tensor import Entry, NewContent, PackedBytes, PlacedEntry, ReadOptions

OF_THE_WRITING = UTF8_NAME | WITH_DESCRIPTOR
"""Flags for the spelling of a name and the position of sizes."""
COMPRESSIONS = ("none",)
"""How arrays can be stored."""


def entries(container: Npz, options: ReadOptions) -> list[Entry]:
    """Return the members in the order of the directory; they are inflated only when asked for."""
    decoded = DecodedParts(options).of_file(len(container.data))
    return [_entry(container, n, decoded, options) for n in range(len(container.directory.members))]


def values(container: Npz, options: ReadOptions) -> dict[str, object]:
    """Return {}: an npz file has no metadata."""
    return {}


def rest(container: Npz, options: ReadOptions) -> dict[str, object]:
    """Return the zip's comment, and hashes of bytes that belong to no member, if there are any."""
    return zip_write.rest(container.data, container.directory)


def reseal(
    container: Npz,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the file with these members; the same bytes if they are its own.

    Members without content keep their payload as stored, those with content are stored or deflated
    as they were; local headers are written anew, the comment is that of `container`. Raises
    FormatError, before the first piece: for files whose members share bytes or are encrypted, for a
    comment that could be mistaken for the end of a zip, for content of damaged members or of those
    with an unsupported compression, if no array is left, for any metadata, and (limit) for deflated
    content over `options.max_chunk`.
    """
    if values:
        raise FormatError("npz files have no metadata", field="metadata")
    if _is_own(container, placed):
        return pieces(container.data)
    refuse_many(len(placed), MAX_TENSORS, "members", "entries")
    sources = {id(entry.source): cast(Npz, entry.source) for entry in placed}
    for source in sources.values():
        refuse_unwritable(source)
    members = [_member(entry, options) for entry in placed]
    names = [cast(Npz, entry.source).directory.members[entry.number].name for entry in placed]
    if not any(name.endswith(NPY_SUFFIX) for name in names):
        raise FormatError("npz holds at least one array", field="entries")
    return zip_write.build(members, zip_write.comment(container.data, container.directory))


def _entry(container: Npz, n: int, decoded: DecodedParts, options: ReadOptions) -> Entry:
    data, member = container.data, container.directory.members[n]
    same = zip_write.kept(data, member)
    flags = member.flags & ~OF_THE_WRITING
    form = (member.method, flags, same.internal, same.external, same.comment)
    payload = data[member.start : member.end]
    if member.encrypted:
        return Entry(member.name, form, payload, unread="encrypted")
    if n in container.shared:
        return Entry(member.name, form, None, unread="shares bytes with another member")
    try:
        zip_read.check_size(member, options.max_chunk)
        if member.stored:
            zip_write.checked_crc32(member, pieces(payload))
    except FormatError as error:
        return Entry(member.name, form, None, unread=error.message)
    if member.stored:
        return Entry(member.name, form, payload, file=payload)

    def opened() -> ByteView:
        return decoded.open(n, member.size, lambda: inflated(data, member, options))

    return Entry(member.name, form, payload, file=PackedBytes(member.size, opened))


def _is_own(container: Npz, placed: Sequence[PlacedEntry]) -> bool:
    """Whether these are all of the file's members, in order, unchanged."""
    return len(placed) == len(container.directory.members) and all(
        one.source is container and one.number == n and one.content is None
        for n, one in enumerate(placed)
    )


def _member(entry: PlacedEntry, options: ReadOptions) -> NewMember:
    source = cast(Npz, entry.source)
    member = source.directory.members[entry.number]
    same = zip_write.kept(source.data, member)
    if entry.content is None:
        return same
    # Replacing damaged content would give it a CRC-32 that holds.
    zip_write.checked_crc32(member, zip_read.blocks(source.data, member, options.max_chunk))
    nbytes = entry.content.nbytes
    if member.method == DEFLATED and nbytes > options.max_chunk:
        raise FormatError(
            f"content of member {quoted(member.name)} is over {options.max_chunk} bytes",
            kind="limit",
            field="payload",
        )
    blocks: Callable[[], Iterator[Buffer]] = partial(_blocks, entry.content, member)
    payload = blocks
    length = nbytes
    if member.method == DEFLATED:
        payload = partial(zip_write.deflated, blocks)
        length = sum(map(len, payload()))
    crc32 = zip_write.crc32_of(blocks())
    return replace(same, crc32=crc32, length=length, size=nbytes, payload=payload)


def _blocks(content: NewContent, member: ZipMember) -> Iterator[Buffer]:
    """Yield the content; raises FormatError unless it has as many bytes as it claims."""
    what = f"content of member {quoted(member.name)}"
    exact = exactly(content.blocks(), content.nbytes, what, "payload")
    return chain.from_iterable(map(pieces, exact))


def refuse_unwritable(container: Npz) -> None:
    """Raise FormatError for a file whose members can't be rewritten one by one."""
    if container.shared:
        raise FormatError("members share bytes", field="payload")
    if any(member.encrypted for member in container.directory.members):
        # Checking a password depends on fields that would change.
        raise FormatError("a member is encrypted", field="flags")


def repack(container: Npz, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """Yield the file with its arrays stored ("none"); other members stay as they are.

    Local headers and descriptors are written anew. Raises FormatError before yielding anything: for
    other compressions, and for arrays that do not inflate to what the directory says or are over
    `max_chunk` bytes.
    """
    if compression != "none":
        raise FormatError(
            f"numpy can't read {compression} in a zip, only none and deflate", field="method"
        )
    refuse_unwritable(container)
    data, members = container.data, container.directory.members
    for member in members:
        if _is_packed(member):
            zip_write.checked_crc32(member, zip_read.blocks(data, member, options.max_chunk))
    return zip_write.build(_unpacked(data, member, options) for member in members)


def _is_packed(member: ZipMember) -> bool:
    return member.method == DEFLATED and member.name.endswith(NPY_SUFFIX)


def _unpacked(data: ByteView, member: ZipMember, options: ReadOptions) -> NewMember:
    """Return a member with the same entry, and with its payload inflated if it is an array."""
    same = zip_write.kept(data, member)
    if not _is_packed(member):
        return same
    payload = partial(zip_read.blocks, data, member, options.max_chunk)
    return replace(same, method=STORED, length=member.size, payload=payload)
