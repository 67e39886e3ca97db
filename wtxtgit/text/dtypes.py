"""numpy's dtypes and the ten of WTXT.

`docs/spec/wtxt.md`, section "Native arrays".
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer
from wtxtgit.model import Array
from wtxtgit.text.blocking import bounded_product
from wtxtgit.text.grammar import ArrayLine

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
_CARRIERS = {"|b1": ("u8", ()), "<f2": ("u16", ()), "<c8": ("f32", (2,)), "<c16": ("f64", (2,))}
"""Other dtypes that stay arrays of numbers: the carrying dtype and added dimensions."""
_DESCR = re.compile(r"[<|][biufcSUV][0-9]{1,9}|<[mM]8(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?")
_EXTENSION_NAME = re.compile(r"bfloat16|float[468]_[a-z0-9]{1,20}|u?int[24]")
"""Dtypes of the ml_dtypes package, which numpy knows where that is imported."""


def view_as(
    array: Array | ArrayLine, descr: str, shape: tuple[int, ...]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The numpy dtype and shape that a layout gives an array.

    Those of the array itself where numpy does not know the dtype here. Raises
    TextError "layout" where the array's bytes are no such array.
    """
    dtype = _numpy_dtype(descr)
    if dtype is None:
        return np.dtype(NUMPY_DTYPES[array.dtype]), array.shape
    fits = all(dim >= 0 for dim in shape) and bounded_product(shape, dtype.itemsize) == array.nbytes
    if not fits:
        raise TextError(
            "layout", f'"{array.name}" is no {dtype} of shape {shape}', array=array.name
        )
    return dtype, shape


def _numpy_dtype(descr: str) -> np.dtype[Any] | None:
    if not _DESCR.fullmatch(descr) and not _EXTENSION_NAME.fullmatch(descr):
        return None
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError):
        return None
    # An array of objects would be pointers out of a file; one of size 0 fits nothing.
    return None if dtype.hasobject or dtype.itemsize == 0 else dtype


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
