"""Changes that are unusually large among layers: a robust z-score.

The modified z-score of Iglewicz and Hoaglin (1993), of the logarithm of the
relative change: its median and median absolute deviation are not moved by
what is looked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log10
from statistics import median

from wtxtgit.report.diff import Numbers, TensorDiff
from wtxtgit.report.review import LayerGroup
from wtxtgit.review.groups import group_of, role_of

LEAST = 5
"""Changes below which none of them is unusual."""
THRESHOLD = 3.5
"""The score from which a change is unusually large."""
LEAST_SPREAD = 0.1
"""Of log10: layers that change alike within a few percent are no reason to flag a few more."""
_MAD_OF_NORMAL = 0.6745
"""The median absolute deviation of a normal distribution of standard deviation 1."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A change that is `times` the median of those like it, and its score."""

    name: str
    score: float
    times: float


def outliers(changes: Mapping[str, float]) -> list[Outlier]:
    """Choose the relative changes that are unusually large, largest first."""
    logs = {name: log10(change) for name, change in changes.items() if change > 0}
    if len(logs) < LEAST:
        return []
    middle = median(logs.values())
    spread = median(abs(value - middle) for value in logs.values()) / _MAD_OF_NORMAL
    found = []
    for name, value in logs.items():
        score = (value - middle) / max(spread, LEAST_SPREAD)
        if score >= THRESHOLD:
            found.append(Outlier(name, score, 10 ** min(value - middle, 300)))
    return sorted(found, key=lambda one: one.score, reverse=True)


def unusual_groups(groups: Iterable[LayerGroup]) -> list[Outlier]:
    """Among all layers that changed."""
    return outliers({group.name: group.relative_l2 or 0.0 for group in groups})


def unusual_tensors(tensors: Iterable[TensorDiff], but: Iterable[str]) -> Iterator[Outlier]:
    """Among tensors of one role in their layers, those of the groups `but` left out."""
    roles: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for tensor in tensors:
        if isinstance(tensor.change, Numbers):
            roles[role_of(tensor.name)][tensor.name] = tensor.change.relative_l2 or 0.0
    left_out = frozenset(but)
    for changes in roles.values():
        yield from (one for one in outliers(changes) if group_of(one.name) not in left_out)
