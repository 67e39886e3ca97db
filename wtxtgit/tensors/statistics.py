"""Statistics and histograms of a tensor's values, in one pass over bounded blocks.

Items of one or two bytes are counted by their bit pattern, and everything follows from the counts.
For wider ones each block has its own mean and sum of squares (float64, summed pairwise), and blocks
are joined as in Chan, Golub, LeVeque (1979). Histograms are of values before and after a change,
and of the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import frexp, isfinite, ldexp, prod, sqrt
from sys import float_info
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.progress import Progress
from wtxtgit.io.view import counted
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import bounded_product
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.diff import Numbers, SideFacts
from wtxtgit.report.inspect import Statistics
from wtxtgit.tensors import numbers, tensor_bytes
from wtxtgit.tensors.numbers import BLOCK, F8, MAX_EXPONENT, part_element, scaled, value_table
from wtxtgit.tensors.tensor_bytes import NUMPY, aligned, as_values

if TYPE_CHECKING:  # a diff starts for every file, and must not load the reports of a review
    from wtxtgit.report.review import Distributions

FEW = 65_536
"""Up to this many items are counted by sorting: a table of all patterns would cost more."""


def statistics(tensor: Tensor, progress: Progress | None = None) -> Statistics | None:
    """Return the statistics of a tensor's values; `progress` gets counts of bytes.

    Returns None if its items are not numbers of whole bytes, if there are none, or if there are
    fewer bytes than its shape needs. Raises FormatError if a strided tensor's bytes don't fit its
    shape.
    """
    element = tensor.element
    if element is None or tensor.absent is not None:
        return None
    stored = tensor.nbytes
    items = prod(tensor.shape) if tensor.strides else bounded_product(1, tensor.shape, stored)
    needed = ITEM_BYTES[element] * items
    if needed <= 0 or (tensor.strides is None and stored < needed):
        return None
    if tensor.strides is None:
        # In some formats the size includes padding.
        tensor = tensor.first(needed)
    # Do not warn about signalling NaN.
    with np.errstate(invalid="ignore", over="ignore"):
        if ITEM_BYTES[element] <= 2:
            return _of_patterns(tensor, element, progress)
        result = _of_blocks(tensor, element, progress=progress)
        exponent = frexp(max(abs(result.min or 0), abs(result.max or 0)))[1]
        if element in {"f64", "c128"} and abs(exponent) > MAX_EXPONENT:
            return _of_blocks(tensor, element, exponent)
    return result


def _of_patterns(tensor: Tensor, element: str, progress: Progress | None) -> Statistics:
    """Compute statistics from the count of each bit pattern of one or two bytes."""
    dtype = np.dtype(f"<u{ITEM_BYTES[element]}")
    blocks = counted(tensor_bytes.blocks(tensor, BLOCK), progress)
    raws = (np.frombuffer(block, dtype) for block in blocks)
    # The value of each pattern is known: the tensor only gives counts, which are exact in any
    # order.
    table = value_table(element)
    if prod(tensor.shape) <= FEW:
        patterns, counts = np.unique(np.concatenate(list(raws)), return_counts=True)
        values = table[patterns]
    else:
        counts = np.zeros(len(table), np.int64)
        for raw in raws:
            counts += np.bincount(raw, minlength=len(table))
        values, counts = table[counts > 0], counts[counts > 0]
    finite = np.isfinite(values)
    nans = int(counts[np.isnan(values)].sum())
    infs = int(counts[np.isinf(values)].sum())
    count = int(counts.sum())
    values, counts = values[finite], counts[finite]
    if not len(values):
        return Statistics(count, None, None, None, None, 0, nans, infs)
    finite_count = count - nans - infs
    mean = float((values * counts).sum()) / finite_count
    std = sqrt(float((np.square(values - mean) * counts).sum()) / finite_count)
    least, most = float(values.min()), float(values.max())
    if element in numbers.INTEGERS:
        least, most = int(least), int(most)
    zeros = int(counts[values == 0].sum())
    return Statistics(count, least, most, mean, std, zeros, nans, infs)


def _of_blocks(
    tensor: Tensor, element: str, exponent: int = 0, progress: Progress | None = None
) -> Statistics:
    """Compute statistics block by block; sums are of the numbers divided by 2 ** `exponent`."""
    dtype = np.dtype("<" + NUMPY[part_element(element)])
    sums = _Sums()
    count = zeros = nans = infs = 0
    least: float | None = None
    most: float | None = None
    for block in counted(tensor_bytes.blocks(tensor, BLOCK), progress):
        numbers = np.frombuffer(block, dtype)
        count += len(numbers)
        low, high = numbers.min().item(), numbers.max().item()
        # With a NaN, min and max are NaN, so that no separate pass is needed to find it.
        if not (isfinite(low) and isfinite(high)):
            nans += int(np.count_nonzero(np.isnan(numbers)))
            infs += int(np.count_nonzero(np.isinf(numbers)))
            numbers = numbers[np.isfinite(numbers)]
            if not len(numbers):
                continue
            low, high = numbers.min().item(), numbers.max().item()
        least = low if least is None else min(least, low)
        most = high if most is None else max(most, high)
        zeros += int(np.count_nonzero(numbers == 0))
        if low == high:
            # Equal numbers have no spread, even if their sum was rounded.
            sums.join(len(numbers), ldexp(low, -exponent), 0.0)
            continue
        values = numbers.astype(np.float64)
        if exponent:
            values = np.ldexp(values, -exponent)
        mean = float(values.sum() / len(values))
        values -= mean
        sums.join(len(values), mean, float(np.square(values, out=values).sum()))
    if not sums.count:
        return Statistics(count, None, None, None, None, zeros, nans, infs)
    mean = scaled(sums.mean, exponent)
    std = scaled(sqrt(sums.squares / sums.count), exponent)
    return Statistics(count, least, most, mean, std, zeros, nans, infs)


@dataclass(slots=True)
class _Sums:
    """The mean of `count` numbers, and the sum of squares of their distances from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def join(self, count: int, mean: float, squares: float) -> None:
        """Add other numbers."""
        apart = mean - self.mean
        joined = self.count + count
        self.mean += apart * (count / joined)
        self.squares += squares + apart * apart * (self.count * (count / joined))
        self.count = joined


