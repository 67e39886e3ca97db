"""Three-way merge of metadata."""

from __future__ import annotations

from wtxtgit.merge.policy import ValueMerge
from wtxtgit.model.plain import equal_values
from wtxtgit.report.merge import Strategy

Data = dict[str, object]


def merged(
    base: Data | None, ours: Data, theirs: Data, how: Strategy = Strategy.FAIL
) -> tuple[Data, ValueMerge]:
    merge = ValueMerge(lambda _pointer: how)
    return merge.merge(base, ours, theirs), merge


def test_objects_are_merged_key_by_key() -> None:
    base: Data = {"a": {"lr": 1, "wd": 2}, "gone": 1, "kept": [1]}
    ours: Data = {"a": {"lr": 3, "wd": 2}, "gone": 1, "kept": [1], "mine": None}
    theirs: Data = {"a": {"lr": 1, "wd": 5}, "kept": [1], "other": {"x": 1}}
    value, found = merged(base, ours, theirs)
    assert value == {"a": {"lr": 3, "wd": 5}, "kept": [1], "mine": None, "other": {"x": 1}}
    assert found.open == []
    assert {path: how for path, how, _ in found.settled} == {
        "/a/lr": "ours",
        "/a/wd": "theirs",
        "/gone": "theirs",
        "/mine": "ours",
        "/other": "theirs",
    }


def test_what_both_changed_is_open_or_settled_by_the_strategy() -> None:
    base: Data = {"a/b": 1}
    ours: Data = {"a/b": 2}
    theirs: Data = {"a/b": 3}
    assert merged(base, ours, theirs)[1].open == ["/a~1b"]
    wanted = {"ours": 2, "theirs": 3, "base": 1, "average": 2, "task": 2}
    for how, value in wanted.items():
        result, found = merged(base, ours, theirs, Strategy(how))
        assert (result, found.open) == ({"a/b": value}, [])


def test_removed_and_changed_is_open() -> None:
    assert merged({"a": 1}, {}, {"a": 2})[1].open == ["/a"]
    assert merged({"a": 1}, {}, {"a": 2}, Strategy.OURS)[0] == {}
    assert merged({"a": 1}, {"a": {"b": 1}}, {"a": 2})[1].open == ["/a"]


def test_without_a_base_what_is_the_same_stays() -> None:
    value, _ = merged(None, {"a": 1, "b": {"c": 1}}, {"a": 1, "b": {"d": 2}})
    assert value == {"a": 1, "b": {"c": 1, "d": 2}}
    assert merged(None, {"a": 1}, {"a": 2})[1].open == ["/a"]
    assert merged(None, {}, {})[1].settled == []


def test_values_are_the_same_to_the_type() -> None:
    nan = float("nan")
    assert equal_values({"a": [nan, b"x"]}, {"a": [float("nan"), b"x"]})
    assert not equal_values(1, True)
    assert not equal_values(1, 1.0)
    assert not equal_values([1], [1, 2])
    assert not equal_values({"a": 1}, {"b": 1})
