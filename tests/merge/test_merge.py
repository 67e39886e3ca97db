"""Three-way merges of containers against a plain numpy three-way merge, row by row."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wtxtgit.containers import any_format
from wtxtgit.merge.container import Merged, Merger
from wtxtgit.merge.policy import Policy
from wtxtgit.model.tensor import ReadOptions, TensorSource
from wtxtgit.report.merge import Strategy
from wtxtgit.tensors import tensor_bytes

FORMATS = ("safetensors", "fold", "aero", "npz", "gguf", "torch", "mlcp")
DTYPES = {"f4": "f32", "f2": "f16", "f8": "f64", "i4": "i32", "i8": "i64", "i1": "i8"}

Weights = dict[str, NDArray[np.generic]]


def built(format_: str, weights: Weights, tags: Mapping[str, str] | None = None) -> memoryview:
    sources = []
    for name, values in weights.items():
        raw = np.ascontiguousarray(values).tobytes()
        element = DTYPES[values.dtype.str[1:]]
        blocks = partial(iter, (raw,))
        sources.append(TensorSource(name, element, values.shape, len(raw), blocks))
    writer = import_module(f"wtxtgit.containers.{format_}.write")
    extra = {"inline_data": True} if format_ == "mlcp" else {}
    return memoryview(b"".join(bytes(p) for p in writer.build_model(sources, tags or {}, **extra)))


def weights_of(data: memoryview) -> Weights:
    found = {}
    for tensor in any_format.tensors(any_format.describe(data, ReadOptions())):
        name = tensor.name.removeprefix("torch_state/")
        found[name] = tensor_bytes.array(tensor).copy()
    return found


def merged(
    base: Weights | None,
    ours: Weights,
    theirs: Weights,
    format_: str = "safetensors",
    strategy: Strategy = Strategy.FAIL,
    takes: tuple[tuple[str, Strategy], ...] = (),
) -> Merged:
    make: Callable[[Weights], memoryview] = partial(built, format_)
    before = None if base is None else make(base)
    return Merger(Policy(strategy, takes)).merge(before, make(ours), make(theirs))


def rows(values: NDArray[np.generic]) -> list[bytes]:
    return [row.tobytes() for row in (values if values.ndim else values.reshape(1))]


def plainly_merged(base: Weights, ours: Weights, theirs: Weights) -> tuple[Weights, set[str]]:
    """The reference: each row is that of the side that changed it; names of conflicts."""
    found: Weights = {}
    conflicts = set()
    for name in {**ours, **theirs}:
        b, o, t = base.get(name), ours.get(name), theirs.get(name)
        if o is None or t is None:
            side = o if t is None else t
            assert side is not None
            if b is None:
                found[name] = side
            elif b.tobytes() != side.tobytes():
                conflicts.add(name)
            continue
        made = o.copy()
        flat = made if made.ndim else made.reshape(1)
        before = [None] * len(flat) if b is None else rows(b)
        for n, (old, mine, other) in enumerate(zip(before, rows(o), rows(t), strict=True)):
            if mine == other or other == old:
                continue
            if mine == old:
                flat[n] = (t if t.ndim else t.reshape(1))[n]
            else:
                conflicts.add(name)
        found[name] = made
    return found, conflicts


@st.composite
def three_ways(draw: st.DrawFn) -> tuple[Weights, Weights, Weights]:
    """A file and two edits of it: rows, whole tensors, tensors added and taken out."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    base: Weights = {}
    for n in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
        dtype = draw(st.sampled_from(sorted(DTYPES)))
        base[f"t{n}"] = (100 * rng.standard_normal(shape)).astype(dtype)
    sides = []
    for side in ("ours", "theirs"):
        edited = {name: values.copy() for name, values in base.items()}
        for name in list(edited):
            for row in draw(st.lists(st.integers(0, len(edited[name]) - 1), max_size=2)):
                edited[name][row] = draw(st.integers(-9, 9))
            if len(edited) > 1 and draw(st.integers(0, 9)) == 0:
                del edited[name]
        if draw(st.booleans()):
            name = draw(st.sampled_from(["new", f"new.{side}"]))
            edited[name] = np.full((3, 2), draw(st.integers(0, 3)), "f4")
        sides.append(edited)
    return base, sides[0], sides[1]


def assert_merged(
    found: Merged, base: Weights, ours: Weights, theirs: Weights, prefix: str = ""
) -> None:
    wanted, conflicts = plainly_merged(base, ours, theirs)
    assert {c.name.removeprefix(prefix) for c in found.conflicts} == conflicts
    held = weights_of(found.data)
    if conflicts:
        assert {k: v.tobytes() for k, v in held.items()} == {
            k: v.tobytes() for k, v in ours.items()
        }
        return
    assert {k: (v.shape, v.tobytes()) for k, v in held.items()} == {
        k: (v.shape, v.tobytes()) for k, v in wanted.items()
    }
    assert not any_format.check(found.data).errors


