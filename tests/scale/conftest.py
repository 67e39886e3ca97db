from __future__ import annotations

from tests.cli.conftest import wtxtgit

__all__ = ["wtxtgit"]
