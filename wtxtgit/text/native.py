"""Arrays of numpy as native snapshots hold them: dtypes, item sizes, views.

`docs/spec/wtxt.md`, section "Native arrays".
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer
from wtxtgit.model.array import ITEM_SIZE, Array, bounded_product
from wtxtgit.model.dtypes import DTYPES, ELEMENTS
from wtxtgit.text.grammar import ArrayLine

NUMPY_DTYPES = {element: DTYPES[element].numpy for element in ITEM_SIZE}
"""numpy's spelling of the ten dtypes."""

BY_NUMPY = {spelling: name for name, spelling in NUMPY_DTYPES.items()}
# Those that `docs/spec/wtxt.md`, "Native arrays", gives no item size.
_UNSIZED = ("float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
_ITEM_SIZES = {"int4": 1, "uint4": 1} | {
    dtype.numpy: dtype.size for dtype in DTYPES.values() if dtype.numpy not in _UNSIZED
}
_SIZED = re.compile(r"(?:\|[SV]|<(U))([1-9][0-9]{0,8})")
# Bytes of a character of `U`.
_CHARACTER = 4
_TIME = re.compile(r"<[mM]8(?:\[(?:[1-9][0-9]{0,8})?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_TIME_SIZE = 8
# Dtypes of the ml_dtypes package, which numpy knows once that is imported.
_EXTENSION_NAME = re.compile(r"bfloat16|float[468]_[a-z0-9_]{1,20}|u?int[24]")


_STANDS_FOR = "wtxtgit"
"""The key of a dtype's metadata whose value names the dtype that numpy lacks."""


def stand_in(integer: str, name: str) -> np.dtype[Any]:
    """Return the dtype of integers whose bytes are items of the dtype `name`, which numpy lacks.

    The name goes along with arrays of that dtype, their copies and views, so that they are written
    as what they are.
    """
    return np.dtype(integer, metadata={_STANDS_FOR: name})


def is_extension_name(name: str) -> bool:
    """Whether a dtype of this name, which numpy lacks, can be recorded in a text and read again."""
    return _EXTENSION_NAME.fullmatch(name) is not None


def stands_for(dtype: np.dtype[Any]) -> str | None:
    """Return the name that `stand_in` gave a dtype, None for any other dtype."""
    metadata: Mapping[str, object] = dtype.metadata or {}
    name = metadata.get(_STANDS_FOR)
    return name if isinstance(name, str) and is_extension_name(name) else None


def item_size(descr: str) -> int | None:
    """Return the item size in bytes of a native layout's dtype; None if its size is not checked.

    numpy is not asked, since what it knows depends on the platform and on imported packages.
    """
    if (sized := _SIZED.fullmatch(descr)) is not None:
        return int(sized[2]) * (1 if sized[1] is None else _CHARACTER)
    return _TIME_SIZE if _TIME.fullmatch(descr) else _ITEM_SIZES.get(descr)


def check_items(array: Array | ArrayLine, descr: str, shape: tuple[int, ...]) -> None:
    """Raise TextError "layout" if an array's bytes are not items of this dtype and shape."""
    size = item_size(descr)
    if size is not None and not _fits(array, size, shape):
        message = f'"{array.name}" is not {descr} of shape {shape}'
        raise TextError("layout", message, array=array.name)


def _fits(array: Array | ArrayLine, size: int, shape: tuple[int, ...]) -> bool:
    return (
        all(dim >= 0 for dim in shape)
        and bounded_product(size, shape, array.nbytes) == array.nbytes
    )


def view_as(
    array: Array | ArrayLine, descr: str, shape: tuple[int, ...]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the numpy dtype and shape that a checked layout gives an array.

    If numpy has no such dtype here, those of the array itself are returned, with the real dtype's
    name in the metadata.
    """
    if item_size(descr) is not None or is_extension_name(descr):
        # A dtype of the table may need an import, or be too large for numpy.
        with contextlib.suppress(TypeError, ValueError):
            dtype = np.dtype(descr)
            if dtype.itemsize and _fits(array, dtype.itemsize, shape):
                return dtype, shape
    carrier = NUMPY_DTYPES[array.dtype]
    is_extension = is_extension_name(descr) and carrier in ("|u1", "<u2")
    return stand_in(carrier, descr) if is_extension else np.dtype(carrier), array.shape


def little_endian(values: NDArray[Any]) -> NDArray[Any]:
    """Copy an array into little-endian order."""
    copy = np.empty(values.shape, values.dtype.newbyteorder("<"))
    # astype leaves big-endian times without a unit as they are.
    np.copyto(copy, values, casting="equiv")
    return copy


def shaped(raw: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """Return bytes as an array; raises TextError "limit" for shapes beyond numpy's own bounds."""
    try:
        if len(raw):
            return np.frombuffer(raw, dtype).reshape(shape)
        # frombuffer does not accept an empty buffer.
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    except (ValueError, OverflowError) as error:
        message = f'"{name}" is not possible as a numpy array: {error}'
        raise TextError("limit", message, array=name) from error


def carrier_of(descr: str, itemsize: int, extension: bool) -> tuple[str | None, tuple[int, ...]]:
    """Return the WTXT dtype that carries a numpy dtype, and the dimensions that it adds.

    A dtype of None means that u8 of the array's length carries it. `extension` dtypes are those
    that other packages register with numpy, such as bfloat16.
    """
    if extension:
        return {1: "u8", 2: "u16"}.get(itemsize), ()
    if descr not in ELEMENTS:
        return None, ()
    dtype = DTYPES[ELEMENTS[descr]]
    return dtype.carrier, () if dtype.parts == 1 else (dtype.parts,)
