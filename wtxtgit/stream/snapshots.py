"""Snapshots of a training: `publish` copies the weights; a worker process does everything else.

A generation is requested, copied, and waits. A thread takes the waiting one, pins its copy, has the
worker (`stream.worker`, a process) emit it, and returns the copy's memory. The loop never waits:
a generation that it publishes meanwhile replaces the waiting one, or joins a queue.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Pipe
from multiprocessing.reduction import send_handle
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from wtxtgit.errors import EnvironmentFailure, UsageError, WtxtgitError
from wtxtgit.io import clock
from wtxtgit.io.files import shown
from wtxtgit.io.workers import check_threads
from wtxtgit.remotes.target import Target
from wtxtgit.setup.keys import named_key
from wtxtgit.stream.buffers import BufferPlan, BufferPool, SharedBuffer, plan_buffer
from wtxtgit.stream.delivery import DeliveryLimits
from wtxtgit.stream.emission import EmissionOptions, SnapshotRequest, joined_audit
from wtxtgit.stream.log import Log, LogLine, entry
from wtxtgit.stream.messages import (
    BufferNotice,
    EmitRequest,
    Emitted,
    Ended,
    EndRequest,
    NotEmitted,
    Started,
    WorkerOptions,
)
from wtxtgit.stream.ranks import REQUESTS, Rank
from wtxtgit.stream.ring import RingBusy
from wtxtgit.stream.state import RingState, read_state
from wtxtgit.tensors.program_arrays import GivenArray, training_state, word_of
from wtxtgit.trust.age.recipients import parse as recipient
from wtxtgit.trust.signing import SigningKey

_log = logging.getLogger("wtxtgit.stream")
_TRIES = 3
"""Most attempts to emit a generation, if the worker dies each time."""
_SPARE_REQUESTS = 1000


class SnapshotsBehind(WtxtgitError):
    """More is waiting than `queue_bytes`: generations are published faster than they are
    written.
    """

    exit_code = EnvironmentFailure.exit_code


class SnapshotsFailed(EnvironmentFailure):
    """Some published generations are not in the ring."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A waiting generation: copied to `buffer` or, while that is None, still in `arrays`."""

    request: SnapshotRequest
    plan: BufferPlan
    arrays: Sequence[GivenArray]
    buffer: SharedBuffer | None = None

    @property
    def nbytes(self) -> int:
        return self.plan.size + len(self.plan.table)


