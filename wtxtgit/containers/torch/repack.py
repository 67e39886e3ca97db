"""Changing the compression of torch files.

Spec: `docs/spec/torch.md`, "What is written"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from wtxtgit.containers import zip_directory, zip_write
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch import zip_layout
from wtxtgit.containers.torch.read import Torch
from wtxtgit.containers.torch.zip_layout import Content
from wtxtgit.containers.zip_directory import Member
from wtxtgit.containers.zip_end import MAX_16
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import ReadOptions

COMPRESSIONS = ("none",)
"""What chunks can be stored with."""


def repack(container: Torch, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """The bytes of the file with all its members stored ("none"), laid out as torch does.

    Raises FormatError before the first of the bytes: for other compressions,
    and for members that share bytes, are over `max_chunk` bytes once
    inflated, or do not have the CRC-32 that the directory says, where it says any.
    """
    if compression != "none":
        raise FormatError(f"torch has no {compression} in its files", field="method")
    data, members = container.data, container.directory.members
    if zip_directory.overlapping(members, container.directory.start):
        raise FormatError("members share bytes", field="payload")
    has_crc32 = any(member.crc32 for member in members)
    contents = []
    for member in members:
        most = max(options.max_chunk, member.end - member.start)
        blocks = partial(zip_directory.blocks, data, member, most)
        check_crc32(member, blocks, has_crc32=has_crc32)
        contents.append(Content(encoded_name(member), member.size, blocks))
    return zip_layout.build(contents, container.alignment)


def encoded_name(member: Member) -> bytes:
    """A member's name in UTF-8; raises FormatError where that is too long."""
    name = member.name.encode()
    if len(name) > MAX_16:
        raise FormatError(f"name {quoted(member.name)} is too long in UTF-8", field="name")
    return name


def check_crc32(member: Member, blocks: Callable[[], Iterable[Buffer]], *, has_crc32: bool) -> int:
    """The CRC-32 of a member's content, which `blocks` gives.

    Raises FormatError where the directory has another one, unless it has none
    at all.
    """
    found = zip_write.crc32_of(blocks())
    if has_crc32 and found != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has another crc32 than the directory",
            offset=member.start,
            field="crc32",
        )
    return found
