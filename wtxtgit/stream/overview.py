"""What a ring of several ranks holds: its generations, whole or not, and what became of each rank.

A ring of one rank is told by its `RingState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.model.plain import JsonObject
from wtxtgit.stream.ranks import ALONE, Rank, listed
from wtxtgit.stream.state import Counts, Generation, RingState, ranks_of, read_state


@dataclass(frozen=True, slots=True)
class RankedGeneration(JsonObject):
    """The parts of a generation that the ring holds, by rank.

    `missing` are the ranks that have none; it is whole where none is missing, and its index is
    there.
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
    """What became of what one rank asked for; see `RingState`."""

    KEYS = "rank last? head:hex counts lost failed"

    rank: int
    last: int | None
    head: bytes
    counts: Counts
    lost: tuple[int, ...]
    failed: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RankedState(JsonObject):
    """What the logs of all ranks say."""

    world: int
    ranks: tuple[RankState, ...]
    generations: tuple[RankedGeneration, ...]


def read_ring(folder: Path) -> RingState | RankedState:
    """What a ring's logs say now; raises InputError for a folder that is no ring."""
    states = {rank: read_state(folder, rank) for rank in ranks_of(folder)}
    return states[ALONE] if ALONE in states else ranked(folder, states)


def ranked(folder: Path, states: Mapping[Rank, RingState]) -> RankedState:
    """What the states of all ranks make together."""
    indexed = listed(folder, len(states)).indexed
    gens = sorted({one.gen for state in states.values() for one in state.generations})
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
