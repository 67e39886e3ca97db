"""Pictures of a tensor's values, made by reading it once more in bounded blocks."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.inspect import Statistics, TensorPicture
from wtxtgit.report.review import Histogram
from wtxtgit.tensors import numbers, tensor_bytes
from wtxtgit.tensors.numbers import BLOCK, F8
from wtxtgit.tensors.statistics import BINS, SPREAD, bounds_apart, tally

MOST_BLOCKS = 16
"""The most blocks of rows, and of columns, into which a tensor is cut."""

_Sums = NDArray[np.float64]


def picture(tensor: Tensor, values: Statistics) -> TensorPicture | None:
    """Draw a tensor whose statistics are known; None if no number is finite.

    The histogram leaves out values more than four standard deviations from the mean. Raises
    FormatError.
    """
    fitted = tensor_bytes.as_numbers(tensor)
    if fitted is None or fitted.element is None or values.mean is None or values.std is None:
        return None
    element = fitted.element
    parts = numbers.parts_of(element)
    shape = fitted.logical_shape
    rows = shape[0] if len(shape) > 1 else 1
    columns = prod(shape) // rows * parts
    low = max(float(values.min or 0), values.mean - SPREAD * values.std)
    high = min(float(values.max or 0), values.mean + SPREAD * values.std)
    bounds = bounds_apart(low, high)
    tall, wide = min(rows, MOST_BLOCKS), min(columns, MOST_BLOCKS)
    counts = np.zeros(BINS + 2, np.int64)
    squares, items = np.zeros(tall * wide), np.zeros(tall * wide)
    done = 0
    size = ITEM_BYTES[element]
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for block in tensor_bytes.blocks(fitted, BLOCK - BLOCK % size):
            block_values = numbers.values(block, element)
            counts += tally(block_values, bounds)
            _add(squares, items, block_values, done, (rows, columns), (tall, wide))
            done += len(block_values)
        means = np.sqrt(squares / items)
    below, *bins, above = counts.tolist()
    cells = means.reshape(tall, wide).tolist()
    return TensorPicture(
        Histogram(*bounds, tuple(bins), below, above),
        rows,
        columns // parts,
        tuple(tuple(None if cell != cell else cell for cell in row) for row in cells),
    )


def _add(
    squares: _Sums,
    items: _Sums,
    block_values: F8,
    done: int,
    extents: tuple[int, int],
    blocks: tuple[int, int],
) -> None:
    """Add values, which come after `done` earlier ones, to the cells that they are in."""
    (rows, columns), (tall, wide) = extents, blocks
    # Runs of values in one cell end where a block of columns or of rows ends.
    edges = np.arange(1, wide) * columns // wide
    first, last = done // columns, (done + len(block_values) - 1) // columns
    starts = np.concatenate(([0], edges)) + np.arange(first, last + 1)[:, None] * columns
    flat = starts.ravel() - done
    cells = (np.arange(first, last + 1)[:, None] * tall // rows * wide + np.arange(wide)).ravel()
    ends = np.append(flat[1:], len(block_values))
    inside = (ends > 0) & (flat < len(block_values)) & (ends > flat)
    runs, cells = np.maximum(flat[inside], 0), cells[inside]
    finite = np.isfinite(block_values)
    values = block_values if finite.all() else np.where(finite, block_values, 0.0)
    squares += np.bincount(cells, np.add.reduceat(values * values, runs), len(squares))
    items += np.bincount(cells, np.add.reduceat(finite, runs, dtype=np.float64), len(items))
