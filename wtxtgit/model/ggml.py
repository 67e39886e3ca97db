"""ggml's types, which several formats hold: plain numbers, and blocks of quantised numbers.

A quantised type is an element of its own, named PREFIX plus the type's name. For every
computation its tensors are bytes; a container that holds them has to record their type.
https://github.com/ggml-org/ggml/blob/master/include/ggml.h
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from wtxtgit.model.tensor import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A type of ggml: `block` items are stored in `size` bytes.

    `element` is set if a block is a single item, a plain number.
    """

    name: str
    block: int
    size: int
    element: str | None = None


TYPES = {
    0: GgmlType("F32", 1, 4, "f32"),
    1: GgmlType("F16", 1, 2, "f16"),
    2: GgmlType("Q4_0", 32, 18),
    3: GgmlType("Q4_1", 32, 20),
    6: GgmlType("Q5_0", 32, 22),
    7: GgmlType("Q5_1", 32, 24),
    8: GgmlType("Q8_0", 32, 34),
    9: GgmlType("Q8_1", 32, 40),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: GgmlType("Q4_K", 256, 144),
    13: GgmlType("Q5_K", 256, 176),
    14: GgmlType("Q6_K", 256, 210),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1, "i8"),
    25: GgmlType("I16", 1, 2, "i16"),
    26: GgmlType("I32", 1, 4, "i32"),
    27: GgmlType("I64", 1, 8, "i64"),
    28: GgmlType("F64", 1, 8, "f64"),
    29: GgmlType("IQ1_M", 256, 56),
    30: GgmlType("BF16", 1, 2, "bf16"),
    31: GgmlType("Q4_0_4_4", 32, 18),
    32: GgmlType("Q4_0_4_8", 32, 18),
    33: GgmlType("Q4_0_8_8", 32, 18),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
}


def unknown(number: int) -> GgmlType:
    """Return a type of which only the number is known, so that its tensors have no known length."""
    return GgmlType(str(number), 1, 0)


PREFIX = "ggml:"
"""Prefix of quantised types in the names of elements."""


def element_of(ggml_type: GgmlType) -> str | None:
    """Return the element name of a quantised type; None for plain numbers and for unknown types."""
    return None if ggml_type.element or not ggml_type.size else PREFIX + ggml_type.name


QUANTISED = {
    word: (number, ggml_type)
    for number, ggml_type in TYPES.items()
    if (word := element_of(ggml_type)) is not None
}
"""Number and type for each element that is a quantised type."""


def nbytes_of(element: str, shape: Sequence[int]) -> int | None:
    """Return the size in bytes of a tensor of `shape`.

    `element` is one of `ITEM_BYTES` or QUANTISED. Returns None if a row is not a whole number of
    blocks, or if a dimension is negative.
    """
    if any(dim < 0 for dim in shape):
        return None
    if element in ITEM_BYTES:
        return ITEM_BYTES[element] * prod(shape)
    _, ggml_type = QUANTISED[element]
    rows = stored_shape(ggml_type, shape)
    return None if rows is None else prod(rows)


def stored_shape(ggml_type: GgmlType, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape of a tensor's bytes, row by row as stored.

    Shapes are as in numpy; the row is the last dimension. Returns None if a row is not a whole
    number of blocks.
    """
    if not shape or shape[-1] % ggml_type.block:
        return None
    return (*shape[:-1], shape[-1] // ggml_type.block * ggml_type.size)


def item_shape(ggml_type: GgmlType, stored: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape in items of a tensor whose bytes have the shape `stored`.

    Returns None if no whole number of blocks makes up such bytes.
    """
    if not stored or stored[-1] % ggml_type.size:
        return None
    return (*stored[:-1], stored[-1] // ggml_type.size * ggml_type.block)
