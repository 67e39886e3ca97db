"""The tensors of a file as what another file can be written from, and proof of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import prod

from wtxtgit import containers
from wtxtgit.errors import MAX_NAME, CheckError, InputError, clipped
from wtxtgit.io.view import ByteView
from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.model.reading import Description, ReadOptions, Tensor, TensorSource
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import item_count

_MOST_CONTENT = 16
_LEAST_CONTENT = 1024**3
"""Views may repeat a storage's items: a file may give so many times its size, or so much."""

Digests = dict[str, tuple[str, tuple[int, ...], bytes]]
"""Element, shape and SHA-256 of each tensor by name."""


def quoted(name: str) -> str:
    """A name from a file as messages show it."""
    return ascii(clipped(name, MAX_NAME))


def content_size(tensor: Tensor) -> int:
    """Bytes of the tensor's items, of which a strided view may hold fewer or more."""
    if tensor.strides is None or tensor.element is None:
        return tensor.nbytes
    return prod(tensor.shape) * ITEM_BYTES[tensor.element]


def sources_of(
    name: str,
    description: Description,
    options: ReadOptions,
    size: int,
    untold: list[str] | None = None,
) -> list[TensorSource]:
    """All tensors of a file, or a set with an index, of `size` bytes.

    `untold` is given what chunks hold beside tensors. Raises InputError for
    what no other file could be written from: tensors without bytes, of packed
    dtypes, of equal names, or far larger than the file.
    """
    most = max(_MOST_CONTENT * (description.size or size), _LEAST_CONTENT)
    tensors = []
    total = 0
    for tensor in containers.tensors(description, options, untold):
        total += content_size(tensor)
        if total > most:
            raise InputError(f"{name}: tensors of over {most} bytes out of {size} bytes")
        tensors.append(tensor)
        if tensor.absent is not None:
            raise InputError(f"{name}: tensor {quoted(tensor.name)}: {tensor.absent}")
        if tensor.element is None:
            raise InputError(
                f"{name}: tensor {quoted(tensor.name)} is {tensor.dtype}, "
                f"which {description.format} alone can hold"
            )
    for tensor_name, count in Counter(tensor.name for tensor in tensors).items():
        if count > 1:
            raise InputError(f"{name}: {count} tensors are called {quoted(tensor_name)}")
    return [_source(name, tensor) for tensor in tensors]


def common_chunk(description: Description, sources: Sequence[TensorSource]) -> str | None:
    """The chunk that all tensors are in, if they are all in one that is none of their names."""
    known = containers.by_name(description.format)
    if known is None or not known.wraps_tensors:
        return None
    chunks = {source.name.partition("/")[0] for source in sources}
    if len(chunks) != 1 or not all("/" in source.name for source in sources):
        return None
    return chunks.pop()


def without_chunk(sources: Iterable[TensorSource], chunk: str) -> list[TensorSource]:
    """The tensors under their own names in a chunk."""
    return [replace(source, name=source.name[len(chunk) + 1 :]) for source in sources]


def digests(
    sources: Iterable[TensorSource], progress: Callable[[int], None] | None = None
) -> Digests:
    """What each tensor is, to be compared with what was written."""
    found: Digests = {}
    for source in sources:
        hasher = sha256()
        for block in source.blocks():
            hasher.update(block)
        found[source.name] = (source.element, source.shape, hasher.digest())
        if progress is not None:
            progress(source.nbytes)
    return found


def refuse_errors(name: str, data: ByteView, options: ReadOptions) -> None:
    """Raise CheckError unless everything in a file that was just written holds."""
    for problem in containers.check(data, options).errors:
        raise CheckError(f"{name}: what was written does not hold: {problem}")


def _source(name: str, tensor: Tensor) -> TensorSource:
    element = tensor.element or "u8"
    shape = tensor.shape[::-1] if tensor.order == "reversed" else tensor.shape
    items = prod(shape) if tensor.strides else item_count(shape, tensor.nbytes)
    nbytes = items * ITEM_BYTES[element]
    if tensor.strides is None:
        if not 0 <= nbytes <= tensor.nbytes:
            raise InputError(f"{name}: tensor {quoted(tensor.name)} does not fit its shape")
        # Writers of some formats count padding in.
        tensor = tensor.first(nbytes)
    return TensorSource(tensor.name, element, shape, nbytes, partial(tensor_bytes.blocks, tensor))
