"""What decides a merge: a change by only one side is taken, otherwise the strategy decides.

Also merges plain data by these rules. Git starts a driver for each file of a merge, and for most
files `side_taken` is all that runs: nothing slow is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from wtxtgit.errors import MAX_NAME, UsageError, clipped
from wtxtgit.io.view import ByteView, same_bytes
from wtxtgit.model.plain import equal_values, pointer_part
from wtxtgit.report.merge import MergeReport, Strategy

WHOLE = "*"
"""The name of a conflict about a whole file: the pattern that matches everything."""
_PATTERN = re.compile(r"[*?[]")


def side_taken(base: ByteView | None, ours: ByteView, theirs: ByteView) -> str | None:
    """Return the side to take if only one side changed a content, or if both sides are the same.

    Returns None if the sides differ and both changed it. Without a base both sides added it.
    """
    if same_bytes(ours, theirs):
        return "ours"
    if base is None:
        return None
    if same_bytes(base, theirs):
        return "ours"
    return "theirs" if same_bytes(base, ours) else None


def stored_side_taken(base: ByteView, ours: ByteView, theirs: ByteView) -> str | None:
    """Do the same for contents as git stores them, where an empty base mostly means no base."""
    # If theirs is empty as well, theirs changed nothing, whatever the empty base means.
    is_base = len(base) > 0 or len(theirs) == 0
    return side_taken(base if is_base else None, ours, theirs)


@dataclass(frozen=True, slots=True)
class Policy:
    """The strategy, and exceptions for single entries: (name or pattern, strategy).

    A name wins over patterns; among patterns the last one that matches wins.
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
        """Return the strategy for the entry called `name`."""
        # An exact name wins, even if it contains the characters of a pattern.
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        globbed = (how for pattern, how in self._patterns if fnmatchcase(name, pattern))
        return next(globbed, self.strategy)


def check_takes(takes: Sequence[tuple[str, Strategy]], report: MergeReport) -> None:
    """Raise UsageError for a name or pattern that matches nothing in the report of its merge."""
    names = [one.name for one in report.settled] + [one.name for one in report.conflicts]
    for pattern, _ in takes:
        # If a side is taken whole there is nothing to be settled.
        if names and not any(name == pattern or fnmatchcase(name, pattern) for name in names):
            from difflib import get_close_matches

            matches = get_close_matches(pattern, names, n=1, cutoff=0.5)
            suggestion = f", did you mean {clipped(matches[0], MAX_NAME)!a}?" if matches else ""
            raise UsageError(
                f"no difference between the two sides is named {pattern[:80]!a}{suggestion}",
                hint="wtxtgit resolve PATH lists the open conflicts",
            )


def parse_strategy(text: str) -> Strategy:
    """Return the strategy of this name; raises UsageError."""
    try:
        strategy = Strategy(text)
    except ValueError:
        # BASE is not allowed for a whole merge either, so unknown words are treated as BASE.
        strategy = Strategy.BASE
    if strategy is Strategy.BASE:
        names = ", ".join(s for s in Strategy if s is not Strategy.BASE)
        raise UsageError(f"merge strategy {text[:40]!a} is not one of {names}")
    return strategy


def parse_takes(texts: Iterable[str]) -> tuple[tuple[str, Strategy], ...]:
    """Parse NAME=SIDE, in which the name may contain `=`; raises UsageError."""
    takes = []
    for text in texts:
        # Split from the right: names of tensors may contain an equals sign.
        name, equals, side = text.rpartition("=")
        if not equals or side not in set(Strategy) - {Strategy.FAIL}:
            sides = ", ".join(s for s in Strategy if s is not Strategy.FAIL)
            raise UsageError(f"{text[:80]!a} is not NAME=SIDE, where SIDE is one of {sides}")
        takes.append((name, Strategy(side)))
    return tuple(takes)


_ABSENT = object()
"""Stands for a value that a version does not have."""
_NOT_FOR_VALUES = frozenset({Strategy.FAIL, Strategy.AVERAGE, Strategy.TASK})
"""Strategies that choose no side, and so do not apply to values."""


@dataclass(frozen=True, slots=True)
class ValueMerge:
    """Three-way merge of metadata: plain data, key by key in its objects.

    `choose` returns the strategy for a JSON pointer (RFC 6901) at which both sides changed
    something. After the merge, `open` has the pointers that nothing decides, and `settled` has
    (pointer, how, the strategy that decided it or None). A `rule` is applied before a strategy that
    says nothing about values; it returns the value to take and a name for how it was chosen.
    """

    choose: Callable[[str], Strategy]
    rule: Callable[[str, object, object], tuple[object, str] | None] = lambda *_: None
    open: list[str] = field(default_factory=list)
    settled: list[tuple[str, str, Strategy | None]] = field(default_factory=list)

    def merge(
        self,
        base: Mapping[str, object] | None,
        ours: Mapping[str, object],
        theirs: Mapping[str, object],
    ) -> dict[str, object]:
        """Merge the metadata of two files; without `base` both sides changed all that differs.

        average and task do not apply to values that are not tensors: ours stays.
        """
        merged = self._value("", base or {}, ours, theirs)
        return merged if isinstance(merged, dict) else dict(ours)

    def _value(self, path: str, base: object, ours: object, theirs: object) -> object:
        """Return the merged value, _ABSENT if it is dropped."""
        if equal_values(ours, theirs):
            if not equal_values(base, ours):
                self.settled.append((path, "equal", None))
            return ours
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            # Objects that both sides added are merged too.
            return self._object(path, base if isinstance(base, Mapping) else {}, ours, theirs)
        if equal_values(base, ours):
            self.settled.append((path, "theirs", None))
            return theirs
        if equal_values(base, theirs):
            self.settled.append((path, "ours", None))
            return ours
        choice = self.choose(path)
        if choice in _NOT_FOR_VALUES and _ABSENT not in (ours, theirs):
            ruled = self.rule(path, ours, theirs)
            if ruled is not None:
                self.settled.append((path, ruled[1], None))
                return ruled[0]
        if choice is Strategy.FAIL:
            self.open.append(path)
            return ours
        how = "ours" if choice in {Strategy.AVERAGE, Strategy.TASK} else str(choice)
        self.settled.append((path, how, choice))
        return {"theirs": theirs, "base": base}.get(how, ours)

    def _object(
        self,
        path: str,
        base: Mapping[str, object],
        ours: Mapping[str, object],
        theirs: Mapping[str, object],
    ) -> dict[str, object]:
        merged: dict[str, object] = {}
        for key in in_order(ours, theirs):
            below = f"{path}/{pointer_part(key)}"
            versions = (version.get(key, _ABSENT) for version in (base, ours, theirs))
            value = self._value(below, *versions)
            if value is not _ABSENT:
                merged[key] = value
        return merged


_Key = TypeVar("_Key", bound=Hashable)


def in_order(mine: Iterable[_Key], other: Iterable[_Key]) -> Iterator[_Key]:
    """Yield one side's keys in order, each followed by the other's keys that come after it."""
    keys = dict.fromkeys(mine)
    following: dict[_Key | None, list[_Key]] = {}
    last: _Key | None = None
    for key in other:
        if key in keys:
            last = key
        else:
            following.setdefault(last, []).append(key)
    yield from following.get(None, ())
    for key in keys:
        yield key
        yield from following.get(key, ())
