"""Three-way merge of metadata: plain data, key by key of its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wtxtgit.errors import MAX_NAME, clipped
from wtxtgit.report.merge import Strategy

_ABSENT = object()
"""In the place of a value that a side has not."""

Choose = Callable[[str], Strategy]
"""Says of a JSON pointer (RFC 6901) what is done where both sides changed it."""


@dataclass(slots=True)
class MergedValues:
    """The merged data; pointers that stay open, and those settled: (pointer, how)."""

    value: dict[str, object]
    open: list[str] = field(default_factory=list)
    settled: list[tuple[str, str]] = field(default_factory=list)


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
    """Whether two values are the same to the type: 1 is not 1.0, and NaN is NaN."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
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
                self.found.settled.append((path, "equal"))
            return ours
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            # Objects that both added are merged as well.
            before = base if isinstance(base, Mapping) else {}
            return self._object(path, before, ours, theirs)
        if is_same(base, ours):
            self.found.settled.append((path, "theirs"))
            return theirs
        if is_same(base, theirs):
            self.found.settled.append((path, "ours"))
            return ours
        choice = self.choose(path)
        if choice is Strategy.FAIL:
            self.found.open.append(path)
            return ours
        how = "ours" if choice in {Strategy.AVERAGE, Strategy.TASK} else str(choice)
        self.found.settled.append((path, how))
        return {"theirs": theirs, "base": base}.get(how, ours)

    def _object(
        self,
        path: str,
        base: Mapping[str, object],
        ours: Mapping[str, object],
        theirs: Mapping[str, object],
    ) -> dict[str, object]:
        merged: dict[str, object] = {}
        for key in _in_order(ours, theirs):
            below = f"{path}/{_escaped(key)}"
            sides = (side.get(key, _ABSENT) for side in (base, ours, theirs))
            value = self.merge(below, *sides)
            if value is not _ABSENT:
                merged[key] = value
        return merged


def _in_order(ours: Mapping[str, object], theirs: Mapping[str, object]) -> Iterator[str]:
    """Our keys in their order, each followed by what theirs have behind it."""
    behind: dict[str | None, list[str]] = {}
    last: str | None = None
    for key in theirs:
        if key in ours:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    yield from behind.get(None, ())
    for key in ours:
        yield key
        yield from behind.get(key, ())


def _escaped(key: str) -> str:
    """A key in a JSON pointer."""
    return clipped(key, MAX_NAME).replace("~", "~0").replace("/", "~1")
