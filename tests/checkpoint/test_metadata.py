"""Metadata compared: leaf by leaf, and without what follows from the tensors."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import FIXTURES, fixture
from wtxtgit.checkpoint.contents import metadata_of
from wtxtgit.comparison import compare
from wtxtgit.comparison.compare import metadata_changes as changes
from wtxtgit.containers import any_format
from wtxtgit.model.tensor import ReadOptions

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3)
)


def told(before: object, after: object) -> list[dict[str, object]]:
    found, is_all = changes(before, after)
    assert is_all
    return [change.as_dict() for change in found]


def at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@given(VALUES)
def test_a_value_is_the_same_as_itself(value: object) -> None:
    assert told(value, json.loads(json.dumps(value))) == []


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), VALUES), st.dictionaries(st.text(max_size=3), VALUES))
def test_pointers_lead_to_what_is_told(before: object, after: object) -> None:
    found = told(before, after)
    for change in found:
        path = str(change["path"])
        if "before" in change:
            assert str(at(before, path)) == str(change["before"])
        if "after" in change:
            assert str(at(after, path)) == str(change["after"])
    if not found:
        assert str(before) == str(after) or before == after


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({"a": 1}, {"a": 2}, [("/a", "changed")]),
        ({"a": 1}, {"a": True}, [("/a", "changed")]),
        ({"a": 1}, {"a": 1.0}, [("/a", "changed")]),
        ({"a": math.nan}, {"a": math.nan}, []),
        ({}, {"a": {"b": [1, 2]}}, [("/a/b/0", "added"), ("/a/b/1", "added")]),
        ({"a": [1, 2, 3]}, {"a": [1, 5]}, [("/a/1", "changed"), ("/a/2", "removed")]),
        ({"a/b": 1, "c~d": 2}, {"a/b": 2}, [("/a~1b", "changed"), ("/c~0d", "removed")]),
        ({"a": 1}, {"a": {"b": 1}}, [("/a", "removed"), ("/a/b", "added")]),
    ],
)
def test_paths(before: object, after: object, wanted: list[tuple[str, str]]) -> None:
    assert [(c["path"], c["change"]) for c in told(before, after)] == wanted


def test_long_strings_are_cut_and_changes_bounded() -> None:
    (change,) = told({"a": "x" * 10_000}, {"a": "y" * 10_000})
    assert len(str(change["before"])) < 300
    found, is_all = changes({}, {str(n): n for n in range(5000)})
    assert (len(found), is_all) == (compare.MAX_CHANGES, False)


def described(path: str) -> dict[str, Any]:
    data = memoryview(fixture(path))
    return metadata_of(data, any_format.describe(data), ReadOptions())


@pytest.mark.parametrize(
    ("pair", "wanted"),
    [
        ("aero/pair_single_v{}.aero", set()),
        ("aero/pair_ihsh_phsh_v{}.aero", set()),
        ("plain/pair_v{}.safetensors", {"/__metadata__/which"}),
        (
            "fold/pair_none_v{}.fold",
            {"/created_at_unix", "/metadata/which", "/in chunks/llm_manifest/which"},
        ),
        (
            "fold/pair_zstd3_v{}.fold",
            {"/created_at_unix", "/metadata/which", "/in chunks/llm_manifest/which"},
        ),
    ],
)
def test_what_follows_from_tensors_is_left_out(pair: str, wanted: set[str]) -> None:
    found, _ = changes(described(pair.format(1)), described(pair.format(2)))
    assert {change.path for change in found} == wanted


def test_json_chunks_that_are_none_are_left_out() -> None:
    raw = bytearray(fixture("fold/pair_none_v1.fold"))
    at_json = raw.index(b"{", raw.index(b"JSON"))
    raw[at_json] = ord("[")
    data = memoryview(bytes(raw))
    found = metadata_of(data, any_format.describe(data), ReadOptions())
    assert "llm_manifest" not in found.get("in chunks", {})
    assert (FIXTURES / "fold").is_dir()
