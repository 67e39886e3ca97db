"""What became of a quantised tensor, so far as the scales of its blocks show it.

A block of ggml's quantised types has one or two scales, and all its numbers are multiples of them:
if a scale is NaN or infinite, so are the numbers, and if all scales are 0, so are the numbers. If
all scales are multiplied by a factor, so are the numbers. `dequantised` has the numbers of most
types.
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.ggml import QUANTISED
from wtxtgit.model.tensor import Tensor
from wtxtgit.report.diff import ScaleStates
from wtxtgit.tensors.numbers import BLOCK, F8
from wtxtgit.tensors.tensor_bytes import aligned, blocks

_SCALES = {
    # size of a block in bytes, dtype of a scale, positions of scales in the block
    "Q4_0": (18, "<f2", (0,)),
    "Q4_1": (20, "<f2", (0, 2)),
    "Q5_0": (22, "<f2", (0,)),
    "Q5_1": (24, "<f2", (0, 2)),
    "Q8_0": (34, "<f2", (0,)),
    "Q2_K": (84, "<f2", (80, 82)),
    "Q3_K": (110, "<f2", (108,)),
    "Q4_K": (144, "<f2", (0, 2)),
    "Q5_K": (176, "<f2", (0, 2)),
    "Q6_K": (210, "<f2", (208,)),
    "Q8_K": (292, "<f4", (0,)),
    "IQ2_XXS": (66, "<f2", (0,)),
    "IQ2_XS": (74, "<f2", (0,)),
    "IQ2_S": (82, "<f2", (0,)),
    "IQ3_XXS": (98, "<f2", (0,)),
    "IQ3_S": (110, "<f2", (0,)),
    "IQ1_S": (50, "<f2", (0,)),
    "IQ4_NL": (18, "<f2", (0,)),
    "IQ4_XS": (136, "<f2", (0,)),
    "TQ1_0": (54, "<f2", (52,)),
    "TQ2_0": (66, "<f2", (64,)),
}
_Blocks = NDArray[np.bool_]
_Bytes = NDArray[np.uint8]
_NORMAL = 2**-14
"""The least f16 of full precision."""
_ANY: tuple[int, str, tuple[int, ...]] = (1, "", ())
"""For other packed items it is only meaningful whether all bytes are 0."""


def _layout(tensor: Tensor) -> tuple[int, str, tuple[int, ...]]:
    kind = None if tensor.packing is None else QUANTISED[tensor.packing][1].name
    layout = _SCALES.get(kind or "", _ANY)
    return _ANY if tensor.nbytes % layout[0] else layout


def not_finite(tensor: Tensor) -> tuple[int, int, int]:
    """Count the blocks of a quantised tensor that are NaN or infinite by their scales, and all.

    Raises FormatError.
    """
    size, dtype, places = _layout(tensor)
    count = nan = inf = 0
    for raw in blocks(tensor, BLOCK // size * size):
        are_nan, are_inf, _ = _state(raw, size, dtype, places)
        count += len(are_nan)
        nan += int(np.count_nonzero(are_nan))
        inf += int(np.count_nonzero(are_inf))
    return nan, inf, count


def scale_states(a: Tensor, b: Tensor) -> ScaleStates:
    """Compare the scales of two tensors of one dtype and size; raises FormatError."""
    size, dtype, places = _layout(b)
    step = BLOCK // size * size
    count = new_nan = new_inf = zero_before = zero_after = 0
    changes = _ScaleChanges(size, dtype, places)
    for raws in aligned(a, size, b, size, step):
        nan, inf, zero = zip(*(_state(raw, size, dtype, places) for raw in raws), strict=True)
        count += len(raws[1]) // size
        new_nan += int(np.count_nonzero(nan[1] & ~nan[0]))
        new_inf += int(np.count_nonzero(inf[1] & ~inf[0]))
        zero_before += int(np.count_nonzero(zero[0]))
        zero_after += int(np.count_nonzero(zero[1]))
        changes.add(*raws)
    return ScaleStates(
        b.nbytes,
        changes.changed_bytes,
        count,
        new_nan,
        new_inf,
        zero_before,
        zero_after,
        *changes.result(),
        has_scales=bool(places),
    )


class _ScaleChanges:
    """Sums over all blocks of a type; without `places` its scales are not known."""

    def __init__(self, size: int, dtype: str, places: tuple[int, ...]) -> None:
        self._size, self._dtype, self._places = size, dtype, places
        width = np.dtype(dtype).itemsize if places else 0
        of_scales = [at + n for at in places for n in range(width)]
        self._rest = np.setdiff1d(np.arange(size), of_scales)
        self.changed_bytes = 0
        self._changed = self._scaled = 0
        self._factors: list[float] = []
        self._before = self._after = self._both = 0.0

    def add(self, raw_a: memoryview, raw_b: memoryview) -> None:
        a, b = (np.frombuffer(raw, np.uint8).reshape(-1, self._size) for raw in (raw_a, raw_b))
        differs = a != b
        self.changed_bytes += int(np.count_nonzero(differs))
        if not self._places:
            return
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            x, y = self._scales(a), self._scales(b)
            self._count(differs, x, y)
            finite = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
            x, y = x[finite], y[finite]
            self._before += float(np.einsum("ij,ij->", x, x))
            self._after += float(np.einsum("ij,ij->", y, y))
            self._both += float(np.einsum("ij,ij->", x, y))

    def _scales(self, packed: _Bytes) -> F8:
        return np.stack([_field(packed, at, self._dtype) for at in self._places], axis=1)

    def _count(self, differs: _Blocks, before: F8, after: F8) -> None:
        """Count changed blocks, and those in which only the scales changed, with their factors."""
        changed = np.logical_or.reduce(differs, axis=1)
        scaled = changed & ~np.logical_or.reduce(differs[:, self._rest], axis=1)
        self._changed += int(np.count_nonzero(changed))
        self._scaled += int(np.count_nonzero(scaled))
        # The quotients of smaller numbers are imprecise.
        measurable = scaled[:, None] & (np.abs(before) >= _NORMAL) & (np.abs(after) >= _NORMAL)
        factors = (after / before)[measurable & np.isfinite(before) & np.isfinite(after)]
        if len(factors):
            extremes = [*self._factors, float(factors.min()), float(factors.max())]
            self._factors = [min(extremes), max(extremes)]

    def result(
        self,
    ) -> tuple[int, int, tuple[float, float] | None, float | None, float | None]:
        factors = (self._factors[0], self._factors[1]) if self._factors else None
        cosine = times = None
        if self._before and self._after:
            norms = sqrt(self._before), sqrt(self._after)
            cosine = self._both / norms[0] / norms[1]
            times = norms[1] / norms[0]
        return self._changed, self._scaled, factors, cosine, times


def _field(packed: _Bytes, at: int, dtype: str) -> F8:
    width = np.dtype(dtype).itemsize
    field = np.ascontiguousarray(packed[:, at : at + width]).view(dtype)[:, 0]
    values: F8 = field.astype(np.float64)
    return values


def _state(
    raw: memoryview, size: int, dtype: str, places: tuple[int, ...]
) -> tuple[_Blocks, _Blocks, _Blocks]:
    """Return which blocks are NaN, infinite, or 0."""
    packed = np.frombuffer(raw, np.uint8).reshape(-1, size)
    none = np.zeros(len(packed), np.bool_)
    if not places:
        return none, none, packed[:, 0] == 0
    width = np.dtype(dtype).itemsize
    scales = [np.ascontiguousarray(packed[:, at : at + width]).view(dtype)[:, 0] for at in places]
    nan = np.logical_or.reduce([np.isnan(scale) for scale in scales])
    inf = np.logical_or.reduce([np.isinf(scale) for scale in scales])
    return nan, inf & ~nan, np.logical_and.reduce([scale == 0 for scale in scales])