@settings(max_examples=150, deadline=None)
@given(three_ways())
def test_safetensors_as_a_plain_three_way_merge(sides: tuple[Weights, Weights, Weights]) -> None:
    assert_merged(merged(*sides), *sides)


@pytest.mark.parametrize("format_", ["fold", "aero", "gguf"])
@settings(max_examples=40, deadline=None)
@given(sides=three_ways())
def test_other_formats_as_a_plain_three_way_merge(
    format_: str, sides: tuple[Weights, Weights, Weights]
) -> None:
    prefix = "torch_state/" if format_ == "fold" else ""
    assert_merged(merged(*sides, format_=format_), *sides, prefix=prefix)


@pytest.mark.parametrize("format_", FORMATS)
def test_disjoint_rows_merge_in_every_format(format_: str) -> None:
    rng = np.random.default_rng(1)
    base: Weights = {
        "a": rng.standard_normal((8, 3)).astype("f4"),
        "b": rng.standard_normal((5, 2)).astype("f4"),
    }
    ours = {name: values.copy() for name, values in base.items()}
    theirs = {name: values.copy() for name, values in base.items()}
    ours["a"][1], theirs["a"][6], theirs["b"][0] = 1, 2, 3
    found = merged(base, ours, theirs, format_)
    assert found.conflicts == ()
    assert found.taken is None
    held = weights_of(found.data)
    # npz and npy name their arrays by member; torch by key: all the same here.
    wanted, _ = plainly_merged(base, ours, theirs)
    assert {k.removesuffix("/data"): v.tobytes() for k, v in held.items()} == {
        k: v.tobytes() for k, v in wanted.items()
    }
    assert not any_format.check(found.data).errors
    # What both sides did comes out whichever side is ours.
    other = merged(base, theirs, ours, format_)
    assert {k: v.tobytes() for k, v in weights_of(other.data).items()} == {
        k: v.tobytes() for k, v in held.items()
    }


@pytest.mark.parametrize("format_", FORMATS)
def test_a_row_that_both_changed_is_a_conflict_in_every_format(format_: str) -> None:
    # No zeros: MLCP would take them for records.
    base: Weights = {"a": np.full((8, 3), 7, "f4")}
    ours, theirs = {"a": base["a"].copy()}, {"a": base["a"].copy()}
    ours["a"][2:5], theirs["a"][4:6] = 1, 2
    found = merged(base, ours, theirs, format_)
    (conflict,) = found.conflicts
    assert conflict.name.split("/")[-1 if format_ != "npz" else 0].startswith(("a", "data"))
    assert (conflict.rows, conflict.ranges, conflict.exact) == (1, ((4, 5),), True)
    assert found.data == built(format_, ours)


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (Strategy.OURS, [[1, 1], [5, 5], [2, 2]]),
        (Strategy.THEIRS, [[1, 1], [8, 9], [2, 2]]),
        (Strategy.AVERAGE, [[1, 1], [6.5, 7], [2, 2]]),
        (Strategy.TASK, [[1, 1], [13, 14], [2, 2]]),
    ],
)
def test_strategies_decide_of_rows_that_both_changed_alone(
    strategy: Strategy, wanted: list[list[float]]
) -> None:
    base: Weights = {"a": np.zeros((3, 2), "f4")}
    ours: Weights = {"a": np.array([[1, 1], [5, 5], [0, 0]], "f4")}
    theirs: Weights = {"a": np.array([[0, 0], [8, 9], [2, 2]], "f4")}
    found = merged(base, ours, theirs, strategy=strategy)
    assert found.conflicts == ()
    assert weights_of(found.data)["a"].tolist() == wanted


def test_what_a_dtype_can_not_hold_stays_a_conflict() -> None:
    base: Weights = {"a": np.array([30000, 1], "f2")}
    ours: Weights = {"a": np.array([60000, 1], "f2")}
    theirs: Weights = {"a": np.array([50000, 1], "f2")}
    (conflict,) = merged(base, ours, theirs, strategy=Strategy.TASK).conflicts
    assert conflict.ranges == ((0, 1),)
    assert "task" in conflict.reason


