"""How the values of a tensor changed, in one pass over bounded blocks of both sides.

Blocks are compared as bytes first: of those that are equal one side alone is
worked on. Which rows changed is kept as a count, ranges, and blocks of rows, all of
bounded size. Formulas: `docs/diff.md`, section "Numbers".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import frexp, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import same_bytes
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.diff import ByteChange, Numbers, RowBlocks, RowFacts, SideFacts
from wtxtgit.tensors import numbers
from wtxtgit.tensors.block_change import BlockChange, BlockComparer, Measures
from wtxtgit.tensors.numbers import F8, Moments, Sum, scaled
from wtxtgit.tensors.statistics import BLOCK
from wtxtgit.tensors.tensor_bytes import aligned

Advance = Callable[[int], None]
"""Told how many bytes of either side were read."""


def compare_numbers(
    a: Tensor, b: Tensor, advance: Advance, *, threads: int | None = None
) -> Numbers:
    """Compare tensors of one shape, which `as_numbers` gave; raises FormatError."""
    if a.element is None or b.element is None:
        raise TypeError("a tensor without numbers")
    comparer = BlockComparer(a.element, b.element)
    comparison = _ComparisonSums(comparer, b.logical_shape)
    sizes = ITEM_BYTES[a.element], ITEM_BYTES[b.element]
    blocks = aligned(a, sizes[0], b, sizes[1], BLOCK)
    tasks = (partial(comparer.compare, raw_a, raw_b) for raw_a, raw_b in blocks)
    with Workers(tasks, worthwhile(threads, a.nbytes)) as changes:
        for change in changes:
            comparison.join(change)
            advance(change.count * sizes[0])
    return comparison.result()


def compare_bytes(a: Tensor, b: Tensor, advance: Advance) -> ByteChange:
    """Compare as bytes what has one dtype and shape, and as many bytes; raises FormatError."""
    shape = b.logical_shape
    rows = shape[0] if shape else 1
    whole_rows = rows > 0 and b.nbytes % rows == 0
    tracked = RowChanges(rows, b.nbytes // rows) if whole_rows else None
    done = changed = 0
    for raw_a, raw_b in aligned(a, 1, b, 1, BLOCK):
        if not same_bytes(raw_a, raw_b):
            picks = np.flatnonzero(_u1(raw_a) != _u1(raw_b))
            changed += len(picks)
            if tracked is not None:
                tracked.add(picks + done)
        done += len(raw_b)
        advance(len(raw_a))
    facts = None if tracked is None else _row_facts(tracked, with_norms=False)
    return ByteChange(done, changed, facts)


@dataclass(slots=True)
class _Largest:
    """The largest change so far: exact, and comparable where it is beyond all floats."""

    value: float = 0
    index: int | None = None
    _key: tuple[int, float] = (-(2**62), 0.0)

    def offer(self, magnitude: float, shift: int, index: int) -> None:
        """Offer magnitude x 2^shift at the number `index`; the first of equals counts."""
        if not magnitude:
            return
        if isinstance(magnitude, int):
            if magnitude > self.value:
                self.value, self.index = magnitude, index
            return
        mantissa, exponent = frexp(magnitude)
        if (exponent + shift, mantissa) > self._key:
            self._key = (exponent + shift, mantissa)
            self.value, self.index = scaled(magnitude, shift), index


@dataclass(slots=True)
class _ComparisonSums:
    """The sums of a comparison, which is given what became of the blocks in order."""

    comparer: BlockComparer
    shape: tuple[int, ...]
    done: int = 0
    changed: int = 0
    new_nan: int = 0
    new_inf: int = 0
    sign_flips: int = 0
    before: Moments = field(default_factory=Moments)
    after: Moments = field(default_factory=Moments)
    base: Sum = field(default_factory=Sum)
    target: Sum = field(default_factory=Sum)
    dot: Sum = field(default_factory=Sum)
    change: Sum = field(default_factory=Sum)
    largest: _Largest = field(default_factory=_Largest)
    rows: RowChanges = field(init=False)
    ulp: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = RowChanges(self.shape[0] if self.shape else 1, prod(self.shape[1:]))
        self.ulp = np.zeros(numbers.BUCKETS, np.int64)

    def join(self, block: BlockChange) -> None:
        """Take in what became of the next block."""
        for sums_a, sums_b in block.sides:
            self.before.join(sums_a)
            self.after.join(sums_b)
        for products in block.products:
            for total, product in zip((self.base, self.target, self.dot), products, strict=True):
                total.add(*product)
        self.new_nan += block.new_nan
        self.new_inf += block.new_inf
        if block.items is not None:
            self.changed += len(block.items)
            self.rows.add(block.items + self.done)
        if block.measures is not None:
            self._measure(block.measures)
        self.done += block.count

    def _measure(self, found: Measures) -> None:
        self.sign_flips += found.sign_flips
        if found.ulp is not None:
            self.ulp += found.ulp
        self.largest.offer(found.most, found.shift, found.at + self.done)
        self.change.add(float(found.squares.sum()), found.exponent)
        self.rows.weigh(found.items + self.done, found.squares, found.exponent)

    def result(self) -> Numbers:
        index = self.largest.index
        at = None if index is None else _unravelled(index, self.shape)
        held = np.flatnonzero(self.ulp).tolist()
        buckets = [(2 ** (k - 1) if k else 0, int(self.ulp[k])) for k in held]
        return Numbers(
            self.done,
            self.changed,
            _row_facts(self.rows, with_norms=True),
            self.change.root(),
            self.base.root(),
            self._relative(),
            self.largest.value,
            at,
            self._cosine(),
            _side(self.before),
            _side(self.after),
            self.new_nan,
            self.new_inf,
            self.sign_flips,
            tuple(buckets) if self.comparer.has_ulp else None,
        )

    def _relative(self) -> float | None:
        if not self.change.total:
            return 0.0
        if not self.base.total:
            return None
        exponent = (self.change.exponent - self.base.exponent) // 2
        return scaled(sqrt(self.change.total) / sqrt(self.base.total), exponent)

    def _cosine(self) -> float | None:
        if not self.base.total or not self.target.total:
            return None
        norms = sqrt(self.base.total) * sqrt(self.target.total)
        exponent = self.dot.exponent - (self.base.exponent + self.target.exponent) // 2
        return max(-1.0, min(1.0, scaled(self.dot.total / norms, exponent)))


def _side(moments: Moments) -> SideFacts:
    return SideFacts(
        moments.count, moments.mean, moments.std, moments.zeros, moments.nan, moments.inf
    )


def _row_facts(rows: RowChanges, *, with_norms: bool) -> RowFacts:
    ranges = rows.ranges
    return RowFacts(rows.rows, rows.changed, ranges, rows.exact, rows.blocks(with_norms=with_norms))


def _unravelled(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        index, at = divmod(index, size)
        found.append(at)
    return tuple(reversed(found))


def _u1(raw: memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8)


MAX_RANGES = 256
"""Ranges that are told; further ones are joined across the smallest gaps."""
MAX_BLOCKS = 64

_Indices = NDArray[np.int64]


class RowChanges:
    """Changes of items, taken in ascending order, as rows of the first dimension."""

    def __init__(self, rows: int, row_items: int) -> None:
        self.rows = rows
        self.changed = 0
        self.exact = True
        self._row_items = row_items
        self._block_rows = 1
        while -(-rows // self._block_rows) > MAX_BLOCKS:
            self._block_rows *= 2
        blocks = -(-rows // self._block_rows)
        self._in_blocks = np.zeros(blocks, np.int64)
        self._squares = [Sum() for _ in range(blocks)]
        self._starts: _Indices = np.zeros(0, np.int64)
        self._ends: _Indices = np.zeros(0, np.int64)

    def add(self, items: _Indices) -> None:
        """Take in changed items by their index: ascending, and after those before."""
        rows = items // self._row_items
        rows = rows[_with_first(rows[1:] != rows[:-1])]
        if len(self._ends) and rows[0] == self._ends[-1] - 1:
            rows = rows[1:]
            if not len(rows):
                return
        self.changed += len(rows)
        self._in_blocks += np.bincount(rows // self._block_rows, minlength=len(self._in_blocks))
        # Each range but the first starts where one row is apart from that before.
        firsts = _with_first(rows[1:] - rows[:-1] > 1)
        starts = rows[firsts]
        ends = np.append(rows[:-1][firsts[1:]], rows[-1]) + 1
        if len(self._ends) and starts[0] == self._ends[-1]:
            self._ends[-1] = ends[0]
            starts, ends = starts[1:], ends[1:]
        self._starts = np.concatenate((self._starts, starts))
        self._ends = np.concatenate((self._ends, ends))
        if len(self._starts) > 4 * MAX_RANGES:
            self._join()

    def weigh(self, items: _Indices, squares: F8, exponent: int) -> None:
        """Take in the squares of changes, divided by 2^exponent, of these items."""
        size = self._row_items * self._block_rows
        first, last = int(items[0]) // size, int(items[-1]) // size
        if first == last:
            self._squares[first].add(float(squares.sum()), exponent)
            return
        # Items ascend: each block's are one run.
        bounds = np.searchsorted(items, np.arange(first + 1, last + 1) * size).tolist()
        runs = zip([0, *bounds], [*bounds, len(squares)], strict=True)
        for block, (start, end) in enumerate(runs, first):
            self._squares[block].add(float(squares[start:end].sum()), exponent)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Changed rows as (first, last + 1); where `exact` is False others among them."""
        if len(self._starts) > MAX_RANGES:
            self._join()
        return tuple(zip(self._starts.tolist(), self._ends.tolist(), strict=True))

    def blocks(self, *, with_norms: bool) -> RowBlocks:
        norms = tuple(total.root() for total in self._squares) if with_norms else None
        return RowBlocks(self._block_rows, tuple(self._in_blocks.tolist()), norms)

    def _join(self) -> None:
        """Keep the MAX_RANGES - 1 widest gaps."""
        gaps = self._starts[1:] - self._ends[:-1]
        kept = np.sort(np.argsort(-gaps, kind="stable")[: MAX_RANGES - 1])
        self._starts = np.append(self._starts[0], self._starts[kept + 1])
        self._ends = np.append(self._ends[kept], self._ends[-1])
        self.exact = False


def _with_first(rest: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The same with a True before it."""
    found = np.ones(len(rest) + 1, np.bool_)
    found[1:] = rest
    return found
