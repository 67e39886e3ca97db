"""The process that emits and delivers what a training publishes.

It is a separate process with the lowest priority: a thread of the training would often hold the
interpreter's lock, and could not yield to the loop. It reads arrays from memory that it shares with
the training. When the training ends, killed or not, the worker finishes its work and ends too.

`python -m wtxtgit.stream.worker N` communicates over descriptor N, a socket whose other end only
the training has.
"""

from __future__ import annotations

import logging
import mmap
import os
import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from wtxtgit.errors import WtxtgitError, expected, explain
from wtxtgit.io import clock
from wtxtgit.stream.buffers import arrays_in
from wtxtgit.stream.delivery import Deliveries, expire
from wtxtgit.stream.emission import Emitter
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
from wtxtgit.stream.ring import Ring, RingBusy
from wtxtgit.stream.sealing import sealing

_log = logging.getLogger("wtxtgit.stream")
LOWEST_PRIORITY = 19
LINGER = 30.0
"""Seconds for which deliveries continue after the training has ended."""


class SnapshotWorker:
    """Answers the requests of one training."""

    def __init__(self, ring: Ring, options: WorkerOptions) -> None:
        self._ring = ring
        self._options = options
        self._buffers: dict[int, mmap.mmap] = {}
        self._emitter = Emitter(ring, options.emission, [one.label for one in options.targets])
        self._deliveries = Deliveries(
            ring, [sealing(one, options.emission.key) for one in options.targets]
        )

    def run(self, training: Connection) -> None:
        """Answer requests until the training ends."""
        seconds, was_killed = LINGER, False
        while True:
            try:
                message = training.recv()
                match message:
                    case BufferNotice():
                        self._map(recv_handle(training), message)
                    case EmitRequest():
                        training.send(self._emit(message))
                        self._deliveries.wake()
                    case EndRequest():
                        seconds = message.seconds
                        break
            except (EOFError, ConnectionError):
                was_killed = True
                break
        # A killed training may be restarted, and will need its rank of the ring.
        self._deliveries.end(seconds, waits_for_ranks=not was_killed)
        try:
            # Generations that stayed only because they were not delivered yet.
            self._ring.prune(self._options.keep)
        except WtxtgitError as error:
            _log.warning("%s", error)
        waiting = sum(one.is_under_way for one in self._ring.state.generations)
        try:
            training.send(Ended(waiting))
        except OSError:
            return

    def _map(self, descriptor: int, notice: BufferNotice) -> None:
        for number in self._buffers.keys() - notice.numbers:
            self._buffers.pop(number).close()
        self._buffers[notice.number] = mmap.mmap(descriptor, notice.size, prot=mmap.PROT_READ)
        os.close(descriptor)

    def _emit(self, message: EmitRequest) -> Emitted | NotEmitted:
        request, ring = message.request, self._ring
        ring.passed_over(message.dropped)
        # An earlier worker may have died when the generation already counted.
        existing = ring.state.generations_by_number.get(request.gen)
        if existing is not None:
            return Emitted(existing)
        try:
            memory = memoryview(self._buffers[message.buffer])
            generation = self._emitter.emit(request, arrays_in(memory, message.size, message.table))
        except Exception as error:  # noqa: BLE001 - the training goes on, and reports it
            if expected(error) is None:
                _log.exception("generation %d", request.gen)
            why = explain(error)
            ring.remove_unfinished()
            ring.failed(request.gen, why)
            return NotEmitted(why)
        # If logging raises, the line may have been written anyway. This process then ends, and the
        # next one reads the log.
        ring.emitted(generation)
        expire(ring, self._options.limits, clock.now())
        ring.prune(self._options.keep)
        return Emitted(generation)


def main(descriptor: int) -> int:
    """Work for the training at the other end of a socket."""
    os.nice(LOWEST_PRIORITY)
    with Connection(descriptor) as training:
        options: WorkerOptions = training.recv()
        try:
            ring = Ring(options.folder, rank=options.rank, is_training=options.is_training)
        except WtxtgitError as error:
            training.send(NotEmitted(str(error), isinstance(error, RingBusy)))
            return error.exit_code
        training.send(Started(ring.state.last, tuple(ring.newly_lost)))
        SnapshotWorker(ring, options).run(training)
    # The ring stays open: a delivery that takes longer may log its end until this process ends.
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
