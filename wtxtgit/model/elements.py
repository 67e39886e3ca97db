"""Names for what a tensor's items are, the same for all formats.

Each format has words of its own (`F32`, `Float32`, `<f4`, `float32`); readers
translate them to these, writers from these.
"""

from __future__ import annotations

ITEM_BYTES = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8_e4m3": 1,
    "f8_e5m2": 1,
    "f8_e8m0": 1,
    "f8_e4m3fnuz": 1,
    "f8_e5m2fnuz": 1,
    "i64": 8,
    "u64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
    "i8": 1,
    "u8": 1,
    "bool": 1,
    "c64": 8,
    "c128": 16,
}
"""Bytes of one item of each element."""
