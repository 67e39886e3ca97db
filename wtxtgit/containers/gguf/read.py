"""GGUF, versions 2 and 3, of either byte order: metadata, tensor infos, ggml's types.

Header (24 bytes), metadata, tensor infos, padding to `general.alignment`, tensor bytes at offsets
that count from there. A key is a string (u64 length, bytes), a value its type (u32) and its bytes;
an array starts with the type of its items (u32) and their count (u64). Values are skipped when a
file is read and only decoded when they are asked for. A ggml type whose block is one item is a
number; the others are quantised, and their items are only known by block. Of the numbers that ggml
has given up, 31 to 33 occur in files; 4, 5 and 36 to 38 stay unknown. Spec: `docs/spec/gguf.md`;
types: https://github.com/ggml-org/ggml/blob/master/include/ggml.h
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import prod
from struct import Struct
from typing import Literal

from wtxtgit.containers import ranges
from wtxtgit.containers.cursor import Cursor, ListingBudget, check_inside, fail, quoted
from wtxtgit.containers.format import Container
from wtxtgit.containers.gguf import ALIGNMENT_KEY, MAGIC
from wtxtgit.containers.intervals import Span, aligned
from wtxtgit.containers.json_text import MAX_DEPTH
from wtxtgit.containers.ranges import MAX_TENSORS, Stored
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.io.view import ByteView, hashed, mapped, pieces
from wtxtgit.model.ggml import PREFIX, TYPES, GgmlType, unknown
from wtxtgit.model.tensor import OF_ITEMS, Description, ReadOptions, Tensor

# The most key-value pairs of a file ("Limits"): each becomes an object in memory.
MAX_ENTRIES = MAX_TENSORS
# A description lists arrays of up to this many items, and only count and hash of longer ones:
# nobody reads a vocabulary in a report.
MAX_LISTED = 64

# What a byte of a listed value counts: a reference takes eight bytes.
DECODED = 8
UINT16, UINT32, INT32, BOOL, STRING, ARRAY = 2, 4, 5, 7, 8, 9
NUMBERS = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    UINT16: ("uint16", "H"),
    3: ("int16", "h"),
    UINT32: ("uint32", "I"),
    INT32: ("int32", "i"),
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
_REPLACEMENT = "\ufffd"
"""Stands for bytes that are not UTF-8."""
# Bytes of strings that are mapped together: mapping each string of a vocabulary separately would
# take longer than reading it.
STRINGS_STEP = 1 << 16
LAYOUTS = {
    order: {number: Struct(sign + code) for number, (_, code) in NUMBERS.items()}
    for order, sign in (("little", "<"), ("big", ">"))
}
LEAST_SIZES = {number: layout.size for number, layout in LAYOUTS["little"].items()} | {
    STRING: COUNT_SIZE,
    ARRAY: TYPE_SIZE + COUNT_SIZE,
}
"""The least size in bytes of a value of each type."""
ARRAY_HEADS = {"little": Struct("<IQ"), "big": Struct(">IQ")}
"""The type and the count of an array's items."""
LENGTHS = {"little": Struct("<Q"), "big": Struct(">Q")}


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key-value pair; `offset` is where its key is, `start` where its value is."""

    key: str
    value_type: int
    offset: int
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class OwnValue:
    """A value as in a little-endian file: its type and its bytes."""

    value_type: int
    raw: ByteView


def read_entry(cursor: Cursor) -> KeyValue:
    """Read a key and skip its value; raises FormatError."""
    offset = cursor.pos
    key = cursor.text(cursor.integer(COUNT_SIZE, "key length"), "key")
    value_type = cursor.integer(TYPE_SIZE, "value_type")
    start = cursor.pos
    skip(cursor, value_type)
    return KeyValue(key, value_type, offset, start)


def skip(cursor: Cursor, value_type: int, depth: int = 1) -> None:
    """Skip a value; raises FormatError."""
    if value_type in NUMBERS:
        cursor.skip(LEAST_SIZES[value_type], "value")
    elif value_type == STRING:
        cursor.skip(cursor.integer(COUNT_SIZE, "string length"), "string")
    elif value_type == ARRAY:
        item_type, count = read_array_head(cursor)
        skip_items(cursor, item_type, count, depth)
    else:
        fail(
            f"value type {value_type} is unknown",
            offset=cursor.pos - TYPE_SIZE,
            field="value_type",
        )


def read_array_head(cursor: Cursor) -> tuple[int, int]:
    """Read the type and count of an array's items, which must fit the remaining bytes."""
    head = cursor.pos
    item_type, count = cursor.record(ARRAY_HEADS[cursor.order], "array type")
    least = LEAST_SIZES.get(item_type)
    if least is None:
        fail(f"array type {item_type} is unknown", offset=head, field="array type")
    # Nothing is allocated for a count that the remaining bytes can't hold ("Limits").
    cursor.pos = cursor.skip(count * least, "array")
    return item_type, count


