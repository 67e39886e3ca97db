"""Ranges of bytes that a format's parser names, and cutting a file along them.

A range is [start, end) in the file. One algorithm cuts files of all formats: order, overlaps, gaps,
array names. Spec: `docs/spec/containers.md`, "Parts", "dtypes", "Cutting" and "Array names".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wtxtgit.containers.cursor import ARRAY, EXTENT, SPELLED, VALUE, ListingBudget, letters, quoted
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, is_zeros
from wtxtgit.model.array import (
    ITEM_SIZE,
    MAX_CHUNKS,
    MAX_HEX,
    MAX_RANK,
    MAX_ZEROS,
    ZEROS_ALLOWANCE,
    Array,
    ArrayNames,
    Cut,
    Extent,
    Layout,
    bounded_product,
    chunk_count,
    default_rows,
)
from wtxtgit.model.dtypes import DTYPES
from wtxtgit.model.tensor import ITEM_BYTES, Tensor

# The most tensors or chunks that a file may have ("Limits"): each becomes several objects in
# memory.
MAX_TENSORS = 1_000_000
LITERAL = ""
"""The array name that marks a fixed header, which is stored as hex."""

GAP_ROLE = "_gap"
DATA_ROLE = "data"
# Size of the arrays of a file that is stored whole: half of what a text's chunks can number.
PIECE = 32 * 1024**3


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as its container lists it; `dtype` and `shape` are the container's.

    The other fields are as in `Tensor`; `row_bytes` is the size of a row whose items are not whole
    bytes.
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
    def nbytes(self) -> int:
        return self.end - self.start

    @property
    def has_our_order(self) -> bool:
        """Whether items are little-endian, as items of one byte always are."""
        return self.byteorder == "little" or ITEM_BYTES.get(self.element or "") == 1

    def listed(self, data: ByteView, absent: str | None = None) -> Tensor:
        """Return the tensor with a view of its bytes in the file `data`."""
        content = data[self.start : self.end] if self.end > self.start else data[:0]
        return Tensor(
            self.name,
            self.dtype,
            self.shape,
            content,
            self.start,
            self.element,
            self.order,
            self.byteorder,
            absent=absent,
        )


@dataclass(frozen=True, slots=True)
class Range:
    """A range, the array that it becomes, and what its extent says.

    `label` is the tie-breaker for ranges with equal start and end: a tensor's or payload's name, a
    part's role, "" for a literal. `base` is the array's name before numbering, LITERAL for a fixed
    header. A tensor has `dtype` and `shape` as stored, and `element` if WTXT has a dtype for it; if
    not, its array is u8. `row_bytes` is the size of a record if a part is a table, or of a tensor's
    row.
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
        """Return the WTXT dtype and shape of the range's bytes.

        A numeric dtype is used only if it accounts for every byte.
        """
        length = self.end - self.start
        if self.row_bytes is not None:
            return "u8", (length // self.row_bytes, self.row_bytes)
        if self.element is None or self.shape is None:
            return "u8", (length,)
        _, _, dtype, parts = DTYPES[self.element]
        shape = self.shape[::-1] if self.order == "F" else self.shape
        if parts > 1:
            shape = (*shape, parts)
        if min(shape, default=1) <= 0 or bounded_product(ITEM_SIZE[dtype], shape, length) != length:
            return "u8", (length,)
        return dtype, shape


def literal(start: int, end: int) -> Range:
    """Return the range of a fixed header, stored as hex."""
    return Range(start, end, LITERAL, LITERAL)


def part(start: int, end: int, role: str) -> Range:
    """Return the range of a part that is identified by its role."""
    return Range(start, end, role, role)


def rows(start: int, end: int, role: str, row_bytes: int) -> Range:
    """Return the range of a part that consists of records of `row_bytes`."""
    return replace(part(start, end, role), row_bytes=row_bytes)


def payload(start: int, end: int, name: str) -> Range:
    """Return the range of a part that has a name of its own."""
    return Range(start, end, name, ArrayNames.plain(name), name)


def tensor(stored: Stored) -> Range:
    """Return the range of a tensor; only little-endian numbers have dtypes in WTXT."""
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


def cut(file_format: str, data: ByteView, ranges: Iterable[Range]) -> Cut:
    """Cut the file `data` (flat bytes) along `ranges`.

    Empty ranges and ranges that lose bytes to others are dropped; bytes in no range become zeros,
    hex or an array of their own.

    Raises FormatError (limit) if an array has more chunks than a text can number, or if the text
    would consist of too many things.
    """
    listing = ListingBudget(len(data))
    pieces = list(_with_gaps(_without_overlaps(ranges), len(data), listing))
    zero_gaps = _zero_gaps(data, pieces)
    total = sum(piece.end - piece.start for piece in zero_gaps.values())
    # A few bytes of text can stand for any number of zeros: these are bounded by the other bytes.
    # Spec: "Cutting".
    zeros_allowed = total <= ZEROS_ALLOWANCE + len(data) - total
    names = ArrayNames()
    extents: list[Extent] = []
    arrays: list[Array] = []
    for piece in pieces:
        length = piece.end - piece.start
        is_zero = piece.start in zero_gaps
        is_short = piece.base == GAP_ROLE and length <= MAX_HEX
        if is_zero and zeros_allowed:
            extents.append(Extent(zeros=length))
        elif piece.base == LITERAL or (is_short and not is_zero):
            extents.append(Extent(hex=bytes(data[piece.start : piece.end])))
        else:
            array = _array(names.for_role(piece.base), piece, data)
            arrays.append(array)
            extents.append(Extent(array.name, piece.dtype, piece.name, piece.shape, piece.order))
    return Cut(Layout(file_format, len(data), tuple(extents)), tuple(arrays))


def _precedence(piece: Range) -> tuple[int, int, str]:
    """Return the sort key by which one of two overlapping ranges keeps its bytes.

    Strings compare by code point, which is the order of their UTF-8 bytes.
    """
    return piece.start, -piece.end, piece.label


def _without_overlaps(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield, in file order, the ranges that keep all their bytes."""
    reached = 0
    for piece in sorted((r for r in ranges if r.end > r.start), key=_precedence):
        # A range that loses a byte is dropped as a whole; its other bytes become gaps.
        if piece.start >= reached:
            reached = piece.end
            yield piece


def _with_gaps(ranges: Iterable[Range], size: int, listing: ListingBudget) -> Iterator[Range]:
    """Yield the ranges and, as parts, the gaps before, between and after them."""
    end = 0
    for piece in ranges:
        if piece.start > end:
            yield _gap(end, piece.start, listing)
        if len(piece.shape or ()) > MAX_RANK:
            raise FormatError(
                f"{quoted(piece.label)} has over {MAX_RANK} dimensions",
                kind="limit",
                offset=piece.start,
                field="shape",
            )
        amount = EXTENT
        if piece.base != LITERAL:
            words = (piece.label, piece.dtype or "")
            amount = ARRAY + SPELLED * letters(words) + VALUE * len(piece.shape or ())
        listing.count(amount, piece.start, "text")
        yield piece
        end = piece.end
    if size > end:
        yield _gap(end, size, listing)


def _gap(start: int, end: int, listing: ListingBudget) -> Range:
    # Only once all gaps are known is it clear whether zeros are allowed: a long gap counts as an
    # array.
    listing.count(EXTENT if end - start <= MAX_HEX else ARRAY, start, "text")
    return part(start, end, GAP_ROLE)


def _zero_gaps(data: ByteView, pieces: Iterable[Range]) -> dict[int, Range]:
    """Return, by start, the gaps that a single extent of zeros can represent."""
    return {
        piece.start: piece
        for piece in pieces
        if piece.base == GAP_ROLE
        and piece.end - piece.start <= MAX_ZEROS
        and is_zeros(data[piece.start : piece.end])
    }


def _array(name: str, piece: Range, data: ByteView) -> Array:
    dtype, shape = piece.array_type()
    length = piece.end - piece.start
    # A chunk has at least one byte.
    if length > MAX_CHUNKS and _chunks(length, dtype, shape) > MAX_CHUNKS:
        raise FormatError(
            f"array {quoted(name)} of {length} bytes would have over {MAX_CHUNKS} chunks",
            kind="limit",
            offset=piece.start,
            field="length",
        )
    return Array(name, dtype, shape, data[piece.start : piece.end])


def _chunks(length: int, dtype: str, shape: tuple[int, ...]) -> int:
    rows = default_rows(dtype, shape)
    return chunk_count(length, rows.rows_per_chunk * rows.row_size)


def whole(data: ByteView, reason: str) -> Cut:
    """Return the file as arrays of at most PIECE bytes; `reason` says why."""
    pieces = (
        part(start, min(start + PIECE, len(data)), DATA_ROLE)
        for start in range(0, len(data), PIECE)
    )
    return replace(cut("opaque", data, pieces), reason=reason)
