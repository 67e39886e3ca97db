"""Histograms of a tensor's values before and after, and of the change, in one pass over blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isfinite, sqrt
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.workers import Pool
from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.model.reading import Tensor
from wtxtgit.report.diff import Numbers, SideFacts
from wtxtgit.report.review import Distributions, Histogram
from wtxtgit.tensors import numbers
from wtxtgit.tensors.compare import aligned, as_numbers
from wtxtgit.tensors.statistics import BLOCK
from wtxtgit.tensors.sums import F8

BINS = 48
SPREAD = 4.0
"""Standard deviations on either side of the mean that bins are for."""
_MOST = float_info.max / 4
"""Bounds between which a width is a number."""
_LEAST = 2.0**-1000
"""A width of which the bins' are no subnormal numbers."""

_Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Between which values are counted: those of either side, and changes."""

    values: tuple[float, float]
    changes: tuple[float, float]


def distributions(
    a: Tensor, b: Tensor, change: Numbers, *, threads: int | None = None
) -> Distributions | None:
    """Count the values of a tensor that changed, `change` being what a comparison told of it.

    None where the two have no numbers in common. Raises FormatError.
    """
    before, after = as_numbers(a), as_numbers(b)
    if before is None or after is None or before.element is None or after.element is None:
        return None
    elements = before.element, after.element
    if numbers.parts_of(elements[0]) != numbers.parts_of(elements[1]):
        return None
    bounds = _Bounds(_range(change.before, change.after), _range_of_change(change))
    totals = np.zeros((3, BINS + 2), np.int64)
    blocks = aligned(before, ITEM_BYTES[elements[0]], after, ITEM_BYTES[elements[1]], BLOCK)
    tasks = (partial(_count, raw_a, raw_b, elements, bounds) for raw_a, raw_b in blocks)
    with Pool(threads, before.nbytes, 1) as pool:
        for found in pool.ordered(tasks):
            totals += found
    ranges = (bounds.values, bounds.values, bounds.changes)
    return Distributions(*map(_histogram, totals, ranges))


def _count(
    raw_a: memoryview, raw_b: memoryview, elements: tuple[str, str], bounds: _Bounds
) -> _Counts:
    """Count a block's values before, after, and their changes."""
    with np.errstate(invalid="ignore", over="ignore"):
        x = numbers.values(raw_a, elements[0])
        of_before = _tally(x, bounds.values)
        y = numbers.values(raw_b, elements[1])
        moved = x != y
        old, new = x[moved], y[moved]
        if 2 * len(old) < len(x):
            # What stayed is counted already.
            of_after = of_before - _tally(old, bounds.values) + _tally(new, bounds.values)
        else:
            of_after = _tally(y, bounds.values)
        return np.stack((of_before, of_after, _tally(new - old, bounds.changes)))


def _tally(values: F8, bounds: tuple[float, float]) -> _Counts:
    """How many values are below, in each bin, and above; NaN is nowhere."""
    counts = np.zeros(BINS + 2, np.int64)
    counts[1:-1] = np.histogram(values, BINS, bounds)[0]
    if counts.sum() != len(values):
        counts[0] = np.count_nonzero(values < bounds[0])
        counts[-1] = np.count_nonzero(values > bounds[1])
    return counts


def _histogram(counts: _Counts, bounds: tuple[float, float]) -> Histogram:
    below, *bins, above = counts.tolist()
    return Histogram(*bounds, tuple(bins), below, above)


def _range(*sides: SideFacts) -> tuple[float, float]:
    """From the least to the largest value that is no outlier of its side."""
    ends = []
    for side in sides:
        if side.mean is not None and side.std is not None:
            reach = SPREAD * min(side.std, _MOST)
            ends += [side.mean - reach, side.mean + reach]
    return _apart(min(ends, default=0.0), max(ends, default=0.0))


def _range_of_change(change: Numbers) -> tuple[float, float]:
    """As far to either side of 0 as most changes go."""
    typical = change.l2 / sqrt(change.changed) if change.changed else 0.0
    reach = min(float(change.max_abs), SPREAD * min(typical, _MOST))
    return _apart(-reach, reach)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Bounds of finite width that bins fit between."""
    low, high = (max(-_MOST, min(_MOST, end)) for end in (low, high))
    width = (high - low) / BINS
    if isfinite(width) and low + width > low and high - width < high:
        return low, high
    reach = max(abs(low), abs(high), _LEAST) if low or high else 1.0
    return (low - reach / 2, high + reach / 2) if reach < _MOST else (-_MOST, _MOST)
