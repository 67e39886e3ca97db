"""What snapshots cost a training: the copy that `publish` makes, and steps that a loop loses."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.measure import Against, Entrant, Place, Row, Sample, race, timed
from wtxtgit.errors import RemoteUnavailable
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.target import Outgoing, StoredFile, Target
from wtxtgit.stream.emission import EmissionOptions, Emitter, SnapshotRequest
from wtxtgit.stream.ring import Ring
from wtxtgit.stream.snapshots import Snapshots
from wtxtgit.text.arrays import NumpyArray, NumpyType

EVERY = 2.0
"""Seconds between two snapshots of the loop."""
SECONDS = 12.0
"""A loop takes about so long without snapshots."""
MOST = 1.2
"""What `publish` may take of the time of a plain copy."""
LEAST_RATE = 0.95
"""What a loop keeps of its steps a second."""
_SIDE = 512


@dataclass(frozen=True)
class Down:
    """A target that never answers well."""

    label: str = "down"

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        raise RemoteUnavailable("down")

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        raise RemoteUnavailable("down")

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        raise RemoteUnavailable("down")

    def has(self, name: str, sha256: str) -> bool:
        raise RemoteUnavailable("down")


def trainings(place: Place, size: int, runs: int) -> list[Row]:
    """A publication against a copy, and a loop with snapshots against one without."""
    random = np.random.default_rng(1)
    state = {
        f"layers.{number}.weight": random.integers(0, 256, (1024, 1024), "u1").view("<f4")
        for number in range(size)
    }
    return [*_copies(place, state, max(runs, 5)), *_loops(place, state, runs)]


def _copies(place: Place, state: dict[str, Any], runs: int) -> list[Row]:
    copies = {name: np.zeros_like(array) for name, array in state.items()}

    def copy() -> None:
        for name, array in state.items():
            np.copyto(copies[name], array)

    nbytes = sum(array.nbytes for array in state.values())
    ring = place.folder("ring")
    with Snapshots(ring, keep=1) as snapshots:
        # Memory that was written before is what both have from the second time on.
        for _ in range(2):
            copy()
            snapshots.publish(state)
            snapshots.flush()
        rows = race(
            [
                Entrant("a copy in memory", nbytes, action=lambda: timed(copy)),
                Entrant(
                    "publish",
                    nbytes,
                    (Against("a copy in memory", MOST),),
                    f"{len(state)} arrays, in process",
                    action=lambda: timed(lambda: snapshots.publish(state)),
                    before=snapshots.flush,
                ),
            ],
            runs,
        )
    shutil.rmtree(ring)
    return rows


def _loops(place: Place, state: dict[str, Any], runs: int) -> list[Row]:
    left = np.ones((_SIDE, _SIDE), "<f4")
    right = left / _SIDE

    def step() -> None:
        np.copyto(left, left @ right)

    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < 1:
        step()
        steps += 1
    count = int(steps * SECONDS)

    def steps_alone() -> None:
        for _ in range(count):
            step()

    def loop(targets: Sequence[Target] | None) -> Sample:
        if targets is None:
            return timed(steps_alone)
        with Snapshots(place.folder("ring"), keep=1, to=targets) as snapshots:
            snapshots.publish(state)
            snapshots.flush()
            sample = timed(partial(_publishing, snapshots, state, step, count))
            snapshots.close(linger=0)
        shutil.rmtree(place.folder("ring"))
        return sample

    def beside_a_thread() -> Sample:
        with Ring(place.folder("ring")) as ring, ThreadPoolExecutor(1) as thread:
            emitter = Emitter(ring, EmissionOptions(), [])
            sample = timed(partial(_handing_over, thread, emitter, ring, state, step, count))
        shutil.rmtree(place.folder("ring"))
        return sample

    against = (Against("a loop", 1 / LEAST_RATE),)
    note = f"{count} products of matrices; {len(state)} MiB are published every {EVERY:.0f} s"
    return race(
        [
            Entrant("a loop", note=note, action=lambda: loop(None)),
            Entrant("with snapshots", against=against, action=lambda: loop([])),
            Entrant(
                "with snapshots, a target down", against=against, action=lambda: loop([Down()])
            ),
            Entrant(
                "written by a thread instead",
                against=(Against("a loop"),),
                action=beside_a_thread,
            ),
        ],
        runs,
    )


def _publishing(snapshots: Snapshots, state: dict[str, Any], step: Any, count: int) -> None:
    due = time.perf_counter() + EVERY
    for _ in range(count):
        step()
        if time.perf_counter() >= due:
            snapshots.publish(state)
            due += EVERY


def _handing_over(
    thread: ThreadPoolExecutor,
    emitter: Emitter,
    ring: Ring,
    state: dict[str, Any],
    step: Any,
    count: int,
) -> None:
    """As `_publishing`, with a thread of this process in the worker's place."""
    due = time.perf_counter() + EVERY
    last: Future[None] | None = None
    for gen in range(count):
        step()
        if time.perf_counter() >= due:
            due += EVERY
            if last is None or last.done():
                copies = [
                    NumpyArray(name, NumpyType("<f4", 4), array.shape, memoryview(array.tobytes()))
                    for name, array in state.items()
                ]
                last = thread.submit(_emit, emitter, ring, gen, copies)


def _emit(emitter: Emitter, ring: Ring, gen: int, arrays: Sequence[NumpyArray]) -> None:
    ring.emitted(emitter.emit(SnapshotRequest(gen, "2026-01-31T12:00:00Z"), arrays))
    ring.prune(1)
