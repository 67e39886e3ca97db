"""The versions of a checkpoint over time, as one HTML page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from wtxtgit.errors import clipped
from wtxtgit.report.figures import (
    DATE_SHOWN,
    NONE,
    OID_SHOWN,
    count,
    extents,
    number,
    percent,
    size,
)
from wtxtgit.report.history import History, PastVersion, Series
from wtxtgit.report.html import svg
from wtxtgit.report.html.bounds import (
    GROUPS_OF_PAGE,
    LISTED_OF_PAGE,
    MOST_NAME,
    MOST_SIGNERS,
    MOST_TEXT,
    PICTURED_OF_PAGE,
    ROWS_OF_PAGE,
    Excerpt,
    first,
)
from wtxtgit.report.html.page import rendered
from wtxtgit.report.html.tensors import Cell, Picture, Shown
from wtxtgit.report.review import Chip

_COLUMNS = ("", "Norm", "Largest change", "Zeros", "NaN, Inf")
_MOST_STEPS = 200
"""A line has at most this many versions, the last ones: a screen can't show more."""
_LAYERS = PICTURED_OF_PAGE // 4
"""How many of the lines with pictures are those of layers."""


def page(history: History) -> str:
    """Return the page, a pure function of the history."""
    path = clipped(os.fsdecode(history.path), MOST_NAME)
    versions = history.versions
    shown = versions[-_MOST_STEPS:]
    ticks = list(_ticks(shown))
    layers = history.layers if len(history.layers) < len(history.tensors) else ()
    tables = [
        _table("Layers", "layers", layers, "c0-l", ticks, GROUPS_OF_PAGE, _LAYERS),
        _table(
            "Tensors",
            "tensors",
            history.tensors,
            "c0-t",
            ticks,
            ROWS_OF_PAGE,
            PICTURED_OF_PAGE - _LAYERS,
        ),
    ]
    lines = sum(len(table["rows"].lines) for table in tables)
    return rendered(
        "history.html",
        {
            "title": f"History of {path}",
            "kind": "History of a checkpoint",
            "path": path,
            "revision": clipped(history.revision, MOST_NAME),
            "totals": list(_totals(history)),
            "chips": (),
            "notes": Excerpt((), 0),
            "filter": {"placeholder": "Layer or tensor", "noun": "layers and tensors"}
            if lines > 1
            else None,
            "pictures": list(_pictures(shown, ticks)),
            "is_sealed": history.is_sealed,
            # The newest first: people look for it.
            "versions": first(versions[::-1], LISTED_OF_PAGE).each(_version),
            "tables": tables,
        },
    )


def _totals(history: History) -> Iterator[tuple[str, str]]:
    versions = history.versions
    yield "Versions", count(len(versions))
    yield "First", versions[0].date[:DATE_SHOWN] or NONE
    yield "Last", versions[-1].date[:DATE_SHOWN] or NONE
    yield "Size", size(versions[-1].file_size or versions[-1].size)
    if versions[-1].tensors is not None:
        yield "Tensors", count(versions[-1].tensors)
    if history.is_sealed:
        yield (
            "Sealed",
            f"{count(sum(one.gen is not None for one in versions))} of {count(len(versions))}",
        )


