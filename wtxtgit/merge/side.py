"""A file of a merge that is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from wtxtgit.containers import Container
from wtxtgit.merge.kinds import kind_of
from wtxtgit.merge.values import is_same
from wtxtgit.model.entries import Content, Entry, Placed

Key = tuple[str, int]
"""An entry's name, and how many of that name came before it."""


@dataclass(slots=True, eq=False)
class Side:
    """A file that is open: its entries by key, its metadata, and what else it has."""

    name: str
    container: Container
    entries: Sequence[Entry]
    values: dict[str, object]
    rest: dict[str, object]
    numbers: dict[Key, int] = field(init=False)

    def __post_init__(self) -> None:
        seen: Counter[str] = Counter()
        self.numbers = {}
        for number, entry in enumerate(self.entries):
            self.numbers[entry.name, seen[entry.name]] = number
            seen[entry.name] += 1

    def entry(self, key: Key) -> Entry | None:
        number = self.numbers.get(key)
        return None if number is None else self.entries[number]

    def placed(self, key: Key, content: Content | None = None) -> Placed:
        return Placed(self.container, self.numbers[key], content)

    def is_built_as(self, other: Side) -> bool:
        """Whether two files differ in what their entries hold alone."""
        forms = [
            [
                (key, side.entries[n].form, kind_of(side.entries[n]))
                for key, n in side.numbers.items()
            ]
            for side in (self, other)
        ]
        return forms[0] == forms[1] and is_same(self.values, other.values)
