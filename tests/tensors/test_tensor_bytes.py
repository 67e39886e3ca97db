"""A tensor's bytes in C order, little-endian, against what numpy makes of them."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import fixture, golden
from wtxtgit.containers.any_format import describe
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.tensors.tensor_bytes import BLOCK, NUMPY, array, blocks, numpy_dtype

ELEMENTS = sorted(NUMPY)


def tensor_of(raw: bytes, shape: tuple[int, ...], element: str | None, **changes: Any) -> Tensor:
    fields = {"dtype": "?", "offset": 64} | changes
    return Tensor(name="w", shape=shape, held=memoryview(raw), element=element, **fields)


def joined(tensor: Tensor, size: int = BLOCK) -> bytes:
    return b"".join(blocks(tensor, size))


def noise(count: int) -> bytes:
    return np.random.default_rng(count).bytes(count)


def as_words(raw: bytes, item: int) -> np.ndarray:
    """Items as opaque words, so that nothing can be converted on the way."""
    return np.frombuffer(raw, f"V{item}")


@given(
    st.sampled_from(sorted(ITEM_BYTES)),
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from(["C", "F", "reversed"]),
    st.sampled_from(["little", "big"]),
    st.integers(1, 64),
)
def test_orders_and_byte_orders(
    element: str, dims: list[int], order: str, byteorder: str, size: int
) -> None:
    shape = tuple(dims)
    item = ITEM_BYTES[element]
    raw = noise(int(np.prod(shape)) * item)
    tensor = tensor_of(raw, shape, element, order=order, byteorder=byteorder)
    logical = shape[::-1] if order == "reversed" else shape
    expected = as_words(raw, item).reshape(logical, order="F" if order == "F" else "C").tobytes()
    if byteorder == "big":
        part = item // 2 if element in {"c64", "c128"} else item
        expected = np.frombuffer(expected, f"V{part}").view(np.uint8).reshape(-1, part)[:, ::-1]
        expected = expected.tobytes()
    assert joined(tensor, size) == expected
    if element in NUMPY:
        found = array(tensor)
        assert found.shape == logical
        assert found.astype(found.dtype.newbyteorder("<")).tobytes() == expected


@st.composite
def views(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """An array and a view of it that starts at its first item, with strides of all kinds."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    whole = np.frombuffer(noise(int(np.prod(shape)) * 4), "<u4").reshape(shape)
    view = whole
    for axis, size in enumerate(shape):
        step = draw(st.integers(1, 3))
        keep = tuple(slice(None) for _ in range(axis))
        view = view[(*keep, slice(0, draw(st.integers(1, size)), step))]
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return whole, view