def skip_items(cursor: Cursor, item_type: int, count: int, depth: int = 1) -> None:
    """Skip the items of an array that is `depth` deep; raises FormatError."""
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
    """Return the value at the cursor, which was skipped before, as plain data.

    Arrays of over MAX_LISTED items become `{"type": ..., "count": ..., "sha256": ...}`, with the
    hash of the items' bytes. Bytes of a string that are not UTF-8 become U+FFFD.
    """
    if value_type == STRING:
        raw = cursor.take(cursor.integer(COUNT_SIZE, "string length"), "string")
        return bytes(raw).decode(errors="replace")
    if value_type != ARRAY:
        (value,) = cursor.record(LAYOUTS[cursor.order][value_type], "value")
        return value
    item_type, count = read_array_head(cursor)
    if count > MAX_LISTED:
        start = cursor.pos
        skip_items(cursor, item_type, count)
        # By the hash a comparison sees that an item changed.
        digest = hashed(sha256(), pieces(cursor.data[start : cursor.pos])).hexdigest()
        return {"type": NAMES[item_type], "count": count, "sha256": digest}
    return [decode(cursor, item_type) for _ in range(count)]


def _skip_strings(cursor: Cursor, count: int) -> None:
    """Skip `count` strings; vocabularies have millions of them."""
    data, start, last = cursor.data, cursor.pos, cursor.size - COUNT_SIZE
    length = LENGTHS[cursor.order].unpack_from
    pos = first = end = start
    for _ in range(count):
        # The cursor refuses it below, with the position.
        if pos > last:
            pos += COUNT_SIZE
            break
        if pos + COUNT_SIZE > end:
            first, window = pos, mapped(data[pos : pos + STRINGS_STEP])
            end = first + len(window)
        pos += COUNT_SIZE + length(window, pos - first)[0]
    cursor.skip(pos - start, "string")


VERSIONS = (2, 3)
ARCHITECTURE_KEY = "general.architecture"
QUANTIZATION_KEY = "general.quantization_version"
SPLIT_NUMBER, SPLIT_COUNT, SPLIT_TENSORS = SPLIT_KEYS = (
    "split.no",
    "split.count",
    "split.tensors.count",
)
"""The number of a file in its model (from 0), the number of files, and of tensors in all files."""
MAX_SPLITS = 2**16 - 1
GGML_DIMENSIONS = 4
# Longest name of a tensor in bytes: ggml has room for 64, the last of which is a NUL.
GGML_NAME = 63
DEFAULT_ALIGNMENT = 32
# The most dimensions of a tensor. ggml has four; allowing a few more makes files of other writers
# readable while no shape is ever long ("Limits").
MAX_DIMENSIONS = 8
# Longest text in bytes that becomes a tag in files of other formats.
MAX_TAG = 65_536
LEAST_ENTRY = COUNT_SIZE + TYPE_SIZE + 1
LEAST_INFO = COUNT_SIZE + TYPE_SIZE + TYPE_SIZE + COUNT_SIZE

