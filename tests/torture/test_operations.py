"""A few of the histories of `make torture`, and that what is wrong in one is seen and told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.e2e import weights
from tests.kit.changes import PRODUCT
from tests.torture.operations import histories
from tests.torture.operations.contents import KINDS
from tests.torture.operations.histories import Chosen, Outcome, choose, shorter
from tests.torture.operations.merges import Merges, merged
from tests.torture.test_kills import torture

NAME = "a.safetensors"


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
def test_a_random_history_is_that_of_plain_git() -> None:
    done = torture("operations", "--tries", "1", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | " in done.stdout


def test_a_history_is_its_seeds() -> None:
    steps = {name: (1, lambda *_: None) for name in "abc"}
    assert choose(steps, "1") == choose(steps, "1") != choose(steps, "2")


def test_steps_that_are_not_needed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_REPLAYS", 1000)
    chosen = [(name, 0) for name in "xaxxbxxxxc"]

    def run(tried: Chosen) -> Outcome:
        names = [name for name, _ in tried]
        at = "c" if "a" in names and "b" in names and names[-1:] == ["c"] else ""
        return Outcome(failed=at, at=at, log=names)

    assert shorter(run, chosen, run(chosen)).log == ["a", "b", "c"]


def rows(**numbers: int) -> weights.Model:
    return weights.edited(weights.base(), {name: {0: number} for name, number in numbers.items()})


def test_merges_are_proven_by_rows() -> None:
    wanted = merged(weights.base(), rows(embed=7), rows(head=8))
    assert wanted is not None
    weights.assert_model(wanted, rows(embed=7, head=8))
    assert merged(weights.base(), rows(embed=7), rows(embed=8)) is None
    both = merged(weights.base(), rows(embed=7), {"embed": np.zeros((2, 2), "<f4")})
    assert both is None


@pytest.mark.parametrize(
    ("result", "code", "told"),
    [
        (rows(embed=7, head=8), 0, []),
        (rows(embed=7), 0, ["one side is taken though the other one changed it"]),
        (rows(embed=9, head=8), 0, ["the merged file does not hold what each side changed"]),
        (rows(embed=7), 1, ["a conflict, though no row changed on both sides"]),
        (rows(head=8), 1, ["in conflict it is not ours"]),
    ],
)
def test_a_wrong_merge_is_seen(
    tmp_path: Path, result: weights.Model, code: int, told: list[str]
) -> None:
    merges = Merges(tmp_path)
    place = tmp_path / "recorded/1"
    place.mkdir()
    sides = {"base": weights.base(), "ours": rows(embed=7), "theirs": rows(head=8)}
    for part, model in (sides | {"result": result}).items():
        (place / part).write_bytes(KINDS[".safetensors"].make(model))
    (place / "name").write_text(NAME)
    (place / "code").write_text(str(code))
    assert merges.learn() == [f"{NAME}: {one}" for one in told]
