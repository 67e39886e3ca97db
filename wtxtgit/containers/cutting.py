"""Cutting a file into extents along the ranges that a parser named.

One algorithm for all formats: order, overlaps, gaps, array names.
Spec: `docs/spec/containers.md`, "Cutting" and "Array names".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import LITERAL, Range, part
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model import (
    MAX_HEX,
    MAX_ZEROS,
    ZEROS_ALLOWANCE,
    Array,
    Cut,
    Extent,
    Layout,
)
from wtxtgit.model.array import MAX_CHUNKS, ArrayNames, chunk_count, default_rows

GAP_ROLE = "_gap"

_ZEROS = bytes(MAX_ZEROS)


def cut(file_format: str, data: ByteView, ranges: Iterable[Range]) -> Cut:
    """Cut the file `data` (flat bytes) along `ranges`.

    Ranges of length 0 and ranges that lose bytes to others are dropped; what
    no range holds becomes zeros, hex or an array of its own.

    Raises FormatError (limit) where an array has more chunks than a text can
    number.
    """
    pieces = list(_with_gaps(_without_overlaps(ranges), len(data)))
    zero_gaps = _zero_gaps(data, pieces)
    total = sum(piece.end - piece.start for piece in zero_gaps.values())
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
    """Which range keeps bytes that two claim.

    Strings compare by code point, which is the order of their UTF-8 bytes.
    """
    return piece.start, -piece.end, piece.label


def _without_overlaps(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges in file order that keep all their bytes."""
    taken = 0
    for piece in sorted((r for r in ranges if r.end > r.start), key=_precedence):
        if piece.start >= taken:
            taken = piece.end
            yield piece


def _with_gaps(ranges: Iterable[Range], size: int) -> Iterator[Range]:
    """The ranges and, as parts, the gaps before, between and after them."""
    end = 0
    for piece in ranges:
        if piece.start > end:
            yield part(end, piece.start, GAP_ROLE)
        yield piece
        end = piece.end
    if size > end:
        yield part(end, size, GAP_ROLE)


def _is_zero(data: ByteView) -> bool:
    return len(data) <= MAX_ZEROS and _ZEROS.startswith(mapped(data))


def _zero_gaps(data: ByteView, pieces: Iterable[Range]) -> dict[int, Range]:
    """The gaps, by start, that one extent of zeros can stand for."""
    return {
        piece.start: piece
        for piece in pieces
        if piece.base == GAP_ROLE and _is_zero(data[piece.start : piece.end])
    }


def _array(name: str, piece: Range, data: ByteView) -> Array:
    dtype, shape = piece.array_type()
    length = piece.end - piece.start
    # A chunk holds a byte at least.
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
