"""Tables on a terminal: folded to its width, split, or row by row where it is narrow.

Numbers and short words stay whole. What is folded are the widest cells, between words or
behind the punctuation of a name. Columns that have no room beside the others follow in
tables of their own; where the screen is too narrow for those, each row stands as lines
of title and value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, zip_longest

from rich.cells import cell_len, chop_cells

from wtxtgit.cli.environment import coloured

GAP = 2
"""Characters between two columns."""
_LEAST_FOLDED = 16
"""The least width of a folded column: below it, rows are printed line by line."""
_LEAST_NAME = 24
"""The least width of a column of names: a narrower table is split."""
_AFTER = re.compile(r"[^./_:,;-]*[./_:,;-]+|[^./_:,;-]+")
"""Pieces of a name, each with the punctuation behind it."""

_MOST_TABLES = 3
"""The most tables into which one is split; otherwise rows are printed line by line."""
_RULE = "\u2500"

Row = Sequence[str]
ColourOf = Callable[[int, str], str | None]
"""The colour of a column's cell, if it has one."""


def print_folded(
    columns: Row,
    rows: Sequence[Row],
    *,
    right: Sequence[str],
    whole: Sequence[str],
    split: int | None,
    room: int,
    titles: str | None,
    colour_of: ColourOf,
) -> None:
    """Print rows under `columns` so that no line is longer than `room`, the terminal's.

    Columns named in `right` or `whole` are not folded, even where what is to stay whole takes
    more than a line; `titles` is the colour of titles.
    """
    is_fixed = [name in right or name in whole for name in columns]
    tables = list(_tables(columns, rows, is_fixed, split, room))
    if not tables:
        _print_line_by_line(columns, rows, room, colour_of, whole)
    for n, (chosen, widths) in enumerate(tables):
        if n:
            print()
        shown = [(columns, lambda _column, _cell: titles), *((row, colour_of) for row in rows)]
        _print_table(shown, [name in right for name in columns], chosen, widths)


def _tables(
    columns: Row, rows: Sequence[Row], is_fixed: Sequence[bool], split: int | None, room: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Return the columns of each table and their widths; nothing if the screen is too narrow."""
    widest = [max(cell_len(row[n]) for row in (columns, *rows)) for n in range(len(columns))]

    def fitted(chosen: list[int], least: int) -> list[int] | None:
        return _fitted([widest[n] for n in chosen], [is_fixed[n] for n in chosen], room, least)

    every = list(range(len(columns)))
    together = fitted(every, _LEAST_FOLDED if split is None else _LEAST_NAME)
    if split is None or together is not None:
        if together is not None:
            yield every, together
        return
    # The name alone is no table.
    first = [] if split == 1 else [every[:split]]
    others = every[split:]
    groups: list[list[int]] = []
    for n in others:
        beside = [*groups[-1], n] if groups else []
        if beside and fitted(beside, _LEAST_NAME) is not None:
            groups[-1] = beside
        else:
            groups.append([0, n])
    # As many in each as in the others: the last one is not to have a single column.
    each = [len(others) * n // len(groups) for n in range(len(groups) + 1)]
    even = [[0, *others[a:b]] for a, b in pairwise(each)]
    if all(fitted(group, _LEAST_NAME) is not None for group in even):
        groups = even
    # A table for each value would repeat the names again and again.
    if len(groups) > 1 and all(len(group) == 2 for group in groups):
        return
    groups = first + groups
    fits = [fitted(group, _LEAST_FOLDED) for group in groups]
    if None not in fits and len(groups) <= _MOST_TABLES:
        yield from ((group, fit) for group, fit in zip(groups, fits, strict=True) if fit)


def _fitted(widest: list[int], is_fixed: list[bool], room: int, least: int) -> list[int] | None:
    """Return widths of columns that fit a line, the widest folded; None if that is too narrow."""
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
    rows: Sequence[tuple[Row, ColourOf]],
    is_right: Sequence[bool],
    chosen: Sequence[int],
    widths: Sequence[int],
) -> None:
    """Print rows, of which the first one has the titles."""
    for number, (row, colour_of) in enumerate(rows):
        pieces = [folded(row[n], width) for n, width in zip(chosen, widths, strict=True)]
        # Of the whole cell, whatever one of its lines says.
        colours = [colour_of(n, row[n]) for n in chosen]
        for line in zip_longest(*pieces, fillvalue=""):
            cells = []
            for n, text, width, colour in zip(chosen, line, widths, colours, strict=True):
                gap = " " * (width - cell_len(text))
                shown = coloured(text, colour) if text else ""
                cells.append(gap + shown if is_right[n] else shown + gap)
            print((" " * GAP).join(cells).rstrip())
        if number == 0:
            print(_rule() * (sum(widths) + GAP * (len(widths) - 1)))


def _rule() -> str:
    """Return the character of the line below titles, if the terminal's encoding has it."""
    try:
        _RULE.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return _RULE


def _print_line_by_line(
    columns: Row, rows: Sequence[Row], width: int, colour_of: ColourOf, whole: Sequence[str]
) -> None:
    titles = max(map(cell_len, columns))
    room = max(width - titles - GAP, 1)
    for number, row in enumerate(rows):
        if number:
            print()
        for n, cell in enumerate(row):
            # An empty cell needs its line no more than its column.
            # What is to be copied is left to the terminal, which copies it without a break.
            lines = [cell] if columns[n] in whole else folded(cell, room)
            for i, line in enumerate(lines if cell else ()):
                title = "" if i else columns[n]
                gap = " " * (titles - cell_len(title) + GAP)
                print(title + gap + coloured(line, colour_of(n, cell)))


def folded(text: str, width: int) -> list[str]:
    """Break a cell into lines: between words, and long words after punctuation."""
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
