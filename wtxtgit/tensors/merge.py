"""Three-way merge of a tensor's values, row by row of its first dimension.

A row that only one side changed is taken from that side; if both changed it, the strategy decides.
Rows are compared as bytes, in blocks: no tensor is held in memory.

Numbers are combined in float64 and rounded once to the nearest number of the dtype, ties to even;
integers exactly. A result that the dtype can't hold is reported, never clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.merge import Strategy
from wtxtgit.tensors import numbers, tensor_bytes
from wtxtgit.tensors.numbers import F8, RowChanges
from wtxtgit.tensors.tensor_bytes import BLOCK, NUMPY

_COMPUTED = frozenset({Strategy.AVERAGE, Strategy.TASK})

_Truth = NDArray[np.bool_]


@dataclass(slots=True)
class RowOutcome:
    """Counts of rows: taken from one side, and changed differently by both sides.

    `open` counts those that remain undecided.
    """

    open: RowChanges
    ours: int = 0
    theirs: int = 0
    both: int = 0

    @property
    def how(self) -> str | None:
        """Whose changes the result has: "ours", "theirs", "both" (rows of either) or "equal".

        None if both sides changed the same rows differently.
        """
        if self.both:
            return None
        if self.ours and self.theirs:
            return "both"
        if self.ours or self.theirs:
            return "ours" if self.ours else "theirs"
        return "equal"


@dataclass(frozen=True, slots=True)
class _Sides:
    """Whole rows of all three versions, of shape (rows, bytes of a row), or parts of one row."""

    base: U1 | None
    ours: U1
    theirs: U1


@dataclass(slots=True)
class _Marks:
    """Which rows differ, for each pair of versions."""

    ours: _Truth
    theirs: _Truth
    apart: _Truth

    def join(self, other: _Marks, row: int) -> None:
        """Add the marks of a part of one row."""
        self.ours[row] |= other.ours[0]
        self.theirs[row] |= other.theirs[0]
        self.apart[row] |= other.apart[0]

    def of(self, row: int) -> _Marks:
        """Return the marks of one row."""
        cut = slice(row, row + 1)
        return _Marks(self.ours[cut], self.theirs[cut], self.apart[cut])

    @property
    def both(self) -> _Truth:
        """The rows that both sides changed differently."""
        return self.ours & self.theirs & self.apart


@dataclass(slots=True, eq=False)
class RowMerge:
    """A merge of tensors of one element and shape, prepared by `as_numbers`.

    Without `base`, every row that differs counts as changed by both sides.
    """

    base: Tensor | None
    ours: Tensor
    theirs: Tensor
    strategy: Strategy
    rows: int = field(init=False)
    row_bytes: int = field(init=False)
    element: str = field(init=False)
    _large: _Marks | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        shape = self.ours.logical_shape
        self.element = self.ours.element or "u8"
        self.rows = shape[0] if shape else 1
        self.row_bytes = prod(shape[1:]) * ITEM_BYTES[self.element]

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    def outcome(self) -> RowOutcome:
        """Return which rows come from which side; raises FormatError if bytes can't be read."""
        items = max(self.row_bytes // ITEM_BYTES[self.element], 1)
        outcome = RowOutcome(RowChanges(self.rows, items))
        if not self.nbytes:
            return outcome
        if self.row_bytes > BLOCK:
            marks = self._marks_of_large()
            failed = marks.both.copy()
            if self.strategy is not Strategy.FAIL:
                failed[:] = False
                for row, sides in self._parts_of_large():
                    if marks.both[row]:
                        failed[row] |= self._decided(sides)[1].any()
            _count(outcome, marks, failed, 0, items)
            return outcome
        done = 0
        for sides in self._blocks():
            marks = self._marked(sides)
            failed = self._failed(sides, marks)
            _count(outcome, marks, failed, done, items)
            done += len(marks.ours)
        return outcome

    def blocks(self) -> Iterator[memoryview]:
        """Yield the merged items in C order, little-endian; undecided rows are ours."""
        if not self.nbytes:
            return
        if self.row_bytes > BLOCK:
            marks = self._marks_of_large()
            for row, sides in self._parts_of_large():
                yield self._merged(sides, marks.of(row))
            return
        for sides in self._blocks():
            yield self._merged(sides, self._marked(sides))

    def _marks_of_large(self) -> _Marks:
        if self._large is None:
            marks = _Marks(*(np.zeros(self.rows, np.bool_) for _ in range(3)))
            for row, sides in self._parts_of_large():
                marks.join(self._marked(sides), row)
            self._large = marks
        return self._large

    def _merged(self, sides: _Sides, marks: _Marks) -> memoryview:
        merged = sides.ours
        theirs = marks.theirs & ~marks.ours
        both = marks.both
        if theirs.any() or both.any():
            merged = merged.copy()
            merged[theirs] = sides.theirs[theirs]
            if both.any():
                merged[both] = self._decided(_rows_of(sides, both))[0]
        return merged.reshape(-1).data

    def _failed(self, sides: _Sides, marks: _Marks) -> _Truth:
        """Return the rows changed by both sides that the strategy does not settle."""
        both = marks.both
        failed = both.copy()
        if self.strategy is not Strategy.FAIL and both.any():
            failed[both] = self._decided(_rows_of(sides, both))[1]
        return failed

    def _decided(self, sides: _Sides) -> tuple[U1, _Truth]:
        """Return the rows that both changed as the strategy makes them, and those that it can't."""
        chosen = {
            Strategy.OURS: sides.ours,
            Strategy.THEIRS: sides.theirs,
            Strategy.BASE: sides.base,
            Strategy.FAIL: sides.ours,
        }.get(self.strategy)
        rows = len(sides.ours)
        if chosen is not None:
            return chosen, np.full(rows, self.strategy is Strategy.FAIL)
        if self.strategy not in _COMPUTED or (
            self.strategy is Strategy.TASK and sides.base is None
        ):
            return sides.ours, np.ones(rows, np.bool_)
        base = None if sides.base is None else np.ascontiguousarray(sides.base).reshape(-1)
        ours, theirs = (
            np.ascontiguousarray(side).reshape(-1) for side in (sides.ours, sides.theirs)
        )
        computed, good = combine(self.strategy, base, ours, theirs, self.element)
        failed: _Truth = ~np.logical_and.reduce(good.reshape(rows, -1), axis=1)
        merged = computed.reshape(sides.ours.shape)
        if failed.any():
            merged = merged.copy()
            merged[failed] = sides.ours[failed]
        return merged, failed

    def _marked(self, sides: _Sides) -> _Marks:
        apart = _differ(sides.ours, sides.theirs)
        # Without a base it is not known who changed a row: both sides count.
        if sides.base is None:
            return _Marks(np.ones_like(apart), np.ones_like(apart), apart)
        return _Marks(_differ(sides.base, sides.ours), _differ(sides.base, sides.theirs), apart)

    def _blocks(self) -> Iterator[_Sides]:
        """Blocks of whole rows."""
        size = BLOCK // self.row_bytes * self.row_bytes
        for base, ours, theirs in self._pieces(size):
            yield _Sides(
                None if base is None else base.reshape(-1, self.row_bytes),
                ours.reshape(-1, self.row_bytes),
                theirs.reshape(-1, self.row_bytes),
            )

    def _parts_of_large(self) -> Iterator[tuple[int, _Sides]]:
        """Yield parts of rows that are larger than a block, with the row's number."""
        item = ITEM_BYTES[self.element]
        size = BLOCK // item * item
        at = 0
        for pieces in self._pieces(size):
            done, length = 0, len(pieces[1])
            while done < length:
                row, inside = divmod(at + done, self.row_bytes)
                end = min(length, done + self.row_bytes - inside)
                cut = slice(done, end)
                base, ours, theirs = (None if p is None else p[cut].reshape(1, -1) for p in pieces)
                # Only the base may be missing.
                yield row, _Sides(base, ours, theirs)  # type: ignore[arg-type]
                done = end
            at += length

    def _pieces(self, size: int) -> Iterator[tuple[U1 | None, U1, U1]]:
        streams = [
            _exact(tensor_bytes.blocks(side, size), size, self.nbytes, side)
            for side in (self.ours, self.theirs)
        ]
        if self.base is None:
            yield from ((None, ours, theirs) for ours, theirs in zip(*streams, strict=True))
            return
        base = _exact(tensor_bytes.blocks(self.base, size), size, self.nbytes, self.base)
        yield from zip(base, *streams, strict=True)


def _count(outcome: RowOutcome, marks: _Marks, failed: _Truth, first: int, items: int) -> None:
    both = marks.both
    outcome.both += int(both.sum())
    outcome.ours += int((marks.ours & ~marks.theirs).sum())
    outcome.theirs += int((marks.theirs & ~marks.ours).sum())
    rows = np.flatnonzero(failed)
    if len(rows):
        outcome.open.add((rows + first) * items)


def _rows_of(sides: _Sides, rows: _Truth) -> _Sides:
    base = None if sides.base is None else sides.base[rows]
    return _Sides(base, sides.ours[rows], sides.theirs[rows])


def _differ(a: U1, b: U1) -> _Truth:
    """Return which rows of two blocks of one shape differ."""
    x, y = np.ascontiguousarray(a), np.ascontiguousarray(b)
    # Eight bytes at a time, which the rows of most tensors allow.
    if x.shape[1] % 8 == 0:
        x, y = x.view("<u8"), y.view("<u8")
    differ: _Truth = (x != y).any(axis=1)
    return differ


def _exact(blocks: Iterable[memoryview], size: int, nbytes: int, tensor: Tensor) -> Iterator[U1]:
    """Recut the blocks to `size` bytes each, `nbytes` in total; raises FormatError."""
    parts: list[U1] = []
    have = done = 0
    for block in blocks:
        rest = np.frombuffer(block, np.uint8)
        while len(rest):
            part = rest[: size - have]
            rest = rest[len(part) :]
            parts.append(part)
            have += len(part)
            if have == size:
                done += have
                yield parts[0] if len(parts) == 1 else np.concatenate(parts)
                parts, have = [], 0
    if have:
        done += have
        yield parts[0] if len(parts) == 1 else np.concatenate(parts)
    if done != nbytes:
        raise FormatError(
            f"tensor has {done} bytes, not {nbytes}", offset=tensor.offset, field="shape"
        )


U1 = NDArray[np.uint8]
_Bits = NDArray[Any]
_HALF_RANGE = 2.0**63


def combine(
    strategy: Strategy, base: U1 | None, ours: U1, theirs: U1, element: str
) -> tuple[U1, _Truth]:
    """Return items combined by `strategy` (average or task), and which could be computed.

    All arguments are whole items, little-endian, as flat bytes. average: (ours + theirs) / 2. task:
    base + (ours - base) + (theirs - base); an item that only one side changed is taken from it.
    Equal items stay.
    """
    x, y = _bits(ours, element), _bits(theirs, element)
    if strategy is Strategy.AVERAGE or base is None:
        merged, good = _average(x, y, element)
        keep = x == y
    else:
        z = _bits(base, element)
        merged, good = _task(z, x, y, element)
        merged = np.where(x == z, y, merged)
        keep = y == z
        good |= x == z
    merged = np.where(keep, x, merged)
    good |= keep
    parts = numbers.parts_of(element)
    whole: _Truth = np.logical_and.reduce(good.reshape(-1, parts), axis=1)
    return merged.view(np.uint8), whole


def _average(x: _Bits, y: _Bits, element: str) -> tuple[_Bits, _Truth]:
    if element == "bool":
        return x, np.zeros(len(x), np.bool_)
    if element in numbers.INTEGERS:
        a, b = _integers(x, element), _integers(y, element)
        # The mean rounded down, without overflow; then to even, if two integers are nearest.
        low = (a & b) + ((a ^ b) >> a.dtype.type(1))
        odd = (a ^ b) & low & a.dtype.type(1)
        mean = low + odd
        return mean.view(x.dtype), np.ones(len(x), np.bool_)
    a, b = _floats(x, element), _floats(y, element)
    with np.errstate(all="ignore"):
        # Halve each first: their sum may overflow.
        return _rounded(a / 2 + b / 2, element)


def _task(z: _Bits, x: _Bits, y: _Bits, element: str) -> tuple[_Bits, _Truth]:
    if element == "bool":
        # Both sides changed a bool, so both have the same other value.
        return x, np.ones(len(x), np.bool_)
    if element in numbers.INTEGERS:
        a, b, c = (_integers(side, element) for side in (z, x, y))
        with np.errstate(over="ignore"):
            total = b + c - a
        # The result is right modulo 2^n; a float shows whether it overflowed.
        about = b.astype(np.float64) + c.astype(np.float64) - a.astype(np.float64)
        # The difference is a multiple of 2^n after an overflow, else float64's rounding error.
        near = np.abs(about - total.astype(np.float64))
        return total.view(x.dtype), near < _HALF_RANGE / 2.0 ** (64 - 8 * x.itemsize)
    a, b, c = (_floats(side, element) for side in (z, x, y))
    with np.errstate(all="ignore"):
        return _rounded(a + (b - a) + (c - a), element)


def _bits(raw: U1, element: str) -> _Bits:
    return np.frombuffer(raw, f"<u{ITEM_BYTES[numbers.part_element(element)]}")


def _integers(bits: _Bits, element: str) -> NDArray[Any]:
    return bits.view("<" + NUMPY[element])


def _floats(bits: _Bits, element: str) -> F8:
    return numbers.values(bits.view(np.uint8).data, element)


def _rounded(values: F8, element: str) -> tuple[_Bits, _Truth]:
    """Return the nearest numbers of the dtype as bits; False where there is no finite one."""
    element = numbers.part_element(element)
    word = NUMPY.get(element)
    if word is not None:
        rounded = values.astype("<" + word)
        good: _Truth = np.isfinite(rounded)
        return rounded.view(f"<u{rounded.itemsize}"), good
    patterns, known = _finite(element)
    good = np.isfinite(values) & (values >= known[0]) & (values <= known[-1])
    values = np.where(good, values, known[0])
    above = np.clip(np.searchsorted(known, values), 1, len(known) - 1)
    below = above - 1
    up, down = known[above] - values, values - known[below]
    # Ties to even, as in IEEE 754: one of two neighbours has an even bit pattern.
    is_tie_up = (up == down) & (patterns[above] % 2 == 0)
    nearest: _Bits = patterns[np.where((up < down) | is_tie_up, above, below)]
    return nearest, good


@cache
def _finite(element: str) -> tuple[_Bits, F8]:
    """Return all finite numbers of a small float, ascending: their bits, and their values."""
    values = numbers.value_table(element)
    patterns = np.arange(len(values), dtype=f"<u{ITEM_BYTES[element]}")
    finite = np.isfinite(values)
    patterns, values = patterns[finite], values[finite]
    # Of the two zeros the positive one, with the smaller bits, comes first and is kept.
    values, first = np.unique(values, return_index=True)
    return patterns[first], values
