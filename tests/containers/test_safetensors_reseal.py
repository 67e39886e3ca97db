"""safetensors: files that are written again with other tensors and metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize

from tests.containers.resealing import (
    OPTIONS,
    changed,
    content,
    inverted,
    opened,
    own,
    refused,
    resealed,
)
from tests.containers.samples import manifest_entries, safetensors, tensor_item
from tests.containers.sources import NAMES, models
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.safetensors import reseal as module
from wtxtgit.containers.safetensors import write
from wtxtgit.containers.safetensors.read import Safetensors
from wtxtgit.containers.safetensors.write import DTYPES, build_model
from wtxtgit.io.view import PIECE, Buffer
from wtxtgit.model.tensor import NewContent, PlacedEntry, TensorSource

FILES = [entry["file"] for entry in manifest_entries() if entry["format"] == "safetensors"]
TAGS = st.dictionaries(NAMES, NAMES, max_size=3)
ITEMS = {"a": tensor_item("U8", [4], 0, 4), "b": tensor_item("I16", [2], 4, 8)}
BYTES = bytes(range(1, 9))


def small(
    items: Mapping[str, object] = ITEMS, data: bytes = BYTES, **further: object
) -> Safetensors:
    return opened(safetensors({**further, **items}, data))


def all_of(container: Safetensors) -> list[PlacedEntry]:
    return own(container, len(container.header.tensors))


def held(data: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The tensors in the file's order; what is written holds, and the library reads the same."""
    findings = check(memoryview(data))
    assert (findings.errors, findings.warnings) == ([], [])
    tensors = {
        t.name: (t.dtype, t.shape, bytes(t.data)) for t in describe(memoryview(data)).tensors
    }
    assert tensors == {
        name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in deserialize(data)
    }
    return tensors


def header_of(data: bytes) -> dict[str, Any]:
    items: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return items


@pytest.mark.parametrize("file", FILES)
def test_a_fixture_that_is_not_changed_stays(file: str) -> None:
    data = fixture(file)
    container = opened(data)
    listed = module.entries(container, OPTIONS)
    assert [entry.tensor and entry.tensor.name for entry in listed] == [
        tensor.name for tensor in describe(memoryview(data)).tensors
    ]
    assert resealed(container, all_of(container)) == data
    assert resealed(container, all_of(container), module.values(container, OPTIONS)) == data


@settings(max_examples=50)
@given(models(sorted(DTYPES)), TAGS, st.data())
def test_tensors_are_put_where_they_stand(
    tensors: list[TensorSource], tags: dict[str, str], data: st.DataObject
) -> None:
    raw = b"".join(build_model(tensors, tags))
    container = opened(raw)
    listed = describe(memoryview(raw)).tensors
    assert resealed(container, all_of(container)) == raw
    chosen = data.draw(st.sets(st.sampled_from(range(len(listed))))) if listed else set()
    wanted = bytearray(raw)
    contents = {}
    for number in chosen:
        start = listed[number].offset
        assert start is not None
        contents[number] = inverted(listed[number].data)
        wanted[start : start + len(contents[number])] = contents[number]
    assert resealed(container, changed(all_of(container), contents)) == wanted


@settings(max_examples=50)
@given(models(sorted(DTYPES)), models(sorted(DTYPES)), TAGS, TAGS)
def test_tensors_of_two_files_are_laid_out_in_order(
    first: list[TensorSource],
    second: list[TensorSource],
    tags: dict[str, str],
    other_tags: dict[str, str],
) -> None:
    ours = opened(b"".join(build_model(first, tags)))
    theirs = opened(b"".join(build_model(second, other_tags)))
    names = {tensor.name for tensor in first}
    entries = module.entries(theirs, OPTIONS)
    placed = [PlacedEntry(theirs, n) for n, entry in enumerate(entries) if entry.name not in names]
    placed += all_of(ours)
    data = resealed(ours, placed, module.values(theirs, OPTIONS))
    listed = {id(c): module.entries(c, OPTIONS) for c in (ours, theirs)}
    wanted = [listed[id(each.source)][each.number] for each in placed]
    assert list(held(data).items()) == [
        (e.name, (e.tensor.dtype, e.tensor.shape, bytes(e.tensor.data))) for e in wanted if e.tensor
    ]
    assert describe(memoryview(data)).tags == other_tags


