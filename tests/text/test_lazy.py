"""Lazy reading: as numpy indexes, and no chunk more than is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wtxtgit
from wtxtgit.errors import TextError
from wtxtgit.text import verify
from wtxtgit.text.arrays import LazySnapshot

ROWS = 40
SOURCE: dict[str, np.ndarray[Any, Any]] = {
    "bool": np.arange(ROWS * 3).reshape(ROWS, 3) % 2 == 0,
    "complex": (np.arange(ROWS * 2) + 1j).astype("c16").reshape(ROWS, 2),
    "cube": np.arange(ROWS * 4 * 5, dtype="<i4").reshape(ROWS, 4, 5),
    "empty": np.zeros((0, 3), "f4"),
    "half": np.arange(ROWS, dtype="<f2"),
    "hollow": np.zeros((ROWS, 0), "f8"),
    "matrix": np.arange(ROWS * 7, dtype="<f8").reshape(ROWS, 7),
    "scalar": np.array(3.5),
    "text": np.array([f"row {n}" for n in range(ROWS)]),
    "vector": np.arange(ROWS, dtype="u1"),
}
TEXT = wtxtgit.dumps(SOURCE, rows_per_chunk=4)
LAZY = LazySnapshot(memoryview(TEXT))
NATIVE = {name: array for name, array in SOURCE.items() if name in ("cube", "matrix", "vector")}

INDEXES = st.integers(-ROWS, ROWS - 1)
SLICES = st.builds(
    slice,
    st.none() | st.integers(-ROWS - 5, ROWS + 5),
    st.none() | st.integers(-ROWS - 5, ROWS + 5),
    st.none() | st.integers(-7, 7).filter(bool),
)
KEYS = st.one_of(
    INDEXES,
    SLICES,
    st.just(...),
    st.just(()),
    st.just(None),
    st.lists(INDEXES, max_size=5).map(lambda rows: np.array(rows, dtype=int)),
    st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(np.array),
    st.tuples(INDEXES, INDEXES.map(lambda n: n % 2)),
    st.tuples(SLICES, st.sampled_from([0, -1, slice(None), slice(1, None), ..., None, [0, 1]])),
    st.tuples(INDEXES, st.sampled_from([0, slice(None, None, -1), ..., [1, 0]])),
    INDEXES.map(np.int64),
)


@given(st.sampled_from(["bool", "complex", "cube", "matrix"]), KEYS)
def test_a_lazy_array_is_indexed_as_numpys_own(name: str, key: Any) -> None:
    wanted = SOURCE[name][key]
    found = LAZY[name][key]
    assert np.shape(found) == np.shape(wanted)
    assert np.asarray(found).dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@given(st.sampled_from(["half", "text", "vector"]), INDEXES | SLICES | st.just(...))
def test_a_lazy_vector_is_indexed_as_numpys_own(name: str, key: Any) -> None:
    np.testing.assert_array_equal(LAZY[name][key], SOURCE[name][key])


@pytest.mark.parametrize("name", SOURCE)
def test_a_whole_lazy_array_is_the_array(name: str) -> None:
    found = np.asarray(LAZY[name])
    assert found.dtype == SOURCE[name].dtype
    assert found.shape == SOURCE[name].shape == LAZY[name].shape
    np.testing.assert_array_equal(found, SOURCE[name])
    np.testing.assert_array_equal(LAZY[name][...], SOURCE[name])


@pytest.mark.parametrize("key", [0, slice(0, 3), slice(5, 2), ...])
def test_arrays_without_bytes_are_indexed_too(key: Any) -> None:
    np.testing.assert_array_equal(LAZY["hollow"][key], SOURCE["hollow"][key])
    if key != 0:
        np.testing.assert_array_equal(LAZY["empty"][key], SOURCE["empty"][key])


@pytest.mark.parametrize("row", [ROWS, -ROWS - 1, 10**30])
def test_a_row_outside_is_an_index_error(row: int) -> None:
    with pytest.raises(IndexError):
        LAZY["matrix"][row]


def test_a_scalar_has_no_length_and_no_rows() -> None:
    with pytest.raises(TypeError):
        len(LAZY["scalar"])
    with pytest.raises(IndexError):
        LAZY["scalar"][0]
    assert LAZY["scalar"][()] == 3.5


def test_names_and_lengths_are_those_of_the_arrays() -> None:
    assert list(LAZY) == sorted(SOURCE)
    assert len(LAZY) == len(SOURCE)
    assert len(LAZY["matrix"]) == ROWS


def chunk_starts(text: bytes, name: str) -> list[int]:
    array = LazySnapshot(memoryview(text)).index.array(name)
    assert array is not None
    return array.starts


def damaged(text: bytes, name: str, chunks: set[int]) -> bytes:
    """The text with a letter changed in these chunks of an array."""
    made = bytearray(text)
    for ix in chunks:
        at = chunk_starts(text, name)[ix]
        made[at] = ord("B") if made[at] != ord("B") else ord("C")
    return bytes(made)


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(0, ROWS), st.integers(0, ROWS))
def test_damage_counts_only_in_chunks_that_are_asked_for(
    chunks: set[int], low: int, high: int
) -> None:
    text = damaged(wtxtgit.dumps(NATIVE, rows_per_chunk=4), "matrix", chunks)
    lazy = LazySnapshot(memoryview(text))
    asked = {row // 4 for row in range(low, high)}
    if asked & chunks:
        with pytest.raises(TextError) as caught:
            lazy["matrix"][low:high]
        assert caught.value.array == "matrix"
        assert caught.value.chunk == min(asked & chunks)
    else:
        np.testing.assert_array_equal(lazy["matrix"][low:high], SOURCE["matrix"][low:high])
    np.testing.assert_array_equal(lazy["cube"][:], SOURCE["cube"])


def test_only_the_chunks_of_the_rows_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[tuple[int, int]] = []
    check = verify.check

    def counted(text: Any, block: Any) -> Any:
        decoded.append((block.first, block.count))
        return check(text, block)

    monkeypatch.setattr(verify, "check", counted)
    lazy = LazySnapshot(memoryview(TEXT))
    decoded.clear()
    lazy["matrix"][9:15]
    assert decoded == [(2, 2)]
    decoded.clear()
    lazy["matrix"][-1]
    assert decoded == [(9, 1)]
    decoded.clear()
    lazy["matrix"][30:2]
    assert decoded == []


def test_a_damaged_structure_is_refused_when_it_is_opened() -> None:
    for text in (b"", b"WTXT 1\n", TEXT[:-1], TEXT.replace(b"len=", b"len=0", 1)):
        with pytest.raises(TextError):
            LazySnapshot(memoryview(text))


def test_open_gives_the_arrays_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "w.wtxt"
    wtxtgit.dump(SOURCE, path, rows_per_chunk=4, meta=wtxtgit.Meta(gen=5))
    with wtxtgit.open(path) as snapshot:
        assert snapshot.meta.gen == 5
        np.testing.assert_array_equal(snapshot["matrix"][8:12], SOURCE["matrix"][8:12])
        assert "matrix" in repr(snapshot["matrix"])


def test_a_view_without_a_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="copies"):
        np.array(LAZY["vector"], copy=False)
