"""npy: files that are written again with another array."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from tests.containers import resealing
from tests.containers.resealing import OPTIONS, content, inverted, opened, own, refused
from tests.containers.zip_files import npy, npy_fields, npy_text
from tests.data import fixture, golden_of
from wtxtgit.containers.any_format import check
from wtxtgit.containers.npy import reseal as module
from wtxtgit.containers.npy.file import Npy
from wtxtgit.io.view import PIECE, Buffer
from wtxtgit.model.tensor import NewContent, PlacedEntry

ARRAYS = npst.arrays(
    st.sampled_from(["<f4", ">f8", "|u1", "<c8", "|S3", "<M8[ns]", [("a", "<i2"), ("b", "|b1")]]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
PICKLE = b"cos\nsystem\n(S'false'\ntR."
OBJECTS = npy_fields("'|O'", data=PICKLE)


def resealed(container: Npy, placed: Sequence[PlacedEntry]) -> bytes:
    """The file, which has no errors but for what stands after its array."""
    data = resealing.resealed(container, placed)
    assert {error.field for error in check(memoryview(data)).errors} <= {"data"}
    return data


@pytest.mark.parametrize("file", sorted(golden_of("npy")))
def test_a_fixture_that_is_not_changed_stays(file: str) -> None:
    container = opened(fixture(file))
    assert module.values(container, OPTIONS) == {}
    (entry,) = module.entries(container, OPTIONS)
    assert entry.name == "data"
    assert entry.tensor is not None
    assert entry.stored == entry.tensor.data
    data = b"".join(module.reseal(container, own(container, 1), {}, OPTIONS))
    assert data == fixture(file)


@given(ARRAYS, ARRAYS, st.sampled_from([(1, 0), (2, 0), (3, 0)]), st.binary(max_size=9))
def test_an_array_is_put_in_its_place(
    array: NDArray[Any], other: NDArray[Any], version: tuple[int, int], after: bytes
) -> None:
    head, raw = npy(array, version)[: -array.nbytes or None], array.tobytes("A")
    ours, theirs = opened(head + raw + after), opened(npy(other))
    assert resealed(ours, own(ours, 1)) == head + raw + after
    wanted = head + inverted(raw) + after
    assert resealed(ours, [PlacedEntry(ours, 0, content(inverted(raw)))]) == wanted
    data = resealed(ours, own(theirs, 1))
    if (array.dtype, array.shape) == (other.dtype, other.shape):
        assert data == head + other.tobytes() + after
    else:
        assert data == npy(other) + after
    loaded = np.load(io.BytesIO(data))
    assert (loaded.dtype, loaded.shape) == (other.dtype, other.shape)
    assert loaded.tobytes() == other.tobytes()


def test_an_array_of_another_order_brings_its_header() -> None:
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    ours, theirs = opened(npy(array)), opened(npy(np.asfortranarray(array)))
    assert resealed(ours, own(theirs, 1)) == npy(np.asfortranarray(array))
    raw = bytes(range(12))
    data = resealed(ours, [PlacedEntry(theirs, 0, content(raw))])
    loaded = np.load(io.BytesIO(data))
    assert loaded.flags.f_contiguous
    assert loaded.tobytes("F") == raw


def test_forms_tell_what_the_header_says() -> None:
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    others = [array.T, np.asfortranarray(array), array.astype(">i2"), array.view("<u2")]
    forms = [
        module.entries(opened(npy(each)), OPTIONS)[0].form for each in (array, *others, array + 1)
    ]
    assert len(set(forms)) == len(forms) - 1
    assert forms[-1] == forms[0]
    # How the header is spelled says nothing of the array.
    spelled = npy_text(b"{'shape':(2L,3),'fortran_order':False,'descr':'<i2'}", array.tobytes())
    assert module.entries(opened(spelled), OPTIONS)[0].form == forms[0]


def test_objects_are_moved_and_never_read() -> None:
    ours, theirs = opened(OBJECTS), opened(npy_fields(" '|O'", data=PICKLE + b"more"))
    assert resealed(ours, own(theirs, 1)) == theirs.data
    assert resealed(ours, [PlacedEntry(ours, 0, content(inverted(PICKLE)))]) == (
        OBJECTS[: -len(PICKLE)] + inverted(PICKLE)
    )
    numbers = opened(npy([1, 2]))
    assert resealed(numbers, own(theirs, 1)) == theirs.data
    assert resealed(theirs, own(numbers, 1)) == numbers.data
    found = refused(opened(npy([1, 2]) + b"after"), own(ours, 1))
    assert found.message == "5 bytes after the array can't be kept after Python objects"


def test_what_is_refused() -> None:
    ours = opened(npy([1, 2]))
    assert refused(ours, []).message == "npy holds one array, not 0"
    assert refused(ours, own(ours, 1) * 2).message == "npy holds one array, not 2"
    assert refused(ours, own(ours, 1), {"a": "b"}).message == "npy files have no metadata"
    found = refused(ours, [PlacedEntry(ours, 0, content(b"abc"))])
    assert found.message == "tensor 'data' has 16 bytes, but 3 were given"


def test_nothing_of_an_array_is_held() -> None:
    made = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal made
        for _ in range(8):
            made += 1
            yield bytes(2**20)

    container, other = opened(npy(np.zeros(2**23, "u1"))), opened(npy(np.zeros(2**22, "<u2")))
    for source, new in ((container, blocks), (other, blocks), (container, None), (other, None)):
        made = 0
        given_content = None if new is None else NewContent(2**23, new)
        pieces = module.reseal(container, [PlacedEntry(source, 0, given_content)], None, OPTIONS)
        assert made == 0
        sizes = [len(piece) for piece in pieces]
        assert max(sizes) == PIECE
        assert sum(sizes) == 2**23 + 128


def test_the_rest_is_what_stands_after_the_array() -> None:
    one, two = npy([1, 2]), npy([3.0])
    found = [
        module.rest(opened(data), OPTIONS)
        for data in (one, npy([5, 6, 7]), one + two, npy([5, 6]) + two, one + one)
    ]
    assert found[0] == found[1] == {}
    assert found[2] == found[3] != {}
    assert found[2] != found[4]
    assert module.rest(opened(npy_fields("'|O'", data=PICKLE)), OPTIONS) == {}
