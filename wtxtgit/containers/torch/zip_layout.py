"""Zips as torch writes them: from new members, from the same ones stored, or with changed contents.

An extra field with id `FB`, filled with `Z`, pads each local header so that the payload starts at a
multiple of the alignment. Sizes and CRC-32 are in a descriptor; an empty member has none. There is
always a zip64 end record. A member that is changed in place keeps its position; its CRC-32 is
changed everywhere: in the directory, in the local header, in the descriptor. Spec:
`docs/spec/torch.md`, "What is written" and "Resealing"; PKWARE's APPNOTE.TXT 6.3.10;
caffe2/serialize/inline_container.cc
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from struct import pack

from wtxtgit.containers import zip_read, zip_write
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.replacing import Edit, spliced
from wtxtgit.containers.torch.read import DEFAULT_ALIGNMENT, Torch
from wtxtgit.containers.zip_read import (
    DEFLATED,
    LOCAL,
    MAX_16,
    STORED,
    UTF8_NAME,
    WITH_DESCRIPTOR,
    Directory,
    ZipMember,
)
from wtxtgit.containers.zip_write import NewMember, ZipStyle
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import ReadOptions

Blocks = Callable[[], Iterable[Buffer]]

_STYLE = ZipStyle(
    version=0,
    padding=(int.from_bytes(b"FB", "little"), b"Z"),
    describes=True,
    end=3 << 8 | 30,
    always_zip64=True,
)
COMPRESSIONS = ("none",)
"""How members can be stored."""
LOCAL_CRC32 = 14
ENTRY_CRC32 = 16
"""Offsets of the CRC-32 in a local header, and in an entry of the directory."""


def new_member(
    name: bytes, size: int, blocks: Blocks, deflated: tuple[int, int] | None = None
) -> NewMember:
    """Return a member of `size` bytes, which are yielded in blocks.

    If `deflated` (length, CRC-32 of the content), the blocks are those of a deflate stream of that
    length.
    """
    length, crc32 = deflated or (size, None)
    method = STORED if deflated is None else DEFLATED
    return NewMember(
        name, crc32, length, size, blocks, method, UTF8_NAME, date=0, made_by=0, external=0
    )


def build(members: Iterable[NewMember], alignment: int = DEFAULT_ALIGNMENT) -> Iterator[Buffer]:
    """Yield a zip with these members; each one's blocks are read once.

    Raises FormatError if a member has more or fewer bytes than it said.
    """
    return zip_write.build(members, style=replace(_STYLE, alignment=alignment))


def repack(container: Torch, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """Yield the file with all its members stored ("none"), laid out as torch does.

    Raises FormatError before yielding anything: for other compressions, and for members that share
    bytes, are over `max_chunk` bytes once inflated, or do not match the directory's CRC-32, if that
    has any.
    """
    if compression != "none":
        raise FormatError(f"torch files can't be compressed with {compression}", field="method")
    container.refuse_shared_bytes()
    return laid_out(container, {}, options, compresses=False)


def check_crc32(container: Torch, member: ZipMember, options: ReadOptions) -> int:
    """Return the CRC-32 of a member's content.

    Raises FormatError if the directory has another one, unless it has none at all.
    """
    blocks = container.blocks(member, options)
    return zip_write.checked_crc32(member, blocks, is_in_directory=container.has_crc32)


def encoded_name(member: ZipMember) -> bytes:
    """Return a member's name in UTF-8; raises FormatError if it is too long."""
    name = member.name.encode()
    if len(name) > MAX_16:
        raise FormatError(f"name {quoted(member.name)} is too long in UTF-8", field="name")
    return name


@dataclass(frozen=True, slots=True, eq=False)
class ChangedMember:
    """New content of a member, and its CRC-32; if `size` is None, the size does not change."""

    member: ZipMember
    blocks: Blocks
    crc32: int
    size: int | None = None


def in_place(container: Torch, changed: Sequence[ChangedMember]) -> Iterator[Buffer]:
    """Yield the file with new contents of stored members, and otherwise unchanged.

    Raises FormatError before yielding anything if members share bytes.
    """
    data, limits = container.data, _limits(container.directory)
    edits: list[Edit] = []
    for change in changed:
        member = change.member
        edits.append((member.start, member.end, change.blocks))
        if container.has_crc32:
            crc32 = partial(iter, (pack("<I", change.crc32),))
            places = _crc32_places(data, member, limits[member.entry])
            edits += [(place, place + 4, crc32) for place in places]
    return spliced(data, sorted(edits, key=lambda edit: edit[0]))


def laid_out(
    container: Torch,
    changed: Mapping[int, ChangedMember],
    options: ReadOptions,
    *,
    compresses: bool = True,
    added: Mapping[int, Sequence[NewMember]] | None = None,
) -> Iterator[Buffer]:
    """Yield the file as torch lays it out, with new contents of some members.

    `changed` has them by the position of their entries, `added` has members to be put after one.
    Members are compressed as before, or stored if `compresses` is false. Raises FormatError before
    yielding anything for members that can't be read, inflate to over `max_chunk` bytes, or do not
    match the directory's CRC-32, if that has any.
    """
    contents = []
    for member in container.directory.members:
        name = encoded_name(member)
        one = changed.get(member.entry)
        blocks: Blocks = partial(container.blocks, member, options)
        crc32 = check_crc32(container, member, options) if one is None else one.crc32
        packed: Blocks = partial(pieces, container.data[member.start : member.end])
        size = member.size
        if one is not None:
            blocks, packed = one.blocks, partial(zip_write.deflated, one.blocks)
            size = size if one.size is None else one.size
        if member.method == DEFLATED and compresses:
            length = sum(map(len, packed()))
            contents.append(new_member(name, size, packed, (length, crc32)))
        else:
            contents.append(new_member(name, size, blocks))
        contents += (added or {}).get(member.entry, ())
    return build(contents, container.alignment)


def _limits(directory: Directory) -> dict[int, int]:
    """Return where each member with its headers must end: where the next one starts, by entry.

    Raises FormatError if members overlap each other or the directory: a change of one would change
    another.
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
    """Yield where a member's CRC-32 is, except fields left empty in favour of a descriptor."""
    yield member.entry + ENTRY_CRC32
    _, _, flags, _, _, _, crc32, *_ = unpack_at(LOCAL, data, member.header)
    is_described = bool(flags & WITH_DESCRIPTOR)
    # With a descriptor the field in the local header is zero, and stays so.
    if crc32 == member.crc32 and (crc32 or not is_described):
        yield member.header + LOCAL_CRC32
    if not is_described:
        return
    descriptor = zip_read.find(data, member, limit)
    if descriptor is not None:
        yield descriptor[0]
