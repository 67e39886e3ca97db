"""A version of a file being merged (base, ours or theirs), read into its entries.

Also compares entries of two versions, and proves that a merged file has what was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from wtxtgit.containers import any_format
from wtxtgit.containers.format import Container, Resealer
from wtxtgit.errors import FormatError, NotRead
from wtxtgit.io.view import Buffer, ByteView, mapped, same_bytes
from wtxtgit.model.plain import equal_values
from wtxtgit.model.tensor import (
    Entry,
    Key,
    NewContent,
    PackedBytes,
    PlacedEntry,
    ReadOptions,
    Tensor,
    keys_of,
)
from wtxtgit.report.figures import extents
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import as_numbers, is_same


@dataclass(slots=True, eq=False)
class Version:
    """A file that was read: its entries by key, its metadata, and everything else in it."""

    name: str
    container: Container
    entries: Sequence[Entry]
    values: dict[str, object]
    rest: dict[str, object]
    numbers: dict[Key, int] = field(init=False)

    def __post_init__(self) -> None:
        keys = keys_of(entry.name for entry in self.entries)
        self.numbers = {key: number for number, key in enumerate(keys)}

    def entry(self, key: Key) -> Entry | None:
        number = self.numbers.get(key)
        return None if number is None else self.entries[number]

    def placed(self, key: Key, content: NewContent | None = None) -> PlacedEntry:
        return PlacedEntry(self.container, self.numbers[key], content)

    def is_built_as(self, other: Version) -> bool:
        """Whether two files differ only in the contents of their entries."""
        forms = [
            [
                (key, version.entries[n].form, kind_of(version.entries[n]))
                for key, n in version.numbers.items()
            ]
            for version in (self, other)
        ]
        return forms[0] == forms[1] and equal_values(self.values, other.values)


@dataclass(slots=True)
class Opener:
    """Reads versions, and the files in them, until `left` bytes have been decoded.

    Files may be nested, and each may be far larger than its stored bytes: one budget covers all of
    them.
    """

    options: ReadOptions
    left: int

    def spend(self, nbytes: int) -> None:
        """Count bytes that are decoded; raises FormatError (limit) if there are too many."""
        self.left -= nbytes
        if self.left < 0:
            raise FormatError("the files in it decode to more than a merge can hold", kind="limit")

    def content(self, entry: Entry) -> memoryview:
        """Return the bytes of a file in a file; raises FormatError if it can't be decoded."""
        if entry.file is None:
            raise FormatError(f"{entry.name!a} can't be opened", field="payload")
        if not isinstance(entry.file, PackedBytes):
            return mapped(entry.file)
        self.spend(entry.file.nbytes)
        return mapped(entry.file.open())

    def version(self, resealer: Resealer, name: str, data: ByteView) -> Version:
        """Read and check a version; raises FormatError if it is invalid."""
        self.spend(len(data))
        container = self.checked(data, f"{name} is not valid")
        return Version(
            name,
            container,
            resealer.entries(container, self.options),
            resealer.values(container, self.options),
            resealer.rest(container, self.options),
        )

    def checked(self, data: ByteView, complaint: str) -> Container:
        """Read a file and check it completely; raises FormatError that starts with `complaint`."""
        for problem in any_format.check(data, self.options).errors:
            raise FormatError(f"{complaint}: {problem}")
        return any_format.read(data)

    def is_same_entry(self, a: Entry, b: Entry) -> bool:
        """Whether two entries have the same content, in whatever form; raises FormatError."""
        if kind_of(a) != kind_of(b):
            return False
        if a.stored is not None and b.stored is not None and a.form == b.form:
            if same_bytes(a.stored, b.stored):
                return True
            # Strided items may be equal even if the bytes between them are not.
            if a.tensor is not None and a.tensor.strides is None:
                return False
        if a.tensor is not None and b.tensor is not None:
            for absent in (a.tensor.absent, b.tensor.absent):
                if isinstance(absent, NotRead):
                    message = f"tensor {a.name!a} can't be compared: {absent}"
                    raise FormatError.because(message, absent)
            if a.tensor.absent is not None or b.tensor.absent is not None:
                # For a tensor whose bytes are elsewhere, the form is all that a file has.
                return a.form == b.form
            x, y = (as_numbers(tensor) or tensor for tensor in (a.tensor, b.tensor))
            return is_same(x, y, lambda _count: None)
        # Files that can't be opened are only known to be the same if their stored bytes are.
        if a.unread is not None or b.unread is not None:
            return False
        return same_bytes(self.content(a), self.content(b))

    def prove(
        self,
        data: ByteView,
        resealer: Resealer,
        placed: Mapping[Key, PlacedEntry],
        versions: Iterable[Version],
        values: Mapping[str, object],
        *,
        adds_last: bool,
    ) -> Container:
        """Read the merged file again; raises FormatError unless it is exactly what it has to be.

        `versions` are those from which something was taken; `adds_last` is as in a Format.
        """
        # (1) The file is valid by itself: structure, limits and every hash.
        container = self.checked(data, "the merged file is not valid")
        sources = {id(version.container): version.entries for version in versions}
        written = resealer.entries(container, self.options)
        # (2) It has the entries that were decided on, in their order, and no other.
        keys = list(keys_of(entry.name for entry in written))
        if keys != list(placed) and not (adds_last and set(keys) == set(placed)):
            raise FormatError("the merged file does not hold what it should", field="entries")
        # (3) Each has the form and the content of the entry that it was taken from or made of.
        for entry, key in zip(written, keys, strict=True):
            decided = placed[key]
            source = sources[id(decided.source)][decided.number]
            if entry.form != source.form or not self._holds(entry, source, decided.content):
                raise FormatError(f"{key[0]!a} would differ from what was merged", field="entries")
        # (4) The metadata are those that were merged.
        if not equal_values(resealer.values(container, self.options), values):
            raise FormatError("the metadata would differ from what was merged", field="metadata")
        return container

    def _holds(self, entry: Entry, source: Entry, content: NewContent | None) -> bool:
        """Whether an entry that was written has the content that was decided."""
        if kind_of(entry) != kind_of(source):
            return False
        if content is not None:
            data = self.content(entry) if entry.tensor is None else entry.tensor.data
            return _is_made_of(data, content.blocks())
        if entry.unread is not None and entry.stored is not None and source.stored is not None:
            # Files that can't be opened are compared as they are stored.
            return same_bytes(entry.stored, source.stored)
        return self.is_same_entry(entry, source)