def test_what_no_tensor_has_stays_where_tensors_do() -> None:
    # Of a header that no writer spells so, gaps, and an order of its own.
    items = {"b": tensor_item("U8", [2], 7, 9), "a": tensor_item("U8", [3], 1, 4)}
    raw = b' \n {"__metadata__":null, ' + json.dumps(items, indent=3).encode()[1:] + b"   "
    data = safetensors(b"{" + raw.lstrip()[1:], bytes(range(12)))
    container = opened(data)
    assert resealed(container, all_of(container)) == data
    wanted = data[:-12] + b"\0xyz\4\5\6\7\x08\x09\x0a\x0b"
    assert resealed(container, changed(all_of(container), {1: b"xyz"})) == wanted
    # Without them there is nothing left but the tensors.
    assert resealed(container, all_of(container)[::-1])[-5:] == b"\1\2\3\7\x08"


def test_a_tensor_of_another_file_takes_the_place_of_its_like() -> None:
    data = safetensors({"b": ITEMS["b"], "a": ITEMS["a"]}, BYTES)
    ours, theirs = opened(data), small(data=inverted(BYTES))
    placed = [PlacedEntry(ours, 0), PlacedEntry(theirs, 0)]
    assert resealed(ours, placed) == data[:-8] + inverted(BYTES[:4]) + BYTES[4:]
    placed = [PlacedEntry(theirs, 1, content(b"wxyz")), PlacedEntry(theirs, 0)]
    assert resealed(ours, placed) == data[:-8] + inverted(BYTES[:4]) + b"wxyz"


def test_added_and_removed_tensors() -> None:
    ours = small()
    theirs = small({"c": tensor_item("F16", [1, 2], 0, 4), "d": tensor_item("BOOL", [0], 4, 4)})
    data = resealed(ours, [PlacedEntry(ours, 1), *all_of(theirs)])
    assert list(held(data).items()) == [
        ("b", ("I16", (2,), BYTES[4:])),
        ("c", ("F16", (1, 2), BYTES[:4])),
        ("d", ("BOOL", (0,), b"")),
    ]
    assert held(resealed(ours, [])) == {}
    data = resealed(ours, [*changed([PlacedEntry(theirs, 0)], {0: b"abcd"}), PlacedEntry(ours, 0)])
    assert held(data) == {"c": ("F16", (1, 2), b"abcd"), "a": ("U8", (4,), BYTES[:4])}


def test_another_dtype_and_shape() -> None:
    ours = small(__metadata__={"k": "v"})
    theirs = small({"a": tensor_item("F32", [2], 0, 8)})
    data = resealed(ours, [PlacedEntry(theirs, 0), PlacedEntry(ours, 1)])
    assert held(data) == {"a": ("F32", (2,), BYTES), "b": ("I16", (2,), BYTES[4:])}
    assert header_of(data)["__metadata__"] == {"k": "v"}
    # As many bytes, of which others are to be made.
    theirs = small({"a": tensor_item("F32", [1], 0, 4), "b": ITEMS["b"]})
    data = resealed(ours, [PlacedEntry(theirs, 0, content(b"abcd")), PlacedEntry(ours, 1)])
    assert held(data) == {"a": ("F32", (1,), b"abcd"), "b": ("I16", (2,), BYTES[4:])}


def test_another_length_of_an_unknown_dtype() -> None:
    ours, theirs = (
        small({"a": tensor_item("X9", [1], 0, length)}, BYTES[:length]) for length in (3, 4)
    )
    data = resealed(ours, all_of(theirs))
    (tensor,) = describe(memoryview(data)).tensors
    assert (tensor.dtype, tensor.data) == ("X9", BYTES[:4])
    assert [error.field for error in check(memoryview(data)).errors] == ["dtype"]


def test_other_metadata() -> None:
    ours = small(__metadata__={"b": "1", "a": "2"})
    placed = changed(all_of(ours), {0: b"abcd"})
    data = resealed(ours, placed, {"__metadata__": {"a": "2", "é": "3"}})
    assert header_of(data)["__metadata__"] == {"a": "2", "é": "3"}
    assert held(data) == {"a": ("U8", (4,), b"abcd"), "b": ("I16", (2,), BYTES[4:])}
    data = resealed(ours, placed, {})
    assert list(header_of(data)) == ["a", "b"]
    data = resealed(ours, placed, {"__metadata__": {}})
    assert list(header_of(data)) == ["__metadata__", "a", "b"]
    assert held(data).keys() == {"a", "b"}
    # The order is part of them.
    for order in ({"a": "2", "b": "1"}, {"b": "1", "a": "2"}):
        data = resealed(ours, placed, {"__metadata__": order})
        assert list(header_of(data)["__metadata__"].items()) == list(order.items())
    data = resealed(ours, placed[1:])
    assert list(header_of(data)["__metadata__"].items()) == [("b", "1"), ("a", "2")]


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        (None, {}),
        ({}, {"__metadata__": {}}),
        ({"a": "b"}, {"__metadata__": {"a": "b"}}),
        ([1], {"__metadata__": [1]}),
    ],
)
def test_values(metadata: object, wanted: dict[str, object]) -> None:
    container = small(__metadata__=metadata)
    assert module.values(container, OPTIONS) == wanted
    data = bytes(container.data)
    assert resealed(container, all_of(container), wanted) == data


