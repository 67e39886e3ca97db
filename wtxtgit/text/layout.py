"""`_layout`: how arrays and literals make up a file, and what arrays of numpy are.

`docs/spec/wtxt.md`, sections "Container files" and "Native arrays". The JSON has
one spelling; whatever is spelled otherwise is refused.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer
from wtxtgit.model.array import (
    CONTAINER_FORMATS,
    ITEM_SIZE,
    LAYOUT_ARRAY,
    LAYOUT_VERSION,
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
    bounded_product,
    default_rows,
)
from wtxtgit.text.armor import BLOCK_BYTES
from wtxtgit.text.grammar import CAP, CAP_LAYOUT, MAX_NUMBER, ArrayLine

Blocks = Sequence[memoryview]
"""Bytes that follow one another."""

NATIVE_SCHEMA = "weights/v1"
_INTEGERS = {int}
_MAX_DIGITS = len(str(MAX_NUMBER))
_TENSOR_KEYS = frozenset({"array", "dtype", "name", "shape"})
_ZEROS_KEYS, _HEX_KEYS = frozenset({"zeros"}), frozenset({"hex"})
_PART_KEYS, _NAMED_PART_KEYS = frozenset({"array"}), frozenset({"array", "name"})


def format_layout(layout: Layout) -> bytes:
    """The one spelling of a layout."""
    record: dict[str, Any] = {
        "extents": [_extent_record(extent) for extent in layout.extents],
        "format": layout.format,
        "v": LAYOUT_VERSION,
    }
    if layout.size is not None:
        record["size"] = layout.size
    return _spelled(record)


def _spelled(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def parse_layout(raw: bytes) -> Layout:
    """Parse the bytes of `_layout`; raises TextError "layout"."""
    try:
        record = json.loads(
            raw.decode("ascii"),
            parse_int=_parse_int,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        _refuse(f"is no JSON in ASCII: {error}")
    if not isinstance(record, dict):
        _refuse("is no JSON object")
    kind = record.get("format")
    keys = {"extents", "format", "v"} | (set() if kind == NATIVE_FORMAT else {"size"})
    if set(record) != keys:
        _refuse(f"has the keys {sorted(map(str, record))}, {sorted(keys)} are wanted")
    if kind != NATIVE_FORMAT and kind not in CONTAINER_FORMATS:
        _refuse(f"has the unknown format {kind!r}")
    if type(record["v"]) is not int or record["v"] != LAYOUT_VERSION:
        _refuse(f"has version {record['v']!r}, this tool reads {LAYOUT_VERSION}")
    size = record.get("size")
    if size is not None and (type(size) is not int or size < 0):
        _refuse(f"has the size {size!r}")
    if not isinstance(record["extents"], list):
        _refuse("has no list of extents")
    extents = tuple(_parse_extent(item, kind) for item in record["extents"])
    # What was parsed is all that a layout says, but for a size of null, which none has.
    if ("size" in record and size is None) or _spelled(record) != raw:
        _refuse("is not spelled canonically")
    return Layout(kind, size, extents)


def layout_of(
    meta: Meta, cap: Iterable[str], arrays: Sequence[ArrayLine], raw: bytes
) -> Layout | None:
    """The layout of a text, None for one without; `raw` are the bytes of its array `_layout`.

    It fits the text's `meta`, `cap` and `arr` lines. Raises TextError "layout".
    """
    line = next((line for line in arrays if line.name == LAYOUT_ARRAY), None)
    if line is None:
        if CAP_LAYOUT in cap:
            what = f"the cap line lists layout, but there is no array {LAYOUT_ARRAY}"
            raise TextError("layout", what)
        return None
    if line.dtype != "u8" or len(line.shape) != 1:
        raise TextError("layout", f"{LAYOUT_ARRAY} is no u8 array of one dimension")
    layout = parse_layout(raw)
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
    wanted = schema_of(layout.format)
    if meta.schema != wanted:
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
                there = extent.array in lines and extent.array != LAYOUT_ARRAY
                _refuse(f'names array "{extent.array}" ' + ("twice" if there else "in vain"))
            missing.discard(extent.array)
            total += lines[extent.array].nbytes
            if not layout.is_container:
                check_items(lines[extent.array], extent.dtype or "", extent.shape or ())
        elif extent.hex is not None:
            total += len(extent.hex)
        elif extent.zeros is not None:
            zeros += extent.zeros
    if missing:
        _refuse(f'does not name array "{min(missing)}"')
    # A bound on the file that a few bytes of text can ask for.
    if zeros > ZEROS_ALLOWANCE + total:
        _refuse(f"has {zeros} zero bytes in runs, with {total} bytes in other extents")
    if layout.size is not None and total + zeros != layout.size:
        _refuse(f"says {layout.size} bytes, its extents have {total + zeros}")


def _check_order(before: str | None, name: str) -> None:
    """Native arrays ascend by name; Python compares code points, as the spec wants it."""
    if before == name:
        _refuse(f'has two arrays called "{name}"')
    if before is not None and name < before:
        _refuse(f'has the array "{name}" after "{before}", names have to ascend')


def schema_of(kind: str) -> str:
    return NATIVE_SCHEMA if kind == NATIVE_FORMAT else f"{kind}/v1"


def snapshot_of(cut: Cut) -> Snapshot:
    """The snapshot that canonical form 1 makes of a cut file."""
    return with_layout(cut.layout, cut.arrays, Meta(schema=schema_of(cut.layout.format)))


def with_layout(layout: Layout, arrays: Iterable[Array], meta: Meta) -> Snapshot:
    """A snapshot of arrays and their layout, rows blocked by default where not given.

    Raises TextError "layout" for what a reader would refuse.
    """
    if meta.schema != schema_of(layout.format):
        _refuse(f'of format {layout.format} does not go with the schema "{meta.schema}"')
    for extent in layout.extents:
        if not _is_unicode(extent.name or ""):
            _refuse(f'gives "{extent.array}" a name that is no Unicode')
    raw = memoryview(format_layout(layout))
    everything = [*arrays, Array(LAYOUT_ARRAY, "u8", (raw.nbytes,), raw)]
    ordered = sorted(map(_with_rows, everything), key=attrgetter("name"))
    return Snapshot(meta, tuple(ordered), (*CAP, CAP_LAYOUT), layout=layout)


def _with_rows(array: Array) -> Array:
    """The array, with the default blocking where it has none."""
    if array.rows is not None:
        return array
    name, dtype, shape = array.name, array.dtype, array.shape
    rows = default_rows(dtype, shape)
    return Array(name, dtype, shape, array.data, rows, array.hmac, array.salt)


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
        _refuse("has an extent that is no object")
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
        _refuse(f'has an extent "{array}" without a proper name')
    if array.startswith("_"):
        _refuse(f'gives the role "{array}" a name')
    if keys == _NAMED_PART_KEYS:
        return Extent(array, name=name)
    if keys - {"order"} != _TENSOR_KEYS or item.get("order", "F") != "F":
        _refuse(f'has an extent "{array}" with the keys {sorted(keys)}')
    dtype, shape = item["dtype"], item["shape"]
    if not isinstance(dtype, str) or not _is_unicode(dtype):
        _refuse(f'has an extent "{array}" without a proper dtype')
    # By type: True is an int to isinstance.
    if not isinstance(shape, list) or not set(map(type, shape)) <= _INTEGERS:
        _refuse(f'has an extent "{array}" without a proper shape')
    return Extent(array, dtype, name, tuple(shape), item.get("order"))


def _parse_hex(value: Any) -> bytes:
    if not isinstance(value, str) or not 2 <= len(value) <= 2 * MAX_HEX:
        _refuse(f"has a literal that is not of 1 to {MAX_HEX} bytes")
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        _refuse(f"has the literal {value!r}")
    # fromhex takes upper case and spaces, too: a value has one spelling.
    if raw.hex() != value:
        _refuse(f"has the literal {value!r}, not in lower case hex")
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
    # Before int(), which takes time that grows with the square of the digits.
    if len(digits.removeprefix("-")) > _MAX_DIGITS:
        _refuse(f"has a number of {len(digits)} digits")
    return int(digits)


def _refuse_number(spelling: str) -> NoReturn:
    _refuse(f"has the number {spelling[:40]}, only integers are allowed")


def _refuse(message: str) -> NoReturn:
    raise TextError("layout", f"_layout {message}", array=LAYOUT_ARRAY)


def literal(extent: Extent) -> bytes | None:
    """The bytes that an extent says itself; None for that of an array."""
    return None if extent.array is not None else extent.hex or bytes(extent.zeros or 0)


def placed(layout: Layout, sizes: Mapping[str, int]) -> Iterator[tuple[int, Extent]]:
    """A container's extents and where in the file each one starts; `sizes` are those of arrays."""
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
    """Tasks that give the file's bytes in order: its literals, and what `of_array` has for arrays.

    Literals that follow one another are joined: a file may be millions of them.
    """
    literals = bytearray()
    for extent in layout.extents:
        own = literal(extent)
        if own is not None:
            literals += own
            # Given up at a bound: zeros of a small text may be many MiB.
            if len(literals) < BLOCK_BYTES:
                continue
        if literals:
            yield partial(tuple[memoryview], (memoryview(bytes(literals)),))
            literals.clear()
        if extent.array is not None:
            yield from of_array(extent.array)
    if literals:
        yield partial(tuple[memoryview], (memoryview(bytes(literals)),))


