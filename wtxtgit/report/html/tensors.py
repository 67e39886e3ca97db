"""A changed tensor as a page shows it: its row in a table, and its details with pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import hypot, inf
from typing import Any

from markupsafe import Markup

from wtxtgit.errors import clipped, counted
from wtxtgit.report import tables
from wtxtgit.report.diff import ByteChange, Numbers, RowBlocks, RowFacts, SideFacts, TensorDiff
from wtxtgit.report.figures import NONE, count, extents, number, percent
from wtxtgit.report.html import svg
from wtxtgit.report.html.bounds import MOST_NAME, MOST_TEXT, MOST_VALUE
from wtxtgit.report.review import Distributions, Flag, Histogram, chips
from wtxtgit.report.tables import (
    ChangeCell,
    Json,
    Measure,
    Name,
    Share,
    l2_cell,
    max_cell,
    relative_cell,
    share_cell,
)

MOST_CELLS, FEW_CELLS = 32, 16
"""The most cells of a picture of rows, and the most if there are many pictures."""
_MOST_RANGES = 8
_MOST_PLAIN = 16
_RAISED = str.maketrans(
    "0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
Shown = Mapping[str, Any]
"""What the template shows, by the names that it uses; it refuses a missing one."""
COLUMNS = ("Tensor", "Relative", "Elements", "Rows", "L2", "Max")
"""Columns of the table; the cosine is only shown for the tensor that is chosen."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell, and the number that it is sorted by; None sorts last.

    `svg` is a drawing shown instead of the text.
    """

    text: str
    key: float | None
    svg: Markup | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its title, words below it and a legend of classes.

    `half` allows another picture beside it.
    """

    title: str
    svg: Markup
    notes: tuple[str, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    half: bool = False


def row(tensor: TensorDiff, flags: Sequence[Flag], target: str | None) -> Shown:
    """Return the tensor's row in the table, with the risks that `flags` name.

    `target` is the id of its details, None if the page does not have them.
    """
    return {
        "name": _name(tensor),
        "kind": _kind(tensor),
        "chips": chips(flags),
        "cells": _cells(tensor),
        "target": target,
    }


def detail(
    tensor: TensorDiff,
    flags: Sequence[Flag],
    values: Distributions | None,
    target: str,
    cells: int = MOST_CELLS,
) -> Shown:
    """Return the tensor's details; without `values` there are no histograms.

    The picture of its rows has at most `cells` cells.
    """
    change = tensor.change
    return {
        "target": target,
        "name": _name(tensor),
        "kind": _kind(tensor),
        "chips": chips(flags),
        "facts": list(_facts(tensor)),
        "sides": list(_sides(change.before, change.after)) if isinstance(change, Numbers) else [],
        "pictures": list(_pictures(tensor, values, cells)),
        "reason": f"Not compared: {clipped(tensor.reason, MOST_TEXT)}" if tensor.reason else "",
    }


def _name(tensor: TensorDiff) -> str:
    return clipped(tensor.name, MOST_NAME)


def _kind(tensor: TensorDiff) -> str:
    """Return dtype and shape, before and after if they differ."""
    dtype, shape = tensor.dtype, extents(tensor.shape)
    if tensor.base_dtype is not None:
        dtype = f"{tensor.base_dtype} \u2192 {dtype}"
    if tensor.base_shape is not None:
        shape = f"{extents(tensor.base_shape)} \u2192 {shape}"
    return clipped(f"{dtype}, {shape}", MOST_TEXT)


def _cells(tensor: TensorDiff) -> tuple[Cell, ...]:
    relative, share = page_cell(relative_cell(tensor)), page_cell(share_cell(tensor))
    if relative.key is None:
        # A change that can't be measured sorts first.
        relative = Cell(relative.text, inf)
    rows = Cell(NONE, None)
    if tensor.change is not None and (changed := tensor.change.rows) is not None:
        words = f"{count(changed.changed)} / {count(changed.rows)}"
        rows = Cell(words, changed.changed / changed.rows)
    return relative, share, rows, page_cell(l2_cell(tensor)), page_cell(max_cell(tensor))


def page_cell(cell: tables.Cell) -> Cell:
    """Convert a cell of a report to a cell of a page, with the number that it is sorted by."""
    match cell:
        case None:
            return Cell(NONE, None)
        case Share():
            return Cell(percent(cell.value), cell.value)
        case Measure():
            return Cell(number(cell.value), cell.value)
        case ChangeCell():
            before, after = (page_cell(side).text for side in cell)
            return Cell(f"{before} \u2192 {after}", None)
        case Json():
            return Cell(clipped(cell, MOST_VALUE), None)
        case Name():
            return Cell(clipped(cell, MOST_NAME), None)
    return Cell(str(cell), None)


def _facts(tensor: TensorDiff) -> Iterator[tuple[str, str]]:
    change = tensor.change
    if change is None:
        return
    share = percent(change.changed_share)
    if isinstance(change, ByteChange):
        yield "Bytes changed", f"{count(change.changed)} of {count(change.nbytes)} ({share})"
        what = "bytes and scales" if change.compared_by == "scales" else "bytes"
        yield "Compared by", f"{what}, not by value"
    else:
        relative = change.relative_l2
        words = "from 0" if relative is None else percent(relative)
        # A tensor with new NaN would otherwise seem to be what it was.
        of = ", finite items only" if change.new_nan or change.new_inf else ""
        yield "Relative L2", f"{words} (L2 {number(change.l2)}{of})"
        yield "Cosine", NONE if change.cosine is None else f"{change.cosine:.6f}"
        at = ", ".join(map(str, change.max_abs_at or ()))
        yield "Largest change", number(change.max_abs) + (f" at [{at}]" if at else "")
        yield "Elements changed", f"{count(change.changed)} of {count(change.elements)} ({share})"
        yield "Sign flips", count(change.sign_flips)
        if change.scales is not None:
            scales = change.scales
            yield "Bytes changed", f"{count(scales.changed_bytes)} of {count(scales.nbytes)}"
        if change.new_nan or change.new_inf:
            yield "New NaN, new Inf", f"{count(change.new_nan)}, {count(change.new_inf)}"
    if change.rows is not None:
        yield "Rows changed", f"{count(change.rows.changed)} of {count(change.rows.rows)}"


def _ranges(rows: RowFacts) -> str:
    spans = [str(a) if b == a + 1 else f"{a}\u2013{b - 1}" for a, b in rows.ranges[:_MOST_RANGES]]
    noun = "Row" if rows.changed == 1 else "Rows" if rows.exact else "Within rows"
    words = f"{noun} {', '.join(spans)}"
    more = len(rows.ranges) - len(spans)
    return f"{words} and {counted(more, 'more range')}" if more > 0 else words


def _sides(before: SideFacts, after: SideFacts) -> Iterator[tuple[str, str, str]]:
    yield "Mean", number(before.mean), number(after.mean)
    yield "Deviation", number(before.std), number(after.std)
    yield "Zeros", percent(before.zeros_share), percent(after.zeros_share)
    yield "NaN", count(before.nan), count(after.nan)
    yield "Inf", count(before.inf), count(after.inf)


def _pictures(tensor: TensorDiff, values: Distributions | None, cells: int) -> Iterator[Picture]:
    change = tensor.change
    if change is None:
        return
    if change.rows is not None and change.rows.changed:
        yield _heat_map(change.rows, cells)
    if values is not None:
        yield from _histograms(values)
    if isinstance(change, Numbers) and change.ulp:
        yield _ulp(change.ulp)


def _fewer(blocks: RowBlocks, most: int) -> RowBlocks:
    """Merge row blocks into at most `most`: a page has many pictures, and may be sent by mail."""
    while len(blocks.changed_rows) > most:
        changed, l2 = blocks.changed_rows, blocks.l2
        pairs = range(0, len(changed), 2)
        blocks = RowBlocks(
            2 * blocks.rows,
            tuple(sum(changed[n : n + 2]) for n in pairs),
            None if l2 is None else tuple(hypot(*l2[n : n + 2]) for n in pairs),
        )
    return blocks


def _heat_map(rows: RowFacts, most: int) -> Picture:
    blocks = _fewer(rows.blocks, most)
    heights = [
        min(blocks.rows, rows.rows - n * blocks.rows) for n in range(len(blocks.changed_rows))
    ]
    shares = [
        changed / height for changed, height in zip(blocks.changed_rows, heights, strict=True)
    ]
    lanes = [svg.Lane("Rows changed", f"up to {percent(max(shares))}", shares)]
    if blocks.l2 is not None and any(blocks.l2):
        lanes.append(svg.Lane("L2", f"up to {number(max(blocks.l2))}", blocks.l2))
    cells = []
    for n, (height, end) in enumerate(zip(heights, accumulate(heights), strict=True)):
        first = end - height
        words = f"row {first}" if height == 1 else f"rows {first}\u2013{end - 1}"
        words += f": {blocks.changed_rows[n]} changed"
        if blocks.l2 is not None:
            words += f", L2 {number(blocks.l2[n])}"
        cells.append((height / rows.rows, words))
    cut = "row by row" if blocks.rows == 1 else f"blocks of {count(blocks.rows)} rows"
    title = f"Where it changed: {cut}"
    notes = (_ranges(rows),) if rows.changed < rows.rows else ()
    return Picture(title, svg.heat_map(title, lanes, cells, svg.ticks(0, rows.rows)), notes)


def _histograms(values: Distributions) -> Iterator[Picture]:
    before, after = values.before, values.after
    title = "Values"
    steps = [
        svg.StepChart("before", before.counts),
        svg.StepChart("after", after.counts, filled=False),
    ]
    notes = (*outside(before, "Before: "), *outside(after, "After: "))
    legend = (("before", "before"), ("after", "after"))
    drawn = svg.histogram(title, steps, svg.ticks(after.low, after.high))
    yield Picture(title, drawn, notes, legend)
    change = values.change
    if any(change.counts) or change.below or change.above:
        title = "Element changes"
        steps = [svg.StepChart("change", change.counts)]
        drawn = svg.histogram(title, steps, svg.ticks(change.low, change.high))
        yield Picture(title, drawn, tuple(outside(change, "")), half=True)


def outside(histogram: Histogram, side: str) -> Iterator[str]:
    """Yield words on what the histogram's axis leaves out."""
    sides = (("below", histogram.below), ("above", histogram.above))
    words = " and ".join(f"{count(items)} {where}" for where, items in sides if items)
    if words:
        yield f"{side}{words} the axis"


def _ulp(buckets: Sequence[tuple[int, int]]) -> Picture:
    """Draw columns for 0, 1, 2-3, 4-7 and so on up to the farthest, including empty ones."""
    counts = {least.bit_length(): changed for least, changed in buckets}
    bars = [
        (counts.get(bits, 0), f"{_distance(bits)}: {count(counts.get(bits, 0))}")
        for bits in range(max(counts) + 1)
    ]
    width = 1 / len(bars)
    step = -(-len(bars) // svg.MOST_TICKS)
    ticks = [svg.Tick((bits + 0.5) * width, _power(bits)) for bits in range(0, len(bars), step)]
    title = "Distance in ULPs"
    return Picture(title, svg.columns(title, bars, ticks), half=True)


def _power(bits: int) -> str:
    """Format the least value of a bucket: 0, 1, 2, 4, 8, 16, 2⁵."""
    plain = 1 << bits >> 1
    return str(plain) if plain <= _MOST_PLAIN else f"2{str(bits - 1).translate(_RAISED)}"


def _distance(bits: int) -> str:
    least, most = 1 << bits >> 1, (1 << bits) - 1
    return str(most) if bits < 2 else f"{least}\u2013{most}"
