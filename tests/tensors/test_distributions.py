"""Histograms against numpy's over whole arrays."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from wtxtgit.model.tensor import Tensor
from wtxtgit.report.review import Distributions, Histogram
from wtxtgit.tensors.compare import compare_numbers
from wtxtgit.tensors.statistics import BINS, distributions

ELEMENTS = {"<f4": "f32", "<f8": "f64", "<f2": "f16", "|i1": "i8", "<i8": "i64", "|b1": "bool",
            "<c8": "c64", "<u8": "u64"}  # fmt: skip


def tensor(values: NDArray[Any], element: str | None = None) -> Tensor:
    held = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    element = element or ELEMENTS[values.dtype.str]
    return Tensor("w", element, values.shape, held, 0, element)


def counted(a: Tensor, b: Tensor, threads: int | None = 1) -> Distributions:
    change = compare_numbers(a, b, lambda _: None, threads=threads)
    found = distributions(a, b, change, threads=threads)
    assert found is not None
    return found


def assert_numpys(found: Histogram, values: NDArray[np.float64]) -> None:
    with np.errstate(invalid="ignore"):
        counts, edges = np.histogram(values, BINS, (found.low, found.high))
        below, above = int((values < found.low).sum()), int((values > found.high).sum())
    assert (edges[0], edges[-1]) == (found.low, found.high)
    assert found.counts == tuple(counts.tolist())
    assert (found.below, found.above) == (below, above)


def assert_right(found: Distributions, a: NDArray[Any], b: NDArray[Any]) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        x, y = (side.reshape(-1).astype(np.float64) for side in (a, b))
        assert_numpys(found.before, x)
        assert_numpys(found.after, y)
        assert_numpys(found.change, (y - x)[x != y])
    assert (found.before.low, found.before.high) == (found.after.low, found.after.high)


@pytest.mark.parametrize("share", [0.001, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2", "|i1", "<i8"])
def test_numbers(dtype: str, share: float) -> None:
    """More than one block, few or all of the items changed."""
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((300, 700)) * 20).astype(dtype)
    b = a.copy()
    picks = rng.random(a.shape) < share
    b[picks] += rng.integers(1, 5, int(picks.sum())).astype(dtype)
    assert_right(counted(tensor(a), tensor(b)), a, b)


def test_threads_make_no_difference() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(1_000_000).astype("f4") for _ in range(2))
    assert counted(tensor(a), tensor(b), 1) == counted(tensor(a), tensor(b), 4)


def test_two_dtypes() -> None:
    a = np.random.default_rng(3).standard_normal(10_000)
    b = a.astype("f2")
    assert_right(counted(tensor(a), tensor(b)), a, b)


def test_bf16() -> None:
    wide = np.random.default_rng(4).standard_normal((2, 5000)).astype("<f4")
    bits = (wide.view("<u4") >> 16).astype("<u2")
    a, b = ((half.astype("<u4") << 16).view("<f4") for half in bits)
    assert_right(counted(tensor(bits[0], "bf16"), tensor(bits[1], "bf16")), a, b)


def test_nan_is_left_out_and_inf_is_beyond() -> None:
    a = np.array([0, 1, 2, 3, np.nan, np.inf], "f4")
    b = np.array([0, 1, np.nan, 4, np.nan, -np.inf], "f4")
    found = counted(tensor(a), tensor(b))
    assert_right(found, a, b)
    assert sum(found.before.counts) + found.before.above == 5
    assert found.after.below == 1
    assert sum(found.change.counts) + found.change.below == 2


def test_most_values_are_within() -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal(100_000)
    b = a + 0.01 * rng.standard_normal(100_000)
    b[7] += 1e6
    found = counted(tensor(a), tensor(b))
    assert sum(found.change.counts) >= 99_999, "one outlier does not hide the others"


@pytest.mark.parametrize(
    ("old", "new"),
    [(0.0, 1.0), (1.0, 0.0), (5e-324, 1e-323), (1e308, -1e308), (1.7e308, 1.6e308), (3.0, 3.5)],
)
def test_constants(old: float, new: float) -> None:
    a, b = np.full(10, old), np.full(10, new)
    found = counted(tensor(a), tensor(b))
    assert_right(found, a, b)
    assert found.before.low < found.before.high
    assert sum(found.before.counts) + found.before.above + found.before.below == 10


@given(
    hnp.arrays("<f8", 12, elements=st.floats(width=64)),
    hnp.arrays("<f8", 12, elements=st.floats(width=64)),
)
def test_any_floats(a: NDArray[np.float64], b: NDArray[np.float64]) -> None:
    assert_right(counted(tensor(a), tensor(b)), a, b)


def test_complex_numbers_by_their_parts() -> None:
    a = np.array([1 + 2j, 3 - 1j], "c8")
    b = np.array([1 + 2j, 3 + 1j], "c8")
    assert_right(counted(tensor(a), tensor(b)), a.view("f4"), b.view("f4"))
    real = tensor(np.array([1, 2], "f4"))
    change = compare_numbers(real, tensor(b), lambda _: None)
    assert distributions(real, tensor(b), change) is None


def test_what_is_no_number() -> None:
    packed = Tensor("w", "q4_0", (32,), memoryview(bytes(18)), 0)
    plain = tensor(np.zeros(4, "f4"))
    change = compare_numbers(plain, tensor(np.ones(4, "f4")), lambda _: None)
    assert distributions(packed, packed, change) is None


def test_memory_does_not_grow() -> None:
    a, b = (np.random.default_rng(n).standard_normal(4_000_000).astype("f4") for n in (1, 2))
    sides = tensor(a), tensor(b)
    change = compare_numbers(*sides, lambda _: None)
    tracemalloc.start()
    distributions(*sides, change, threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
