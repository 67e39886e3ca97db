"""Tables on a terminal: folded to its width, split, or row by row where it is narrow.

Numbers and short words stay whole. What is folded are the widest cells, between words or
behind the punctuation of a name. Columns that have no room beside the others follow in
tables of their own; where the screen is too narrow for those, each row stands as lines
of title and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = 2
"""Characters between two columns."""
_LEAST_FOLDED = 16
"""Characters of a folded column below which rows are better told line by line."""
_LEAST_NAME = 24
"""Characters of a name's column below which a table is better split."""
_AFTER = re.compile(r"[^./_:,;-]*[./_:,;-]+|[^./_:,;-]+")
"""Pieces of a name, each with the punctuation behind it."""

Row = Sequence[str]
ColourOf = Callable[[int, str], str]


def print_folded(
    columns: Row,
    rows: Sequence[Row],
    right: Sequence[str],
    split: int | None,
    colour_of: ColourOf,
) -> None:
    """Print rows under `columns` so that no line is longer than the terminal's."""
    console = Console()
    tables = list(_tables(columns, rows, right, split, console.width))
    if not tables:
        _print_line_by_line(console, columns, rows, colour_of)
    for n, (chosen, widths) in enumerate(tables):
        if n:
            console.print()
        _print_table(console, columns, rows, right, chosen, widths, colour_of)


def _tables(
    columns: Row, rows: Sequence[Row], right: Sequence[str], split: int | None, room: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Which columns stand in which table, and how wide; nothing if the screen is too narrow."""
    widest = [max(cell_len(row[n]) for row in (columns, *rows)) for n in range(len(columns))]
    is_fixed = [name in right for name in columns]

    def fitted(chosen: list[int], least: int) -> list[int] | None:
        return _fitted([widest[n] for n in chosen], [is_fixed[n] for n in chosen], room, least)

    every = list(range(len(columns)))
    together = fitted(every, _LEAST_FOLDED if split is None else _LEAST_NAME)
    if split is None or together is not None:
        if together is not None:
            yield every, together
        return
    groups: list[list[int]] = [every[:split]]
    for n in every[split:]:
        beside = [*groups[-1], n]
        if len(groups) > 1 and fitted(beside, _LEAST_NAME) is not None:
            groups[-1] = beside
        else:
            groups.append([0, n])
    # A table for each value would repeat the names again and again.
    if len(groups) > 2 and all(len(group) == 2 for group in groups[1:]):
        return
    fits = [fitted(group, _LEAST_FOLDED) for group in groups]
    if None not in fits:
        yield from ((group, fit) for group, fit in zip(groups, fits, strict=True) if fit)


def _fitted(widest: list[int], is_fixed: list[bool], room: int, least: int) -> list[int] | None:
    """Widths of columns that fit a line, the widest folded; None if one would be too narrow."""
    columns = list(zip(widest, is_fixed, strict=True))
    left = room - GAP * (len(columns) - 1) - sum(width for width, fixed in columns if fixed)
    others = sorted(width for width, fixed in columns if not fixed)
    if sum(others) <= left:
        return widest
    # The widest share what the others leave.
    for n, width in enumerate(others):
        most = left // (len(others) - n)
        if width > most:
            break
        left -= width
    if not others or most < least:
        return None
    return [width if fixed else min(width, most) for width, fixed in columns]


def _print_table(
    console: Console,
    columns: Row,
    rows: Sequence[Row],
    right: Sequence[str],
    chosen: list[int],
    widths: list[int],
    colour_of: ColourOf,
) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for n, width in zip(chosen, widths, strict=True):
        title = Text("\n".join(folded(columns[n], width)))
        table.add_column(
            title, justify="right" if columns[n] in right else "left", no_wrap=True, width=width
        )
    for row in rows:
        table.add_row(
            *(
                Text.from_ansi(colour_of(n, "\n".join(folded(row[n], width))))
                for n, width in zip(chosen, widths, strict=True)
            )
        )
    console.print(table)


def _print_line_by_line(
    console: Console, columns: Row, rows: Sequence[Row], colour_of: ColourOf
) -> None:
    titles = max(map(cell_len, columns))
    room = max(console.width - titles - GAP, 1)
    for number, row in enumerate(rows):
        if number:
            console.print()
        for n, cell in enumerate(row):
            # An empty cell needs its line no more than its column.
            for i, line in enumerate(folded(cell, room) if cell else ()):
                title = "" if i else columns[n]
                shown = Text(title + " " * (titles - cell_len(title) + GAP))
                console.print(shown + Text.from_ansi(colour_of(n, line)), soft_wrap=True)


def folded(text: str, width: int) -> list[str]:
    """The lines of a cell: broken between words, and a longer word behind its punctuation."""
    if cell_len(text) <= width:
        return [text]
    lines = [" " * (len(text) - len(text.lstrip(" ")))]
    for word in text.split():
        gap = " " if lines[-1].strip() else ""
        if cell_len(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
            continue
        if lines[-1].strip():
            lines.append("")
        for piece in [word] if cell_len(word) <= width else _AFTER.findall(word):
            if cell_len(lines[-1] + piece) <= width:
                lines[-1] += piece
                continue
            if lines[-1]:
                lines.append("")
            *whole, lines[-1] = chop_cells(piece, width)
            lines[-1:-1] = whole
    return lines