def test_further_keys_of_a_tensor_go_along() -> None:
    further = {"scale": 0.5, "é": [1, {"x": None}]}
    ours, theirs = small(), small({"c": {**ITEMS["a"], **further}, "b": ITEMS["b"]})
    data = resealed(ours, [PlacedEntry(theirs, 0), *all_of(ours)])
    assert header_of(data)["c"] == {**tensor_item("U8", [4], 0, 4), **further}
    assert len(held(data)) == 3


def test_forms_tell_what_the_header_says() -> None:
    forms = [
        module.entries(small({"a": {**tensor_item(dtype, shape, 0, 4), **further}}), OPTIONS)[
            0
        ].form
        for dtype, shape, further in (
            ("U8", [4], {}),
            ("I8", [4], {}),
            ("U8", [2, 2], {}),
            ("U8", [4], {"k": 1}),
            ("U8", [4], {"k": True}),
            ("U8", [4], {"k": [1]}),
        )
    ]
    assert len(set(forms)) == len(forms)
    one, other = (
        module.entries(small({"a": {**item, **further}, "b": ITEMS["b"]}), OPTIONS)
        for item, further in (
            (tensor_item("U8", [4], 0, 4), {"j": 1, "k": 2}),
            (tensor_item("U8", [4], 2, 6), {"k": 2, "j": 1}),
        )
    )
    assert one[0].form == other[0].form
    assert (one[0].stored, other[0].stored) == (BYTES[:4], BYTES[2:6])


