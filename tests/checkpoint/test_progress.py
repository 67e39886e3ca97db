"""Of one large tensor, too, it is told how far the work is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.kit.told import Told
from wtxtgit.api.functions import dump
from wtxtgit.checkpoint.convert import convert
from wtxtgit.checkpoint.inspect import inspect
from wtxtgit.checkpoint.partial_file import write_partial
from wtxtgit.checkpoint.recover import recover_text, write_whole
from wtxtgit.checkpoint.repack import recover as mend
from wtxtgit.checkpoint.salvage import salvage, write
from wtxtgit.checkpoint.verify import Demands, verify_file
from wtxtgit.containers.any_format import ReadOptions
from wtxtgit.filter.clean import clean
from wtxtgit.io.progress import Progress

SIZE = 32 * 1024**2
pytestmark = pytest.mark.slow
ASKED = Demands(None, None, (), False, False, ReadOptions())
Work = Callable[[Path, Progress], object]


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


@pytest.mark.parametrize("name", ["out.wtxt", "out.safetensors"])
def test_a_text_that_is_recovered(tmp_path: Path, name: str) -> None:
    file, told = tmp_path / "model.safetensors", Told()
    dump({"w": np.random.default_rng(0).standard_normal(SIZE // 4).astype("f4")}, file)
    text = bytearray(b"".join(clean(memoryview(file.read_bytes())).pieces()))
    text[SIZE // 2] = ord("A") if text[SIZE // 2] != ord("A") else ord("B")
    damaged = tmp_path / "damaged.wtxt"
    damaged.write_bytes(text)
    done = recover_text(str(damaged), memoryview(text), progress=told)
    assert sum(told.counts) == told.expected == 3 * len(text)
    write_whole(done, tmp_path / name, str(damaged), told)
    assert max(told.counts) <= len(text) // 3
    assert sum(told.counts) == told.expected > 3 * len(text)


def test_a_text_of_which_a_part_is_lost(tmp_path: Path) -> None:
    file, told = tmp_path / "model.safetensors", Told()
    dump({"w": np.random.default_rng(0).standard_normal(SIZE // 4).astype("f4")}, file)
    text = bytearray(b"".join(clean(memoryview(file.read_bytes())).pieces()))
    text[SIZE // 2 : SIZE // 2 + 200_000] = b"A" * 200_000
    done = recover_text(str(tmp_path / "damaged.wtxt"), memoryview(text))
    assert write_partial(done, tmp_path / "out", "damaged.wtxt", progress=told).lost
    assert max(told.counts) <= SIZE // 8
    assert sum(told.counts) == told.expected == file.stat().st_size


def test_a_file_of_which_tensors_are_kept(tmp_path: Path) -> None:
    file, told = tmp_path / "model.gguf", Told()
    arrays = {name: np.zeros(SIZE // 8, "f4") for name in "ab"}
    dump(arrays, file)
    data = memoryview(file.read_bytes())
    done = salvage(str(file), data, ReadOptions(), told)
    assert sum(told.counts) == told.expected == len(data)
    assert write(done, tmp_path / "out.gguf", ReadOptions(), told).output
    assert max(told.counts[1:]) <= SIZE // 8
    assert sum(told.counts) == told.expected


def test_a_file_that_its_parity_mends(tmp_path: Path) -> None:
    plain, file, told = tmp_path / "model.npz", tmp_path / "model.fold", Told()
    dump({"w": np.random.default_rng(0).standard_normal(SIZE // 16).astype("f4")}, plain)
    convert(str(plain), file, ReadOptions(), extras={"ecc": 32})
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert mend(file, tmp_path / "out.fold", ReadOptions(), progress=told).mended
    assert max(told.counts) <= len(content) // 2
    assert len(told.counts) > 6
    assert sum(told.counts) == told.expected == 3 * len(content)
