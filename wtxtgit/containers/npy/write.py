"""Writing npy files, byte for byte as numpy does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.containers import npy_header
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

DTYPES = npy_header.DESCR


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
) -> Iterator[Buffer]:
    """The bytes of an npy file with the one tensor; its name and `tags` have no place.

    Raises FormatError before the first of them.
    """
    if len(tensors) != 1:
        raise FormatError(f"npy holds one array, not {len(tensors)}", field="data")
    return _pieces(npy_header.build(tensors[0].element, tensors[0].shape), tensors[0])


def _pieces(header: bytes, tensor: TensorSource) -> Iterator[Buffer]:
    yield header
    yield from tensor.blocks()
