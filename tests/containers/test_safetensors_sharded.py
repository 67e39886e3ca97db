"""safetensors: models in several files with an index."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.samples import safetensors, tensor_item
from tests.containers.sources import content, models, source
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.safetensors import sharded
from wtxtgit.containers.safetensors.sharded import is_index
from wtxtgit.containers.safetensors.write import build_model, build_set
from wtxtgit.errors import FormatError, InputError
from wtxtgit.model.findings import Problem
from wtxtgit.model.tensor import ReadOptions, TensorSource

ONE = b"".join(build_model([source("a", "f32", (2,)), source("b", "u8", (3,))], {"format": "pt"}))
TWO = b"".join(build_model([source("c", "i64", ())], {"format": "pt"}))
FILES = {"one.safetensors": ONE, "two.safetensors": TWO}
WEIGHT_MAP = {"c": "two.safetensors", "a": "one.safetensors", "b": "one.safetensors"}
GOOD = {"metadata": {"total_size": 19}, "weight_map": WEIGHT_MAP}


def opener(files: dict[str, bytes]) -> Callable[[str], memoryview]:
    def open_member(path: str) -> memoryview:
        if path not in files:
            raise InputError(f"{path} is not there")
        return memoryview(files[path])

    return open_member


def spelled(index: object) -> memoryview:
    return memoryview(json.dumps(index, indent=2).encode())


def found(
    index: object = GOOD, files: dict[str, bytes] = FILES
) -> tuple[list[Problem], list[Problem]]:
    findings = sharded.read(spelled(index), opener(files)).check(ReadOptions())
    return findings.errors, findings.warnings


def test_a_model_that_holds() -> None:
    assert found() == ([], [])
    listed = sharded.read(spelled(GOOD), opener(FILES)).describe(ReadOptions())
    assert [(t.name, t.element, t.shape, t.offset) for t in listed.tensors] == [
        ("c", "i64", (), None),
        ("a", "f32", (2,), None),
        ("b", "u8", (3,), None),
    ]
    assert bytes(listed.tensors[2].data) == content(source("b", "u8", (3,)))
    assert listed.tags == {"format": "pt"}
    assert listed.untold == ()
    json.dumps(listed.metadata)


def test_the_registry_knows_an_index() -> None:
    assert describe(spelled(GOOD), open_member=opener(FILES)).format == "safetensors-index"
    [error] = check(spelled(GOOD), open_member=opener({})).errors[:1]
    assert error.chunk == "two.safetensors"


@given(models(["f32", "u8", "bf16"]), st.integers(1, 60))
def test_what_is_written_reads_back(tensors: list[TensorSource], most: int) -> None:
    files = {name: b"".join(pieces) for name, pieces in build_set(tensors, {"a": "b"}, "m", most)}
    spelled_index = memoryview(files.popitem()[1])
    if not files:
        return
    assert is_index(spelled_index)
    index = sharded.read(spelled_index, opener(files))
    findings = index.check(ReadOptions())
    assert (findings.errors, findings.warnings) == ([], [])
    listed = index.describe(ReadOptions())
    assert listed.tags == {"a": "b"}
    assert {t.name: (t.element, t.shape, bytes(t.data)) for t in listed.tensors} == {
        t.name: (t.element, t.shape, content(t)) for t in tensors
    }


def test_which_json_is_an_index() -> None:
    assert is_index(spelled(GOOD))
    assert not is_index(spelled({"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}))
    assert not is_index(spelled({"model_type": "llama"}))
    assert not is_index(memoryview(b""))


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: value for key, value in files.items() if key != name}


@pytest.mark.parametrize(
    ("files", "kind", "field", "words"),
    [
        (without(FILES, "two.safetensors"), "structure", "weight_map", "can't be opened"),
        (FILES | {"two.safetensors": b"PK\3\4"}, "structure", "magic", "not a safetensors file"),
        (FILES | {"two.safetensors": b""}, "structure", "magic", "not a safetensors file"),
        (
            FILES | {"two.safetensors": TWO[:-1]},
            "structure",
            "tensor 'c'",
            "reaches outside",
        ),
        (
            FILES | {"two.safetensors": safetensors({})},
            "structure",
            "weight_map",
            "tensor 'c' is not in 'two.safetensors'",
        ),
    ],
)
def test_files_that_are_not_what_is_listed(
    files: dict[str, bytes], kind: str, field: str, words: str
) -> None:
    [error] = found(files=files)[0]
    assert (error.kind, error.field, error.chunk) == (kind, field, "two.safetensors")
    assert words in error.message
    with pytest.raises(FormatError, match=words) as caught:
        sharded.read(spelled(GOOD), opener(files)).describe(ReadOptions())
    assert (caught.value.kind, caught.value.field) == (kind, field)


def test_what_is_wrong_inside_of_a_file_names_it() -> None:
    broken = safetensors({"c": tensor_item("U8", [2], 0, 3)}, b"abcd")
    errors, warnings = found(files=FILES | {"two.safetensors": broken})
    assert [(e.field, e.chunk) for e in errors] == [("data_offsets", "two.safetensors")] * 2
    assert [(w.field, w.chunk) for w in warnings] == [("header length", "two.safetensors")]


def test_tensors_that_are_not_listed() -> None:
    weight_map = {"c": "two.safetensors", "a": "one.safetensors"}
    index = {"metadata": {"total_size": 16}, "weight_map": weight_map}
    errors, [warning] = found(index)
    assert errors == []
    assert (warning.kind, warning.field) == ("structure", "weight_map")
    assert warning.chunk == "one.safetensors"
    assert "tensor 'b' is in 'one.safetensors'" in warning.message
    listed = sharded.read(spelled(index), opener(FILES)).describe(ReadOptions())
    assert [t.name for t in listed.tensors] == ["c", "a"]


@pytest.mark.parametrize("total", [18, 0, -1, "19", True, [], 19.5])
def test_a_total_size_that_is_not_that_of_the_tensors(total: object) -> None:
    errors, [warning] = found({"metadata": {"total_size": total}, "weight_map": WEIGHT_MAP})
    assert errors == []
    assert (warning.kind, warning.field, warning.offset) == ("structure", "total_size", 0)
    assert "the tensors have 19 bytes" in warning.message


def test_true_is_no_size() -> None:
    files = {"x.safetensors": b"".join(build_model([source("a", "u8", (1,))], {}))}
    index = {"metadata": {"total_size": True}, "weight_map": {"a": "x.safetensors"}}
    [warning] = found(index, files)[1]
    assert warning.field == "total_size"


@pytest.mark.parametrize("metadata", [None, {}, {"total_size": None}, {"total_size": 19.0}, [1]])
def test_total_sizes_that_hold_or_are_not_there(metadata: object) -> None:
    assert found({"metadata": metadata, "weight_map": WEIGHT_MAP}) == ([], [])


@pytest.mark.parametrize(
    "path",
    [
        "../one.safetensors",
        "/one.safetensors",
        "a/../../one.safetensors",
        "./one.safetensors",
        "a//one.safetensors",
        "",
        "..",
        "a\\one.safetensors",
        "C:one.safetensors",
        "one.safetensors\0",
        "one.safetensors/",
    ],
)
def test_paths_that_lead_out_are_never_opened(path: str) -> None:
    def open_member(name: str) -> memoryview:
        raise AssertionError(name)

    index = sharded.read(spelled({"weight_map": {"a": path}}), open_member)
    [error] = index.check(ReadOptions()).errors
    assert (error.kind, error.field, error.chunk) == ("structure", "weight_map", path)
    with pytest.raises(FormatError, match="not a path in the index's folder"):
        index.describe(ReadOptions())


def test_a_file_in_a_folder_below() -> None:
    index = {"weight_map": {"c": "shards/two.safetensors"}}
    assert found(index, {"shards/two.safetensors": TWO}) == ([], [])


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (b"{", "index"),
        (b"[]", "weight_map"),
        (b"{}", "weight_map"),
        (b'{"weight_map":[]}', "weight_map"),
        (b'{"weight_map":{"a":1}}', "weight_map"),
        (b'{"weight_map":{"a":"x","a":"y"}}', "index"),
        (b'{"weight_map":{"\\ud800":"x"}}', "tensor name"),
        (b'{"weight_map":{"a":"\\ud800"}}', "file name"),
        (b"[" * 100, "index"),
    ],
)
def test_an_index_that_is_refused(index: bytes, field: str) -> None:
    with pytest.raises(FormatError) as caught:
        sharded.read(memoryview(index), opener({}))
    assert caught.value.field == field
    assert caught.value.offset is not None


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "MAX_SET_FILES", 1)
    with pytest.raises(FormatError, match="index lists 2 files"):
        sharded.read(spelled(GOOD), opener(FILES))
    monkeypatch.setattr(sharded, "MAX_TENSORS", 2)
    with pytest.raises(FormatError, match="index lists 3 tensors") as caught:
        sharded.read(spelled(GOOD), opener(FILES))
    assert caught.value.kind == "limit"


def test_tags_at_odds_are_told() -> None:
    files = dict(FILES)
    tags: dict[str, Any] = {"format": "np", "extra": "x"}
    files["two.safetensors"] = b"".join(build_model([source("c", "i64", ())], tags))
    listed = sharded.read(spelled(GOOD), opener(files)).describe(ReadOptions())
    assert listed.tags == {"extra": "x"}
    assert listed.untold == ("format",)
