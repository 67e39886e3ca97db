"""npz files: npy files in a zip. Spec: `docs/spec/npz.md`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wtxtgit.containers import npy_header, ranges, zip_read
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import ListingBudget
from wtxtgit.containers.format import Container
from wtxtgit.containers.npy_header import FIXED, NpyHeader, header_end
from wtxtgit.containers.ranges import Stored
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_read import Directory, ZipMember
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError, NotRead, counted
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.tensor import Description, PackedBytes, ReadOptions, Tensor

HEADER_ROLE = "_npy"
DIRECTORY_ROLE = "_directory"
_HEADER_STEP = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Npz(Container):
    """An npz file that was read.

    `arrays`, each with its header, are by position of their member; `shared` are the positions of
    members that lose bytes to others or reach into the directory: these are not inflated.
    """

    data: ByteView
    directory: Directory
    arrays: dict[int, tuple[NpyHeader, Stored]]
    shared: frozenset[int]

    def ranges(self) -> Iterator[ranges.Range]:
        for n, member in enumerate(self.directory.members):
            array = self.arrays.get(n)
            if array is None:
                yield ranges.payload(member.start, member.end, member.name)
            else:
                header, stored = array
                yield ranges.part(member.start, header.data, HEADER_ROLE)
                yield ranges.tensor(stored)
        yield ranges.part(self.directory.start, len(self.data), DIRECTORY_ROLE)

    def zip_directory(self) -> Directory:
        return self.directory

    def tensor_members(self) -> Iterator[str]:
        """Yield the names of compressed members that are listed as tensors."""
        for member in self.directory.members:
            if not member.stored and member.name.endswith(NPY_SUFFIX):
                yield member.name


def describe(container: Npz, options: ReadOptions) -> Description:
    """List the arrays; for deflated ones only the headers are decoded."""
    decoded = DecodedParts(options).of_file(len(container.data))
    tensors: list[Tensor] = []
    others: list[str] = []
    untold_bytes: list[str] = []
    for n, member in enumerate(container.directory.members):
        array = container.arrays.get(n)
        if array is not None:
            tensors.append(array[1].listed(container.data))
        elif not member.name.endswith(NPY_SUFFIX):
            others.append(member.name)
        elif n in container.shared and not member.encrypted:
            tensors.append(_nothing(member, "shares bytes with another member"))
        else:
            tensor, behind = _packed(container.data, member, decoded, options)
            tensors.append(tensor)
            if behind:
                untold_bytes.append(
                    f"{member.name}: {counted(behind, 'byte')} after its array are not read"
                )
    members = [
        {"name": member.name, "method": member.method, "size": member.size}
        for member in container.directory.members
    ]
    return Description(
        "npz",
        tuple(tensors),
        {"members": members},
        untold=tuple(others),
        parts=zip_read.part_notes(container.directory),
        unlisted=tuple(untold_bytes),
    )


def read(data: ByteView, listing: ListingBudget | None = None) -> Npz:
    """Read an npz file; raises FormatError.

    A member that is named as an npy file but is not one, or that is compressed, is kept whole.
    Members may claim the same header: their total is limited.
    """
    listing = listing or ListingBudget(len(data))
    directory = zip_read.read(data, listing=listing)
    shared = zip_read.overlapping(directory.members, directory.start)
    message = "headers of arrays are too long"
    arrays = npy_header.read_members(data, directory.members, message, listing)
    return Npz(data, directory, arrays, shared)


def array_name(member: ZipMember) -> str:
    """Return numpy's name for the member's array."""
    return member.name.removesuffix(NPY_SUFFIX)


def inflated(data: ByteView, member: ZipMember, options: ReadOptions) -> ByteView:
    """Return the content of a member, which shares no bytes; raises FormatError if it is damaged.

    The kind is "limit" if it is over `options.max_chunk`, "crc32" if it does not match the
    directory.
    """
    raw = zip_read.content(data, member, options.max_chunk)
    crc32 = crc32_of(pieces(raw))
    if crc32 != member.crc32:
        raise FormatError(
            f"crc32 is {crc32:08x}, the directory has {member.crc32:08x}",
            kind="crc32",
            offset=member.start,
        )
    return raw


def _packed(
    data: ByteView, member: ZipMember, decoded: DecodedParts, options: ReadOptions
) -> tuple[Tensor, int]:
    """Return the array of a compressed member, and how many bytes follow it there."""
    try:
        header = decoded_header(data, member)
        stored = header.stored(array_name(member), member.size)
    except FormatError as error:
        return _nothing(member, NotRead.because(error)), 0

    def inflate() -> ByteView:
        return inflated(data, member, options)

    # Only the header was inflated, for dtype and shape.
    whole = PackedBytes(member.size, lambda: decoded.open(member, member.size, inflate))
    absent = None
    if member.size > options.max_chunk:
        absent = NotRead.over(f"{member.size} bytes inflated are over {options.max_chunk}")
    content = whole.part(stored.start, stored.nbytes)
    tensor = replace(stored.listed(data[:0], absent), held=content, offset=None)
    return tensor, max(member.size - stored.end, 0)


def _nothing(member: ZipMember, why: str) -> Tensor:
    return Tensor(array_name(member), "", (), memoryview(b""), None, absent=why)


def decoded_header(data: ByteView, member: ZipMember) -> NpyHeader:
    """Return the header of a member that is an npy file; raises FormatError."""
    raw = bytearray()
    # In small steps: of most members the header is a thousandth.
    for block in zip_read.blocks(data, member, member.size, _HEADER_STEP):
        raw += block
        if len(raw) >= FIXED and len(raw) >= header_end(bytes(raw[:FIXED])):
            break
    return npy_header.read(memoryview(raw), 0, len(raw))
