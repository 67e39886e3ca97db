"""safetensors: files that are written are those of the library, and it reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize, safe_open
from safetensors.numpy import load, save

from tests.containers.samples import manifest_entries
from tests.containers.sources import NAMES, SHAPES, content, models, source
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.safetensors import write
from wtxtgit.containers.safetensors.write import DTYPES, build_model, build_set
from wtxtgit.containers.tensor_header import ELEMENTS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import ITEM_BYTES, TensorSource

NUMPY = {
    "f64": "<f8",
    "f32": "<f4",
    "f16": "<f2",
    "i64": "<i8",
    "i32": "<i4",
    "i16": "<i2",
    "i8": "i1",
    "u64": "<u8",
    "u32": "<u4",
    "u16": "<u2",
    "u8": "u1",
    "bool": "?",
    "c64": "<c8",
}
FILES = [entry for entry in manifest_entries() if entry["format"] == "safetensors"]
TAGS = st.dictionaries(NAMES, NAMES, max_size=3)


def array_of(tensor: TensorSource) -> np.ndarray[Any, Any]:
    dtype = NUMPY[tensor.element]
    raw = np.frombuffer(content(tensor), "u1")
    # Bytes of a bool are 0 and 1 alone.
    return (
        (raw.view("u1") % 2).view(dtype).reshape(tensor.shape)
        if dtype == "?"
        else raw.view(dtype).reshape(tensor.shape)
    )


def source_of(name: str, array: np.ndarray[Any, Any]) -> TensorSource:
    element = next(e for e, dtype in NUMPY.items() if np.dtype(dtype) == array.dtype)
    return source(name, element, array.shape, array.tobytes())


NUMPY_MODELS = st.lists(
    st.builds(source, NAMES, st.sampled_from(sorted(NUMPY)), SHAPES),
    max_size=6,
    unique_by=lambda tensor: tensor.name,
).map(lambda tensors: {tensor.name: array_of(tensor) for tensor in tensors})


@given(NUMPY_MODELS)
def test_the_same_bytes_as_the_library(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    tensors = [source_of(name, array) for name, array in arrays.items()]
    for tags in ({}, {'a\n"é': "b\x7f\u2028"}):
        # The library's metadata of several texts are in no order.
        ours = b"".join(build_model(tensors, tags))
        assert ours == save(arrays, tags or None)
        assert b"".join(build_model(tensors[::-1], tags)) == ours


@given(NUMPY_MODELS, TAGS)
def test_the_library_reads_what_is_written(
    arrays: dict[str, np.ndarray[Any, Any]], tags: dict[str, str]
) -> None:
    data = b"".join(build_model([source_of(n, a) for n, a in arrays.items()], tags))
    loaded = load(data)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()


@given(NUMPY_MODELS, TAGS)
def test_what_the_library_writes_is_read(
    arrays: dict[str, np.ndarray[Any, Any]], tags: dict[str, str]
) -> None:
    # With metadata of nothing and no tensors the library writes what is no JSON.
    data = memoryview(save(arrays, tags or None))
    findings = check(data)
    assert (findings.errors, findings.warnings) == ([], [])
    listed = describe(data)
    assert listed.tags == tags
    assert listed.untold == ()
    assert {t.name: (t.element, t.shape, bytes(t.data)) for t in listed.tensors} == {
        name: (source_of(name, array).element, array.shape, array.tobytes())
        for name, array in arrays.items()
    }


@given(models(sorted(DTYPES)), TAGS)
def test_all_dtypes_read_back(tensors: list[TensorSource], tags: dict[str, str]) -> None:
    data = memoryview(b"".join(build_model(tensors, tags)))
    findings = check(data)
    assert (findings.errors, findings.warnings) == ([], [])
    listed = describe(data)
    assert listed.tags == tags
    assert {t.name: (t.element, t.shape, bytes(t.data)) for t in listed.tensors} == {
        t.name: (t.element, t.shape, content(t)) for t in tensors
    }
    assert {
        name: (t["dtype"], tuple(t["shape"]), bytes(t["data"]))
        for name, t in deserialize(bytes(data))
    } == {t.name: (DTYPES[t.element], t.shape, content(t)) for t in tensors}
    for tensor in listed.tensors:
        assert tensor.offset is not None
        assert tensor.offset % min(ITEM_BYTES[tensor.element or ""], 8) == 0


def test_safe_open_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [source("层/名", "f32", (2, 3)), source("", "i16", ()), source("z", "u8", (0, 4))]
    path.write_bytes(b"".join(build_model(tensors, {"format": "pt"})))
    with safe_open(path, framework="np") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == {"层/名", "", "z"}
        for tensor in tensors:
            assert file.get_tensor(tensor.name).tobytes() == content(tensor)


@pytest.mark.parametrize("entry", FILES, ids=lambda e: e["file"])
def test_files_of_the_library_are_written_again(entry: dict[str, Any]) -> None:
    data = fixture(entry["file"])
    listed = describe(memoryview(data))
    tensors = [
        source(t.name, t.element or "", t.shape, bytes(t.data)) for t in reversed(listed.tensors)
    ]
    ours = b"".join(build_model(tensors, listed.tags))
    if len(listed.tags) < 2:
        assert ours == data
    again = describe(memoryview(ours))
    assert again.tags == listed.tags
    assert [(t.name, t.dtype, t.shape, bytes(t.data)) for t in again.tensors] == [
        (t.name, t.dtype, t.shape, bytes(t.data)) for t in listed.tensors
    ]


def test_tags_are_sorted() -> None:
    data = b"".join(build_model([], {"b": "1", "a": "2"}))
    assert data[8:42] == b'{"__metadata__":{"a":"2","b":"1"}}'


def test_dtypes_of_the_format() -> None:
    assert {ELEMENTS[dtype] for dtype in DTYPES.values()} == set(DTYPES)
    assert set(ITEM_BYTES) - set(DTYPES) == {"c128"}


@pytest.mark.parametrize(
    ("tensors", "tags", "field"),
    [
        ([source("a", "c128", (1,))], {}, "dtype"),
        ([source("a", "u8", (1,)), source("a", "u8", (2,))], {}, "name"),
        ([source("__metadata__", "u8", (1,))], {}, "name"),
        ([source("\ud800", "u8", (1,), b"a")], {}, "tensor name"),
        ([], {"a": "\ud800"}, "metadata"),
    ],
)
def test_what_the_format_can_not_hold(
    tensors: list[TensorSource], tags: dict[str, str], field: str
) -> None:
    for call in (lambda: build_model(tensors, tags), lambda: build_set(tensors, tags, "m", 1)):
        with pytest.raises(FormatError) as caught:
            call()
        assert caught.value.field == field


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [source(name, "u8", (1,)) for name in "abc"]
    length = len(b"".join(build_model(tensors, {}))) - 8 - 3
    monkeypatch.setattr(write, "MAX_HEADER", length)
    assert build_model(tensors, {})
    monkeypatch.setattr(write, "MAX_HEADER", length - 1)
    with pytest.raises(FormatError) as caught:
        build_model(tensors, {})
    assert (caught.value.kind, caught.value.field) == ("limit", "header")
    monkeypatch.setattr(write, "MAX_TENSORS", 2)
    with pytest.raises(FormatError, match="3 tensors are too many"):
        build_model(tensors, {})
    monkeypatch.setattr(write, "MAX_SET_FILES", 2)
    with pytest.raises(FormatError, match="3 files are too many"):
        build_set(tensors, {}, "m", 1)


def test_nothing_of_a_tensor_is_held() -> None:
    block = bytes(2**20)
    made = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal made
        for _ in range(2**12):
            made += 1
            yield block

    pieces = build_model([TensorSource("a", "f32", (2**30,), 2**32, blocks)], {})
    assert next(pieces)[8:12] == b'{"a"'
    assert made == 0
    assert next(pieces) is block
    assert made == 1


def files_of(tensors: list[TensorSource], tags: dict[str, str], most: int) -> dict[str, bytes]:
    return {name: b"".join(pieces) for name, pieces in build_set(tensors, tags, "model", most)}


def test_files_are_filled_in_order() -> None:
    sizes = {"a": 3, "b": 4, "c": 9, "d": 3, "e": 0, "f": 8, "g": 1}
    tensors = [source(name, "u8", (size,)) for name, size in sizes.items()]
    files = files_of(tensors, {"format": "pt"}, 8)
    assert list(files) == [
        *(f"model-0000{number}-of-00005.safetensors" for number in range(1, 6)),
        "model.safetensors.index.json",
    ]
    index = json.loads(files.popitem()[1])
    held = []
    for data in files.values():
        assert describe(memoryview(data)).tags == {"format": "pt"}
        held.append(sorted(load(data)))
    # A tensor that is too large does not end the file that is being filled.
    assert held == [["c"], ["a", "b"], ["d", "e"], ["f"], ["g"]]
    assert index["metadata"] == {"total_size": 28}
    by_file = dict(zip(files, held, strict=True))
    assert index["weight_map"] == {n: file for file, names in by_file.items() for n in names}


def test_what_fits_into_one_file_needs_no_index() -> None:
    tensors = [source("a", "f32", (2,)), source("b", "f32", (2,))]
    assert files_of(tensors, {}, 16) == {"model.safetensors": b"".join(build_model(tensors, {}))}
    assert list(files_of([], {}, 16)) == ["model.safetensors"]
    assert list(files_of(tensors[:1], {}, 7)) == ["model.safetensors"]


@given(models(["f32", "u8", "bf16"]), st.integers(1, 200))
def test_every_tensor_is_in_one_file(tensors: list[TensorSource], most: int) -> None:
    found: dict[str, bytes] = {}
    count = 0
    for name, data in files_of(tensors, {}, most).items():
        if name.endswith(".json"):
            continue
        listed = describe(memoryview(data)).tensors
        count += len(listed)
        assert len(listed) <= 1 or sum(len(t.data) for t in listed) <= most
        found.update((t.name, bytes(t.data)) for t in listed)
    assert count == len(found)
    assert found == {t.name: content(t) for t in tensors}
    assert sum(prod(t.shape) * ITEM_BYTES[t.element] for t in tensors) == sum(
        map(len, found.values())
    )
