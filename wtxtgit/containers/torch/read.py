"""torch.save files: a zip of a pickle and of the storages to which it refers.

All members are in one folder: `data.pkl`, the pickle of the saved value; `data/<key>`, the bytes of
one storage each; `byteorder`, `version` and others. The pickle's opcodes are read, but nothing is
unpickled. Tensors in storages are the same in legacy files. Spec: `docs/spec/torch.md`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from wtxtgit.containers import intervals, npy_header, ranges, zip_read
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import ListingBudget, fail
from wtxtgit.containers.format import Container
from wtxtgit.containers.intervals import Span
from wtxtgit.containers.ranges import Range, Stored
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch import PICKLE, listing, pickle_read, views
from wtxtgit.containers.torch.listing import PickledTensors
from wtxtgit.containers.torch.pickle_read import Pickle
from wtxtgit.containers.torch.safe_globals import imports_of
from wtxtgit.containers.torch.values import tells_all, values_of
from wtxtgit.containers.torch.views import (
    ELEMENTS,
    NO_STORAGE,
    PACKED,
    Storage,
    View,
    why_outside,
)
from wtxtgit.containers.zip_read import Directory, ZipMember
from wtxtgit.errors import FormatError, NotRead
from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.model.tensor import Description, PackedBytes, ReadOptions, Tensor

STORAGE = "data/"
BYTEORDER = "byteorder"
VERSION = "version"
ALIGNMENT = ".storage_alignment"
SERIALIZATION_ID = ".data/serialization_id"
"""The member with a file's fingerprint."""
DEFAULT_ALIGNMENT = 64
MAX_ALIGNMENT = 4096
CONSTANTS = "constants.pkl"
"""A member that only TorchScript archives have."""
DIRECTORY_ROLE = "_directory"
ARRAY_ROLE = "_npy"
BYTEORDERS = (b"little", b"big")
# Largest member in bytes that holds a word or a number; a deflated one must not be a bomb.
MAX_WORD = 64
TOO_LARGE = "its storage is deflated and over the limit"
# The most names of globals in a description: a pickle may have millions.
MAX_GLOBALS = 1000
MISSING = "its storage is missing"
UNKNOWN = NotRead("its dtype is unknown")
EXPANDED = NotRead.over("with its repeated items it is over the limit")


_FLIPPED = {"f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"}
"""numpy's dtypes for numbers that torch conjugates or negates on reading."""
_NUMPY_RANK = 32
"""The most dimensions that arrays can have in all versions of numpy."""


