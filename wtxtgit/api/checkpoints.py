"""Checkpoints of every format as mappings of arrays: what `load` and `open` give."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wtxtgit.checkpoint.contents import KEY_OPENS, Checkpoint
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.cursor import quoted
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.files import shown
from wtxtgit.model.named_arrays import NamedArrays, OpenFile, Shaped
from wtxtgit.model.tensor import PackedBytes, Tensor
from wtxtgit.tensors.tensor_bytes import as_numbers, blocks, content_size, numpy_dtype
from wtxtgit.text.arrays import LazyRows
from wtxtgit.text.verify import TextReport

_T = TypeVar("_T", bound=Shaped)

RAW = np.dtype("V1")
"""Bytes that are no numbers: quantised blocks, and other items without a dtype in numpy."""


class _OfCheckpoint(NamedArrays[_T]):
    """The tensors of a checkpoint by name.

    `format` is the checkpoint's format and `metadata` what it says about itself, as plain data.
    `tags` are the texts in it that files of other formats can hold (FOLD's training metadata,
    `llm_manifest`, `metrics`, `history` and `telemetry`, as JSON). `notes` say what could not be
    read.
    """

    def __init__(self, checkpoint: Checkpoint, arrays: Mapping[str, _T]) -> None:
        super().__init__(arrays)
        self.format = checkpoint.format
        self.metadata = checkpoint.metadata
        self.tags = _chunk_tags(checkpoint) | checkpoint.tags
        self.notes = checkpoint.notes

    def _title(self) -> str:
        return self.format


def _chunk_tags(checkpoint: Checkpoint) -> dict[str, str]:
    known = registry.by_name(checkpoint.format)
    inner = checkpoint.metadata.get("in chunks")
    if known is None or not isinstance(inner, dict):
        return {}
    return any_format.chunk_tags(known, inner.items())


class Tensors(_OfCheckpoint[NDArray[Any]]):
    """The tensors of a checkpoint by name, as read-only numpy arrays.

    `format`, `metadata`, `tags` and `notes` say the rest. For a text, `report` is the result of
    verifying it and `meta` its generation; for other files both are None. Raises InputError if a
    tensor can't be read.
    """

    def __init__(self, checkpoint: Checkpoint, report: TextReport | None = None) -> None:
        self.report = report
        self.meta = None if report is None else report.index.meta
        arrays = {}
        for name, tensor in _by_name(checkpoint).items():
            if (reason := checkpoint.budget.refusal(tensor)) is not None:
                message = f"{checkpoint.name}: tensor {quoted(name)}: {reason}"
                raise InputError.because(message, reason)
            arrays[name] = _values(checkpoint, tensor)
        super().__init__(checkpoint, arrays)


class LazyTensors(_OfCheckpoint["LazyTensor"], OpenFile):
    """The tensors of an open checkpoint by name; each is read when it is indexed.

    `format`, `metadata`, `tags` and `notes` are as in `Tensors`.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        tensors = _by_name(checkpoint).items()
        lazy = {name: LazyTensor(checkpoint, tensor) for name, tensor in tensors}
        super().__init__(checkpoint, lazy)

    def keep(self, until: ExitStack) -> None:
        super().keep(until)
        # `open(path)["W"]` may outlive the mapping that it is from.
        for tensor in self._arrays.values():
            tensor.until = until


class LazyTensor(LazyRows):
    """A tensor of an open checkpoint, of which only the indexed rows are read.

    A tensor that is compressed, or not stored in C order, is read whole. `stored_dtype` is the
    dtype as the file names it, `nbytes` the number of bytes stored.
    """

    until: ExitStack | None = None
    """What closes the file once nothing refers to it."""

    def __init__(self, checkpoint: Checkpoint, tensor: Tensor) -> None:
        dtype = numpy_dtype(tensor)
        shape = (tensor.nbytes,) if dtype is None else tensor.logical_shape
        super().__init__(RAW if dtype is None else dtype, shape)
        self.name = tensor.name
        self.stored_dtype = tensor.dtype
        self.nbytes = tensor.nbytes
        self._checkpoint = checkpoint
        self._tensor = tensor

    def __repr__(self) -> str:
        return f"<LazyTensor {shown(self.name)} {self.dtype} {self.shape}>"

    def _rows(self, low: int, high: int | None) -> NDArray[Any]:
        tensor = self._tensor
        if high is None:
            return _values(self._checkpoint, tensor)
        row = self.dtype.itemsize * prod(self.shape[1:])
        start, end = low * row, high * row
        is_in_rows = tensor.strides is None and tensor.order != "F"
        is_there = tensor.absent is None and end <= tensor.nbytes
        if not (is_in_rows and is_there) or isinstance(tensor.held, PackedBytes):
            # Read the whole tensor, which also gives the error that belongs to all of it.
            return _values(self._checkpoint, tensor)[low:high]
        part = replace(
            tensor,
            order="C",
            shape=(high - low, *self.shape[1:]),
            held=tensor.held[start:end],
            offset=None if tensor.offset is None else tensor.offset + start,
        )
        return _values(self._checkpoint, part, self.dtype)


def _by_name(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return the tensors by name.

    Raises InputError if a name is used twice, or if there are no tensors though the file may have
    some.
    """
    named: dict[str, Tensor] = {}
    for tensor in checkpoint.tensors:
        if tensor.name in named:
            raise InputError(f"{checkpoint.name}: two tensors are named {quoted(tensor.name)}")
        # The writers of some formats count padding as part of a tensor.
        named[tensor.name] = as_numbers(tensor) or tensor
    # A file whose content we can't read would look like an empty checkpoint.
    if not named and not checkpoint.lists_none:
        why = "".join(f"; {note.removeprefix(f'{checkpoint.name}: ')}" for note in checkpoint.notes)
        why = why.replace(KEY_OPENS, "decryption_key decrypts them")
        raise InputError(f"{checkpoint.name}: {checkpoint.format} file without tensors{why}")
    return named


def _values(
    checkpoint: Checkpoint, tensor: Tensor, dtype: np.dtype[Any] | None = None
) -> NDArray[Any]:
    """Return a read-only copy of a tensor's values, little-endian and in C order.

    Raises InputError if they are not available, CheckError if a text is damaged.
    """
    dtype = numpy_dtype(tensor) if dtype is None else dtype
    try:
        # Views may repeat stored bytes, so this may be more than the file holds.
        if content_size(tensor) > checkpoint.budget.most:
            most = checkpoint.budget.most
            raise FormatError(f"tensor {quoted(tensor.name)} has more than {most} bytes")
        checkpoint.prepare(tensor)
        raw = b"".join(blocks(tensor))
        shape = (len(raw),) if dtype is None else tensor.logical_shape
        return np.frombuffer(raw, RAW if dtype is None else dtype).reshape(shape)
    except (FormatError, ValueError) as error:
        raise InputError.because(f"{checkpoint.name}: {error}", error) from error
