"""Sums over many blocks that neither overflow nor lose what is small.

A sum carries a power of two beside it, so that squares of any float64 are
numbers, and what rounding takes from it (Neumaier, 1974). Inside of a block
numpy sums pairwise. The spread of blocks is joined as in Chan, Golub, LeVeque
(1979).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import copysign, frexp, ldexp, sqrt
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from wtxtgit.tensors.statistics import MAX_EXPONENT

F8 = NDArray[np.float64]

_LEAST, _MOST = 2.0**-900, 2.0**960
"""Sums of squares between which neither the squares nor sums of sums lose anything."""
_NO_SPREAD = 2.0**-90
"""A share of the norm below which the spread may be rounding alone."""


def level(top: float) -> int:
    """The power of two that numbers up to `top` are divided by before they are squared."""
    exponent = frexp(top)[1]
    return exponent if abs(exponent) > MAX_EXPONENT else 0


def scaled(value: float, exponent: int) -> float:
    """value x 2^exponent; the largest float where that would lead beyond it."""
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return copysign(float_info.max, value)


def down(values: F8, exponent: int) -> F8:
    """The values divided by 2^exponent."""
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
        """Take in value x 2^exponent."""
        if not value:
            return
        if not self._value and not self._rest:
            self.exponent = exponent
        elif exponent != self.exponent:
            top = max(exponent, self.exponent)
            self._value = ldexp(self._value, self.exponent - top)
            self._rest = ldexp(self._rest, self.exponent - top)
            value = ldexp(value, exponent - top)
            self.exponent = top
        total = self._value + value
        larger, smaller = self._value, value
        if abs(larger) < abs(smaller):
            larger, smaller = smaller, larger
        self._rest += (larger - total) + smaller
        self._value = total

    def root(self) -> float:
        """The square root of a sum of squares, whose exponent is even."""
        return scaled(sqrt(self.total), self.exponent // 2)


@dataclass(frozen=True, slots=True)
class BlockSums:
    """What a block's numbers add up to: `mean` and `squares` (of distances from it) scaled.

    Both are of the `finite` numbers divided by 2^`exponent`.
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
        """The sum of the squares of the numbers themselves; its exponent is twice as much."""
        return self.squares + self.finite * self.mean * self.mean


def block_sums(values: F8) -> BlockSums:
    """Sum up a block of any numbers."""
    count = len(values)
    zeros = int(np.count_nonzero(values == 0))
    if count:
        mean = float(values.sum()) / count
        apart = values - mean
        squares = float(np.square(apart, out=apart).sum())
        norm = squares + count * mean * mean
        # Not so with NaN and Inf, with extremes, and where all numbers may be equal.
        if squares > _LEAST and norm < _MOST and squares > norm * _NO_SPREAD:
            return BlockSums(count, count, 0, 0, zeros, mean, squares, 0)
    return _careful_sums(values, zeros)


def _careful_sums(values: F8, zeros: int) -> BlockSums:
    """Sum up any numbers: those that are NaN or infinite counted, the others scaled."""
    count = len(values)
    nan = int(np.count_nonzero(np.isnan(values)))
    inf = int(np.count_nonzero(np.isinf(values)))
    if nan or inf:
        values = values[np.isfinite(values)]
    finite = len(values)
    low, high = (float(values.min()), float(values.max())) if finite else (0.0, 0.0)
    exponent = level(max(abs(low), abs(high)))
    if low == high:
        # Equal numbers have no spread, whatever the rounding of their sum.
        return BlockSums(count, finite, nan, inf, zeros, ldexp(low, -exponent), 0.0, exponent)
    values = down(values, exponent)
    mean = float(values.sum()) / finite
    apart = values - mean
    squares = float(np.square(apart, out=apart).sum())
    return BlockSums(count, finite, nan, inf, zeros, mean, squares, exponent)


@dataclass(slots=True)
class Moments:
    """Mean and standard deviation (of the population) of all blocks that were joined."""

    count: int = 0
    finite: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    _total: Sum = field(default_factory=Sum)
    _squares: Sum = field(default_factory=Sum)

    def join(self, block: BlockSums) -> None:
        """Take in a block."""
        self.count += block.count
        self.nan += block.nan
        self.inf += block.inf
        self.zeros += block.zeros
        if not block.finite:
            return
        self._squares.add(block.squares, 2 * block.exponent)
        if self.finite:
            joined = self.finite + block.finite
            held, exponent = self._total.total / self.finite, self._total.exponent
            top = block.exponent if not held else exponent
            if held and block.mean:
                top = max(exponent, block.exponent)
            apart = ldexp(block.mean, block.exponent - top) - ldexp(held, exponent - top)
            self._squares.add(apart * apart * (self.finite * (block.finite / joined)), 2 * top)
        self._total.add(block.mean * block.finite, block.exponent)
        self.finite += block.finite

    @property
    def mean(self) -> float | None:
        """The mean of the finite numbers; None where there is none."""
        if not self.finite:
            return None
        return scaled(self._total.total / self.finite, self._total.exponent)

    @property
    def std(self) -> float | None:
        if not self.finite:
            return None
        return scaled(sqrt(self._squares.total / self.finite), self._squares.exponent // 2)
