"""numpy arrays in, the same arrays out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import wtxtgit
from wtxtgit.errors import TextError, UsageError, WtxtgitError
from wtxtgit.model.array import Array, Extent, Layout, Meta, Rows, Snapshot
from wtxtgit.text.arrays import LazySnapshot
from wtxtgit.text.grammar import CAP
from wtxtgit.text.layout import with_layout
from wtxtgit.text.verify import verify
from wtxtgit.text.write import dumps as dumps_snapshot

NATIVE = ["f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1"]
OTHER = ["?", "f2", "c8", "c16", "S5", "U3", "V4", "M8[s]", "M8[25us]", "M8", "m8[ns]", "m8[Y]"]


def same(found: Any, wanted: Any) -> None:
    """Equal in value, dtype and shape; byte order aside."""
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype.newbyteorder("<")
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.astype(found.dtype).tobytes()


def round_trip(arrays: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = wtxtgit.dumps(arrays, **more)
    weights = wtxtgit.loads(text)
    assert wtxtgit.dumps(weights) == text
    lazy = LazySnapshot(memoryview(text))
    assert list(lazy) == list(weights)
    for name, array in weights.items():
        assert not array.flags.writeable
        same(np.asarray(lazy[name]), array)
    return dict(weights)


def filled(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    made = np.dtype(dtype)
    count = int(np.prod(shape)) * made.itemsize
    raw = bytes(k % 2 if made.kind == "b" else k % 90 + 1 for k in range(count))
    if made.kind == "U":
        return np.array(["aé層"] * int(np.prod(shape)), dtype=made).reshape(shape)
    return np.frombuffer(raw, made).reshape(shape)


@pytest.mark.parametrize("dtype", NATIVE + OTHER)
def test_an_array_of_any_dtype_and_shape_comes_back(dtype: str) -> None:
    for shape in ((), (1,), (5,), (3, 4), (2, 3, 4), (0,), (3, 0, 2), (1, 1, 1)):
        array = filled(dtype, shape)
        same(round_trip({"W": array})["W"], array)


@pytest.mark.parametrize(
    "dtype", [">f8", ">f4", ">i8", ">u4", ">i2", ">f2", ">c8", ">c16", ">U3", ">M8[s]", ">m8[D]"]
)
def test_a_big_endian_array_comes_back_with_its_values(dtype: str) -> None:
    array = filled("<" + dtype[1:], (3, 4)).astype(dtype)
    found = round_trip({"W": array})["W"]
    assert found.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", [">M8", ">m8"])
def test_big_endian_times_without_a_unit_come_back(dtype: str) -> None:
    # numpy's astype does not swap them.
    numbers = np.arange(12, dtype=">i8").reshape(3, 4)
    found = round_trip({"W": numbers.view(dtype)})["W"]
    assert found.dtype == np.dtype("<" + dtype[1:])
    np.testing.assert_array_equal(found.view("<i8"), numbers)


@pytest.mark.parametrize("dtype", ["f8", "f2", "?", "U3"])
def test_order_and_strides_do_not_matter(dtype: str) -> None:
    base = filled(dtype, (6, 4))
    plain = wtxtgit.dumps({"W": base})
    assert wtxtgit.dumps({"W": np.asfortranarray(base)}) == plain
    assert wtxtgit.dumps({"W": np.repeat(base, 2, axis=0)[::2]}) == plain
    assert wtxtgit.dumps({"W": base[::-1].copy()[::-1]}) == plain
    same(round_trip({"W": base.T})["W"], base.T)
    same(round_trip({"W": base[::2, 1:3]})["W"], base[::2, 1:3])


@given(
    hnp.arrays(
        st.sampled_from([*NATIVE, "?", "f2", "c8", "c16"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
)
def test_every_bit_of_an_array_comes_back(array: Any) -> None:
    same(round_trip({"W": array})["W"], array)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        st.integers(0, 255),
        max_size=8,
    )
)
def test_arrays_of_any_names_come_back(values: dict[str, int]) -> None:
    arrays = {name: np.full(2, value, "u1") for name, value in values.items()}
    found = round_trip(arrays)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        same(found[name], array)


@pytest.mark.parametrize(
    "names",
    [
        ["層/名", "a.b", "a b", "a_b", ""],
        ["_layout", "a b"],
        ["x__2", "x", "x ", "x\t"],
        ["\x00", "\n", '"', "\\"],
        ["é", "e\u0301"],
        ["..", "/", "a" * 5000],
    ],
)
def test_names_that_collide_as_array_names_come_back(names: list[str]) -> None:
    arrays = {name: np.array([k], "<f4") for k, name in enumerate(names)}
    found = round_trip(arrays)
    assert set(found) == set(names)
    for name, array in arrays.items():
        same(found[name], array)


def test_an_array_called_layout_comes_back_or_is_refused() -> None:
    array = np.arange(4, dtype="u1")
    try:
        text = wtxtgit.dumps({"_layout": array})
    except WtxtgitError:
        return
    same(wtxtgit.loads(text)["_layout"], array)


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ({"\ud800": np.zeros(1, "u1")}, {}),
        ({"a b": np.zeros(1, "u1")}, {"meta": Meta(schema="mine/v1")}),
        ({"a": np.zeros(1, "u1")}, {"prev": b"short"}),
        ({"a": np.zeros(1, "u1")}, {"rows_per_chunk": 10**20}),
        ({"a": np.zeros(1, "u1")}, {"audit": "a=1\nendwtxt"}),
    ],
    ids=[
        "a name that is a lone surrogate",
        "a schema beside names that need a layout",
        "prev too short",
        "rows_per_chunk of 21 digits",
        "an audit line of two lines",
    ],
)
def test_what_can_not_be_read_is_not_written(
    arrays: dict[str, Any], options: dict[str, Any]
) -> None:
    try:
        text = wtxtgit.dumps(arrays, **options)
    except WtxtgitError:
        return
    assert set(wtxtgit.loads(text)) == set(arrays)


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, "a", None], dtype=object),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros(2, dtype=[("a", object)]),
        np.zeros(2, dtype=np.longdouble),
        np.zeros(2, dtype=np.clongdouble),
        np.array(["a"], dtype=np.dtypes.StringDType()),
    ],
    ids=lambda array: str(array.dtype),
)
def test_objects_records_and_padded_floats_are_refused(array: Any) -> None:
    with pytest.raises(UsageError) as caught:
        wtxtgit.dumps({"W": array})
    assert '"W"' in caught.value.message


def test_numbers_and_lists_are_taken_as_numpy_takes_them() -> None:
    found = round_trip({"a": 1.5, "b": [1, 2], "c": True, "d": "text", "e": b"raw"})
    assert found["a"] == 1.5
    assert found["c"].dtype == bool
    assert found["d"] == "text"


def test_an_array_that_is_changed_afterwards_does_not_change_the_text() -> None:
    array = np.arange(4.0)
    text = wtxtgit.dumps({"W": array})
    array[:] = 0
    same(wtxtgit.loads(text)["W"], np.arange(4.0))


def carried(descr: str, shape: tuple[int, ...], raw: bytes) -> bytes:
    """A text of one u8 array that its layout calls an array of `descr`."""
    extent = Extent("x", descr, "x", shape)
    array = Array("x", "u8", (len(raw),), memoryview(raw))
    return dumps_snapshot(with_layout(Layout("arrays", None, (extent,)), [array], Meta()))


def only_our_errors(text: bytes) -> None:
    """Reading such a text gives arrays or a TextError, nothing else."""
    assert {p.kind for p in verify(memoryview(text)).problems} <= {"layout", "limit"}
    for read in (wtxtgit.loads, lambda t: {k: v[...] for k, v in LazySnapshot(t).items()}):
        try:
            assert len(dict(read(memoryview(text)))) == 1  # type: ignore[operator]
        except TextError:
            continue


@pytest.mark.parametrize(
    ("descr", "shape", "raw"),
    [
        ("|O8", (1,), bytes(8)),
        ("<f4", (3,), bytes(8)),
        ("<f4", (-1, -2), bytes(8)),
        ("<f4", (2**66,), bytes(8)),
        ("object", (1,), bytes(8)),
        ("<V8,f8", (1,), bytes(8)),
        ("f8,f8", (1,), bytes(16)),
        ("(2,)f4", (1,), bytes(8)),
        ("<i3", (1,), bytes(3)),
        ("<f99999999", (0,), b""),
        ("|S999999999", (0,), b""),
        ("<U999999999", (0,), b""),
        ("<M8[foo]", (1,), bytes(8)),
        ("<m8[B]", (1,), bytes(8)),
        ("no_such_dtype", (8,), bytes(8)),
        ("", (8,), bytes(8)),
        ("str", (0,), b""),
        ("void", (0,), b""),
    ],
)
def test_a_dtype_that_a_layout_invents_is_refused_or_read(
    descr: str, shape: tuple[int, ...], raw: bytes
) -> None:
    only_our_errors(carried(descr, shape, raw))


@pytest.mark.parametrize("descr", ["|S0", "<U0", "|V0"])
def test_items_of_no_bytes_in_a_text_are_our_error(descr: str) -> None:
    only_our_errors(carried(descr, (3,), b""))


@pytest.mark.parametrize("descr", ["<m8[0s]", "<M8[0Y]"])
def test_a_time_unit_of_zero_in_a_text_is_our_error(descr: str) -> None:
    only_our_errors(carried(descr, (1,), bytes(8)))


def test_a_dtype_alias_that_numpy_deprecates_is_our_error() -> None:
    only_our_errors(carried("a4", (2,), bytes(8)))


@pytest.mark.parametrize(
    "shape",
    [(1,) * 65 + (0,), (0, 10**20 - 1), (0, 2**62, 2**62), (0, *[10**19] * 100)],
    ids=["66 dimensions", "a dimension of 20 digits", "2**124 items", "a hundred dimensions"],
)
def test_a_shape_that_numpy_can_not_hold_is_our_error(shape: tuple[int, ...]) -> None:
    array = Array("x", "u8", shape, memoryview(b""), Rows(1, 1))
    only_our_errors(dumps_snapshot(Snapshot(Meta(), (array,), CAP)))


@pytest.mark.parametrize("shape", [(1,) * 65 + (8,), (1,) * 200 + (8,)])
def test_a_rank_that_numpy_can_not_hold_is_our_error(shape: tuple[int, ...]) -> None:
    array = Array("x", "u8", shape, memoryview(bytes(8)), Rows(1, 1))
    only_our_errors(dumps_snapshot(Snapshot(Meta(), (array,), CAP)))


def test_files_are_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "w.wtxt"
    arrays = {"W": np.arange(12.0).reshape(3, 4), "b": np.zeros(2, "?")}
    wtxtgit.dump(arrays, path, meta=Meta(gen=3), audit="a=1")
    assert path.read_bytes() == wtxtgit.dumps(arrays, meta=Meta(gen=3), audit="a=1")
    weights = wtxtgit.load(str(path))
    assert weights.meta.gen == 3
    assert weights.snapshot.audit == "a=1"
    same(weights["W"], arrays["W"])
    assert wtxtgit.verify(path).ok
    assert [p.name for p in (tmp_path).iterdir()] == ["w.wtxt"]


def test_a_dump_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.wtxt"
    wtxtgit.dump({"W": np.zeros(3)}, path)
    before = path.read_bytes()

    def sign(message: bytes) -> Any:
        raise RuntimeError("no key today")

    with pytest.raises(RuntimeError):
        wtxtgit.dump({"W": np.ones(3)}, path, sign=sign)
    with pytest.raises(WtxtgitError):
        wtxtgit.dump({"W": np.ones(3)}, path, meta=Meta(ts="now"))
    assert path.read_bytes() == before
    assert [p.name for p in (tmp_path).iterdir()] == ["w.wtxt"]


def test_a_dump_keeps_permissions_and_replaces_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "w.wtxt", tmp_path / "link"
    wtxtgit.dump({"W": np.zeros(3)}, path)
    path.chmod(0o640)
    link.symlink_to(path)
    wtxtgit.dump({"W": np.ones(3)}, path)
    assert path.stat().st_mode & 0o777 == 0o640
    wtxtgit.dump({"W": np.zeros(3)}, link)
    assert not link.is_symlink()
    assert wtxtgit.load(path)["W"].sum() == 3


def test_what_was_loaded_is_written_as_another_generation() -> None:
    first = wtxtgit.loads(wtxtgit.dumps({"W": np.arange(3.0)}, meta=Meta(gen=1), audit="a=1"))
    prev = first.report.merkle_this
    assert prev is not None
    second = wtxtgit.loads(wtxtgit.dumps(first, meta=Meta(gen=2), prev=prev))
    assert second.meta.gen == 2
    assert second.snapshot.prev == prev
    assert second.snapshot.audit == "a=1"
    assert second.snapshot.arrays[0].rows == first.snapshot.arrays[0].rows


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_threads_do_not_change_the_text(threads: int | None) -> None:
    arrays = {"W": np.arange(300_000, dtype="f8").reshape(1000, 300), "h": np.zeros(9, "f2")}
    assert wtxtgit.dumps(arrays, threads=threads) == wtxtgit.dumps(arrays, threads=1)
    found = wtxtgit.loads(wtxtgit.dumps(arrays), threads=threads)
    same(found["W"], arrays["W"])
