"""MLCP: what is told of sizes, dtypes, and metadata that say otherwise than the records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers import samples
from tests.containers.samples import count, manifest_entries, mlcp_record
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.mlcp.read import DTYPE_NAMES
from wtxtgit.model.findings import Problem, total

MLCP = [entry for entry in manifest_entries() if entry["format"] == "MLCP"]
VALID = [entry for entry in MLCP if entry["valid"]]
CLEAN_QUIRKS = {
    "metadata_lists_fewer_shards_than_written",
    "metadata_shards_null",
    "metadata_version_null",
    "negative_size_and_dim",
    "size_not_shape_product",
    "undefined_dtype_numeric_string",
}
"""Quirks that are warned of."""


def item(name: str, dtype: object, shape: list[int], size: int) -> dict[str, object]:
    return {"name": name, "shape": shape, "dataType": dtype, "offset": 0, "size": size}


def listed(*shards: object, **more: object) -> dict[str, object]:
    return {"version": "1.0.0", "shards": list(shards)} | more


def warnings(metadata: object, body: bytes) -> list[Problem]:
    """The warnings of a file that has no errors."""
    findings = check(memoryview(samples.mlcp(metadata, body)))
    assert findings.errors == []
    assert all(problem.kind == "structure" for problem in findings.warnings)
    return findings.warnings


def errors(metadata: object, body: bytes) -> list[Problem]:
    """The errors of a file, all of its structure."""
    findings = check(memoryview(samples.mlcp(metadata, body)))
    assert all(problem.kind == "structure" for problem in findings.errors)
    return findings.errors


def body_start(metadata: object) -> int:
    return len(samples.mlcp(metadata))


A = mlcp_record(b"a", "Float32", [2], 8)
ITEM_A = item("a", 1, [2], 8)
GOOD = listed({"tensors": [ITEM_A]})


def test_a_file_as_its_writer_makes_it() -> None:
    assert warnings(GOOD, count(1) + A) == []
    assert warnings(GOOD | {"tensorInfos": [ITEM_A]}, count(1) + A) == []
    assert warnings(listed({"tensors": None}), count(1) + A) == []
    assert warnings(listed(), b"") == []


@pytest.mark.parametrize("entry", VALID, ids=lambda e: e["file"])
def test_valid_files_of_the_original_writer(entry: dict[str, Any]) -> None:
    findings = check(memoryview(fixture(entry["file"])))
    assert findings.errors == []
    assert bool(findings.warnings) == bool(CLEAN_QUIRKS & set(entry["quirks"]))


def test_a_shard_that_is_listed_and_not_there() -> None:
    data = samples.mlcp(listed({}, {}), count(1) + A)
    [error] = check(memoryview(data)).errors
    assert (error.kind, error.field, error.offset) == ("structure", "shards", len(data))
    assert "lists 2 shards, but the file ends after 1" in error.message


def test_the_fixture_with_a_shard_too_many() -> None:
    [entry] = [e for e in MLCP if not e["valid"] and e["file"].endswith(".checkpoint")]
    data = fixture(entry["file"])
    [error] = check(memoryview(data)).errors
    assert (error.kind, error.field, error.offset) == ("structure", "shards", len(data))


def test_a_shard_file_is_refused_by_its_name() -> None:
    [error] = check(memoryview(fixture("mlcp/sibling_multishard_a.shard"))).errors
    assert (error.kind, error.offset, error.field) == ("structure", 0, "magic")
    assert ".shard file" in error.message


@pytest.mark.parametrize("shards", [None, [], [{}], "absent"])
def test_shards_that_are_not_listed(shards: object) -> None:
    metadata = {"version": "1.0.0", "shards": shards}
    if shards == "absent":
        del metadata["shards"]
    [warning] = warnings(metadata, count(1) + A + count(0))
    assert (warning.field, warning.offset) == ("shards", 14)
    assert "the file has 2" in warning.message


@pytest.mark.parametrize(
    ("metadata", "field", "words"),
    [
        ([], "metadata", "not a JSON object"),
        ({"version": "2", "shards": []}, "version", "version is '2' in the metadata, '1.0.0'"),
        ({"version": 1.5, "shards": []}, "version", "version is not a string"),
        ({"version": "1.0.0", "shards": {}}, "shards", "shards is not a list"),
    ],
)
def test_metadata_that_the_original_writer_does_not_make(
    metadata: object, field: str, words: str
) -> None:
    error, *_ = errors(metadata, b"")
    assert (error.field, error.offset) == (field, 14)
    assert words in error.message


@pytest.mark.parametrize("metadata", [{"version": None, "shards": []}, {"shards": []}])
def test_metadata_without_a_version(metadata: object) -> None:
    [warning] = warnings(metadata, b"")
    assert (warning.field, warning.offset) == ("version", 14)
    assert "version is null in the metadata, '1.0.0' before it" in warning.message
    assert [
        (error.field, error.message)
        for error in check(memoryview(samples.mlcp(metadata, version="2"))).errors
    ] == [("version", "version is null in the metadata, '2' before it")]


@pytest.mark.parametrize(
    ("record", "wanted", "field", "from_end", "words"),
    [
        (("Float32", [10, 10], 7), 1, "size", 8, "size 7, but its dtype and shape need 400 bytes"),
        (("Float64", [], 4), 2, "size", 8, "need 8 bytes"),
        (("Int8", [0, 5], 1), 3, "size", 8, "need 0 bytes"),
        (("Int8", [2**62, 4], 1), 3, "size", 8, "more than a size field can hold"),
        (("Int8", [2**62, 2**62], 1), 3, "size", 8, "more than a size field can hold"),
        (("Int32", [4], -1), 5, "size", 8, "has size -1"),
        (("Int32", [-1, 4], 16), 5, "shape", 24, "a negative dimension, -1"),
        (("99", [4], 4), 99, "dtype", 22, "unknown dtype '99'"),
    ],
)
def test_records_that_do_not_add_up(
    record: tuple[str, list[int], int], wanted: object, field: str, from_end: int, words: str
) -> None:
    dtype, shape, size = record
    metadata = listed({"tensors": [item("a", wanted, shape, size)]})
    body = count(1) + mlcp_record(b"a", dtype, shape, size)
    [warning] = warnings(metadata, body)
    assert (warning.field, warning.offset) == (field, len(samples.mlcp(metadata, body)) - from_end)
    assert words in warning.message
    # Where nothing else in the file says so, the record may be damaged.
    for bare in (listed({"tensors": None}), listed({}), {"version": "1.0.0", "shards": None}):
        [error] = errors(bare, body)
        assert (error.field, error.message) == (field, warning.message)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "b"}, "name"),
        ({"name": None}, "name"),
        ({"shape": [3]}, "shape"),
        ({"shape": [2, 1]}, "shape"),
        ({"shape": [True]}, "shape"),
        ({"shape": 2}, "shape"),
        ({"dataType": 0}, "dataType"),
        ({"dataType": 13}, "dataType"),
        ({"dataType": -1}, "dataType"),
        ({"dataType": "Float64"}, "dataType"),
        ({"size": 9}, "size"),
        ({"size": 8.0}, "size"),
    ],
)
def test_a_tensor_listed_otherwise_than_its_record(change: dict[str, object], field: str) -> None:
    for metadata in (
        listed({"tensors": [ITEM_A | change]}),
        listed({"tensors": [ITEM_A]}, tensorInfos=[ITEM_A | change]),
    ):
        # One of the wrong type is told as such, too.
        error = errors(metadata, count(1) + A)[-1]
        assert (error.field, error.offset) == (field, body_start(metadata) + 4)
        assert f"{field} of tensor 'a'" in error.message


def test_dtypes_by_number() -> None:
    for number, name in enumerate([*DTYPE_NAMES, "13", "14"]):
        body = count(1) + mlcp_record(b"a", name, [0], 0)
        found = warnings(listed({"tensors": [item("a", number, [0], 0)]}), body)
        assert [w.field for w in found] == (["dtype"] if name.isdigit() else [])
        # .NET reads no names there.
        [error] = errors(listed({"tensors": [item("a", name, [0], 0)]}), body)[:1]
        assert "dataType is not a 32-bit integer" in error.message


def test_lists_of_tensors_of_other_lengths() -> None:
    for metadata, words in (
        (listed({"tensors": []}), "shard 0: the metadata lists 0 tensors, but the file has 1"),
        (listed({"tensors": [ITEM_A] * 2}), "shard 0: the metadata lists 2"),
        (listed({"tensors": [ITEM_A]}, tensorInfos=[]), "tensorInfos: the metadata lists 0"),
        (listed({"tensors": 1}), "shards[0].tensors is not a list"),
        (listed(None), "shard 0 does not list its tensors"),
        (listed({"tensors": [7]}), "the entry for 'a' is 7"),
    ):
        assert any(words in error.message for error in errors(metadata, count(1) + A))


def test_shards_without_tensors_are_compared_too() -> None:
    empty: dict[str, object] = {"tensors": []}
    metadata = listed(empty, {"tensors": [ITEM_A]}, empty, {"tensors": [ITEM_A]}, empty)
    body = count(0) + count(1) + A + count(0) + count(1) + A + count(0)
    assert warnings(metadata, body) == []
    moved = listed({"tensors": [ITEM_A]}, *[empty] * 4)
    found = [error.message for error in errors(moved, body)]
    assert [message.split(":")[0] for message in found] == ["shard 0", "shard 1", "shard 3"]


def test_bytes_of_tensors_are_told() -> None:
    for body, at in (
        (count(1) + A + b"\1" * 8 + count(0), 4 + len(A)),
        (count(1) + A + count(0) + b"\1" * 8, 8 + len(A)),
    ):
        metadata = listed({"tensors": [ITEM_A]}, {"tensors": []})
        [warning] = warnings(metadata, body)
        assert (warning.field, warning.offset) == ("tensor bytes", body_start(metadata) + at)


def test_findings_are_bounded() -> None:
    records = b"".join(mlcp_record(b"a", "99", [-1], -1) for _ in range(2000))
    findings = check(memoryview(samples.mlcp({}, count(2000) + records)))
    assert len(findings.errors) == 1001
    assert findings.errors[-1].kind == "structure"
    assert total(findings.errors) > 2000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 20) | st.floats() | st.sampled_from(["a", "1.0.0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "shards", "tensors", "tensorInfos", "name", "shape", "dataType", "size"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.lists(st.sampled_from([count(0), count(1) + A, count(2) + A + A])))
def test_any_json_is_checked(metadata: object, shards: list[bytes]) -> None:
    data = memoryview(samples.mlcp(metadata, b"".join(shards)))
    findings = check(data)
    for problem in (*findings.errors, *findings.warnings):
        assert problem.offset is not None
        assert 0 <= problem.offset <= len(data)
        assert problem.field
    described = describe(data)
    json.dumps(described.metadata)
    "".join(described.untold).encode()
