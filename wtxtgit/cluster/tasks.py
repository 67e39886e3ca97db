"""What a worker is asked and what it answers.

A task never raises because of what it reads: an error is an answer, as data.
Dask logs the arguments of tasks that raise, and tries them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wtxtgit.errors import EnvironmentFailure, WtxtgitError
from wtxtgit.io.files import reason
from wtxtgit.version import __version__

Progress = Callable[[int], None]
Task = Callable[[Any, Progress], Any]
"""A function of a module, of an item and of what counts the bytes that are done."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task came to: a value or an error; `done` counts bytes."""

    version: str
    value: object = None
    error: WtxtgitError | None = None
    done: int = 0


def version() -> str:
    """The version of wtxtgit that a worker has."""
    return __version__


def answer(task: Task, item: object) -> Answer:
    """Do a task on a worker."""
    counter = _Counter()
    try:
        value = task(item, counter.add)
    except WtxtgitError as error:
        return Answer(__version__, error=error)
    except OSError as error:
        return Answer(__version__, error=EnvironmentFailure(f"on a worker: {reason(error)}"))
    except MemoryError:
        return Answer(__version__, error=EnvironmentFailure("on a worker: out of memory"))
    return Answer(__version__, value, done=counter.done)


class _Counter:
    def __init__(self) -> None:
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
