"""Environment variables that wtxtgit obeys."""

from __future__ import annotations

import os

from wtxtgit.errors import UsageError

THREADS = "WTXTGIT_THREADS"
SKIP_SMUDGE = "WTXTGIT_SKIP_SMUDGE"


def threads() -> int | None:
    """How many threads to use; None for as many as there are cores."""
    value = os.environ.get(THREADS, "")
    if not value:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise UsageError(f'{THREADS} is "{value}", a number of at least 1 is wanted')
    return int(value)


def skip_smudge() -> bool:
    """Whether checkouts leave texts as they are."""
    return os.environ.get(SKIP_SMUDGE, "") not in ("", "0")
