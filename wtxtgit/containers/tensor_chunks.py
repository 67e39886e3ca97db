"""Tensors stored as chunks in the files of a set: boxes of items that together cover the tensor.

A chunk says at which index of the tensor its first item is, and how many items it has in each
dimension, as distributed training splits tensors. A tensor is assembled when it is read. Spec:
`docs/spec/containers.md`, "Tensors in chunks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from wtxtgit.containers.budget import DecodedParts
from wtxtgit.errors import FormatError, NotRead
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, mapped, pieces
from wtxtgit.model.tensor import PackedBytes, Tensor

Sizes = tuple[int, ...]
# How many bytes of a tensor are assembled from several chunks at a time.
BLOCK = 4 * 1024 * 1024
# How often boxes may be examined: once for each interval that a box spans, in each dimension.
LOOKS_A_BOX = 64
LEAST_LOOKS = 65_536
KEPT = 64
"""The most chunks kept open while a tensor is assembled."""
PARTS = {"c64": 2, "c128": 2}
"""How many numbers, each with a byte order, make up an item."""


@dataclass(frozen=True, slots=True)
class ChunkBox:
    """Which items of a tensor a chunk has: the index of the first one, and the size of the box."""

    offsets: Sizes
    sizes: Sizes

    @property
    def numel(self) -> int:
        return prod(self.sizes)

    def __str__(self) -> str:
        return f"{list(self.sizes)} at {list(self.offsets)}"


def flaw(shape: Sizes, boxes: Sequence[ChunkBox]) -> str | None:
    """Return why chunks do not contain each item of a tensor exactly once; None if they do."""
    for box in boxes:
        ends = (start + size for start, size in zip(box.offsets, box.sizes, strict=False))
        if len(box.offsets) != len(shape) or len(box.sizes) != len(shape):
            return f"chunk {box} and shape {list(shape)} differ in their number of dimensions"
        if any(end > size for end, size in zip(ends, shape, strict=True)):
            return f"chunk {box} reaches outside shape {list(shape)}"
    try:
        _refuse_overlap([box for box in boxes if box.numel], len(shape))
    except FormatError as error:
        return error.message
    missing = prod(shape) - sum(box.numel for box in boxes)
    return f"{missing} of {prod(shape)} items are in no chunk" if missing else None


def _refuse_overlap(boxes: list[ChunkBox], rank: int) -> None:
    """Raise FormatError if two boxes share an item, or if finding out takes too long."""
    looks = max(LOOKS_A_BOX * len(boxes), LEAST_LOOKS)
    waiting = [(boxes, 0)]
    while waiting:
        group, dim = waiting.pop()
        if len(group) < 2:
            continue
        if dim == rank:
            raise FormatError(f"chunks {group[0]} and {group[1]} overlap")
        begun = sorted(group, key=lambda box: box.offsets[dim])
        bounds = sorted({end for box in group for end in _span(box, dim)})
        active: list[ChunkBox] = []
        n = 0
        # Between two bounds the boxes are the same: they must be disjoint in the other dimensions.
        for bound in bounds:
            active = [box for box in active if _span(box, dim)[1] > bound]
            while n < len(begun) and begun[n].offsets[dim] == bound:
                active.append(begun[n])
                n += 1
            looks -= len(active)
            if looks < 0:
                raise FormatError(
                    f"the boundaries of {len(boxes)} chunks are too irregular", kind="limit"
                )
            if len(active) > 1:
                waiting.append((active, dim + 1))


def _span(box: ChunkBox, dim: int) -> tuple[int, int]:
    return box.offsets[dim], box.offsets[dim] + box.sizes[dim]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A chunk's box; `open` returns its items as a tensor, or raises FormatError."""

    box: ChunkBox
    open: Callable[[], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedTensor:
    """A tensor in chunks; `element` is the type of its items, `item` their size in bytes."""

    name: str
    dtype: str
    shape: Sizes
    element: str | None
    item: int
    chunks: Sequence[Chunk]

    def listed(self, parts: DecodedParts) -> Tensor:
        """Return the tensor, which is assembled when it is read; `parts` caches recent ones."""
        boxes = [chunk.box for chunk in self.chunks]
        why = flaw(self.shape, boxes) if self.item else "its dtype is unknown"
        nbytes = 0 if why else self.item * prod(self.shape)
        whole = PackedBytes(nbytes, lambda: parts.open(self.name, nbytes, self._bytes))
        content = whole if nbytes else memoryview(b"")
        return Tensor(
            self.name,
            self.dtype,
            self.shape,
            content,
            None,
            self.element,
            absent=why and NotRead(why),
        )

    def _bytes(self) -> ByteView:
        filled = [chunk for chunk in self.chunks if chunk.box.numel]
        if len(filled) == 1:
            opened = self._opened(filled[0])
            if _is_plain(opened):
                return opened.view
        return spooled(self._pieces(_Region((), 0, self.shape), filled, {}))

    def _pieces(
        self, region: _Region, chunks: Iterable[Chunk], opened: dict[int, Tensor]
    ) -> Iterator[Buffer]:
        """Yield the bytes of a region in order, by halving it until one chunk provides it."""
        inside = [chunk for chunk in chunks if region.meets(chunk.box)]
        nbytes = region.numel * self.item
        if len(inside) == 1:
            tensor = self._again(inside[0], opened)
            start = region.place_in(inside[0].box)
            if start is not None and _is_plain(tensor):
                yield from pieces(tensor.view[start * self.item : start * self.item + nbytes])
                return
        if nbytes <= BLOCK:
            yield self._gathered(region, inside, opened)
            return
        for half in region.halves():
            yield from self._pieces(half, inside, opened)

    def _again(self, chunk: Chunk, opened: dict[int, Tensor]) -> Tensor:
        """Return a chunk that was read, reusing those used most recently."""
        tensor = opened.pop(id(chunk), None)
        if tensor is None:
            # Bounded: each may keep a file open.
            while len(opened) >= KEPT:
                del opened[next(iter(opened))]
            tensor = self._opened(chunk)
        opened[id(chunk)] = tensor
        return tensor

    def _opened(self, chunk: Chunk) -> Tensor:
        tensor = chunk.open()
        if tensor.absent is not None:
            raise FormatError(f"chunk {chunk.box}: {tensor.absent}")
        why = mismatch(self, chunk.box, tensor)
        if why is not None:
            raise FormatError(f"chunk {chunk.box} {why}")
        # Column-major items of a block are spread over the whole chunk, for each block again.
        return tensor if tensor.strides is None else replace(tensor, held=tensor.data)

    def _gathered(
        self, region: _Region, chunks: Sequence[Chunk], opened: dict[int, Tensor]
    ) -> Buffer:
        import numpy as np

        spans = region.spans()
        parts = PARTS.get(self.element or "", 1)
        items = (parts, self.item // parts)
        filled = np.zeros((*(end - start for start, end in spans), *items), np.uint8)
        for chunk in chunks:
            tensor = self._again(chunk, opened)
            common = [
                (max(start, first), min(end, first + size))
                for (start, end), first, size in zip(
                    spans, chunk.box.offsets, chunk.box.sizes, strict=True
                )
            ]
            strides = tensor.strides or _c_strides(tensor.shape)
            # Read only what is needed: in large files every access makes a copy.
            first, last = (
                sum(
                    (span[end] - end - offset) * stride
                    for span, offset, stride in zip(common, chunk.box.offsets, strides, strict=True)
                )
                for end in (0, 1)
            )
            source = np.ndarray(
                (*(end - start for start, end in common), *items),
                np.uint8,
                mapped(tensor.view[first * self.item : (last + 1) * self.item]),
                strides=(*(stride * self.item for stride in strides), items[1], 1),
            )
            if tensor.byteorder == "big":
                source = source[..., ::-1]
            target = tuple(
                slice(low - start, high - start)
                for (low, high), (start, _) in zip(common, spans, strict=True)
            )
            filled[target] = source
        return filled.reshape(-1).data


def mismatch(tensor: ChunkedTensor, box: ChunkBox, chunk: Tensor) -> str | None:
    """Return how a chunk that was read does not fit the tensor; None if it does."""
    if chunk.shape != box.sizes:
        return f"has shape {list(chunk.shape)}"
    if (chunk.element or chunk.dtype) != (tensor.element or tensor.dtype):
        return f"has dtype {chunk.label}, not {tensor.element or tensor.dtype}"
    needed = tensor.item * box.numel
    if chunk.strides is not None and box.numel:
        steps = zip(chunk.shape, chunk.strides, strict=True)
        needed = tensor.item * (1 + sum((size - 1) * stride for size, stride in steps))
    return None if chunk.nbytes == needed else f"has {chunk.nbytes} bytes, not {needed}"


def _is_plain(tensor: Tensor) -> bool:
    """Whether the bytes are the items in C order, little-endian."""
    return tensor.strides is None and (tensor.byteorder == "little" or tensor.label in ("u8", "i8"))


def _c_strides(shape: Sizes) -> Sizes:
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


@dataclass(frozen=True, slots=True)
class _Region:
    """Items of a tensor that are consecutive in C order.

    They have one fixed index in each of the first dimensions (`fixed`); in the next dimension
    `sizes[0]` indices from `start` on; and all indices in the others: `sizes[1:]`.
    """

    fixed: Sizes
    start: int
    sizes: Sizes

    @property
    def numel(self) -> int:
        return prod(self.sizes)

    def spans(self) -> list[tuple[int, int]]:
        """Return first index and end in each dimension."""
        first = [(n, n + 1) for n in self.fixed]
        if not self.sizes:
            return first
        own = (self.start, self.start + self.sizes[0])
        return [*first, own, *((0, size) for size in self.sizes[1:])]

    def meets(self, box: ChunkBox) -> bool:
        """Whether a box has any of the items."""
        return all(
            start < offset + size and offset < end
            for (start, end), offset, size in zip(self.spans(), box.offsets, box.sizes, strict=True)
        )

    def place_in(self, box: ChunkBox) -> int | None:
        """Return the region's first item in a box that has all of it in a row; else None."""
        at = 0
        for n, (start, end) in enumerate(self.spans()):
            offset, size = box.offsets[n], box.sizes[n]
            if start < offset or end > offset + size:
                return None
            # In the dimensions after the cut one, the box must have the full size.
            if n > len(self.fixed) and size != end - start:
                return None
            at = at * size + start - offset
        return at

    def halves(self) -> tuple[_Region, ...]:
        """Return the region in two halves, cut in the first dimension with more than one index."""
        fixed, start, sizes = self.fixed, self.start, self.sizes
        while sizes[0] == 1:
            fixed, start, sizes = (*fixed, start), 0, sizes[1:]
        half = sizes[0] // 2
        rest = sizes[1:]
        return (
            _Region(fixed, start, (half, *rest)),
            _Region(fixed, start + half, (sizes[0] - half, *rest)),
        )
