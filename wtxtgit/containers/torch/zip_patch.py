"""Other contents of a zip's members, in place or in a zip that is laid out anew.

In place, a stored member keeps its bytes' place; its CRC-32 is changed
wherever it stands: in the directory, in the local header, in the descriptor.
Spec: `docs/spec/torch.md`, "Resealing"; PKWARE's APPNOTE.TXT 6.3.10
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from struct import pack

from wtxtgit.containers import zip_descriptor, zip_directory
from wtxtgit.containers.cursor import unpack_at
from wtxtgit.containers.splicing import Edit, spliced
from wtxtgit.containers.torch import zip_layout
from wtxtgit.containers.torch.repack import check_crc32, encoded_name
from wtxtgit.containers.zip_directory import (
    BLOCK,
    DEFLATED,
    LOCAL,
    WITH_DESCRIPTOR,
    Directory,
    Member,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces

LOCAL_CRC32 = 14
ENTRY_CRC32 = 16
"""Where the CRC-32 stands in a local header, and in an entry of the directory."""

Blocks = Callable[[], Iterable[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """Another content of a member, of as many bytes, and its CRC-32."""

    member: Member
    blocks: Blocks
    crc32: int


def in_place(
    data: ByteView, directory: Directory, changed: Sequence[Changed], *, has_crc32: bool
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
    changed: Mapping[int, Changed],
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
            blocks: Blocks = partial(zip_directory.blocks, data, member, limit)
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
            zip_layout.Content(
                name,
                member.size,
                blocks,
                zip_layout.Deflated(length, found) if member.method == DEFLATED else None,
            )
        )
    return zip_layout.build(contents, alignment)


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


def _crc32_places(data: ByteView, member: Member, limit: int) -> Iterator[int]:
    """Where a member's CRC-32 stands, outside of fields that are left empty for a descriptor."""
    yield member.entry + ENTRY_CRC32
    _, _, flags, _, _, _, crc32, *_ = unpack_at(LOCAL, data, member.header)
    is_described = bool(flags & WITH_DESCRIPTOR)
    if crc32 == member.crc32 and (crc32 or not is_described):
        yield member.header + LOCAL_CRC32
    if not is_described:
        return
    found = zip_descriptor.find(data, member, limit)
    if found is not None:
        yield found[0]


def _deflated(blocks: Blocks) -> Iterator[bytes]:
    codec = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for block in blocks():
        view = memoryview(block).cast("B")
        for start in range(0, len(view), BLOCK):
            yield codec.compress(view[start : start + BLOCK])
    yield codec.flush()
