"""The command, and clusters that it works on."""

from __future__ import annotations

from tests.cli.conftest import wtxtgit
from tests.cluster.fixtures import lone, shared

__all__ = ["lone", "shared", "wtxtgit"]
