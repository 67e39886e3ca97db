"""Salvaging a damaged safetensors file: the format has no hashes, so nothing is proved.

Spec: `docs/spec/safetensors.md`, "Salvage".
"""

from __future__ import annotations

from wtxtgit.containers import json_text, tensor_header
from wtxtgit.containers import salvage as shared
from wtxtgit.containers.ranges import Stored
from wtxtgit.containers.safetensors.read import ITEM_BITS
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import bounded_product
from wtxtgit.model.salvage import Salvage
from wtxtgit.model.tensor import ReadOptions


def salvage(data: ByteView, _options: ReadOptions) -> Salvage:
    """Return the tensors whose bytes exist; raises FormatError if the header can't be read."""
    header = tensor_header.read(data, 0, len(data), is_cut=True)
    listed = [(tensor, _why_lost(tensor)) for tensor in header.tensors]
    tensors = shared.of_places(data, listed)
    return Salvage(tuple(tensors), tags=json_text.texts(header.metadata))


def _why_lost(tensor: Stored) -> str | None:
    bits = ITEM_BITS.get(tensor.dtype)
    if bits is None:
        return "its dtype is unknown"
    needed = 8 * tensor.nbytes
    if bounded_product(bits, tensor.shape, needed) != needed:
        return "its size does not fit its dtype and shape"
    return None
