"""Rewriting an npy file with another array.

Spec: `docs/spec/npy.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import cast

from wtxtgit.containers import replacing
from wtxtgit.containers.npy.file import TENSOR, Npy
from wtxtgit.containers.replacing import WrittenTensor
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, hashed, pieces
from wtxtgit.model.tensor import Entry, PlacedEntry, ReadOptions

AFTER = "after the array"


def entries(container: Npy, options: ReadOptions) -> list[Entry]:
    """Return the array, which has no name in the file."""
    tensor = container.stored.listed(container.data)
    return [Entry(TENSOR, _form(container), tensor.view, tensor)]


def values(container: Npy, options: ReadOptions) -> dict[str, object]:
    """Return {}: an npy file has no metadata."""
    return {}


def rest(container: Npy, options: ReadOptions) -> dict[str, object]:
    """Return a hash of what follows the array, if anything does."""
    end = container.stored.end
    if end >= len(container.data):
        return {}
    return {AFTER: hashed(sha256(), pieces(container.data[end:])).digest()}


def reseal(
    container: Npy,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the file with this array.

    An array of another dtype, shape or order brings the header of its own file; what follows the
    array stays. Raises FormatError, before the first piece: unless there is exactly one array, for
    metadata, and for bytes that would come after Python objects.
    """
    if len(placed) != 1:
        raise FormatError(f"npy holds one array, not {len(placed)}", field="data")
    if values:
        raise FormatError("npy files have no metadata", field="header")
    source = cast(Npy, placed[0].source)
    part = WrittenTensor(source.stored, source.data, placed[0].content)
    replacing.check_lengths([part])
    if _form(source) == _form(container) and part.nbytes == container.stored.nbytes:
        return replacing.replaced(container.data, [container.stored], [part])
    end = container.stored.end
    if source.header.has_objects and end < len(container.data):
        # Only the pickle of the objects may follow the header.
        raise FormatError(
            f"{len(container.data) - end} bytes after the array can't be kept after Python objects",
            field="data",
        )
    return chain(
        pieces(source.data[: source.header.data]),
        part.blocks(),
        pieces(container.data[end:]),
    )


def _form(container: Npy) -> Hashable:
    return container.stored.dtype, container.stored.shape, container.stored.order
