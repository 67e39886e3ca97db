"""safetensors: models in several files without an index, told by the numbers in their names."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest

from tests.containers.test_torch_distributed import opener
from tests.review.repos import file
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import FormatError, InputError
from wtxtgit.model.tensor import Description, ReadOptions

OPTIONS = ReadOptions()
ROWS = np.arange(12, dtype="f4").reshape(4, 3)
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def shard(rank: int, number: int = 1, count: int = 1) -> str:
    return f"shard-{rank:05}-model-{number:05}-of-{count:05}.safetensors"


def part(name: str, values: object, *offsets: int) -> bytes:
    told = json.dumps({name: {"saved_offsets": list(offsets)}})
    return file({name: values}, {"DCP_SHARDING_INFO": told, "format": "pt"})


def described(files: Mapping[str, bytes]) -> Description:
    made = registry.index_made(sorted(files))
    assert made is not None
    return any_format.describe(made, OPTIONS, opener(files))


def errors_of(files: Mapping[str, bytes]) -> str:
    made = registry.index_made(sorted(files))
    assert made is not None
    found = any_format.check(made, OPTIONS, opener(files))
    assert found.warnings == []
    return "; ".join(problem.message for problem in found.errors)


def test_a_model_by_its_numbers() -> None:
    files = {ONE: file({"a": ROWS}, {"format": "pt"}), TWO: file({"b": ROWS[:1]})}
    found = described({**files, "README.md": b""})
    assert [(t.name, t.shape) for t in found.tensors] == [("a", (4, 3)), ("b", (1, 3))]
    assert (found.tags, errors_of(files)) == ({"format": "pt"}, "")


def test_a_shard_that_is_missing() -> None:
    assert f"{TWO!r} can't be opened" in errors_of({ONE: file({"a": ROWS})})
    with pytest.raises(FormatError, match="can't be opened"):
        described({ONE: file({"a": ROWS})})


def test_a_tensor_in_two_shards() -> None:
    files = {ONE: file({"a": ROWS}), TWO: file({"a": ROWS})}
    assert "overlap" in errors_of(files)
    assert "overlap" in str(described(files).tensors[0].absent)


def test_chunks_of_ranks() -> None:
    files = {shard(1): part("a", ROWS[:3], 0, 0), shard(2): part("a", ROWS[3:], 3, 0)}
    found = described(files)
    (tensor,) = found.tensors
    assert (tensor.shape, bytes(tensor.data)) == ((4, 3), ROWS.tobytes())
    assert (found.tags, errors_of(files)) == ({"format": "pt"}, "")


def test_a_rank_is_missing() -> None:
    assert "9 of 12 items are in no chunk" in errors_of({shard(2): part("a", ROWS[3:], 3, 0)})


def test_ranks_of_two_dtypes() -> None:
    wrong = {shard(1): part("a", ROWS[:3], 0, 0), shard(2): part("a", ROWS[3:].astype("f8"), 3, 0)}
    assert "different dtypes: 'F32, F64'" in errors_of(wrong)


@pytest.mark.parametrize(
    "told",
    ["[", "[]", '{"a": []}', '{"a": {"saved_offsets": [-1, 0]}}', '{"a": {"saved_offsets": [1]}}'],
)
def test_places_that_are_none(told: str) -> None:
    files = {shard(1): file({"a": ROWS}, {"DCP_SHARDING_INFO": told})}
    assert "DCP_SHARDING_INFO" in errors_of(files)


def test_names_that_tell_nothing_or_too_much() -> None:
    assert registry.index_made(["model.safetensors", "a-1-of-2.safetensors"]) is None
    with pytest.raises(InputError, match="2 sets of numbered shards"):
        registry.index_made([ONE, ONE.replace("model", "other")])


@pytest.mark.parametrize("index", ["[1]", "1", "{}", '["../x"]', '["/etc/passwd"]'])
def test_an_index_that_nobody_made(index: str) -> None:
    data = memoryview(f'{{"numbered_shards":{index}}}'.encode())
    found = any_format.check(data, OPTIONS, opener({}))
    assert found.errors
