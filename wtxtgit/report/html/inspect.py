"""What a checkpoint holds, as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod

from wtxtgit.errors import clipped, counted
from wtxtgit.report.figures import (
    HASH_SHOWN,
    NONE,
    count,
    extents,
    in_natural_order,
    number,
    percent,
    size,
)
from wtxtgit.report.html import svg
from wtxtgit.report.html.bounds import (
    LISTED_OF_PAGE,
    MOST_NAME,
    MOST_TEXT,
    MOST_VALUE,
    ROWS_OF_PAGE,
    first,
)
from wtxtgit.report.html.page import rendered
from wtxtgit.report.html.tensors import Cell, Picture, Shown, outside
from wtxtgit.report.inspect import Inspection, TensorFacts, TensorPicture
from wtxtgit.report.review import Chip

_COLUMNS = ("Tensor", "Size", "Least", "Largest", "Mean", "Deviation", "Zeros", "NaN, Inf")


def page(inspection: Inspection) -> str:
    """Return the page, a pure function of the inspection."""
    path = clipped(inspection.path, MOST_NAME)
    listed = sorted(inspection.tensors, key=lambda tensor: in_natural_order(tensor.name))
    targets = {
        id(tensor): f"c0-t{number}"
        for number, tensor in enumerate(t for t in listed if t.picture is not None)
    }
    details = [_detail(t, targets[id(t)]) for t in listed if id(t) in targets]
    rows = first(listed, ROWS_OF_PAGE).each(lambda one: _row(one, targets.get(id(one))))
    reasons = [inspection.reason] if inspection.reason is not None else []
    parts = [part for part in inspection.parts if not part.is_gap and part.kind != "tensor"]
    return rendered(
        "inspect.html",
        {
            "title": f"Checkpoint {path}",
            "kind": "Checkpoint",
            "path": path,
            "totals": list(_totals(inspection)),
            "chips": (),
            "notes": first((*reasons, *inspection.notes), LISTED_OF_PAGE).each(_text),
            "table": {
                "title": "Tensors",
                "noun": "tensors",
                "columns": _COLUMNS,
                "sorted_by": None,
                "rows": rows,
                "details": details,
                "pictured": f"The {len(details)} largest have pictures.",
            },
            "parts": first(parts, LISTED_OF_PAGE).each(
                lambda part: (
                    clipped(part.array or part.name or part.kind, MOST_NAME),
                    _text(part.detail or (part.name or "")),
                    size(part.size),
                    count(part.offset),
                )
            ),
            "metadata": first(list(_leaves("", inspection.metadata)), LISTED_OF_PAGE),
            "filter": {"placeholder": "Tensor, dtype or shape", "noun": "tensors"}
            if len(listed) > 1
            else None,
        },
    )


def _text(words: str) -> str:
    return clipped(words, MOST_TEXT)


def _totals(inspection: Inspection) -> Iterator[tuple[str, str]]:
    tensors = inspection.tensors
    values = [tensor.statistics for tensor in tensors if tensor.statistics is not None]
    yield "Format", inspection.format
    yield "Size", size(inspection.size)
    yield "Tensors", count(len(tensors))
    yield "Parameters", count(sum(prod(tensor.shape) for tensor in tensors))
    for label, amount in (("NaN", sum(v.nan for v in values)), ("Inf", sum(v.inf for v in values))):
        if amount:
            yield label, count(amount)


def _kind(tensor: TensorFacts) -> str:
    return _text(f"{tensor.dtype}, {extents(tensor.shape)}")


def _chips(tensor: TensorFacts) -> tuple[Chip, ...]:
    """Return labels for striking values: in a single file these are not risks."""
    values = tensor.statistics
    if values is None:
        return () if tensor.absent is None else (Chip("No values", "look"),)
    checks = (
        ("All zero", values.zeros == values.count),
        ("NaN", values.nan > 0),
        ("Inf", values.inf > 0),
    )
    return tuple(Chip(label, "look") for label, holds in checks if holds)


def _row(tensor: TensorFacts, target: str | None) -> Shown:
    return {
        "name": clipped(tensor.name, MOST_NAME),
        "kind": _kind(tensor),
        "chips": _chips(tensor),
        "cells": tuple(_cells(tensor)),
        "target": target,
    }


def _cells(tensor: TensorFacts) -> Iterator[Cell]:
    yield Cell(size(tensor.size), tensor.size)
    values = tensor.statistics
    if values is None:
        yield from (Cell(NONE, None),) * (len(_COLUMNS) - 2)
        return
    for value in (values.min, values.max, values.mean, values.std):
        yield Cell(number(value), value)
    yield Cell(percent(values.zeros_share), values.zeros_share)
    broken = f"{count(values.nan)}, {count(values.inf)}" if values.nan or values.inf else "0"
    yield Cell(broken, values.nan + values.inf)


def _detail(tensor: TensorFacts, target: str) -> Shown:
    picture = tensor.picture
    return {
        "target": target,
        "name": clipped(tensor.name, MOST_NAME),
        "kind": _kind(tensor),
        "chips": _chips(tensor),
        "reason": _text(tensor.absent or ""),
        "facts": list(_facts(tensor)),
        "pictures": [] if picture is None else list(_pictures(picture)),
        "sides": [],
    }


def _facts(tensor: TensorFacts) -> Iterator[tuple[str, str]]:
    values = tensor.statistics
    if values is not None:
        yield "Minimum, maximum", f"{number(values.min)}, {number(values.max)}"
        yield "Mean, standard deviation", f"{number(values.mean)}, {number(values.std)}"
        yield "Zeros", f"{count(values.zeros)} of {count(values.count)}"
        if values.nan or values.inf:
            yield "NaN, Inf", f"{count(values.nan)}, {count(values.inf)}"
    if tensor.sha256:
        yield "SHA-256", tensor.sha256[:HASH_SHOWN]
    if tensor.offset is not None:
        yield "Offset", count(tensor.offset)
    if tensor.array is not None and tensor.array != tensor.name:
        yield "Array of the text", clipped(tensor.array, MOST_NAME)


def _pictures(picture: TensorPicture) -> Iterator[Picture]:
    histogram = picture.histogram
    title = "Values"
    drawn = svg.histogram(
        title,
        [svg.StepChart("change", histogram.counts)],
        svg.ticks(histogram.low, histogram.high),
    )
    yield Picture(title, drawn, tuple(outside(histogram, "")))
    known = [cell for row in picture.cells for cell in row if cell is not None]
    across = counted(picture.columns, "column")
    title = f"Where values are large: {counted(picture.rows, 'row')}, {across}"
    ends = ("first column", "last column") if picture.columns > 1 else ("", "")
    notes = []
    if known:
        spread = f"{number(min(known))} (faint) to {number(max(known))} (strong)"
        notes.append(f"Root mean square of each block, {spread}; the first row is at the top")
    yield Picture(title, svg.grid(title, picture.cells, ends), tuple(notes))


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the values of the metadata, each with its path."""
    if value is None:
        return
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}/{key}", item)
    else:
        spelled = json.dumps(value, ensure_ascii=False, default=str)
        yield clipped(path, MOST_NAME), clipped(spelled, MOST_VALUE)