INFO_ENDS = {
    order: [Struct(f"{sign}{rank}QIQ") for rank in range(MAX_DIMENSIONS + 1)]
    for order, sign in (("little", "<"), ("big", ">"))
}
"""Dimensions, type and offset, by the number of dimensions."""
HEADER_ROLE = "_header"
UNKNOWN_TYPE = "its ggml type is unknown, and so is its length"

_RawInfo = tuple[int, str, tuple[int, ...], GgmlType, int]
"""Position of a tensor info, name, dimensions, type, offset."""


@dataclass(frozen=True, slots=True)
class Info:
    """A tensor info: its position, and the tensor that it describes.

    The size of a tensor of an unknown type is not known, so it has no bytes.
    """

    offset: int
    tensor: Stored
    is_known: bool


@dataclass(frozen=True, slots=True, eq=False)
class Gguf(Container):
    """A GGUF file that was read; `infos_end` is where the padding starts."""

    data: ByteView
    version: int
    byteorder: Literal["little", "big"]
    entries: tuple[KeyValue, ...]
    alignment: int
    infos: tuple[Info, ...]
    infos_end: int

    def is_padding(self, start: int, end: int) -> bool:
        return end == aligned(start, self.alignment)

    def used_spans(self) -> Iterator[Span]:
        yield 0, self.infos_end
        yield from ((info.tensor.start, info.tensor.end) for info in self.infos)

    @property
    def data_start(self) -> int:
        """Where the offsets of tensors count from; beyond the end if there is no data."""
        return aligned(self.infos_end, self.alignment)

    def cursor(self, pos: int) -> Cursor:
        """Return a cursor in the file's byte order."""
        return Cursor(self.data, pos, order=self.byteorder)

    def ranges(self) -> Iterator[ranges.Range]:
        yield ranges.part(0, min(self.data_start, len(self.data)), HEADER_ROLE)
        for info in self.infos:
            yield ranges.tensor(info.tensor)


class _HeaderCursor(Cursor):
    """A cursor whose errors distinguish the limit on headers from the end of the file."""

    __slots__ = ("limited",)

    def __init__(self, data: ByteView, pos: int, *, order: Literal["little", "big"]) -> None:
        super().__init__(data[:MAX_JSON], pos, order=order)
        self.limited = len(data) > MAX_JSON

    def skip(self, count: int, field: str) -> int:
        if self.limited and count > self.size - self.pos:
            fail(
                f"header is over {MAX_JSON} bytes long", offset=self.pos, field=field, kind="limit"
            )
        return Cursor.skip(self, count, field)


def describe(container: Gguf, options: ReadOptions) -> Description:
    """Describe the file; raises FormatError."""
    values = {
        entry.key: decode(container.cursor(entry.start), entry.value_type)
        for entry in container.entries
    }
    tags = {
        key: value
        for key, value in values.items()
        if isinstance(value, str) and len(value) <= MAX_TAG and len(value.encode()) <= MAX_TAG
    }
    return Description(
        "gguf",
        tuple(_listed(container, info) for info in container.infos),
        {
            "version": container.version,
            "byteorder": container.byteorder,
            "alignment": container.alignment,
            "metadata_kv": values,
        },
        tags=tags,
        untold=tuple(key for key in values if key not in tags),
        own=None if container.byteorder == "big" else partial(own_values, container),
        rest=partial(_rest, container, values),
    )


