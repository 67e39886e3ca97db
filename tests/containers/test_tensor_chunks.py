"""Tensors in chunks: whatever boxes they are cut into, they are put together again."""

from __future__ import annotations

from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.containers import tensor_chunks
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.tensor_chunks import Chunk, ChunkBox, ChunkedTensor, flaw
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ReadOptions, Tensor


def boxes_of(shape: tuple[int, ...], draw: st.DrawFn) -> list[ChunkBox]:
    """Boxes that a tensor is cut into again and again, in any dimension."""
    whole = [ChunkBox((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6))):
        box = whole.pop(draw(st.integers(0, len(whole) - 1)))
        dims = [dim for dim, size in enumerate(box.sizes) if size > 1]
        if not dims:
            whole.append(box)
            continue
        dim = draw(st.sampled_from(dims))
        at = draw(st.integers(1, box.sizes[dim] - 1))
        first, second = list(box.sizes), list(box.sizes)
        first[dim], second[dim] = at, box.sizes[dim] - at
        start = list(box.offsets)
        start[dim] += at
        whole += [ChunkBox(box.offsets, tuple(first)), ChunkBox(tuple(start), tuple(second))]
    return whole


@st.composite
def cuts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[ChunkBox]]:
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=4)))
    return shape, boxes_of(shape, draw)


def chunk_of(array: Any, box: ChunkBox, *, order: str = "C", big: bool = False) -> Chunk:
    part = tuple(slice(a, a + n) for a, n in zip(box.offsets, box.sizes, strict=True))
    held = np.array(array[part], order=order, dtype=">u4" if big else "<u4").reshape(box.sizes)  # type: ignore[call-overload]
    held = np.asarray(held, order=order)  # type: ignore[call-overload]
    strides = tuple(step // 4 for step in held.strides)
    tensor = Tensor(
        "t",
        "uint32",
        box.sizes,
        memoryview(held.tobytes("A")),
        None,
        "u32",
        byteorder="big" if big else "little",
        strides=None if held.flags.c_contiguous else strides,
    )
    return Chunk(box, lambda: tensor)


def put_together(shape: tuple[int, ...], chunks: list[Chunk]) -> bytes:
    whole = ChunkedTensor("t", "uint32", shape, "u32", 4, chunks)
    return bytes(whole.listed(DecodedParts(ReadOptions())).data)


@given(cuts(), st.sampled_from("CF"), st.booleans(), st.sampled_from([4, 40, 1 << 20]))
def test_all_cuts(
    cut: tuple[tuple[int, ...], list[ChunkBox]], order: str, big: bool, block: int
) -> None:
    shape, boxes = cut
    array = np.arange(prod(shape), dtype="<u4").reshape(shape)
    assert flaw(shape, boxes) is None
    chunks = [chunk_of(array, box, order=order, big=big) for box in boxes]
    with patch.object(tensor_chunks, "BLOCK", block):
        assert put_together(shape, chunks[::-1]) == array.tobytes()


@given(cuts(), st.data())
def test_one_box_less_or_one_more(
    cut: tuple[tuple[int, ...], list[ChunkBox]], data: st.DataObject
) -> None:
    shape, boxes = cut
    gone = data.draw(st.sampled_from(boxes))
    assert flaw(shape, [box for box in boxes if box is not gone]) is not None
    # Whatever its size, it shares items with those that are there.
    corner = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    assert "overlap" in str(flaw(shape, [*boxes, ChunkBox(corner, (1,) * len(shape))]))


def test_boxes_of_no_items_are_anywhere() -> None:
    assert flaw((0, 4), [ChunkBox((0, 0), (0, 4))]) is None
    assert flaw((2,), [ChunkBox((0,), (2,)), ChunkBox((1,), (0,))]) is None
    assert flaw((2,), []) == "2 of 2 items are in no chunk"


def test_thousands_of_chunks() -> None:
    side = 60
    boxes = [ChunkBox((a, b), (1, 1)) for a in range(side) for b in range(side)]
    array = np.arange(side * side, dtype="<u4").reshape(side, side)
    assert flaw((side, side), boxes) is None
    assert put_together((side, side), [chunk_of(array, box) for box in boxes]) == array.tobytes()


def test_boxes_that_take_too_long_to_tell_apart() -> None:
    # Each reaches over all that start behind it: there are as many cuts as pairs of them.
    many = 2000
    boxes = [ChunkBox((n, n), (many * 2 - 2 * n, 1)) for n in range(many)]
    assert "too irregular" in str(flaw((2 * many, 2 * many), boxes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (3,)}, "has shape"),
        ({"element": "i32"}, "has dtype i32"),
        ({"held": memoryview(bytes(4))}, "has 4 bytes, not 8"),
        ({"strides": (2,)}, "has 8 bytes, not 12"),
        ({"absent": "gone"}, "gone"),
    ],
)
def test_chunks_that_are_none_of_the_tensor(change: dict[str, Any], message: str) -> None:
    from dataclasses import replace

    tensor = Tensor("t", "uint32", (2,), memoryview(bytes(8)), None, "u32")
    chunk = Chunk(ChunkBox((0,), (2,)), lambda: replace(tensor, **change))
    with pytest.raises(FormatError, match=message):
        put_together((2,), [chunk])
