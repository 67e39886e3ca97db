"""What decides where both sides changed the same rows: config, attribute, and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.e2e.merging import Sides, assert_merged, bring, diverge, file_of, held, records, unmerged
from tests.e2e.weights import FOLD, SAFETENSORS, Model, assert_model, base, edited
from tests.kit import ATTRIBUTES, Repo, safetensors

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("driver")]

STRATEGY = "wtxtgit.mergeStrategy"
NAMES = ("ours", "theirs", "average", "task")
OURS = edited(base(), {"embed": {3: -1.0, 40: -2.0}})
THEIRS = edited(base(), {"embed": {3: -7.0, 63: -5.0}})
SIDES: Sides = (FOLD.make(base()), FOLD.make(OURS), FOLD.make(THEIRS))


def merged(strategy: str) -> Model:
    """Rows that one side changed are that side's; row 3 is as the strategy has it."""
    made = edited(base(), {"embed": {40: -2.0, 63: -5.0}})
    made["embed"][3] = {
        "ours": np.full(8, -1),
        "theirs": np.full(8, -7),
        "average": np.full(8, -4),
        "task": -1 - 7 - base()["embed"][3],
    }[strategy]
    return made


def attributes(repo: Repo, **strategies: str) -> None:
    lines = [f"{name}.fold {ATTRIBUTES} wtxt-merge={how}" for name, how in strategies.items()]
    repo.write(".gitattributes", "".join(f"{line}\n" for line in [f"*.fold {ATTRIBUTES}", *lines]))


def test_of_the_attribute(repo: Repo) -> None:
    """It is asked for each path, and wins over the config."""
    repo.git("config", STRATEGY, "theirs")
    attributes(repo, **{name: name for name in NAMES})
    diverge(repo, {f"{name}.fold": SIDES for name in (*NAMES, "other")})
    said = bring(repo, "merge").stderr.decode()
    for name in NAMES:
        assert_merged(repo, FOLD, merged(name), f"{name}.fold")
    assert_merged(repo, FOLD, merged("theirs"), "other.fold")
    assert "average.fold: merged, 1 tensor by average\n" in said
    assert "task.fold: merged, 1 tensor by task\n" in said


@pytest.mark.parametrize("way", ["rebase", "cherry-pick"])
def test_of_the_config(repo: Repo, way: str) -> None:
    repo.git("config", STRATEGY, "average")
    diverge(repo, {FOLD.name: SIDES})
    bring(repo, way)
    assert_merged(repo, FOLD, merged("average"))


def test_the_attribute_asks_for_a_conflict(repo: Repo) -> None:
    repo.git("config", STRATEGY, "theirs")
    attributes(repo, asks="fail")
    diverge(repo, {"asks.fold": SIDES})
    bring(repo, "merge", ok=(1,))
    assert records(repo)["asks.fold"]["strategy"] == "fail"


def test_there_is_none_of_that_name(repo: Repo) -> None:
    repo.git("config", STRATEGY, "blend")
    attributes(repo, second="mix")
    diverge(repo, {"first.fold": SIDES, "second.fold": SIDES})
    said = bring(repo, "merge", ok=(1,)).stderr.decode()
    told = [line for line in said.splitlines() if line.startswith("wtxtgit: error: ")]
    assert sorted(told) == [
        f"wtxtgit: error: {name}.fold: merge strategy '{how}' is not one of fail, ours, theirs, "
        "average, task; ours is kept for now"
        for name, how in (("first", "blend"), ("second", "mix"))
    ]
    assert f"wtxtgit: hint: set by the config {STRATEGY}" in said
    assert "wtxtgit: hint: set by the attribute wtxt-merge in .gitattributes" in said
    assert unmerged(repo) == ["first.fold", "second.fold"]
    assert_model(held(repo, FOLD, "first.fold"), OURS)


def test_a_change_of_one_side_needs_no_strategy(repo: Repo) -> None:
    repo.git("config", STRATEGY, "blend")
    diverge(repo, {FOLD.name: (SIDES[0], SIDES[0], SIDES[2]), "x.fold": (None, SIDES[1], SIDES[1])})
    assert bring(repo, "merge").stderr == b""
    assert_merged(repo, FOLD, THEIRS)


def test_what_the_dtype_cannot_hold_stays_open(repo: Repo) -> None:
    repo.git("config", STRATEGY, "task")
    ours = safetensors(0.5, 1.0)
    diverge(repo, {SAFETENSORS.name: (safetensors(3e38, 1.0), ours, safetensors(-3e38, 1.0))})
    bring(repo, "merge", ok=(1,))
    (conflict,) = records(repo)[SAFETENSORS.name]["conflicts"]
    assert conflict["row_ranges"] == [[0, 1]]
    assert "result of task does not fit the dtype" in conflict["reason"]
    assert file_of(repo, SAFETENSORS.name) == ours


def test_of_one_command(repo: Repo) -> None:
    """In the place of -X, of which git tells a driver nothing."""
    diverge(repo, {FOLD.name: SIDES})
    repo.git("-c", f"{STRATEGY}=theirs", "merge", "-q", "--no-edit", "topic")
    assert_merged(repo, FOLD, merged("theirs"))
    assert repo.run("git", "config", STRATEGY, ok=(1,)).stdout == b""
