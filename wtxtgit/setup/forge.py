"""How large a blob may be that is pushed, and how long a diff that is shown."""

from __future__ import annotations

from wtxtgit.git import config
from wtxtgit.git.repository import Repository
from wtxtgit.text import grammar

MAX_FORGE_BLOB = 100 * 1024 * 1024
"""What the big forges take as one blob."""
CONFIG_KEY = "wtxtgit.maxBlob"
MAX_DIFF_LINES = 20_000
"""What forges show at most of a pull request's diff."""
MAX_DIFF_TEXT = MAX_DIFF_LINES * grammar.LINE_TEXT
"""Bytes of text from which on a diff of all its lines is longer than that."""

_MIB = 1024 * 1024


def large_blob(size: int, limit: int) -> str | None:
    """Say of a blob over the limit, or over half of it, how large it is; None of a smaller one."""
    if size > limit:
        return f"{_mib(size)} as text, over the limit of {_mib(limit)} for a blob"
    if 2 * size > limit:
        return f"{_mib(size)} as text, of {_mib(limit)} that a blob may have"
    return None


def max_blob(repo: Repository) -> int:
    """The most bytes that a blob may have, as configured."""
    return config.size(CONFIG_KEY, MAX_FORGE_BLOB, cwd=repo.home)


def _mib(size: int) -> str:
    return f"{size / _MIB:.3g} MiB"
