"""Writing GGUF files: version 3, little-endian, numbers only.

Spec: `docs/spec/gguf.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from struct import pack

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.gguf import MAGIC, keeps_tag
from wtxtgit.containers.gguf.read import (
    ARCHITECTURE_KEY,
    DEFAULT_ALIGNMENT,
    GGML_DIMENSIONS,
    GGML_NAME,
    STRING,
    TYPES,
)
from wtxtgit.containers.intervals import aligned
from wtxtgit.containers.json_text import is_text, refuse_repeated
from wtxtgit.containers.replacing import WrittenTensor
from wtxtgit.errors import FormatError
from wtxtgit.io.view import PIECE, Buffer
from wtxtgit.model.tensor import ITEM_BYTES, TensorSource

VERSION = 3
UNKNOWN_ARCHITECTURE = "unknown"

DTYPES = {
    ggml_type.element: number
    for number, ggml_type in TYPES.items()
    if ggml_type.element is not None
}
"""The ggml type of each element that ggml has."""


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> Iterator[Buffer]:
    """The bytes of a GGUF file with these tensors, and `tags` as string values, in order.

    Shapes are as in numpy; the file has them reversed. Tags are sorted by
    key; without a `general.architecture` among them it is "unknown".

    Raises FormatError, before anything is given, for what GGUF can't hold: a
    dtype, over 4 dimensions, a name over 63 bytes or twice there, a key that
    is not 1 to 65,535 ASCII characters or the alignment's.
    """
    # A check warns of files without it ("Checks").
    values = {ARCHITECTURE_KEY: UNKNOWN_ARCHITECTURE, **tags}
    refuse_repeated((tensor.name for tensor in tensors), "two tensors are named {}")
    infos: list[bytes] = []
    end = 0
    for tensor in tensors:
        infos.append(_info(tensor, end))
        end = aligned(end + tensor.nbytes, DEFAULT_ALIGNMENT)
    header = [MAGIC, pack("<IQQ", VERSION, len(tensors), len(values))]
    header += [_entry(key, value) for key, value in sorted(values.items())]
    return file_pieces(b"".join(header + infos), tensors, DEFAULT_ALIGNMENT)


def file_pieces(
    header: bytes, tensors: Sequence[TensorSource] | Sequence[WrittenTensor], alignment: int
) -> Iterator[Buffer]:
    """The bytes of a file: its header, and tensors that are padded to the alignment."""
    yield header
    # A file without tensors ends where the header does.
    size = len(header)
    for tensor in tensors:
        yield from _padding(size, alignment)
        yield from tensor.blocks()
        # Tensors start at multiples of the alignment, so only the last one's length counts.
        size = tensor.nbytes
    if tensors:
        yield from _padding(size, alignment)


def _padding(size: int, alignment: int) -> Iterator[Buffer]:
    # An alignment may be up to 2 GiB.
    left = -size % alignment
    while left:
        zeros = bytes(min(left, PIECE))
        yield zeros
        left -= len(zeros)


def _info(tensor: TensorSource, offset: int) -> bytes:
    named = f"tensor {quoted(tensor.name)}"
    number = DTYPES.get(tensor.element)
    if number is None:
        raise FormatError(f"{named} is {tensor.element}, which GGUF does not have", field="type")
    if len(tensor.shape) > GGML_DIMENSIONS:
        raise FormatError(
            f"{named} has {len(tensor.shape)} dimensions, GGUF has {GGML_DIMENSIONS}",
            field="n_dimensions",
        )
    if tensor.nbytes != ITEM_BYTES[tensor.element] * prod(tensor.shape):
        raise FormatError(f"{named} has {tensor.nbytes} bytes, not those of its shape")
    name = _string(tensor.name, named)
    if len(name) - 8 > GGML_NAME:
        raise FormatError(f"{named} has a name of over {GGML_NAME} bytes", field="name")
    # The fastest dimension comes first ("Tensor infos").
    shape = tensor.shape[::-1]
    return name + pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)


def _entry(key: str, value: str) -> bytes:
    if not keeps_tag(key):
        raise FormatError(f"tag {quoted(key)} can't be a key of a GGUF file", field="key")
    return _string(key, "key") + pack("<I", STRING) + _string(value, f"tag {quoted(key)}")


def _string(text: str, what: str) -> bytes:
    if not is_text(text):
        raise FormatError(f"{what} has a lone surrogate", field="string")
    raw = text.encode()
    return pack("<Q", len(raw)) + raw
