"""What tensors of two files have in common, as far as their bytes can be exchanged."""

from __future__ import annotations

from wtxtgit.model.entries import Entry
from wtxtgit.model.reading import Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.compare import label, logical_shape


def kind_of(entry: Entry) -> object:
    """What tensors have to share for their items to be exchanged; None for files."""
    tensor = entry.tensor
    return None if tensor is None else (label(tensor), logical_shape(tensor))


def described(entry: Entry) -> str:
    """Dtype and shape in words."""
    if entry.tensor is None:
        return "a file"
    shape = " x ".join(map(str, logical_shape(entry.tensor))) or "scalar"
    return f"{label(entry.tensor)} {shape}"


def fits(a: Tensor, b: Tensor) -> bool:
    """Whether the stored bytes of one can stand in the other's place."""
    return (label(a), a.nbytes, a.shape, a.order, a.byteorder, a.strides, a.absent) == (
        label(b),
        b.nbytes,
        b.shape,
        b.order,
        b.byteorder,
        b.strides,
        b.absent,
    )


def overlaps(tensor: Tensor) -> bool:
    """Whether items may share bytes: then no row is a thing of its own."""
    if tensor.strides is None:
        return False
    shape, strides = tensor_bytes.steps_of(tensor)
    span = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= span:
                return True
            span += stride * (size - 1)
    return False
