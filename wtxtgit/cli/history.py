"""`wtxtgit history`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.options import (
    FilePath,
    Revision,
    completed,
    discover,
    html_option,
    read_options,
    reading_options,
    root_of_trust,
    trust_root_option,
    write_page,
)
from wtxtgit.cli.output import is_printed, print_line, print_table, progress
from wtxtgit.errors import MAX_NAME, clipped, counted
from wtxtgit.report.figures import DATE_SHOWN, digits, percent, size

if TYPE_CHECKING:
    from wtxtgit.report.history import History, PastVersion, Series

_OID_SHOWN = 10
_MOST = 20
"""Layers, or tensors, that are printed: those that changed most."""
_MOST_STEPS = 24
"""Characters of a sparkline; of more versions the last ones are drawn."""
_LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_NOTHING = "\u00b7"


@click.command()
@click.argument("path", type=FilePath())
@click.argument("revision", default="HEAD", metavar="[REV]", type=Revision())
@click.option(
    "--tensor",
    "tensors",
    metavar="PATTERN",
    shell_complete=completed("tensors"),
    help="Read only tensors whose names match, such as 'layers.0.*'.",
)
@click.option(
    "-n",
    "most",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Show only the last COUNT versions.",
)
@trust_root_option
@reading_options
@html_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def history(
    path: str,
    revision: str,
    tensors: str | None,
    most: int | None,
    trust_root: str | None,
    key: Path | None,
    max_chunk: int,
    html: Path | None,
    as_json: bool,
) -> int:
    """Show every version of the checkpoint at PATH, and how its values moved.

    A version is a commit on the line of first parents that changed the file; sealed
    versions are shown with generation and signers. For each layer (each tensor with
    --tensor), a sparkline shows norm, relative change and share of zeros over all
    versions.

    \b
    wtxtgit history model.fold
    wtxtgit history model.safetensors --tensor 'layers.0.*' -n 10
    wtxtgit history model.safetensors v1.0 --html history.html
    """
    from wtxtgit.review.history import HistoryRequest, life

    repo = discover()
    root = root_of_trust(repo, trust_root)
    request = HistoryRequest(path, revision, root, tensors, most, read_options(key, max_chunk))
    with progress("reading", None, noun="version", waits=True) as advance:
        report = life(repo, request, threads=environment.threads(), progress=advance)
    if html is not None:
        from wtxtgit.report.html.history import page

        write_page(html, page(report))
    elif not is_printed(report, as_json):
        _print(report, by_tensor=tensors is not None)
    return 0


def _print(report: History, *, by_tensor: bool) -> None:
    print_line(f"{os.fsdecode(report.path)}: {counted(len(report.versions), 'version')}")
    print_line()
    rows = [_row(one) for one in reversed(report.versions)]
    columns = (
        "commit", "date", "author", "gen", "signers", "file size", "tensors", "relative", "note"
    )  # fmt: skip
    # A column in which nothing stands is left out.
    shown = [n for n in range(len(columns)) if n < 3 or any(row[n] for row in rows)]
    print_table(
        [columns[n] for n in shown],
        [[row[n] for n in shown] for row in rows],
        right=("gen", "file size", "relative"),
        split=3,
    )
    series = report.tensors if by_tensor else report.layers
    if not series:
        return
    noun = "tensor" if by_tensor else "layer"
    print_line()
    drawn = [_drawn(one) for one in series[:_MOST]]
    titles = (noun, "norm", "relative change", "zeros", "NaN/Inf")
    count = len(titles) if any(row[-1] for row in drawn) else len(titles) - 1
    print_table(titles[:count], [row[:count] for row in drawn], split=1)
    if len(series) > _MOST:
        more = counted(len(series) - _MOST, f"more {noun}")
        print_line(f"and {more} that changed less; --json has them")


def _row(one: PastVersion) -> tuple[str, ...]:
    verdict = None if one.verdict == "ok" else one.verdict
    return (
        one.oid[:_OID_SHOWN],
        one.date[:DATE_SHOWN],
        clipped(one.author, MAX_NAME),
        "" if one.gen is None else str(one.gen),
        "" if one.gen is None else ", ".join(one.signers or ()) or "none",
        "" if one.file_size is None else size(one.file_size),
        _tensors(one),
        "" if one.relative_change is None else percent(one.relative_change),
        "; ".join(word for word in (verdict, one.reason) if word),
    )


def _tensors(one: PastVersion) -> str:
    if one.tensors is None:
        return ""
    if one.changed is None:
        return counted(one.tensors, "tensor")
    words = f"{one.changed} of {one.tensors} changed"
    if one.added or one.removed:
        words += f", +{one.added}/-{one.removed}"
    return words + (f", {one.renamed} renamed" if one.renamed else "")


def _drawn(one: Series) -> tuple[str, ...]:
    """A series as a row: three sparklines, each with what it comes to, and NaN and Inf."""
    points = one.points[-_MOST_STEPS:]
    norms = [None if point is None else point.norm for point in points]
    changes = [None if point is None else point.relative for point in points]
    zeros = [None if point is None else point.zeros_share for point in points]
    last = next((point for point in reversed(points) if point is not None), None)
    broken = "" if last is None or not (last.nan or last.inf) else f"{last.nan}/{last.inf}"
    return (
        one.name,
        f"{sparkline(norms)} {_ends(norms)}",
        f"{sparkline(changes, low=0.0)} {_most(changes)}",
        f"{sparkline(zeros, low=0.0)} {_most(zeros)}",
        broken,
    )


def _most(shares: Iterable[float | None]) -> str:
    most = max((value for value in shares if value is not None), default=0.0)
    return f"up to {percent(most)}" if most else percent(most)


def _ends(values: Iterable[float | None]) -> str:
    known = [digits(value) for value in values if value is not None]
    return " -> ".join(dict.fromkeys((known[0], known[-1]))) if known else ""


def sparkline(values: Sequence[float | None], *, low: float | None = None) -> str:
    """A character for each value, from the least (or `low`) to the largest; a dot for none."""
    known = [value for value in values if value is not None]
    least = min(known, default=0.0) if low is None else low
    span = max(known, default=0.0) - least
    top = len(_LEVELS) - 1
    return "".join(
        _NOTHING if value is None else _LEVELS[round(top * (value - least) / span) if span else 0]
        for value in values
    )
