"""Risk flags: what in a comparison a reviewer has to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from wtxtgit.errors import counted
from wtxtgit.report.diff import DiffReport, Numbers, Status, TensorDiff
from wtxtgit.report.figures import extents
from wtxtgit.report.review import Flag, LayerGroup, Risk
from wtxtgit.review.outliers import Outlier, unusual_groups, unusual_tensors

MOST_TENSORS = 20
"""Tensors of which a risk is told one by one."""
LEAST_GROUPS = 4
"""Layers that a file has to have for one of them to be a single one."""


def flags_of(report: DiffReport, groups: list[LayerGroup]) -> Iterator[Flag]:
    """What stands out in a comparison of two sides."""
    changed = report.by_change()
    yield from limited(Risk.NEW_NAN, _new(changed, "NaN"))
    yield from limited(Risk.NEW_INF, _new(changed, "Inf"))
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
    removed = report.of(Status.REMOVED)
    yield from limited(Risk.REMOVED, ((t.name, "the tensor is gone") for t in removed))
    yield from limited(Risk.UNREAD, ((t.name, t.reason) for t in changed if t.reason is not None))
    yield from _single(report, groups)
    large = unusual_groups(groups)
    yield from limited(Risk.UNUSUAL, ((None, _told(one, "layers")) for one in large))
    tensors = unusual_tensors(changed, (one.name for one in large))
    yield from limited(
        Risk.UNUSUAL, ((one.name, _told(one, "other layers", with_name=False)) for one in tensors)
    )


def _new(changed: list[TensorDiff], what: str) -> Iterator[tuple[str, str]]:
    for tensor in changed:
        if isinstance(tensor.change, Numbers):
            change = tensor.change
            count = change.new_nan if what == "NaN" else change.new_inf
            if count:
                yield tensor.name, f"{counted(count, 'item')} of {change.elements} became {what}"


def _single(report: DiffReport, groups: list[LayerGroup]) -> Iterator[Flag]:
    """One layer that changed, and nothing else did."""
    changed = [group for group in groups if group.changed]
    others = report.of(Status.ADDED, Status.REMOVED, Status.RENAMED)
    if len(changed) == 1 and len(groups) >= LEAST_GROUPS and not others:
        message = f"{changed[0].name} alone changed, of {len(groups)} layers"
        yield Flag(Risk.SINGLE, message)


def _told(one: Outlier, others: str, *, with_name: bool = True) -> str:
    subject = f"{one.name} changed" if with_name else "changed"
    return (
        f"{subject} {one.times:.3g} times as much as the median of {others}"
        f" (robust z-score {one.score:.1f})"
    )


def limited(risk: Risk, found: Iterable[tuple[str | None, str]]) -> Iterator[Flag]:
    """Flags of one risk: of many tensors the first ones, and how many more there are."""
    left = iter(found)
    for name, message in islice(left, MOST_TENSORS):
        yield Flag(risk, message, name)
    more = sum(1 for _ in left)
    if more:
        yield Flag(risk, f"the same of {counted(more, 'more tensor')}")
