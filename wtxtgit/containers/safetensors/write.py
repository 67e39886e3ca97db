"""Writing safetensors files.

Tensors lie as the reference library puts them: wider items first, then by
name, so that each is aligned for its own items.
Spec: `docs/spec/safetensors.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.safetensors.reference import ITEM_BITS, MAX_HEADER
from wtxtgit.containers.signatures import SAFETENSORS_LENGTH_SIZE
from wtxtgit.containers.tensor_header import ELEMENTS, format_header
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import TensorSource

DTYPES = {element: dtype for dtype, element in ELEMENTS.items() if dtype in ITEM_BITS}
"""The dtype of each element that the reference library knows."""

_RANKS = {dtype: rank for rank, dtype in enumerate(ITEM_BITS)}


def build(tensors: Sequence[tuple[str, str, tuple[int, ...], ByteView]]) -> Iterator[Buffer]:
    """Write a safetensors file: names, dtypes as the format calls them, shapes, raw bytes.

    Raises FormatError for a name that the format can't hold.
    """
    entries = [(name, dtype, shape, raw.nbytes) for name, dtype, shape, raw in tensors]
    yield format_header(entries)
    for _, _, _, raw in tensors:
        yield from pieces(raw)


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> Iterator[Buffer]:
    """Write tensors, and tags as `__metadata__`; gives the file's bytes in order.

    Raises FormatError for dtypes, names and tags that the format can't hold.
    """
    ordered = _in_order(tensors)
    return _pieces(_header(ordered, tags), ordered)


def _in_order(tensors: Sequence[TensorSource]) -> list[TensorSource]:
    for tensor in tensors:
        if tensor.element not in DTYPES:
            raise FormatError(
                f"tensor {quoted(tensor.name)} is {tensor.element}, which safetensors has not",
                field="dtype",
            )
    # Strings compare by code point, which is the order of their UTF-8 bytes.
    return sorted(tensors, key=lambda tensor: (-_RANKS[DTYPES[tensor.element]], tensor.name))


def _header(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> bytes:
    entries = [(t.name, DTYPES[t.element], t.shape, t.nbytes) for t in tensors]
    return bounded_header(entries, dict(sorted(tags.items())) or None)


def bounded_header(
    entries: Sequence[tuple[str, str, tuple[int, ...], int]],
    metadata: Mapping[str, str] | None,
    further: Mapping[str, Mapping[str, object]] | None = None,
) -> bytes:
    """What `format_header` gives, within what the reference library reads; raises FormatError."""
    if len(entries) > MAX_TENSORS:
        raise FormatError(f"{len(entries)} tensors are too many", kind="limit", field="header")
    header = format_header(entries, metadata, further)
    length = len(header) - SAFETENSORS_LENGTH_SIZE
    if length > MAX_HEADER:
        raise FormatError(f"header of {length} bytes is too long", kind="limit", field="header")
    return header


def _pieces(header: bytes, tensors: Sequence[TensorSource]) -> Iterator[Buffer]:
    yield header
    for tensor in tensors:
        yield from tensor.blocks()
