"""A tensor's bytes as numbers, and sums of them that neither overflow nor lose small values.

All bytes are little-endian, in C order (`tensor_bytes.blocks`). Numbers are float64, or exact
distances of integers and floats; the real and imaginary parts of complex items count as separate
numbers, as in statistics.

A sum carries a power of two, so that squares of any float64 can be represented, and a correction
for rounding (Neumaier, 1974). Within a block numpy sums pairwise. The spreads of blocks are joined
as in Chan, Golub, LeVeque (1979).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import copysign, frexp, inf, ldexp, nan, sqrt
from sys import float_info
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.dtypes import DTYPES
from wtxtgit.model.tensor import ITEM_BYTES
from wtxtgit.tensors.tensor_bytes import NUMPY

U8 = NDArray[np.uint64]

BLOCK = 256 * 1024
"""Bytes that are processed at a time: what is computed from them fits in a processor's cache."""

INTEGERS = frozenset({"i64", "u64", "i32", "u32", "i16", "u16", "i8", "u8", "bool"})
WIDE = frozenset({"i64", "u64"})
"""Integers that float64 does not hold exactly."""
UNSIGNED_FLOAT = "f8_e8m0"
_BEYOND = np.uint64(2**53)
_KEPT = np.uint64(2**64 - 2**11)
_BIAS = 1023
BUCKETS = 66
"""Distance 0, and a bucket for each power of two up to 2^64."""


def part_element(element: str) -> str:
    """Return the element of a single number: for complex items that of a part."""
    return element if DTYPES[element].parts == 1 else DTYPES[element].carrier


def parts_of(element: str) -> int:
    """Return how many numbers an item has."""
    return DTYPES[element].parts


def values(raw: memoryview, element: str) -> F8:
    """Return the numbers as float64; integers over 2^53 are rounded."""
    # Do not warn about signalling NaN.
    with np.errstate(invalid="ignore"):
        return _values(raw, element)


def _values(raw: memoryview, element: str) -> F8:
    element = part_element(element)
    if element == "bf16":
        wide = np.frombuffer(raw, "<u2").astype("<u4")
        wide <<= 16
        floats: F8 = wide.view("<f4").astype(np.float64)
        return floats
    if element in SMALL_FLOATS or element == UNSIGNED_FLOAT:
        small: F8 = value_table(element)[np.frombuffer(raw, np.uint8)]
        return small
    if element == "bool":
        truth: F8 = (np.frombuffer(raw, np.uint8) != 0).astype(np.float64)
        return truth
    values: F8 = np.frombuffer(raw, "<" + NUMPY[element]).astype(np.float64, copy=False)
    return values


def patterns(raw: memoryview, element: str) -> NDArray[Any]:
    """Return the numbers' bits as unsigned integers."""
    return np.frombuffer(raw, f"<u{ITEM_BYTES[part_element(element)]}")


def integer_distances(
    a: memoryview, b: memoryview, element: str, picks: NDArray[np.intp] | None
) -> U8:
    """Return |b - a| of the picked 64-bit integers (all if None), exactly."""
    word = "<" + NUMPY[element]
    x, y = np.frombuffer(a, word), np.frombuffer(b, word)
    if picks is not None:
        x, y = x[picks], y[picks]
    low, high = np.minimum(x, y), np.maximum(x, y)
    # Modulo 2^64 the difference is right even if it does not fit into 63 bits.
    apart: U8 = high.view(np.uint64) - low.view(np.uint64)
    return apart


