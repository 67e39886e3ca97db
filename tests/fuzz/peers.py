"""The readers that the formats come with: what they make of a file, tensor by tensor."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

Read = dict[str, tuple[tuple[int, ...], bytes]]
"""The shape and the bytes of each tensor, by name; numbers little-endian, rows first."""

UNREAD = ("Unsupported global", "Unsupported operand", "is blocked", "can't decode byte")
"""Words of torch about pickles that it would load without weights_only, or with an encoding."""


class Refused(Exception):
    """The reader does not take the file."""


class Unread(Exception):
    """It would take the file if it were told to run what is in it."""


def npy(data: bytes) -> Read:
    """numpy.load, as often as it takes for all of the file."""
    stream = io.BytesIO(data)
    found = _loaded(stream)
    while stream.tell() < len(data):
        _loaded(stream)
    return {"data": _array(found)}


def npz(data: bytes) -> Read:
    """All members that numpy.load takes for arrays, and that are called so."""
    arrays = _loaded(io.BytesIO(data))
    named = {name.removesuffix(".npy") for name in _names(data) if name.endswith(".npy")}
    return {name: _array(value) for name, value in arrays.items() if name in named}


def _names(data: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return file.namelist()


def _loaded(stream: io.BytesIO) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.load(stream, max_header_size=2**20)
            return dict(found) if isinstance(found, Mapping) else found
    except Exception as refusal:  # noqa: BLE001
        if "allow_pickle=False" in str(refusal):
            raise Unread from None
        raise Refused(f"{type(refusal).__name__}: {refusal}") from None


def _array(value: Any) -> tuple[tuple[int, ...], bytes]:
    is_plain = value.dtype.names is None
    return value.shape, (
        value.astype(value.dtype.newbyteorder("<")) if is_plain else value
    ).tobytes()


def safetensors(data: bytes) -> Read:
    """The reference library."""
    from safetensors import SafetensorError, deserialize

    try:
        return {name: (tuple(v["shape"]), bytes(v["data"])) for name, v in deserialize(data)}
    except SafetensorError as refusal:
        raise Refused(str(refusal)) from None


def gguf(data: bytes) -> Read:
    """gguf's own reader, which takes a path."""
    from gguf import GGUFReader

    with TemporaryDirectory() as folder, np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "m.gguf"
        path.write_bytes(data)
        try:
            return {t.name: _of_gguf(t) for t in GGUFReader(path).tensors}
        except Exception as refusal:  # noqa: BLE001
            raise Refused(f"{type(refusal).__name__}: {refusal}") from None


def _of_gguf(tensor: Any) -> tuple[tuple[int, ...], bytes]:
    held = tensor.data
    # What is quantised, or no number of numpy's, is bytes.
    plain = held if held.dtype == np.uint8 else held.astype(held.dtype.newbyteorder("<"))
    return tuple(map(int, tensor.shape)), plain.tobytes()


def torch(data: bytes) -> Read:
    """torch.load, which takes weights alone."""
    import torch as library

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = library.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        except Exception as refusal:  # noqa: BLE001
            words = str(refusal)
            if any(word in words for word in UNREAD):
                raise Unread from None
            raise Refused(f"{type(refusal).__name__}: {words}") from None
        return {name: _tensor(library, tensor) for name, tensor in _leaves(library, value)}


def _leaves(library: Any, value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if isinstance(value, library.Tensor):
        yield ".".join(path) or "tensor", value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(library, inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(library, inner, (*path, str(number)))


def _tensor(library: Any, tensor: Any) -> tuple[tuple[int, ...], bytes]:
    # A copy would make 1 of every other byte of a boolean.
    held = tensor.detach().contiguous().reshape(-1)
    raw = bytes(held.view(library.uint8).numpy()) if held.numel() else b""
    return tuple(tensor.shape), raw


PEERS: dict[str, Callable[[bytes], Read]] = {
    "npy": npy,
    "npz": npz,
    "safetensors": safetensors,
    "gguf": gguf,
    "torch": torch,
    "legacy": torch,
}
"""By the group of mutants."""
