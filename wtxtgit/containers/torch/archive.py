"""What is common to torch files, zips and legacy ones: tensors of storages.

Spec: `docs/spec/torch.md`, "Tensors".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wtxtgit.containers.torch.dtypes import PACKED
from wtxtgit.containers.torch.listing import Listing
from wtxtgit.containers.torch.pickle_values import Pickle
from wtxtgit.containers.torch.views import NO_STORAGE, Storage, View, why_outside
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Packed, Tensor

MAX_GLOBALS = 1000
"""Names of globals that a description tells."""
MISSING = "its storage is missing"
UNKNOWN = "its dtype is unknown"
EXPANDED = "its view repeats items to more bytes than the limit"


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes of a storage; `offset` is where they stand in the file, None where decoded."""

    data: ByteView | Packed
    offset: int | None

    def part(self, start: int, end: int) -> ByteView | Packed:
        if isinstance(self.data, Packed):
            return self.data.part(start, end - start)
        return self.data[start:end]


Find = Callable[[Storage], Held | str]
"""Gives a storage's bytes, or why there are none."""


def tensor(name: str, view: View, find: Find, most: int, byteorder: str = "little") -> Tensor:
    """A view as a tensor with its bytes; one that repeats items is at most `most` bytes long."""
    none = memoryview(b"")
    if view.storage is None:
        return Tensor(name, view.dtype, view.shape, none, None, view.element, absent=NO_STORAGE)
    held = find(view.storage)
    if isinstance(held, str):
        # A tensor without items lacks nothing.
        absent = held if view.numel else None
        return Tensor(name, view.dtype, view.shape, none, None, view.element, absent=absent)
    start, end = view.span()
    size = held.data.nbytes
    absent = why_outside(view, size)
    if view.item == 0:
        absent = UNKNOWN
    if absent is not None:
        return Tensor(name, view.dtype, view.shape, none, None, view.element, absent=absent)
    strides = None
    if view.dtype not in PACKED and not view.is_contiguous:
        strides = view.strides
        if view.numel * view.item > max(most, size):
            absent = EXPANDED
    return Tensor(
        name,
        view.dtype,
        view.shape,
        held.part(start, end),
        None if held.offset is None else held.offset + start,
        view.element,
        byteorder=byteorder,
        strides=strides,
        absent=absent,
    )


def global_names(pickle: Pickle) -> list[str]:
    """The globals that a pickle names, in its order, as text that JSON and terminals hold."""
    return [
        made.path.encode("utf-8", "backslashreplace").decode()
        for made in pickle.globals[:MAX_GLOBALS]
    ]


def covers(view: View, size: int) -> bool:
    """Whether a tensor is just all the `size` bytes of its storage."""
    return (
        view.dtype not in PACKED
        and view.offset == 0
        and view.storage is not None
        and view.storage.part is None
        and view.item > 0
        and view.is_contiguous
        and view.numel * view.item == size
    )


__all__ = ["Find", "Held", "Listing", "covers", "global_names", "tensor"]
