"""Delivery: the generations in a ring are sent to its targets, by one thread per target.

A generation is sent again, with growing pauses, until the target has it or refuses it, or it has
waited too long. The queue is the ring's log, so a crash loses nothing; a generation that was sent
but not logged is sent again, which does no harm.

With several ranks each sends its part once the generation is whole. The rank that finds all parts
at the target sends the index, which makes them a generation there.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from wtxtgit.errors import RemoteRefused, RemoteUnavailable, WtxtgitError
from wtxtgit.io.files import view_file
from wtxtgit.remotes.target import Outgoing, Target, outgoing
from wtxtgit.stream.index import GenerationIndex
from wtxtgit.stream.ranks import gen_prefix, index_name
from wtxtgit.stream.ring import Ring
from wtxtgit.stream.state import Delivery, DeliveryState, Generation

_log = logging.getLogger("wtxtgit.stream")
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
_MOST_DOUBLINGS = 16
_POLL = 0.5
"""Seconds between checks, at the end, of what other ranks have done."""


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """How much may wait for a target: `age` in seconds, `nbytes` of files in the ring."""

    age: float = 7 * 24 * 3600
    nbytes: int = 64 * 1024**3


class Deliveries:
    """The threads that send a ring's generations; `wake` notifies them of a new one."""

    def __init__(self, ring: Ring, targets: Sequence[Target]) -> None:
        self._change = threading.Condition()
        self._is_ending = False
        self._deadline = 0.0
        self._threads = [
            threading.Thread(target=self._deliver, args=(ring, target), daemon=True)
            for target in targets
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Have the threads check the queue."""
        with self._change:
            self._change.notify_all()

    def end(self, seconds: float, *, waits_for_ranks: bool = True) -> None:
        """Send what is queued for at most `seconds`; everything is tried at least once more.

        With `waits_for_ranks` this includes waiting for what other ranks have yet to send.
        """
        deadline = time.monotonic() + seconds
        with self._change:
            self._is_ending = True
            self._deadline = deadline if waits_for_ranks else 0.0
            self._change.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _deliver(self, ring: Ring, target: Target) -> None:
        """Send to one target until the end was requested and nothing is left to try."""
        pauses, polls = _Pauses(), _Pauses()
        while True:
            with self._change:
                is_last = self._is_ending
            waiting = list(ring.under_way(target.label))
            for generation, delivery in waiting:
                outcome = attempt(ring, generation, delivery, target)
                if isinstance(outcome, float):
                    pauses.failed(outcome)
                    break
                pauses.succeeded()
            try:
                waits = ring.waits_for_ranks(target.label, looks_closely=is_last)
            except WtxtgitError as error:
                _log.warning("%s", error)
                waits = True  # the folder of all ranks may be one of another machine
            if waits:
                polls.failed(0.0)
            else:
                polls.succeeded()
            with self._change:
                left = self._deadline - time.monotonic()
                if is_last and (pauses.seconds or not waits or left <= 0):
                    return
                if is_last:
                    self._change.wait(min(left, _POLL))
                elif not self._is_ending:
                    is_idle = not (waits or any(True for _ in ring.under_way(target.label)))
                    if self._change.wait(None if is_idle else pauses.seconds or polls.seconds):
                        polls.succeeded()  # a new generation: the other ranks' parts follow soon


class _Pauses:
    """How long to wait: twice as long after each failure, with random variation."""

    def __init__(self) -> None:
        self._failures = 0
        self._retry_after = 0.0

    def failed(self, seconds: float) -> None:
        """Count a failure; the target asked not to be contacted for `seconds`."""
        self._failures += 1
        self._retry_after = seconds

    def succeeded(self) -> None:
        self._failures, self._retry_after = 0, 0.0

    @property
    def seconds(self) -> float:
        if not self._failures:
            return 0.0
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, _MOST_DOUBLINGS))
        # "Full jitter": many trainings that lost a target should not return at the same moment.
        return max(self._retry_after, random.uniform(_FIRST_PAUSE / 2, longest))  # noqa: S311


def attempt(
    ring: Ring, generation: Generation, delivery: Delivery, target: Target
) -> DeliveryState | float:
    """Send a generation once, and log the outcome.

    Returns a number of seconds to wait if the target can't be used now.
    """
    state = delivery.state
    try:
        if state is DeliveryState.QUEUED:
            target.put(_files(ring, generation), about=about(generation))
            if not ring.rank.is_alone:
                state = DeliveryState.SENT
                _log_outcome(ring, generation, delivery, state, None)
        if not ring.rank.is_alone and not _is_complete(ring, generation, target):
            return DeliveryState.SENT
    except RemoteUnavailable as error:
        _log_outcome(ring, generation, delivery, state, str(error))
        return error.retry_after or 0.0
    except RemoteRefused as error:
        _log_outcome(ring, generation, delivery, DeliveryState.REFUSED, str(error))
        return DeliveryState.REFUSED
    except WtxtgitError as error:
        # Waiting does not help against a missing or damaged file of the ring either.
        _log_outcome(ring, generation, delivery, DeliveryState.REFUSED, str(error))
        return DeliveryState.REFUSED
    _log_outcome(ring, generation, delivery, DeliveryState.DELIVERED, None)
    return DeliveryState.DELIVERED


def _is_complete(ring: Ring, generation: Generation, target: Target) -> bool:
    """Send the index if all parts are at the target; returns whether the index is there."""
    file = index_name(generation.gen)
    names = {one.name for one in target.list(gen_prefix(generation.gen))}
    if not ring.is_whole(generation.gen):
        return file in names  # another rank has delivered and pruned it
    content = view_file(ring.path(file))
    index = GenerationIndex.parse(bytes(content), file)
    if not names.issuperset(name for part in index.parts for name in part.files):
        return False
    target.put([outgoing(file, content)], about={"gen": str(generation.gen), "ts": generation.ts})
    return True


def about(generation: Generation) -> dict[str, str]:
    """Return what a target may show about a generation."""
    return {
        "gen": str(generation.gen),
        "root": generation.sha256_all.hex(),
        "merkle": generation.this.hex(),
        "ts": generation.ts,
    }


def _files(ring: Ring, generation: Generation) -> list[Outgoing]:
    base = ring.state.generations_by_number.get(-1 if generation.base is None else generation.base)
    # The base of a delta may be a part of a generation that was never whole, and so was never sent.
    bases = [] if base is None or ring.is_whole(base.gen) else [base]
    files = []
    for part in (*bases, generation):
        files.append(Outgoing(part.file, view_file(ring.path(part.file)), part.sha256.hex()))
        if part.wsum is not None:
            files.append(outgoing(part.wsum, view_file(ring.path(part.wsum))))
    return files


def _log_outcome(
    ring: Ring, generation: Generation, delivery: Delivery, state: DeliveryState, why: str | None
) -> None:
    updated = replace(delivery, state=state, tries=delivery.tries + 1, why=why)
    ring.delivery(generation.gen, updated)
    if why is not None:
        _log.warning("generation %d: %s: %s", generation.gen, delivery.target, why)


def expire(ring: Ring, limits: DeliveryLimits, now: float) -> None:
    """Give up deliveries that have waited too long, or exceed the limit on waiting data."""
    room = limits.nbytes
    for generation in reversed(ring.state.generations):
        if not generation.is_under_way:
            continue
        room -= generation.size
        age = now - datetime.fromisoformat(generation.ts).astimezone(UTC).timestamp()
        if room < 0 or age > limits.age:
            why = "waited too long" if age > limits.age else "too much data is waiting"
            for one in _waiting(generation):
                ring.delivery(generation.gen, replace(one, state=DeliveryState.EXPIRED, why=why))


def _waiting(generation: Generation) -> Iterable[Delivery]:
    done = (DeliveryState.DELIVERED, DeliveryState.EXPIRED)
    return (one for one in generation.deliveries if one.state not in done)
