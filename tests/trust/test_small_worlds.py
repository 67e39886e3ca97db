"""Whatever small histories an audit accepts keep the claim of `docs/spec/trust.md`."""

from __future__ import annotations

import os

import pytest

from tests.kit.changes import TRUST
from tests.trust.small_worlds import Worlds, explore

COMMITS, PATHS = "WTXTGIT_WORLDS_COMMITS", "WTXTGIT_WORLDS_PATHS"


def _hold(worlds: Worlds, commits: int) -> None:
    assert worlds.count.accepted
    assert worlds.count.commits >= commits
    assert not worlds.wrong, "\n\n".join(worlds.wrong[:3])


@pytest.mark.slow
def test_worlds_of_four_commits() -> None:
    worlds = explore(4, 1)
    _hold(worlds, 3_000)
    assert worlds.count.honest >= 800


def test_narrow_worlds_of_five_commits() -> None:
    worlds = explore(5, 1, is_narrow=True)
    _hold(worlds, 400)
    assert worlds.count.honest >= 100


@pytest.mark.slow
@pytest.mark.sampled(TRUST)
def test_narrow_worlds_of_six_commits() -> None:
    worlds = explore(6, 1, is_narrow=True)
    _hold(worlds, 4_000)
    assert worlds.count.honest >= 800


@pytest.mark.slow
@pytest.mark.sampled(TRUST)
def test_worlds_of_four_commits_over_two_paths() -> None:
    worlds = explore(4, 2)
    _hold(worlds, 8_000)
    assert worlds.count.honest >= 2_400


@pytest.mark.slow
@pytest.mark.skipif(
    COMMITS not in os.environ, reason=f"{COMMITS} says of how many commits, and is not set"
)
def test_worlds_as_large_as_asked() -> None:
    _hold(explore(int(os.environ[COMMITS]), int(os.environ.get(PATHS, "2"))), 1)
