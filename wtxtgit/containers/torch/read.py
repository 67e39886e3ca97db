"""torch.save files: a zip of a pickle and of the storages that it refers to.

All members stand in one folder: `data.pkl`, the pickle of the saved value,
`data/<key>`, the bytes of a storage each, `byteorder`, `version` and others.
The pickle's opcodes are read, nothing is unpickled.
Spec: `docs/spec/torch.md`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from wtxtgit.containers import npy_header, ranges, zip_directory
from wtxtgit.containers.cursor import fail
from wtxtgit.containers.decoded import DecodedParts
from wtxtgit.containers.ranges import Range, Stored
from wtxtgit.containers.signatures import MAX_JSON, NPY_SUFFIX
from wtxtgit.containers.torch import PICKLE, archive, listing, pickle_machine, views
from wtxtgit.containers.torch.archive import MISSING, Held
from wtxtgit.containers.torch.listing import Listing
from wtxtgit.containers.torch.pickle_values import Pickle
from wtxtgit.containers.torch.views import Storage, View
from wtxtgit.containers.torch.zip_layout import DEFAULT_ALIGNMENT, MAX_ALIGNMENT
from wtxtgit.containers.zip_directory import Directory, Member
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, Packed, ReadOptions, Tensor

STORAGE = "data/"
BYTEORDER = "byteorder"
VERSION = "version"
ALIGNMENT = ".storage_alignment"
CONSTANTS = "constants.pkl"
"""A member that only TorchScript archives have."""
DIRECTORY_ROLE = "_directory"
ARRAY_ROLE = "_npy"
BYTEORDERS = (b"little", b"big")
HEADERS_A_BYTE = 4
"""Bytes of all headers of npy files for each byte of the file, beside MAX_TEXT."""
MAX_WORD = 64
"""Bytes of a member that holds a word or a number."""
TOO_LARGE = "its storage is deflated, and more than the limit"


@dataclass(frozen=True, slots=True, eq=False)
class Torch:
    """A torch file that was read: `folder` is what all its members' names start with.

    `storages` are the storages' members by key; `named` all distinct
    storages that the pickle names; `arrays` the npy files that are stored
    members, by position.
    """

    data: ByteView
    directory: Directory
    folder: str
    pickle: Pickle
    pickle_member: Member
    listing: Listing
    byteorder: str
    storages: dict[str, Member]
    named: tuple[Storage, ...]
    arrays: dict[int, Stored]

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

    def member(self, name: str) -> Member | None:
        """The last member of that name below the folder."""
        return _last(self.directory, self.folder + name)

    @property
    def alignment(self) -> int:
        """Where storages start, as the file says: multiples of so many bytes."""
        word = self.word(ALIGNMENT) or ""
        alignment = int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0
        return alignment if 1 <= alignment <= MAX_ALIGNMENT else DEFAULT_ALIGNMENT

    def _covering(self) -> dict[int, tuple[str, View]]:
        """The tensor of each stored member, by its id, that just one tensor covers.

        A tensor of several names is one, and has the first of them.
        """
        found: dict[int, tuple[str, View]] = {}
        shared: set[int] = set()
        for name, view in self.listing.tensors:
            key = view.storage.key if view.storage is not None else None
            member = None if key is None else self.storages.get(key)
            if key is None or member is None or not member.stored:
                continue
            if not archive.covers(view, member.size):
                continue
            if found.setdefault(id(member), (name, view))[1] is not view:
                shared.add(id(member))
        return {place: tensor for place, tensor in found.items() if place not in shared}

    def tensors(self, options: ReadOptions) -> Iterator[Tensor]:
        decoded = DecodedParts(options).of_file(len(self.data))

        def find(storage: Storage) -> Held | str:
            member = self.storages.get(storage.key)
            if member is None:
                return MISSING
            return self._held(member, decoded, options)

        for name, view in self.listing.tensors:
            yield archive.tensor(name, view, find, options.max_chunk, self.byteorder)

    def _held(self, member: Member, decoded: DecodedParts, options: ReadOptions) -> Held | str:
        if member.stored:
            return Held(self.data[member.start : member.end], member.start)
        try:
            zip_directory.check_size(member, options.max_chunk)
        except FormatError as error:
            return TOO_LARGE if error.kind == "limit" else error.message

        def inflate() -> ByteView:
            return zip_directory.content(self.data, member, options.max_chunk)

        opened = partial(decoded.open, member, member.size, inflate)
        return Held(Packed(member.size, opened), None)

    def word(self, name: str) -> str | None:
        """The content of a short member as text, None where there is none."""
        member = self.member(name)
        if member is None:
            return None
        try:
            held = bytes(zip_directory.content(self.data, member, MAX_WORD))
        except FormatError:
            return None
        return held.decode("ascii", "backslashreplace").strip()


def describe(container: Torch, options: ReadOptions) -> Description:
    """What the file says of itself."""
    return Description(
        "torch",
        (
            *container.tensors(options),
            *(a.listed(container.data) for a in container.arrays.values()),
        ),
        {
            "protocol": container.pickle.protocol,
            "byteorder": container.byteorder,
            "version": container.word(VERSION),
            "torchscript": container.member(CONSTANTS) is not None,
            "globals": archive.global_names(container.pickle),
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
        parts=zip_directory.part_notes(container.directory),
    )


def read(data: ByteView) -> Torch:
    """Read a torch file; raises FormatError."""
    directory = zip_directory.read(data)
    folder = _folder(directory)
    member = None if folder is None else _last(directory, folder + PICKLE)
    if folder is None or member is None:
        fail(f"zip has no member {PICKLE}", offset=directory.start, field=PICKLE)
    byteorder = _byteorder(data, _last(directory, folder + BYTEORDER))
    named: dict[Storage, None] = {}

    def load(pid: object, offset: int) -> object:
        made = views.storage(pid, offset)
        if isinstance(made, Storage):
            named.setdefault(made)
        return made

    pickle, listed = _read_pickle(data, member, load)
    storages = _storages(directory, folder)
    arrays = _arrays(data, directory)
    return Torch(
        data, directory, folder, pickle, member, listed, byteorder, storages, tuple(named), arrays
    )


def _read_pickle(
    data: ByteView, member: Member, load: pickle_machine.Load
) -> tuple[Pickle, Listing]:
    held = zip_directory.content(data, member, MAX_JSON)
    if member.stored:
        pickle = pickle_machine.parse(data[: member.end], PICKLE, load, start=member.start)
        return pickle, listing.list_tensors(pickle, member.start, PICKLE)
    try:
        pickle = pickle_machine.parse(held, PICKLE, load)
        return pickle, listing.list_tensors(pickle, 0, PICKLE)
    except FormatError as error:
        # Places in what was inflated are no places in the file.
        raise FormatError(
            error.message, kind=error.kind, offset=member.start, field=error.field
        ) from None


def _folder(directory: Directory) -> str | None:
    """The first member's folder, as torch has it, else the first one with a pickle."""
    names = [member.name for member in directory.members]
    folders = [name[: name.find("/") + 1] for name in names]
    if folders and folders[0] + PICKLE in names:
        return folders[0]
    pairs = zip(names, folders, strict=True)
    return next((folder for name, folder in pairs if name == folder + PICKLE), None)