@dataclass(frozen=True, slots=True, eq=False)
class Torch(Container):
    """A torch file that was read: `folder` is the common prefix of all members' names.

    `storages` are the storages' members by key; `named` all distinct storages that the pickle
    names; `arrays` the npy files that are stored members, by position. torch can be told to write
    no CRC-32: `has_crc32` if any member has one.
    """

    data: ByteView
    directory: Directory
    folder: str
    pickle: Pickle
    pickle_member: ZipMember
    listing: PickledTensors
    byteorder: str
    storages: dict[str, ZipMember]
    named: tuple[Storage, ...]
    arrays: dict[int, Stored]
    has_crc32: bool

    def ranges(self) -> Iterator[Range]:
        tensors = self._covering()
        for n, member in enumerate(self.directory.members):
            covering = tensors.get(id(member))
            array = self.arrays.get(n)
            if covering is None and array is None:
                yield ranges.payload(member.start, member.end, member.name)
            elif covering is None and array is not None:
                yield ranges.part(member.start, array.start, ARRAY_ROLE)
                yield ranges.tensor(array)
            elif covering is not None:
                name, view = covering
                yield ranges.tensor(
                    Stored(
                        name,
                        view.dtype,
                        view.shape,
                        member.start,
                        member.end,
                        view.element,
                        byteorder=self.byteorder,
                    )
                )
        yield ranges.part(self.directory.start, len(self.data), DIRECTORY_ROLE)

    def member(self, name: str) -> ZipMember | None:
        """Return the last member of that name below the folder."""
        return _last(self.directory, self.folder + name)

    @property
    def alignment(self) -> int:
        """The alignment of storages that the file states, in bytes."""
        word = self.word(ALIGNMENT) or ""
        alignment = int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0
        return alignment if 1 <= alignment <= MAX_ALIGNMENT else DEFAULT_ALIGNMENT

    def refuse_shared_bytes(self) -> None:
        """Raise FormatError if members share bytes with each other or with the directory."""
        # Written separately they could be any number of times larger than the file.
        if zip_read.overlapping(self.directory.members, self.directory.start):
            raise FormatError("members share bytes", field="payload")

    def blocks(self, member: ZipMember, options: ReadOptions) -> Iterator[Buffer]:
        """Yield what a member holds; raises FormatError."""
        most = max(options.max_chunk, member.end - member.start)
        return zip_read.blocks(self.data, member, most)

    def zip_directory(self) -> Directory:
        return self.directory

    def member_folder(self) -> str:
        return self.folder

    def tensor_members(self) -> Iterator[str]:
        """Yield the names of storages all of whose bytes are in tensors."""
        spans: dict[str, list[Span]] = {}
        for _, view in self.listing.tensors:
            if view.storage is not None and view.dtype not in PACKED and view.is_dense:
                spans.setdefault(view.storage.key, []).append(view.span())
        for key, member in self.storages.items():
            if key in spans and not intervals.gaps(spans[key], member.size):
                yield member.name

    def part_digests(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield start, size and digest of the pickle, if its values are compared as metadata."""
        from wtxtgit.containers.torch.pickle_shape import shape_of  # only comparisons need it

        member = self.pickle_member
        shape = shape_of(mapped(zip_read.content(self.data, member, MAX_JSON)))
        if shape is not None and tells_all(self.pickle, member.start):
            yield member.start, member.size, shape

    def _covering(self) -> dict[int, tuple[str, View]]:
        """Return, by id, the stored members that exactly one tensor covers, with that tensor.

        A tensor with several names counts as one, with its first name.
        """
        covering: dict[int, tuple[str, View]] = {}
        shared: set[int] = set()
        for name, view in self.listing.tensors:
            key = view.storage.key if view.storage is not None else None
            member = None if key is None else self.storages.get(key)
            if key is None or member is None or not member.stored:
                continue
            # A member that is cut as a tensor contains exactly that tensor.
            if not covers(view, member.size):
                continue
            if covering.setdefault(id(member), (name, view))[1] is not view:
                shared.add(id(member))
        return {place: tensor for place, tensor in covering.items() if place not in shared}

    def tensors(self, options: ReadOptions) -> Iterator[Tensor]:
        decoded = DecodedParts(options).of_file(len(self.data))

        def find(storage: Storage) -> StorageBytes | str:
            member = self.storages.get(storage.key)
            if member is None:
                return MISSING
            return self._storage_bytes(member, decoded, options)

        for name, view in self.listing.tensors:
            yield tensor(name, view, find, options.max_chunk, self.byteorder)

    def _storage_bytes(
        self, member: ZipMember, decoded: DecodedParts, options: ReadOptions
    ) -> StorageBytes | str:
        if member.stored:
            return StorageBytes(self.data[member.start : member.end], member.start)
        try:
            zip_read.check_size(member, options.max_chunk)
        except FormatError as error:
            return TOO_LARGE if error.kind == "limit" else error.message

        def inflate() -> ByteView:
            return zip_read.content(self.data, member, options.max_chunk)

        opened = partial(decoded.open, member, member.size, inflate)
        return StorageBytes(PackedBytes(member.size, opened), None)

    def word(self, name: str) -> str | None:
        """Return the content of a short member as text, None if there is none."""
        member = self.member(name)
        if member is None:
            return None
        try:
            raw = bytes(zip_read.content(self.data, member, MAX_WORD))
        except FormatError:
            return None
        return raw.decode("ascii", "backslashreplace").strip()


def describe(container: Torch, options: ReadOptions) -> Description:
    """Describe the file."""
    return Description(
        "torch",
        (
            *map(by_value, container.tensors(options), views_of(container.listing)),
            *(a.listed(container.data) for a in container.arrays.values()),
        ),
        {
            "protocol": container.pickle.protocol,
            "byteorder": container.byteorder,
            "version": container.word(VERSION),
            "torchscript": container.member(CONSTANTS) is not None,
            "globals": global_names(container.pickle),
            "members": [
                {
                    "name": member.name,
                    "offset": member.start,
                    "size": member.size,
                    "stored": member.end - member.start,
                }
                for member in container.directory.members
            ],
        },
        tags=container.listing.tags,
        untold=container.listing.untold,
        imports=imports_of(container.pickle),
        values=partial(
            values_of, container.pickle, container.pickle_member.start, container.listing.tags
        ),
        parts=zip_read.part_notes(container.directory),
    )


def read(data: ByteView, counts: ListingBudget | None = None) -> Torch:
    """Read a torch file; raises FormatError."""
    counts = counts or ListingBudget(len(data))
    return read_members(data, zip_read.read(data, listing=counts), counts)


def read_members(
    data: ByteView, directory: Directory, counts: ListingBudget | None = None
) -> Torch:
    """Interpret these members of a file; raises FormatError."""
    counts = counts or ListingBudget(len(data))
    folder = _folder(directory)
    member = None if folder is None else _last(directory, folder + PICKLE)
    if folder is None or member is None:
        fail(f"zip has no member {PICKLE}", offset=directory.start, field=PICKLE)
    byteorder = _byteorder(data, _last(directory, folder + BYTEORDER))
    saved = views.NamedStorages()
    pickle, listed = _read_pickle(data, member, saved.load, counts)
    storages = _storages(directory, folder)
    message = "zip has too many npy headers"
    npy = npy_header.read_members(data, directory.members, message, counts)
    arrays = {n: stored for n, (_, stored) in npy.items()}
    named = tuple(saved.named)
    has_crc32 = any(member.crc32 for member in directory.members)
    parts = (listed, byteorder, storages, named, arrays, has_crc32)
    return Torch(data, directory, folder, pickle, member, *parts)


def _read_pickle(
    data: ByteView, member: ZipMember, load: pickle_read.Load, counts: ListingBudget
) -> tuple[Pickle, PickledTensors]:
    content = zip_read.content(data, member, MAX_JSON)
    if member.stored:
        end = data[: member.end]
        pickle = pickle_read.parse(end, PICKLE, load, start=member.start, listing=counts)
        return pickle, listing.list_tensors(pickle, member.start, PICKLE, counts)
    try:
        pickle = pickle_read.parse(content, PICKLE, load, listing=counts)
        return pickle, listing.list_tensors(pickle, 0, PICKLE, counts)
    except FormatError as error:
        # Positions in inflated data are not positions in the file.
        raise FormatError(
            error.message, kind=error.kind, offset=member.start, field=error.field
        ) from None


def _folder(directory: Directory) -> str | None:
    """Return the first member's folder, like torch, or else the first one with a pickle."""
    names = [member.name for member in directory.members]
    folders = [name[: name.find("/") + 1] for name in names]
    if folders and folders[0] + PICKLE in names:
        return folders[0]
    pairs = zip(names, folders, strict=True)
    return next((folder for name, folder in pairs if name == folder + PICKLE), None)


def _byteorder(data: ByteView, member: ZipMember | None) -> str:
    if member is None:
        return "little"
    word = bytes(zip_read.content(data, member, MAX_WORD))
    if word not in BYTEORDERS:
        fail(f"byteorder is {word!r}", offset=member.start, field=BYTEORDER)
    return word.decode()


def _storages(directory: Directory, folder: str) -> dict[str, ZipMember]:
    """Return the storages' members by key; the last of equal names counts."""
    start = folder + STORAGE
    return {
        member.name[len(start) :]: member
        for member in directory.members
        if member.name.startswith(start)
    }


def _last(directory: Directory, name: str) -> ZipMember | None:
    return next((m for m in reversed(directory.members) if m.name == name), None)


@dataclass(frozen=True, slots=True)
class StorageBytes:
    """The bytes of a storage; `offset` is their position in the file, None if they were decoded."""

    data: ByteView | PackedBytes
    offset: int | None

    def part(self, start: int, end: int) -> ByteView | PackedBytes:
        if isinstance(self.data, PackedBytes):
            return self.data.part(start, end - start)
        return self.data[start:end]


Find = Callable[[Storage], StorageBytes | str]
"""Returns a storage's bytes, or the reason why there are none."""


def tensor(name: str, view: View, find: Find, most: int, byteorder: str = "little") -> Tensor:
    """Return a view as a tensor with its bytes; one that repeats items has at most `most` bytes."""
    none = memoryview(b"")
    if view.storage is None:
        return Tensor(name, view.dtype, view.shape, none, None, view.element, absent=NO_STORAGE)
    stored = find(view.storage)
    if isinstance(stored, str):
        # A tensor without items needs no storage.
        lacking = NotRead(stored) if view.numel else None
        return Tensor(name, view.dtype, view.shape, none, None, view.element, absent=lacking)
    start, end = view.span()
    size = stored.data.nbytes
    outside = why_outside(view, size)
    absent = UNKNOWN if view.item == 0 else None if outside is None else NotRead(outside)
    if absent is not None:
        return Tensor(name, view.dtype, view.shape, none, None, view.element, absent=absent)
    strides = None
    if view.dtype not in PACKED and not view.is_contiguous:
        strides = view.strides
        if view.numel * view.item > max(most, size):
            absent = EXPANDED
    return Tensor(
        name,
        view.dtype,
        view.shape,
        stored.part(start, end),
        None if stored.offset is None else stored.offset + start,
        view.element,
        byteorder=byteorder,
        strides=strides,
        absent=absent,
    )


def views_of(listed: PickledTensors) -> list[View]:
    """Return the views of the tensors of a pickle, in its order."""
    return [view for _, view in listed.tensors]


def by_value(tensor: Tensor, view: View) -> Tensor:
    """Return the tensor as torch reads it, conjugated or negated if its view says so.

    Only for dtypes that numpy has; others keep the items of their storage.
    """
    element = ELEMENTS.get(view.dtype)
    word = _FLIPPED.get(element or "")
    is_plain = word is None or tensor.absent is not None or tensor.element is not None
    if not view.flips or is_plain or len(view.shape) > _NUMPY_RANK:
        return tensor
    nbytes = view.numel * view.item
    flipped = PackedBytes(nbytes, partial(_flipped, tensor, view, word or ""))
    return replace(
        tensor, held=flipped, offset=None, element=element, strides=None, byteorder="little"
    )


def _flipped(tensor: Tensor, view: View, word: str) -> ByteView:
    import numpy as np  # few files have such tensors

    sign = "<" if tensor.byteorder == "little" else ">"
    # The bounds of the view were checked when it was listed.
    apart = [stride * view.item for stride in view.strides]
    flat = np.frombuffer(tensor.data, sign + word) if view.numel else np.zeros(0, sign + word)
    if view.numel:
        items = np.lib.stride_tricks.as_strided(flat, view.shape, apart, writeable=False)
    else:
        items = flat.reshape(view.shape)
    values = items.astype("<" + word)
    for flip in view.flips:
        values = np.conjugate(values) if flip == "conj" else np.negative(values)
    return memoryview(np.ascontiguousarray(values).tobytes())


def global_names(pickle: Pickle) -> list[str]:
    """Return the globals that a pickle names, in order, as text for JSON and terminals."""
    return [
        named.path.encode("utf-8", "backslashreplace").decode()
        for named in pickle.globals[:MAX_GLOBALS]
    ]


def covers(view: View, size: int) -> bool:
    """Whether a tensor is exactly all the `size` bytes of its storage."""
    return (
        view.dtype not in PACKED
        and view.offset == 0
        and view.storage is not None
        and view.storage.part is None
        and view.item > 0
        and view.is_contiguous
        and view.numel * view.item == size
    )
