"""Work begun on a thread because it saves time: nothing depends on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Thread


def begun_beside(task: Callable[[], object]) -> Thread | None:
    """Run a task on a thread of its own; None where the system has none to give.

    What fails there is met again, and told, where its outcome is used.
    """

    def run() -> None:
        with contextlib.suppress(Exception):
            task()

    thread = Thread(target=run)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
