"""How the values of a tensor changed, in one pass over bounded blocks of both sides.

`BlockComparer` compares one block: a pure function of the bytes of both sides. Segments with equal
bytes are separated from the others, and only one side of them is processed. The sums of a
comparison join the blocks in order. Changed rows are recorded as a count, ranges, and blocks of
rows, all of bounded size. Formulas: `docs/diff.md`, section "Numbers".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import frexp, isinf, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.progress import Progress
from wtxtgit.io.view import same_bytes
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.diff import ByteChange, Numbers, RowBlocks, RowFacts, SideFacts
from wtxtgit.tensors import numbers
from wtxtgit.tensors.numbers import (
    BLOCK,
    F8,
    BlockSums,
    Moments,
    RowChanges,
    Sum,
    block_sums,
    down,
    level,
    scaled,
)
from wtxtgit.tensors.tensor_bytes import aligned

SEGMENT = 4096
"""Size of a segment in bytes: about a row of most matrices, and a whole number of items."""

_MIXING = tuple(
    (np.uint64(shift), np.uint64(factor))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
)
"""The steps of splitmix64, which spreads the bits of an item."""
Product = tuple[float, int]
"""A sum of products: value x 2^exponent."""
_Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Measures:
    """Changes of `items` (their indices in the block), all between finite numbers.

    `squares` of the changes are divided by 2^`exponent`. The largest change is `most` x 2^`shift`,
    at item `at`. `ulp` counts changes as `numbers.ulp_buckets` does.
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

    `sides` are the sums of numbers before and after, for each piece. `products` are sums over
    numbers that are finite on both sides: of squares before, of squares after, and of products of
    both. `items` are the indices of those that changed.
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
    """Compares blocks of two elements; the parts of complex items count as separate numbers.

    `is_decoded` for numbers that no file has in this form: how many floats apart they are is not
    counted.
    """

    a: str
    b: str
    is_decoded: bool = False

    @property
    def is_one_dtype(self) -> bool:
        return self.a == self.b

    @property
    def has_ulp(self) -> bool:
        return self.is_one_dtype and self.b not in numbers.INTEGERS and not self.is_decoded

    @property
    def is_integer(self) -> bool:
        return {self.a, self.b} <= numbers.INTEGERS

    def compare(self, raw_a: memoryview, raw_b: memoryview) -> BlockChange:
        """Compare a block with equally many items on both sides."""
        # No warnings: NaN may be signalling, and differences may overflow floats.
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            return self._compare(raw_a, raw_b)

    def _compare(self, raw_a: memoryview, raw_b: memoryview) -> BlockChange:
        count = len(raw_b) // ITEM_BYTES[self.b]
        if not self.is_one_dtype:
            return self._changed(raw_a, raw_b, None)
        changed = _changed_segments(raw_a, raw_b)
        if changed.all():
            return self._changed(raw_a, raw_b, None)
        # Unchanged numbers are summed up once, for both sides.
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
        """Compare all numbers of `segments` of the block, or of all of it."""
        count = len(raw_b) // ITEM_BYTES[self.b]
        a, b = numbers.values(raw_a, self.a), numbers.values(raw_b, self.b)
        parts = numbers.parts_of(self.b)
        if numbers.parts_of(self.a) != parts:
            # A real number is treated as complex, with an imaginary part of 0.
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
        """Measure the changes of the picked numbers, from `a` to `b`, all finite."""
        signs = np.signbit(a) != np.signbit(b)
        # A change from or to zero is not a sign flip, whatever the sign of the zero.
        flips = np.count_nonzero(signs & (a != 0) & (b != 0)) if signs.any() else 0
        ulp = None
        if self.has_ulp:
            ulp = numbers.ulp_buckets(raw_a, raw_b, numbers.part_element(self.b), picks)
        shift = 0
        # float64 would round differences over 2^53.
        if self.is_one_dtype and self.b in numbers.WIDE:
            exact = numbers.integer_distances(raw_a, raw_b, self.b, picks)
            at = int(exact.argmax())
            apart = exact.astype(np.float64)
            most: float = int(exact[at])
        else:
            apart = np.abs(b - a)
            at = int(apart.argmax())
            most = float(apart[at])
            # The difference of two finite numbers can overflow: compute it at a quarter of the
            # scale.
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
    """Return sums of products over numbers finite on both sides; None if there are none."""
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
    """Return the positions in the block of items that lie in these segments."""
    if segments is None:
        return items
    items_each = SEGMENT // ITEM_BYTES[element]
    places: _Indices = segments[items // items_each] * items_each + items % items_each
    return places


def _changed_segments(raw_a: memoryview, raw_b: memoryview) -> NDArray[np.bool_]:
    """Return which segments differ; a block that is not a whole number of them counts as one."""
    # Usually the last block of a tensor.
    if len(raw_a) % SEGMENT:
        return np.array([not same_bytes(raw_a, raw_b)])
    a, b = np.frombuffer(raw_a, np.uint64), np.frombuffer(raw_b, np.uint64)
    changed: NDArray[np.bool_] = (a != b).reshape(-1, SEGMENT // 8).any(axis=1)
    return changed


def _picked(raw: memoryview, segments: NDArray[np.bool_]) -> memoryview:
    return np.frombuffer(raw, np.uint8).reshape(-1, SEGMENT)[segments].reshape(-1).data


def _with_imaginary(values: F8, element: str) -> F8:
    if numbers.parts_of(element) == 2:
        return values
    return np.stack((values, np.zeros_like(values)), axis=1).reshape(-1)


def compare_numbers(
    a: Tensor,
    b: Tensor,
    advance: Progress,
    *,
    threads: int | None = None,
    is_decoded: bool = False,
) -> Numbers:
    """Compare tensors of one shape, prepared by `as_values`; raises FormatError.

    `is_decoded` if one of them is quantised.
    """
    if a.element is None or b.element is None:
        raise TypeError("a tensor without numbers")
    comparer = BlockComparer(a.element, b.element, is_decoded)
    comparison = _ComparisonSums(comparer, b.logical_shape)
    sizes = ITEM_BYTES[a.element], ITEM_BYTES[b.element]
    blocks = aligned(a, sizes[0], b, sizes[1], BLOCK)
    tasks = (partial(comparer.compare, raw_a, raw_b) for raw_a, raw_b in blocks)
    with Workers(tasks, worthwhile(threads, a.nbytes)) as changes:
        for change in changes:
            comparison.join(change)
            advance(change.count * sizes[0])
    return comparison.result()


def are_reordered(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one dtype and shape have the same items, in whatever order.

    By a sum of hashes that do not depend on the order; a forged one only makes a false finding.
    Raises FormatError.
    """
    size = ITEM_BYTES[b.element or "u8"]
    sums = [0, 0]
    for raws in aligned(a, size, b, size, BLOCK):
        for side, raw in enumerate(raws):
            items = np.frombuffer(raw, f"<u{min(size, 8)}").astype(np.uint64)
            for shift, factor in _MIXING:
                items ^= items >> shift
                items *= factor
            sums[side] += int(items.sum(dtype=np.uint64))
    return sums[0] % 2**64 == sums[1] % 2**64


def compare_bytes(a: Tensor, b: Tensor, advance: Progress) -> ByteChange:
    """Compare tensors of one dtype, shape and size as bytes; raises FormatError."""
    shape = b.logical_shape
    rows = shape[0] if shape else 1
    # An unknown dtype may have padding, and then the bytes do not divide into rows.
    whole_rows = rows > 0 and b.nbytes % rows == 0
    tracked = RowChanges(rows, b.nbytes // rows) if whole_rows else None
    done = changed = 0
    for raw_a, raw_b in aligned(a, 1, b, 1, BLOCK):
        if not same_bytes(raw_a, raw_b):
            picks = np.flatnonzero(np.frombuffer(raw_a, np.uint8) != np.frombuffer(raw_b, np.uint8))
            changed += len(picks)
            if tracked is not None:
                tracked.add(picks + done)
        done += len(raw_b)
        advance(len(raw_a))
    facts = None if tracked is None else _row_facts(tracked, with_norms=False)
    return ByteChange(done, changed, facts)


@dataclass(slots=True)
class _Largest:
    """The largest change so far: exact, and comparable even if it overflows floats."""

    value: float = 0
    index: int | None = None
    _key: tuple[int, float] = (-(2**62), 0.0)

    def offer(self, magnitude: float, shift: int, index: int) -> None:
        """Consider magnitude x 2^shift at number `index`; the first of equal changes counts."""
        if not magnitude:
            return
        if isinstance(magnitude, int):
            if magnitude > self.value:
                self.value, self.index = magnitude, index
            return
        mantissa, exponent = frexp(magnitude)
        # Compared in parts: the number itself may overflow.
        if (exponent + shift, mantissa) > self._key:
            self._key = (exponent + shift, mantissa)
            self.value, self.index = scaled(magnitude, shift), index


@dataclass(slots=True)
class _ComparisonSums:
    """The sums of a comparison, to which block results are added in order."""

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
        """Add the result of the next block."""
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

    def _measure(self, measures: Measures) -> None:
        self.sign_flips += measures.sign_flips
        if measures.ulp is not None:
            self.ulp += measures.ulp
        self.largest.offer(measures.most, measures.shift, measures.at + self.done)
        self.change.add(float(measures.squares.sum()), measures.exponent)
        self.rows.weigh(measures.items + self.done, measures.squares, measures.exponent)

    def result(self) -> Numbers:
        index = self.largest.index
        at = None if index is None else _unravelled(index, self.shape)
        exponents = np.flatnonzero(self.ulp).tolist()
        buckets = [(2 ** (k - 1) if k else 0, int(self.ulp[k])) for k in exponents]
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
            is_quantised=self.comparer.is_decoded,
        )

    def _relative(self) -> float | None:
        if not self.change.total:
            return 0.0
        # Relative to zeros any change is infinite: there is no relative change.
        if not self.base.total:
            return None
        exponent = (self.change.exponent - self.base.exponent) // 2
        return scaled(sqrt(self.change.total) / sqrt(self.base.total), exponent)

    def _cosine(self) -> float | None:
        if not self.base.total or not self.target.total:
            return None
        norms = sqrt(self.base.total) * sqrt(self.target.total)
        exponent = self.dot.exponent - (self.base.exponent + self.target.exponent) // 2
        # Rounding may give slightly more than 1.
        return max(-1.0, min(1.0, scaled(self.dot.total / norms, exponent)))


def _side(moments: Moments) -> SideFacts:
    return SideFacts(
        moments.count, moments.mean, moments.std, moments.zeros, moments.nan, moments.inf
    )


def _row_facts(rows: RowChanges, *, with_norms: bool) -> RowFacts:
    norms = tuple(total.root() for total in rows.squares) if with_norms else None
    blocks = RowBlocks(rows.block_rows, tuple(rows.in_blocks.tolist()), norms)
    # Call `ranges` before `exact`: it may join ranges, which are then no longer exact.
    ranges = rows.ranges
    return RowFacts(rows.rows, rows.changed, ranges, rows.exact, blocks)


def _unravelled(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    place = []
    for size in reversed(shape):
        index, at = divmod(index, size)
        place.append(at)
    return tuple(reversed(place))
