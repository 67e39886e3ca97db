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
from struct import Struct

Task = Callable[[], Sequence[memoryview]]
"""Gives bytes that follow one another."""

_SLOT = 2 * 1024 * 1024
"""Bytes of a task's result that the other process hands over; larger ones are made here."""
_SLOTS = 4
_KEPT = 2
"""Results that are made here before it is their turn."""
_ASKED, _TOLD = Struct("<II"), Struct("<I")
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
    with contextlib.closing(_OtherProcess(tasks)) as other:
        mine: dict[int, Sequence[memoryview]] = {}
        left = enumerate(tasks())
        due = 0
        while True:
            while other.has_room and (following := next(left, None)) is not None:
                other.ask(*following)
            if due in mine:
                yield mine.pop(due)
            elif not other.is_asked:
                if (following := next(left, None)) is None:
                    return
                yield following[1]()
            elif not other.has_told and len(mine) < _KEPT and (following := next(left, None)):
                # Work instead of waiting.
                mine[following[0]] = following[1]()
                continue
            else:
                yield from other.told()
            due += 1


class _OtherProcess:
    """The forked process; it is asked for results, and returns them in that order."""

    def __init__(self, tasks: Callable[[], Iterator[Task]]) -> None:
        self._memory = memoryview(mmap.mmap(-1, _SLOT * _SLOTS))
        self._free = list(range(_SLOTS))
        self._asked: deque[tuple[Task, int]] = deque()
        self._ready = select.poll()
        # A garbage collection in either process would copy all objects.
        gc.freeze()
        asked, self._ask = os.pipe()
        self._told, told = os.pipe()
        self._process: int | None = None
        try:
            self._process = os.fork()
        except OSError:
            self._free.clear()
        if self._process == 0:
            try:
                # Whoever waits for the end of our output must not have to wait for this process.
                for descriptor in (0, 1, self._ask, self._told):
                    os.close(descriptor)
                self._serve(tasks(), asked, told)
            finally:
                os._exit(0)
        gc.unfreeze()
        os.close(asked)
        os.close(told)
        self._ready.register(self._told, select.POLLIN)

    def close(self) -> None:
        os.close(self._ask)
        os.close(self._told)
        if self._process is not None:
            # If SIGCHLD is ignored, as some parents leave it, there is no process to wait for.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process, 0)

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def is_asked(self) -> bool:
        return bool(self._asked)

    @property
    def has_told(self) -> bool:
        """Whether a result is there, or none will come."""
        return bool(self._ready.poll(0))

    def ask(self, number: int, task: Task) -> None:
        slot = self._free.pop()
        self._asked.append((task, slot))
        # If the process has ended that is noticed when its result is read.
        with contextlib.suppress(OSError):
            os.write(self._ask, _ASKED.pack(number, slot))

    def told(self) -> Iterator[Sequence[memoryview]]:
        """Yield the earliest result that was asked for."""
        task, slot = self._asked.popleft()
        told = os.read(self._told, _TOLD.size)
        size = _TOLD.unpack(told)[0] if len(told) == _TOLD.size else _NOT_DONE
        if size == _NOT_DONE:
            yield task()
        else:
            start = slot * _SLOT
            yield (self._memory[start : start + size],)
        self._free.append(slot)

    def _serve(self, tasks: Iterator[Task], asked: int, told: int) -> None:
        done = 0
        while len(request := os.read(asked, _ASKED.size)) == _ASKED.size:
            number, slot = _ASKED.unpack(request)
            for _ in range(number - done):
                next(tasks)
            done = number + 1
            size = self._run(next(tasks), slot * _SLOT)
            os.write(told, _TOLD.pack(_NOT_DONE if size is None else size))

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
