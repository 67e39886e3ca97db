"""The header of a safetensors file, also inside a chunk of another container.

u64 length (little-endian), then that many bytes of JSON: an object that maps tensor names to dtype,
shape and data_offsets, which count from the end of the header. Spec: `docs/spec/containers.md`,
"safetensors"; https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wtxtgit.containers import json_text
from wtxtgit.containers.cursor import Cursor, ListingBudget, check_inside, fail, quoted
from wtxtgit.containers.ranges import MAX_TENSORS, Stored
from wtxtgit.containers.signatures import MAX_JSON, SAFETENSORS_BRACE, SAFETENSORS_LENGTH_SIZE
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView

METADATA_KEY = "__metadata__"
TENSOR_KEYS = frozenset({"dtype", "shape", "data_offsets"})
ALIGNMENT = 8
"""Writers start the bytes of the tensors at a multiple of this."""

ELEMENTS = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "I64": "i64",
    "U64": "u64",
    "I32": "i32",
    "U32": "u32",
    "I16": "i16",
    "U16": "u16",
    "I8": "i8",
    "U8": "u8",
    "BOOL": "bool",
    "F8_E4M3": "f8_e4m3",
    "F8_E5M2": "f8_e5m2",
    "F8_E8M0": "f8_e8m0",
    "F8_E4M3FNUZ": "f8_e4m3fnuz",
    "F8_E5M2FNUZ": "f8_e5m2fnuz",
    "C64": "c64",
    "C128": "c128",
}
"""The element of each dtype whose items are whole bytes."""


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Tensors in the header's order, with offsets in the buffer; `end` is the header's end.

    `further` has, by name, what entries of tensors say besides the format's keys; `lax` has what of
    its JSON a strict reader refuses.
    """

    end: int
    tensors: tuple[Stored, ...]
    metadata: object
    further: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    has_null_metadata: bool = False
    lax: tuple[str, ...] = ()


def read(
    data: ByteView,
    start: int,
    end: int,
    *,
    is_cut: bool = False,
    listing: ListingBudget | None = None,
) -> TensorHeader:
    """Read the header of the safetensors file that is data[start:end].

    If the file `is_cut`, tensors may lie beyond its end. What the header lists counts in the
    `listing` of the whole file. Raises FormatError.
    """
    listing = listing or ListingBudget(end - start)
    cursor = Cursor(data[:end], start)
    body = _body(cursor)
    length = len(body)
    if not body or body[0] != SAFETENSORS_BRACE:
        fail("header is not a JSON object", offset=cursor.pos - length, field="header")
    lax: set[str] = set()
    items = json_text.parse(
        body, "header", offset=cursor.pos - length, unique_keys=True, listing=listing, lax=lax
    )
    if not isinstance(items, dict):
        fail("header is not a JSON object", offset=cursor.pos - length, field="header")
    # Null is distinguished from no metadata: a writer put it there.
    has_metadata = METADATA_KEY in items
    metadata = items.pop(METADATA_KEY, None)
    if len(items) > MAX_TENSORS:
        fail(f"header lists {len(items)} tensors", offset=start, field="header", kind="limit")
    limit = None if is_cut else end
    tensors = tuple(_tensor(name, item, cursor.pos, limit, listing) for name, item in items.items())
    # An entry with further keys also has all of the format's keys.
    further = {
        name: {key: value for key, value in item.items() if key not in TENSOR_KEYS}
        for name, item in items.items()
        if len(item) > len(TENSOR_KEYS)
    }
    is_null = has_metadata and metadata is None
    return TensorHeader(cursor.pos, tensors, metadata, further, is_null, tuple(sorted(lax)))


def _body(cursor: Cursor) -> ByteView:
    length = cursor.integer(SAFETENSORS_LENGTH_SIZE, "header length")
    return cursor.take(length, "header")


def format_header(
    entries: Sequence[tuple[str, str, tuple[int, ...], int]],
    metadata: Mapping[str, str] | None = None,
    further: Mapping[str, Mapping[str, object]] | None = None,
) -> bytes:
    """Return the header for tensors that follow it back to back, in the order of `entries`.

    An entry is name, dtype as the format spells it, shape and number of bytes; `further` has
    additional keys by name, as `read` returns them. Raises FormatError for what `read` would
    refuse: a repeated name, the name of the metadata, a lone surrogate in a name; too long a
    header.
    """
    items: dict[str, object] = {}
    if metadata is not None:
        for text in (*metadata.keys(), *metadata.values()):
            json_text.check_name(text, "metadata", offset=0)
        items[METADATA_KEY] = dict(metadata)
    end = 0
    for name, dtype, shape, nbytes in entries:
        json_text.check_name(name, "tensor name", offset=0)
        if name == METADATA_KEY:
            raise FormatError(f"no tensor can be named {quoted(name)}", field="name")
        if name in items:
            raise FormatError(f"tensor name {quoted(name)} appears more than once", field="name")
        items[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [end, end + nbytes],
            **(further or {}).get(name, {}),
        }
        end += nbytes
    try:
        encoded = json.dumps(
            items, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except ValueError:
        # NaN, Infinity or a lone surrogate, deep inside a key that is not the format's.
        raise FormatError("header has a value that JSON can't hold", field="header") from None
    # Padded with spaces, which JSON allows, so that tensors start at a multiple of 8.
    encoded += b" " * (-len(encoded) % ALIGNMENT)
    # Imported here: a filter reads headers but writes none, and git starts it for every command.
    from wtxtgit.containers.budget import refuse_long

    refuse_long(len(encoded), MAX_JSON, "header", "header")
    return len(encoded).to_bytes(SAFETENSORS_LENGTH_SIZE, "little") + encoded


def _tensor(name: str, item: object, base: int, end: int | None, listing: ListingBudget) -> Stored:
    json_text.check_name(name, "tensor name", offset=base)
    if not isinstance(item, dict):
        raise _wrong(name, "entry", base)
    dtype = item.get("dtype")
    if not isinstance(dtype, str):
        raise _wrong(name, "dtype", base)
    json_text.check_name(dtype, "dtype", offset=base)
    shape = _sizes(item.get("shape"))
    if shape is None:
        raise _wrong(name, "shape", base)
    offsets = _sizes(item.get("data_offsets"))
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _wrong(name, "data_offsets", base)
    first, last = offsets
    # Already counted as a value of the JSON.
    listing.item((name, dtype), base, "header", times=0)
    if end is not None:
        check_inside(base + first, last - first, end, f"tensor {quoted(name)}")
    return Stored(name, dtype, shape, base + first, base + last, ELEMENTS.get(dtype))


def _sizes(value: object) -> tuple[int, ...] | None:
    """Return a list of integers >= 0 as a tuple, None for anything else, such as booleans."""
    if not isinstance(value, list):
        return None
    for size in value:
        if type(size) is not int or size < 0:
            return None
    return tuple(value)


def _wrong(name: str, key: str, offset: int) -> FormatError:
    return FormatError(f"tensor {quoted(name)} has an invalid {key}", offset=offset, field=key)
