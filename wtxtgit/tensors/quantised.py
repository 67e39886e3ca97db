"""What became of a quantised tensor, so far as the scales of its blocks show it.

A block of ggml's quantised types has one or two scales, and all its numbers are multiples of them:
if a scale is NaN or infinite, so are the numbers, and if all scales are 0, so are the numbers.
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.tensor import Tensor
from wtxtgit.report.diff import ScaleStates
from wtxtgit.tensors.numbers import BLOCK
from wtxtgit.tensors.tensor_bytes import aligned

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
_ANY: tuple[int, str, tuple[int, ...]] = (1, "", ())
"""For other packed items it is only meaningful whether all bytes are 0."""


def scale_states(a: Tensor, b: Tensor) -> ScaleStates:
    """Compare the scales of two tensors of one dtype and size; raises FormatError."""
    size, dtype, places = _SCALES.get(b.dtype, _ANY)
    if b.nbytes % size or b.byteorder != "little":
        size, dtype, places = _ANY
    step = BLOCK // size * size
    blocks = new_nan = new_inf = zero_before = zero_after = 0
    for raws in aligned(a, size, b, size, step):
        nan, inf, zero = zip(*(_state(raw, size, dtype, places) for raw in raws), strict=True)
        blocks += len(raws[1]) // size
        new_nan += int(np.count_nonzero(nan[1] & ~nan[0]))
        new_inf += int(np.count_nonzero(inf[1] & ~inf[0]))
        zero_before += int(np.count_nonzero(zero[0]))
        zero_after += int(np.count_nonzero(zero[1]))
    return ScaleStates(blocks, new_nan, new_inf, zero_before, zero_after)


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
