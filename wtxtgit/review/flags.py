"""Risk flags: what in a comparison a reviewer has to look at.

Tensors are grouped into layers by the prefix of their names up to the first number. A change is
unusually large by the modified z-score of Iglewicz and Hoaglin (1993), applied to the logarithm of
the relative change: outliers do not move the median and the median absolute deviation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, log10, prod
from statistics import median

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import (
    DiffReport,
    MetadataChange,
    Numbers,
    TensorDiff,
    TensorStatus,
    ValueRisk,
)
from wtxtgit.report.figures import extents
from wtxtgit.report.review import Flag, LayerGroup, Risk
from wtxtgit.review.names import misleading

_NUMBER = re.compile(r"(?:^|(?<=[./]))[0-9]+(?=[./]|$)")
_DIGITS = re.compile(r"[0-9]+")
_AVERAGE = re.compile(r"running_(mean|var)$")
"""What layers of batch norm measure of their inputs."""
_LAST = re.compile(r"[./][^./]*$")


def group_of(name: str) -> str:
    """Return the group of a tensor: `docs/review.md`, section "Layers"."""
    for pattern in (_NUMBER, _DIGITS):
        if match := pattern.search(name):
            return name[: match.end()]
    return _LAST.sub("", name, count=1) or name


def role_of(name: str) -> str:
    """Return the role of a tensor in its layer: its name with `#` for each number."""
    return _DIGITS.sub("#", name)


def groups(report: DiffReport) -> list[LayerGroup]:
    """Return all groups of what was compared, largest change first."""
    layers: defaultdict[str, list[TensorDiff]] = defaultdict(list)
    for tensor in report.tensors:
        layers[group_of(tensor.name)].append(tensor)
    grouped = [_group(name, tensors, report) for name, tensors in layers.items()]
    return sorted(grouped, key=_weight, reverse=True)


def _group(name: str, tensors: list[TensorDiff], report: DiffReport) -> LayerGroup:
    summary = replace(report, tensors=tuple(tensors), metadata=(), notes=()).summary
    changed = summary.counts[TensorStatus.CHANGED] + summary.counts[TensorStatus.UNREAD]
    relative = summary.relative_l2
    if changed and not any(isinstance(tensor.change, Numbers) for tensor in tensors):
        relative = None
    return LayerGroup(
        name,
        len(tensors),
        changed,
        sum(prod(tensor.shape) for tensor in tensors),
        summary.changed_elements,
        summary.l2,
        relative,
        summary.counts[TensorStatus.ADDED],
        summary.counts[TensorStatus.REMOVED],
    )


def _weight(group: LayerGroup) -> tuple[bool, float, int, int]:
    # Changes that can't be measured come first, as in a diff.
    relative = inf if group.relative_l2 is None else group.relative_l2
    return bool(group.changed), relative, group.changed_elements, group.added + group.removed


LEAST_CHANGES = 5
"""With fewer changes than this none is unusual."""
LEAST_SCORE = 3.5
"""The score from which a change is unusually large."""
LEAST_SPREAD = 0.1
"""In log10: layers that change alike within a few percent are no reason to flag some of them."""
_MAD_OF_NORMAL = 0.6745
"""The median absolute deviation of a normal distribution of standard deviation 1."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A change that is `times` the median of comparable ones, and its score."""

    name: str
    score: float
    times: float


def outliers(changes: Mapping[str, float]) -> list[Outlier]:
    """Select the relative changes that are unusually large, largest first."""
    # Zero has no logarithm, and an unchanged tensor is not an outlier.
    logs = {name: log10(change) for name, change in changes.items() if change > 0}
    if len(logs) < LEAST_CHANGES:
        return []
    middle = median(logs.values())
    spread = median(abs(value - middle) for value in logs.values()) / _MAD_OF_NORMAL
    unusual = []
    for name, value in logs.items():
        # Without a floor, if all layers change alike, any slight deviation would be an outlier.
        score = (value - middle) / max(spread, LEAST_SPREAD)
        if score >= LEAST_SCORE:
            # Floats end at about 10 ** 308.
            unusual.append(Outlier(name, score, 10 ** min(value - middle, 300)))
    return sorted(unusual, key=lambda outlier: outlier.score, reverse=True)


