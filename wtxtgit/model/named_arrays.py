"""Arrays by name, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Protocol, TypeVar

from wtxtgit.errors import MAX_NAME, clipped, escaped

_MOST_ROWS = 100


class Shaped(Protocol):
    """What numpy arrays and lazily read arrays have in common."""

    @property
    def dtype(self) -> Any: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


_T = TypeVar("_T", bound=Shaped)


class NamedArrays(Mapping[str, _T]):
    """A mapping of arrays by name whose repr is one line, and a table in a notebook."""

    def __init__(self, arrays: Mapping[str, _T]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> _T:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title()}, {len(self)} arrays>"

    def _title(self) -> str:
        """Return a few words that say where the arrays are from."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return a table of the first arrays as HTML, for IPython; escapes the names, which are
        untrusted.
        """
        rows = []
        for name, array in list(self._arrays.items())[:_MOST_ROWS]:
            shape = " x ".join(map(str, array.shape)) or "scalar"
            cells = (escaped(clipped(name, MAX_NAME)), str(array.dtype), shape)
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        more = len(self) - len(rows)
        rows += [f"<td colspan=3>and {more} more</td>"] if more else []
        lines = "".join(f"<tr>{row}</tr>" for row in rows)
        head = "<tr><th>name</th><th>dtype</th><th>shape</th></tr>"
        return f"<p>{escape(self._title())}</p><table>{head}{lines}</table>"
