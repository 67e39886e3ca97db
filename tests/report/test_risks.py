"""Labels of risks."""

from __future__ import annotations

from wtxtgit.report.review import LABELS, SEVERE, Chip, Flag, Risk, chips


def test_each_risk_has_a_label_of_its_own() -> None:
    assert set(LABELS) == set(Risk)
    assert len(set(LABELS.values())) == len(LABELS)


def test_severe_ones_come_first_and_each_once() -> None:
    flags = [Flag(Risk.DTYPE, "a"), Flag(Risk.NEW_NAN, "b"), Flag(Risk.DTYPE, "c")]
    assert Risk.NEW_NAN in SEVERE
    assert chips(flags) == (Chip("New NaN", "severe"), Chip("Dtype changed", "look", 2))
