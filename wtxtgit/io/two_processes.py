"""Tasks that are shared between this process and a forked one.

Threads take turns with the interpreter. If tasks consist of many short calls, such as decoding and
hashing chunks of payload, waiting for their turn costs two threads a fourth of their time.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from struct import Struct

from wtxtgit.io.workers import signals_later

Task = Callable[[], Sequence[memoryview]]
"""Returns bytes in consecutive blocks."""

_SLOT = 2 * 1024 * 1024
"""Most bytes of a result that the other process hands over; larger ones are made here."""
_SLOTS = 4
_FIRST = 2
"""The number of results made here while the other process starts: a header and a block."""
_KEPT = 2
"""Most results that are made here before it is their turn."""
_REQUEST, _RESULT = Struct("<II"), Struct("<I")
_NOT_DONE = 0xFFFFFFFF


def can_be_forked() -> bool:
    """Tell whether this process has no other threads, whose locks would stay locked in a fork."""
    return sys.platform == "linux" and threading.active_count() == 1


def results(tasks: Callable[[], Iterator[Task]]) -> Iterator[Sequence[memoryview]]:
    """Yield the results of tasks, in order; each is valid until the next is asked for.

    `tasks` has to return the same tasks in both processes. If anything goes wrong in the other
    process, or there is none, its tasks are done here; an error of a task is raised when it is its
    turn.
    """
    with contextlib.ExitStack() as until:
        other = _OtherProcess(tasks, until)
        ahead: dict[int, Task] = {}
        left = enumerate(tasks())
        # The caller gets the first results while the other process starts.
        first = deque(islice(left, _FIRST))
        due = 0
        while True:
            while other.has_room and (following := next(left, None)) is not None:
                other.ask(*following)
            if first:
                yield first.popleft()[1]()
            elif due in ahead:
                yield ahead.pop(due)()
            elif not other.has_pending:
                if (following := next(left, None)) is None:
                    return
                yield following[1]()
            elif not other.has_result and len(ahead) < _KEPT and (following := next(left, None)):
                # Work instead of waiting.
                ahead[following[0]] = _done(following[1])
                continue
            else:
                yield from other.result()
            due += 1


def _done(task: Task) -> Task:
    """Do a task before its turn; returns what gives its result, or fails, when it is its turn."""
    try:
        result = task()
    except Exception:  # noqa: BLE001 - it is done again, and fails, in its turn
        return task
    return lambda: result


class _OtherProcess:
    """The forked process: it is asked for results, and returns them in the order of the requests.

    It ends when the stack `until` is closed. If it can't be started, `has_room` is always false.
    """

    def __init__(self, tasks: Callable[[], Iterator[Task]], until: contextlib.ExitStack) -> None:
        self._process: int | None = None
        self._descriptors: set[int] = set()
        self._pending: deque[tuple[Task, int]] = deque()
        self._free: list[int] = []
        self._ready = select.poll()
        until.callback(self._end)
        try:
            self._memory = memoryview(mmap.mmap(-1, _SLOT * _SLOTS))
            requests, self._requests = self._pipe()
            self._results, results = self._pipe()
            self._fork(tasks, requests, results)
        except OSError:
            return
        self._close(requests, results)
        self._ready.register(self._results, select.POLLIN)
        self._free += range(_SLOTS)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._descriptors.update(ends)
        return ends

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            self._descriptors.remove(descriptor)
            os.close(descriptor)

    def _fork(self, tasks: Callable[[], Iterator[Task]], requests: int, results: int) -> None:
        # A garbage collection in either process would copy all objects.
        gc.freeze()
        try:
            # If a handler raised in the other process, that process would go on with its parent's
            # work.
            with signals_later():
                try:
                    self._process = os.fork()
                    if self._process == 0:
                        # Whoever waits for the end of our output must not have to wait for the
                        # other process.
                        self._close(self._requests, self._results)
                        for descriptor in (0, 1):
                            os.close(descriptor)
                        self._serve(tasks(), requests, results)
                finally:
                    if self._process == 0:
                        os._exit(0)
        finally:
            gc.unfreeze()

    def _end(self) -> None:
        # The other process ends when the pipe with its requests is closed.
        self._close(*self._descriptors)
        if self._process is not None:
            # If SIGCHLD is ignored, as some parents leave it, there is no process to wait for.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process, 0)

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def has_result(self) -> bool:
        """Whether a result is there, or none will come."""
        return bool(self._ready.poll(0))

    def ask(self, number: int, task: Task) -> None:
        slot = self._free.pop()
        self._pending.append((task, slot))
        # If the process has ended that is noticed when its result is read.
        with contextlib.suppress(OSError):
            os.write(self._requests, _REQUEST.pack(number, slot))

    def result(self) -> Iterator[Sequence[memoryview]]:
        """Yield the earliest result that was asked for."""
        task, slot = self._pending.popleft()
        answer = os.read(self._results, _RESULT.size)
        size = _RESULT.unpack(answer)[0] if len(answer) == _RESULT.size else _NOT_DONE
        if size == _NOT_DONE:
            yield task()
        else:
            start = slot * _SLOT
            yield (self._memory[start : start + size],)
        self._free.append(slot)

    def _serve(self, tasks: Iterator[Task], requests: int, results: int) -> None:
        done = 0
        while len(request := os.read(requests, _REQUEST.size)) == _REQUEST.size:
            number, slot = _REQUEST.unpack(request)
            for _ in range(number - done):
                next(tasks)
            done = number + 1
            size = self._run(next(tasks), slot * _SLOT)
            os.write(results, _RESULT.pack(_NOT_DONE if size is None else size))

    def _run(self, task: Task, start: int) -> int | None:
        """Store the result of a task at `start`; returns its size, None if that fails."""
        try:
            blocks = task()
        except Exception:  # noqa: BLE001 - it is done again by who can tell of it
            return None
        size = sum(block.nbytes for block in blocks)
        if size > _SLOT:
            return None
        for block in blocks:
            end = start + block.nbytes
            self._memory[start:end] = block
            start = end
        return size
