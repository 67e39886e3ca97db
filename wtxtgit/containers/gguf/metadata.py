"""The metadata of a GGUF file: keys, and values of thirteen types.

A key is a string (u64 length, bytes), a value its type (u32) and its bytes;
an array has the type of its items (u32) and their count (u64) first. Values
are walked when a file is read and only decoded when they are asked for.
Spec: `docs/spec/gguf.md`, "Metadata".
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from wtxtgit.containers.cursor import Cursor, fail
from wtxtgit.containers.json_text import MAX_DEPTH
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.io.view import mapped

MAX_ENTRIES = MAX_TENSORS
"""Key-value pairs that one file may have."""
MAX_LISTED = 64
"""Items of an array that a description lists; longer ones are told by their count."""

UINT32, BOOL, STRING, ARRAY = 4, 7, 8, 9
NUMBERS = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    UINT32: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    BOOL: ("bool", "?"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
"""Value types of a fixed width: their names and struct codes."""
NAMES = {number: name for number, (name, _) in NUMBERS.items()} | {
    STRING: "string",
    ARRAY: "array",
}
TYPE_SIZE = 4
COUNT_SIZE = 8
STRINGS_STEP = 1 << 16
"""Bytes of strings that are looked at together."""
LAYOUTS = {
    order: {number: Struct(sign + code) for number, (_, code) in NUMBERS.items()}
    for order, sign in (("little", "<"), ("big", ">"))
}
LEAST_SIZES = {number: layout.size for number, layout in LAYOUTS["little"].items()} | {
    STRING: COUNT_SIZE,
    ARRAY: TYPE_SIZE + COUNT_SIZE,
}
"""Bytes that a value of each type has at the least."""
ARRAY_HEADS = {"little": Struct("<IQ"), "big": Struct(">IQ")}
"""The type and the count of an array's items."""
LENGTHS = {"little": Struct("<Q"), "big": Struct(">Q")}


@dataclass(frozen=True, slots=True)
class Entry:
    """One key-value pair; `offset` is where its key stands, `start` its value."""

    key: str
    value_type: int
    offset: int
    start: int


def read_entry(cursor: Cursor) -> Entry:
    """Read a key and pass over its value; raises FormatError."""
    offset = cursor.pos
    key = cursor.text(cursor.integer(COUNT_SIZE, "key length"), "key")
    value_type = cursor.integer(TYPE_SIZE, "value_type")
    start = cursor.pos
    skip(cursor, value_type)
    return Entry(key, value_type, offset, start)


def skip(cursor: Cursor, value_type: int, depth: int = 1) -> None:
    """Pass over a value; raises FormatError."""
    if value_type in NUMBERS:
        cursor.skip(LEAST_SIZES[value_type], "value")
    elif value_type == STRING:
        cursor.skip(cursor.integer(COUNT_SIZE, "string length"), "string")
    elif value_type == ARRAY:
        item_type, count = read_array_head(cursor)
        skip_items(cursor, item_type, count, depth)
    else:
        fail(
            f"value type {value_type} is not known",
            offset=cursor.pos - TYPE_SIZE,
            field="value_type",
        )


def read_array_head(cursor: Cursor) -> tuple[int, int]:
    """The type and the count of an array's items, which the bytes at hand can hold."""
    head = cursor.pos
    item_type, count = cursor.record(ARRAY_HEADS[cursor.order], "array type")
    least = LEAST_SIZES.get(item_type)
    if least is None:
        fail(f"array type {item_type} is not known", offset=head, field="array type")
    cursor.pos = cursor.skip(count * least, "array")
    return item_type, count


def skip_items(cursor: Cursor, item_type: int, count: int, depth: int = 1) -> None:
    """Pass over the items of an array that is `depth` deep; raises FormatError."""
    if depth > MAX_DEPTH:
        fail("value is nested too deeply", offset=cursor.pos, field="array", kind="limit")
    if item_type == STRING:
        _skip_strings(cursor, count)
    elif item_type == ARRAY:
        for _ in range(count):
            inner_type, inner_count = read_array_head(cursor)
            skip_items(cursor, inner_type, inner_count, depth + 1)
    else:
        cursor.skip(count * LEAST_SIZES[item_type], "array")


def decode(cursor: Cursor, value_type: int) -> object:
    """The value at the cursor, which was passed over before, as plain data.

    Arrays of over MAX_LISTED items are `{"type": ..., "count": ...}`. Bytes
    of a string that are no UTF-8 become U+FFFD.
    """
    if value_type == STRING:
        return decode_string(cursor).decode(errors="replace")
    if value_type != ARRAY:
        (value,) = cursor.record(LAYOUTS[cursor.order][value_type], "value")
        return value
    item_type, count = read_array_head(cursor)
    if count > MAX_LISTED:
        skip_items(cursor, item_type, count)
        return {"type": NAMES[item_type], "count": count}
    return [decode(cursor, item_type) for _ in range(count)]


def decode_string(cursor: Cursor) -> bytes:
    """The bytes of the string at the cursor."""
    return bytes(cursor.take(cursor.integer(COUNT_SIZE, "string length"), "string"))


def _skip_strings(cursor: Cursor, count: int) -> None:
    """Pass over `count` strings; vocabularies have millions of them."""
    data, start, last = cursor.data, cursor.pos, cursor.size - COUNT_SIZE
    length = LENGTHS[cursor.order].unpack_from
    pos = first = end = start
    for _ in range(count):
        if pos > last:
            pos += COUNT_SIZE
            break
        if pos + COUNT_SIZE > end:
            first, held = pos, mapped(data[pos : pos + STRINGS_STEP])
            end = first + len(held)
        pos += COUNT_SIZE + length(held, pos - first)[0]
    cursor.skip(pos - start, "string")
