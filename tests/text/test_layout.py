"""`_layout`: one spelling, and every refusal of the spec."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.errors import TextError
from wtxtgit.model.array import CONTAINER_FORMATS, Extent, Layout, Meta
from wtxtgit.text.grammar import CAP, ArrayLine
from wtxtgit.text.layout import (
    check_layout,
    format_layout,
    literal,
    parse_layout,
    placed,
    schema_of,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ARRAYS = st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True)
NAMED = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,7}", fullmatch=True)
TENSORS = st.builds(
    Extent,
    array=NAMED,
    dtype=NAMES,
    name=NAMES,
    shape=st.lists(st.integers(-(2**63), 2**64 - 1), max_size=4).map(tuple),
)
EXTENTS = st.one_of(
    TENSORS,
    st.builds(
        Extent, array=NAMED, dtype=NAMES, name=NAMES, shape=st.just((2, 3)), order=st.just("F")
    ),
    st.builds(Extent, array=ARRAYS),
    st.builds(Extent, array=NAMED, name=NAMES),
    st.builds(Extent, hex=st.binary(min_size=1, max_size=64)),
    st.builds(Extent, zeros=st.integers(1, 65_536)),
)


@given(
    st.sampled_from(CONTAINER_FORMATS),
    st.integers(0, 2**64 - 1),
    st.lists(EXTENTS, max_size=6).map(tuple),
)
def test_a_layout_of_a_container_is_read_as_it_was_written(
    kind: str, size: int, extents: tuple[Extent, ...]
) -> None:
    layout = Layout(kind, size, extents)
    assert parse_layout(format_layout(layout)) == layout


@given(st.lists(TENSORS, max_size=6).map(tuple))
def test_a_layout_of_arrays_is_read_as_it_was_written(extents: tuple[Extent, ...]) -> None:
    layout = Layout("arrays", None, extents)
    assert parse_layout(format_layout(layout)) == layout


def spelled(record: Any) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


TENSOR = {"array": "W", "dtype": "F32", "name": "w", "shape": [2]}
GOOD: dict[str, Any] = {"extents": [TENSOR], "format": "fold", "size": 8, "v": 1}
NATIVE: dict[str, Any] = {"extents": [TENSOR], "format": "arrays", "v": 1}


def with_extent(extent: Any) -> dict[str, Any]:
    return {**GOOD, "extents": [extent]}


def test_the_records_that_the_refusals_start_from_are_good() -> None:
    for record in (GOOD, NATIVE):
        assert format_layout(parse_layout(spelled(record))) == spelled(record)


@pytest.mark.parametrize(
    "record",
    [
        [],
        None,
        1,
        "fold",
        {},
        {**GOOD, "x": 1},
        {key: value for key, value in GOOD.items() if key != "size"},
        {key: value for key, value in GOOD.items() if key != "v"},
        {**NATIVE, "size": 8},
        {**GOOD, "format": "zip"},
        {**GOOD, "format": None},
        {**GOOD, "format": ["fold"]},
        {**GOOD, "format": {}},
        {**GOOD, "v": 2},
        {**GOOD, "v": True},
        {**GOOD, "v": "1"},
        {**GOOD, "size": -1},
        {**GOOD, "size": True},
        {**GOOD, "size": None},
        {**GOOD, "size": "8"},
        {**GOOD, "extents": {}},
        {**GOOD, "extents": None},
        with_extent(None),
        with_extent([]),
        with_extent({}),
        with_extent({"zeros": 0}),
        with_extent({"zeros": -1}),
        with_extent({"zeros": 65_537}),
        with_extent({"zeros": True}),
        with_extent({"zeros": "1"}),
        with_extent({"zeros": 1, "hex": "00"}),
        with_extent({"hex": ""}),
        with_extent({"hex": "0"}),
        with_extent({"hex": "AB"}),
        with_extent({"hex": "0x"}),
        with_extent({"hex": "00 0"}),
        with_extent({"hex": " 00 "}),
        with_extent({"hex": "00" * 65}),
        with_extent({"hex": 12}),
        with_extent({"hex": ["00", "11"]}),
        with_extent({"array": 1}),
        with_extent({"array": None}),
        with_extent({"name": "w"}),
        with_extent({"array": "W", "name": 1}),
        with_extent({"array": "W", "name": "\ud800"}),
        with_extent({"array": "W", "x": 1}),
        with_extent({"array": "_index", "name": "index"}),
        with_extent({**TENSOR, "array": "_W"}),
        with_extent({"array": "W", "order": "F"}),
        with_extent({"array": "W", "dtype": "F32", "name": "w"}),
        with_extent({"array": "W", "dtype": "F32", "shape": [2]}),
        with_extent({**TENSOR, "order": "C"}),
        with_extent({**TENSOR, "order": None}),
        with_extent({**TENSOR, "zeros": 1}),
        with_extent({**TENSOR, "dtype": 1}),
        with_extent({**TENSOR, "dtype": "\udfff"}),
        with_extent({**TENSOR, "shape": 2}),
        with_extent({**TENSOR, "shape": [True]}),
        with_extent({**TENSOR, "shape": ["2"]}),
        with_extent({**TENSOR, "shape": [[2]]}),
        {**NATIVE, "extents": [{"hex": "00"}]},
        {**NATIVE, "extents": [{"zeros": 1}]},
        {**NATIVE, "extents": [{"array": "W"}]},
        {**NATIVE, "extents": [{**TENSOR, "order": "F"}]},
    ],
)
def test_a_record_that_is_no_layout_is_refused(record: Any) -> None:
    with pytest.raises(TextError) as caught:
        parse_layout(spelled(record))
    assert caught.value.kind == "layout"
    assert caught.value.array == "_layout"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        spelled(GOOD) + b"\n",
        b" " + spelled(GOOD),
        spelled(GOOD).replace(b":", b": "),
        spelled(GOOD).replace(b'"w"', '"é"'.encode()),
        spelled(GOOD).replace(b'"w"', b'"\\u0077"'),
        spelled(GOOD).replace(b'"w"', b'"\\/"'),
        spelled(with_extent({**TENSOR, "name": "\u00e9"})).replace(b"00e9", b"00E9"),
        spelled(GOOD).replace(b"8", b"8.0"),
        spelled(GOOD).replace(b"8", b"8e0"),
        spelled(GOOD).replace(b"[2]", b"[-0]"),
        spelled(GOOD).replace(b"[2]", b"[NaN]"),
        spelled(GOOD).replace(b"[2]", b"[Infinity]"),
        spelled(GOOD).replace(b"[2]", b"[" + b"1" * 5000 + b"]"),
        spelled(GOOD).replace(b'"v":1', b'"v":1,"v":1'),
        spelled(GOOD).replace(b'"size":8,"v":1', b'"v":1,"size":8'),
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=range(20),
)
def test_any_other_spelling_is_refused(raw: bytes) -> None:
    with pytest.raises(TextError) as caught:
        parse_layout(raw)
    assert caught.value.kind == "layout"


FOLD = Meta(schema="fold/v1")
CAPS = (*CAP, "layout")


def layout_of(*extents: Extent, size: int, kind: str = "fold") -> Layout:
    return Layout(kind, size, extents)


HASH = bytes(32)
LINES = [
    ArrayLine("W", "f32", (2,), 8, HASH, HASH, bytes(8)),
    ArrayLine("_layout", "u8", (99,), 99, HASH, HASH, bytes(8)),
]


@pytest.mark.parametrize(
    ("layout", "meta", "cap"),
    [
        (layout_of(Extent("W"), size=8), FOLD, CAP),
        (layout_of(Extent("W"), size=8), Meta(schema="aero/v1"), CAPS),
        (layout_of(Extent("W"), size=8), Meta(), CAPS),
        (layout_of(Extent("W"), size=9), FOLD, CAPS),
        (layout_of(Extent("W"), size=7), FOLD, CAPS),
        (layout_of(Extent("W"), Extent("W"), size=16), FOLD, CAPS),
        (layout_of(Extent("V"), size=8), FOLD, CAPS),
        (layout_of(Extent("W"), Extent("_layout"), size=107), FOLD, CAPS),
        (layout_of(size=0), FOLD, CAPS),
        (layout_of(Extent(zeros=8), size=8), FOLD, CAPS),
        (Layout("arrays", None, ()), Meta(), CAPS),
        (Layout("arrays", None, (Extent("W", "<f8", "w", (2,)),)), Meta(), CAPS),
        (Layout("arrays", None, (Extent("W", "<f4", "w", (3,)),)), Meta(), CAPS),
        (Layout("arrays", None, (Extent("W", "<f8", "w", (1,)),)), FOLD, CAPS),
    ],
)
def test_a_layout_that_does_not_fit_its_text_is_refused(
    layout: Layout, meta: Meta, cap: tuple[str, ...]
) -> None:
    with pytest.raises(TextError) as caught:
        check_layout(layout, meta, cap, LINES)
    assert caught.value.kind == "layout"


def test_a_layout_that_fits_its_text_is_accepted() -> None:
    check_layout(
        layout_of(Extent(hex=b"ab"), Extent("W"), Extent(zeros=3), size=13), FOLD, CAPS, LINES
    )


def test_runs_of_zeros_are_at_most_16_mib_and_the_bytes_of_the_others() -> None:
    runs = [Extent(zeros=65_536)] * 256
    most = layout_of(Extent("W"), *runs, Extent(zeros=8), size=8 + 16 * 1024 * 1024 + 8)
    check_layout(most, FOLD, CAPS, LINES)
    over = layout_of(Extent("W"), *runs, Extent(zeros=9), size=8 + 16 * 1024 * 1024 + 9)
    with pytest.raises(TextError):
        check_layout(over, FOLD, CAPS, LINES)


def test_extents_stand_one_after_another() -> None:
    layout = layout_of(Extent(hex=b"ab"), Extent("W"), Extent(zeros=3), size=13)
    found = [(start, literal(extent) or extent.array) for start, extent in placed(layout, {"W": 8})]
    assert found == [(0, b"ab"), (2, "W"), (10, bytes(3))]


@pytest.mark.parametrize("kind", CONTAINER_FORMATS)
def test_the_schema_is_the_formats(kind: str) -> None:
    assert schema_of(kind) == f"{kind}/v1"


def test_the_schema_of_native_arrays_is_weights() -> None:
    assert schema_of("arrays") == "weights/v1"
