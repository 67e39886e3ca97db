"""Statistics of a tensor's values, in one pass over bounded blocks.

Items of one or two bytes are counted by their bit pattern, and all that is
told follows from the counts. Of wider ones each block has its own mean and
sum of squares (float64, summed pairwise), and blocks are joined as in Chan,
Golub, LeVeque (1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import copysign, frexp, inf, isfinite, ldexp, nan, prod, sqrt
from sys import float_info
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.model.reading import Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import NUMPY, PARTS

BLOCK = 256 * 1024
"""Bytes that are worked on at a time: what they become fits into a processor's cache."""
FEW = 65_536
"""Items that are sorted to be counted: a table of all patterns would cost more."""
MAX_EXPONENT = 480
"""Powers of two between which squares, and sums of them, are numbers of float64."""

SMALL_FLOATS = {
    # exponent bits, mantissa bits, bias
    "f8_e4m3": (4, 3, 7),
    "f8_e5m2": (5, 2, 15),
    "f8_e4m3fnuz": (4, 3, 8),
    "f8_e5m2fnuz": (5, 2, 16),
}


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a tensor's `count` numbers are like; those that are NaN or infinite only counted.

    `min` and `max` are exact, integers of integers. `std` is that of the
    population. All four are None where no number is finite. The real and
    imaginary parts of complex items are numbers of their own, booleans are 0
    and 1.
    """

    count: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    zeros: int
    nan: int
    inf: int

    @property
    def zeros_share(self) -> float:
        """Zeros, of either sign, of all numbers."""
        return self.zeros / self.count

    def as_dict(self) -> dict[str, int | float | None]:
        return {
            "count": self.count,
            "min": self.min,
            "max": self.max,
            "mean": self.mean,
            "std": self.std,
            "zeros": self.zeros,
            "zeros_share": self.zeros_share,
            "nan": self.nan,
            "inf": self.inf,
        }


def statistics(tensor: Tensor) -> Statistics | None:
    """The statistics of a tensor's values.

    None where its items are no numbers of whole bytes, there are none, or the
    bytes at hand are fewer than its shape needs. Raises FormatError where a
    strided tensor's bytes don't fit its shape.
    """
    element = tensor.element
    if element is None or tensor.absent is not None:
        return None
    held = tensor.nbytes
    items = prod(tensor.shape) if tensor.strides else tensor_bytes.item_count(tensor.shape, held)
    needed = ITEM_BYTES[element] * items
    if needed <= 0 or (tensor.strides is None and held < needed):
        return None
    if tensor.strides is None:
        # Some formats count padding in.
        tensor = tensor.first(needed)
    # A signalling NaN is no reason to warn.
    with np.errstate(invalid="ignore", over="ignore"):
        if ITEM_BYTES[element] <= 2:
            return _of_patterns(tensor, element)
        found = _of_blocks(tensor, element)
        exponent = frexp(max(abs(found.min or 0), abs(found.max or 0)))[1]
        if element in {"f64", "c128"} and abs(exponent) > MAX_EXPONENT:
            return _of_blocks(tensor, element, exponent)
    return found


def _of_patterns(tensor: Tensor, element: str) -> Statistics:
    """From how often each bit pattern of one or two bytes is there."""
    dtype = np.dtype(f"<u{ITEM_BYTES[element]}")
    raws = (np.frombuffer(block, dtype) for block in tensor_bytes.blocks(tensor, BLOCK))
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
    told = count - nans - infs
    mean = float((values * counts).sum()) / told
    std = sqrt(float((np.square(values - mean) * counts).sum()) / told)
    least, most = float(values.min()), float(values.max())
    if not _is_float(element):
        least, most = int(least), int(most)
    zeros = int(counts[values == 0].sum())
    return Statistics(count, least, most, mean, std, zeros, nans, infs)


@cache
def value_table(element: str) -> NDArray[np.float64]:
    """The value of each bit pattern of an element of one or two bytes, as float64."""
    if element == "f8_e8m0":
        return np.array([2.0 ** (byte - 127) for byte in range(255)] + [nan])
    if element in SMALL_FLOATS:
        return np.array([_small_float(byte, element) for byte in range(256)])
    width = ITEM_BYTES[element]
    patterns: NDArray[Any] = np.arange(256**width, dtype=f"<u{width}")
    if element == "bool":
        patterns = patterns != 0
    elif element == "bf16":
        patterns = (patterns.astype("<u4") << 16).view("<f4")
    else:
        patterns = patterns.view("<" + NUMPY[element])
    return patterns.astype(np.float64)


def _small_float(byte: int, element: str) -> float:
    exponent_bits, mantissa_bits, bias = SMALL_FLOATS[element]
    exponent = byte >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = byte & (1 << mantissa_bits) - 1
    if element.endswith("fnuz"):
        # The pattern of a negative zero is the one NaN.
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


def _of_blocks(tensor: Tensor, element: str, exponent: int = 0) -> Statistics:
    """From each block in turn; sums are of the numbers divided by 2 ** `exponent`."""
    dtype = np.dtype("<" + NUMPY[element])
    if element in PARTS:
        dtype = np.dtype(f"<f{dtype.itemsize // PARTS[element]}")
    sums = _Sums()
    count = zeros = nans = infs = 0
    least: float | None = None
    most: float | None = None
    for block in tensor_bytes.blocks(tensor, BLOCK):
        numbers = np.frombuffer(block, dtype)
        count += len(numbers)
        low, high = numbers.min().item(), numbers.max().item()
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
            # Equal numbers have no spread, whatever the rounding of their sum.
            sums.join(len(numbers), ldexp(low, -exponent), 0.0)
            continue
        scaled = numbers.astype(np.float64)
        if exponent:
            scaled = np.ldexp(scaled, -exponent)
        mean = float(scaled.sum() / len(scaled))
        scaled -= mean
        sums.join(len(scaled), mean, float(np.square(scaled, out=scaled).sum()))
    if not sums.count:
        return Statistics(count, None, None, None, None, zeros, nans, infs)
    mean = _scaled(sums.mean, exponent)
    std = _scaled(sqrt(sums.squares / sums.count), exponent)
    return Statistics(count, least, most, mean, std, zeros, nans, infs)


def _scaled(value: float, exponent: int) -> float:
    """value x 2^exponent; the largest float where rounding would lead beyond it."""
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return copysign(float_info.max, value)


@dataclass(slots=True)
class _Sums:
    """The mean of `count` numbers, and the sum of the squares of their distances from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def join(self, count: int, mean: float, squares: float) -> None:
        """Take in other numbers."""
        apart = mean - self.mean
        joined = self.count + count
        self.mean += apart * (count / joined)
        self.squares += squares + apart * apart * (self.count * (count / joined))
        self.count = joined


def _is_float(element: str) -> bool:
    return element[0] in "fbc" and element != "bool"