def kind_of(entry: Entry) -> object:
    """Return what two tensors must have in common to exchange items; None for files."""
    tensor = entry.tensor
    return None if tensor is None else (tensor.label, tensor.logical_shape)


def described(entry: Entry) -> str:
    """Return dtype and shape in words."""
    if entry.tensor is None:
        return "a file"
    return f"{entry.tensor.label} {extents(entry.tensor.logical_shape)}"


_STORAGE = attrgetter("label", "nbytes", "shape", "order", "byteorder", "strides", "absent")


def fits(a: Tensor, b: Tensor) -> bool:
    """Whether the stored bytes of one tensor can take the other's place."""
    return bool(_STORAGE(a) == _STORAGE(b))


def overlaps(tensor: Tensor) -> bool:
    """Whether items may share bytes; then rows are not independent of each other."""
    if tensor.strides is None:
        return False
    shape, strides = tensor_bytes.steps_of(tensor)
    span = 0
    # Sorted by stride, each dimension must step over everything that the previous ones span.
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= span:
                return True
            span += stride * (size - 1)
    return False


def _is_made_of(data: memoryview, blocks: Iterable[Buffer]) -> bool:
    at = 0
    for block in blocks:
        piece = memoryview(block).cast("B")
        if not same_bytes(data[at : at + len(piece)], piece):
            return False
        at += len(piece)
    return at == len(data)
