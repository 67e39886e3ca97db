"""What the reference library reads, where that is less than could be read.

Source: https://github.com/huggingface/safetensors, `safetensors/src/tensor.rs` of 0.8.
"""

from __future__ import annotations

MAX_HEADER = 100_000_000
"""Bytes of the longest header."""

ITEM_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of one item of each dtype that it knows, in its order, which is that of alignment."""
