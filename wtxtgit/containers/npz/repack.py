"""Changing the compression of npz files.

Spec: `docs/spec/npz.md`, "What is written"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from wtxtgit.containers import zip_directory, zip_write
from wtxtgit.containers.npz.members import check_crc32, kept, refuse_unwritable
from wtxtgit.containers.npz.read import Npz
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_directory import DEFLATED, STORED, Member
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.tensor import ReadOptions

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
    refuse_unwritable(container)
    data, members = container.data, container.directory.members
    for member in members:
        if _is_packed(member):
            check_crc32(member, zip_directory.blocks(data, member, options.max_chunk))
    return zip_write.build(_unpacked(data, member, options) for member in members)


def _is_packed(member: Member) -> bool:
    return member.method == DEFLATED and member.name.endswith(NPY_SUFFIX)


def _unpacked(data: ByteView, member: Member, options: ReadOptions) -> NewMember:
    """A member with its payload, inflated where it is an array, under the same entry."""
    same = kept(data, member)
    if not _is_packed(member):
        return same
    payload = partial(zip_directory.blocks, data, member, options.max_chunk)
    return replace(same, method=STORED, length=member.size, payload=payload)
