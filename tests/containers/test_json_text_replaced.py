"""JSON texts with some values replaced: those alone change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wtxtgit.containers.json_text import Path, replaced
from wtxtgit.errors import FormatError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (" ,\t", " :\r\n ")},
        {"indent": 3, "ensure_ascii": False},
    ]
)


def places(value: object, path: Path = ()) -> list[Path]:
    """Where the values in a value are, itself aside."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    found: list[Path] = []
    for key, held in inner:
        found += [(*path, key), *places(held, (*path, key))]
    return found


def put(value: Any, path: Path, new: object) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@settings(max_examples=40)
@given(
    st.lists(VALUES, min_size=1) | st.dictionaries(st.text(), VALUES, min_size=1), STYLES, st.data()
)
def test_values_are_replaced_and_nothing_else(
    value: Any, style: dict[str, Any], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(places(value)))
    text = f" {json.dumps(value, **style)}\n"
    marked = json.loads(text)
    put(marked, path, "\0mark")
    wanted = f" {json.dumps(marked, **style)}\n".replace('"\\u0000mark"', "[7]")
    assert replaced(text, {path: [7]}) == wanted
    assert json.loads(wanted) is not None
    assert replaced(text, {}) == text


def test_several_places_and_what_is_not_spelled_as_we_would() -> None:
    text = '\n{ "a" : [ 1.50 , {"\\u0062":2,"c": NaN} ] ,"d":-0.0,"e":{} }'
    edits: dict[Path, object] = {("d",): "x", ("a", 1, "b"): 30, ("a", 0): None}
    wanted = '\n{ "a" : [ null , {"\\u0062":30,"c": NaN} ] ,"d":"x","e":{} }'
    assert replaced(text, edits) == wanted


def test_of_equal_keys_the_last_one_counts() -> None:
    text = '{"a":{"b":1},"a":5,"a":{"b":2,"b":3}}'
    assert replaced(text, {("a", "b"): 9}) == '{"a":{"b":1},"a":5,"a":{"b":2,"b":9}}'
    assert replaced('{"a":1,"a":2}', {("a",): 9}) == '{"a":1,"a":9}'


@pytest.mark.parametrize(
    "edits",
    [
        {("x",): 1},
        {("a", 2): 1},
        {("a", "0"): 1},
        {("b", "c"): 1},
        {("a",): 1, ("a", 0): 1},
        {("a", 0): 1, ("a",): 1},
    ],
)
def test_places_that_are_not_there(edits: dict[Path, object]) -> None:
    with pytest.raises(FormatError):
        replaced('{"a":[1,2],"b":3}', edits)
