"""The dtypes of tensors: the one table of what each is called, how wide it is, and what carries it.

Formats have their own names for these elements, in their own packages; nothing else maps dtypes.
"""

from __future__ import annotations

from typing import NamedTuple


class Dtype(NamedTuple):
    """A dtype whose items are numbers of whole bytes.

    `size` is that of an item in bytes. `numpy` is numpy's spelling, little-endian, or the name that
    the package ml_dtypes registers with numpy. In a text, `carrier` is the dtype that holds the
    bytes, and `parts` is how many of its numbers, each with a byte order, make up an item.
    """

    size: int
    numpy: str
    carrier: str
    parts: int = 1

    @property
    def is_extension(self) -> bool:
        """Whether numpy has the dtype only once ml_dtypes is imported."""
        return self.numpy[0] not in "<|"


DTYPES = {
    "f64": Dtype(8, "<f8", "f64"),
    "f32": Dtype(4, "<f4", "f32"),
    "f16": Dtype(2, "<f2", "u16"),
    "bf16": Dtype(2, "bfloat16", "u16"),
    "f8_e4m3": Dtype(1, "float8_e4m3fn", "u8"),
    "f8_e5m2": Dtype(1, "float8_e5m2", "u8"),
    "f8_e8m0": Dtype(1, "float8_e8m0fnu", "u8"),
    "f8_e4m3fnuz": Dtype(1, "float8_e4m3fnuz", "u8"),
    "f8_e5m2fnuz": Dtype(1, "float8_e5m2fnuz", "u8"),
    "i64": Dtype(8, "<i8", "i64"),
    "u64": Dtype(8, "<u8", "u64"),
    "i32": Dtype(4, "<i4", "i32"),
    "u32": Dtype(4, "<u4", "u32"),
    "i16": Dtype(2, "<i2", "i16"),
    "u16": Dtype(2, "<u2", "u16"),
    "i8": Dtype(1, "|i1", "i8"),
    "u8": Dtype(1, "|u1", "u8"),
    "bool": Dtype(1, "|b1", "u8"),
    "c64": Dtype(8, "<c8", "f32", 2),
    "c128": Dtype(16, "<c16", "f64", 2),
}
"""Each dtype by its common name, which is called an element."""
ELEMENTS = {dtype.numpy: element for element, dtype in DTYPES.items()}
"""The element of each of numpy's spellings."""
