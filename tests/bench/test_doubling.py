"""How the exponent of a command's growth is told."""

from __future__ import annotations

import pytest

from bench.doubling import growth


@pytest.mark.parametrize(
    ("one", "first", "last", "told"),
    [
        (0.2, 0.3, 0.6, "exponent 1.00 (at most 1.1: met)"),
        (0.2, 0.3, 1.8, "exponent 2.00 (at most 1.1: missed)"),
        (0.2, 0.2, 0.24, "flat"),
        (0.2, 0.19, 0.6, "too noisy to tell"),
    ],
)
def test_what_each_run_takes_falls_out(one: float, first: float, last: float, told: str) -> None:
    assert growth(one, first, last) == told
