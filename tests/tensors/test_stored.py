"""Items in C order put back into the order, the byte order and the gaps that a file has."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import as_stored


def tensor(raw: bytes, shape: tuple[int, ...], **about: object) -> Tensor:
    return Tensor("t", "x", shape, memoryview(raw), 0, "f32", **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize(
    ("order", "strides", "shape", "stored"),
    [
        ("C", None, (3, 4), 12),
        ("reversed", None, (4, 3), 12),
        ("F", None, (3, 4), 12),
        ("C", None, (3, 4), 15),
        ("C", (1, 3), (3, 4), 12),
        ("C", (8, 2), (2, 3), 13),
        ("F", None, (), 1),
        ("C", (5,), (1,), 1),
    ],
)
def test_what_is_stored_reads_as_the_items(
    order: str, strides: tuple[int, ...] | None, shape: tuple[int, ...], stored: int, byteorder: str
) -> None:
    before = np.arange(stored, dtype="<f4").tobytes()
    old = tensor(before, shape, order=order, strides=strides, byteorder=byteorder)
    count = int(np.prod(shape))
    items = np.arange(100, 100 + count, dtype="<f4").tobytes()
    content = as_stored(old, len(items), lambda: iter([memoryview(items)]))
    made = b"".join(map(bytes, content.blocks()))
    assert content.nbytes == len(made) == len(before)
    new = tensor(made, shape, order=order, strides=strides, byteorder=byteorder)
    assert b"".join(map(bytes, tensor_bytes.blocks(new)))[: len(items)] == items
    # What lies between and behind the items is as it was.
    changed = np.frombuffer(made, "u4") != np.frombuffer(before, "u4")
    assert changed.sum() == count


def test_strides_that_lead_out_are_refused() -> None:
    old = tensor(bytes(8), (2, 2), strides=(2, 1))
    with pytest.raises(FormatError):
        list(as_stored(old, 16, partial(iter, [memoryview(bytes(16))])).blocks())
