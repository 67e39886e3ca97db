"""The result of a three-way merge of checkpoints, as data: the contract of `merge-file --json`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wtxtgit.model.plain import JsonObject


class Strategy(StrEnum):
    """What is done if both sides changed the same rows, values or bytes.

    BASE is not a strategy for a whole merge; only single entries can be settled with it.
    """

    FAIL = "fail"
    OURS = "ours"
    THEIRS = "theirs"
    AVERAGE = "average"
    TASK = "task"
    BASE = "base"


class MergedKind(StrEnum):
    """What is merged: a tensor, a file in a chunk or member, a value of the metadata, or all."""

    TENSOR = "tensor"
    PART = "part"
    METADATA = "metadata"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Conflict(JsonObject):
    """Something that both sides changed, and that is not settled.

    `name` is what `resolve --take` calls it. `rows` counts the rows that differ and `ranges` gives
    them as (first, last + 1): all of them, and no others if `exact`; None if it is not about rows.
    """

    KEYS = "name kind reason rows? row_ranges=ranges? row_ranges_exact?"

    name: str
    kind: MergedKind
    reason: str
    rows: int | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    exact: bool = True

    @property
    def row_ranges_exact(self) -> bool | None:
        return None if self.ranges is None else self.exact


@dataclass(frozen=True, slots=True)
class Settled(JsonObject):
    """Something that a side changed, and what of it is in the result.

    `how` is "ours" or "theirs" (which is in the result), "both" (rows of either side), "equal"
    (both made the same change), "base", "average" or "task". For values that every writer sets
    again it is "later" (of two times), "larger" (of two counts) or "measured" (ours, as before the
    merge). `strategy` is what decided it if both sides changed it; None if only one side did, if
    each changed something else of it, or if a rule decided.
    """

    KEYS = "name kind how strategy?"

    name: str
    kind: MergedKind
    how: str
    strategy: Strategy | None = None


@dataclass(frozen=True, slots=True)
class MergeReport(JsonObject):
    """The result of merging one file.

    `taken` is the side that the result equals byte for byte ("ours", "theirs", or "base" if that
    was asked for); None if it was put together, or if there are conflicts. `format` is "" if
    nothing was parsed, because only one side changed the file.
    """

    KEYS = "ok format taken merged=settled conflicts notes"

    format: str
    taken: str | None = None
    settled: tuple[Settled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.conflicts

    @property
    def decided(self) -> tuple[Settled, ...]:
        """What both sides changed, and a strategy or a decision settled."""
        return tuple(change for change in self.settled if change.strategy is not None)