def _byteorder(data: ByteView, member: Member | None) -> str:
    if member is None:
        return "little"
    word = bytes(zip_directory.content(data, member, MAX_WORD))
    if word not in BYTEORDERS:
        fail(f"byteorder is {word!r}", offset=member.start, field=BYTEORDER)
    return word.decode()


def _storages(directory: Directory, folder: str) -> dict[str, Member]:
    """The storages' members by key, of equal names the last."""
    start = folder + STORAGE
    return {
        member.name[len(start) :]: member
        for member in directory.members
        if member.name.startswith(start)
    }


def _arrays(data: ByteView, directory: Directory) -> dict[int, Stored]:
    """The stored members that are npy files, by position; a member that is none stays whole.

    Members may share bytes, so that headers are many times longer than the file.
    """
    left = HEADERS_A_BYTE * len(data) + npy_header.MAX_TEXT
    found: dict[int, Stored] = {}
    for n, member in enumerate(directory.members):
        if not member.stored or not member.name.endswith(NPY_SUFFIX):
            continue
        try:
            left -= npy_header.measure(data, member.start, member.end)
        except FormatError:
            continue
        if left < 0:
            fail("zip has too many npy headers", offset=member.start, field="header", kind="limit")
        try:
            header = npy_header.read(data, member.start, member.end)
            found[n] = header.stored(member.name.removesuffix(NPY_SUFFIX), member.end)
        except FormatError:
            continue
    return found


def _last(directory: Directory, name: str) -> Member | None:
    return next((m for m in reversed(directory.members) if m.name == name), None)