NUMPY_DTYPES = {
    "f64": "<f8",
    "f32": "<f4",
    "i64": "<i8",
    "u64": "<u8",
    "i32": "<i4",
    "u32": "<u4",
    "i16": "<i2",
    "u16": "<u2",
    "i8": "|i1",
    "u8": "|u1",
}
"""numpy's spelling of the ten dtypes."""

BY_NUMPY = {spelling: name for name, spelling in NUMPY_DTYPES.items()}
# Other dtypes that stay arrays of numbers: the carrying dtype and added dimensions.
_CARRIERS = {"|b1": ("u8", ()), "<f2": ("u16", ()), "<c8": ("f32", (2,)), "<c16": ("f64", (2,))}
# Bytes of an item of each dtype of one size: the table of `docs/spec/wtxt.md`, "Native arrays".
_ITEM_SIZES = {
    **{descr: ITEM_SIZE[name] for descr, name in BY_NUMPY.items()},
    "|b1": 1,
    "<f2": 2,
    "<c8": 8,
    "<c16": 16,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int4": 1,
    "uint4": 1,
}
_SIZED = re.compile(r"(?:\|[SV]|<(U))([1-9][0-9]{0,8})")
# Bytes of a character of `U`.
_CHARACTER = 4
_TIME = re.compile(r"<[mM]8(?:\[(?:[1-9][0-9]{0,8})?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_TIME_SIZE = 8
# Dtypes of the ml_dtypes package, which numpy knows where that is imported.
_EXTENSION_NAME = re.compile(r"bfloat16|float[468]_[a-z0-9]{1,20}|u?int[24]")


def item_size(descr: str) -> int | None:
    """Bytes of an item of a native layout's dtype; None for one whose size is not checked.

    What numpy knows depends on the platform and on what was imported, so it is not asked.
    """
    if (sized := _SIZED.fullmatch(descr)) is not None:
        return int(sized[2]) * (1 if sized[1] is None else _CHARACTER)
    return _TIME_SIZE if _TIME.fullmatch(descr) else _ITEM_SIZES.get(descr)


def check_items(array: Array | ArrayLine, descr: str, shape: tuple[int, ...]) -> None:
    """Raise TextError "layout" where an array's bytes are no items of this dtype and shape."""
    size = item_size(descr)
    if size is not None and not _fits(array, size, shape):
        message = f'"{array.name}" is no {descr} of shape {shape}'
        raise TextError("layout", message, array=array.name)


def _fits(array: Array | ArrayLine, size: int, shape: tuple[int, ...]) -> bool:
    return (
        all(dim >= 0 for dim in shape)
        and bounded_product(size, shape, array.nbytes) == array.nbytes
    )


def view_as(
    array: Array | ArrayLine, descr: str, shape: tuple[int, ...]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The numpy dtype and shape that a checked layout gives an array.

    Those of the array itself where numpy has no such dtype here.
    """
    if item_size(descr) is not None or _EXTENSION_NAME.fullmatch(descr):
        # A dtype of the table may be one that has to be imported, or too large for numpy.
        with contextlib.suppress(TypeError, ValueError):
            dtype = np.dtype(descr)
            if dtype.itemsize and _fits(array, dtype.itemsize, shape):
                return dtype, shape
    return np.dtype(NUMPY_DTYPES[array.dtype]), array.shape


def shaped(raw: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """Bytes as an array; raises TextError "limit" for shapes beyond numpy's own bounds."""
    try:
        if len(raw):
            return np.frombuffer(raw, dtype).reshape(shape)
        # frombuffer takes no empty buffer.
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    except (ValueError, OverflowError) as error:
        raise TextError("limit", f'"{name}" is beyond numpy: {error}', array=name) from error


def carrier_of(descr: str, itemsize: int, extension: bool) -> tuple[str | None, tuple[int, ...]]:
    """The WTXT dtype that carries a numpy dtype, and the dimensions that it adds.

    None stands for u8 of the array's length. `extension` dtypes are those that
    other packages register with numpy, such as bfloat16.
    """
    if descr in BY_NUMPY:
        return BY_NUMPY[descr], ()
    if extension and itemsize in (1, 2):
        return ("u8" if itemsize == 1 else "u16"), ()
    return _CARRIERS.get(descr, (None, ()))
