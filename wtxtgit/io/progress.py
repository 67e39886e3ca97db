"""How work reports progress, and how the progress of unrequested work is shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int], None]
"""Called with the number of bytes, or of what else is counted, that were just finished."""
Showing = Callable[[str, int | None], AbstractContextManager[Progress | None]]
"""Gives what shows the progress of a piece of work while it goes on, by its name and its bytes."""


how: Showing | None = None
"""How work is shown that comes up in the midst of other work: a program says, no library."""


def shown(name: str, total: int | None = None) -> AbstractContextManager[Progress | None]:
    """Show unrequested work such as a fetch; yields what takes its counts, None if nobody looks.

    `total` is its size in bytes, if known.
    """
    return nullcontext() if how is None else how(name, total)
