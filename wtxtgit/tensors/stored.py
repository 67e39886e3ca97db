"""Items in C order, little-endian, as a tensor's file stores them: order, byte order, padding."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, pieces
from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.model.entries import Content
from wtxtgit.model.reading import Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import PARTS

_BLOCK = 4 * 1024 * 1024


def as_stored(tensor: Tensor, nbytes: int, blocks: Callable[[], Iterator[memoryview]]) -> Content:
    """New items of `tensor`, `nbytes` of them in C order, in the form of its stored bytes.

    What is stored beside its items (padding, what lies between strided ones)
    stays. Raises FormatError where its strides do not fit.
    """
    if tensor.strides is None and tensor.order != "F":
        return Content(tensor.nbytes, partial(_in_order, tensor, nbytes, blocks))
    return Content(tensor.nbytes, partial(_scattered, tensor, blocks))


def unchanged(tensor: Tensor) -> Content:
    """A tensor's bytes as they are stored."""
    return Content(tensor.nbytes, lambda: pieces(tensor.data))


def _in_order(
    tensor: Tensor, nbytes: int, blocks: Callable[[], Iterator[memoryview]]
) -> Iterator[Buffer]:
    width = _width(tensor)
    for block in blocks():
        if tensor.byteorder == "little" or width == 1:
            yield block
        else:
            yield np.frombuffer(block, f"<u{width}").byteswap().view(np.uint8).data
    if nbytes < tensor.nbytes:
        yield tensor.data[nbytes:]


def _scattered(tensor: Tensor, blocks: Callable[[], Iterator[memoryview]]) -> Iterator[Buffer]:
    """The stored bytes with the items put where the strides say, through a temporary file."""
    shape, strides = tensor_bytes.steps_of(tensor)
    shape, strides = shape or (1,), strides or (1,)
    item = ITEM_BYTES[tensor.element or "u8"]
    width = _width(tensor)
    if not tensor.nbytes or 0 in shape:
        yield from pieces(tensor.data)
        return
    # The last dimension is of bytes of an item, so that any item is one of bytes.
    apart = (*(stride * item for stride in strides), 1)
    last = sum((n - 1) * step for n, step in zip((*shape, item), apart, strict=True))
    if last >= tensor.nbytes:
        raise FormatError("items lie outside of what is stored", field="strides")
    with tempfile.TemporaryFile(prefix="wtxtgit-") as file:
        for piece in pieces(tensor.data):
            file.write(piece)
        file.flush()
        # Given up with the last view of it: closing it before would fail.
        held = mmap.mmap(file.fileno(), tensor.nbytes)
    view = as_strided(np.frombuffer(held, np.uint8), (*shape, item), apart)
    at = 0
    for block in blocks():
        values = np.frombuffer(block, np.uint8)
        if tensor.byteorder != "little" and width > 1:
            values = values.reshape(-1, width)[:, ::-1]
        values = values.reshape(-1, item)
        view[np.unravel_index(np.arange(at, at + len(values)), shape)] = values
        at += len(values)
    for start in range(0, tensor.nbytes, _BLOCK):
        yield held[start : start + _BLOCK]


def _width(tensor: Tensor) -> int:
    """Bytes of what has a byte order."""
    element = tensor.element or "u8"
    return ITEM_BYTES[element] // PARTS.get(element, 1)
