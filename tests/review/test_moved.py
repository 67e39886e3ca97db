"""Tensors that hold what another one held before, where files are compressed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.containers import aero_files as aero
from tests.containers import fold_files as fold
from tests.containers import torch_files
from tests.containers.aero_files import COMPRESSED
from tests.kit import text_of
from tests.review.repos import file, weights
from wtxtgit.comparison.diff import diff
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import ValueRisk

Tensors = dict[str, Any]


def npz(tensors: Tensors, *, save: Any = np.savez_compressed) -> bytes:
    made = io.BytesIO()
    save(made, **tensors)
    return made.getvalue()


def stored_npz(tensors: Tensors) -> bytes:
    return npz(tensors, save=np.savez)


def one_chunk(tensors: Tensors) -> bytes:
    return fold.built(("model", b"STEN", file(tensors)), compression="zstd")


def chunk_for_each(tensors: Tensors) -> bytes:
    chunks = ((name, b"STEN", file({name: value})) for name, value in tensors.items())
    return fold.built(*chunks, compression="zstd")


def shards(tensors: Tensors) -> bytes:
    """A compressed shard for each tensor but the first, whose shard is plain."""
    entries, made = [], []
    for number, (name, value) in enumerate(tensors.items()):
        raw = value.tobytes()
        entries.append(aero.entry(name, list(value.shape), 0, len(raw), shard_id=number))
        made.append(aero.shard(raw, number, flags=1 | (COMPRESSED if number else 0)))
    return aero.file([aero.tidx(*entries), *made])


def torch_zip(tensors: Tensors) -> bytes:
    held = {str(n): value.tobytes() for n, value in enumerate(tensors.values())}
    listed = {
        name: torch_files.vector(str(n), value.size)
        for n, (name, value) in enumerate(tensors.items())
    }
    return torch_files.archive(
        torch_files.named(**listed), held, deflated=tuple(f"/{key}" for key in held)
    )


FORMS = {
    "npz": npz,
    "fold": one_chunk,
    "chunks.fold": chunk_for_each,
    "aero": shards,
    "pt": torch_zip,
}


def flat(tensors: Tensors) -> Tensors:
    return {name.replace(".", "_"): value.reshape(-1) for name, value in tensors.items()}


OLD = flat(weights(2))
NAMES = list(OLD)


def moved(folder: Path, before: bytes, after: bytes, form: str) -> dict[str, str]:
    """By the last part of its name: a tensor's message."""
    reports = []
    for ending, stored in ((form, bytes), (f"{form}.wtxt", text_of)):
        paths = folder / f"a.{ending}", folder / f"b.{ending}"
        for path, content in zip(paths, (before, after), strict=True):
            path.write_bytes(stored(content))
        reports.append(diff(*map(str, paths), ReadOptions()))
    told = [
        {
            tensor.name.rpartition("/")[2]: one.message
            for tensor, one in report.concerns
            if one.risk is ValueRisk.MOVED
        }
        for report in reports
    ]
    assert told[0] == told[1], "a file and its text"
    return told[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_swap(tmp_path: Path, form: str) -> None:
    made = FORMS[form]
    a, b = NAMES[0], NAMES[3]
    after = OLD | {a: OLD[b], b: OLD[a]}
    found = moved(tmp_path, made(OLD), made(after), form)
    assert found.keys() == {a, b}
    assert all(message.endswith(" had before") for message in found.values())


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_of_one_that_stays(tmp_path: Path, form: str) -> None:
    made = FORMS[form]
    for source, target in ((NAMES[0], NAMES[2]), (NAMES[2], NAMES[0])):
        after = OLD | {target: OLD[source]}
        assert moved(tmp_path, made(OLD), made(after), form).keys() == {target}


@pytest.mark.parametrize("form", FORMS)
def test_of_one_that_is_gone(tmp_path: Path, form: str) -> None:
    made = FORMS[form]
    after = {name: value for name, value in OLD.items() if name != NAMES[3]}
    after[NAMES[1]] = OLD[NAMES[3]]
    assert moved(tmp_path, made(OLD), made(after), form).keys() == {NAMES[1]}


@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_training(tmp_path: Path, form: str) -> None:
    made = FORMS[form]
    after = {name: value * np.float32(1.01) for name, value in OLD.items()}
    assert moved(tmp_path, made(OLD), made(after), form) == {}


@pytest.mark.parametrize(("before", "after"), [(npz, stored_npz), (stored_npz, npz)])
def test_a_swap_while_the_file_is_compressed_in_another_way(
    tmp_path: Path, before: Any, after: Any
) -> None:
    a, b = NAMES[0], NAMES[3]
    changed = OLD | {a: OLD[b], b: OLD[a]}
    assert moved(tmp_path, before(OLD), after(changed), "npz").keys() == {a, b}
