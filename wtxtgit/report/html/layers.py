"""Change by layer group, and how it is spread over the tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, log10

from markupsafe import Markup

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import Numbers, TensorDiff
from wtxtgit.report.figures import NONE, percent
from wtxtgit.report.html import svg
from wtxtgit.report.html.bounds import MOST_NAME, Listed, first
from wtxtgit.report.html.tensors import Cell, Picture
from wtxtgit.report.review import LayerGroup
from wtxtgit.report.review_figures import layer_change, layer_tensors

_BINS = 4
"""For each power of ten."""
_MOST_DECADES = 12
"""What changed less is drawn in the lowest bin."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A layer group: a bar for its relative change, and cells: relative, elements, tensors."""

    name: str
    bar: Markup
    cells: tuple[Cell, Cell, Cell]


def group_chart(groups: Sequence[LayerGroup], shown: int) -> Listed[GroupLine]:
    """A bar for each of the first groups, as long as it changed by its own size."""
    known = [group.relative_l2 for group in groups if group.relative_l2 is not None]
    most = max((value for value in known if isfinite(value)), default=0.0)
    return first(groups, shown).each(lambda group: _line(group, most))


def spread(tensors: Sequence[TensorDiff]) -> Picture | None:
    """How many tensors changed by how much, on a logarithmic axis; None below two of them."""
    found = [
        log10(t.change.relative_l2)
        for t in tensors
        if isinstance(t.change, Numbers) and t.change.relative_l2
    ]
    found = [value for value in found if isfinite(value)]
    if len(found) < 2:
        return None
    # The end is open: what is on it belongs into the next bin.
    high = floor(max(found)) + 1
    low = max(floor(min(found)), high - _MOST_DECADES)
    counts = Counter(max(floor((value - low) * _BINS), 0) for value in found)
    bars = [(counts[n], _said(low + n / _BINS, counts[n])) for n in range((high - low) * _BINS)]
    step = -(-(high - low) // svg.MOST_TICKS)
    ticks = [
        svg.Tick((power - low) / (high - low), percent(10.0**power))
        for power in range(low, high + 1, step)
    ]
    title = "Relative change of the tensors"
    return Picture(title, svg.columns(title, bars, ticks))


def _line(group: LayerGroup, most: float) -> GroupLine:
    relative = group.relative_l2
    length, measured = 0.0, (Cell(NONE, None), Cell(NONE, None))
    if group.is_measured:
        length = 1.0 if relative is None else relative / most if most else 0.0
        share = group.changed_elements / group.elements if group.elements else 0.0
        key = inf if relative is None else relative
        measured = (Cell(layer_change(group), key), Cell(percent(share), share))
    touched = group.changed + group.added + group.removed
    tensors = Cell(layer_tensors(group), touched)
    return GroupLine(clipped(group.name, MOST_NAME), svg.bar(length), (*measured, tensors))


def _said(exponent: float, tensors: int) -> str:
    low, high = (percent(10.0**e) for e in (exponent, exponent + 1 / _BINS))
    return f"{low} to {high}: {counted(tensors, 'tensor')}"
