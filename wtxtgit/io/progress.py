"""How work tells what it has done, and how what nobody asked for by itself is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Progress = Callable[[int], None]
"""Called with the number of bytes, or of what else is counted, that were just finished."""
Showing = Callable[[str], AbstractContextManager[Progress | None]]
"""Gives what shows the progress of a piece of work, by its name, while it goes on."""

_showing: list[Showing] = []


@contextmanager
def showing(show: Showing) -> Iterator[None]:
    """Have what is done in the block shown so; a program says that, never a library."""
    _showing.append(show)
    try:
        yield
    finally:
        _showing.remove(show)


def shown(name: str) -> AbstractContextManager[Progress | None]:
    """What takes counts of work that comes up in the midst of other work, as a fetch does.

    None where nobody looks.
    """
    return _showing[-1](name) if _showing else nullcontext()
