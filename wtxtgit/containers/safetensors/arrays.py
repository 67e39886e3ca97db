"""Writing numpy's arrays to safetensors files: what native texts are restored to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from wtxtgit.containers.safetensors.write import build
from wtxtgit.containers.tensor_header import METADATA_KEY
from wtxtgit.errors import UsageError

_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""The dtype of each of numpy's and ml_dtypes', by its name."""


def can_hold(name: str) -> bool:
    """Whether a tensor can have this name."""
    return name != METADATA_KEY


def write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a file with these tensors; raises UsageError for dtypes that the format lacks."""
    tensors = []
    for name in arrays:
        array = arrays[name]
        dtype = _DTYPES.get(array.dtype.name)
        if dtype is None:
            raise UsageError(f'array "{name}" is {array.dtype}: safetensors has no such dtype')
        raw = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        tensors.append((name, dtype, array.shape, raw))
    for piece in build(tensors):
        file.write(piece)
