"""Threads for work that releases the GIL: hashing, base64, numpy.

A `Pool` runs tasks on a bounded number of threads, or in the caller where
one thread or little work makes threads a loss. Tasks beside which the caller
has work of its own are a crew's; where something follows their results in
order, as a running hash does, they are a pipeline's.

Memory that comes and goes in blocks of some MiB.

Tasks that several threads take in order, the caller's thread among them.

For work with a chain in it that no thread can share (a running hash): the
caller follows the chain, takes a task itself wherever the chain must wait for
one, and takes tasks with the others when the chain has ended.

Work that is cut into tasks, and what follows their results in order.

For reading: blocks are decoded side by side, but a running hash wants them one
after another. A chain is such a follower. One thread may follow all chains
while the others decode, so that threads which run Python and threads that
hash seldom wait for the interpreter's lock.

Work begun on a thread because it saves time: nothing depends on it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from threading import Barrier, Condition, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

SMALL = 512 * 1024
"""Below so many bytes of work threads cost more than they give."""
SMALL_TASK = 128 * 1024
"""Tasks of fewer bytes spend their time waiting for the interpreter's lock."""
_THREAD_SPACE = 128 * 1024 * 1024
"""Address space to have for each thread: 72 MiB are its stack and what the C library reserves."""


def default_threads() -> int:
    """As many threads as this process may use cores, fewer where its address space is limited."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    return max(1, min(cores, _address_space() // _THREAD_SPACE))


def _address_space() -> int:
    """Bytes of address space that this process may use (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # not on this system
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def started(threads: int) -> ThreadPoolExecutor | None:
    """An executor whose threads all run; None where the system has none to give."""
    # It brings `logging` along, which a process with little work does without.
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(threads)
    together = Barrier(threads + 1)
    try:
        for _ in range(threads):
            executor.submit(together.wait)
        together.wait()
    except BaseException as error:
        # What has started must not wait for the others, also where a signal came.
        together.abort()
        executor.shutdown(cancel_futures=True)
        if isinstance(error, RuntimeError):
            return None
        raise
    return executor


def worthwhile(threads: int | None, work: int, tasks: int = 1) -> int:
    """How many of `threads` threads, None for as many as cores, are worth starting.

    `work` is a count of bytes, cut into `tasks`: little work, or work in tiny
    pieces, is done by the caller alone.
    """
    if work >= SMALL:
        keep_freed_memory()
    if work < max(SMALL, tasks * SMALL_TASK):
        return 1
    return default_threads() if threads is None else max(1, threads)


class Pool:
    """Runs tasks ahead on several threads, the caller's among them.

    With one thread the caller runs them when their results are asked for.
    `threads`, `work` and `tasks` are as for `worthwhile`.
    """

    def __init__(self, threads: int | None, work: int, tasks: int = 1) -> None:
        self.threads = worthwhile(threads, work, tasks)
        self._executor = started(self.threads - 1) if self.threads > 1 else None
        if self._executor is None:
            self.threads = 1

    def ordered(self, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Run tasks ahead, a bounded number of them, and give results in order."""
        if self._executor is None:
            for task in tasks:
                yield task()
            return
        ahead: deque[_Ahead[T]] = deque()
        for task in tasks:
            ahead.append(_Ahead(task, self._executor.submit(task)))
            if len(ahead) > self.threads * 2:
                yield _first(ahead)
        while ahead:
            yield _first(ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=error is not None)


class _Ahead(Generic[T]):
    """A task that is to be run ahead, and what comes of it."""

    __slots__ = ("future", "task")

    # No dataclass: this module is loaded by every filter, `dataclasses` takes longer than it.
    def __init__(self, task: Callable[[], T], future: Future[T]) -> None:
        self.task = task
        self.future = future

    def run(self) -> None:
        """Run it here, unless another thread has begun it."""
        from concurrent.futures import Future

        if self.future.cancel():
            self.future = Future()
            try:
                self.future.set_result(self.task())
            except Exception as error:  # noqa: BLE001 - raised for whoever asks for the result
                self.future.set_exception(error)


def _first(ahead: deque[_Ahead[T]]) -> T:
    """The first one's result; while another thread makes it, others are run here."""
    for one in ahead:
        if ahead[0].future.done():
            break
        one.run()
    return ahead.popleft().future.result()


_KEPT_BLOCK = 24 * 1024 * 1024
"""Under glibc's upper bound of 32 MiB, beyond which nothing is learnt from a block."""


@cache
def keep_freed_memory() -> None:
    """Let the C library keep blocks of some MiB that are freed, for the next ones.

    Blocks of text come and go by the hundred; by default each one is given
    back to the system and its pages are zeroed again, which costs as much as
    a SHA-256 pass. glibc raises its bound when a larger block is freed:
    mallopt(3), "M_MMAP_THRESHOLD". Elsewhere this does nothing.
    """
    block = bytearray(_KEPT_BLOCK)
    del block


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
