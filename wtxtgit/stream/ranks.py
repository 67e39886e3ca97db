"""Ranks: the processes of a training that share a ring, and the names of their files.

A ring's file `world` states their number, and a unique name for the ring; each part states both in
its `build`, which its hashes cover. So no part passes for a whole checkpoint, nor for a part of
another ring's generation. A training with one process has no such file, and its files have no rank
in their names. `docs/stream.md`, section "The ring's files".
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wtxtgit.errors import EnvironmentFailure, InputError, UsageError, counted
from wtxtgit.io.files import failures, replace_file, shown
from wtxtgit.io.view import write_all
from wtxtgit.model.ledger import AGE_ENDING
from wtxtgit.stream import log
from wtxtgit.stream.log import entry
from wtxtgit.text.grammar import format_gen

REQUESTS, WAL, LOCK, WORLD = "requests", "wal", "lock", "world"
MAX_WORLD = 65_536
INDEX_ENDING = "index"
TEXT_ENDING, DELTA_ENDING = "wtxt", "wtxtdelta"
_GEN = r"gen-([0-9]{6,20})"
_FILE = re.compile(
    rf"{_GEN}(?:\.(0|[1-9][0-9]{{0,4}})-of-([1-9][0-9]{{0,4}}))?(?:\.from-([0-9]{{6,20}}))?"
    r"(\.wtxt|\.wtxtdelta)(\.age)?"
)
_INDEX = re.compile(rf"{_GEN}\.{INDEX_ENDING}")
_BUILD = re.compile(r"(.+)\+(0|[1-9][0-9]{0,4})-of-([1-9][0-9]{0,4})\.([0-9a-f]{16})")
_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """One of the `world` processes of a training, counted from 0; raises UsageError."""

    number: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.world <= MAX_WORLD:
            raise UsageError(f"world is {self.world}, but must be between 1 and {MAX_WORLD}")
        if not 0 <= self.number < self.world:
            raise UsageError(f"rank is {self.number}, but must be between 0 and {self.world - 1}")

    def __str__(self) -> str:
        return f"{self.number}-of-{self.world}"

    @property
    def is_alone(self) -> bool:
        return self.world == 1

    def own(self, name: str) -> str:
        """Return this rank's name for a log or lock of a ring."""
        return name if self.is_alone else f"{name}.{self}"

    def all(self) -> list[Rank]:
        """Return all ranks of the training, in order."""
        return [Rank(number, self.world) for number in range(self.world)]


ALONE = Rank()


@dataclass(frozen=True, slots=True)
class PartName:
    """What the name of a ring's file states: a text, or a delta based on generation `base`."""

    gen: int
    rank: Rank = ALONE
    base: int | None = None
    is_encrypted: bool = False

    def __str__(self) -> str:
        part = "" if self.rank.is_alone else f"{self.rank}."
        # Whoever has only the files needs to know the base of a delta.
        origin = "" if self.base is None else f"from-{format_gen(self.base)}."
        ending = TEXT_ENDING if self.base is None else DELTA_ENDING
        age = AGE_ENDING if self.is_encrypted else ""
        return f"{gen_prefix(self.gen)}{part}{origin}{ending}{age}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a name; returns None if it is not that of a ring's file."""
        match = _FILE.fullmatch(name)
        if match is None:
            return None
        with contextlib.suppress(UsageError):
            rank = ALONE if match[2] is None else Rank(int(match[2]), int(match[3]))
            base = None if match[4] is None else int(match[4])
            part = cls(int(match[1]), rank, base, match[6] is not None)
            # Each has only one name: `0-of-1` is invalid.
            return part if str(part) == name else None
        return None


def gen_prefix(gen: int) -> str:
    """Return the prefix of the names of a generation's files, which no other generation shares."""
    return f"gen-{format_gen(gen)}."