def unusual_groups(groups: Iterable[LayerGroup]) -> list[Outlier]:
    """Return outliers among all layers that changed."""
    return outliers({group.name: group.relative_l2 or 0.0 for group in groups})


def unusual_tensors(tensors: Iterable[TensorDiff], but: Iterable[str]) -> Iterator[Outlier]:
    """Yield outliers among tensors with the same role, except those of the groups in `but`."""
    roles: defaultdict[object, dict[str, float]] = defaultdict(dict)
    for tensor in tensors:
        # Optimizers number parameters of all kinds, not layers.
        if isinstance(tensor.change, Numbers) and not tensor.is_of_optimizer:
            # What quantising changes depends on the type.
            role = role_of(tensor.name), tensor.dtype, tensor.base_dtype
            roles[role][tensor.name] = tensor.change.relative_l2 or 0.0
    left_out = frozenset(but)
    for changes in roles.values():
        yield from (
            outlier for outlier in outliers(changes) if group_of(outlier.name) not in left_out
        )


MOST_TENSORS = 20
"""For at most this many tensors a risk is listed one by one."""
LEAST_GROUPS = 4
"""A file needs this many layers for one of them to count as a single one."""


def flags_of(report: DiffReport, groups: list[LayerGroup]) -> Iterator[Flag]:
    """Yield flags for what stands out in a comparison of two sides."""
    changed = report.by_change()
    yield from limited(Risk.DEAD, ((None, message) for message in _dead(report)))
    for risk in ValueRisk:
        concerns = ((t.name, one.message) for t, one in report.concerns if one.risk is risk)
        yield from limited(Risk(risk.value), concerns)
    yield from limited(
        Risk.DTYPE,
        ((t.name, f"{t.base_dtype} -> {t.dtype}") for t in changed if t.base_dtype is not None),
    )
    yield from limited(
        Risk.SHAPE,
        (
            (t.name, f"{extents(t.base_shape)} -> {extents(t.shape)}")
            for t in changed
            if t.base_shape is not None
        ),
    )
    removed = report.of(TensorStatus.REMOVED)
    yield from limited(Risk.REMOVED, ((t.name, "the tensor was removed") for t in removed))
    yield from _renamed(report)
    yield from limited(Risk.UNREAD, ((t.name, t.reason) for t in changed if t.reason is not None))
    yield from limited(Risk.UNREAD, ((None, why) for why in report.unread))
    yield from _single(report, groups)
    # Layers first: a tensor is flagged by itself only if its layer is not. In a model of several
    # quantised types layers change by as much as their types are coarse.
    quantised = {
        group_of(t.name) for t in changed if isinstance(t.change, Numbers) and t.change.is_quantised
    }
    large = _unusual_layers(report, quantised)
    yield from limited(
        Risk.UNUSUAL, ((None, _outlier_message(outlier, "layers")) for outlier in large)
    )
    tensors = unusual_tensors(changed, (outlier.name for outlier in large))
    yield from limited(
        Risk.UNUSUAL,
        (
            (tensor.name, _outlier_message(tensor, "other layers", with_name=False))
            for tensor in tensors
        ),
    )


def _unusual_layers(report: DiffReport, but: Collection[str]) -> list[Outlier]:
    """Return outliers among layers, except those in `but`.

    What a layer has of integers (counters, states of random generators), of running averages and
    of an optimizer's state changes far more than its weights, and is compared by itself.
    """
    kinds: defaultdict[object, list[TensorDiff]] = defaultdict(list)
    for tensor in report.tensors:
        change = tensor.change
        is_integer = (
            isinstance(change, Numbers)
            and change.ulp is None
            and not (change.is_quantised or tensor.base_dtype)
        )
        is_average = _AVERAGE.search(tensor.name) is not None
        kinds[tensor.is_of_optimizer, is_average, is_integer].append(tensor)
    layers = (groups(replace(report, tensors=tuple(alike))) for alike in kinds.values())
    return [
        group for alike in layers for group in unusual_groups(g for g in alike if g.name not in but)
    ]


def _renamed(report: DiffReport) -> Iterator[Flag]:
    """Yield a flag if tensors were renamed: who loads them by their old names finds none."""
    renamed = report.of(TensorStatus.RENAMED)
    if renamed:
        named = [
            f"{clipped(tensor.base_name or '', _MOST_PATH)} is now "
            f"{clipped(tensor.name, _MOST_PATH)}"
            for tensor in renamed[:_MOST_PATHS]
        ]
        more = len(renamed) - len(named)
        shown = f"{', '.join(named)}{f' and {more} more' if more else ''}"
        yield Flag(Risk.REMOVED, f"{counted(len(renamed), 'tensor')} renamed: {shown}")


