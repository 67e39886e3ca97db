"""Three-way merge of metadata: plain data, key by key of its objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wtxtgit.merge.order import in_order
from wtxtgit.report.merge import Strategy

_ABSENT = object()
"""In the place of a value that a side has not."""

Choose = Callable[[str], Strategy]
"""Says of a JSON pointer (RFC 6901) what is done where both sides changed it."""


@dataclass(slots=True)
class MergedValues:
    """The merged data; pointers that stay open, and those settled.

    Those are (pointer, how, the strategy that decided it or None).
    """

    value: dict[str, object]
    open: list[str] = field(default_factory=list)
    settled: list[tuple[str, str, Strategy | None]] = field(default_factory=list)


def merge_values(
    base: Mapping[str, object] | None,
    ours: Mapping[str, object],
    theirs: Mapping[str, object],
    choose: Choose,
) -> MergedValues:
    """Merge the metadata of two files; without `base` all that differs was changed by both.

    average and task say nothing of values that are no tensors: ours stays.
    """
    found = MergedValues({})
    merged = _Values(choose, found).merge("", base or {}, ours, theirs)
    found.value = merged if isinstance(merged, dict) else dict(ours)
    return found


def is_same(a: object, b: object) -> bool:
    """Whether two values are the same to the type: 1 is not 1.0, and NaN is NaN.

    The order of an object's keys says nothing.
    """
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if type(a) is not type(b):
        return False
    return a == b or (a != a and b != b)


@dataclass(frozen=True, slots=True)
class _Values:
    choose: Choose
    found: MergedValues

    def merge(self, path: str, base: object, ours: object, theirs: object) -> object:
        """What becomes of a value, _ABSENT where it goes."""
        if is_same(ours, theirs):
            if not is_same(base, ours):
                self.found.settled.append((path, "equal", None))
            return ours
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            # Objects that both added are merged as well.
            before = base if isinstance(base, Mapping) else {}
            return self._object(path, before, ours, theirs)
        if is_same(base, ours):
            self.found.settled.append((path, "theirs", None))
            return theirs
        if is_same(base, theirs):
            self.found.settled.append((path, "ours", None))
            return ours
        choice = self.choose(path)
        if choice is Strategy.FAIL:
            self.found.open.append(path)
            return ours
        how = "ours" if choice in {Strategy.AVERAGE, Strategy.TASK} else str(choice)
        self.found.settled.append((path, how, choice))
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
            below = f"{path}/{_escaped(key)}"
            sides = (side.get(key, _ABSENT) for side in (base, ours, theirs))
            value = self.merge(below, *sides)
            if value is not _ABSENT:
                merged[key] = value
        return merged


def _escaped(key: str) -> str:
    """A key in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