def test_what_is_refused() -> None:
    ours = small()
    twice = refused(ours, [*all_of(ours), PlacedEntry(ours, 0)])
    assert twice.field == "name"
    placed = [PlacedEntry(ours, 0, content(b"abc")), PlacedEntry(ours, 1)]
    assert refused(ours, placed).message == "tensor 'a' has 4 bytes, but 3 were given"
    for metadata in ([1], {"a": 1}, {"a": {"b": "c"}}, "text"):
        found = refused(ours, all_of(ours), {"__metadata__": metadata})
        assert found.field == "__metadata__"
    found = refused(ours, all_of(ours), {"__metadata__": {"a": "\ud800"}})
    assert found.field == "metadata"
    for value in ('"\\ud800"', "NaN", "1e999"):
        raw = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"k":[' + value + "]}}"
        theirs = opened(safetensors(raw.encode(), b"a"))
        assert resealed(theirs, all_of(theirs)) == theirs.data
        found = refused(ours, [PlacedEntry(theirs, 0)])
        assert found.field == "header"


def test_metadata_that_the_library_refuses_stay_with_the_tensors() -> None:
    container = small(__metadata__={"a": 1})
    data = bytes(container.data)
    assert resealed(container, changed(all_of(container), {0: b"abcd"})) == (
        data[:-8] + b"abcd" + BYTES[4:]
    )
    assert refused(container, all_of(container)[1:]).field == "__metadata__"
    assert held(resealed(container, all_of(container), {})).keys() == {"a", "b"}


def test_damage_is_not_written_again() -> None:
    good, bad = small(), small({"a": tensor_item("U8", [3], 0, 4)})
    for container, placed in ((bad, all_of(bad)), (good, all_of(bad)), (bad, all_of(good))):
        found = refused(container, placed)
        assert (found.kind, found.field) == ("structure", "data_offsets")


def shared(count: int, *more: tuple[int, int]) -> Safetensors:
    """A file whose tensors t0, t1 ... have the same four bytes, and some others."""
    spans = [(0, 4)] * count + list(more)
    return small({f"t{n}": tensor_item("U8", [e - s], s, e) for n, (s, e) in enumerate(spans)})


def test_tensors_that_share_their_bytes() -> None:
    container = shared(3, (4, 8))
    data, placed = bytes(container.data), all_of(container)
    same = dict.fromkeys(range(3), b"abcd")
    assert resealed(container, placed) == data
    assert resealed(container, changed(placed, same)) == data[:-8] + b"abcd" + BYTES[4:]
    assert resealed(container, changed(placed, {3: b"abcd"})) == data[:-4] + b"abcd"
    assert resealed(container, changed(placed, {0: BYTES[:4]})) == data
    for contents in ({0: b"abcd"}, {**same, 1: b"abce"}, {0: b"abcd", 2: b"abcd"}):
        found = refused(container, changed(placed, contents))
        assert found.message == ("tensors 't0' and 't1' share their bytes, so they can't differ")
    # Elsewhere each has bytes of its own.
    assert {t[2] for t in held(resealed(container, placed[:3])).values()} == {BYTES[:4]}


def test_tensors_that_share_some_of_their_bytes() -> None:
    container = shared(1, (2, 6), (5, 7), (7, 8))
    data, placed = bytes(container.data), all_of(container)
    assert resealed(container, placed) == data
    assert resealed(container, changed(placed, {3: b"x"})) == data[:-1] + b"x"
    for number, raw in ((0, b"abcd"), (1, b"abcd"), (2, b"ab")):
        found = refused(container, changed(placed, {number: raw}))
        assert "share some of their bytes" in found.message


def test_tensors_without_bytes_share_none() -> None:
    container = small({"a": ITEMS["a"], "e": tensor_item("U8", [0], 2, 2), "b": ITEMS["b"]})
    data = resealed(container, changed(all_of(container), {0: b"abcd", 1: b""}))
    assert data == bytes(container.data[:-8]) + b"abcd" + BYTES[4:]


def test_a_file_is_not_made_much_larger() -> None:
    items = {f"t{n}": tensor_item("U8", [10**6], 0, 10**6) for n in range(1000)}
    bomb = opened(safetensors(items, bytes(10**6)))
    assert len(b"".join(module.reseal(bomb, all_of(bomb), None, OPTIONS))) == len(bomb.data)
    assert refused(bomb, all_of(bomb)[1:]).kind == "limit"
    assert refused(bomb, all_of(bomb), {"__metadata__": {"a": "b"}}).kind == "limit"
    raw = bytes(range(250)) * 4000
    found = refused(bomb, changed(all_of(bomb), dict.fromkeys(range(1000), raw)))
    assert (found.kind, found.field) == ("limit", "entries")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = small()
    length = len(resealed(ours, all_of(ours)[::-1])) - 8 - len(BYTES)
    monkeypatch.setattr(write, "MAX_HEADER", length)
    assert resealed(ours, all_of(ours)[::-1])
    monkeypatch.setattr(write, "MAX_HEADER", length - 1)
    assert refused(ours, all_of(ours)[::-1]).kind == "limit"


def test_nothing_of_a_tensor_is_held() -> None:
    block = bytes(2**20)
    made = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal made
        for _ in range(8):
            made += 1
            yield block

    container = opened(
        safetensors(
            {
                "a": tensor_item("U8", [2**23], 0, 2**23),
                "b": tensor_item("U8", [2**23], 2**23, 2**24),
            },
            bytes(2**24),
        )
    )
    placed = [PlacedEntry(container, 0, NewContent(2**23, blocks)), PlacedEntry(container, 1)]
    for order in (placed, placed[::-1]):
        made = 0
        pieces = module.reseal(container, order, None, OPTIONS)
        assert made == 0
        sizes = [len(piece) for piece in pieces]
        assert max(sizes) == PIECE
        assert sum(sizes) in (len(container.data), 2**24 + 144)
        assert made == 8


def test_the_rest_is_what_no_tensor_has() -> None:
    apart = {"a": tensor_item("U8", [4], 0, 4), "b": tensor_item("I16", [2], 8, 12)}

    def rest(container: Safetensors) -> dict[str, object]:
        return module.rest(container, OPTIONS)

    plain, spaced = small(), small(apart, BYTES[:4] + bytes(4) + BYTES[4:] + bytes(9))
    spelled = opened(safetensors(json.dumps(ITEMS, indent=2).encode() + b"   ", BYTES[::-1]))
    assert rest(plain) == rest(spaced) == rest(spelled) == {}
    odd = [rest(small(data=BYTES + tail)) for tail in (b"x", b"y", b"xy")]
    odd.append(rest(small(apart, BYTES[:4] + b"\0zz\0" + BYTES[4:])))
    odd.append(rest(small(__metadata__=None)))
    assert {} not in odd
    assert all(odd.count(one) == 1 for one in odd)
    # Where the bytes stand follows from the tensors.
    assert rest(small(data=BYTES + b"\0x\0", __metadata__={"k": "v"})) == odd[0]
