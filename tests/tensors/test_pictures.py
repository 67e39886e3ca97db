"""Pictures of tensors: counts and means are numpy's, however blocks are cut."""

from __future__ import annotations

import numpy as np
import pytest

from wtxtgit.model.tensor import Tensor
from wtxtgit.tensors import pictures
from wtxtgit.tensors.pictures import MOST_BLOCKS, picture
from wtxtgit.tensors.statistics import statistics


@pytest.mark.parametrize("shape", [(40, 25), (3, 5), (1000,), (70, 3, 11), (1,), (5, 1)])
@pytest.mark.parametrize("block", [4, 64, 1000, 1 << 20])
def test_cells_are_root_mean_squares(
    shape: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "BLOCK", block)
    values = np.random.default_rng(0).standard_normal(shape).astype("<f4")
    values.flat[values.size // 2] = np.nan
    tensor = Tensor("w", "f32", shape, memoryview(values.tobytes()), 0, "f32")
    found = statistics(tensor)
    drawn = None if found is None else picture(tensor, found)
    if values.size == 1:
        assert drawn is None, "no number is finite"
        return
    assert drawn is not None
    flat = values.reshape(shape[0] if len(shape) > 1 else 1, -1).astype("f8")
    assert (drawn.rows, drawn.columns) == flat.shape
    tall, wide = (min(extent, MOST_BLOCKS) for extent in flat.shape)
    rows = np.arange(flat.shape[0]) * tall // flat.shape[0]
    columns = np.searchsorted(
        np.arange(1, wide) * flat.shape[1] // wide, range(flat.shape[1]), "right"
    )
    for y in range(tall):
        for x in range(wide):
            cell = flat[rows == y][:, columns == x]
            finite = cell[np.isfinite(cell)]
            shown = drawn.cells[y][x]
            if not finite.size:
                assert shown is None
                continue
            assert shown == pytest.approx(np.sqrt(np.mean(finite**2)), rel=1e-12)
    histogram = drawn.histogram
    assert sum(histogram.counts) + histogram.below + histogram.above == values.size - 1
