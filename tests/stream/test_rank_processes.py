"""Four processes of one training, one of which is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.remotes.folder import Folder
from wtxtgit.stream import Snapshots, upkeep
from wtxtgit.stream.overview import RankedState, read_ring
from wtxtgit.stream.pull import pull
from wtxtgit.stream.ranks import Rank
from wtxtgit.stream.ring import RingBusy
from wtxtgit.stream.state import read_state

pytestmark = pytest.mark.slow
WORLD = 4

TRAINING = """
import sys
import numpy as np
from wtxtgit.stream import Snapshots, targets
from tests.stream.test_rank_processes import weights

folder, target, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
to = [targets.Folder(target)]
with Snapshots(folder, keep=2, full_every=3, rank=rank, world=4, to=to) as snapshots:
    print(snapshots.worker_process, *snapshots.lost, flush=True)
    for line in iter(sys.stdin.readline, "end\\n"):
        gen, *waits = line.split()
        snapshots.publish(weights(int(gen), rank), gen=int(gen))
        if waits:
            snapshots.flush()
        print(gen, flush=True)
"""


def weights(gen: int, rank: int) -> dict[str, np.ndarray]:
    own = np.zeros((1 << 14, 4), "<f4")
    own[: gen + 1] = gen + 10 * rank
    return {f"layer{rank}.w": own, "step": np.full(2, gen, "<i8")}


class RankProcess:
    """A process of the training: it takes a snapshot when it is told to."""

    def __init__(self, folder: Path, target: Path, rank: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, folder, target, str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        worker, *lost = self.answer().split()
        self.worker = int(worker)
        self.lost = [int(gen) for gen in lost]

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin)

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill_with_worker(self) -> None:
        """End both at once, and wait until they are gone."""
        ends = os.pidfd_open(self.worker)
        self.process.kill()
        os.kill(self.worker, signal.SIGKILL)
        assert select.select([ends], [], [], 30)[0]
        os.close(ends)


def publish(gen: int, *ranks: RankProcess) -> None:
    for one in ranks:
        one.tell(f"{gen} flush")
    for one in ranks:
        assert one.answer() == f"{gen}\n"


def found(folder: Path) -> dict[int, tuple[int, ...] | None]:
    """The generations of a ring: None for whole ones, else the ranks that are missing."""
    state = read_ring(folder)
    assert isinstance(state, RankedState)
    return {one.gen: None if one.is_whole else one.missing for one in state.generations}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], RankProcess]]:
    started: list[RankProcess] = []

    def start(rank: int) -> RankProcess:
        started.append(RankProcess(tmp_path / "ring", tmp_path / "target", rank))
        return started[-1]

    yield start
    for one in started:
        with one.process:
            one.process.kill()


def test_four_processes_of_which_one_is_killed(
    start: Callable[[int], RankProcess], tmp_path: Path
) -> None:
    ring, target = tmp_path / "ring", tmp_path / "target"
    ranks = [start(rank) for rank in range(WORLD)]
    with pytest.raises(RingBusy, match=f"process {ranks[1].worker} is using rank 1 of this ring"):
        Snapshots(ring, rank=1, world=WORLD)
    with pytest.raises(EnvironmentFailure, match=r"a ring of 4 ranks, not of 3$"):
        Snapshots(ring, world=3)
    publish(1, *ranks)
    publish(2, *ranks)
    assert found(ring) == {1: None, 2: None}
    # Rank 2 has asked for generation 3 when it dies; the others go on.
    os.kill(ranks[2].worker, signal.SIGSTOP)
    ranks[2].tell("3")
    assert ranks[2].answer() == "3\n"
    ranks[2].kill_with_worker()
    others = [ranks[0], ranks[1], ranks[3]]
    publish(3, *others)
    publish(4, *others)
    assert found(ring) == {1: None, 2: None, 3: (2,), 4: (2,)}
    assert upkeep.check_ring(ring).ok
    ranks[2] = start(2)
    assert ranks[2].lost == [3]
    assert read_state(ring, Rank(2, WORLD)).lost == (3,)
    publish(5, *ranks)
    for one in ranks:
        # All at once: each sends, and waits for what the others send.
        one.tell("end")
    assert [one.process.wait(60) for one in ranks] == [0] * WORLD
    state = found(ring)
    assert state[5] is None
    assert set(state) <= {1, 2, 3, 4, 5}
    assert upkeep.check_ring(ring).ok
    # A target has what is whole, and nothing else.
    assert {path.name for path in target.glob("*.index")} == {
        f"gen-{gen:06}.index" for gen in (1, 2, 5)
    }
    assert list(upkeep.push(ring, Folder)) == []
    pulled = pull(Folder(target), None, tmp_path / "a.npz")
    assert (pulled.gen, pulled.follows) == (5, None)
    with np.load(tmp_path / "a.npz") as arrays:
        assert len(arrays) == WORLD + 1
        for rank in range(WORLD):
            for name, array in weights(5, rank).items():
                assert np.array_equal(arrays[name], array)
