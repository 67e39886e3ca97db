"""What became of a changed tensor's rows: collapsed, saturated, or far larger than all others.

A row is what stands at one index of the first dimension; or of the first few dimensions, if that
is more than `LONGEST_ROW` bytes. Rules: `docs/diff.md`, section "Risks".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import same_bytes
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.diff import OUTLIER, RowIndices, RowStates
from wtxtgit.tensors import numbers
from wtxtgit.tensors.numbers import BLOCK, F8
from wtxtgit.tensors.tensor_bytes import aligned

LEAST_ROW = 8
"""Rows of fewer items are too short for a judgement."""
LONGEST_ROW = 4 * 1024 * 1024
"""The largest row in bytes that is examined: it is held in memory as a whole, twice."""
MOST_FIRST = 3
"""How many rows of a kind are named."""
_SAMPLE = 15
"""How many items of a row are sampled to decide whether to count all of them."""
_LEAST_EQUAL = 3
_LIMITS = {"f16": 0x7BFF, "bf16": 0x7F7F}
"""Bits of the largest finite number of dtypes that can hold little more than weights have."""

_Rows = NDArray[np.intp]
_Found = tuple[int, _Rows, _Rows, _Rows, int]
"""How many rows a block has; which of them collapsed, are saturated, outgrew; items at the limit"""


def row_states(
    a: Tensor, b: Tensor, norm: float, *, threads: int | None = None
) -> RowStates | None:
    """Examine the rows of two tensors of one shape, prepared by `as_numbers`.

    `norm` is the root mean square of all items before. Returns None if the tensor has no rows, or
    items that are not real numbers. Raises FormatError.
    """
    items = _row_items(b)
    if a.element is None or b.element is None or not items:
        return None
    if numbers.parts_of(a.element) != 1 or numbers.parts_of(b.element) != 1:
        return None
    look = partial(_look, elements=(a.element, b.element), items=items, norm=norm)
    tasks = (partial(look, *raws) for raws in _whole_rows(a, b, items))
    collapsed, saturated, outgrown = _RowTally(), _RowTally(), _RowTally()
    done = at_limit = 0
    with Workers(tasks, worthwhile(threads, b.nbytes)) as results:
        for rows, *kinds, limited in results:
            for kind, places in zip((collapsed, saturated, outgrown), kinds, strict=True):
                kind.add(places, done)
            at_limit += limited
            done += rows
    leading = b.logical_shape[: _split(b)]
    return RowStates(
        done,
        collapsed.row_indices(leading),
        saturated.row_indices(leading),
        outgrown.row_indices(leading),
        max(at_limit, 0),
    )


class _RowTally:
    """The number of rows of one kind, and the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[int] = []

    def add(self, places: _Rows, done: int) -> None:
        self.count += len(places)
        left = MOST_FIRST - len(self.first)
        self.first += [int(place) + done for place in places[:left]]

    def row_indices(self, leading: tuple[int, ...]) -> RowIndices:
        indices = (np.unravel_index(row, leading) for row in self.first)
        return RowIndices(self.count, tuple(tuple(map(int, index)) for index in indices))


def _split(tensor: Tensor) -> int:
    """Return how many leading dimensions make up the index of a row."""
    shape = tensor.logical_shape
    size = ITEM_BYTES[tensor.element or "u8"]
    return next(
        (n for n in range(1, len(shape)) if prod(shape[n:]) * size <= LONGEST_ROW), len(shape)
    )


def _row_items(tensor: Tensor) -> int:
    """Return the items of a row; 0 if there are no rows to examine."""
    shape = tensor.logical_shape
    split = _split(tensor)
    items: int = prod(shape[split:])
    return items if 0 < split < len(shape) and items >= LEAST_ROW and 0 not in shape else 0


def _whole_rows(a: Tensor, b: Tensor, items: int) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield blocks of whole rows of both tensors."""
    sizes = ITEM_BYTES[a.element or "u8"], ITEM_BYTES[b.element or "u8"]
    row = items * sizes[1]
    step = max(BLOCK // row, 1) * row
    left: tuple[bytes | memoryview, bytes | memoryview] = (b"", b"")
    for raws in aligned(a, sizes[0], b, sizes[1], step):
        # Strided items come in blocks of another size.
        whole = raws
        if len(left[1]) or len(raws[1]) % row:
            whole = (
                memoryview(b"".join((left[0], raws[0]))),
                memoryview(b"".join((left[1], raws[1]))),
            )
        count = len(whole[1]) // row * items
        ends = [count * size for size in sizes]
        left = (whole[0][ends[0] :], whole[1][ends[1] :])
        if count:
            yield whole[0][: ends[0]], whole[1][: ends[1]]


_NONE: _Rows = np.zeros(0, np.intp)


def _look(
    raw_a: memoryview, raw_b: memoryview, elements: tuple[str, str], items: int, norm: float
) -> _Found:
    """Examine the rows of a block: a pure function of the bytes of both sides."""
    rows = len(raw_b) // (items * ITEM_BYTES[elements[1]])
    if elements[0] == elements[1] and same_bytes(raw_a, raw_b):
        return rows, _NONE, _NONE, _NONE, 0
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        a = numbers.values(raw_a, elements[0]).reshape(rows, items)
        b = numbers.values(raw_b, elements[1]).reshape(rows, items)
        # A few of its items are enough to rule out most rows.
        ends = np.flatnonzero((b[:, 0] == b[:, -1]) & (b[:, 0] == b[:, items // 2]))
        is_constant = _constant(b[ends])
        collapsed = ends[is_constant & ~_constant(a[ends])]
        saturated = _NONE
        if elements[1] not in numbers.INTEGERS:
            sample = np.abs(b[:, np.linspace(0, items - 1, _SAMPLE).astype(np.intp)])
            equal = (sample == sample.max(axis=1, keepdims=True)).sum(axis=1)
            likely = np.flatnonzero(equal >= _LEAST_EQUAL)
            saturated = likely[_saturated(b[likely]) & ~_saturated(a[likely])]
        before, after = (np.sqrt(np.einsum("ij,ij->i", x, x) / items) for x in (a, b))
        far = (after >= OUTLIER * before) & (after >= OUTLIER * norm) & np.isfinite(after)
        outgrown = np.flatnonzero(far & (before > 0) & (norm > 0))
    limited = _at_limit(raw_b, elements[1]) - _at_limit(raw_a, elements[0])
    return rows, collapsed, saturated, outgrown, limited


def _constant(rows: F8) -> NDArray[np.bool_]:
    equal: NDArray[np.bool_] = (rows == rows[:, :1]).all(axis=1)
    return equal


def _saturated(rows: F8) -> NDArray[np.bool_]:
    """Return the rows in which half of the items are as large as the largest, but not all equal."""
    sizes = np.abs(rows)
    most = sizes.max(axis=1, keepdims=True) if len(rows) else sizes[:, :1]
    at_most = (sizes == most).sum(axis=1)
    half: NDArray[np.bool_] = (2 * at_most >= rows.shape[1]) & (most[:, 0] > 0)
    return half & ~_constant(rows)


def _at_limit(raw: memoryview, element: str) -> int:
    """Count the items that are the largest finite number of their dtype."""
    limit = _LIMITS.get(element)
    if limit is None:
        return 0
    bits = numbers.patterns(raw, element)
    return int(np.count_nonzero((bits & bits.dtype.type(0x7FFF)) == limit))
