"""What changed in one block of a tensor's values: a pure function of the bytes of both sides.

Pieces of a block that are equal as bytes are told apart from the others: of
those one side alone is worked on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.tensor import ITEM_BYTES
from wtxtgit.tensors import numbers
from wtxtgit.tensors.numbers import F8, BlockSums, block_sums, down, level

SEGMENT = 4096
"""Bytes of a piece: rows of most matrices are as long, and items fit in."""

Product = tuple[float, int]
"""A sum of products: value x 2^exponent."""
_Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Measures:
    """Changes of `items` (their indices in the block), all of numbers that are finite.

    `squares` of the changes are divided by 2^`exponent`. The largest change is
    `most` x 2^`shift`, at item `at`. `ulp` counts by `numbers.ulp_buckets`.
    """

    items: _Indices
    squares: F8
    exponent: int
    most: float
    shift: int
    at: int
    sign_flips: int
    ulp: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block of `count` items: what is equal, and how the rest changed.

    `sides` are the sums of numbers before and after, for each piece, `products`
    those of numbers that are finite on both sides: before, after, and of both.
    `items` are the indices of those that changed.
    """

    count: int
    sides: tuple[tuple[BlockSums, BlockSums], ...]
    products: tuple[tuple[Product, Product, Product], ...]
    items: _Indices | None = None
    new_nan: int = 0
    new_inf: int = 0
    measures: Measures | None = None


