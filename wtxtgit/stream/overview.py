"""The state of a ring with several ranks: its generations, whole or not, and each rank's state.

The state of a ring with one rank is its `RingState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.model.plain import JsonObject
from wtxtgit.stream.ranks import ALONE, Rank, list_parts
from wtxtgit.stream.state import Counts, Generation, RingState, ranks_of, read_state


@dataclass(frozen=True, slots=True)
class RankedGeneration(JsonObject):
    """The parts of a generation in the ring, by rank.

    `missing` are the ranks without a part; it is whole if none is missing and its index exists.
    """

    KEYS = "gen whole=is_whole missing parts=parts_by_number"

    gen: int
    is_whole: bool
    missing: tuple[int, ...]
    parts: Mapping[Rank, Generation]

    @property
    def parts_by_number(self) -> dict[int, Generation]:
        return {rank.number: part for rank, part in self.parts.items()}

    @property
    def ts(self) -> str:
        return max(part.ts for part in self.parts.values())

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class RankState(JsonObject):
    """The state of one rank; see `RingState`."""

    KEYS = "rank last? head:hex counts lost failed"

    rank: int
    last: int | None
    head: bytes
    counts: Counts
    lost: tuple[int, ...]
    failed: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RankedState(JsonObject):
    """The state of a ring by the logs of all ranks."""

    world: int
    ranks: tuple[RankState, ...]
    generations: tuple[RankedGeneration, ...]


def read_ring(folder: Path) -> RingState | RankedState:
    """Read the state of a ring; raises InputError if the folder is no ring."""
    states = {rank: read_state(folder, rank) for rank in ranks_of(folder)}
    return states[ALONE] if ALONE in states else combine_ranks(folder, states)


def combine_ranks(folder: Path, states: Mapping[Rank, RingState]) -> RankedState:
    """Combine the states of all ranks."""
    indexed = list_parts(folder, len(states)).indexed
    gens = sorted({generation.gen for state in states.values() for generation in state.generations})
    generations = []
    for gen in gens:
        parts = {
            rank: state.generations_by_number[gen]
            for rank, state in states.items()
            if gen in state.generations_by_number
        }
        missing = tuple(rank.number for rank in states if rank not in parts)
        generations.append(RankedGeneration(gen, gen in indexed and not missing, missing, parts))
    ranks = tuple(
        RankState(rank.number, state.last, state.head, state.counts, state.lost, state.failed)
        for rank, state in states.items()
    )
    return RankedState(len(states), ranks, tuple(generations))
