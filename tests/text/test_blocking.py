"""Row blocking: the spec's rule, its example, and its limits."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.errors import TextError
from wtxtgit.model import array
from wtxtgit.model.array import ITEM_SIZE, Array, Meta, Rows, Snapshot, bounded_product
from wtxtgit.text import grammar, write
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import dumps

DTYPES = st.sampled_from(sorted(ITEM_SIZE))


def rule(dtype: str, shape: tuple[int, ...]) -> Rows:
    """The rule as the spec words it."""
    item = ITEM_SIZE[dtype]
    dims = [max(dim, 1) for dim in shape]
    row = next(
        size for k in range(1, max(len(dims), 1) + 1) if (size := item * prod(dims[k:])) <= 65_536
    )
    rows = 1
    while rows * 2 * row <= 65_536:
        rows *= 2
    return Rows(rows, row)


def test_the_example_of_the_spec() -> None:
    assert array.default_rows("f64", (4096, 64)) == Rows(128, 512)


@pytest.mark.parametrize(
    ("dtype", "shape", "rows", "row"),
    [
        ("u8", (), 65_536, 1),
        ("f64", (), 8192, 8),
        ("f32", (10,), 16_384, 4),
        ("u8", (3, 65_536), 1, 65_536),
        ("u8", (3, 65_537), 65_536, 1),
        ("f64", (3, 8192), 1, 65_536),
        ("f64", (3, 8193), 8192, 8),
        ("u8", (2, 3, 0, 5), 4096, 15),
        ("u8", (0,), 65_536, 1),
        ("i16", (4, 3, 7), 1024, 42),
        ("u8", (2, 40_000, 2, 1), 32_768, 2),
    ],
)
def test_rows_by_dtype_and_shape(dtype: str, shape: tuple[int, ...], rows: int, row: int) -> None:
    assert array.default_rows(dtype, shape) == Rows(rows, row)


@given(DTYPES, st.lists(st.integers(0, 70_000), max_size=6).map(tuple))
def test_rows_follow_the_rule(dtype: str, shape: tuple[int, ...]) -> None:
    rows = array.default_rows(dtype, shape)
    assert rows == rule(dtype, shape)
    assert grammar.check_rows(rows, dtype) is None
    assert grammar.chunk_size(rows) <= 65_536


def test_chunks_without_blocking_are_of_32_kib() -> None:
    assert grammar.chunk_size(None) == 32_768
    assert grammar.chunk_size(Rows(128, 512, blocking=False)) == 32_768
    assert grammar.chunk_size(Rows(128, 512)) == 65_536


@given(st.integers(0, 10**15), st.integers(1, 10**9))
def test_chunks_cover_the_array_and_an_empty_one_has_one(nbytes: int, size: int) -> None:
    count = array.chunk_count(nbytes, size)
    assert (count - 1) * size < max(nbytes, 1) <= count * size


@pytest.mark.parametrize("rows", [Rows(0, 8), Rows(1, 0), Rows(1, 12), Rows(1, 4)])
def test_rows_that_no_array_has_are_told(rows: Rows) -> None:
    assert grammar.check_rows(rows, "f64")


@pytest.mark.parametrize(
    ("nbytes", "size"), [(1_000_001, 1), (10**13, 10**12 - 1), (10**12 + 2, 10**12 + 1)]
)
def test_an_array_whose_chunks_have_no_number_is_a_limit(nbytes: int, size: int) -> None:
    with pytest.raises(TextError) as caught:
        write.check_fits("W", nbytes, size)
    assert caught.value.kind == "limit"
    assert caught.value.array == "W"


def test_the_last_numbers_still_fit() -> None:
    write.check_fits("W", 1_000_000, 1)
    write.check_fits("W", 10**12, 10**12 - 1)


@given(st.lists(st.integers(0, 10**20), max_size=8).map(tuple), st.sampled_from([1, 2, 4, 8]))
def test_a_product_is_exact_or_over_20_digits(shape: tuple[int, ...], item: int) -> None:
    exact, most = item * prod(shape), 10**20 - 1
    product = bounded_product(item, shape, most)
    assert product == exact if exact <= most else product > most


@pytest.mark.parametrize("wanted", [0, -1])
def test_less_than_one_row_a_chunk_is_refused(wanted: int) -> None:
    with pytest.raises(TextError):
        array.rows_for("f32", (4, 4), wanted)


def test_the_estimates_of_sizes_are_those_of_full_chunks() -> None:
    raw = memoryview(bytes(64 * 65_536))
    text = dumps(Snapshot(Meta(), (Array("W", "u8", (raw.nbytes,), raw, Rows(65_536, 1)),), CAP))
    assert 0 <= len(text) - grammar.text_size(raw.nbytes) < 1_000
    assert grammar.binary_size(grammar.text_size(raw.nbytes)) == raw.nbytes