BINS = 48
SPREAD = 4.0
"""The bins reach this many standard deviations to either side of the mean."""
# Bounds whose distance does not overflow.
_MOST = float_info.max / 4
# The least width for which the bins' widths are not subnormal.
_LEAST = 2.0**-1000

_Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The ranges in which values are counted: those of both sides, and changes."""

    values: tuple[float, float]
    changes: tuple[float, float]


def distributions(
    a: Tensor, b: Tensor, change: Numbers, *, threads: int | None = None
) -> Distributions | None:
    """Count the values of a changed tensor; `change` is the result of comparing it.

    Returns None if the two sides have no numbers in common. Raises FormatError.
    """
    from wtxtgit.report.review import Distributions, Histogram

    before, after = as_values(a), as_values(b)
    if before is None or after is None or before.element is None or after.element is None:
        return None
    elements = before.element, after.element
    if numbers.parts_of(elements[0]) != numbers.parts_of(elements[1]):
        return None
    bounds = _Bounds(_range(change.before, change.after), _range_of_change(change))
    totals = np.zeros((3, BINS + 2), np.int64)
    blocks = aligned(before, ITEM_BYTES[elements[0]], after, ITEM_BYTES[elements[1]], BLOCK)
    tasks = (partial(_count, raw_a, raw_b, elements, bounds) for raw_a, raw_b in blocks)
    with Workers(tasks, worthwhile(threads, before.nbytes)) as counts:
        for of_block in counts:
            totals += of_block
    ranges = (bounds.values, bounds.values, bounds.changes)
    histograms = []
    for total, (low, high) in zip(totals, ranges, strict=True):
        below, *bins, above = total.tolist()
        histograms.append(Histogram(low, high, tuple(bins), below, above))
    return Distributions(*histograms)


def _count(
    raw_a: memoryview, raw_b: memoryview, elements: tuple[str, str], bounds: _Bounds
) -> _Counts:
    """Count a block's values before, after, and their changes."""
    with np.errstate(invalid="ignore", over="ignore"):
        x = numbers.values(raw_a, elements[0])
        of_before = tally(x, bounds.values)
        y = numbers.values(raw_b, elements[1])
        moved = x != y
        old, new = x[moved], y[moved]
        if 2 * len(old) < len(x):
            # Unchanged values are already counted.
            of_after = of_before - tally(old, bounds.values) + tally(new, bounds.values)
        else:
            of_after = tally(y, bounds.values)
        return np.stack((of_before, of_after, tally(new - old, bounds.changes)))


def tally(values: F8, bounds: tuple[float, float]) -> _Counts:
    """Count the values below, in each bin, and above; NaN is not counted."""
    counts = np.zeros(BINS + 2, np.int64)
    # numpy ignores values outside of the bounds, and includes the last edge.
    counts[1:-1] = np.histogram(values, BINS, bounds)[0]
    if counts.sum() != len(values):
        counts[0] = np.count_nonzero(values < bounds[0])
        counts[-1] = np.count_nonzero(values > bounds[1])
    return counts


def _range(*sides: SideFacts) -> tuple[float, float]:
    """Return the range of the values within `SPREAD` standard deviations of their side's mean."""
    ends = []
    for side in sides:
        if side.mean is not None and side.std is not None:
            reach = SPREAD * min(side.std, _MOST)
            ends += [side.mean - reach, side.mean + reach]
    return bounds_apart(min(ends, default=0.0), max(ends, default=0.0))


def _range_of_change(change: Numbers) -> tuple[float, float]:
    """Return a range around 0 that contains most changes."""
    typical = change.l2 / sqrt(change.changed) if change.changed else 0.0
    reach = min(float(change.max_abs), SPREAD * min(typical, _MOST))
    return bounds_apart(-reach, reach)


def bounds_apart(low: float, high: float) -> tuple[float, float]:
    """Widen or narrow bounds to a finite width that can be divided into bins."""
    low, high = (max(-_MOST, min(_MOST, end)) for end in (low, high))
    width = (high - low) / BINS
    if isfinite(width) and low + width > low and high - width < high:
        return low, high
    reach = max(abs(low), abs(high), _LEAST) if low or high else 1.0
    return (low - reach / 2, high + reach / 2) if reach < _MOST else (-_MOST, _MOST)
