"""Work that is cut into tasks, and what follows their results in order.

For reading: blocks are decoded side by side, but a running hash wants them one
after another. A chain is such a follower. One thread may follow all chains
while the others decode, so that threads which run Python and threads that
hash seldom wait for the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Condition, Lock
from typing import Generic, TypeVar

from wtxtgit.io.workers import started

T = TypeVar("T")

_AHEAD = 3
"""So many results a thread are made before the slowest chain has taken them."""


class Pipeline(Generic[T]):
    """Runs `tasks` on `threads` threads, and gives each result to every one of `chains`.

    A chain gets the results in the tasks' order, one at a time; the first one
    is called by the caller's thread alone. A result that `is_last` is
    the last one that chains get. An error, in a task or in a chain, ends all,
    and the caller gets the first.
    """

    def __init__(
        self,
        tasks: Iterable[Callable[[], T]],
        chains: Sequence[Callable[[T], None]],
        threads: int,
        is_last: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._tasks = iter(tasks)
        self._chains = chains
        self._threads = threads
        self._is_last = is_last
        # Taken by itself, never through the condition: a signal that raises in
        # the caller would leave it locked between the condition's own steps.
        self._lock = Lock()
        self._change = Condition(self._lock)
        self._results: dict[int, T] = {}
        self._begun = 0
        self._end: int | None = None
        """How many results there are, once that is known."""
        self._taken = [0] * len(chains)
        self._is_busy = [False] * len(chains)
        self._error: BaseException | None = None

    def run(self) -> None:
        """Return when every chain has got every result."""
        executor = started(self._threads - 1) if self._threads > 1 else None
        if executor is None:
            self._threads = 1
            self._work(is_caller=True)
        else:
            try:
                for _ in range(self._threads - 1):
                    executor.submit(self._help)
                self._work(is_caller=True)
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                executor.shutdown()
        if self._error is not None:
            raise self._error

    def _help(self) -> None:
        try:
            self._work(is_caller=False)
        except BaseException as error:  # noqa: BLE001 - run() raises it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._change.notify_all()

    def _work(self, *, is_caller: bool) -> None:
        while (step := self._next(is_caller)) is not None:
            step()

    def _next(self, is_caller: bool) -> Callable[[], None] | None:
        """What this thread does next, None where all is done or has failed."""
        with self._lock:
            while self._error is None and not self._is_done():
                # Who follows goes on following, and the others go on with tasks.
                ways = (self._chain_step, self._task_step)
                for way in ways if is_caller else reversed(ways):
                    if (step := way(is_caller)) is not None:
                        return step
                # Looking for a task may have shown that there are no more.
                if not self._is_done():
                    self._change.wait()
            return None

    def _is_done(self) -> bool:
        return self._end is not None and min(self._taken) >= self._end

    def _chain_step(self, is_caller: bool) -> Callable[[], None] | None:
        for chain in range(0 if is_caller else 1, len(self._chains)):
            number = self._taken[chain]
            is_due = self._end is None or number < self._end
            if is_due and not self._is_busy[chain] and number in self._results:
                self._is_busy[chain] = True
                return lambda: self._follow(chain, number)
        return None

    def _task_step(self, _is_caller: bool) -> Callable[[], None] | None:
        number = self._begun
        if self._end is not None or number - min(self._taken) >= _AHEAD * self._threads:
            return None
        task = next(self._tasks, None)
        if task is None:
            self._finish(number)
            return None
        self._begun += 1
        return lambda: self._make(number, task)

    def _make(self, number: int, task: Callable[[], T]) -> None:
        result = task()
        with self._lock:
            self._results[number] = result
            if self._is_last(result):
                self._finish(number + 1)
            self._change.notify_all()

    def _follow(self, chain: int, number: int) -> None:
        self._chains[chain](self._results[number])
        with self._lock:
            self._is_busy[chain] = False
            self._taken[chain] = number + 1
            if min(self._taken) > number:
                del self._results[number]
            self._change.notify_all()

    def _finish(self, end: int) -> None:
        self._end = end if self._end is None else min(end, self._end)
        self._change.notify_all()
