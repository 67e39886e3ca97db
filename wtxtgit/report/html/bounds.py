"""How much a page shows, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from wtxtgit.report.review import Reviewed

MOST_CHECKPOINTS = 200
MOST_FLAGS = 100
"""The most flags of a checkpoint; the next two limits are for a checkpoint, too."""
MOST_GROUPS = 200
MOST_LISTED = 50
"""The most commits; also generations, notes, changes of metadata, added or removed tensors."""
ROWS_OF_PAGE = 4000
"""The most tensors in the tables of all checkpoints together."""
PICTURED_OF_PAGE = 200
"""The most tensors that have pictures."""
FLAGS_OF_PAGE = 1000
GROUPS_OF_PAGE = 1000
LISTED_OF_PAGE = 1000
MOST_SIGNERS = 5
MOST_NAME = 160
"""The longest name in characters."""
MOST_VALUE = 200
"""The longest value of the metadata in characters."""
MOST_TEXT = 500
"""The longest message in characters."""

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Room:
    """How much a page shows of a checkpoint: `rows` of tensors, `pictured` tensors, and so on."""

    rows: int
    pictured: int
    flags: int
    groups: int
    listed: int


WHOLE_PAGE = Room(ROWS_OF_PAGE, PICTURED_OF_PAGE, FLAGS_OF_PAGE, GROUPS_OF_PAGE, LISTED_OF_PAGE)
"""What is shown of a checkpoint that has a page of its own."""


@dataclass(frozen=True, slots=True)
class Excerpt(Generic[_T]):
    """The first items of a list, and how many more there are."""

    lines: tuple[_T, ...]
    more: int

    def each(self, say: Callable[[_T], _U]) -> Excerpt[_U]:
        """Return the same excerpt with `say` applied to each item."""
        return Excerpt(tuple(map(say, self.lines)), self.more)


def first(things: Sequence[_T], most: int) -> Excerpt[_T]:
    """Return an excerpt of at most `most` items."""
    return Excerpt(tuple(things[:most]), max(len(things) - most, 0))


def rooms(artifacts: Sequence[Reviewed]) -> list[Room]:
    """Return how much a page shows of each of its checkpoints."""
    changed = [len(artifact.changed) for artifact in artifacts]
    listed = min(MOST_LISTED, LISTED_OF_PAGE // max(len(artifacts), 1))
    return [
        Room(rows, pictured, flags, groups, listed)
        for rows, pictured, flags, groups in zip(
            parts(changed, ROWS_OF_PAGE),
            parts(changed, PICTURED_OF_PAGE),
            parts([min(len(artifact.flags), MOST_FLAGS) for artifact in artifacts], FLAGS_OF_PAGE),
            parts(
                [min(len(artifact.groups), MOST_GROUPS) for artifact in artifacts], GROUPS_OF_PAGE
            ),
            strict=True,
        )
    ]


def parts(demands: Sequence[int], most: int) -> list[int]:
    """Divide `most` among these demands: equal parts first, then the rest to the first ones."""
    equal = most // max(len(demands), 1)
    shares = [min(count, equal) for count in demands]
    left = most - sum(shares)
    for n, count in enumerate(demands):
        more = min(count - shares[n], left)
        shares[n] += more
        left -= more
    return shares