class Snapshots:
    """Takes snapshots of a training into a ring, and delivers them; a context manager.

    `folder` is the ring, which keeps the last `keep` generations. They are signed with the key
    `sign`: the name of a key of the user, a path (with a slash), `agent:`, or an object that signs.
    `hmac_key` authenticates their arrays. With `recipients`, in age's notation, all files are
    encrypted for these, in the ring, too. `to` are targets that get each generation. At least every
    `full_every`-th is a whole text, the others are deltas if those are smaller; with `wsum` each
    text has a pending root and a WSUM beside it. `build` goes to the `meta` line.

    If `world` processes train together each takes snapshots into the same folder, with a `rank` of
    its own: what they publish with the same `gen` are parts of one generation, which counts when
    all of them are there.

    `policy` says what happens to a generation that still waits when the next one is published:
    "latest" drops it unless it is pinned, "all" queues them, up to `queue_bytes` of copies. With
    several ranks "latest" also keeps the waiting one whose number has the most factors of two, so
    that all ranks keep the same ones. With `live` a line on standard error shows the state, in a
    terminal or a notebook.

    Raises RingBusy if another training writes to the ring, or another process of that rank, and
    EnvironmentFailure for a ring of another `world`.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        keep: int = 20,
        sign: str | SigningKey | None = None,
        hmac_key: bytes | None = None,
        recipients: Sequence[str] = (),
        to: Sequence[Target] = (),
        full_every: int = 1,
        wsum: bool = False,
        build: str = "none",
        rows_per_chunk: int | None = None,
        rank: int = 0,
        world: int = 1,
        policy: Literal["latest", "all"] = "latest",
        queue_bytes: int = 4 * 1024**3,
        limits: DeliveryLimits | None = None,
        live: bool = False,
        threads: int | None = None,
    ) -> None:
        if keep < 1:
            raise UsageError(f"keep is {keep}, but must be at least 1")
        check_threads(threads)
        if policy not in ("latest", "all"):
            raise UsageError(f'policy is "{policy}", but must be "latest" or "all"')
        for one in to:
            if not hasattr(one, "put"):
                # Only the worker would notice, which is another process.
                raise UsageError(
                    f"to takes targets, not {one!r}", hint=f"targets.Folder({one!r}) is one"
                )
        self.folder = Path(folder)
        self.rank = Rank(rank, world)
        self._policy = policy
        self._queue_bytes = queue_bytes
        key = named_key(sign, os.environ) if isinstance(sign, str) else sign
        age_recipients = tuple(recipient(one, "recipients") for one in recipients)
        emission = EmissionOptions(
            build, full_every, wsum, rows_per_chunk, hmac_key, key, threads, age_recipients
        )
        options = WorkerOptions(
            self.folder.absolute(),
            keep,
            emission,
            tuple(to),
            limits or DeliveryLimits(),
            self.rank,
        )
        self._worker = _WorkerProcess(options)
        self.lost = self._worker.started.lost
        self._last = self._worker.started.last
        if self.lost:
            _log.warning("generations lost with the process that published them: %s", self.lost)
        self._change = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._in_work: _Waiting | None = None
        self._pool = BufferPool()
        self._table: tuple[tuple[object, ...], BufferPlan] | None = None
        self._dropped: list[int] = []
        self._failed: dict[int, str] = {}
        self._is_closed = False
        self._status = _StatusLine() if live else None
        self._requests = Log(self.folder / self.rank.own(REQUESTS))
        self._feeder = threading.Thread(target=self._feed, name="wtxtgit-snapshots", daemon=True)
        self._feeder.start()
        atexit.register(self.close)

    def publish(
        self,
        state: Mapping[Any, Any],
        *,
        gen: int | None = None,
        audit: Mapping[str, object] | None = None,
        copy: bool = True,
        pin: bool = False,
    ) -> int:
        """Take a snapshot of the arrays in `state`, and return the number of the generation.

        `state` has arrays of numpy, torch or other libraries, in mappings and lists of any depth,
        whose keys are joined with a dot. Numbers and strings among them, and those in `audit`, go
        to the audit line. `gen` has to increase; None counts on, with one rank. With `copy=False`
        the arrays are read later, and must not change until `flush` returns. A generation with
        `pin` stays in the ring however many follow. Raises UsageError, naming it, for a value that
        is none of these, and SnapshotsBehind.
        """
        if gen is None and not self.rank.is_alone:
            raise UsageError(
                "gen is missing: several ranks need it to tell which parts belong together"
            )
        values = training_state(state)
        words = [(name, word_of(name, value)) for name, value in (audit or {}).items()]
        line = joined_audit((*words, *values.words))
        plan = self._plan(values.arrays)
        size = plan.size + len(plan.table)
        with self._change:
            if self._is_closed:
                raise UsageError("these snapshots are closed")
            if gen is not None and self._last is not None and gen <= self._last:
                raise UsageError(
                    f"generation {gen} can't be published: the ring is already at {self._last}",
                    hint="generations must increase: leave out gen to continue counting, or use "
                    "a new ring",
                )
            number = gen if gen is not None else 0 if self._last is None else self._last + 1
            self._make_room(size)
            request = SnapshotRequest(number, clock.utc_now(), line, pin)
            waiting = _Waiting(request, plan, values.arrays)
            if copy:
                waiting.buffer = self._pool.take(size)
            self._last = number
            self._note(_requested(request))
        if waiting.buffer is not None:
            try:
                waiting.buffer.fill(values.arrays, plan)
            except BaseException:
                with self._change:
                    self._drop(waiting)
                raise
            waiting.arrays = ()
        with self._change:
            self._waiting.append(waiting)
            self._change.notify_all()
        return number

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that was published is in the ring, or dropped.

        Returns False if that took more than `timeout` seconds.
        """
        with self._change:
            return self._change.wait_for(
                lambda: not self._waiting and self._in_work is None, timeout
            )

    def close(self, linger: float = 30.0) -> None:
        """Emit what waits, try once more to deliver what targets have yet to get, and end.

        What can't be sent within `linger` seconds stays queued: the next `Snapshots` of the ring
        sends it, or `wtxtgit ring push`. Raises SnapshotsFailed if generations could not be
        emitted.
        """
        with self._change:
            if self._is_closed:
                return
            self._is_closed = True
            self._change.notify_all()
        atexit.unregister(self.close)
        self._feeder.join()
        waiting = self._worker.end(linger)
        if self._status is not None:
            self._status.show(str(self))
            self._status.end()
        self._requests.close()
        self._pool.close()
        if waiting:
            _log.warning(
                "%d generations have not been sent yet: wtxtgit ring push %s",
                waiting,
                shown(self.folder),
            )
        if self._failed:
            gen, why = next(iter(self._failed.items()))
            others = f", and {len(self._failed) - 1} more" if len(self._failed) > 1 else ""
            raise SnapshotsFailed(f"generation {gen} is not in the ring{others}: {why}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An error of the loop is more important than one of its snapshots.
        with contextlib.suppress(*(() if error is None else (SnapshotsFailed,))):
            self.close()

    @property
    def worker_process(self) -> int:
        """The id of the process that emits and delivers."""
        return self._worker.number

    def state(self) -> RingState:
        """Return this rank's state of the ring: its generations, and what happened to others."""
        return read_state(self.folder, self.rank)

    def __str__(self) -> str:
        """Return the text of the status line."""
        counts = self.state().counts
        with self._change:
            waiting = len(self._waiting) + (self._in_work is not None)
            last = "none" if self._last is None else str(self._last)
        parts = [f"generation {last}", f"{waiting} waiting", f"{counts.emitted} in the ring"]
        outcomes = ("dropped", "failed", "delivered", "refused", "expired")
        parts += [f"{getattr(counts, name)} {name}" for name in outcomes if getattr(counts, name)]
        return ", ".join(parts)

    def _plan(self, arrays: tuple[GivenArray, ...]) -> BufferPlan:
        """Plan where the arrays go; for an unchanged model the last plan is reused."""
        key = tuple((array.name, array.dtype, array.memory) for array in arrays)
        if self._table is None or self._table[0] != key:
            self._table = key, plan_buffer(arrays)
        return self._table[1]

    def _make_room(self, size: int) -> None:
        """Drop what waits, or make sure that `size` more bytes may wait with it."""
        if self._policy == "latest":
            kept = [one for one in self._waiting if one.request.is_pinned]
            unpinned = [one.request.gen for one in self._waiting if one not in kept]
            if unpinned and not self.rank.is_alone:
                # Ranks drop independently: generations chosen in this way are kept by all that are
                # not far behind.
                best = max(unpinned, key=lambda gen: (gen & -gen, gen))
                kept = [one for one in self._waiting if one in kept or one.request.gen == best]
            for waiting in self._waiting:
                if waiting not in kept:
                    self._drop(waiting)
            self._waiting = deque(kept)
        elif self._waiting and sum(one.nbytes for one in self._waiting) + size > self._queue_bytes:
            raise SnapshotsBehind(
                f"{len(self._waiting)} generations are waiting to be written, as many as "
                f"queue_bytes={self._queue_bytes} allows",
                hint='publish less often, or use policy="latest"',
            )

    def _drop(self, waiting: _Waiting) -> None:
        if waiting.buffer is not None:
            self._pool.give_back(waiting.buffer)
        self._dropped.append(waiting.request.gen)
        self._note(entry("dropped", gen=waiting.request.gen))

    def _note(self, line: LogLine) -> None:
        """Log a request, without waiting until it would survive a crash of the machine.

        Errors do not end the loop: if emitting the generation fails, too, that is reported.
        """
        try:
            if self._requests.lines > _SPARE_REQUESTS:
                unanswered = [*self._waiting, *([self._in_work] if self._in_work else [])]
                self._requests.compact(_requested(one.request) for one in unanswered)
            self._requests.append(line)
        except EnvironmentFailure as error:
            _log.error("%s", error)

    def _feed(self) -> None:
        """Have the worker emit what waits, one generation after the other."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                pinned = self._in_work = self._waiting.popleft()
                dropped, self._dropped = tuple(self._dropped), []
            outcome = self._emit(pinned, dropped)
            with self._change:
                if isinstance(outcome, NotEmitted):
                    self._failed[pinned.request.gen] = outcome.message
                    _log.error("generation %d: %s", pinned.request.gen, outcome.message)
                if pinned.buffer is not None:
                    self._pool.give_back(pinned.buffer)
                self._in_work = None
                self._change.notify_all()
            if self._status is not None:
                self._status.show(str(self))

    def _emit(self, pinned: _Waiting, dropped: tuple[int, ...]) -> Emitted | NotEmitted:
        try:
            if pinned.buffer is None:
                with self._change:
                    pinned.buffer = self._pool.take(pinned.nbytes)
                pinned.buffer.fill(pinned.arrays, pinned.plan)
                pinned.arrays = ()
            plan = pinned.plan
            request = EmitRequest(
                pinned.request, pinned.buffer.number, plan.size, len(plan.table), dropped
            )
            return self._worker.emit(request, pinned.buffer, self._pool.numbers)
        except Exception as error:  # noqa: BLE001 - this thread is to go on
            return NotEmitted(str(error) or type(error).__name__)


def _requested(request: SnapshotRequest) -> LogLine:
    return entry("requested", gen=request.gen, ts=request.ts)


class _StatusLine:
    """A line on standard error that is overwritten: terminals and notebooks understand `\\r`."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
        self._width = len(text)

    def end(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("\n")


class _WorkerProcess:
    """The worker process, restarted when it dies; for one thread at a time."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self.started = self._start(options)
        _WORKERS.add(self)

    def emit(
        self, request: EmitRequest, buffer: SharedBuffer, numbers: frozenset[int]
    ) -> Emitted | NotEmitted:
        """Have a generation emitted; `numbers` are those of all existing buffers.

        Raises EnvironmentFailure if workers keep dying.
        """
        for _ in range(_TRIES):
            try:
                if buffer.number not in self._sent_buffers:
                    self._connection.send(BufferNotice(buffer.number, buffer.size, numbers))
                    send_handle(self._connection, buffer.descriptor, self._process.pid)
                    self._sent_buffers.add(buffer.number)
                self._connection.send(request)
                answer = self._connection.recv()
            except (EOFError, OSError):
                # What the worker logged counts: the next one reads it from the ring.
                self._stop()
                self._start(replace(self._options, is_training=True))
                continue
            if isinstance(answer, Emitted | NotEmitted):
                return answer
        raise EnvironmentFailure("the process that writes snapshots was killed repeatedly")

    def end(self, seconds: float) -> int:
        """End the worker; returns how many generations have yet to be sent."""
        waiting = 0
        with contextlib.suppress(EOFError, OSError):
            self._connection.send(EndRequest(seconds))
            answer = self._connection.recv()
            if isinstance(answer, Ended):
                waiting = answer.waiting
        self._stop()
        _WORKERS.discard(self)
        return waiting

    @property
    def number(self) -> int:
        return self._process.pid

    def close_inherited(self) -> None:
        """Close the connection in a forked process: the worker watches for the end of the
        training itself.
        """
        self._connection.close()

    def _start(self, options: WorkerOptions) -> Started:
        self._sent_buffers: set[int] = set()
        self._connection, worker_end = Pipe()
        # The worker can import what this process can, except from the current folder.
        path = os.pathsep.join(folder for folder in sys.path if folder)
        with worker_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "wtxtgit.stream.worker", str(worker_end.fileno())],
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                # Ctrl-C is for the training, which ends the worker in its own time. No session of
                # its own: by sched(7), "The autogroup feature", each session gets the same share of
                # the CPU, whatever the priority of its processes.
                process_group=0,
            )
        try:
            self._connection.send(options)
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._stop()
            raise EnvironmentFailure("the process that writes snapshots did not start") from None
        if isinstance(answer, Started):
            return answer
        self._stop()
        message = answer.message if isinstance(answer, NotEmitted) else "an unknown answer"
        raise (
            RingBusy if isinstance(answer, NotEmitted) and answer.is_busy else EnvironmentFailure
        )(message)

    def _stop(self) -> None:
        self._connection.close()
        self._process.wait()


_WORKERS: weakref.WeakSet[_WorkerProcess] = weakref.WeakSet()


def _after_fork() -> None:
    for one in _WORKERS:
        one.close_inherited()


os.register_at_fork(after_in_child=_after_fork)
