"""Tensors to be written, for the tests of writers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random

from hypothesis import strategies as st

from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import ITEM_BYTES, TensorSource

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    # Which safetensors keeps for itself.
    lambda name: name != "__metadata__"
)
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def source(
    name: str, element: str, shape: tuple[int, ...], raw: bytes | None = None
) -> TensorSource:
    """A tensor of these bytes, or of noise that its name decides; in blocks of odd sizes."""
    if raw is None:
        size = prod(shape) * ITEM_BYTES[element]
        raw = Random(name).randbytes(size)  # noqa: S311

    def blocks(raw: bytes = raw) -> Iterator[Buffer]:
        view = memoryview(raw)
        for start in range(0, len(raw), 7):
            yield view[start : start + 7]

    return TensorSource(name, element, shape, len(raw), blocks)


def content(tensor: TensorSource) -> bytes:
    return b"".join(tensor.blocks())


def models(elements: list[str]) -> st.SearchStrategy[list[TensorSource]]:
    """Lists of tensors with names of their own."""
    one = st.builds(source, NAMES, st.sampled_from(elements), SHAPES)
    return st.lists(one, max_size=6, unique_by=lambda tensor: tensor.name)
