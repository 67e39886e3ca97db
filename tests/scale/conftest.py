from __future__ import annotations

from cli.conftest import wtxtgit

__all__ = ["wtxtgit"]