@dataclass(frozen=True, slots=True)
class BlockComparer:
    """Compares blocks of two elements; parts of complex items are numbers of their own."""

    a: str
    b: str

    @property
    def is_one_dtype(self) -> bool:
        return self.a == self.b

    @property
    def has_ulp(self) -> bool:
        return self.is_one_dtype and self.b not in numbers.INTEGERS

    @property
    def is_integer(self) -> bool:
        return {self.a, self.b} <= numbers.INTEGERS

    def compare(self, raw_a: memoryview, raw_b: memoryview) -> BlockChange:
        """Compare a block of as many items of either side."""
        # A signalling NaN is no reason to warn; differences may be beyond all floats.
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            return self._compare(raw_a, raw_b)

    def _compare(self, raw_a: memoryview, raw_b: memoryview) -> BlockChange:
        count = len(raw_b) // ITEM_BYTES[self.b]
        if not self.is_one_dtype:
            return self._changed(raw_a, raw_b, None)
        changed = _changed_segments(raw_a, raw_b)
        if changed.all():
            return self._changed(raw_a, raw_b, None)
        same = raw_b if not changed.any() else _picked(raw_b, ~changed)
        sums = block_sums(numbers.values(same, self.b))
        norm = (sums.norm, 2 * sums.exponent)
        if same is raw_b:
            return BlockChange(count, ((sums, sums),), ((norm, norm, norm),))
        rest = self._changed(
            _picked(raw_a, changed), _picked(raw_b, changed), np.flatnonzero(changed)
        )
        return BlockChange(
            count,
            ((sums, sums), *rest.sides),
            ((norm, norm, norm), *rest.products),
            rest.items,
            rest.new_nan,
            rest.new_inf,
            rest.measures,
        )

    def _changed(
        self, raw_a: memoryview, raw_b: memoryview, segments: _Indices | None
    ) -> BlockChange:
        """Compare all numbers; the bytes are those of `segments` of the block, or all of it."""
        count = len(raw_b) // ITEM_BYTES[self.b]
        a, b = numbers.values(raw_a, self.a), numbers.values(raw_b, self.b)
        parts = numbers.parts_of(self.b)
        if numbers.parts_of(self.a) != parts:
            # A real number is a complex one whose imaginary part is 0.
            a, b = _with_imaginary(a, self.a), _with_imaginary(b, self.b)
            parts = 2
        sums = block_sums(a), block_sums(b)
        finite: NDArray[np.bool_] | None = None
        new_nan = new_inf = 0
        if sums[0].finite < len(a) or sums[1].finite < len(b):
            finite = np.isfinite(a) & np.isfinite(b)
            new_nan = int(np.count_nonzero(np.isnan(b) & ~np.isnan(a)))
            new_inf = int(np.count_nonzero(np.isinf(b) & ~np.isinf(a)))
        products = _products(a, b, sums, finite)
        if self.is_one_dtype:
            differs = numbers.patterns(raw_a, self.a) != numbers.patterns(raw_b, self.b)
        else:
            differs = (a != b) & ~(np.isnan(a) & np.isnan(b))
        picks: _Indices | None = None
        measured = differs if finite is None else differs & finite
        if not measured.all():
            picks = np.flatnonzero(measured)
            a, b = a[picks], b[picks]
        items = np.flatnonzero(differs.reshape(-1, parts).any(axis=1) if parts > 1 else differs)
        measures = None
        if len(a):
            where = np.arange(len(a)) if picks is None else picks
            places = _placed(where // parts if parts > 1 else where, segments, self.b)
            measures = self._measure(raw_a, raw_b, a, b, picks, places)
        return BlockChange(
            count,
            (sums,),
            (products,) if products is not None else (),
            _placed(items, segments, self.b) if len(items) else None,
            new_nan,
            new_inf,
            measures,
        )

    def _measure(
        self,
        raw_a: memoryview,
        raw_b: memoryview,
        a: F8,
        b: F8,
        picks: _Indices | None,
        places: _Indices,
    ) -> Measures:
        """Measure the changes of the picked numbers, `a` to `b`, all finite."""
        signs = np.signbit(a) != np.signbit(b)
        flips = np.count_nonzero(signs & (a != 0) & (b != 0)) if signs.any() else 0
        ulp = None
        if self.has_ulp:
            ulp = numbers.ulp_buckets(raw_a, raw_b, numbers.part_element(self.b), picks)
        shift = 0
        if self.is_one_dtype and self.b in numbers.WIDE:
            exact = numbers.integer_distances(raw_a, raw_b, self.b, picks)
            at = int(exact.argmax())
            apart = exact.astype(np.float64)
            most: float = int(exact[at])
        else:
            apart = np.abs(b - a)
            at = int(apart.argmax())
            most = float(apart[at])
            if isinf(most):
                shift = 2
                apart = np.abs(np.ldexp(b, -shift) - np.ldexp(a, -shift))
                at = int(apart.argmax())
                most = float(apart[at])
            elif self.is_integer:
                most = int(most)
        exponent = level(float(most))
        apart = down(apart, exponent)
        squares = np.square(apart, out=apart)
        return Measures(
            places,
            squares,
            2 * (exponent + shift),
            most,
            shift,
            int(places[at]),
            int(flips),
            ulp,
        )


def _products(
    a: F8, b: F8, sums: tuple[BlockSums, BlockSums], finite: NDArray[np.bool_] | None
) -> tuple[Product, Product, Product] | None:
    """Sums of products of the numbers that are finite on both sides; None where there is none."""
    if finite is not None:
        a, b = a[finite], b[finite]
        if not len(a):
            return None
        sums = block_sums(a), block_sums(b)
    before, after = sums
    dot = down(a, before.exponent) * down(b, after.exponent)
    return (
        (before.norm, 2 * before.exponent),
        (after.norm, 2 * after.exponent),
        (float(dot.sum()), before.exponent + after.exponent),
    )


def _placed(items: _Indices, segments: _Indices | None, element: str) -> _Indices:
    """Where items of these segments, one after another, are in the block."""
    if segments is None:
        return items
    held = SEGMENT // ITEM_BYTES[element]
    places: _Indices = segments[items // held] * held + items % held
    return places


def _changed_segments(raw_a: memoryview, raw_b: memoryview) -> NDArray[np.bool_]:
    """Which segments of a block differ; a block that is no whole number of them is one."""
    if len(raw_a) % SEGMENT:
        return np.array([not _equal(raw_a, raw_b)])
    a, b = np.frombuffer(raw_a, np.uint64), np.frombuffer(raw_b, np.uint64)
    changed: NDArray[np.bool_] = (a != b).reshape(-1, SEGMENT // 8).any(axis=1)
    return changed


def _picked(raw: memoryview, segments: NDArray[np.bool_]) -> memoryview:
    return np.frombuffer(raw, np.uint8).reshape(-1, SEGMENT)[segments].reshape(-1).data


def _equal(raw_a: memoryview, raw_b: memoryview) -> bool:
    return bool((np.frombuffer(raw_a, np.uint8) == np.frombuffer(raw_b, np.uint8)).all())


def _with_imaginary(values: F8, element: str) -> F8:
    if numbers.parts_of(element) == 2:
        return values
    return np.stack((values, np.zeros_like(values)), axis=1).reshape(-1)