def ulp_buckets(
    a: memoryview, b: memoryview, element: str, picks: NDArray[np.intp] | None
) -> NDArray[np.int64]:
    """Count the picked floats (all if None) by how many representable floats they moved.

    Bucket 0 is for +0 and -0, bucket k for 2^(k-1) up to 2^k.
    """
    x, y = patterns(a, element), patterns(b, element)
    if picks is not None:
        x, y = x[picks], y[picks]
    if element == UNSIGNED_FLOAT:
        apart = np.maximum(x, y) - np.minimum(x, y)
    else:
        # Bits of floats of one sign are ordered like the floats. From one sign to the other the
        # path leads through both zeros, which count as one.
        sign = x.dtype.type(1 << (8 * x.itemsize - 1))
        size_x, size_y = x & ~sign, y & ~sign
        between = np.maximum(size_x, size_y) - np.minimum(size_x, size_y)
        apart = np.where((x ^ y) & sign, size_x + size_y, between)
    if apart.itemsize == 8:
        # float64 would round large distances up into the next bucket.
        apart = np.where(apart >= _BEYOND, apart & _KEPT, apart)
    # A distance above 0 belongs to the bucket of its binary exponent.
    exponents = (apart.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.intp)
    counts = np.bincount(exponents, minlength=_BIAS + BUCKETS)
    # Distance 0 has an exponent field of 0, far below that of 1: it goes to the first bucket.
    counts[_BIAS - 1] = counts[0]
    return counts[_BIAS - 1 : _BIAS - 1 + BUCKETS]


F8 = NDArray[np.float64]

_LEAST, _MOST = 2.0**-900, 2.0**960
"""Bounds of sums of squares within which neither squares nor sums of sums lose anything."""
# Below this share of the norm, the spread may be nothing but rounding.
_NO_SPREAD = 2.0**-90


def level(top: float) -> int:
    """Return the power of two by which numbers up to `top` are divided before squaring."""
    # Most tensors are far from the bounds, and need no pass that scales them.
    exponent = frexp(top)[1]
    return exponent if abs(exponent) > MAX_EXPONENT else 0


def scaled(value: float, exponent: int) -> float:
    """Return value x 2^exponent, or the largest float if that overflows."""
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return copysign(float_info.max, value)


def down(values: F8, exponent: int) -> F8:
    """Return the values divided by 2^exponent."""
    return np.ldexp(values, -exponent) if exponent else values


