"""Delivery: what a ring holds is sent to its targets, each by a thread of its own.

A generation is sent until a target has it, with pauses that grow, or the target refuses it, or it
has waited for too long. The queue is the ring's log, so a crash loses nothing of it; what was sent
but not noted is sent again, which a target takes for what it has already.
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
from wtxtgit.stream.ring import Delivery, DeliveryState, Generation, Ring

_log = logging.getLogger("wtxtgit.stream")
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """What waits for a target at most: `age` in seconds, `nbytes` of files in the ring."""

    age: float = 7 * 24 * 3600
    nbytes: int = 64 * 1024**3


class Deliveries:
    """The threads that send a ring's generations; `wake` tells them of a new one."""

    def __init__(self, ring: Ring, targets: Sequence[Target]) -> None:
        self._change = threading.Condition()
        self._is_ending = False
        self._threads = [
            threading.Thread(target=self._deliver, args=(ring, target), daemon=True)
            for target in targets
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Have a look at the queue."""
        with self._change:
            self._change.notify_all()

    def end(self, seconds: float) -> None:
        """Send what is queued for at most so many seconds, each of it once more at least."""
        deadline = time.monotonic() + seconds
        with self._change:
            self._is_ending = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _deliver(self, ring: Ring, target: Target) -> None:
        """Send to one target until the end is called for and nothing is left to try."""
        pauses = _Pauses()
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
            if is_last:
                return
            with self._change:
                if not self._is_ending:
                    is_idle = not any(True for _ in ring.under_way(target.label))
                    self._change.wait(None if is_idle else pauses.seconds)


class _Pauses:
    """How long to wait: twice as long after each failure, and never the same as all others do."""

    def __init__(self) -> None:
        self._failures = 0
        self._asked = 0.0

    def failed(self, asked: float) -> None:
        """`asked` are the seconds for which the target wants to be left alone."""
        self._failures += 1
        self._asked = asked

    def succeeded(self) -> None:
        self._failures, self._asked = 0, 0.0

    @property
    def seconds(self) -> float:
        if not self._failures:
            return 0.0
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, _MOST_DOUBLINGS))
        # "Full jitter": many trainings that lost one target don't come back as one.
        return max(self._asked, random.uniform(_FIRST_PAUSE / 2, longest))  # noqa: S311


def attempt(
    ring: Ring, generation: Generation, delivery: Delivery, target: Target
) -> DeliveryState | float:
    """Send a generation once, and note what came of it.

    Gives seconds to wait at least where the target can't be used now.
    """
    try:
        target.put(_files(ring, generation), about=about(generation))
    except RemoteUnavailable as error:
        _note(ring, generation, delivery, DeliveryState.QUEUED, str(error))
        return error.retry_after or 0.0
    except RemoteRefused as error:
        _note(ring, generation, delivery, DeliveryState.REFUSED, str(error))
        return DeliveryState.REFUSED
    except WtxtgitError as error:
        # Neither does waiting mend a file of the ring that is gone or damaged.
        _note(ring, generation, delivery, DeliveryState.REFUSED, str(error))
        return DeliveryState.REFUSED
    _note(ring, generation, delivery, DeliveryState.DELIVERED, None)
    return DeliveryState.DELIVERED


def about(generation: Generation) -> dict[str, str]:
    """What a target may show of a generation."""
    return {
        "gen": str(generation.gen),
        "root": generation.sha256_all.hex(),
        "merkle": generation.this.hex(),
        "ts": generation.ts,
    }


def _files(ring: Ring, generation: Generation) -> list[Outgoing]:
    content = view_file(ring.path(generation.file))
    files = [Outgoing(generation.file, content, generation.sha256.hex())]
    if generation.wsum is not None:
        files.append(outgoing(generation.wsum, view_file(ring.path(generation.wsum))))
    return files


def _note(
    ring: Ring, generation: Generation, delivery: Delivery, state: DeliveryState, why: str | None
) -> None:
    now = replace(delivery, state=state, tries=delivery.tries + 1, why=why)
    ring.delivery(generation.gen, now)
    if why is not None:
        _log.warning("generation %d: %s: %s", generation.gen, delivery.target, why)


def expire(ring: Ring, limits: DeliveryLimits, now: float) -> None:
    """Give up what has waited for longer than the limits say, or is more than they say."""
    left = limits.nbytes
    for generation in reversed(ring.state.generations):
        if not generation.is_under_way:
            continue
        left -= generation.size
        age = now - datetime.fromisoformat(generation.ts).astimezone(UTC).timestamp()
        if left < 0 or age > limits.age:
            why = "waited for too long" if age > limits.age else "too much is waiting"
            for one in _waiting(generation):
                ring.delivery(generation.gen, replace(one, state=DeliveryState.EXPIRED, why=why))


def _waiting(generation: Generation) -> Iterable[Delivery]:
    done = (DeliveryState.DELIVERED, DeliveryState.EXPIRED)
    return (one for one in generation.deliveries if one.state not in done)
