"""A tensor's bytes in C order, little-endian, and back to the form in which its file stores them.

Files store tensors in either byte order, columns first, strided, and with padding after the items.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.format import descr_to_dtype
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from wtxtgit.containers import npy_literal
from wtxtgit.containers.cursor import quoted
from wtxtgit.errors import FormatError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, hashed, pieces, same_bytes
from wtxtgit.model.array import bounded_product
from wtxtgit.model.dtypes import DTYPES
from wtxtgit.model.tensor import ITEM_BYTES, NewContent, Tensor
from wtxtgit.text.native import little_endian, stand_in

Content: TypeAlias = tuple[str, str, tuple[int, ...], bytes]
"""A tensor's name, dtype, shape and SHA-256."""

BLOCK = 4 * 1024 * 1024
"""Size of a block in bytes, unless the caller sets another one."""
_PREFIX_BLOCK = 1024 * 1024
NUMPY = {element: dtype.numpy[1:] for element, dtype in DTYPES.items() if not dtype.is_extension}
"""numpy's name for each element that it has."""
MAX_RANK = 32
"""The most dimensions that arrays can have in all versions of numpy."""

_DESCR = re.compile(r"[<>|][biufcmMSUV][0-9]{0,10}(?:\[[A-Za-z0-9/]{1,32}\])?")


@dataclass(frozen=True, slots=True)
class _Strides:
    """Where items lie: sizes and strides (in items), simplified."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        return self.strides in {(), (1,)}

    @property
    def span(self) -> int:
        """The number of items from the first to the last one."""
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in steps)


def blocks(tensor: Tensor, size: int = BLOCK) -> Iterator[memoryview]:
    """Yield the tensor's bytes in C order, little-endian, in blocks of about `size` bytes.

    Bytes that are stored that way are yielded without a copy, whether or not they are as many as
    the shape needs. Items of an unknown dtype keep their own byte order. A view that repeats items
    may be far longer than the file: blocks are made one at a time, and the caller bounds how many
    it takes.

    Raises FormatError if the tensor has no bytes or they don't fit its shape.
    """
    if tensor.absent is not None:
        raise _wrong(tensor, f"has no bytes: {tensor.absent}", tensor.absent)
    shape = _shape(tensor)
    if 0 in shape:
        return
    steps = _steps(tensor, shape)
    swap = _swapping(tensor)
    item = 1
    if swap is not None or not steps.is_contiguous:
        item = _item_size(tensor, steps)
    # As stored: of a large file only the part in use is mapped.
    if steps.is_contiguous:
        stored = pieces(tensor.view, max(size // item, 1) * item)
    else:
        _check_bounds(tensor, steps, item)
        stored = _gathered(tensor.data, steps, item, size)
    for piece in stored:
        yield piece if swap is None else _little(tensor, piece, swap)


def sha256_of(tensor: Tensor, advance: Progress | None = None) -> bytes:
    """Return the SHA-256 of the bytes that `blocks` yields; `advance` receives counts of bytes.

    Raises FormatError as `blocks` does.
    """
    return hashed(sha256(), blocks(tensor), advance).digest()


def contents_of(tensors: Iterable[Tensor], advance: Progress | None = None) -> Counter[Content]:
    """Count tensors by what they hold, independent of file and order; raises as `sha256_of`."""
    return Counter((t.name, t.dtype, t.shape, sha256_of(t, advance)) for t in tensors)


def array(tensor: Tensor) -> NDArray[Any]:
    """Return a read-only numpy view of the tensor, in the file's byte order.

    The shape is numpy's: that of a "reversed" tensor is turned round. Raises FormatError if numpy
    has no such dtype, or the bytes don't fit.
    """
    if tensor.absent is not None:
        raise _wrong(tensor, f"has no bytes: {tensor.absent}", tensor.absent)
    if tensor.element is None:
        dtype = _described(tensor.dtype)
    else:
        word = NUMPY.get(tensor.element)
        sign = "<" if tensor.byteorder == "little" else ">"
        dtype = None if word is None else np.dtype(sign + word)
    if dtype is None or not dtype.itemsize:
        raise _wrong(tensor, f"is {quoted(tensor.dtype)}, which numpy does not have")
    shape = _shape(tensor)
    if len(shape) > MAX_RANK:
        raise _wrong(tensor, f"has {len(shape)} dimensions, over {MAX_RANK}")
    if 0 in shape:
        return _numpy_made(tensor, lambda: np.empty(shape, dtype))
    strides = _strides(tensor, shape)
    steps = _Strides(shape, strides)
    _check_bounds(tensor, steps, dtype.itemsize)
    # Check bounds first: as_strided does not.
    flat = np.frombuffer(tensor.data, dtype, steps.span)
    # The stride of a dimension of one item is never used, however large it is.
    steps_taken = (stride if size > 1 else 0 for size, stride in zip(shape, strides, strict=True))
    bytes_apart = [stride * dtype.itemsize for stride in steps_taken]
    return _numpy_made(tensor, lambda: as_strided(flat, shape, bytes_apart, writeable=False))


def numpy_dtype(tensor: Tensor) -> np.dtype[Any] | None:
    """Return numpy's dtype for the tensor's items once they are little-endian; None if it has none.

    Dtypes that ml_dtypes defines become unsigned integers if it is not imported, which keep the
    dtype's name (`text.native.stand_in`).
    """
    if tensor.element is None:
        dtype = _described(tensor.dtype)
        return dtype.newbyteorder("<") if dtype is not None and dtype.itemsize else None
    if (word := NUMPY.get(tensor.element)) is not None:
        return np.dtype(f"<{word}")
    name = DTYPES[tensor.element].numpy
    with contextlib.suppress(TypeError):
        return np.dtype(name)
    return stand_in(f"<u{ITEM_BYTES[tensor.element]}", name)


def element_of(tensor: Tensor) -> str | None:
    """Return what a `TensorSource` of the tensor has as element; None if there is none."""
    if tensor.element is not None or tensor.packing is not None:
        return tensor.element or tensor.packing
    dtype = _described(tensor.dtype)
    is_scalar = dtype is not None and dtype.kind in "SUmMV" and dtype.names is None
    return dtype.newbyteorder("<").str if dtype and dtype.itemsize and is_scalar else None


def steps_of(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape as numpy has it, and the strides in which items are stored, in items.

    Raises FormatError if shape or strides make no sense.
    """
    shape = _shape(tensor)
    return shape, _strides(tensor, shape)


