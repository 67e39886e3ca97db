"""Of one large tensor, too, it is told how far the work is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wtxtgit.api.functions import dump
from wtxtgit.checkpoint.convert import convert
from wtxtgit.checkpoint.inspect import inspect
from wtxtgit.checkpoint.verify import Demands, verify_file
from wtxtgit.containers.any_format import ReadOptions
from wtxtgit.io.progress import Progress

SIZE = 32 * 1024**2
ASKED = Demands(None, None, (), False, False, ReadOptions())
Work = Callable[[Path, Progress], object]


class Told:
    """A `Progress` that keeps what it is told."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.expected = 0

    def __call__(self, count: int) -> None:
        self.counts.append(count)

    def expect(self, size: int | None, files: int = 0) -> None:
        self.expected += size or 0

    def finish_file(self) -> None:
        """No matter here."""


def inspected(file: Path, told: Progress) -> object:
    return inspect(str(file), ReadOptions(), progress=told)


def converted(file: Path, told: Progress) -> object:
    return convert(str(file), file.with_suffix(".npz"), ReadOptions(), progress=told)


def converted_to_shards(file: Path, told: Progress) -> object:
    out = file.with_name("out.safetensors")
    return convert(str(file), out, ReadOptions(), max_shard=SIZE, progress=told)


@pytest.mark.parametrize("ending", ["fold", "aero", "npz", "pt"])
def test_a_file_that_is_verified(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"model.{ending}"
    dump({"w": np.random.default_rng(0).standard_normal(SIZE // 4).astype("f4")}, file)
    told = Told()
    assert verify_file(str(file), ASKED, progress=told).ok
    assert len(told.counts) > 8
    assert sum(told.counts) == told.expected == file.stat().st_size


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("work", [inspected, converted, converted_to_shards])
def test_one_large_tensor(tmp_path: Path, work: Work, dtype: str) -> None:
    file = tmp_path / "model.safetensors"
    dump({"w": np.random.default_rng(0).standard_normal(SIZE // 4).astype("f4").view(dtype)}, file)
    told = Told()
    work(file, told)
    assert max(told.counts) <= SIZE // 2
    assert told.expected <= sum(told.counts) <= told.expected + 4096
