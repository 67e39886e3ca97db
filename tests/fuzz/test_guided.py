"""Targets of guided fuzzing: what once broke them holds, and what breaks one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.guided.__main__ import is_there
from tests.fuzz.guided.running import Length, fuzz
from tests.fuzz.guided.target import FOUND, Target, found
from tests.fuzz.guided.targets import TARGETS

pytestmark = pytest.mark.slow

SEEDS = 3
"""Of each target, so that it is known to work; the fuzzer begins with all of them."""


@pytest.mark.parametrize("name", TARGETS)
def test_what_once_broke_a_target_holds(name: str) -> None:
    target = TARGETS[name]
    for data in found(name):
        target.hold_in_memory(data)
    for data in target.inputs()[:SEEDS]:
        target.hold_in_time(data)


def test_what_was_found_belongs_to_targets() -> None:
    assert {folder.name for folder in FOUND.iterdir()} <= set(TARGETS)
    assert all(found(folder.name) for folder in FOUND.iterdir())


@pytest.mark.skipif(
    not is_there(), reason="atheris is not there: make fuzz-deps, with a Python it has wheels for"
)
def test_what_breaks_a_target_is_found_and_made_small(tmp_path: Path) -> None:
    def hold(data: bytes) -> bool:
        return data.isascii() or data[:0][0] > 0

    def seeds() -> list[bytes]:
        return [b"some input that is not empty"]

    ((outcome),) = fuzz({"toy": Target(seeds, hold)}, Length(runs=20_000, seed=1), tmp_path, 1)
    assert outcome.finding is not None
    assert "IndexError" in outcome.finding
    assert outcome.kept is not None
    (byte,) = outcome.kept.read_bytes()
    assert byte > 0x7F
    holds = Target(seeds, bool)
    ((outcome),) = fuzz({"toy": holds}, Length(runs=1000, seed=1), tmp_path, 1)
    assert (outcome.finding, outcome.tried, outcome.taken) == (None, 1000, 998)
