"""What differs between two checkpoints, as lines and tables on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from wtxtgit.cli.output import print_line, print_table
from wtxtgit.errors import clipped, counted
from wtxtgit.report.figures import count, digits, extents, percent

if TYPE_CHECKING:
    from wtxtgit.report.diff import DiffReport, MetadataChange, RowFacts, TensorDiff
    from wtxtgit.report.tables import Cell, Table

_T = TypeVar("_T")
_LISTED = ("tensor", "relative", "elements", "rows")
_VALUES = ("L2", "max", "cosine", "mean", "std", "zeros", "flips", "new NaN/Inf")
_MOST_CONCERNS = 20
_MOST_RANGES = 3
"""Ranges of rows that a table names; JSON has more."""
MOST_METADATA = 50


def print_changes(report: DiffReport) -> None:
    """Print a comparison, without the names of the two checkpoints."""
    from wtxtgit.report.diff import TensorStatus

    print_line(totals(report))
    for why in report.unread:
        print_line(f"not read: {why}")
    for note in report.notes:
        print_line(f"note: {note}")
    repeated = [finding.message for finding in report.repeated]
    for messages in (list(report.import_messages()), repeated):
        for message in messages[:_MOST_CONCERNS]:
            print_line(f"risk: {message}")
    from wtxtgit.report.tables import CONCERNS

    concerns = report.concerns
    print_cells(CONCERNS, concerns[:_MOST_CONCERNS])
    if len(concerns) > _MOST_CONCERNS:
        print_line(f"and {counted(len(concerns) - _MOST_CONCERNS, 'more risk')}; --json has them")
    print_tensors(report.by_change())
    others = report.of(TensorStatus.ADDED, TensorStatus.REMOVED, TensorStatus.RENAMED)
    print_others(others)
    print_metadata(report.metadata)
    if report.parts:
        print_line()
        for part in report.parts[:_MOST_CONCERNS]:
            print_line(part.message)
        if len(report.parts) > _MOST_CONCERNS:
            more = counted(len(report.parts) - _MOST_CONCERNS, "more change")
            print_line(f"and {more} in other parts; --json has them")
    same = report.of(TensorStatus.SAME)
    if same:
        print_line()
        print_line(f"unchanged: {counted(len(same), 'tensor')}")


def totals(report: DiffReport) -> str:
    """Return the summary line: counts, and how much changed."""
    from wtxtgit.report.diff import TensorStatus

    summary = report.summary
    words = [
        f"{count(number)} {status}"
        for status, number in summary.counts.items()
        if number and status is not TensorStatus.SAME
    ]
    if report.unread:
        words.append(f"{counted(len(report.unread), 'part')} not read")
    total = counted(summary.tensors, "tensor")
    line = f"{total}: {', '.join(words)}" if words else f"{total}, all identical"
    if not summary.tensors:
        line = ", ".join(["no tensors", *words])
    if summary.changed_elements:
        line += f"; {counted(summary.changed_elements, 'element')}, L2 {digits(summary.l2)}"
        if summary.relative_l2 is not None:
            line += f" ({percent(summary.relative_l2)} of the changed tensors)"
    if summary.metadata:
        line += f"; {counted(summary.metadata, 'metadata change')}"
    if report.parts:
        line += f"; {counted(len(report.parts), 'change')} in other parts"
    return line


def print_tensors(tensors: list[TensorDiff]) -> None:
    """Print changed tensors in order: a table of how much each changed, then lines on the rest."""
    if not tensors:
        return
    print_line()
    rows = [(t.name, *_measures(t)) for t in tensors if t.change is not None]
    if rows:
        columns = (*_LISTED, *_VALUES)
        # Values that no tensor has are left out; the first columns always stand.
        shown = [n for n in range(len(columns)) if n < len(_LISTED) or any(r[n] for r in rows)]
        print_table(
            [columns[n] for n in shown],
            [[row[n] for n in shown] for row in rows],
            right=columns[1:3] + _VALUES,
            split=len(_LISTED),
        )
    for tensor in tensors:
        what = []
        if tensor.base_dtype is not None:
            what.append(f"{tensor.base_dtype} -> {tensor.dtype}")
        if tensor.base_shape is not None:
            what.append(f"{extents(tensor.base_shape)} -> {extents(tensor.shape)}")
        if tensor.reason is not None:
            what.append(tensor.reason)
        if what:
            print_line(f"{tensor.name}: {', '.join(what)}")


def print_others(tensors: Sequence[TensorDiff]) -> None:
    """Print tensors that were added, removed or renamed."""
    from wtxtgit.report.tables import OTHERS

    print_cells(OTHERS, tensors)


def print_cells(
    table: Table[_T],
    things: Sequence[_T],
    titles: Mapping[str, str] | None = None,
) -> None:
    """Print a table of a report, below an empty line; nothing if it is empty.

    `titles` are those that are shorter here.
    """
    if things:
        short = titles or {}
        print_line()
        print_table(
            [short.get(title, title) for title in table.columns],
            [list(map(_cell, row)) for row in table.rows(things)],
            right=[short.get(title, title) for title in table.right],
        )


def _cell(cell: Cell) -> str:
    from wtxtgit.report.tables import ChangeCell, Measure, Share, SignersCell

    if isinstance(cell, ChangeCell):
        return f"{cell.before} -> {cell.after}"
    if isinstance(cell, Share):
        return percent(cell.value)
    if isinstance(cell, Measure):
        return digits(cell.value)
    if isinstance(cell, SignersCell):
        return ", ".join(cell) or "none"
    if isinstance(cell, int):
        return count(cell)
    return "" if cell is None else str(cell)


def print_metadata(changes: Sequence[MetadataChange], most: int = MOST_METADATA) -> None:
    """Print at most `most` changed values of the metadata."""
    if not changes:
        return
    from wtxtgit.report.tables import MOST_VALUE, after_cell, before_cell

    print_line()
    for change in changes[:most]:
        cells = before_cell(change), after_cell(change)
        before, after = (clipped(_cell(cell), MOST_VALUE) for cell in cells)
        words = {"added": f"added {after}", "removed": f"removed, was {before}"}
        what = words.get(str(change.kind), f"{before} -> {after}")
        print_line(f"metadata {change.path}: {what}")
    if len(changes) > most:
        print_line(f"and {len(changes) - most} more metadata changes; --json has them")


def _measures(tensor: TensorDiff) -> tuple[str, ...]:
    from wtxtgit.report.diff import Numbers

    change = tensor.change
    if change is None:
        return ()
    share = percent(change.changed_share)
    if not isinstance(change, Numbers):
        rows = "" if change.rows is None else _rows(change.rows)
        return (change.compared_by, f"{share} of bytes", rows, *("",) * len(_VALUES))
    before, after = change.before, change.after
    flips = str(change.sign_flips) if change.sign_flips else ""
    new = f"{change.new_nan}/{change.new_inf}" if change.new_nan or change.new_inf else ""
    zeros = "" if before.zeros == after.zeros else _to(before.zeros_share, after.zeros_share)
    return (
        "from 0" if change.relative_l2 is None else percent(change.relative_l2),
        share,
        _rows(change.rows),
        digits(change.l2),
        digits(change.max_abs),
        "" if change.cosine is None else f"{change.cosine:.6f}",
        _moved(before.mean, after.mean),
        _moved(before.std, after.std),
        zeros,
        flips,
        new,
    )


def _rows(rows: RowFacts) -> str:
    words = f"{rows.changed:,} of {rows.rows:,}"
    if rows.changed in (0, rows.rows) or len(rows.ranges) > _MOST_RANGES or not rows.exact:
        return words
    spans = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in rows.ranges]
    return f"{words}: {', '.join(spans)}"


def _moved(before: float | None, after: float | None) -> str:
    """Format a value before and after; only once if both look the same."""
    old, new = (digits(value) for value in (before, after))
    return new if old == new else f"{old or '-'} -> {new or '-'}"


def _to(before: float, after: float) -> str:
    return f"{percent(before)} -> {percent(after)}"
