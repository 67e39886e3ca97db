"""What a format's parser says about a file: ranges of bytes and what they are.

A range is [start, end) in the file. How ranges become extents is decided in
`cutting`, the same for all formats.
Spec: `docs/spec/containers.md`, "Parts", "dtypes" and "Array names".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wtxtgit.io.view import ByteView
from wtxtgit.model import ITEM_SIZE
from wtxtgit.model.array import ArrayNames
from wtxtgit.model.tensor import ITEM_BYTES, Tensor

MAX_TENSORS = 1_000_000
"""Tensors, and chunks, that one file may have."""
LITERAL = ""
"""The array name of a fixed header that is stored as hex."""


_CARRIERS = {
    "f16": ("u16", 1),
    "bf16": ("u16", 1),
    "f8_e4m3": ("u8", 1),
    "f8_e5m2": ("u8", 1),
    "f8_e8m0": ("u8", 1),
    "f8_e4m3fnuz": ("u8", 1),
    "f8_e5m2fnuz": ("u8", 1),
    "bool": ("u8", 1),
    "c64": ("f32", 2),
    "c128": ("f64", 2),
}
"""The WTXT dtype of elements that are none of the ten, and its items in one of theirs."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as its container lists it; `dtype` and `shape` are the container's.

    The other fields are those of a `Tensor`; `row_bytes` is the size of a row
    whose items are no whole bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    element: str | None = None
    order: str = "C"
    byteorder: str = "little"
    row_bytes: int | None = None

    @property
    def has_our_order(self) -> bool:
        """Whether items are little-endian, as those of one byte always are."""
        return self.byteorder == "little" or ITEM_BYTES.get(self.element or "") == 1

    def listed(self, data: ByteView, absent: str | None = None) -> Tensor:
        """The tensor with a view of its bytes in the file `data`."""
        held = data[self.start : self.end] if self.end > self.start else data[:0]
        return Tensor(
            self.name,
            self.dtype,
            self.shape,
            held,
            self.start,
            self.element,
            self.order,
            self.byteorder,
            absent=absent,
        )


@dataclass(frozen=True, slots=True)
class Range:
    """A range, the array that it becomes and what its extent says.

    `label` decides between ranges that start and end alike: a tensor's or
    payload's name, a part's role, nothing for a literal. `base` is the
    array's name before numbering, LITERAL for a fixed header. A tensor has
    `dtype` and `shape` as stored, and `element` where WTXT has a dtype for
    it; else its array is u8. `row_bytes` is the size of a record where a part
    is a table, or of a tensor's row.
    """

    start: int
    end: int
    label: str
    base: str
    name: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    element: str | None = None
    order: str | None = None
    row_bytes: int | None = None

    def array_type(self) -> tuple[str, tuple[int, ...]]:
        """The WTXT dtype and shape of the range's bytes.

        A numeric dtype is taken only where it accounts for every byte.
        """
        length = self.end - self.start
        if self.row_bytes is not None:
            return "u8", (length // self.row_bytes, self.row_bytes)
        if self.element is None or self.shape is None:
            return "u8", (length,)
        dtype, parts = _CARRIERS.get(self.element, (self.element, 1))
        shape = self.shape[::-1] if self.order == "F" else self.shape
        if parts > 1:
            shape = (*shape, parts)
        if not _fills(ITEM_SIZE[dtype], shape, length):
            return "u8", (length,)
        return dtype, shape


def _fills(item: int, shape: tuple[int, ...], length: int) -> bool:
    """Whether item x product of the shape is `length`, without long products."""
    total = item
    for dim in shape:
        if dim <= 0:
            return False
        total *= dim
        if total > length:
            return False
    return total == length


def literal(start: int, end: int) -> Range:
    """A fixed header, stored as hex."""
    return Range(start, end, LITERAL, LITERAL)


def part(start: int, end: int, role: str) -> Range:
    """A part of the file that is known by its role."""
    return Range(start, end, role, role)


def rows(start: int, end: int, role: str, row_bytes: int) -> Range:
    """A part of the file made of records of `row_bytes`."""
    return replace(part(start, end, role), row_bytes=row_bytes)


def payload(start: int, end: int, name: str) -> Range:
    """A part of the file that has a name of its own."""
    return Range(start, end, name, ArrayNames.plain(name), name)


def tensor(stored: Stored) -> Range:
    """A tensor's bytes; WTXT has dtypes for little-endian numbers alone."""
    return Range(
        stored.start,
        stored.end,
        stored.name,
        ArrayNames.plain(stored.name),
        stored.name,
        stored.dtype,
        stored.shape,
        stored.element if stored.has_our_order else None,
        None if stored.order == "C" else "F",
        stored.row_bytes,
    )