def _dead(report: DiffReport) -> Iterator[str]:
    """Yield layers in which every matrix became a single repeated number."""
    layers: defaultdict[str, list[TensorDiff]] = defaultdict(list)
    for tensor in report.tensors:
        if len(tensor.shape) > 1 and tensor.status is not TensorStatus.REMOVED:
            layers[group_of(tensor.name)].append(tensor)
    for name, matrices in layers.items():
        # Unchanged tensors were not measured: they count as alive.
        if all(_is_flat(tensor) for tensor in matrices):
            which = "its matrix" if len(matrices) == 1 else f"each of its {len(matrices)} matrices"
            yield f"{name}: {which} is constant"


_MOST_PATHS, _MOST_PATH = 3, 80
"""How many paths of metadata, or renamed tensors, a flag names; the most characters of each."""


def part_flags(report: DiffReport) -> Iterator[Flag]:
    """Yield flags for what differs besides tensors; of metadata for what matters: counters and
    times change with every version.

    Bytes that belong to no part are only flagged if they are at the head: that they are gone is no
    risk.
    """
    yield from limited(Risk.CODE, ((None, message) for message in report.import_messages()), "name")
    yield from limited(
        Risk.REPEATED, ((None, finding.message) for finding in report.repeated), "name"
    )
    yield from limited(Risk.NAME, misleading(report), "name")
    hidden = (
        part for part in report.parts if part.name is None and part.status is TensorStatus.ADDED
    )
    yield from limited(Risk.HIDDEN, ((None, part.message) for part in hidden), "place")
    changed = (
        part
        for part in report.parts
        if part.name is not None or part.status is TensorStatus.CHANGED
    )
    yield from limited(Risk.PART, ((None, part.message) for part in changed), "part")
    matter = [change for change in report.metadata if change.matters]
    if matter:
        yield Flag(Risk.METADATA, _shown_metadata(matter))


def _shown_metadata(changes: Sequence[MetadataChange]) -> str:
    """Return `3 values: changed /a, added /b and 1 more`."""
    named = [
        f"{change.kind} {clipped(change.path, _MOST_PATH)}" for change in changes[:_MOST_PATHS]
    ]
    more = len(changes) - len(named)
    return (
        f"{counted(len(changes), 'value')}: {', '.join(named)}{f' and {more} more' if more else ''}"
    )


def _is_flat(tensor: TensorDiff) -> bool:
    return any(concern.risk in (ValueRisk.ZERO, ValueRisk.CONSTANT) for concern in tensor.concerns)


def _single(report: DiffReport, groups: list[LayerGroup]) -> Iterator[Flag]:
    """Yield a flag if exactly one layer changed, and nothing else."""
    changed = [group for group in groups if group.changed]
    others = report.of(TensorStatus.ADDED, TensorStatus.REMOVED, TensorStatus.RENAMED)
    if len(changed) == 1 and len(groups) >= LEAST_GROUPS and not others:
        message = f"{changed[0].name} alone changed, of {len(groups)} layers"
        yield Flag(Risk.SINGLE, message)


def _outlier_message(outlier: Outlier, others: str, *, with_name: bool = True) -> str:
    subject = f"{outlier.name} changed" if with_name else "changed"
    return (
        f"{subject} {_times(outlier.times)} times as much as the median of {others} "
        f"(robust z-score {outlier.score:.1f})"
    )


def _times(factor: float) -> str:
    """Format a factor with three digits, without an exponent up to a million."""
    return f"{factor:,.0f}" if 1000 <= factor < 1_000_000 else f"{factor:.3g}"


def limited(
    risk: Risk, reasons: Iterable[tuple[str | None, str]], noun: str = "tensor"
) -> Iterator[Flag]:
    """Yield flags of one risk: for the first tensors, and how many more there are."""
    left = iter(reasons)
    for name, message in islice(left, MOST_TENSORS):
        yield Flag(risk, message, name)
    more = sum(1 for _ in left)
    if more:
        yield Flag(risk, f"the same for {counted(more, f'more {noun}')}")
