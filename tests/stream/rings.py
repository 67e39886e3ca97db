"""What a ring has to be, whatever happened to it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from wtxtgit.checkpoint.delta import TargetGeneration, apply
from wtxtgit.stream.emission import EmissionOptions, Emitter, SnapshotRequest
from wtxtgit.stream.ranks import LOCK, REQUESTS, WAL
from wtxtgit.stream.ring import Ring
from wtxtgit.stream.state import RingState, read_state
from wtxtgit.text.arrays import NumpyArray, NumpyType, Weights, read
from wtxtgit.trust.openssh import generate
from wtxtgit.trust.signing import SeedKey

KEY = SeedKey("alice", generate("alice"))


def arrays(value: int) -> list[NumpyArray]:
    weights = np.zeros((1 << 14, 4), "<f4")
    weights[: value + 1] = value
    return [
        NumpyArray("layer.w", NumpyType("<f4", 4), weights.shape, memoryview(weights).cast("B"))
    ]


def filled(folder: Path, target: Path | None, *, count: int = 5) -> None:
    """A ring of some generations, of which a target is to get each."""
    with Ring(folder) as ring:
        emitter = Emitter(
            ring, EmissionOptions(full_every=3, key=KEY), [str(target)] if target else []
        )
        for gen in range(count):
            request = SnapshotRequest(gen, "2026-01-31T12:00:00Z", is_pinned=gen == 1)
            ring.emitted(emitter.emit(request, arrays(gen)))


def weights_of(folder: Path, state: RingState, gen: int) -> Weights:
    """A generation's arrays, proved."""
    generation = state.generations_by_number[gen]
    path = folder / generation.file
    if generation.base is None:
        wsum = None if generation.wsum is None else (folder / generation.wsum).read_bytes()
        return read(memoryview(path.read_bytes()), wsum=wsum)
    base = folder / state.generations_by_number[generation.base].file
    text = b"".join(apply(str(base), str(path), TargetGeneration()))
    return read(memoryview(text))


def proved(folder: Path) -> dict[int, Weights]:
    """Every generation of a ring, whose files are whole and whose chain holds."""
    state = read_state(folder)
    expected = {file for one in state.generations for file in one.files}
    there = {path.name for path in folder.iterdir()} - {LOCK, REQUESTS, WAL}
    assert there == expected
    weights = {one.gen: weights_of(folder, state, one.gen) for one in state.generations}
    generations = state.generations
    for one in generations:
        root = weights[one.gen].report.index.root
        # Of a pending text its WSUM says so, which `weights_of` proved.
        if root is not None:
            said = root.sha256_all, root.merkle_prev, root.merkle_this
            assert said == (one.sha256_all, one.prev, one.this)
        assert weights[one.gen].snapshot.meta.gen == one.gen
    # What was pruned in between may be missing, but nothing has two that follow it.
    assert len({one.prev for one in generations}) == len(generations)
    for before, after in pairwise(generations):
        if after.gen == before.gen + 1:
            assert after.prev == before.this
    if generations:
        assert generations[-1].this == state.head
    return weights
