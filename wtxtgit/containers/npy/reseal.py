"""Writing an npy file again with another array.

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
    """The array, which has no name in the file."""
    tensor = container.stored.listed(container.data)
    return [Entry(TENSOR, _form(container), tensor.view, tensor)]


def values(container: Npy, options: ReadOptions) -> dict[str, object]:
    """Nothing: an npy file has no metadata."""
    return {}


def rest(container: Npy, options: ReadOptions) -> dict[str, object]:
    """A hash of what stands after the array, where something does."""
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
    """The file with this array, in pieces.

    An array of another dtype, shape or order brings the header of its own
    file along; what stands after the array stays. Raises FormatError, before
    the first piece: unless it is one array, for metadata, and for bytes that
    would come to stand after Python objects.
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
        # The pickle of the objects is all that follows the header.
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