def _rest(container: Gguf, values: Mapping[str, object]) -> dict[str, object]:
    """Return what `values`, which have the last one of each key, do not tell.

    These are types, earlier values of repeated keys, and hashes of values with texts that are not
    UTF-8.
    """
    types: dict[str, object] = {}
    repeated: dict[str, list[object]] = {}
    hashes: dict[str, str] = {}
    last = {entry.key: entry for entry in container.entries}
    for entry in container.entries:
        cursor = container.cursor(entry.start)
        if entry is not last[entry.key]:
            repeated.setdefault(entry.key, []).append(decode(cursor, entry.value_type))
            continue
        types[entry.key] = _type_of(cursor, entry.value_type)
        if _REPLACEMENT in str(values[entry.key]):
            end = container.cursor(entry.start)
            skip(end, entry.value_type)
            raw = container.data[entry.start : end.pos]
            hashes[entry.key] = hashed(sha256(), pieces(raw)).hexdigest()
    parts = {OF_ITEMS: {"types": types}, "repeated keys": repeated, "not UTF-8": hashes}
    return {name: one for name, one in parts.items() if one}


def _type_of(cursor: Cursor, value_type: int) -> str:
    if value_type != ARRAY:
        return NAMES[value_type]
    return f"array of {NAMES[read_array_head(cursor)[0]]}"


def _listed(container: Gguf, info: Info) -> Tensor:
    tensor = info.tensor.listed(container.data, None if info.is_known else UNKNOWN_TYPE)
    # Scales inside blocks are in the file's byte order, which nothing else converts.
    if tensor.element is None and info.is_known and container.byteorder == "little":
        return replace(tensor, packing=PREFIX + tensor.dtype)
    return tensor


def own_values(container: Gguf) -> dict[str, object]:
    """Return the type and the bytes of each value as in the file, by key; a repeated key once.

    The alignment is left out: a file that is written has its own.
    """
    ends = [*(entry.offset for entry in container.entries[1:]), None]
    values: dict[str, object] = {}
    for entry, end in zip(container.entries, ends, strict=True):
        if end is None:
            cursor = container.cursor(entry.start)
            skip(cursor, entry.value_type)
            end = cursor.pos
        if entry.key != ALIGNMENT_KEY:
            values[entry.key] = OwnValue(entry.value_type, container.data[entry.start : end])
    return values


def read(data: ByteView, *, is_cut: bool = False) -> Gguf:
    """Read a GGUF file; if it `is_cut`, tensors may lie beyond its end. Raises FormatError."""
    listing = ListingBudget(len(data))
    version, order = _read_version(data)
    cursor = _HeaderCursor(data, len(MAGIC) + TYPE_SIZE, order=order)
    tensor_count = cursor.integer(COUNT_SIZE, "tensor_count")
    kv_count = cursor.integer(COUNT_SIZE, "metadata_kv_count")
    _check_count(cursor, kv_count, LEAST_ENTRY, MAX_ENTRIES, "metadata_kv_count")
    _check_count(cursor, tensor_count, LEAST_INFO, MAX_TENSORS, "tensor_count")
    entries = tuple(_counted(read_entry(cursor), cursor, listing) for _ in range(kv_count))
    alignment = alignment_of(cursor, entries)
    listed = [_read_info(cursor, listing) for _ in range(tensor_count)]
    start = aligned(cursor.pos, alignment)
    # Offsets count from the end of all infos, which is only known now.
    limit = None if is_cut else len(data)
    infos = tuple(_info(raw, start, limit, order) for raw in listed)
    return Gguf(data, version, order, entries, alignment, infos, cursor.pos)


def _read_version(data: ByteView) -> tuple[int, Literal["little", "big"]]:
    cursor = Cursor(data)
    if cursor.take(len(MAGIC), "magic") != MAGIC:
        fail("magic is not GGUF", offset=0, field="magic")
    raw = cursor.take(TYPE_SIZE, "version")
    # In the wrong byte order a known version is a huge number, so only one order can fit.
    little, big = int.from_bytes(raw, "little"), int.from_bytes(raw, "big")
    if little in VERSIONS:
        return little, "little"
    if big in VERSIONS:
        return big, "big"
    return fail(
        f"version {min(little, big)} is not supported, only 2 and 3 are",
        offset=len(MAGIC),
        field="version",
    )


