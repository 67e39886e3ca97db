"""What a reviewer must not miss of a changed tensor: its rows, its scales, its norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.tensors.test_compare import stored
from wtxtgit.model.tensor import Tensor
from wtxtgit.report.diff import Numbers, ValueRisk
from wtxtgit.tensors import row_risks
from wtxtgit.tensors.compare import compare_numbers
from wtxtgit.tensors.numbers import BLOCK
from wtxtgit.tensors.quantised import scale_states
from wtxtgit.tensors.row_risks import row_states

Array = NDArray[Any]


def held(values: Array, element: str = "f32", order: str = "C") -> Tensor:
    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, width)
    return stored(bits, element, order)


def told(before: Array, after: Array, element: str = "f32", order: str = "C") -> dict[str, str]:
    """The risks of a change, and what is said of them."""
    a, b = held(before, element, order), held(after, element, order)
    change = compare_numbers(a, b, lambda _: None)
    states = row_states(a, b, change.before.root_mean_square, threads=1)
    made = Numbers(**{
        name: getattr(change, name) for name in Numbers.__dataclass_fields__ if name != "states"
    }, states=states)  # fmt: skip
    return {str(one.risk): one.message for one in made.concerns()}


@pytest.fixture
def weights() -> Array:
    return np.random.default_rng(0).standard_normal((64, 40)).astype("f4")


@pytest.mark.parametrize("order", ["C", "F"])
def test_each_kind_of_row(weights: Array, order: str) -> None:
    after = weights * np.float32(1.01)
    after[3] = 0.5
    after[[5, 9, 11, 60]] = 0
    after[20] = np.clip(after[20], -0.1, 0.1)
    after[30] *= 40
    assert told(weights, after, order=order) == {
        "collapsed-rows": "5 of 64 rows (3, 5, 9, ...) became constant",
        "saturated": "in 1 of 64 rows (20), half the items reached the row's limit",
        "outlier-norm": "the norm of 1 of 64 rows (30) grew more than 10 times",
    }
    # What was so before is not told again.
    assert told(after, after * np.float32(2), order=order) == {}


def test_an_ordinary_change_has_none(weights: Array) -> None:
    assert told(weights, weights * 1.5 + np.float32(0.01)) == {}


def test_all_zero_or_constant(weights: Array) -> None:
    assert told(weights, weights * 0) == {"all-zero": "all items became 0"}
    flat = np.full_like(weights, 0.1)
    found = told(weights, flat)
    assert found["constant"] == "all items became 0.1"
    large = np.random.default_rng(0).standard_normal((700, 1000)).astype("f4")
    # Sums over several blocks round.
    assert "constant" in told(large, np.full_like(large, 0.1))
    assert "constant" not in told(flat, flat * 2)


def test_norms_of_a_tensor(weights: Array) -> None:
    assert told(weights, weights * 20)["outlier-norm"] == "the norm became 20 times its old value"
    assert "outlier-norm" in told(weights, weights / 20)
    step = np.array([1, 2], "f4")
    assert told(step, step * 100) == {}, "a counter"


def test_the_largest_number_of_the_dtype(weights: Array) -> None:
    before = weights.astype("f2")
    after = before.copy()
    after[2, 7] = -65504
    found = told(before, after, "f16")
    assert found["saturated"] == "1 item reached the dtype's largest number"


def test_masks_are_never_saturated() -> None:
    rng = np.random.default_rng(0)
    before, after = (rng.integers(0, 2, (16, 40), "i4") for _ in range(2))
    assert told(before, after, "i32") == {}


def test_rows_that_blocks_cut(weights: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = np.random.default_rng(1).standard_normal((6, BLOCK // 4 // 2 - 3)).astype("f4")
    after = wide * np.float32(1.5)
    after[4] = 1
    assert list(told(wide, after)) == ["collapsed-rows"]
    # A row that is too long is cut at the next dimension.
    monkeypatch.setattr(row_risks, "LONGEST_ROW", 40 * 4)
    before = np.stack([weights, weights])
    changed = before * np.float32(1.5)
    changed[1, 7] = 2
    assert told(before, changed)["collapsed-rows"].startswith("1 of 128 rows ([1, 7]) ")


def test_vectors_and_empty_tensors_have_no_rows() -> None:
    for shape in ((40,), (0, 40), (40, 0), (5, 3), ()):
        tensor = held(np.zeros(shape, "f4"))
        assert row_states(tensor, tensor, 1.0) is None


class TestQuantised:
    def tensor(self, blocks: Array, dtype: str = "Q4_0") -> Tensor:
        packing = f"ggml:{dtype}" if dtype != "int4" else None
        raw = memoryview(blocks.tobytes())
        return Tensor("w", dtype, (len(blocks) * 32,), raw, 0, packing=packing)

    def told(self, before: Array, after: Array, dtype: str = "Q4_0") -> dict[str, str]:
        states = scale_states(self.tensor(before, dtype), self.tensor(after, dtype))
        return {str(one.risk): one.message for one in states.concerns()}

    @pytest.fixture
    def blocks(self) -> Array:
        made = np.random.default_rng(0).integers(0, 256, (50, 18), np.uint8)
        made[:, :2] = np.array([0.5], "<f2").view(np.uint8)
        return made

    def scaled(self, blocks: Array, scale: float, which: slice = slice(None)) -> Array:
        made = blocks.copy()
        made[which, :2] = np.array([scale], "<f2").view(np.uint8)
        return made

    def test_scales(self, blocks: Array) -> None:
        half = {"outlier-norm": "all items were multiplied by 0.5"}
        assert self.told(blocks, self.scaled(blocks, 0.25)) == half
        assert self.told(blocks, self.scaled(blocks, -0.5)) == {"negated": "all items were negated"}
        assert self.told(blocks, self.scaled(blocks, 1.5, slice(0, 9))) == {
            "outlier-norm": "in 9 of 50 blocks only the scales changed, by factors from 3 to 3"
        }
        assert self.told(blocks, self.scaled(blocks, 0.0)) == {"all-zero": "all items became 0"}
        few = slice(3, 5)
        nan, inf = (self.scaled(blocks, value, few) for value in (np.nan, np.inf))
        assert self.told(blocks, nan) == {"new-nan": "2 blocks of 50 became NaN"}
        assert self.told(blocks, inf) == {"new-inf": "2 blocks of 50 became Inf"}
        assert self.told(nan, nan) == {}

    def test_scales_that_are_no_numbers_of_their_own(self, blocks: Array) -> None:
        """Both scales of a type whose numbers are not decoded."""
        made = np.random.default_rng(0).integers(0, 256, (50, 144), np.uint8)
        made[:, :4] = np.array([0.5, 0.25], "<f2").view(np.uint8)
        other = made.copy()
        other[:, :4] = np.array([-1.5, -0.75], "<f2").view(np.uint8)
        assert self.told(made, other, "Q4_K") == {"negated": "all items were multiplied by -3"}
        other[:, 100] ^= 1
        assert self.told(made, other, "Q4_K") == {
            "negated": "the scales point the other way: cosine -1.000000"
        }

    def test_what_has_no_scales_that_we_know(self, blocks: Array) -> None:
        assert self.told(blocks, blocks * 0, "int4") == {"all-zero": "all items became 0"}
        assert self.told(blocks, self.scaled(blocks, np.nan), "int4") == {}


def test_the_risks_that_a_review_has_too() -> None:
    from wtxtgit.report.review import Risk

    assert {risk.value for risk in ValueRisk} < {risk.value for risk in Risk}