def index_name(gen: int) -> str:
    """Return the name of the index that makes the parts of a generation one."""
    return gen_prefix(gen) + INDEX_ENDING


def index_gen(name: str) -> int | None:
    """Return the generation whose index has that name; None for other names."""
    match = _INDEX.fullmatch(name)
    return int(match[1]) if match is not None and index_name(int(match[1])) == name else None


@dataclass(frozen=True, slots=True)
class World:
    """The number of ranks in a ring, and the ring's unique name, which is empty for one rank."""

    size: int = 1
    name: str = ""

    def build(self, build: str, rank: Rank) -> str:
        """Return the `build` of a part: the training's own, with the rank and the ring's name."""
        return build if rank.is_alone else f"{build}+{rank}.{self.name}"


def part_of(build: str) -> tuple[str, Rank, str] | None:
    """Parse a part's `build`: the training's own, the rank, the ring's name; None for other
    builds.
    """
    match = _BUILD.fullmatch(build)
    if match is None:
        return None
    with contextlib.suppress(UsageError):
        return match[1], Rank(int(match[2]), int(match[3])), match[4]
    return None


def read_world(folder: Path) -> World:
    """Read the number of ranks of a ring; raises InputError if its file is invalid."""
    lines = log.read(folder / WORLD)
    if not lines:
        if os.path.lexists(folder / WORLD):
            raise InputError(f"{shown(folder / WORLD)}: does not say how many ranks the ring has")
        return World()
    with contextlib.suppress(KeyError, ValueError, UsageError):
        size, name = int(lines[0].fields["size"]), lines[0].fields["name"]
        if Rank(0, size).world > 1 and _NAME.fullmatch(name):
            return World(size, name)
    raise InputError(f"{shown(folder / WORLD)}: does not say how many ranks the ring has")


def join_world(folder: Path, rank: Rank) -> World:
    """Return the world of a ring that `rank` will work on; the first of several ranks creates it.

    Raises UsageError for a ring with another number of ranks, and EnvironmentFailure.
    """
    path = folder / WORLD
    if not rank.is_alone and not (path.exists() or (folder / WAL).exists()):
        line = entry(WORLD, size=rank.world, name=secrets.token_hex(8)).line()
        write_once(path, line)
    world = read_world(folder)
    if world.size != rank.world:
        ranks = counted(world.size, "rank")
        raise UsageError(f"{shown(folder)} is a ring of {ranks}, not of {rank.world}")
    return world


def write_once(path: Path, content: bytes) -> None:
    """Create a small file, complete and on disk, unless it exists; raises EnvironmentFailure."""
    try:
        replace_file(path, lambda descriptor: write_all(descriptor, (content,)), is_new=True)
    except EnvironmentFailure:
        # Another rank was faster.
        if not path.exists():
            raise


@dataclass(frozen=True, slots=True)
class PartListing:
    """Which ranks have a part of which generation in a ring, and which generations have an
    index.
    """

    parts: dict[int, frozenset[int]]
    indexed: frozenset[int]

    def missing(self, gen: int, rank: Rank) -> list[Rank]:
        """Return the ranks that have no part of a generation."""
        present = self.parts.get(gen, frozenset())
        return [other for other in rank.all() if other.number not in present]


def list_parts(folder: Path, world: int) -> PartListing:
    """List parts and indexes by the names of a ring's files; raises EnvironmentFailure."""
    parts: dict[int, set[int]] = {}
    indexed = set()
    for name in _names(folder):
        if (gen := index_gen(name)) is not None:
            indexed.add(gen)
        elif (part := PartName.parse(name)) is not None and part.rank.world == world:
            parts.setdefault(part.gen, set()).add(part.rank.number)
    return PartListing({gen: frozenset(ranks) for gen, ranks in parts.items()}, frozenset(indexed))


def _names(folder: Path) -> Iterator[str]:
    with failures(folder, missing=EnvironmentFailure):
        yield from (path.name for path in folder.iterdir())
