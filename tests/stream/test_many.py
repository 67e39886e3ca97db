"""Many small generations: logs, files, memory and descriptors stay as they are.

WTXTGIT_GENERATIONS says how many; 10,000 take some minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.stream.rings import proved
from wtxtgit.remotes.folder import Folder
from wtxtgit.stream import Snapshots
from wtxtgit.stream.state import read_state

COUNT = int(os.environ.get("WTXTGIT_GENERATIONS", "360"))
KEEP = 5
SIZE = 512 * 1024
"""Bytes of a log: a thousand lines that say nothing any more, and what still counts."""
GROWTH = 8 * 1024 * 1024


def held(process: int) -> tuple[int, int]:
    """Open files of a process, and bytes of its own memory: proc(5), statm."""
    pages = Path(f"/proc/{process}/statm").read_text().split()
    resident, shared = int(pages[1]), int(pages[2])
    files = len(list(Path(f"/proc/{process}/fd").iterdir()))
    return files, (resident - shared) * os.sysconf("SC_PAGESIZE")


@pytest.mark.slow
def test_many_generations(tmp_path: Path) -> None:
    ring, target = tmp_path / "ring", tmp_path / "target"
    weights = {"w": np.zeros(16, "<f4"), "b": np.zeros(3, "<f8")}
    with Snapshots(ring, keep=KEEP, full_every=4, policy="all", to=[Folder(target)]) as snapshots:
        processes = (os.getpid(), snapshots.worker_process)
        early = []
        for number in range(COUNT):
            weights["w"][number % 16] += 1
            snapshots.publish(weights)
            if number % 50 == 49:
                snapshots.flush()
            if number == COUNT // 3:
                early = [held(process) for process in processes]
        snapshots.flush()
        late = [held(process) for process in processes]
        for (files, memory), (more_files, more_memory) in zip(early, late, strict=True):
            assert more_files <= files + 2
            assert more_memory < memory + GROWTH
        assert (ring / "requests").stat().st_size < SIZE
        assert (ring / "wal").stat().st_size < SIZE
        print(COUNT, early, late, (ring / "wal").stat().st_size)
    counts = read_state(ring).counts
    assert (counts.emitted, counts.delivered) == (COUNT, COUNT)
    assert len(list(target.iterdir())) == COUNT
    assert KEEP <= len(proved(ring)) <= KEEP + 2
