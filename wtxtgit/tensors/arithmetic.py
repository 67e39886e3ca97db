"""Numbers that both sides changed, put together by a strategy.

Computed in float64 and rounded once to the nearest number of the dtype, ties
to even; integers exactly. What the dtype can't hold is told, never made to fit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.report.merge import Strategy
from wtxtgit.tensors import numbers
from wtxtgit.tensors.sums import F8
from wtxtgit.tensors.tensor_bytes import NUMPY

U1 = NDArray[np.uint8]
_Bits = NDArray[Any]
_Truth = NDArray[np.bool_]
_HALF_RANGE = 2.0**63


def combine(
    strategy: Strategy, base: U1 | None, ours: U1, theirs: U1, element: str
) -> tuple[U1, _Truth]:
    """Items as `strategy` (average or task) has them, and which of them could be made.

    All are whole items, little-endian, as flat bytes. average: (ours +
    theirs) / 2. task: base + (ours - base) + (theirs - base); an item that
    only one side changed is that side's as it is. Equal items stay.
    """
    x, y = _bits(ours, element), _bits(theirs, element)
    if strategy is Strategy.AVERAGE or base is None:
        made, good = _average(x, y, element)
        keep = x == y
    else:
        z = _bits(base, element)
        made, good = _task(z, x, y, element)
        made = np.where(x == z, y, made)
        keep = y == z
        good |= x == z
    made = np.where(keep, x, made)
    good |= keep
    parts = numbers.parts_of(element)
    whole: _Truth = np.logical_and.reduce(good.reshape(-1, parts), axis=1)
    return made.view(np.uint8), whole


def _average(x: _Bits, y: _Bits, element: str) -> tuple[_Bits, _Truth]:
    if element == "bool":
        return x, np.zeros(len(x), np.bool_)
    if element in numbers.INTEGERS:
        a, b = _integers(x, element), _integers(y, element)
        low = (a & b) + ((a ^ b) >> a.dtype.type(1))
        odd = (a ^ b) & low & a.dtype.type(1)
        mean = low + odd
        return mean.view(x.dtype), np.ones(len(x), np.bool_)
    a, b = _floats(x, element), _floats(y, element)
    with np.errstate(all="ignore"):
        # Half of each first: their sum may be beyond all floats.
        return _rounded(a / 2 + b / 2, element)


def _task(z: _Bits, x: _Bits, y: _Bits, element: str) -> tuple[_Bits, _Truth]:
    if element == "bool":
        # Both changed it: there is one other value.
        return x, np.ones(len(x), np.bool_)
    if element in numbers.INTEGERS:
        a, b, c = (_integers(side, element) for side in (z, x, y))
        with np.errstate(over="ignore"):
            total = b + c - a
        # Modulo 2^n it is right; a float tells whether it is right without.
        about = b.astype(np.float64) + c.astype(np.float64) - a.astype(np.float64)
        near = np.abs(about - total.astype(np.float64))
        return total.view(x.dtype), near < _HALF_RANGE / 2.0 ** (64 - 8 * x.itemsize)
    a, b, c = (_floats(side, element) for side in (z, x, y))
    with np.errstate(all="ignore"):
        return _rounded(a + (b - a) + (c - a), element)


def _bits(raw: U1, element: str) -> _Bits:
    return np.frombuffer(raw, f"<u{ITEM_BYTES[numbers.part_element(element)]}")


def _integers(bits: _Bits, element: str) -> NDArray[Any]:
    return bits.view("<" + NUMPY[element])


def _floats(bits: _Bits, element: str) -> F8:
    return numbers.values(bits.view(np.uint8).data, element)


def _rounded(values: F8, element: str) -> tuple[_Bits, _Truth]:
    """The nearest numbers of the dtype as bits; False where there is no finite one."""
    element = numbers.part_element(element)
    word = NUMPY.get(element)
    if word is not None:
        made = values.astype("<" + word)
        good: _Truth = np.isfinite(made)
        return made.view(f"<u{made.itemsize}"), good
    patterns, known = _finite(element)
    good = np.isfinite(values) & (values >= known[0]) & (values <= known[-1])
    values = np.where(good, values, known[0])
    above = np.clip(np.searchsorted(known, values), 1, len(known) - 1)
    below = above - 1
    up, down = known[above] - values, values - known[below]
    is_tie_up = (up == down) & (patterns[above] % 2 == 0)
    found: _Bits = patterns[np.where((up < down) | is_tie_up, above, below)]
    return found, good


@cache
def _finite(element: str) -> tuple[_Bits, F8]:
    """All finite numbers of a small float, ascending: their bits, and their values."""
    width = ITEM_BYTES[element]
    patterns = np.arange(2 ** (8 * width), dtype=f"<u{width}")
    values = numbers.values(patterns.view(np.uint8).data, element)
    finite = np.isfinite(values)
    patterns, values = patterns[finite], values[finite]
    # Of the two zeros the positive one, which has the smaller bits, comes first and stays.
    values, first = np.unique(values, return_index=True)
    return patterns[first], values
