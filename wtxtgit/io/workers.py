"""Threads for work that releases the GIL: hashing, base64, zlib, numpy.

`Workers` runs tasks on several threads and gives their results in order. The
caller's thread is one of them: it takes results, as for a running hash, and
works on tasks wherever it would have to wait. `in_background` runs what only
saves time. `signals_later` is for starting another process.
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

if TYPE_CHECKING:
    from blake3 import blake3

T = TypeVar("T")

SMALL = 512 * 1024
"""Below so many bytes of work threads cost more than they give."""
_SMALL_HASH = 1024 * 1024
"""Below so many bytes BLAKE3 on one thread is as fast as on several."""
SMALL_TASK = 128 * 1024
"""Tasks of fewer bytes spend their time waiting for the interpreter's lock."""
# Address space to have for each thread: 72 MiB are its stack and what the C library reserves.
_THREAD_SPACE = 128 * 1024 * 1024
# So many results a thread are made before the slowest follower has taken them.
_AHEAD = 3
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Under glibc's upper bound of 32 MiB, beyond which nothing is learnt from a block.
_KEPT_BLOCK = 24 * 1024 * 1024


def default_threads() -> int:
    """As many threads as this process may use cores, fewer where its address space is limited."""
    return max(1, min(_cores(), address_space() // _THREAD_SPACE))


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def address_space() -> int:
    """Bytes of address space that this process may use (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # not on this system
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


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


@cache
def keep_freed_memory() -> None:
    """Let the C library keep blocks of some MiB that are freed, for the next ones.

    Blocks of text come and go by the hundred; by default each one is given
    back to the system and its pages are zeroed again, which costs as much as
    a SHA-256 pass. glibc raises its bound when a larger block is freed:
    mallopt(3), "M_MMAP_THRESHOLD". Elsewhere this does nothing, nor where the address space is
    limited: what lies between blocks that are kept would be lost.
    """
    if address_space() != sys.maxsize:
        return
    # Not a bytearray: of this no page is touched.
    block = bytes(_KEPT_BLOCK)
    del block


# mallopt(3), from malloc.h of glibc.
_M_ARENA_MAX = -8


@cache
def _share_heap() -> None:
    """Have threads share one heap where the address space is limited.

    glibc reserves 64 MiB for the heap of each thread, which count against the limit although
    nothing is in them. Elsewhere this does nothing.
    """
    if address_space() == sys.maxsize or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):  # not glibc
        # Only here, as it takes longer to load than all that threads need.
        import ctypes

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def blake3_hasher(nbytes: int, threads: int | None = None) -> blake3:
    """A BLAKE3 of about `nbytes` bytes: on `threads` threads, None for as many as cores.

    On the caller's alone where the content is small, or the system has no threads to give.
    """
    # Not needed to list tensors, or to tell a file by its start.
    from blake3 import blake3

    count = default_threads() if threads is None else threads
    if nbytes < _SMALL_HASH or count == 1 or not _are_to_have(count):
        return blake3(max_threads=1)
    is_all = threads is None and count == _cores()
    return blake3(max_threads=blake3.AUTO if is_all else count)


@cache
def _are_to_have(threads: int) -> bool:
    """Whether the system gives this process so many threads.

    BLAKE3's own pool ends the process where it does not, and says so at length.
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
    # Only the main thread runs and may set handlers.
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
    """Run a task on a thread of its own; None where the system has none to give.

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
    """Runs `tasks` on `threads` threads, the caller's among them; iterating gives their results.

    To be used in a `with` statement. Tasks are taken and started in their
    order, by whichever thread is free, at most `ahead` of them (some for each
    thread, by default) before the slowest has taken the results before. The
    caller gets the results in order, and so does each of `followers`, one
    result at a time, on any thread. A result that `is_last` is the last one
    that is given.

    An error, in a task, in a follower or in the `with` statement, ends all:
    what runs is waited for, nothing more is begun, and the caller gets the
    first. Where the system gives no threads, the caller does all the work.
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
        # That there is no task at all is seen by asking for one.
        self._ahead = max(1, _AHEAD * threads if ahead is None else ahead)
        self._is_last = is_last
        self._others = [Thread(target=self._help) for _ in range(threads - 1)]
        # Taken by itself, never through the condition: a signal that raises in
        # the caller would leave it locked between the condition's own steps.
        self._lock = Lock()
        self._change = Condition(self._lock)
        self._results: dict[int, T] = {}
        self._begun = 0
        # Whether a thread waits for the next task: one at a time, and without the lock.
        self._is_taking = False
        # How many results there are, once that is known.
        self._end: int | None = None
        # How many results each follower has done with; the caller is the last one.
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
        """Give results in order; while the next one is made, this thread works too."""
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
        """What a thread does next: None where all is done, or failed, or has what is `wanted`."""
        with self._lock:
            while self._error is None and not self._is_done():
                if wanted is not None and self._is_due(wanted):
                    return None
                # The caller is to follow, and others go on with tasks, so that threads which
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
                # One result at a time: followers are hashes, which go on from the last one.
                self._is_busy[which] = True
                return lambda: self._follow(which, number)
        return None

    def _follow(self, which: int, number: int) -> None:
        self._followers[which](self._results[number])
        with self._lock:
            self._is_busy[which] = False
            self._finish(which, number)

    def _finish(self, which: int, number: int) -> None:
        """Note that a follower, or the caller, has done with a result."""
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
        # Outside of the lock: a task may be long in coming, as from a pipe.
        task = next(self._tasks, None)
        with self._lock:
            self._is_taking = False
            number = self._begun
            if task is None:
                self._end_at(number)
                return
            self._begun += 1
            # Any thread that waits may take the next one.
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