def _ticks(versions: Sequence[PastVersion]) -> Iterator[svg.Tick]:
    """Yield the dates of some versions, at their positions on a line through all of them."""
    last = len(versions) - 1
    places = dict.fromkeys((0, last // 2, last) if last > 3 else (0, last))
    for place in places:
        yield svg.Tick(place / last if last else 0.0, versions[place].date[:DATE_SHOWN] or NONE)


def _pictures(versions: Sequence[PastVersion], ticks: list[svg.Tick]) -> Iterator[Picture]:
    sizes = [one.file_size or one.size for one in versions]
    yield _drawn("Size of the file", sizes, ticks, size(max(sizes)))
    changes = [one.relative_change for one in versions]
    if any(changes):
        most = max(change or 0.0 for change in changes)
        yield _drawn("Relative change", changes, ticks, percent(most))


def _drawn(
    title: str,
    values: Sequence[float | None],
    ticks: list[svg.Tick],
    top: str,
    *,
    half: bool = True,
) -> Picture:
    return Picture(title, svg.line(title, values, ticks, top), half=half)


def _version(one: PastVersion) -> Shown:
    signers = first(one.signers or (), MOST_SIGNERS).each(lambda who: clipped(who, MOST_NAME))
    seal = Chip("Not sealed", "look")
    if one.gen is not None:
        seal = Chip(f"Generation {one.gen}", "good" if one.verdict == "ok" else "severe")
    words = [word for word in (one.verdict if one.verdict != "ok" else None, one.reason) if word]
    return {
        "commit": one.oid[:OID_SHOWN],
        "date": one.date[:DATE_SHOWN],
        "author": clipped(one.author, MOST_NAME),
        "subject": clipped(one.subject, MOST_NAME),
        "seal": seal,
        "signers": ", ".join(signers.lines) + (f" and {signers.more} more" if signers.more else ""),
        "size": NONE if one.file_size is None else size(one.file_size),
        "tensors": _changed(one),
        "relative": NONE if one.relative_change is None else percent(one.relative_change),
        "note": clipped("; ".join(words), MOST_TEXT),
    }


def _changed(one: PastVersion) -> str:
    if one.tensors is None:
        return NONE
    if one.changed is None:
        return count(one.tensors)
    words = f"{count(one.changed)} of {count(one.tensors)}"
    if one.added or one.removed:
        words += f", +{count(one.added or 0)}/-{count(one.removed or 0)}"
    return words


def _table(
    title: str,
    noun: str,
    series: Sequence[Series],
    target: str,
    ticks: list[svg.Tick],
    most: int,
    pictured: int,
) -> Shown:
    targets = {one.name: f"{target}{n}" for n, one in enumerate(series[:pictured])}
    details = [_detail(one, targets[one.name], ticks) for one in series[:pictured]]
    return {
        "title": title,
        "noun": noun,
        "columns": (title.removesuffix("s"), *_COLUMNS),
        "sorted_by": None if any(one.broken for one in series) else 3,
        "rows": first(series, most).each(lambda one: _row(one, targets.get(one.name))),
        "details": details,
        "pictured": f"The first {len(details)} have pictures.",
    }


def _row(one: Series, target: str | None) -> Shown:
    points = one.points[-_MOST_STEPS:]
    last = next((point for point in reversed(points) if point is not None), None)
    norms = [None if point is None else point.norm for point in points]
    return {
        "name": clipped(one.name, MOST_NAME),
        "kind": _kind(one),
        "chips": (Chip("NaN or Inf", "severe"),) if one.broken else (),
        "cells": (
            Cell("", None, svg.spark(norms)),
            Cell(NONE, None) if last is None else Cell(number(last.norm), last.norm),
            Cell(percent(one.largest_change), one.largest_change),
            Cell(NONE, None) if last is None else Cell(percent(last.zeros_share), last.zeros_share),
            Cell(NONE if last is None else f"{count(last.nan)}, {count(last.inf)}", one.broken),
        ),
        "target": target,
    }


def _kind(one: Series) -> str:
    if one.dtype is None or one.shape is None:
        return ""
    return clipped(f"{one.dtype}, {extents(one.shape)}", MOST_TEXT)


def _detail(one: Series, target: str, ticks: list[svg.Tick]) -> Shown:
    points = one.points[-_MOST_STEPS:]
    norms = [None if point is None else point.norm for point in points]
    changes = [None if point is None else point.relative for point in points]
    zeros = [None if point is None else point.zeros_share for point in points]
    pictures = []
    for title, values, spelled in (
        ("Norm", norms, number),
        ("Relative change", changes, percent),
        ("Zeros", zeros, percent),
    ):
        known = [value for value in values if value is not None]
        if known:
            top = spelled(max(known))
            pictures.append(_drawn(title, values, ticks, top, half=False))
    return {
        "target": target,
        "name": clipped(one.name, MOST_NAME),
        "kind": _kind(one),
        "chips": (),
        "reason": "",
        "facts": list(_facts(one)),
        "pictures": pictures,
        "sides": [],
    }


def _facts(one: Series) -> Iterator[tuple[str, str]]:
    known = [point for point in one.points if point is not None]
    if known:
        yield "Norm, first and last", f"{number(known[0].norm)}, {number(known[-1].norm)}"
        yield "Largest relative change", percent(one.largest_change)
        still = sum(point.l2 == 0 for point in known)
        yield "Versions that did not change it", count(still)
