"""torch's words for dtypes and storages, and what their items are.

A dtype is named without `torch.`. Storages have a class for each dtype that
torch had when the format was made; the others are bytes, `UntypedStorage`,
whose tensors name their dtype.
Source: torch/storage.py, `_dtype_to_storage_type_map` and `_new_dtypes`.
"""

from __future__ import annotations

from wtxtgit.model.tensor import ITEM_BYTES

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt8Storage": "quint8",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}
"""The dtype of each storage class."""

ELEMENTS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "float8_e8m0fnu": "f8_e8m0",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    "int64": "i64",
    "uint64": "u64",
    "int32": "i32",
    "uint32": "u32",
    "int16": "i16",
    "uint16": "u16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
    "complex128": "c128",
}
"""The element of each dtype whose items are numbers of whole bytes."""

SIZES = {
    **{dtype: ITEM_BYTES[element] for dtype, element in ELEMENTS.items()},
    "complex32": 4,
    "float4_e2m1fn_x2": 1,
    "bits8": 1,
    "bits16": 2,
    "bits1x8": 1,
    "bits2x4": 1,
    "bits4x2": 1,
    "qint8": 1,
    "qint32": 4,
    "quint8": 1,
    "quint4x2": 1,
    "quint2x4": 1,
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
}
"""Bytes of one item of each dtype, of one byte of those that are packed."""

PACKED = {"quint4x2": 2, "quint2x4": 4}
"""Items in a byte of each packed dtype: shapes count items, storages bytes."""
