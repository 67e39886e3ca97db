"""`_layout`: how arrays and literals make up a file.

`docs/spec/wtxt.md`, sections "Container files" and "Native arrays". The JSON has one spelling;
any other is refused. It is written and read extent by extent: the parsed values of all extents at
once would take ten times the memory of their text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn

from wtxtgit.errors import TextError
from wtxtgit.model.array import (
    CONTAINER_FORMATS,
    EXTENT_BYTES,
    LAYOUT_ARRAY,
    LAYOUT_VERSION,
    LEAST_EXTENTS,
    MAX_HEX,
    MAX_ZEROS,
    NATIVE_FORMAT,
    ZEROS_ALLOWANCE,
    Array,
    Cut,
    Extent,
    Layout,
    Meta,
    Snapshot,
    default_rows,
)
from wtxtgit.text.grammar import BLOCK_BYTES, CAP, CAP_LAYOUT, MAX_NUMBER, ArrayLine

Blocks = Sequence[memoryview]
"""Bytes in pieces, one after another."""

NATIVE_SCHEMA = "weights/v1"
_INTEGERS = {int}
_EXTENTS, _TAIL = b'{"extents":[', b'],"format":'
"""How a layout starts (this key is the first), and what follows the extents."""
# Layouts up to this many bytes are parsed at once, longer ones in windows of this size.
_AT_ONCE = 1 << 20
_WINDOW = 1 << 16
_MAX_DIGITS = len(str(MAX_NUMBER))
_TENSOR_KEYS = frozenset({"array", "dtype", "name", "shape"})
_ZEROS_KEYS, _HEX_KEYS = frozenset({"zeros"}), frozenset({"hex"})
_PART_KEYS, _NAMED_PART_KEYS = frozenset({"array"}), frozenset({"array", "name"})


def format_layout(layout: Layout) -> bytes:
    """Format a layout in its one valid spelling."""
    record: dict[str, Any] = {"format": layout.format, "v": LAYOUT_VERSION}
    if layout.size is not None:
        record["size"] = layout.size
    # Extent by extent: the records of all extents would take ten times the memory of their text.
    raw = bytearray(_EXTENTS)
    for n, extent in enumerate(layout.extents):
        if n:
            raw += b","
        raw += _spelled(_extent_record(extent))
    raw += b"]," + _spelled(record)[1:]
    return bytes(raw)


def _spelled(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def parse_layout(raw: bytes | bytearray, text_size: int | None = None) -> Layout:
    """Parse the bytes of `_layout`; `text_size` is that of its text if that is not verified yet.

    Raises TextError "layout", and "limit" for more extents than a text of that size may have.
    """
    most = None if text_size is None else LEAST_EXTENTS + text_size // EXTENT_BYTES
    if len(raw) > _AT_ONCE:
        return _parse_long(raw, most)
    record = _loaded(raw)
    if not isinstance(record, dict):
        _refuse("is not a JSON object")
    kind, size = _parse_facts(record, {"extents"})
    if not isinstance(record["extents"], list):
        _refuse("has no list of extents")
    extents = tuple(_parse_extent(item, kind) for item in record["extents"])
    if _spelled(record) != raw:
        _refuse("is not in canonical form")
    return Layout(kind, size, extents)


def _parse_long(raw: bytes | bytearray, most: int | None) -> Layout:
    """Parse a layout extent by extent: all at once would take ten times its size in memory."""
    tail = raw.rfind(_TAIL)
    if not raw.startswith(_EXTENTS) or tail < 0:
        _refuse("is not in canonical form")
    record = _loaded(b"{" + raw[tail + 2 :])
    kind, size = _parse_facts(record, set())
    if raw[tail:] != b"]," + _spelled(record)[1:]:
        _refuse("is not in canonical form")
    extents: list[Extent] = []
    pos, width = len(_EXTENTS), _WINDOW
    text, at = "", 0
    while True:
        try:
            item, end = _DECODER.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            # The extent may go on beyond the window: try a larger one.
            pos += at
            if text and at == 0 and pos + len(text) >= tail:
                _refuse(f"is not JSON in ASCII: {error}")
            width = 2 * len(text) if text and at == 0 else _WINDOW
            try:
                text, at = raw[pos : min(pos + width, tail)].decode("ascii"), 0
            except UnicodeDecodeError as wrong:
                _refuse(f"is not JSON in ASCII: {wrong}")
            if not text:
                _refuse("is not in canonical form")
            continue
        if _spelled(item) != raw[pos + at : pos + end]:
            _refuse("is not in canonical form")
        extents.append(_parse_extent(item, kind))
        if most is not None and len(extents) > most:
            message = "_layout has too many extents for a text of this length"
            raise TextError("limit", message, array=LAYOUT_ARRAY)
        if pos + end == tail:
            return Layout(kind, size, tuple(extents))
        if raw[pos + end : pos + end + 1] != b",":
            _refuse("is not in canonical form")
        at = end + 1


def _loaded(raw: bytes | bytearray) -> Any:
    """Parse a layout's JSON; raises TextError "layout"."""
    try:
        return _DECODER.decode(raw.decode("ascii"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        _refuse(f"is not JSON in ASCII: {error}")


def _parse_facts(record: dict[str, Any], others: set[str]) -> tuple[str, int | None]:
    """Parse format and size from a record that must have exactly their keys and `others`."""
    kind = record.get("format")
    keys = {"format", "v"} | others | (set() if kind == NATIVE_FORMAT else {"size"})
    if set(record) != keys:
        _refuse(f"has the keys {sorted(map(str, record))}, not {sorted(keys)}")
    if kind != NATIVE_FORMAT and kind not in CONTAINER_FORMATS:
        _refuse(f"has unknown format {kind!r}")
    if type(record["v"]) is not int or record["v"] != LAYOUT_VERSION:
        _refuse(f"has version {record['v']!r}, but only {LAYOUT_VERSION} is supported")
    size = record.get("size")
    # The record must have exactly these keys; a size of null is spelled by leaving the key out.
    if kind != NATIVE_FORMAT and (type(size) is not int or size < 0):
        _refuse(f"has size {size!r}")
    return kind, size


def _extent_record(extent: Extent) -> dict[str, Any]:
    if extent.zeros is not None:
        return {"zeros": extent.zeros}
    if extent.hex is not None:
        return {"hex": extent.hex.hex()}
    record: dict[str, Any] = {"array": extent.array}
    if extent.name is not None:
        record["name"] = extent.name
    if extent.dtype is not None and extent.shape is not None:
        record["dtype"] = extent.dtype
        record["shape"] = list(extent.shape)
    if extent.order is not None:
        record["order"] = extent.order
    return record


def _parse_extent(item: Any, kind: str) -> Extent:
    if not isinstance(item, dict):
        _refuse("has an extent that is not an object")
    keys = item.keys()
    if kind == NATIVE_FORMAT and keys != _TENSOR_KEYS:
        _refuse(f"has an extent with the keys {sorted(keys)}")
    if keys == _ZEROS_KEYS:
        run = item["zeros"]
        if type(run) is not int or not 1 <= run <= MAX_ZEROS:
            _refuse(f"has a run of {run!r} zeros, 1 to {MAX_ZEROS} are allowed")
        return Extent(zeros=run)
    if keys == _HEX_KEYS:
        return Extent(hex=_parse_hex(item["hex"]))
    array = item.get("array")
    if not isinstance(array, str):
        _refuse(f"has an extent with the keys {sorted(keys)}")
    if keys == _PART_KEYS:
        return Extent(array)
    name = item.get("name")
    if not isinstance(name, str) or not _is_unicode(name):
        _refuse(f'has an extent "{array}" without a valid name')
    if array.startswith("_"):
        _refuse(f'gives the role "{array}" a name')
    if keys == _NAMED_PART_KEYS:
        return Extent(array, name=name)
    if keys - {"order"} != _TENSOR_KEYS or item.get("order", "F") != "F":
        _refuse(f'has an extent "{array}" with the keys {sorted(keys)}')
    dtype, shape = item["dtype"], item["shape"]
    if not isinstance(dtype, str) or not _is_unicode(dtype):
        _refuse(f'has an extent "{array}" without a valid dtype')
    # By type: True is an int to isinstance.
    if not isinstance(shape, list) or not set(map(type, shape)) <= _INTEGERS:
        _refuse(f'has an extent "{array}" without a valid shape')
    return Extent(array, dtype, name, tuple(shape), item.get("order"))


def _parse_hex(value: Any) -> bytes:
    if not isinstance(value, str) or not 2 <= len(value) <= 2 * MAX_HEX:
        _refuse(f"has a literal that is not 1 to {MAX_HEX} bytes long")
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        _refuse(f"has the literal {value!r}")
    # fromhex also accepts upper case and spaces, but a value has only one spelling.
    if raw.hex() != value:
        _refuse(f"has the literal {value!r}, which is not lowercase hex")
    return raw


def _is_unicode(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse_int(digits: str) -> int:
    # Checked before int(), whose time grows with the square of the number of digits.
    if len(digits.removeprefix("-")) > _MAX_DIGITS:
        _refuse(f"has a number of {len(digits)} digits")
    return int(digits)


def _refuse_number(spelling: str) -> NoReturn:
    _refuse(f"has the number {spelling[:40]}, only integers are allowed")


_DECODER = json.JSONDecoder(
    parse_int=_parse_int, parse_float=_refuse_number, parse_constant=_refuse_number
)


def _refuse(message: str) -> NoReturn:
    raise TextError("layout", f"_layout {message}", array=LAYOUT_ARRAY)


def layout_of(
    meta: Meta,
    cap: Iterable[str],
    arrays: Sequence[ArrayLine],
    raw: bytes | bytearray,
    text_size: int | None = None,
) -> Layout | None:
    """Parse a text's layout from the bytes of its array `_layout`; None for a text without one.

    The layout is checked against the text's `meta`, `cap` and `arr` lines. Raises TextError
    "layout", and "limit" as `parse_layout` does.
    """
    line = next((line for line in arrays if line.name == LAYOUT_ARRAY), None)
    if line is None:
        if CAP_LAYOUT in cap:
            what = f"the cap line lists layout, but there is no array {LAYOUT_ARRAY}"
            raise TextError("layout", what)
        return None
    if line.dtype != "u8" or len(line.shape) != 1:
        raise TextError("layout", f"{LAYOUT_ARRAY} is not a u8 array of one dimension")
    layout = parse_layout(raw, text_size)
    check_layout(layout, meta, cap, arrays)
    return layout


def check_layout(
    layout: Layout, meta: Meta, cap: Iterable[str], arrays: Iterable[ArrayLine]
) -> None:
    """Check a layout against its text, whose `arr` lines are `arrays`.

    Raises TextError "layout".
    """
    if CAP_LAYOUT not in cap:
        _refuse("is there, but the cap line does not list layout")
    schema = schema_of(layout.format)
    if meta.schema != schema:
        _refuse(f'has format {layout.format}, but the schema is "{meta.schema}"')
    lines = {line.name: line for line in arrays}
    missing = set(lines) - {LAYOUT_ARRAY}
    total = zeros = 0
    name: str | None = None
    for extent in layout.extents:
        if not layout.is_container:
            _check_order(name, extent.name or "")
            name = extent.name
        if extent.array is not None:
            if extent.array not in missing:
                what = " twice" if extent.array in lines else ", which does not exist"
                if extent.array == LAYOUT_ARRAY:
                    what = ", which is the layout itself"
                _refuse(f'names array "{extent.array}"{what}')
            missing.discard(extent.array)
            total += lines[extent.array].nbytes
            if not layout.is_container:
                from wtxtgit.text.native import check_items  # files are no native arrays

                check_items(lines[extent.array], extent.dtype or "", extent.shape or ())
        elif extent.hex is not None:
            total += len(extent.hex)
        elif extent.zeros is not None:
            zeros += extent.zeros
    if missing:
        _refuse(f'does not name array "{min(missing)}"')
    # A bound on the size of the file that a few bytes of text can ask for.
    if zeros > ZEROS_ALLOWANCE + total:
        _refuse(f"has {zeros} zero bytes in runs, with {total} bytes in other extents")
    if layout.size is not None and total + zeros != layout.size:
        _refuse(f"says {layout.size} bytes, but its extents have {total + zeros}")


def _check_order(before: str | None, name: str) -> None:
    """Check that native arrays ascend by name; Python compares code points, as the spec does."""
    if before == name:
        _refuse(f'has two arrays called "{name}"')
    if before is not None and name < before:
        _refuse(f'has array "{name}" after "{before}", but names must be in ascending order')


def schema_of(kind: str) -> str:
    return NATIVE_SCHEMA if kind == NATIVE_FORMAT else f"{kind}/v1"


def snapshot_of(cut: Cut) -> Snapshot:
    """Return the snapshot that canonical form 1 makes of a cut file."""
    return with_layout(cut.layout, cut.arrays, Meta(schema=schema_of(cut.layout.format)))


def with_layout(layout: Layout, arrays: Iterable[Array], meta: Meta) -> Snapshot:
    """Make a snapshot of arrays and their layout; arrays without row blocking get the default one.

    Raises TextError "layout" for a layout that a reader would refuse.
    """
    if meta.schema != schema_of(layout.format):
        _refuse(f'of format {layout.format} does not match the schema "{meta.schema}"')
    for extent in layout.extents:
        if not _is_unicode(extent.name or ""):
            _refuse(f'gives "{extent.array}" a name that is not Unicode')
    raw = memoryview(format_layout(layout))
    everything = [*arrays, Array(LAYOUT_ARRAY, "u8", (raw.nbytes,), raw)]
    ordered = sorted(map(_with_rows, everything), key=attrgetter("name"))
    return Snapshot(meta, tuple(ordered), (*CAP, CAP_LAYOUT), layout=layout)


def _with_rows(array: Array) -> Array:
    """Return the array, with the default row blocking if it has none."""
    if array.rows is not None:
        return array
    name, dtype, shape = array.name, array.dtype, array.shape
    rows = default_rows(dtype, shape)
    return Array(name, dtype, shape, array.data, rows, array.hmac, array.salt)


def literal(extent: Extent) -> bytes | None:
    """Return the bytes that an extent contains itself; None if it refers to an array."""
    return None if extent.array is not None else extent.hex or bytes(extent.zeros or 0)


def placed(layout: Layout, sizes: Mapping[str, int]) -> Iterator[tuple[int, Extent]]:
    """Yield a container's extents with their positions in the file; `sizes` are those of arrays."""
    start = 0
    for extent in layout.extents:
        yield start, extent
        if extent.array is not None:
            start += sizes[extent.array]
        else:
            start += len(extent.hex or b"") + (extent.zeros or 0)


def file_tasks(
    layout: Layout, of_array: Callable[[str], Iterable[Callable[[], Blocks]]]
) -> Iterator[Callable[[], Blocks]]:
    """Yield tasks that return the file's bytes in order: literals, and what `of_array` gives.

    `of_array` returns the tasks for an array. Adjacent literals are joined: a file may consist of
    millions of them.
    """
    literals = bytearray()
    for extent in layout.extents:
        own = literal(extent)
        if own is not None:
            literals += own
            # Flushed at a bound: the zeros of a small text may be many MiB.
            if len(literals) < BLOCK_BYTES:
                continue
        if literals:
            yield partial(tuple[memoryview], (memoryview(bytes(literals)),))
            literals.clear()
        if extent.array is not None:
            yield from of_array(extent.array)
    if literals:
        yield partial(tuple[memoryview], (memoryview(bytes(literals)),))
