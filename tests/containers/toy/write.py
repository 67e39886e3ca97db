"""Writing TOY1 files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import pack

from wtxtgit.containers.toy import MAGIC

from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

DTYPES = {"f32": "f32"}


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> Iterator[Buffer]:
    """The bytes of a file with the one tensor; `tags` have no place. Raises FormatError."""
    if len(tensors) != 1:
        raise FormatError(f"TOY1 holds one tensor, not {len(tensors)}", field="tensor")
    (tensor,) = tensors
    name = tensor.name.encode()
    if len(name) > 0xFF or tensor.element not in DTYPES:
        raise FormatError("TOY1 has no such tensor", field="tensor")
    return _pieces(MAGIC + bytes([len(name), len(tensor.shape)]) + name, tensor)


def _pieces(head: bytes, tensor: TensorSource) -> Iterator[Buffer]:
    yield head + pack(f"<{len(tensor.shape)}Q", *tensor.shape)
    yield from tensor.blocks()
