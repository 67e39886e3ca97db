"""Tasks that several threads take in order, the caller's thread among them.

For work with a chain in it that no thread can share (a running hash): the
caller follows the chain, takes a task itself wherever the chain must wait for
one, and takes tasks with the others when the chain has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition, Lock
from types import TracebackType
from typing import Self

from wtxtgit.io.workers import started


class Crew:
    """Runs `tasks` on `threads` threads, started in their order.

    To be used in a `with` statement. An error in a task ends all: those that
    run are waited for, no other is started, and the caller gets the first.
    Where the system gives no threads, the caller does all tasks.
    """

    def __init__(self, tasks: Sequence[Callable[[], object]], threads: int) -> None:
        self._tasks = tasks
        self._next = 0
        self._is_done = bytearray(len(tasks))
        self._left = len(tasks)
        # Taken by itself, as a pipeline's is: see there.
        self._lock = Lock()
        self._change = Condition(self._lock)
        self._error: BaseException | None = None
        helpers = min(threads, len(tasks)) - 1
        self._executor = started(helpers) if helpers > 0 else None
        if self._executor is not None:
            for _ in range(helpers):
                self._executor.submit(self._work)

    def help(self) -> bool:
        """Run the next task in the caller; False where all are taken."""
        if (number := self._take()) is None:
            return False
        self._tasks[number]()
        self._finish(number)
        return True

    def need(self, number: int) -> None:
        """Return when task `number` is done; until then take part in the work."""
        while not self._is_done[number]:
            if not self.help():
                with self._lock:
                    self._change.wait_for(lambda: self._is_done[number] or self._error)
            self.check()

    def finish(self) -> None:
        """Take part in the work until all is done."""
        while self.help():
            self.check()
        with self._lock:
            self._change.wait_for(lambda: not self._left or self._error)
        self.check()

    def check(self) -> None:
        """Raise the error of a task that failed, if there is one."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._fail(error)
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _work(self) -> None:
        try:
            while (number := self._take()) is not None:
                self._tasks[number]()
                self._finish(number)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self._fail(error)

    def _take(self) -> int | None:
        with self._lock:
            if self._error is not None or self._next == len(self._tasks):
                return None
            self._next += 1
            return self._next - 1

    def _finish(self, number: int) -> None:
        with self._lock:
            self._is_done[number] = True
            self._left -= 1
            self._change.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._change.notify_all()
