"""A training that takes snapshots is killed, or its worker, or both, again and again.

Afterwards the ring is one chain of whole files, its target has each generation once, and each that
was asked for is there, or was dropped for a newer one, or is named as lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.stream.rings import proved
from tests.torture.tables import Table
from wtxtgit.remotes.target import StoredFile
from wtxtgit.stream.ring import RingBusy
from wtxtgit.stream.state import read_state

ROOT = Path(__file__).parents[2]
VICTIMS = ("training", "worker", "both")
GENERATIONS = 12
"""What is published in all of a trial."""
KILLS = 3
SECONDS = 1.2
"""A run of a training takes about so long."""

TRAINING = """
import os, sys
import numpy as np
from wtxtgit.stream import Snapshots
from tests.torture.snapshots import CountingFolder

folder, target, told, most = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
policy = sys.argv[5]
out = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
weights = {"w": np.zeros((4096, 16), "<f4"), "b": np.zeros(7, "<f8")}
snapshots = Snapshots(folder, keep=4, full_every=3, policy=policy, to=[CountingFolder(target)])
print(snapshots.worker_process, flush=True)
with snapshots:
    for number in range(most):
        os.write(out, b"begun\\n")
        weights["w"][number] += 1
        gen = snapshots.publish(weights, pin=number == 5)
        os.write(out, b"returned %d\\n" % gen)
        if number % 3 == 0:
            snapshots.flush()
"""


class CountingFolder:
    """A folder as a target, which writes down what it was the first to get."""

    def __init__(self, folder: str) -> None:
        from wtxtgit.remotes.folder import Folder

        self._folder = Folder(folder)
        self._log = Path(f"{folder}.log")
        self.label = folder

    def put(self, files: object, **options: object) -> Sequence[str]:
        new = self._folder.put(files, **options)  # type: ignore[arg-type]
        with self._log.open("a") as log:
            log.writelines(f"{name}\n" for name in new)
        return new

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        return self._folder.list(prefix)


@dataclass
class Trial:
    """One ring, its trainings, and what they said."""

    folder: Path
    policy: str

    def run(self, kill_after: float | None, victim: str) -> None:
        """Train until the end, or until the victim is killed."""
        arguments = [self.ring, self.target, self.told, str(GENERATIONS), self.policy]
        while True:
            training = subprocess.Popen(
                [sys.executable, "-c", TRAINING, *map(str, arguments)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert training.stdout is not None
            worker = training.stdout.readline()
            if worker:
                break
            # A worker that was left may still be at its last generation.
            _, said = training.communicate()
            assert RingBusy.__name__.encode() in said, said.decode()
        end = os.pidfd_open(int(worker)) if kill_after is not None else None
        if kill_after is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                training.wait(kill_after)
            with contextlib.suppress(ProcessLookupError):
                if victim in ("worker", "both"):
                    os.kill(int(worker), signal.SIGKILL)
            if victim in ("training", "both"):
                training.kill()
        _, said = training.communicate(timeout=120)
        if end is not None:
            if victim != "worker":
                select.select([end], [], [], 60)
            os.close(end)
        if kill_after is None or victim == "worker":
            assert training.returncode == 0, said.decode()

    @property
    def ring(self) -> Path:
        return self.folder / "ring"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    @property
    def told(self) -> Path:
        return self.folder / "told"

    def check(self) -> None:
        """Raise AssertionError where something is lost, or there twice, or not told."""
        weights = proved(self.ring)
        state = read_state(self.ring)
        counts = state.counts
        words = Counter(line.split()[0] for line in self.told.read_text().splitlines())
        answered = counts.emitted + counts.dropped + counts.lost + counts.failed
        assert counts.failed == 0
        assert words["returned"] <= answered <= words["begun"], f"{words}, {counts}"
        there = {path.name for path in self.target.iterdir() if path.name.startswith("gen-")}
        assert len(there) == counts.emitted, "each generation once, and each of them"
        assert {one.file for one in state.generations} <= there
        new = Counter((self.folder / "target.log").read_text().split())
        assert set(new.values()) <= {1}
        returned = {
            int(line.split()[1])
            for line in self.told.read_text().splitlines()
            if line.startswith("returned")
        }
        gens = {int(name[4:10]) for name in there}
        assert not gens & set(state.lost)
        if self.policy == "all":
            assert returned <= gens | set(state.lost)
        assert max(weights) == max(gens) == state.head_gen


def trial(folder: Path, number: random.Random) -> str | None:
    """Kill a training some times, let the last one end, and say what is wrong then."""
    one = Trial(folder, number.choice(("latest", "all")))
    victims = [number.choice(VICTIMS) for _ in range(KILLS)]
    try:
        for victim in victims:
            one.run(number.uniform(0, SECONDS), victim)
        one.run(None, "")
        one.check()
    except AssertionError as error:
        return f"{one.policy}, {', '.join(victims)}: {error or 'it does not hold'}"
    return None


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Kill `tries` times in all."""
    return run_trials(trial, "rings", KILLS, folder, tries, seed)


def run_trials(
    trial: Callable[[Path, random.Random], str | None],
    rings: str,
    kills: int,
    folder: Path,
    tries: int,
    seed: int,
) -> Table:
    """Kill `tries` times in all, `kills` times a trial, each of which says what is wrong then."""
    number = random.Random(seed)  # noqa: S311 - the same kills each time
    broken = []
    begun = time.monotonic()
    trials = -(-tries // kills)
    for each in range(trials):
        place = folder / str(each)
        place.mkdir()
        wrong = trial(place, number)
        if wrong is not None:
            broken.append(f"trial {each}: {wrong}")
    print(f"{trials * kills} kills, {time.monotonic() - begun:.0f} s", flush=True)
    row = (str(trials * kills), str(trials), str(len(broken)))
    return Table(("kills", rings, "broken rings"), [row], broken)
