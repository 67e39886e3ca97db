"""What a program holds, as named arrays: nested mappings of arrays of any framework.

Frameworks are recognised by what their arrays offer, and none is imported. If numpy does not have
a dtype (torch's bfloat16), the array is viewed as integers of the same size, with the real dtype
recorded beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.errors import UsageError
from wtxtgit.model.array import Meta, Snapshot
from wtxtgit.text.arrays import (
    NumpyArray,
    NumpyType,
    extension_type,
    numpy_type,
    raw_array,
    snapshot_of_raw,
)

_MAX_DEPTH = 64
_AUDIT_KEY = re.compile(r"[A-Za-z0-9._/+:@-]+")
_AUDIT_WORD = re.compile(r"[!#-~]+")
_AUDIT_TEXT = re.compile(r"[ !#-~]*")


@dataclass(frozen=True, slots=True, eq=False)
class GivenArray:
    """An array whose memory is still the program's; `source` has its shape and item size."""

    name: str
    dtype: NumpyType
    source: NDArray[Any]

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @property
    def memory(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """A value that is equal for arrays that are the same view of the same memory."""
        return self.source.ctypes.data, self.source.shape, self.source.strides


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """The arrays of a state by name, in order, and its other values by name, as words."""

    arrays: tuple[GivenArray, ...]
    words: tuple[tuple[str, str], ...]


def given_arrays(arrays: Mapping[Any, Any]) -> dict[str, NumpyArray]:
    """Return the arrays of a mapping by name; names in nested mappings are joined with a dot.

    Values that are not arrays of a framework, such as lists and numbers, are converted by numpy.
    Raises UsageError, with the name, for a dtype that can't be stored and for duplicate names.
    """
    if not isinstance(arrays, Mapping):
        raise _without_names(arrays)
    named: dict[str, NumpyArray] = {}
    for name, value in _leaves(arrays, "", 0, Mapping):
        if name in named:
            raise UsageError(f'two arrays are named "{name}"')
        array = _array(name, value) or _converted(name, value)
        named[name] = raw_array(name, array.dtype, array.source)
    return named


def snapshot_from(
    arrays: Mapping[Any, Any],
    *,
    meta: Meta | None = None,
    prev: bytes = bytes(32),
    audit: str | None = None,
    rows_per_chunk: int | None = None,
    pending: bool = False,
) -> Snapshot:
    """Make a snapshot of arrays of any shape and dtype except objects and records.

    Values are kept: big-endian arrays become little-endian ones, Fortran order becomes C order.
    Raises what `given_arrays` does.
    """
    named = given_arrays(arrays)
    raw = [named[name] for name in sorted(named)]
    return snapshot_of_raw(raw, meta, prev, audit, rows_per_chunk, pending)


def training_state(state: Mapping[Any, Any]) -> TrainingState:
    """Walk through a state: names in nested mappings and lists are joined with a dot.

    Numbers, strings and bools become words. Raises UsageError, with the name, for any other value
    that is not an array, and for duplicate names.
    """
    if not isinstance(state, (Mapping, list, tuple)):
        raise _without_names(state)
    arrays: dict[str, GivenArray] = {}
    words: dict[str, str] = {}
    for name, value in _leaves(state, "", 0, (Mapping, list, tuple)):
        if name in arrays or name in words:
            raise UsageError(f'two values are named "{name}"')
        array = _array(name, value)
        if array is not None:
            arrays[name] = array
        else:
            words[name] = word_of(name, value)
    return TrainingState(
        tuple(arrays[name] for name in sorted(arrays)), tuple(sorted(words.items()))
    )


def _without_names(value: Any) -> UsageError:
    has_state = callable(getattr(value, "state_dict", None))
    return UsageError(
        f"arrays have to be given by name, in a mapping, not as {type(value).__name__}",
        hint="its state_dict() is one" if has_state else '{"W": w} is one',
    )


def word_of(name: str, value: Any) -> str:
    """Return a value as the audit line spells it; raises UsageError if the line can't hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise UsageError(f'"{name}" is {_kind(value)}, not an array, a number or a string')
    word = str(value)
    if _AUDIT_KEY.fullmatch(name) is None or _AUDIT_TEXT.fullmatch(word) is None:
        raise UsageError(f'"{name}" can\'t be written in the audit line: {ascii(word)[:40]}')
    return word if _AUDIT_WORD.fullmatch(word) else f'"{word}"'


def _leaves(value: Any, name: str, depth: int, nests: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values inside nested values of the types `nests`, with their names."""
    if depth > _MAX_DEPTH:
        raise UsageError(f'"{name[:40]}..." is nested more than {_MAX_DEPTH} deep')
    if not isinstance(value, nests):
        yield name, value
        return
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, inner in items:
        # A bool is an int in Python, and would be spelled True.
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise UsageError(f'a key of "{name}" is {_kind(key)}, not a string or an integer')
        yield from _leaves(inner, f"{name}.{key}" if name else str(key), depth + 1, nests)


def _converted(name: str, value: Any) -> GivenArray:
    """Return a number or a list as an array."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UsageError(f'"{name}" does not convert to an array: {error}') from error
    if array.dtype.hasobject and any(isinstance(value, Mapping) for value in array.flat):
        raise UsageError(
            f'array "{name}" has dtype object: objects and records are never stored',
            hint="of a list of mappings, make a mapping: dict(enumerate(values))",
        )
    return _numpy_array(name, array)


def _array(name: str, value: Any) -> GivenArray | None:
    """Return a value as an array, None if it is not one."""
    if isinstance(value, np.generic):
        return None
    if isinstance(value, np.ndarray):
        return _numpy_array(name, value)
    if _is_torch(value):
        return _torch_array(name, value)
    try:
        if hasattr(value, "__array__"):
            return _numpy_array(name, np.asarray(value))
        if hasattr(value, "__dlpack__"):
            return _numpy_array(name, np.from_dlpack(value))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        message = f'"{name}" is {_kind(value)}, which does not convert to an array: {error}'
        raise UsageError(message) from error
    return None


def _numpy_array(name: str, array: NDArray[Any]) -> GivenArray:
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise UsageError(f'"{name}" is a masked array: its filled() has a value for each item')
        array = array.data
    return GivenArray(name, numpy_type(name, array.dtype), array)


def _is_torch(value: Any) -> bool:
    return any(
        kind.__module__.partition(".")[0] == "torch" and kind.__name__ == "Tensor"
        for kind in type(value).__mro__
    )


def _torch_array(name: str, tensor: Any) -> GivenArray:
    """Return a tensor's memory; a tensor on another device is copied to main memory."""
    if hasattr(tensor, "full_tensor"):
        raise UsageError(f'"{name}" is only a part of a tensor: publish its full_tensor()')
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise UsageError(f'"{name}" is a sparse or quantized tensor, which is not a plain array')
    if str(tensor.device) == "meta":
        raise UsageError(f'"{name}" is a tensor on the meta device, which has no values')
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    try:
        return _numpy_array(name, tensor.numpy())
    except TypeError:
        # bfloat16 and float8: numpy has none of its own, and ml_dtypes may not be installed.
        item_size = tensor.element_size()
        if item_size not in (1, 2):
            raise UsageError(f'"{name}" has dtype {tensor.dtype}, which is not supported') from None
        dtype = extension_type(name, str(tensor.dtype).removeprefix("torch."), item_size)
        integer = getattr(__import__("torch"), "uint8" if item_size == 1 else "int16")
        return GivenArray(name, dtype, tensor.view(integer).numpy())


def _kind(value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