def test_single_things_are_settled_by_name_and_by_pattern() -> None:
    base: Weights = {n: np.zeros(2, "f4") for n in ("x.a", "x.b", "y")}
    ours: Weights = {n: np.ones(2, "f4") for n in base}
    theirs: Weights = {n: np.full(2, 3, "f4") for n in base}
    takes = (("x.*", Strategy.THEIRS), ("x.b", Strategy.BASE), ("y", Strategy.AVERAGE))
    found = merged(base, ours, theirs, takes=takes)
    assert {k: v[0] for k, v in weights_of(found.data).items()} == {"x.a": 3, "x.b": 0, "y": 2}
    (left,) = merged(base, ours, theirs, takes=takes[:2]).conflicts
    assert left.name == "y"


def test_a_dtype_that_one_side_changed_is_taken() -> None:
    base: Weights = {"a": np.zeros((2, 2), "f4"), "b": np.zeros(3, "f4")}
    ours: Weights = {"a": np.ones((2, 2), "f2"), "b": base["b"]}
    theirs: Weights = {"a": base["a"], "b": np.ones(3, "f4")}
    for one, other in ((ours, theirs), (theirs, ours)):
        held = weights_of(merged(base, one, other).data)
        assert held["a"].dtype == "f2"
        assert held["b"].tolist() == [1, 1, 1]
    theirs["a"] = np.full((2, 2), 2, "f4")
    (conflict,) = merged(base, ours, theirs, strategy=Strategy.AVERAGE).conflicts
    assert conflict.reason.startswith("f16 2 x 2 in ours, f32 2 x 2 in theirs, which average")


def test_without_a_base_all_that_differs_was_changed_by_both() -> None:
    ours: Weights = {"a": np.zeros((3, 2), "f4"), "mine": np.ones(1, "f4")}
    theirs: Weights = {"a": np.zeros((3, 2), "f4"), "other": np.ones(1, "f4")}
    assert set(weights_of(merged(None, ours, theirs).data)) == {"a", "mine", "other"}
    theirs["a"][1] = 1
    (conflict,) = merged(None, ours, theirs).conflicts
    assert conflict.ranges == ((1, 2),)
    found = merged(None, ours, theirs, strategy=Strategy.TASK)
    assert [c.name for c in found.conflicts] == ["a"], "without a base there are no changes to add"


def test_a_side_that_is_damaged_is_never_sealed_again() -> None:
    base: Weights = {"a": np.zeros((3, 2), "f4")}
    ours: Weights = {"a": np.ones((3, 2), "f4")}
    theirs = bytearray(built("aero", {"a": np.full((3, 2), 2, "f4")}))
    theirs[-1] ^= 1
    files = built("aero", base), built("aero", ours), memoryview(theirs)
    found = Merger(Policy()).merge(*files)
    (conflict,) = found.conflicts
    assert conflict.name == "*"
    assert conflict.reason.startswith("theirs is not valid: ")
    assert found.data == files[1]


def test_files_of_two_formats_and_of_none_are_conflicts() -> None:
    one = built("safetensors", {"a": np.zeros(2, "f4")})
    other = built("npz", {"a": np.zeros(2, "f4")})
    (conflict,) = Merger(Policy()).merge(memoryview(b"x"), one, other).conflicts
    assert "formats differ" in conflict.reason
    (conflict,) = (
        Merger(Policy()).merge(memoryview(b"x"), memoryview(b"y"), memoryview(b"z")).conflicts
    )
    assert conflict.reason == "files in unknown formats can't be merged by tensor"
    taken = Merger(Policy(Strategy.THEIRS)).merge(memoryview(b"x"), one, other)
    assert (taken.data, taken.taken) == (other, "theirs")


def test_tags_are_merged_key_by_key() -> None:
    weights: Weights = {"a": np.zeros((2, 2), "f4")}
    files = [
        built("safetensors", weights, tags)
        for tags in ({"step": "1", "by": "x"}, {"step": "2", "by": "x"}, {"step": "1", "by": "y"})
    ]
    found = Merger(Policy()).merge(*files)
    assert any_format.describe(found.data).tags == {"step": "2", "by": "y"}
    clash = built("safetensors", weights, {"step": "3", "by": "x"})
    (conflict,) = Merger(Policy()).merge(files[0], files[1], clash).conflicts
    assert conflict.name == "metadata:/__metadata__/step"
    found = Merger(Policy(Strategy.AVERAGE)).merge(files[0], files[1], clash)
    assert any_format.describe(found.data).tags["step"] == "2"


