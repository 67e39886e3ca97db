"""Average and task on numbers of every dtype, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wtxtgit.model.tensor import ITEM_BYTES
from wtxtgit.report.merge import Strategy
from wtxtgit.tensors import numbers
from wtxtgit.tensors.merge import combine

SMALL = ("bf16", "f16", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


def all_values(element: str) -> tuple[np.ndarray, np.ndarray]:
    """Bits and values of all finite numbers of a small float."""
    width = ITEM_BYTES[element]
    bits = np.arange(2 ** (8 * width), dtype=f"<u{width}")
    values = numbers.values(bits.view(np.uint8).data, element)
    finite = np.isfinite(values)
    return bits[finite], values[finite]


@pytest.mark.parametrize("element", SMALL)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_small_floats_are_rounded_once_to_the_nearest(element: str, seed: int) -> None:
    bits, values = all_values(element)
    x, y = np.random.default_rng(seed).integers(0, len(bits), (2, 8))
    made, good = combine(
        Strategy.AVERAGE, None, bits[x].view(np.uint8), bits[y].view(np.uint8), element
    )
    found = numbers.values(made.data, element)
    assert good.all()
    for a, b, value in zip(values[x], values[y], found, strict=True):
        exact = (Fraction(a) + Fraction(b)) / 2
        close = values[np.argpartition(np.abs(values - float(exact)), 4)[:4]]
        nearest = min(abs(Fraction(v) - exact) for v in close)
        assert abs(Fraction(value) - exact) == nearest


@pytest.mark.parametrize("element", INTEGERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_integers_are_exact_or_refused(element: str, data: st.DataObject) -> None:
    info = np.iinfo(numbers.NUMPY[element])
    value = st.integers(int(info.min), int(info.max))
    z, x, y = (data.draw(value) for _ in range(3))
    raw = [np.array([v], "<" + numbers.NUMPY[element]).view(np.uint8) for v in (z, x, y)]
    made, good = combine(Strategy.AVERAGE, None, raw[1], raw[2], element)
    mean = Fraction(x + y, 2)
    assert good.all()
    assert int(made.view("<" + numbers.NUMPY[element])[0]) == round(mean)
    made, good = combine(Strategy.TASK, *raw, element)
    sum_ = x + y - z
    assert bool(good[0]) == (info.min <= sum_ <= info.max)
    if good[0]:
        assert int(made.view("<" + numbers.NUMPY[element])[0]) == sum_


def test_an_item_that_one_side_changed_is_that_side_s() -> None:
    base = np.array([1e30, np.nan, -np.inf, 0.1], "<f4")
    ours = np.array([1.5, np.nan, -np.inf, 0.1], "<f4")
    theirs = np.array([1e30, 7, -np.inf, 0.3], "<f4")
    made, good = combine(
        Strategy.TASK, *(side.view(np.uint8) for side in (base, ours, theirs)), "f32"
    )
    assert good.all()
    assert made.view("<f4").tolist() == [1.5, 7, -np.inf, np.float32(0.3)]


@pytest.mark.parametrize("strategy", [Strategy.AVERAGE, Strategy.TASK])
def test_what_is_no_finite_number_is_refused(strategy: Strategy) -> None:
    base, ours, theirs = (
        np.array(v, "<f4").view(np.uint8) for v in ([1, 0], [np.nan, 3e38], [2, np.inf])
    )
    assert combine(strategy, base, ours, theirs, "f32")[1].tolist() == [False, False]


def test_the_mean_of_large_floats_does_not_overflow() -> None:
    x, y = (np.array([v], "<f8").view(np.uint8) for v in (1.7e308, 1.6e308))
    made, good = combine(Strategy.AVERAGE, None, x, y, "f64")
    assert good.all()
    assert made.view("<f8")[0] == 1.7e308 / 2 + 1.6e308 / 2


def test_booleans_have_no_mean() -> None:
    x, y = np.array([0, 1, 1], np.uint8), np.array([1, 1, 0], np.uint8)
    assert combine(Strategy.AVERAGE, None, x, y, "bool")[1].tolist() == [False, True, False]


def test_complex_items_are_made_part_by_part() -> None:
    x, y = np.array([1 + 2j, np.nan + 1j], "<c8"), np.array([3 + 4j, 1 + 3j], "<c8")
    made, good = combine(Strategy.AVERAGE, None, x.view(np.uint8), y.view(np.uint8), "c64")
    assert made.view("<c8")[0] == 2 + 3j
    assert good.tolist() == [True, False]
