"""How large a blob may be that is pushed."""

from __future__ import annotations

from wtxtgit.git import config
from wtxtgit.git.repository import Repository

MAX_FORGE_BLOB = 100 * 1024 * 1024
"""What the big forges take as one blob."""
CONFIG_KEY = "wtxtgit.maxBlob"


def max_blob(repo: Repository) -> int:
    """The most bytes that a blob may have, as configured."""
    return config.size(CONFIG_KEY, MAX_FORGE_BLOB, cwd=repo.home)
