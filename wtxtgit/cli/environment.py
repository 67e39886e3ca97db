"""Environment variables that wtxtgit obeys."""

from __future__ import annotations

import os
import re

from wtxtgit.errors import UsageError

THREADS = "WTXTGIT_THREADS"
SKIP_SMUDGE = "WTXTGIT_SKIP_SMUDGE"


def threads() -> int | None:
    """How many threads to use; None for as many as there are cores."""
    value = os.environ.get(THREADS, "")
    if not value:
        return None
    if re.fullmatch("[1-9][0-9]{0,2}", value) is None:
        raise UsageError(f'{THREADS} is "{value[:40]}", a number from 1 to 999 is wanted')
    return int(value)


def skip_smudge() -> bool:
    """Whether checkouts leave texts as they are."""
    return os.environ.get(SKIP_SMUDGE, "") not in ("", "0")
