"""Changes that are unusually large among layers."""

from __future__ import annotations

from math import log10

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.review.diffs import changed, in_bytes, report
from wtxtgit.review.flags import (
    LEAST_CHANGES,
    LEAST_SCORE,
    LEAST_SPREAD,
    groups,
    outliers,
    unusual_groups,
    unusual_tensors,
)


def test_the_score_is_that_of_the_definition() -> None:
    changes = {f"layers.{n}": value for n, value in enumerate((0.01, 0.02, 0.005, 0.03, 0.01, 9.0))}
    logs = np.log10(list(changes.values()))
    middle = np.median(logs)
    mad = np.median(np.abs(logs - middle))
    (found,) = outliers(changes)
    assert found.name == "layers.5"
    assert found.score == pytest.approx(0.6745 * (logs[5] - middle) / mad)
    assert found.times == pytest.approx(9.0 / 10**middle)


def test_too_few_have_no_usual_change() -> None:
    alike = {f"{n}": 0.01 for n in range(LEAST_CHANGES - 2)}
    assert not outliers(alike | {"x": 100.0})
    assert [one.name for one in outliers(alike | {"y": 0.01, "x": 100.0})] == ["x"]


def test_layers_that_change_alike_leave_room() -> None:
    alike = {f"{n}": 0.01 for n in range(10)}
    edge = 0.01 * 10 ** (LEAST_SCORE * LEAST_SPREAD)
    assert not outliers(alike | {"x": edge * 0.99})
    assert outliers(alike | {"x": edge * 1.01})


def test_small_changes_are_none() -> None:
    assert not outliers({f"{n}": 0.01 for n in range(10)} | {"x": 1e-9, "y": 0.0})


@given(st.lists(st.floats(0, 1.7e308), max_size=30))
def test_any_changes(changes: list[float]) -> None:
    found = outliers({str(n): change for n, change in enumerate(changes)})
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert all(score >= LEAST_SCORE for score in scores)
    # Never more than half: the median is not moved by what is flagged.
    assert 2 * len(found) <= sum(change > 0 for change in changes)
    assert all(log10(changes[int(one.name)]) > -400 for one in found)


def test_layers_are_compared_with_all_others() -> None:
    tensors = [changed(f"layers.{n}.q", 0.01) for n in range(4)] + [changed("head", 0.9)]
    assert [one.name for one in unusual_groups(groups(report(*tensors)))] == ["head"]


def test_tensors_are_compared_with_those_of_their_role() -> None:
    norms = [changed(f"layers.{n}.norm", 0.5) for n in range(5)]
    weights = [changed(f"layers.{n}.q", 0.2 if n == 2 else 0.001) for n in range(5)]
    tensors = [*norms, *weights, in_bytes("layers.9.q")]
    assert [one.name for one in unusual_tensors(tensors, ())] == ["layers.2.q"]
    assert not list(unusual_tensors(tensors, ("layers.2",)))
