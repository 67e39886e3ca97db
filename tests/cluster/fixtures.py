"""Clusters for tests: one that all share, and one that a test may break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Processes


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A scheduler and two workers, which no test ends.

    Not longer than a file's tests: they take a sixteenth of a core while they wait.
    """
    with Processes(tmp_path_factory.mktemp("cluster")) as found:
        found.add_worker()
        found.add_worker()
        yield found


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler, to which a test adds workers."""
    with Processes(tmp_path / "cluster") as found:
        yield found
