"""A tensor's bytes as numbers: float64, or exact distances of integers and floats.

All bytes are little-endian, in C order (`tensor_bytes.blocks`). The real and
imaginary parts of complex items are numbers of their own, as for statistics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.tensors.statistics import SMALL_FLOATS, value_table
from wtxtgit.tensors.sums import F8
from wtxtgit.tensors.tensor_bytes import NUMPY, PARTS

U8 = NDArray[np.uint64]

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
    """What a number of the element is: of complex items the part."""
    return {"c64": "f32", "c128": "f64"}.get(element, element)


def parts_of(element: str) -> int:
    """Numbers of an item."""
    return PARTS.get(element, 1)


def values(raw: memoryview, element: str) -> F8:
    """The numbers as float64; integers over 2^53 are rounded."""
    # A signalling NaN is a NaN.
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
    found: F8 = np.frombuffer(raw, "<" + NUMPY[element]).astype(np.float64, copy=False)
    return found


def patterns(raw: memoryview, element: str) -> NDArray[Any]:
    """The numbers' bits as unsigned integers."""
    return np.frombuffer(raw, f"<u{ITEM_BYTES[part_element(element)]}")


def integer_distances(
    a: memoryview, b: memoryview, element: str, picks: NDArray[np.intp] | None
) -> U8:
    """|b - a| of the picked 64-bit integers (all where None), exact."""
    word = "<" + NUMPY[element]
    x, y = np.frombuffer(a, word), np.frombuffer(b, word)
    if picks is not None:
        x, y = x[picks], y[picks]
    low, high = np.minimum(x, y), np.maximum(x, y)
    # Modulo 2^64 the difference is right even where it does not fit into 63 bits.
    apart: U8 = high.view(np.uint64) - low.view(np.uint64)
    return apart


def ulp_buckets(
    a: memoryview, b: memoryview, element: str, picks: NDArray[np.intp] | None
) -> NDArray[np.int64]:
    """How many of the picked floats (all where None) are how many floats of theirs apart.

    Bucket 0 is for +0 and -0, bucket k for 2^(k-1) up to 2^k.
    """
    x, y = patterns(a, element), patterns(b, element)
    if picks is not None:
        x, y = x[picks], y[picks]
    if element == UNSIGNED_FLOAT:
        apart = np.maximum(x, y) - np.minimum(x, y)
    else:
        sign = x.dtype.type(1 << (8 * x.itemsize - 1))
        size_x, size_y = x & ~sign, y & ~sign
        between = np.maximum(size_x, size_y) - np.minimum(size_x, size_y)
        apart = np.where((x ^ y) & sign, size_x + size_y, between)
    if apart.itemsize == 8:
        # A float64 would round large ones up into the next bucket.
        apart = np.where(apart >= _BEYOND, apart & _KEPT, apart)
    # Distance d > 0 is in the bucket of its binary exponent.
    exponents = (apart.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.intp)
    counts = np.bincount(exponents, minlength=_BIAS + BUCKETS)
    counts[_BIAS - 1] = counts[0]
    return counts[_BIAS - 1 : _BIAS - 1 + BUCKETS]
