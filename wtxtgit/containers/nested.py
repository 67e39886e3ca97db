"""Files in chunks of a container: what they hold, without keeping them decoded.

Only formats of tensors alone are looked into. A few compressed bytes can
claim millions of entries, so those of files that were decoded are limited
further than those of files that stand in a repository as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.registry import FORMATS, detected
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, Nested, Packed, ReadOptions, Tensor

MAX_DECODED_VALUES = 2_000_000
"""Values that the JSON header of a file may have that was compressed."""

Describe = Callable[[ByteView, ReadOptions], Description]


def opened(nested: Nested) -> ByteView | None:
    """The bytes of a file in a chunk, None where it is of no format that is looked into.

    Raises FormatError.
    """
    data = nested.open()
    found = detected(data)
    if found is None:
        starts = (f.whole_magic for f in FORMATS if f.nested and f.whole is not None)
        return data if any(data[: len(magic)] == magic for magic in starts) else None
    if found.nested_limits is not None and nested.offset is None:
        found.nested_limits().refuse_values(data, MAX_DECODED_VALUES)
    return data if found.nested else None


def tensors(
    nested: Nested, describe: Describe, options: ReadOptions, untold: list[str]
) -> Iterator[Tensor]:
    """The tensors of a file in a chunk as `chunk/tensor`, in its order.

    A file that can't be read has none. `untold` is given the reason, and what
    it holds beside tensors.
    """
    where = f"chunk {quoted(nested.name)}"
    try:
        data = opened(nested)
        inner = None if data is None else describe(data, options)
    except FormatError as error:
        untold.append(f"{where}: {error.message}")
        return
    if inner is None or inner.format == "opaque":
        untold.append(f"{where}: holds no file with tensors that is looked into")
        return
    untold += [f"{what} of {where}" for what in (*inner.tags, *inner.untold)]
    for n, tensor in enumerate(inner.tensors):
        name = f"{nested.name}/{tensor.name}"
        if nested.offset is None:
            held = _again(nested, describe, options, n, tensor)
            yield replace(tensor, name=name, held=held, offset=None)
        elif tensor.offset is None:
            yield replace(tensor, name=name)
        else:
            yield replace(tensor, name=name, offset=nested.offset + tensor.offset)


def _again(
    nested: Nested, describe: Describe, options: ReadOptions, n: int, tensor: Tensor
) -> ByteView | Packed:
    """The bytes of a decoded file's tensor, which do not keep the file."""
    size, offset = tensor.nbytes, tensor.offset
    if size == 0:
        return memoryview(b"")
    if offset is not None:
        return Packed(size, lambda: nested.open()[offset : offset + size])
    return Packed(size, lambda: describe(nested.open(), options).tensors[n].data)
