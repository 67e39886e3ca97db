"""Changing the compression of torch files.

Spec: `docs/spec/torch.md`, "What is written"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from wtxtgit.containers import zip_directory, zip_write
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch import zip_layout
from wtxtgit.containers.torch.read import Torch
from wtxtgit.containers.torch.zip_layout import Content
from wtxtgit.containers.zip_directory import Member
from wtxtgit.containers.zip_end import MAX_16
from wtxtgit.errors import FormatError
from wtxtgit.model import Buffer
from wtxtgit.model.reading import ReadOptions

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
        _check_crc32(member, blocks, has_crc32=has_crc32)
        name = member.name.encode()
        if len(name) > MAX_16:
            raise FormatError(f"name {quoted(member.name)} is too long in UTF-8", field="name")
        contents.append(Content(name, member.size, blocks))
    return zip_layout.build(contents, container.alignment)


def _check_crc32(
    member: Member, blocks: Callable[[], Iterator[Buffer]], *, has_crc32: bool
) -> None:
    if has_crc32 and zip_write.crc32_of(blocks()) != member.crc32:
        raise FormatError(
            f"member {quoted(member.name)} has another crc32 than the directory",
            offset=member.start,
            field="crc32",
        )
