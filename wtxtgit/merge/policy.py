"""What decides where both sides changed the same thing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

from wtxtgit.errors import MAX_NAME, UsageError, clipped
from wtxtgit.report.merge import MergeReport, Strategy

WHOLE = "*"
"""What a conflict about a whole file is called: the pattern that takes everything."""


_PATTERN = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class Policy:
    """The strategy, and what single things are settled with: (name or pattern, strategy).

    A name wins over patterns, of patterns the last one that matches.
    """

    strategy: Strategy = Strategy.FAIL
    takes: tuple[tuple[str, Strategy], ...] = ()
    _exact: dict[str, Strategy] = field(init=False)
    _patterns: list[tuple[str, Strategy]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", dict(self.takes))
        patterns = [take for take in reversed(self.takes) if _PATTERN.search(take[0])]
        object.__setattr__(self, "_patterns", patterns)

    def choose(self, name: str) -> Strategy:
        """The strategy for what is called `name`."""
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        globbed = (how for pattern, how in self._patterns if fnmatchcase(name, pattern))
        return next(globbed, self.strategy)


def check_takes(takes: Sequence[tuple[str, Strategy]], report: MergeReport) -> None:
    """Raise UsageError for a name or pattern that fits nothing in the report of their merge."""
    names = [one.name for one in report.settled] + [one.name for one in report.conflicts]
    for wanted, _ in takes:
        # A side that is taken whole leaves nothing that could have been settled.
        if names and not any(name == wanted or fnmatchcase(name, wanted) for name in names):
            near = get_close_matches(wanted, names, n=1, cutoff=0.5)
            meant = f", did you mean {clipped(near[0], MAX_NAME)!a}?" if near else ""
            raise UsageError(
                f"the two sides differ in nothing that is called {wanted[:80]!a}{meant}",
                hint="wtxtgit resolve PATH lists what is open",
            )


def parse_strategy(text: str) -> Strategy:
    """A strategy of a merge by its name; raises UsageError."""
    try:
        found = Strategy(text)
    except ValueError:
        found = Strategy.BASE
    if found is Strategy.BASE:
        names = ", ".join(s for s in Strategy if s is not Strategy.BASE)
        raise UsageError(f"merge strategy {text[:40]!a} is none of {names}")
    return found


def parse_takes(texts: Iterable[str]) -> tuple[tuple[str, Strategy], ...]:
    """NAME=SIDE for each; a name may have `=` in it. Raises UsageError."""
    found = []
    for text in texts:
        name, equals, side = text.rpartition("=")
        if not equals or side not in set(Strategy) - {Strategy.FAIL}:
            sides = ", ".join(s for s in Strategy if s is not Strategy.FAIL)
            raise UsageError(f"{text[:80]!a} is no NAME=SIDE with a side of {sides}")
        found.append((name, Strategy(side)))
    return tuple(found)
