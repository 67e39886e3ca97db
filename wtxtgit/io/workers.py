"""Threads for work that releases the GIL: hashing, base64, numpy.

A `Pool` runs tasks on a bounded number of threads, or in the caller where
one thread or little work makes threads a loss. Tasks beside which the caller
has work of its own are a crew's; where something follows their results in
order, as a running hash does, they are a pipeline's.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Barrier
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from wtxtgit.io.memory import keep_freed_memory

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


@dataclass(slots=True)
class _Ahead(Generic[T]):
    """A task that is to be run ahead, and what comes of it."""

    task: Callable[[], T]
    future: Future[T]

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
