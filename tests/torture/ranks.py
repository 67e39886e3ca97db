"""Several ranks take snapshots into one ring, and one of them is killed, again and again.

The others go on, whoever was killed is started again, and in the end the ring is whole: so is every
generation that a target has, each once, and the last one is there and is what was published.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from tests.torture.snapshots import ROOT, VICTIMS, CountingFolder, run_trials
from tests.torture.tables import Table
from wtxtgit.remotes.folder import Folder
from wtxtgit.stream import upkeep
from wtxtgit.stream.index import GenerationIndex
from wtxtgit.stream.overview import RankedState, read_ring
from wtxtgit.stream.pull import pull
from wtxtgit.stream.ring import RingBusy

WORLD = 3
GENERATIONS = 12
"""What the ranks publish until the last one of them ends."""
KILLS = 3
SECONDS = 1.5
"""A run of a training takes about so long."""

TRAINING = """
import sys
from tests.torture.ranks import WORLD, weights
from tests.torture.snapshots import CountingFolder
from wtxtgit.stream import Snapshots

folder, target, rank, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
to = [CountingFolder(target)]
with Snapshots(folder, keep=3, full_every=3, rank=rank, world=WORLD, to=to) as snapshots:
    print(snapshots.worker_process, flush=True)
    for gen in range((snapshots.state().last or 0) + 1, most + 1):
        snapshots.publish(weights(gen, rank), gen=gen, pin=gen == most)
        if gen % 3 == 0:
            snapshots.flush()
"""


def weights(gen: int, rank: int) -> dict[str, np.ndarray]:
    own = np.zeros((1 << 13, 16), "<f4")
    own[:gen] = gen + 100 * rank
    return {f"layer{rank}": own, "step": np.full(3, gen, "<i8")}


class RankTrial:
    """One ring, and the processes of its ranks."""

    def __init__(self, folder: Path) -> None:
        self.ring, self.target = folder / "ring", folder / "target"

    def start(self, rank: int, most: int) -> tuple[subprocess.Popen[bytes], int]:
        """Start a rank; gives its process and what is readable when its worker has ended."""
        while True:
            training = subprocess.Popen(
                [sys.executable, "-c", TRAINING, self.ring, self.target, str(rank), str(most)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert training.stdout is not None
            if worker := training.stdout.readline():
                return training, os.pidfd_open(int(worker))
            # A worker that was left may still be at its last generation.
            _, said = training.communicate()
            assert RingBusy.__name__.encode() in said, said.decode()

    def train(self, most: int, kills: Sequence[tuple[float, int, str]]) -> None:
        """Have all ranks publish up to `most`; each kill is after seconds, of a rank, of what."""
        ranks = [self.start(rank, most) for rank in range(WORLD)]
        for seconds, rank, victim in kills:
            training, end = ranks[rank]
            with suppress(subprocess.TimeoutExpired):
                training.wait(seconds)
            if victim in ("worker", "both"):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(end, signal.SIGKILL)
            if victim in ("training", "both"):
                training.kill()
                training.communicate()
                assert select.select([end], [], [], 60)[0]
                os.close(end)
                ranks[rank] = self.start(rank, most)
        for training, end in ranks:
            os.close(end)
            _, said = training.communicate(timeout=120)
            assert training.returncode == 0, said.decode()

    def check(self, last: int) -> None:
        """Raise AssertionError where something is not whole, or there twice."""
        state = read_ring(self.ring)
        assert isinstance(state, RankedState)
        assert state.generations[-1].gen == last
        verdict = upkeep.check_ring(self.ring)
        assert verdict.ok, [one for one in verdict.generations if not one.ok]
        assert all(rank.counts.failed == 0 for rank in state.ranks)
        assert len({rank.last for rank in state.ranks}) == 1
        assert not list(upkeep.push(self.ring, CountingFolder)), "all that is whole was sent"
        there = {path.name for path in self.target.iterdir()}
        needed = {part.base for one in state.generations for part in one.parts.values()}
        for one in state.generations:
            assert one.is_whole or one.gen in needed, f"{one.gen} is incomplete, and is not pruned"
            assert not one.is_whole or f"gen-{one.gen:06}.index" in there
        for name in (name for name in there if name.endswith(".index")):
            for part in GenerationIndex.parse((self.target / name).read_bytes(), name).parts:
                content = (self.target / part.file).read_bytes()
                assert sha256(content).digest() == part.sha256
        new = Counter(Path(f"{self.target}.log").read_text().split())
        assert set(new.values()) == {1}
        out = self.target.with_name("out.npz")
        assert pull(Folder(self.target), None, out).gen == last
        with np.load(out) as found:
            for rank in range(WORLD):
                for name, array in weights(last, rank).items():
                    assert np.array_equal(found[name], array), name


def trial(folder: Path, number: random.Random) -> str | None:
    """Kill ranks some times, let all of them end, and say what is wrong then."""
    one = RankTrial(folder)
    kills = [
        (number.uniform(0, SECONDS), number.randrange(WORLD), number.choice(VICTIMS))
        for _ in range(KILLS)
    ]
    try:
        one.train(GENERATIONS, kills)
        # Who was killed after it had asked for the last one has lost it.
        one.train(GENERATIONS + 2, ())
        one.check(GENERATIONS + 2)
    except AssertionError as error:
        return f"{kills}: {error or 'it does not hold'}"
    return None


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Kill `tries` times in all."""
    return run_trials(trial, "rings of 3 ranks", KILLS, folder, tries, seed)
