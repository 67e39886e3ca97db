"""Combining the bytes of tensors that share a storage, item by item.

Tensors share storages, as a whole or item by item. Bytes between the items of a tensor do not
belong to it. Tensors are combined in any order, so two that give one byte different values are
refused. Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from wtxtgit.containers.intervals import gaps
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Bytes that are combined at a time.
STEP = 1 << 20
# Tensors may cover their storage this many times, or LEAST_COVERED bytes: a real model ties a few
# weights, a hostile one lists a view of all bytes for each name.
MOST_PASSES = 64
LEAST_COVERED = 1 << 26

Steps = tuple[tuple[int, int], ...]
"""Strides and numbers of items, the largest stride first; both count items."""


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """Bytes [start, end) of a storage that belong to a tensor.

    All of them if `steps` is None, else those of its items, of `item` bytes. `blocks` yields the
    bytes from start to end, None if they are to stay unchanged.
    """

    start: int
    end: int
    steps: Steps | None = None
    item: int = 1
    blocks: Callable[[], Iterable[Buffer]] | None = None


def item_steps(shape: Sequence[int], strides: Sequence[int]) -> Steps | None:
    """Return where the items of a view are; None if there are no bytes between them.

    Also None if they overlap, so that no steps describe them.
    """
    steps = [(1, 1)]
    dims = zip(strides, shape, strict=True)
    for stride, dim in sorted((s, d) for s, d in dims if d > 1 and s > 0):
        step, count = steps[-1]
        if stride % step == 0 and stride // step <= count:
            steps[-1] = step, (dim - 1) * (stride // step) + count
        else:
            steps.append((stride, dim))
    reach = 0
    for step, count in steps:
        if step <= reach:
            return None
        reach += (count - 1) * step
    return None if len(steps) == 1 else tuple(reversed(steps))


def refuse_bomb(spans: Iterable[TensorSpan], size: int) -> None:
    """Raise FormatError if tensors cover `size` bytes implausibly often."""
    total = sum(span.end - span.start for span in spans)
    if total > max(MOST_PASSES * size, LEAST_COVERED):
        raise FormatError(
            f"too many tensors share a storage of {size} bytes", kind="limit", field="entries"
        )


def overlaid(
    old: Callable[[], Iterable[Buffer]], size: int, spans: Sequence[TensorSpan]
) -> Iterator[Buffer]:
    """Yield the `size` bytes of `old` with those of tensors written over them.

    Raises FormatError if two tensors have different values for one byte, and if a tensor yields
    more or fewer bytes than it has.
    """
    was = _Feed(old())
    sweep = _Sweep(spans)
    for start in range(0, size, STEP):
        end = min(start + STEP, size)
        block = was.take(end - start)
        active = sweep.reach(start, end)
        if any(tensor.span.blocks is not None for tensor in active):
            yield _put_together(block, start, active)
        else:
            yield block
    sweep.close()


def uncovered(
    old: Callable[[], Iterable[Buffer]], size: int, spans: Sequence[TensorSpan]
) -> bytes | None:
    """Return the SHA-256 of the bytes in no tensor, None if there are none.

    `old` is only read if there are some.
    """
    if all(span.steps is None for span in spans) and not gaps(
        ((span.start, span.end) for span in spans), size
    ):
        return None
    hasher = sha256()
    count = 0
    sweep = _Sweep([replace(span, blocks=None) for span in spans])
    was = _Feed(old())
    for start in range(0, size, STEP):
        end = min(start + STEP, size)
        rest = _left_over(was.take(end - start), start, sweep.reach(start, end))
        count += len(rest)
        hasher.update(rest)
    return hasher.digest() if count else None


class _Feed:
    """Converts blocks of bytes to blocks of other sizes."""

    def __init__(self, blocks: Iterable[Buffer]) -> None:
        self._blocks = iter(blocks)
        self._block = memoryview(b"")

    def take(self, count: int) -> Buffer:
        if len(self._block) >= count:
            head, self._block = self._block[:count], self._block[count:]
            return head
        joined = bytearray()
        while len(joined) < count:
            if not len(self._block):
                block = next(self._blocks, None)
                if block is None:
                    raise FormatError("a tensor's source gave too few bytes", field="entries")
                self._block = memoryview(block).cast("B")
            part = self._block[: count - len(joined)]
            joined += part
            self._block = self._block[len(part) :]
        return joined

    def close(self) -> None:
        if len(self._block) or any(memoryview(block).nbytes for block in self._blocks):
            raise FormatError("a tensor's source gave too many bytes", field="entries")


@dataclass(frozen=True, slots=True, eq=False)
class _Active:
    """A tensor whose bytes are being written; `alone` if no other tensor shares them."""

    span: TensorSpan
    feed: _Feed | None
    alone: bool


class _Sweep:
    """Finds the tensors that have bytes of successive ranges."""

    def __init__(self, spans: Sequence[TensorSpan]) -> None:
        self._spans = sorted(spans, key=lambda span: (span.start, span.end))
        self._next = 0
        self._reached = 0
        self._active: list[_Active] = []

    def reach(self, start: int, end: int) -> list[_Active]:
        """Return those that have any byte of [start, end); ranges must come in order."""
        left = []
        for tensor in self._active:
            if tensor.span.end > start:
                left.append(tensor)
            elif tensor.feed is not None:
                tensor.feed.close()
        self._active = left
        while self._next < len(self._spans) and self._spans[self._next].start < end:
            span = self._spans[self._next]
            self._next += 1
            follows = self._spans[self._next].start if self._next < len(self._spans) else span.end
            alone = self._reached <= span.start and span.end <= follows and span.steps is None
            self._reached = max(self._reached, span.end)
            feed = None if span.blocks is None else _Feed(span.blocks())
            self._active.append(_Active(span, feed, alone))
        return self._active

    def close(self) -> None:
        for tensor in self._active:
            if tensor.feed is not None:
                tensor.feed.close()


def _put_together(block: Buffer, start: int, active: Sequence[_Active]) -> bytearray:
    """Return the bytes `block`, from position `start`, with those of tensors written over them."""
    together = bytearray(block)
    shared = [tensor for tensor in active if not tensor.alone]
    for tensor in active:
        if tensor.alone and tensor.feed is not None:
            first, last = _within(tensor.span, start, len(together))
            together[first:last] = tensor.feed.take(last - first)
    if shared:
        _agree(together, block, start, shared)
    return together


def _agree(together: bytearray, block: Buffer, start: int, active: Sequence[_Active]) -> None:
    """Write the bytes of overlapping tensors to `together`; they have to agree on shared bytes."""
    import numpy as np

    target = np.frombuffer(together, np.uint8)
    known = np.zeros(len(together), np.bool_)
    for tensor in active:
        first, last = _within(tensor.span, start, len(together))
        words = (
            memoryview(block)[first:last] if tensor.feed is None else tensor.feed.take(last - first)
        )
        items = _items(tensor.span, start + first, start + last)
        mine = np.frombuffer(words, np.uint8)
        part = target[first:last]
        # Shared bytes must be equal, whichever tensor comes first.
        if bool(np.any((part != mine) & known[first:last] & items)):
            raise FormatError("tensors share bytes, so they can't differ there", field="entries")
        np.copyto(part, mine, where=items)
        known[first:last] |= items


def _left_over(block: Buffer, start: int, active: Sequence[_Active]) -> bytes:
    """Return the bytes of `block`, from position `start`, that are in no tensor."""
    import numpy as np

    known = np.zeros(len(block), np.bool_)
    for tensor in active:
        first, last = _within(tensor.span, start, len(block))
        known[first:last] |= _items(tensor.span, start + first, start + last)
    return np.frombuffer(block, np.uint8)[~known].tobytes()


def _within(span: TensorSpan, start: int, size: int) -> tuple[int, int]:
    """Return the intersection of the span with `size` bytes at `start`."""
    return max(span.start - start, 0), min(span.end - start, size)


def _items(span: TensorSpan, start: int, end: int) -> NDArray[np.bool_]:
    """Return which of the bytes [start, end) of a storage belong to items."""
    import numpy as np

    if span.steps is None:
        return np.ones(end - start, np.bool_)
    first, last = (start - span.start) // span.item, -(-(end - span.start) // span.item)
    rest = np.arange(first, last, dtype=np.int64)
    for step, count in span.steps:
        rest -= np.minimum(rest // step, count - 1) * step
    skipped = start - span.start - first * span.item
    is_item: NDArray[np.bool_] = np.repeat(rest == 0, span.item)[skipped : skipped + end - start]
    return is_item