def test_rows_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are then looked at in parts, and decided of as a whole."""
    from wtxtgit.tensors import merge as module

    monkeypatch.setattr(module, "BLOCK", 64)
    rng = np.random.default_rng(2)
    base: Weights = {"a": rng.standard_normal((4, 50)).astype("f4")}
    ours, theirs = {"a": base["a"].copy()}, {"a": base["a"].copy()}
    ours["a"][1, 3], theirs["a"][2, 49] = 5, 6
    ours["a"][3, 0], theirs["a"][3, 49] = 7, 8
    (conflict,) = merged(base, ours, theirs).conflicts
    assert (conflict.rows, conflict.ranges) == (1, ((3, 4),))
    for strategy in (Strategy.OURS, Strategy.THEIRS, Strategy.TASK, Strategy.AVERAGE):
        held = weights_of(merged(base, ours, theirs, strategy=strategy).data)["a"]
        assert held[1, 3] == 5
        assert held[2, 49] == 6
        sides = {
            Strategy.OURS: ours["a"][3],
            Strategy.THEIRS: theirs["a"][3],
            Strategy.TASK: ours["a"][3] + theirs["a"][3] - base["a"][3],
            Strategy.AVERAGE: (ours["a"][3] + theirs["a"][3]) / 2,
        }
        assert np.allclose(held[3], sides[strategy], rtol=1e-6)


def with_scale(weights: Weights, scale: int) -> memoryview:
    """A safetensors file whose tensor `a` has a key of its own in the header."""
    header, offset = {}, 0
    for name, values in weights.items():
        end = offset + values.nbytes
        about = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, end]}
        header[name] = about | ({"scale": scale} if name == "a" else {})
        offset = end
    text = json.dumps(header).encode()
    raw = b"".join(values.tobytes() for values in weights.values())
    return memoryview(len(text).to_bytes(8, "little") + text + raw)


def scales(data: memoryview) -> object:
    size = int.from_bytes(data[:8], "little")
    return json.loads(bytes(data[8 : 8 + size]))["a"]["scale"]


class TestFormsAreMergedToo:
    """What a file says of a tensor beside its items, such as how it is quantised."""

    base: ClassVar[Weights] = {"a": np.zeros((4, 2), "f4"), "b": np.zeros(3, "f4")}

    def edited(self, row: int) -> Weights:
        values = self.base["a"].copy()
        values[row] = 9
        return {**self.base, "a": values}

    @pytest.mark.parametrize("swapped", [False, True])
    def test_one_side_changed_it_and_the_other_the_items(self, swapped: bool) -> None:
        sides = [with_scale(self.base, 2), with_scale(self.edited(1), 1)]
        ours, theirs = reversed(sides) if swapped else sides
        found = Merger(Policy()).merge(with_scale(self.base, 1), ours, theirs)
        assert found.conflicts == ()
        assert scales(found.data) == 2
        assert weights_of(found.data)["a"][1].tolist() == [9, 9]
        assert [s.how for s in found.settled if s.name == "a"] == ["both"]

    def test_rows_of_both_in_the_form_of_one(self) -> None:
        found = Merger(Policy()).merge(
            with_scale(self.base, 1), with_scale(self.edited(0), 1), with_scale(self.edited(3), 2)
        )
        assert scales(found.data) == 2
        assert weights_of(found.data)["a"][[0, 3]].tolist() == [[9, 9], [9, 9]]

    @pytest.mark.parametrize("row", [None, 2])
    def test_both_changed_it(self, row: int | None) -> None:
        weights = self.base if row is None else self.edited(row)
        files = with_scale(self.base, 1), with_scale(self.base, 2), with_scale(weights, 3)
        (conflict,) = Merger(Policy()).merge(*files).conflicts
        assert (conflict.name, conflict.rows) == ("a", None)
        taken = Merger(Policy(takes=(("a", Strategy.THEIRS),))).merge(*files)
        assert scales(taken.data) == 3
        for strategy in (Strategy.AVERAGE, Strategy.TASK):
            assert Merger(Policy(strategy)).merge(*files).conflicts

    def test_one_side_changed_it_alone(self) -> None:
        files = with_scale(self.base, 1), with_scale(self.base, 2)
        other = with_scale({**self.base, "b": np.ones(3, "f4")}, 1)
        for ours, theirs in ((files[1], other), (other, files[1])):
            found = Merger(Policy()).merge(files[0], ours, theirs)
            assert scales(found.data) == 2
            assert weights_of(found.data)["b"].tolist() == [1, 1, 1]

    def test_one_side_removed_what_the_other_said_something_of(self) -> None:
        gone: Weights = {"b": self.base["b"]}
        files = with_scale(self.base, 1), with_scale(gone, 0), with_scale(self.base, 2)
        (conflict,) = Merger(Policy()).merge(*files).conflicts
        assert conflict.reason == "ours removed it, theirs changed it"
        (conflict,) = Merger(Policy(Strategy.TASK)).merge(*files).conflicts
        assert conflict.reason.endswith(", which task does not settle")


def test_what_is_neither_tensor_nor_metadata_is_not_lost() -> None:
    """A second array in one npy file: numpy reads it, no format lists it."""

    def twice(first: NDArray[np.generic], second: NDArray[np.generic]) -> memoryview:
        held = io.BytesIO()
        np.save(held, first)
        np.save(held, second)
        return memoryview(held.getvalue())

    zero, rows_, one = np.zeros((4, 2)), np.zeros((4, 2)), np.ones(3)
    rows_[1] = 5
    base, mine, other = twice(zero, one), twice(zero, 2 * one), twice(rows_, one)
    for ours, theirs in ((mine, other), (other, mine)):
        found = Merger(Policy()).merge(base, ours, theirs)
        assert found.conflicts == ()
        assert found.data == twice(rows_, 2 * one)
    found = Merger(Policy()).merge(base, mine, twice(rows_, 3 * one))
    (conflict,) = found.conflicts
    assert conflict.name.startswith("file:")
    taken = Merger(Policy(Strategy.THEIRS)).merge(base, mine, twice(rows_, 3 * one))
    assert taken.data == twice(rows_, 3 * one)


def test_a_take_of_the_base_is_for_the_rows_that_both_changed() -> None:
    base: Weights = {"a": np.zeros((3, 2), "f4")}
    ours: Weights = {"a": np.array([[1, 1], [2, 2], [0, 0]], "f4")}
    theirs: Weights = {"a": np.array([[0, 0], [3, 3], [4, 4]], "f4")}
    found = merged(base, ours, theirs, takes=(("a", Strategy.BASE),))
    assert weights_of(found.data)["a"].tolist() == [[1, 1], [0, 0], [4, 4]]
    (conflict,) = merged(None, ours, theirs, takes=(("a", Strategy.BASE),)).conflicts
    assert "the base has no tensor" in conflict.reason


def test_what_a_strategy_decided_is_told() -> None:
    base: Weights = {n: np.zeros(2, "f4") for n in "ab"}
    ours: Weights = {"a": np.ones(2, "f4"), "b": base["b"]}
    theirs: Weights = {"a": np.full(2, 2, "f4"), "b": np.ones(2, "f4")}
    settled = merged(base, ours, theirs, strategy=Strategy.THEIRS).settled
    assert {(one.name, one.how, one.strategy) for one in settled} == {
        ("a", "theirs", Strategy.THEIRS),
        ("b", "theirs", None),
    }


def test_long_keys_are_things_of_their_own() -> None:
    weights: Weights = {"a": np.zeros(2, "f4")}
    keys = [f"{'k' * 60}{n}{'k' * 60}" for n in range(2)]
    files = [built("safetensors", weights, dict.fromkeys(keys, value)) for value in "123"]
    names = [one.name for one in Merger(Policy()).merge(*files).conflicts]
    assert len(set(names)) == 2
    (left,) = Merger(Policy(takes=((names[0], Strategy.OURS),))).merge(*files).conflicts
    assert left.name == names[1]


def test_nested_bombs_end_in_a_conflict() -> None:
    """Files in files that decode to far more than is stored, level by level."""

    def bomb(last: float) -> bytes:
        held = io.BytesIO()
        np.savez_compressed(held, a=np.append(np.zeros(1_000_000), last))
        array = io.BytesIO()
        np.save(array, np.zeros(3))
        for _ in range(3):
            outer = io.BytesIO()
            with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr(zipfile.ZipInfo("a.npy"), array.getvalue())
                for n in range(4):
                    about = zipfile.ZipInfo(f"{n}.npz")
                    about.compress_type = zipfile.ZIP_DEFLATED
                    file.writestr(about, held.getvalue())
            held = outer
        return held.getvalue()

    options = ReadOptions(max_chunk=16_000_000)
    sides = [memoryview(bomb(last)) for last in (1, 2, 3)]
    found = Merger(Policy(), options).merge(*sides)
    assert any("decode to more" in one.reason for one in found.conflicts)


def test_rows_that_share_items_are_not_merged_apart() -> None:
    from wtxtgit.merge.version import overlaps
    from wtxtgit.model.tensor import Tensor

    def view(shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        return Tensor("t", "x", shape, memoryview(bytes(64)), 0, "f32", strides=strides)

    assert overlaps(view((3, 2), (1, 1)))
    assert overlaps(view((3, 2), (0, 1)))
    assert not overlaps(view((3, 2), (2, 1)))
    assert not overlaps(view((2, 3), (1, 2)))
    assert not overlaps(view((1, 3), (0, 1)))