@given(views(), st.integers(1, 64), st.sampled_from(["u32", "f32", None]))
def test_strides(pair: tuple[np.ndarray, np.ndarray], size: int, element: str | None) -> None:
    whole, view = pair
    strides = tuple(step // 4 for step in view.strides)
    span = 4 * (1 + sum((n - 1) * s for n, s in zip(view.shape, strides, strict=True)))
    # Without an element the size of an item follows from the bytes of the span.
    raw = whole.tobytes()[:span]
    tensor = tensor_of(raw, view.shape, element, strides=strides)
    pieces = list(blocks(tensor, size))
    assert b"".join(pieces) == view.tobytes()
    assert all(piece.nbytes <= max(size, 4) for piece in pieces)
    if element is not None:
        assert array(tensor).tobytes() == view.tobytes()


def test_contiguous_little_endian_bytes_are_not_copied() -> None:
    raw = bytearray(noise(1000))
    tensor = tensor_of(raw, (25, 10), "f32")
    pieces = list(blocks(tensor, 300))
    assert [piece.nbytes for piece in pieces] == [300, 300, 300, 100]
    raw[0] ^= 0xFF
    assert pieces[0][0] == raw[0]
    assert array(tensor).tobytes() == raw


def test_strides_that_mean_nothing_are_contiguous() -> None:
    raw = bytearray(noise(24))
    for tensor in (
        tensor_of(raw, (1, 3, 1, 2), "f32", strides=(99, 2, 7, 1)),
        tensor_of(raw, (1, 6, 1), "f32", order="F"),
    ):
        (piece,) = blocks(tensor)
        assert piece.obj is raw


@pytest.mark.parametrize("raw", [b"", b"abc", noise(17)])
def test_what_is_no_number_is_given_as_it_is(raw: bytes) -> None:
    assert joined(tensor_of(raw, (64, 2), None, dtype="Q4_0", order="reversed"), 4) == raw
    assert joined(tensor_of(raw, (5,), None, dtype="F4")) == raw
    # A number with padding, or cut short, is too: the check tells of it.
    assert joined(tensor_of(raw, (2,), "f32")) == raw


DESCRIBED = [
    (">U3", np.array(["a", "é€", "xyz"], ">U3")),
    (">i4", np.arange(3, dtype=">i4")),
    (">M8[D]", np.array(["2020-01-01", "NaT", "1970-01-02"], ">M8[D]")),
    ("[('a', '>i4'), ('b', '<f8', (2,)), ('v', '|V3'), ('c', '|S2')]", None),
]


@pytest.mark.parametrize(("descr", "values"), DESCRIBED)
def test_other_items_of_big_endian_npy_files_are_swapped(
    descr: str, values: np.ndarray | None
) -> None:
    if values is None:
        dtype = np.dtype([("a", ">i4"), ("b", "<f8", (2,)), ("v", "|V3"), ("c", "|S2")])
        values = np.frombuffer(noise(3 * dtype.itemsize), dtype)
    tensor = tensor_of(values.tobytes(), (3,), None, dtype=descr, byteorder="big")
    swapped = values.astype(values.dtype.newbyteorder("<"))
    assert joined(tensor, 20) == swapped.tobytes()
    assert np.array_equal(array(tensor), values, equal_nan=descr.startswith(">M"))


@pytest.mark.parametrize(
    ("descr", "in_numbers"),
    [
        (">M8", ">i8"),
        (">m8", ">i8"),
        (
            "[('a', '>M8', (2,)), ('b', [('c', '>m8'), ('d', '<M8')])]",
            [("a", ">i8", (2,)), ("b", [("c", ">i8"), ("d", "<i8")])],
        ),
    ],
)
def test_big_endian_times_without_a_unit_are_swapped(descr: str, in_numbers: Any) -> None:
    dtype = np.dtype(in_numbers)
    values = np.frombuffer(noise(3 * dtype.itemsize), dtype)
    tensor = tensor_of(values.tobytes(), (3,), None, dtype=descr, byteorder="big")
    assert joined(tensor, 20) == values.astype(dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("order", ["<", ">"])
def test_padding_of_records_is_no_field(order: str) -> None:
    fields = [("a", "u1"), ("b", f"{order}f8"), ("c", f"{order}i2", (3,))]
    dtype = np.dtype(fields, align=True)
    raw = noise(2 * dtype.itemsize)
    values = np.frombuffer(raw, dtype)
    descr = repr(np.lib.format.dtype_to_descr(dtype))
    tensor = tensor_of(raw, (2,), None, dtype=descr, byteorder="little")
    assert array(tensor).dtype == dtype
    assert np.array_equal(array(tensor), values)
    little = numpy_dtype(tensor)
    assert little == dtype.newbyteorder("<")
    swapped = np.frombuffer(joined(tensor), little)
    assert np.array_equal(swapped, values)
    assert joined(tensor)[1:8] == raw[1:8]


def test_other_items_in_columns() -> None:
    values = np.array([["ab", "c"], ["d", "efg"], ["", "h"]], "<U3")
    raw = values.tobytes(order="F")
    known = tensor_of(raw, (3, 2), None, dtype="<U3", order="F")
    unknown = tensor_of(raw, (3, 2), None, dtype="its own", order="F")
    assert joined(known, 16) == joined(unknown, 16) == values.tobytes()
    assert array(known).tolist() == values.tolist()


@pytest.mark.parametrize(
    "descr",
    ["O", "|O", ">O", "[('a', '>i4'), ('b', '|O')]", "[('a', 'x')]", "[(", "[" * 5000, "[('a',)]",
     "[('a', '>i4'), ('a', '>i4')]", "[('a', '>V999999999', (999999999,))]", ">i3", ">i4,>i4", "f4",
     "__import__('os')", "[]"],
)  # fmt: skip
def test_words_that_numpy_does_not_have_leave_the_bytes_alone(descr: str) -> None:
    tensor = tensor_of(b"abcd", (1,), None, dtype=descr, byteorder="big")
    assert joined(tensor) == b"abcd"
    with pytest.raises(FormatError, match="which numpy does not have"):
        array(tensor)


@pytest.mark.parametrize(
    ("raw", "shape", "element", "changes"),
    [
        (b"abcd", (2, 2), "i16", {"order": "F"}),
        (b"abcdefg", (2, 2), "i16", {"strides": (1, 2)}),
        (b"abcd", (2, 2), "u8", {"strides": (2**62, 1)}),
        (b"abcd", (2**62, 2**62), "u8", {"strides": (1, 1)}),
        (b"abcd", (2,), "u8", {"strides": (-1,)}),
        (b"abcd", (2, 2), "u8", {"strides": (1,)}),
        (b"abcd", (2, -2), "u8", {}),
        (b"", (2, 2), "u8", {"strides": (1, 2)}),
        (b"abcde", (2, 2), None, {"order": "F"}),
        (b"", (2, 2), None, {"order": "F"}),
        (b"abcde", (2,), "i16", {"byteorder": "big"}),
        (b"abcd", (4,), "u8", {"absent": "it is elsewhere"}),
    ],
)
def test_bytes_that_do_not_fit_are_refused(
    raw: bytes, shape: tuple[int, ...], element: str | None, changes: dict[str, Any]
) -> None:
    tensor = tensor_of(raw, shape, element, **changes)
    with pytest.raises(FormatError) as caught:
        joined(tensor)
    assert caught.value.offset == 64


@pytest.mark.parametrize(
    ("shape", "element"), [((3,), "i16"), ((1,) * 33, "u8"), ((2,), "bf16"), ((2,), "f8_e5m2")]
)
def test_what_numpy_can_not_have_is_no_array(shape: tuple[int, ...], element: str) -> None:
    with pytest.raises(FormatError):
        array(tensor_of(b"abcd", shape, element))


def test_many_dimensions() -> None:
    shape = (1, 2) * 5 + (1,) * 50
    strides = tuple(2 ** (axis // 2) if axis < 10 else 5 for axis in range(60))
    raw = noise(64)
    values = np.frombuffer(raw, "<u2").reshape((2,) * 5, order="F")
    assert joined(tensor_of(raw, shape, "u16", strides=strides), 8) == values.tobytes()


def test_views_that_repeat_items_are_lazy() -> None:
    tensor = tensor_of(b"ab", (2**40, 2**20, 2), "u8", strides=(0, 0, 1))
    tracemalloc.start()
    taken = list(islice(blocks(tensor, 1000), 50))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {bytes(piece) for piece in taken} == {b"ab" * 500}
    assert peak < 2**20


def test_big_endian_files_give_what_was_written() -> None:
    path = "golden/gguf/big_endian.gguf"
    listed = describe(memoryview(fixture(path))).tensors
    assert {t.name: sha256(joined(t)).hexdigest() for t in listed} == golden()[path]["tensors"]


def test_fields_of_a_record_are_little_endian_each() -> None:
    held = np.array([(1, 2.5), (3, -4.0)], [("a", ">i4"), ("b", "<f8")])
    tensor = tensor_of(held.tobytes(), (2,), None, dtype="[('a', '>i4'), ('b', '<f8')]")
    assert joined(tensor) == held.astype([("a", "<i4"), ("b", "<f8")]).tobytes()
