"""How a notebook shows a result: one line, and a table as HTML. All names are untrusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

from wtxtgit.errors import MAX_NAME, clipped, escaped

_MOST_ROWS = 100
# Of `$...$` in a name a notebook would make a formula, which may be a link or invisible.
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """A title and a table of the first of `count` rows, as HTML."""
    lines = ["".join(f"<td>{_cell(one)}</td>" for one in row) for row in islice(rows, _MOST_ROWS)]
    more = count - len(lines)
    lines += [f"<td colspan={len(columns)}>and {more:,} more</td>"] if more > 0 else []
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    shown = f"<table><tr>{head}</tr>{body}</table>" if lines else ""
    return f"<div class='{_NO_FORMULAS}'><p>{_cell(title)}</p>{shown}</div>"


def shape_of(shape: Sequence[int]) -> str:
    """`3 x 4`, as tables show a shape."""
    return " x ".join(map(str, shape)) or "scalar"


def _cell(value: object) -> str:
    return escape(escaped(clipped("" if value is None else str(value), MAX_NAME * 2)))