@dataclass(slots=True)
class Sum:
    """A sum: `total` x 2^`exponent`."""

    exponent: int = 0
    _value: float = 0.0
    _rest: float = 0.0

    @property
    def total(self) -> float:
        return self._value + self._rest

    def add(self, value: float, exponent: int = 0) -> None:
        """Add value x 2^exponent."""
        if not value:
            return
        if not self._value and not self._rest:
            self.exponent = exponent
        elif exponent != self.exponent:
            # Use the larger exponent: what gets too small for float64 is negligible in the sum.
            top = max(exponent, self.exponent)
            self._value = ldexp(self._value, self.exponent - top)
            self._rest = ldexp(self._rest, self.exponent - top)
            value = ldexp(value, exponent - top)
            self.exponent = top
        total = self._value + value
        larger, smaller = self._value, value
        if abs(larger) < abs(smaller):
            larger, smaller = smaller, larger
        # The exact rounding error of the addition: Neumaier (1974).
        self._rest += (larger - total) + smaller
        self._value = total

    def root(self) -> float:
        """Return the square root of a sum of squares, whose exponent is even."""
        return scaled(sqrt(self.total), self.exponent // 2)


@dataclass(frozen=True, slots=True)
class BlockSums:
    """Sums of a block's numbers: their `mean`, and `squares` of their distances from it, scaled.

    Both are for the `finite` numbers divided by 2^`exponent`.
    """

    count: int
    finite: int
    nan: int
    inf: int
    zeros: int
    mean: float
    squares: float
    exponent: int

    @property
    def norm(self) -> float:
        """The sum of the squares of the numbers themselves; its exponent is twice `exponent`."""
        return self.squares + self.finite * self.mean * self.mean


def block_sums(values: F8) -> BlockSums:
    """Sum up a block of any numbers."""
    count = len(values)
    zeros = int(np.count_nonzero(values == 0))
    if count:
        mean = float(values.sum()) / count
        # Two passes over a block, which is in the cache: subtracting the square of the sum from the
        # sum of squares would cancel.
        apart = values - mean
        squares = float(np.square(apart, out=apart).sum())
        norm = squares + count * mean * mean
        # That fails for NaN and Inf, for extremes, and if all numbers may be equal.
        if squares > _LEAST and norm < _MOST and squares > norm * _NO_SPREAD:
            return BlockSums(count, count, 0, 0, zeros, mean, squares, 0)
    return _careful_sums(values, zeros)


def _careful_sums(values: F8, zeros: int) -> BlockSums:
    """Sum up any numbers: NaN and infinite ones are counted, the others scaled."""
    count = len(values)
    nan = int(np.count_nonzero(np.isnan(values)))
    inf = int(np.count_nonzero(np.isinf(values)))
    if nan or inf:
        values = values[np.isfinite(values)]
    finite = len(values)
    low, high = (float(values.min()), float(values.max())) if finite else (0.0, 0.0)
    exponent = level(max(abs(low), abs(high)))
    if low == high:
        # Equal numbers have no spread, even if their sum was rounded.
        return BlockSums(count, finite, nan, inf, zeros, ldexp(low, -exponent), 0.0, exponent)
    values = down(values, exponent)
    mean = float(values.sum()) / finite
    apart = values - mean
    squares = float(np.square(apart, out=apart).sum())
    return BlockSums(count, finite, nan, inf, zeros, mean, squares, exponent)


@dataclass(slots=True)
class Moments:
    """Mean and standard deviation (of the population) over all blocks that were joined."""

    count: int = 0
    finite: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    _total: Sum = field(default_factory=Sum)
    _squares: Sum = field(default_factory=Sum)

    def join(self, block: BlockSums) -> None:
        """Add a block."""
        self.count += block.count
        self.nan += block.nan
        self.inf += block.inf
        self.zeros += block.zeros
        if not block.finite:
            return
        self._squares.add(block.squares, 2 * block.exponent)
        if self.finite:
            joined = self.finite + block.finite
            mean, exponent = self._total.total / self.finite, self._total.exponent
            top = block.exponent if not mean else exponent
            if mean and block.mean:
                top = max(exponent, block.exponent)
            apart = ldexp(block.mean, block.exponent - top) - ldexp(mean, exponent - top)
            self._squares.add(apart * apart * (self.finite * (block.finite / joined)), 2 * top)
        self._total.add(block.mean * block.finite, block.exponent)
        self.finite += block.finite

    @property
    def mean(self) -> float | None:
        """The mean of the finite numbers; None if there are none."""
        if not self.finite:
            return None
        return scaled(self._total.total / self.finite, self._total.exponent)

    @property
    def std(self) -> float | None:
        if not self.finite:
            return None
        return scaled(sqrt(self._squares.total / self.finite), self._squares.exponent // 2)


MAX_EXPONENT = 480
"""Between these powers of two, squares and sums of squares are within float64's range."""


SMALL_FLOATS = {
    # exponent bits, mantissa bits, bias
    "f8_e4m3": (4, 3, 7),
    "f8_e5m2": (5, 2, 15),
    "f8_e4m3fnuz": (4, 3, 8),
    "f8_e5m2fnuz": (5, 2, 16),
}


@cache
def value_table(element: str) -> NDArray[np.float64]:
    """Return the value of each bit pattern of an element of one or two bytes, as float64."""
    if element == "f8_e8m0":
        return np.array([2.0 ** (byte - 127) for byte in range(255)] + [nan])
    if element in SMALL_FLOATS:
        return np.array([_small_float(byte, element) for byte in range(256)])
    width = ITEM_BYTES[element]
    patterns = np.arange(256**width, dtype=f"<u{width}")
    return values(patterns.view(np.uint8).data, element)


def _small_float(byte: int, element: str) -> float:
    exponent_bits, mantissa_bits, bias = SMALL_FLOATS[element]
    exponent = byte >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = byte & (1 << mantissa_bits) - 1
    if element.endswith("fnuz"):
        # The only NaN has the pattern of a negative zero.
        if byte == 0x80:
            return nan
    elif element == "f8_e4m3":
        if byte & 0x7F == 0x7F:
            return nan
    elif exponent == (1 << exponent_bits) - 1:
        return nan if mantissa else copysign(inf, 128 - byte)
    if exponent:
        mantissa += 1 << mantissa_bits
    value = ldexp(mantissa, max(exponent, 1) - bias - mantissa_bits)
    return -value if byte & 0x80 else value


MAX_RANGES = 256
"""The most ranges that are reported; further ones are joined across the smallest gaps."""
MAX_BLOCKS = 64


class RowChanges:
    """Collects changed items, given in ascending order, as rows of the first dimension."""

    def __init__(self, rows: int, row_items: int) -> None:
        self.rows = rows
        self.changed = 0
        self.exact = True
        self._row_items = row_items
        self.block_rows = 1
        while -(-rows // self.block_rows) > MAX_BLOCKS:
            self.block_rows *= 2
        blocks = -(-rows // self.block_rows)
        self.in_blocks = np.zeros(blocks, np.int64)
        self.squares = [Sum() for _ in range(blocks)]
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._ends: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, items: NDArray[np.int64]) -> None:
        """Add changed items by their indices: ascending, and after all earlier ones."""
        rows = items // self._row_items
        # Items ascend, so equal rows are adjacent: no need to sort, as np.unique would.
        rows = rows[_with_first(rows[1:] != rows[:-1])]
        if len(self._ends) and rows[0] == self._ends[-1] - 1:
            rows = rows[1:]
            if not len(rows):
                return
        self.changed += len(rows)
        self.in_blocks += np.bincount(rows // self.block_rows, minlength=len(self.in_blocks))
        # Each range but the first starts at a row that is not adjacent to the one before.
        firsts = _with_first(rows[1:] - rows[:-1] > 1)
        starts = rows[firsts]
        ends = np.append(rows[:-1][firsts[1:]], rows[-1]) + 1
        if len(self._ends) and starts[0] == self._ends[-1]:
            self._ends[-1] = ends[0]
            starts, ends = starts[1:], ends[1:]
        self._starts = np.concatenate((self._starts, starts))
        self._ends = np.concatenate((self._ends, ends))
        # Not each time: joining sorts all gaps.
        if len(self._starts) > 4 * MAX_RANGES:
            self._join()

    def weigh(self, items: NDArray[np.int64], squares: F8, exponent: int) -> None:
        """Add the squares of changes of these items, divided by 2^exponent."""
        size = self._row_items * self.block_rows
        first, last = int(items[0]) // size, int(items[-1]) // size
        if first == last:
            self.squares[first].add(float(squares.sum()), exponent)
            return
        # Items ascend: those of a block of rows are one run.
        bounds = np.searchsorted(items, np.arange(first + 1, last + 1) * size).tolist()
        runs = zip([0, *bounds], [*bounds, len(squares)], strict=True)
        for block, (start, end) in enumerate(runs, first):
            self.squares[block].add(float(squares[start:end].sum()), exponent)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Changed rows as (first, last + 1), with unchanged ones in them unless `exact`."""
        if len(self._starts) > MAX_RANGES:
            self._join()
        return tuple(zip(self._starts.tolist(), self._ends.tolist(), strict=True))

    def _join(self) -> None:
        """Keep only the MAX_RANGES - 1 widest gaps."""
        # Closing the smallest gaps includes as few unchanged rows as possible.
        gaps = self._starts[1:] - self._ends[:-1]
        widest = np.sort(np.argsort(-gaps, kind="stable")[: MAX_RANGES - 1])
        self._starts = np.append(self._starts[0], self._starts[widest + 1])
        self._ends = np.append(self._ends[widest], self._ends[-1])
        self.exact = False


def _with_first(rest: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the array with a True before it."""
    all_of = np.ones(len(rest) + 1, np.bool_)
    all_of[1:] = rest
    return all_of
