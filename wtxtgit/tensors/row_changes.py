"""Which rows of a tensor changed: a count, ranges, and blocks of rows, all of bounded size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wtxtgit.report.diff import RowBlocks
from wtxtgit.tensors.sums import F8, Sum

MAX_RANGES = 256
"""Ranges that are told; further ones are joined across the smallest gaps."""
MAX_BLOCKS = 64

_Indices = NDArray[np.int64]


class RowChanges:
    """Changes of items, taken in ascending order, as rows of the first dimension."""

    def __init__(self, rows: int, row_items: int) -> None:
        self.rows = rows
        self.changed = 0
        self.exact = True
        self._row_items = row_items
        self._block_rows = 1
        while -(-rows // self._block_rows) > MAX_BLOCKS:
            self._block_rows *= 2
        blocks = -(-rows // self._block_rows)
        self._in_blocks = np.zeros(blocks, np.int64)
        self._squares = [Sum() for _ in range(blocks)]
        self._starts: _Indices = np.zeros(0, np.int64)
        self._ends: _Indices = np.zeros(0, np.int64)

    def add(self, items: _Indices) -> None:
        """Take in changed items by their index: ascending, and after those before."""
        rows = items // self._row_items
        rows = rows[_with_first(rows[1:] != rows[:-1])]
        if len(self._ends) and rows[0] == self._ends[-1] - 1:
            rows = rows[1:]
            if not len(rows):
                return
        self.changed += len(rows)
        self._in_blocks += np.bincount(rows // self._block_rows, minlength=len(self._in_blocks))
        # Each range but the first starts where one row is apart from that before.
        firsts = _with_first(rows[1:] - rows[:-1] > 1)
        starts = rows[firsts]
        ends = np.append(rows[:-1][firsts[1:]], rows[-1]) + 1
        if len(self._ends) and starts[0] == self._ends[-1]:
            self._ends[-1] = ends[0]
            starts, ends = starts[1:], ends[1:]
        self._starts = np.concatenate((self._starts, starts))
        self._ends = np.concatenate((self._ends, ends))
        if len(self._starts) > 4 * MAX_RANGES:
            self._join()

    def weigh(self, items: _Indices, squares: F8, exponent: int) -> None:
        """Take in the squares of changes, divided by 2^exponent, of these items."""
        size = self._row_items * self._block_rows
        first, last = int(items[0]) // size, int(items[-1]) // size
        if first == last:
            self._squares[first].add(float(squares.sum()), exponent)
            return
        # Items ascend: each block's are one run.
        bounds = np.searchsorted(items, np.arange(first + 1, last + 1) * size).tolist()
        runs = zip([0, *bounds], [*bounds, len(squares)], strict=True)
        for block, (start, end) in enumerate(runs, first):
            self._squares[block].add(float(squares[start:end].sum()), exponent)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Changed rows as (first, last + 1); where `exact` is False others among them."""
        if len(self._starts) > MAX_RANGES:
            self._join()
        return tuple(zip(self._starts.tolist(), self._ends.tolist(), strict=True))

    def blocks(self, *, with_norms: bool) -> RowBlocks:
        norms = tuple(total.root() for total in self._squares) if with_norms else None
        return RowBlocks(self._block_rows, tuple(self._in_blocks.tolist()), norms)

    def _join(self) -> None:
        """Keep the MAX_RANGES - 1 widest gaps."""
        gaps = self._starts[1:] - self._ends[:-1]
        kept = np.sort(np.argsort(-gaps, kind="stable")[: MAX_RANGES - 1])
        self._starts = np.append(self._starts[0], self._starts[kept + 1])
        self._ends = np.append(self._ends[kept], self._ends[-1])
        self.exact = False


def _with_first(rest: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The same with a True before it."""
    found = np.ones(len(rest) + 1, np.bool_)
    found[1:] = rest
    return found
