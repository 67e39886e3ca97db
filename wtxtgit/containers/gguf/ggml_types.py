"""The types of ggml tensors: how many items a block has, and how many bytes.

A type whose block is one item is a number; the others are quantised, and
their items are known by block alone. Of the numbers that ggml has given up
31 to 33 stood in files; 4, 5 and 36 to 38 stay unknown.
Facts of https://github.com/ggml-org/ggml/blob/master/include/ggml.h
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GgmlType:
    """`block` items are stored in `size` bytes; `element` is set where the block is an item."""

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
    """A type of which only the number is known: nobody can say how long its tensors are."""
    return GgmlType(str(number), 1, 0)
