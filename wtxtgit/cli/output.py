"""Output of commands: JSON, tables, sizes. Data goes to standard output.

On a terminal tables fold long cells to its width; in a pipe they are plain
aligned text that keeps every character. A pager shows such text as it is, so
that tables wider than its screen are split.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from wtxtgit.cli import environment
from wtxtgit.report.escaping import escaped

_LEAST_NAME = 24
"""Characters of a name's column below which a table is better split."""
_GAP = 3
"""Characters between two columns on a terminal, and beside the outer ones."""
_MOST_PADDED = 200
"""Characters up to which a column is padded."""


def print_json(value: object) -> None:
    """Print plain data as JSON, strictly: numbers that JSON lacks become strings."""
    print(json.dumps(_plain(value), indent=2))


def print_line(text: str = "") -> None:
    """Print one line; control characters are escaped."""
    print(escaped(text))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    split: int | None = None,
) -> None:
    """Print rows under `columns`; those named in `right` are aligned to the right.

    On a screen too narrow for all columns those from number `split` on
    follow in tables of their own, as many to each as fit, with the first
    column again.
    """
    cells = [[escaped(cell) for cell in row] for row in rows]
    is_terminal = sys.stdout.isatty()
    put = _print_rich if is_terminal else _print_plain
    is_shown = is_terminal or environment.pager_in_use()
    # A terminal's table folds names; a pager wraps the lines of the longest ones.
    name = _LEAST_NAME if is_terminal else max(_LEAST_NAME, _screen() // 2)
    if split is None or not is_shown or _width(columns, cells, name) <= _screen():
        put(columns, cells, right)
        return
    put(columns[:split], [row[:split] for row in cells], right)
    for group in _groups(columns, cells, split, name):
        if not is_terminal:
            print_line()
        values = [[row[0], *(row[n] for n in group)] for row in cells]
        put([columns[0], *(columns[n] for n in group)], values, right)


def _screen() -> int:
    """Characters of a line of the terminal, or of the one that a pager writes to."""
    return shutil.get_terminal_size().columns


def _width(columns: Sequence[str], rows: list[list[str]], name: int) -> int:
    """Characters of the widest line, `name` of them at most for the first column."""
    table = [list(columns), *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    widths[0] = min(widths[0], name)
    return sum(widths) + _GAP * len(columns)


def _groups(
    columns: Sequence[str], rows: list[list[str]], first: int, name: int
) -> list[list[int]]:
    """The columns from number `first` on, as many together as the screen has room for."""
    room = _screen()
    groups: list[list[int]] = []
    for n in range(first, len(columns)):
        wider = [0, *groups[-1], n] if groups else []
        cells = [[row[i] for i in wider] for row in rows]
        if wider and _width([columns[i] for i in wider], cells, name) <= room:
            groups[-1].append(n)
        else:
            groups.append([n])
    return groups


def _print_plain(columns: Sequence[str], rows: list[list[str]], right: Sequence[str]) -> None:
    table = [list(columns), *rows]
    # One endless name must not pad every line.
    widths = [min(max(len(row[i]) for row in table), _MOST_PADDED) for i in range(len(columns))]
    for row in table:
        aligned = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        print("  ".join(aligned).rstrip())


def _print_rich(columns: Sequence[str], rows: list[list[str]], right: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        if name in right:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
