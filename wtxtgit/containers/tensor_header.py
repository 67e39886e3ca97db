"""The header of a safetensors file, also where a chunk of a container holds one.

u64 length (little-endian), then that many bytes of JSON: an object that maps
tensor names to dtype, shape and data_offsets, which count from its end.
Spec: `docs/spec/containers.md`, "safetensors"; https://github.com/huggingface/safetensors
"""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.containers import json_limits
from wtxtgit.containers.cursor import Cursor, check_inside, fail, quoted
from wtxtgit.containers.magic import SAFETENSORS_BRACE, SAFETENSORS_LENGTH_SIZE
from wtxtgit.containers.ranges import MAX_TENSORS, Numeric, Stored
from wtxtgit.errors import FormatError

METADATA_KEY = "__metadata__"

NUMERIC = {
    "F64": Numeric("f64"),
    "F32": Numeric("f32"),
    "F16": Numeric("u16"),
    "BF16": Numeric("u16"),
    "I64": Numeric("i64"),
    "U64": Numeric("u64"),
    "I32": Numeric("i32"),
    "U32": Numeric("u32"),
    "I16": Numeric("i16"),
    "U16": Numeric("u16"),
    "I8": Numeric("i8"),
    "U8": Numeric("u8"),
    "BOOL": Numeric("u8"),
    "F8_E4M3": Numeric("u8"),
    "F8_E5M2": Numeric("u8"),
    "F8_E8M0": Numeric("u8"),
    "F8_E4M3FNUZ": Numeric("u8"),
    "F8_E5M2FNUZ": Numeric("u8"),
    "C64": Numeric("f32", parts=2),
    "C128": Numeric("f64", parts=2),
}
"""WTXT's dtype for each dtype whose items are whole bytes."""


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Tensors in the header's order, at offsets in the whole buffer; `end` is the header's."""

    end: int
    tensors: tuple[Stored, ...]
    metadata: object


def read(data: memoryview, start: int, end: int) -> TensorHeader:
    """Read the header of the safetensors file that is data[start:end].

    Raises FormatError.
    """
    cursor = Cursor(data[:end], start)
    length = cursor.integer(SAFETENSORS_LENGTH_SIZE, "header length")
    body = cursor.take(length, "header")
    if not body or body[0] != SAFETENSORS_BRACE:
        fail("header is not a JSON object", offset=cursor.pos - length, field="header")
    items = json_limits.parse(body, "header", offset=cursor.pos - length, unique_keys=True)
    if not isinstance(items, dict):
        fail("header is not a JSON object", offset=cursor.pos - length, field="header")
    metadata = items.pop(METADATA_KEY, None)
    if len(items) > MAX_TENSORS:
        fail(f"header lists {len(items)} tensors", offset=start, field="header", kind="limit")
    tensors = tuple(_tensor(name, item, cursor.pos, end) for name, item in items.items())
    return TensorHeader(cursor.pos, tensors, metadata)


def _tensor(name: str, item: object, base: int, end: int) -> Stored:
    json_limits.check_name(name, "tensor name", offset=base)
    if not isinstance(item, dict):
        raise _wrong(name, "entry", base)
    dtype = item.get("dtype")
    if not isinstance(dtype, str):
        raise _wrong(name, "dtype", base)
    json_limits.check_name(dtype, "dtype", offset=base)
    shape = _sizes(item.get("shape"))
    if shape is None:
        raise _wrong(name, "shape", base)
    offsets = _sizes(item.get("data_offsets"))
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _wrong(name, "data_offsets", base)
    first, last = offsets
    check_inside(base + first, last - first, end, f"tensor {quoted(name)}")
    return Stored(name, dtype, shape, base + first, base + last)


def _sizes(value: object) -> tuple[int, ...] | None:
    """A list of integers >= 0, None if it is anything else; a boolean is no integer."""
    if not isinstance(value, list):
        return None
    for size in value:
        if type(size) is not int or size < 0:
            return None
    return tuple(value)


def _wrong(name: str, key: str, offset: int) -> FormatError:
    return FormatError(f"tensor {quoted(name)} has a wrong {key}", offset=offset, field=key)
