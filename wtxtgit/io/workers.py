"""Threads for work that releases the GIL: hashing, base64, zlib, numpy.

`Workers` runs tasks on several threads and yields their results in order. The caller's thread is
one of them: it takes results, as for a running hash, and works on tasks whenever it would have to
wait. `in_background` runs what only saves time. `signals_later` is for starting another process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from threading import Condition, Event, Lock, Thread, current_thread, main_thread
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from wtxtgit.errors import UsageError

if TYPE_CHECKING:
    from blake3 import blake3

T = TypeVar("T")

SMALL = 512 * 1024
"""With fewer bytes of work, threads cost more than they save."""
_SMALL_HASH = 1024 * 1024
"""With fewer bytes, BLAKE3 on one thread is as fast as on several."""
SMALL_TASK = 128 * 1024
"""Tasks of fewer bytes spend their time waiting for the interpreter's lock."""
_MOST_THREADS = 999
# Address space required for each thread: its stack and what the C library reserves are 72 MiB.
_THREAD_SPACE = 128 * 1024 * 1024
# Results per thread that are made before the slowest follower has taken them.
_AHEAD = 3
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Below glibc's upper bound of 32 MiB, beyond which freeing a block has no effect.
_KEPT_BLOCK = 24 * 1024 * 1024


def default_threads() -> int:
    """Return the number of usable cores, or fewer threads if the address space is limited."""
    return max(1, min(_cores(), address_space() // _THREAD_SPACE))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def address_space() -> int:
    """Return the bytes of address space that this process may use (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # not on this system
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def check_threads(threads: object) -> None:
    """Raise UsageError for what a program gives as a number of threads and is none; None is."""
    if threads is not None and (type(threads) is not int or not 1 <= threads <= _MOST_THREADS):
        raise UsageError(f"threads must be a number from 1 to {_MOST_THREADS}, not {threads!r}")


def worthwhile(threads: int | None, work: int, tasks: int = 1) -> int:
    """Return how many of `threads` threads (None: the number of cores) are worth starting.

    `work` is a number of bytes, cut into `tasks`: little work, or work in tiny pieces, is done by
    the caller alone.
    """
    if work >= SMALL:
        keep_freed_memory()
    if work < max(SMALL, tasks * SMALL_TASK):
        return 1
    return default_threads() if threads is None else max(1, threads)


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed blocks of some MiB for reuse.

    Blocks of text are allocated and freed by the hundred; by default each is returned to the system
    and its pages are zeroed again, which costs as much as a SHA-256 pass. glibc raises its
    threshold when a larger block is freed: mallopt(3), "M_MMAP_THRESHOLD". Elsewhere this does
    nothing, nor if the address space is limited: gaps between the kept blocks would be lost.
    """
    if address_space() != sys.maxsize:
        return
    # Not a bytearray: the pages of this are never touched.
    block = bytes(_KEPT_BLOCK)
    del block


# mallopt(3), from malloc.h of glibc.
_M_ARENA_MAX = -8


@cache
def _share_heap() -> None:
    """Let threads share one heap if the address space is limited.

    glibc reserves 64 MiB for the heap of each thread, which count against the limit even when
    empty. Elsewhere this does nothing.
    """
    if address_space() == sys.maxsize or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):  # not glibc
        # Imported here: it takes longer to load than everything else that threads need.
        import ctypes

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def blake3_hasher(nbytes: int, threads: int | None = None) -> blake3:
    """Return a BLAKE3 hasher for about `nbytes` bytes, on `threads` threads (None: all cores).

    It only uses the caller's thread for small contents, or if the system provides no threads.
    """
    # Imported here: listing tensors, and recognizing a file by its first bytes, do without.
    from blake3 import blake3

    count = default_threads() if threads is None else threads
    if nbytes < _SMALL_HASH or count == 1 or not _are_to_have(count):
        return blake3(max_threads=1)
    is_all = threads is None and count == _cores()
    return blake3(max_threads=blake3.AUTO if is_all else count)


@cache
def _are_to_have(threads: int) -> bool:
    """Tell whether the system lets this process start so many threads.

    If not, BLAKE3's own pool would end the process with a long message.
    """
    _share_heap()
    end = Event()
    started: list[Thread] = []
    try:
        for _ in range(threads):
            thread = Thread(target=end.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        end.set()
        for thread in started:
            thread.join()
    return True


@contextlib.contextmanager
def signals_later() -> Iterator[None]:
    """Delay signals: their handlers are called when the block ends.

    A handler that raises while a process is being started would leave it running, unknown to us.
    In a process that is forked in the block, and ends there, they do nothing.
    """
    # Only the main thread runs signal handlers, and only it may set them.
    is_main = current_thread() is main_thread()
    handlers = {number: signal.getsignal(number) for number in _ENDING} if is_main else {}
    came: list[tuple[int, FrameType | None]] = []
    usual = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in usual:
        signal.signal(number, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        for first, frame in came[:1]:
            usual[signal.Signals(first)](first, frame)


def in_background(task: Callable[[], object]) -> Thread | None:
    """Run a task on a thread of its own; returns None if the system provides none.

    Errors are ignored: the main path repeats the work and reports them.
    """

    def run() -> None:
        with contextlib.suppress(Exception):
            task()

    _share_heap()
    thread = Thread(target=run)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class Workers(Generic[T]):
    """Runs `tasks` on `threads` threads, including the caller's; iterating yields their results.

    To be used in a `with` statement. Tasks are started in order, by whichever thread is free, and
    at most `ahead` of them (by default some for each thread) before the slowest consumer has taken
    the earlier results. The caller gets the results in order, and so does each of `followers`, one
    result at a time, on any thread. A result for which `is_last` is true is the last one.

    An error, in a task, in a follower or in the `with` statement, ends everything: running tasks
    are waited for, nothing more is started, and the caller gets the first error. If the system
    provides no threads the caller does all the work.
    """

    def __init__(
        self,
        tasks: Iterable[Callable[[], T]],
        threads: int,
        *,
        followers: Sequence[Callable[[T], None]] = (),
        ahead: int | None = None,
        is_last: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._tasks = iter(tasks)
        self._followers = followers
        # At least one: an empty list of tasks only shows when a task is asked for.
        self._ahead = max(1, _AHEAD * threads if ahead is None else ahead)
        self._is_last = is_last
        self._others = [Thread(target=self._help) for _ in range(threads - 1)]
        # Always taken directly, never through the condition: a signal that raises in the caller
        # would leave it locked between the condition's own steps.
        self._lock = Lock()
        self._change = Condition(self._lock)
        self._results: dict[int, T] = {}
        self._begun = 0
        # Whether a thread is fetching the next task: one at a time, and without the lock.
        self._is_taking = False
        # The number of results, once that is known.
        self._end: int | None = None
        # How many results each follower is done with; the last entry is the caller's.
        self._done = [0] * (len(followers) + 1)
        self._is_busy = [False] * len(followers)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        if self._others:
            _share_heap()
        try:
            for thread in self._others:
                thread.start()
        except RuntimeError:  # no more threads: those that there are do the work
            pass
        except BaseException as error:
            self._stop(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(error or GeneratorExit())

    def __iter__(self) -> Iterator[T]:
        """Yield results in order; while the next one is being made this thread works too."""
        number = 0
        while True:
            while (step := self._next(number)) is not None:
                step()
            self.check()
            if self._is_done():
                return
            yield self._results[number]
            with self._lock:
                self._finish(-1, number)
            number += 1

    def check(self) -> None:
        """Raise the error that ended the work, if there is one."""
        if self._error is not None:
            raise self._error

    def _stop(self, error: BaseException) -> None:
        self._fail(error)
        for thread in self._others:
            if thread.is_alive():
                thread.join()

    def _help(self) -> None:
        try:
            while (step := self._next()) is not None:
                step()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._change.notify_all()

    def _next(self, wanted: int | None = None) -> Callable[[], None] | None:
        """Return what a thread does next; None if all is done, has failed, or `wanted` is
        available.
        """
        with self._lock:
            while self._error is None and not self._is_done():
                if wanted is not None and self._is_due(wanted):
                    return None
                # The caller prefers following, other threads prefer tasks, so that threads which
                # run Python and threads that hash seldom wait for the interpreter's lock.
                ways = (self._task, self._follower)
                for way in ways if wanted is None else reversed(ways):
                    if (step := way()) is not None:
                        return step
                self._change.wait()
            return None

    def _is_done(self) -> bool:
        return self._end is not None and min(self._done) >= self._end

    def _is_due(self, number: int) -> bool:
        return number in self._results and (self._end is None or number < self._end)

    def _follower(self) -> Callable[[], None] | None:
        for which, is_busy in enumerate(self._is_busy):
            number = self._done[which]
            if not is_busy and self._is_due(number):
                # One result at a time: followers are hashes, which continue from the one before.
                self._is_busy[which] = True
                return lambda: self._follow(which, number)
        return None

    def _follow(self, which: int, number: int) -> None:
        self._followers[which](self._results[number])
        with self._lock:
            self._is_busy[which] = False
            self._finish(which, number)

    def _finish(self, which: int, number: int) -> None:
        """Record that a follower, or the caller, is done with a result."""
        self._done[which] = number + 1
        if min(self._done) > number:
            del self._results[number]
        self._change.notify_all()

    def _task(self) -> Callable[[], None] | None:
        is_far = self._begun - min(self._done) >= self._ahead
        if self._is_taking or self._end is not None or is_far:
            return None
        self._is_taking = True
        return self._take

    def _take(self) -> None:
        """Take the next task, and run it."""
        # Outside of the lock: the next task may take long to arrive, for example from a pipe.
        task = next(self._tasks, None)
        with self._lock:
            self._is_taking = False
            number = self._begun
            if task is None:
                self._end_at(number)
                return
            self._begun += 1
            # Any waiting thread may take the next one.
            self._change.notify()
        result = task()
        with self._lock:
            self._results[number] = result
            if self._is_last(result):
                self._end_at(number + 1)
            self._change.notify_all()

    def _end_at(self, end: int) -> None:
        self._end = end if self._end is None else min(end, self._end)
        self._change.notify_all()
