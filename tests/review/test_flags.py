"""Risk flags of a comparison: each with what it is for, and what it is not for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.review.diffs import changed, in_bytes, report, same
from wtxtgit.report.diff import SideFacts, TensorDiff, TensorStatus
from wtxtgit.report.review import Flag, Risk
from wtxtgit.review.flags import LEAST_GROUPS, MOST_TENSORS, flags_of, groups

OTHERS = [same(f"layers.{n}.q") for n in range(1, 10)]


def found(*tensors: TensorDiff) -> list[Flag]:
    made = report(*tensors)
    return list(flags_of(made, groups(made)))


def kinds(*tensors: TensorDiff) -> list[tuple[Risk, str | None]]:
    return [(flag.risk, flag.tensor) for flag in found(*tensors)]


def test_an_ordinary_change_has_none() -> None:
    tensors = [changed(f"layers.{n}.{role}", 0.01 + n / 1e4) for n in range(8) for role in "qk"]
    assert found(*tensors, same("embed")) == []


def test_numbers_that_are_none() -> None:
    flags = found(changed("a", new_nan=1), changed("b", new_inf=3), changed("c"), in_bytes("d"))
    assert flags == [
        Flag(Risk.NEW_NAN, "1 item of 10 became NaN", "a"),
        Flag(Risk.NEW_INF, "3 items of 10 became Inf", "b"),
    ]


def test_a_layer_of_which_nothing_is_left() -> None:
    zeros = SideFacts(10, 0.0, 0.0, 10, 0, 0)
    flat = SideFacts(10, 0.5, 0.0, 0, 0, 0)
    dead = [changed("a.0.q", after=zeros), changed("a.0.k", after=flat)]
    dead = [replace(tensor, shape=(2, 5)) for tensor in dead]
    norm = same("a.0.norm")
    flags = found(*dead, norm)
    assert flags == [
        Flag(Risk.DEAD, "a.0: each of its 2 matrices is constant"),
        Flag(Risk.ZERO, "all items became 0", "a.0.q"),
        Flag(Risk.CONSTANT, "all items became 0.5", "a.0.k"),
    ]
    alive = replace(same("a.0.v"), shape=(2, 5))
    assert Risk.DEAD not in {risk for risk, _ in kinds(*dead, norm, alive)}


def test_another_dtype_shape_or_none() -> None:
    dtype = replace(changed("a"), base_dtype="f64")
    shape = TensorDiff("b", TensorStatus.CHANGED, "f32", (2, 3), base_shape=(3, 2))
    gone = TensorDiff("c", TensorStatus.REMOVED, "f32", (1,))
    reason = TensorDiff("d", TensorStatus.CHANGED, "f32", (1,), reason="not read: too large")
    assert found(dtype, shape, gone, reason) == [
        Flag(Risk.DTYPE, "f64 -> f32", "a"),
        Flag(Risk.SHAPE, "3 x 2 -> 2 x 3", "b"),
        Flag(Risk.REMOVED, "the tensor was removed", "c"),
        Flag(Risk.UNREAD, "not read: too large", "d"),
    ]


class TestASingleLayer:
    def test_alone(self) -> None:
        flags = found(changed("layers.0.q"), changed("layers.0.k"), *OTHERS)
        assert flags == [Flag(Risk.SINGLE, "layers.0 alone changed, of 10 layers")]

    def test_with_another_one(self) -> None:
        assert not kinds(changed("layers.0.q"), changed("head"), *OTHERS)

    def test_in_a_small_file(self) -> None:
        few = OTHERS[: LEAST_GROUPS - 1]
        assert kinds(changed("layers.0.q"), *few) == [(Risk.SINGLE, None)]
        assert not kinds(changed("layers.0.q"), *few[1:])

    def test_with_tensors_that_came(self) -> None:
        assert not kinds(
            changed("layers.0.q"), *OTHERS, TensorDiff("x", TensorStatus.ADDED, "f32", (1,))
        )


def test_unusual_layers_and_tensors() -> None:
    norms = [changed(f"layers.{n}.norm", 0.02, norm=100.0) for n in range(6)]
    weights = [changed(f"layers.{n}.q", 0.3 if n == 4 else 0.002) for n in range(6)]
    (in_a_layer,) = found(*norms, *weights)
    assert (in_a_layer.risk, in_a_layer.tensor) == (Risk.UNUSUAL, "layers.4.q")
    assert in_a_layer.message.startswith("changed 150 times as much as the median of other layers")
    (layer,) = found(*weights)
    assert (layer.risk, layer.tensor) == (Risk.UNUSUAL, None), "told once, of the layer"
    assert layer.message.startswith("layers.4 changed 150 times as much as the median of layers")


FLOATS: dict[str, Any] = {"ulp": ((1, 1),)}


def test_counters_and_random_states_are_no_unusual_layers() -> None:
    layers = [changed(f"layers.{n}.q", 0.002, **FLOATS) for n in range(6)]
    counts = [changed("rng", 30.0), changed("bn.num_batches_tracked", 5.0)]
    counts += [changed(f"bn.{word}", 3.0, **FLOATS) for word in ("running_mean", "running_var")]
    assert found(*layers, *counts) == []
    # Of quantised layers all are integers.
    weights = [changed(f"layers.{n}.q", 0.3 if n == 4 else 0.002) for n in range(6)]
    assert kinds(*weights) == [(Risk.UNUSUAL, None)]


def test_states_of_optimizers_hide_no_layer() -> None:
    """They change as a whole from step to step, so that nothing else was unusual."""
    layers = [changed(f"model.layers.{n}.q", 0.002, **FLOATS) for n in range(6)]
    states = [
        changed(f"optimizer.state.{n}.{word}", 1.5, **FLOATS)
        for n in range(12)
        for word in ("exp_avg", "exp_avg_sq")
    ]
    states.append(changed("optimizer.state.12.exp_avg", 90.0, **FLOATS))
    assert found(*layers, *states[:-1]) == []
    assert [flag.tensor for flag in found(*layers, *states)] == [None]
    head = changed("model.head", 0.3, **FLOATS)
    (flag,) = found(*layers, *states[:-1], head)
    assert flag.message.startswith("model changed 150 times as much as the median of layers")


@pytest.mark.parametrize(
    ("name", "is_state"),
    [
        ("optimizer.state.3.exp_avg", True),
        ("state.3.momentum_buffer", True),
        ("optim/state.layers.0.q.weight.square_avg", True),
        ("state.3.weight", False),
        ("exp_avg", False),
        ("model.estate.3.exp_avg", False),
    ],
)
def test_what_states_of_optimizers_do_in_each_training(name: str, is_state: bool) -> None:
    """Averages of gradients grow from 0, fall with the gradients, and change their signs."""
    before = SideFacts(100, 0.0, 0.001, 0, 0, 0)
    grown = changed(name, 90.0, elements=100, before=before)
    turned = changed(name, 2.0, elements=100, cosine=-0.95)
    for tensor in (grown, turned):
        assert (found(tensor) == []) is is_state
    negated = changed(name, 2.0, elements=100, cosine=-1.0)
    assert kinds(negated) == [(Risk.NEGATED, name)]
    assert kinds(changed(name, new_nan=1)) == [(Risk.NEW_NAN, name)]


def test_many_are_told_once() -> None:
    flags = found(*(changed(f"w{n}", new_nan=1) for n in range(5000)))
    assert len(flags) == MOST_TENSORS + 1
    assert flags[-1] == Flag(Risk.NEW_NAN, f"the same for {5000 - MOST_TENSORS:,} more tensors")
