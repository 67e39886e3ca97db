"""Two implementations of the rules of trust agree on random histories."""

from __future__ import annotations

import os

import pytest

from tests.kit.changes import TRUST, why_all
from tests.trust.histories import disagreement, random_program, told

FAST = AT_ONCE = 250
ALL = int(os.environ.get("WTXTGIT_HISTORIES", "3000" if why_all(TRUST) else "1000"))
"""With the slow ones; 50,000 take ten minutes of two cores that have nothing else to do."""
FIRST = int(os.environ.get("WTXTGIT_EXPLORE", "0")) * 1_000_000
"""Of the slow ones' seeds, which are others for another number to explore."""


def _check(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        program = random_program(seed)
        if disagreement(program) is not None:
            pytest.fail(f"seed {seed}: {told(program)}")


@pytest.mark.parametrize("first", range(0, FAST, AT_ONCE))
def test_implementations_agree(first: int) -> None:
    _check(first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST + FAST, FIRST + ALL, AT_ONCE))
def test_implementations_agree_on_more(first: int) -> None:
    _check(first)
