"""How work reports progress, and how the progress of unrequested work is shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int], None]
"""Called with the number of bytes, or other units, that were just finished."""
Showing = Callable[[str, int | None], AbstractContextManager[Progress | None]]
"""Returns a context that shows the progress of work, given its name and size in bytes."""


how: Showing | None = None
"""How unrequested work is shown; only set by a program, never by the library itself."""


def shown(name: str, total: int | None = None) -> AbstractContextManager[Progress | None]:
    """Show unrequested work such as a fetch; yields what takes its counts, None if nobody looks.

    `total` is its size in bytes, if known.
    """
    return nullcontext() if how is None else how(name, total)