def _check_count(cursor: Cursor, count: int, least: int, most: int, field: str) -> None:
    """Refuse a count that the remaining bytes can't hold, or that is over the limit."""
    if count > most:
        kind = "limit" if count * least <= cursor.remaining else "structure"
        fail(f"{field} is {count}, which is too many", offset=cursor.pos, field=field, kind=kind)
    cursor.pos = cursor.skip(count * least, field)


def alignment_of(cursor: Cursor, entries: tuple[KeyValue, ...]) -> int:
    """Return the alignment that the metadata before the cursor say; raises FormatError."""
    stated = [entry for entry in entries if entry.key == ALIGNMENT_KEY]
    if not stated:
        return DEFAULT_ALIGNMENT
    entry = stated[-1]
    if entry.value_type != UINT32:
        fail(f"{ALIGNMENT_KEY} is not a uint32", offset=entry.offset, field=ALIGNMENT_KEY)
    at = Cursor(cursor.data, entry.start, order=cursor.order)
    alignment = at.integer(TYPE_SIZE, ALIGNMENT_KEY)
    # Offsets are rounded to it: 0 would divide by zero.
    if alignment.bit_count() != 1:
        fail(
            f"{ALIGNMENT_KEY} is {alignment}, which is not a power of two",
            offset=entry.start,
            field=ALIGNMENT_KEY,
        )
    return alignment


def _counted(entry: KeyValue, cursor: Cursor, listing: ListingBudget) -> KeyValue:
    """Return the entry that ends at the cursor, counting it and the part of it that is decoded."""
    listing.item((entry.key,), entry.offset, "metadata")
    if entry.value_type == ARRAY:
        head = Cursor(cursor.data, entry.start, order=cursor.order)
        if read_array_head(head)[1] > MAX_LISTED:
            return entry
    listing.count(DECODED * (cursor.pos - entry.start), entry.start, "metadata")
    return entry


def _read_info(cursor: Cursor, listing: ListingBudget) -> _RawInfo:
    """Read a tensor info and check its type and rows."""
    at = cursor.pos
    name = cursor.text(cursor.integer(COUNT_SIZE, "name length"), "name")
    rank = cursor.integer(TYPE_SIZE, "n_dimensions")
    if rank > MAX_DIMENSIONS:
        fail(
            f"tensor {quoted(name)} has {rank} dimensions, over {MAX_DIMENSIONS}",
            offset=at,
            field="n_dimensions",
            kind="limit",
        )
    *shape, number, offset = cursor.record(INFO_ENDS[cursor.order][rank], "dimensions")
    ggml_type = TYPES.get(number) or unknown(number)
    listing.item((name,), at, "tensor infos", rank=rank)
    if _fastest(shape) % ggml_type.block:
        fail(
            f"tensor {quoted(name)} has rows of {_fastest(shape)} items, which {ggml_type.name} "
            f"blocks of {ggml_type.block} don't divide",
            offset=at,
            field="dimensions",
        )
    return at, name, tuple(shape), ggml_type, offset


def _info(raw: _RawInfo, base: int, size: int | None, order: Literal["little", "big"]) -> Info:
    """Return the tensor in a file of `size` bytes (None: any size) whose data starts at `base`."""
    at, name, shape, ggml_type, offset = raw
    row_bytes = _fastest(shape) // ggml_type.block * ggml_type.size
    length = row_bytes * prod(shape[1:])
    start = base + offset
    # Tensors without bytes may be anywhere.
    if length and size is not None and start + length > size:
        check_inside(start, length, size, f"tensor {quoted(name)}")
    tensor = Stored(
        name,
        ggml_type.name,
        shape,
        start,
        start + length,
        ggml_type.element,
        "reversed",
        # A single byte has only one order.
        "little" if ggml_type.size == 1 else order,
        row_bytes if length and ggml_type.element is None else None,
    )
    return Info(at, tensor, is_known=ggml_type.size > 0)


def _fastest(shape: Sequence[int]) -> int:
    """Return the number of items in a row; a tensor without dimensions has one item."""
    return shape[0] if shape else 1