def content_size(tensor: Tensor) -> int:
    """Return the size of the tensor's items; a strided view may store fewer or more bytes."""
    if tensor.strides is None or tensor.element is None:
        return tensor.nbytes
    return prod(tensor.shape) * ITEM_BYTES[tensor.element]


def _numpy_made(tensor: Tensor, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    try:
        return make()
    except ValueError:
        # The product of the sizes has over 63 bits, though nothing or little is stored.
        raise _wrong(tensor, "has a shape that numpy does not support") from None


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape as numpy has it."""
    if any(size < 0 for size in tensor.shape):
        raise _wrong(tensor, "has a negative dimension")
    return tensor.logical_shape


def _strides(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    if tensor.strides is not None:
        if len(tensor.strides) != len(shape) or any(stride < 0 for stride in tensor.strides):
            raise _wrong(tensor, "has strides that do not fit its shape")
        return tensor.strides
    if tensor.order == "F":
        return _products(shape)
    return _products(shape[::-1])[::-1]


def _products(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor whose first dimension is the fastest."""
    products, step = [], 1
    for size in shape:
        products.append(step)
        step *= size
    return tuple(products)


def _steps(tensor: Tensor, shape: tuple[int, ...]) -> _Strides:
    """Drop dimensions of one item, and join dimensions that are contiguous.

    A tensor in C order has no steps: its bytes are taken whatever its shape needs.
    """
    if tensor.strides is None and tensor.order != "F":
        return _Strides((), ())
    sizes: list[int] = []
    apart: list[int] = []
    for size, stride in zip(shape, _strides(tensor, shape), strict=True):
        if size == 1:
            continue
        if sizes and apart[-1] == stride * size:
            sizes[-1] *= size
            apart[-1] = stride
        else:
            sizes.append(size)
            apart.append(stride)
    return _Strides(tuple(sizes), tuple(apart))


def _item_size(tensor: Tensor, steps: _Strides) -> int:
    """Return the size of an item: the element's, the dtype's, or what the stored bytes suggest."""
    if tensor.element is not None:
        return ITEM_BYTES[tensor.element]
    dtype = _described(tensor.dtype)
    if dtype is not None and dtype.itemsize:
        return dtype.itemsize
    size, rest = divmod(tensor.nbytes, steps.span)
    if rest or not size:
        raise _wrong(tensor, f"has {tensor.nbytes} bytes, which do not fit its shape")
    return size


def _check_bounds(tensor: Tensor, steps: _Strides, item: int) -> None:
    if steps.span * item > tensor.nbytes:
        raise _wrong(
            tensor,
            f"needs {steps.span * item} bytes, but has {tensor.nbytes}",
        )


def _gathered(data: memoryview, steps: _Strides, item: int, size: int) -> Iterator[memoryview]:
    """Yield items in C order, in whole rows of the outermost dimension whose rows fit `size`.

    Each block is at least half of `size`, except the last one of a run: rows of the next outer
    dimension would not fit.
    """
    shape, strides = steps.shape, steps.strides
    dtype = np.dtype(f"u{item}" if item in (1, 2, 4, 8) else f"V{item}")
    flat = np.frombuffer(data, dtype, steps.span)
    split = 0
    while split < len(shape) - 1 and item * prod(shape[split + 1 :]) > size:
        split += 1
    inner = shape[split + 1 :]
    rows = max(size // (item * prod(inner)), 1)
    apart = [stride * item for stride in strides[split:]]
    for outer in range(prod(shape[:split])):
        start = 0
        for length, stride in zip(shape[:split][::-1], strides[:split][::-1], strict=True):
            outer, index = divmod(outer, length)
            start += index * stride
        for row in range(0, shape[split], rows):
            count = min(rows, shape[split] - row)
            first = flat[start + row * strides[split] :]
            # as_strided reads wherever strides lead: `_check_bounds` has checked them.
            view = as_strided(first, (count, *inner), apart, writeable=False)
            yield _bytes(np.ascontiguousarray(view))


def _swapping(tensor: Tensor) -> np.dtype[Any] | None:
    """Return the big-endian dtype of the items, None if there is nothing to swap."""
    if tensor.element is None:
        # Each field of a record may have its own byte order. Padding is copied as fields.
        dtype = _described(tensor.dtype, np.dtype)
        return None if dtype is None or dtype == dtype.newbyteorder("<") else dtype
    if tensor.byteorder == "little":
        return None
    width = ITEM_BYTES[tensor.element] // DTYPES[tensor.element].parts
    return np.dtype(f">u{width}") if width > 1 else None


def _described(
    text: str, of_fields: Callable[[Any], np.dtype[Any]] = descr_to_dtype
) -> np.dtype[Any] | None:
    """Return the dtype for an npy descr; None if there is none, or if it contains objects.

    `of_fields` makes it of a record's fields: as numpy reads them, without those that are padding.
    """
    try:
        if _DESCR.fullmatch(text):
            dtype = np.dtype(text)
        elif text.startswith("["):
            fields: object = npy_literal.parse(text)
            dtype = of_fields(fields)
        else:
            return None
    except (FormatError, TypeError, ValueError, OverflowError, MemoryError, RecursionError):
        return None
    return None if dtype.hasobject else dtype


def _little(tensor: Tensor, piece: memoryview, dtype: np.dtype[Any]) -> memoryview:
    if piece.nbytes % dtype.itemsize:
        raise _wrong(tensor, f"has {tensor.nbytes} bytes, which are not whole items")
    return _bytes(little_endian(np.frombuffer(piece, dtype)))


def _bytes(values: NDArray[Any]) -> memoryview:
    return values.reshape(-1).view(np.uint8).data


def _wrong(tensor: Tensor, what: str, cause: object = None) -> FormatError:
    message = f"tensor {quoted(tensor.name)} {what}"
    return FormatError.because(message, cause, offset=tensor.offset, field="shape")


def as_stored(
    tensor: Tensor, nbytes: int, blocks: Callable[[], Iterator[memoryview]]
) -> NewContent:
    """Convert new items of `tensor`, `nbytes` in C order, to the form of its stored bytes.

    Other stored bytes (padding, bytes between strided items) stay. Raises FormatError if its
    strides do not fit.
    """
    if tensor.strides is None and tensor.order != "F":
        return NewContent(tensor.nbytes, partial(_in_order, tensor, nbytes, blocks))
    return NewContent(tensor.nbytes, partial(_scattered, tensor, blocks))


def unchanged(tensor: Tensor) -> NewContent:
    """Return a tensor's bytes as they are stored."""
    return NewContent(tensor.nbytes, lambda: pieces(tensor.data))


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
    """Yield the stored bytes with new items put where the strides say, through a temporary file."""
    shape, strides = steps_of(tensor)
    shape, strides = shape or (1,), strides or (1,)
    item = ITEM_BYTES[tensor.element or "u8"]
    width = _width(tensor)
    if not tensor.nbytes or 0 in shape:
        yield from pieces(tensor.data)
        return
    # The last dimension is the bytes of an item, so that this works for any item size.
    apart = (*(stride * item for stride in strides), 1)
    last = sum((n - 1) * step for n, step in zip((*shape, item), apart, strict=True))
    # Without this check as_strided would write outside of the file.
    if last >= tensor.nbytes:
        raise FormatError("items lie outside the stored bytes", field="strides")
    with tempfile.TemporaryFile(prefix="wtxtgit-") as file:
        for piece in pieces(tensor.data):
            # Work on a copy: the file that is read is never written.
            file.write(piece)
        file.flush()
        # Closed together with its last view: closing it before would fail.
        mapping = mmap.mmap(file.fileno(), tensor.nbytes)
    view = as_strided(np.frombuffer(mapping, np.uint8), (*shape, item), apart)
    at = 0
    for block in blocks():
        values = np.frombuffer(block, np.uint8)
        if tensor.byteorder != "little" and width > 1:
            values = values.reshape(-1, width)[:, ::-1]
        values = values.reshape(-1, item)
        view[np.unravel_index(np.arange(at, at + len(values)), shape)] = values
        at += len(values)
    for start in range(0, tensor.nbytes, BLOCK):
        yield mapping[start : start + BLOCK]


def _width(tensor: Tensor) -> int:
    """Return the size of the units that have a byte order."""
    element = tensor.element or "u8"
    return ITEM_BYTES[element] // DTYPES[element].parts


def as_numbers(tensor: Tensor) -> Tensor | None:
    """Return the tensor without trailing padding; None if it is not numbers of its shape."""
    if tensor.element is None or tensor.absent is not None:
        return None
    if tensor.strides is None:
        items = bounded_product(1, tensor.shape, tensor.nbytes)
    elif 0 in tensor.shape:
        items = 0
    else:
        # From the first to the last item; reading checks whether strides fit the shape.
        steps = zip(tensor.shape, tensor.strides, strict=False)
        items = 1 + sum((size - 1) * stride for size, stride in steps)
    # Negative if a dim is: that never fits.
    needed = items * ITEM_BYTES[tensor.element]
    return tensor.first(needed) if 0 <= needed <= tensor.nbytes else None


def as_values(tensor: Tensor) -> Tensor | None:
    """Return the tensor as `as_numbers` does, and quantised numbers as f32."""
    numbers = as_numbers(tensor)
    if numbers is not None or tensor.packing is None:
        return numbers
    from wtxtgit.tensors.dequantised import dequantised  # few files have quantised tensors

    return dequantised(tensor)


def aligned(
    a: Tensor, item_a: int, b: Tensor, item_b: int, size: int
) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield pieces of both tensors in C order, with equally many items, to the end of both.

    Raises FormatError if one has fewer bytes than it claims.
    """
    blocks_a, blocks_b = blocks(a, size), blocks(b, size)
    left_a = left_b = memoryview(b"")
    while True:
        left_a = left_a if len(left_a) else next(blocks_a, left_a)
        left_b = left_b if len(left_b) else next(blocks_b, left_b)
        if not len(left_a) and not len(left_b):
            return
        count = min(len(left_a) // item_a, len(left_b) // item_b)
        if not count:
            short = a if len(left_a) < item_a else b
            raise FormatError(
                f"tensor has fewer than {short.nbytes} bytes", offset=short.offset, field="shape"
            )
        yield left_a[: count * item_a], left_b[: count * item_b]
        left_a, left_b = left_a[count * item_a :], left_b[count * item_b :]


def is_same(a: Tensor, b: Tensor, advance: Progress) -> bool:
    """Whether two tensors of one dtype and shape have equal bytes in C order.

    Reads up to the first difference; `advance` receives how many bytes of either were read. Raises
    FormatError.
    """
    total_a = total_b = 0
    # Start with small blocks: most tensors of two generations are equal, or differ early.
    for raw_a, raw_b in aligned(a, 1, b, 1, _PREFIX_BLOCK):
        advance(len(raw_a))
        total_a += len(raw_a)
        total_b += len(raw_b)
        if not same_bytes(raw_a, raw_b):
            return False
    return total_a == total_b
