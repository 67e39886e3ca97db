"""The checkpoints that are measured with: `bench.data`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bench.data import (
    CHUNK_ROWS,
    COLUMNS,
    arrays_of,
    as_bf16,
    changed_chunks,
    changed_rows,
    model_of,
    text_of,
    weights_of,
)
from bench.epochs import EPOCHS, TRAININGS, Tensors, epochs_of
from bench.measure import MIB, Place
from wtxtgit.text.verify import verify


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    for name in ("home", "tmp"):
        found.folder(name)
    return found


def differing(a: Path, b: Path) -> set[int]:
    """Numbers of the rows that differ."""
    one, other = (load_file(path)["w"] for path in (a, b))
    return set(np.flatnonzero((one != other).any(axis=1)).tolist())


def test_a_model_is_the_same_every_time(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        contents.append(model_of(Place(tmp_path / name), 1).read_bytes())
    assert contents[0] == contents[1]
    (weights,) = load_file(tmp_path / "a" / "model-1.safetensors").values()
    assert weights.shape == (MIB // 4 // COLUMNS, COLUMNS)
    assert weights.dtype == np.float32
    assert weights.std() == pytest.approx(1.0, abs=0.01)


def test_tuned_weights(place: Place) -> None:
    before, after = (
        load_file(weights_of(place, 1, "F32", is_tuned=it))["w"] for it in (False, True)
    )
    assert (before == load_file(model_of(place, 1))["w"]).all()
    assert (before != after).mean() > 0.99
    assert np.abs(after / before - 1).max() < 0.01


def test_tuned_weights_of_bf16(place: Place) -> None:
    paths = [weights_of(place, 1, "BF16", is_tuned=it) for it in (False, True)]
    contents = [path.read_bytes() for path in paths]
    assert contents[0][:-MIB] == contents[1][:-MIB]
    bits = [np.frombuffer(content[-MIB:], np.uint16) for content in contents]
    values, others = ((one.astype(np.uint32) << 16).view(np.float32) for one in bits)
    assert (as_bf16(values) == bits[0]).all()
    assert 0.1 < (bits[0] != bits[1]).mean() < 0.5
    assert np.abs(others / values - 1).max() < 0.02


def test_many_arrays(place: Place) -> None:
    arrays = load_file(arrays_of(place, 300, 16))
    assert len(arrays) == 300
    assert {array.shape for array in arrays.values()} == {(1, 16)}


def test_changed_rows(place: Place) -> None:
    model = model_of(place, 2)
    both = differing(model, changed_rows(model, place.top / "both"))
    even, odd = (
        differing(model, changed_rows(model, place.top / f"part{part}", part)) for part in (0, 1)
    )
    assert len(both) == len(even) == len(odd) == 5
    assert {row % 2 for row in even} == {0}
    assert {row % 2 for row in odd} == {1}


def test_changed_chunks(place: Place) -> None:
    model = model_of(place, 2)
    rows = sorted(differing(model, changed_chunks(model, place.top / "changed")))
    assert rows == list(range(rows[0], rows[0] + CHUNK_ROWS))
    assert rows[0] % CHUNK_ROWS == 0


def test_a_text_is_made_beside_its_file(place: Place) -> None:
    text = text_of(place, arrays_of(place, 2, 16))
    assert text == place.top / "arrays-2x16.wtxt"
    assert verify(memoryview(text.read_bytes())).ok


def test_epochs_change_what_learns() -> None:
    half, all_of_it = ([*epochs_of(training, 2)] for training in TRAININGS)
    assert len(half) == EPOCHS

    def changed(epochs: list[Tensors]) -> dict[str, float]:
        return {name: float((epochs[1][name] != epochs[0][name]).mean()) for name in epochs[0]}

    first, second = ({name for name in half[0] if f"layers.{n}." in name} for n in range(2))
    assert {name for name, share in changed(half).items() if not share} == first
    assert min(changed(half)[name] for name in second) > 0.99
    assert min(changed(all_of_it)[name] for name in first | second) > 0.99
    assert changed(half)["embed"] == pytest.approx(0.1, abs=0.01)
    assert (half[0]["embed"] == all_of_it[0]["embed"]).all(), "the same every time"
