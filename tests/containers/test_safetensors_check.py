"""safetensors: lengths that do not add up, and what the reference library refuses."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from tests.containers.samples import manifest_entries, safetensors, tensor_item
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.safetensors import check as safetensors_check
from wtxtgit.containers.safetensors.read import MAX_HEADER
from wtxtgit.model.findings import Findings

FILES = [entry for entry in manifest_entries() if entry["format"] == "safetensors"]
BYTES = bytes(range(1, 200))


def padded(header: dict[str, Any], data: bytes = b"") -> bytes:
    raw = json.dumps(header, separators=(",", ":")).encode()
    return safetensors(raw + b" " * (-len(raw) % 8), data)


def found(data: bytes) -> Findings:
    return check(memoryview(data))


def library_refuses(data: bytes) -> str | None:
    """What the library says of a file that it refuses."""
    try:
        deserialize(data)
    except SafetensorError as error:
        return str(error)
    return None


def base_of(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


@pytest.mark.parametrize("entry", FILES, ids=lambda e: e["file"])
def test_files_of_the_library_hold(entry: dict[str, Any]) -> None:
    findings = found(fixture(entry["file"]))
    assert (findings.errors, findings.warnings) == ([], [])


@pytest.mark.parametrize(
    ("items", "size", "offset", "words"),
    [
        ({"a": tensor_item("U8", [1], 0, 1)}, 3, 1, "2 bytes after the last tensor"),
        ({}, 1, 0, "1 bytes after the last tensor"),
        ({"a": tensor_item("U8", [2], 1, 3)}, 3, 0, "1 bytes before tensor 'a'"),
        (
            {"b": tensor_item("U8", [1], 4, 5), "a": tensor_item("U8", [1], 0, 1)},
            5,
            1,
            "3 bytes before tensor 'b'",
        ),
        (
            {"a": tensor_item("U8", [3], 0, 3), "b": tensor_item("U8", [2], 2, 4)},
            4,
            2,
            "'b' begins inside another one",
        ),
        (
            {"a": tensor_item("U8", [3], 0, 3), "b": tensor_item("U8", [1], 1, 2)},
            3,
            1,
            "'b' begins inside another one",
        ),
        (
            {"a": tensor_item("U8", [2], 0, 2), "b": tensor_item("U8", [2], 0, 2)},
            2,
            0,
            "'b' begins inside another one",
        ),
        ({"a": tensor_item("F32", [0], 99, 99)}, 0, 99, "'a' has 0 bytes but lies away from"),
        (
            {"a": tensor_item("U8", [2], 0, 2), "e": tensor_item("F32", [0], 1, 1)},
            2,
            1,
            "'e' begins inside another one",
        ),
    ],
)
def test_bytes_that_are_not_each_of_one_tensor(
    items: dict[str, Any], size: int, offset: int, words: str
) -> None:
    data = padded(items, BYTES[:size])
    findings = found(data)
    assert findings.warnings == []
    [error] = findings.errors
    assert (error.kind, error.field) == ("structure", "data_offsets")
    assert error.offset == base_of(data) + offset
    assert words in error.message
    assert library_refuses(data)
    assert describe(memoryview(data)).tensors or not items


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "words"),
    [
        ("U8", [2], 3, "has 3 bytes, but its dtype and shape need 2"),
        ("U8", [4], 3, "has 3 bytes, but its dtype and shape need 4"),
        ("F32", [], 3, "need 4"),
        ("F32", [], 5, "need 4"),
        ("C64", [2], 8, "need 16"),
        ("C64", [1], 16, "need 8"),
        ("F32", [0, 7], 4, "need 0"),
        ("F32", [7, 0], 4, "need 0"),
        ("F32", [2**64 - 1, 2**64 - 1], 4, "need more than offsets can hold"),
        ("F4", [5], 3, "need 20 bits, which are not whole bytes"),
        ("F4", [5], 2, "need 20 bits"),
        ("F4", [8], 3, "need 4"),
        ("F6_E2M3", [4], 4, "need 3"),
        ("F6_E3M2", [3], 3, "need 18 bits"),
        ("F8_E8M0", [3], 4, "need 3"),
    ],
)
def test_lengths_that_do_not_add_up(dtype: str, shape: list[int], size: int, words: str) -> None:
    header = {"w": tensor_item("U8", [1], 0, 1), "a": tensor_item(dtype, shape, 1, 1 + size)}
    data = padded(header, BYTES[: 1 + size])
    findings = found(data)
    assert findings.warnings == []
    [error] = findings.errors
    assert (error.kind, error.field) == ("structure", "data_offsets")
    assert error.offset == base_of(data) + 1
    assert words in error.message
    assert library_refuses(data)


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("F4", [2, 3], 3),
        ("F4", [0, 3], 0),
        ("F6_E2M3", [4], 3),
        ("F6_E3M2", [2, 4], 6),
        ("F8_E8M0", [3], 3),
        ("F8_E4M3FNUZ", [], 1),
        ("F8_E5M2FNUZ", [1, 1], 1),
        ("BOOL", [3], 3),
        ("BF16", [3], 6),
        ("C64", [2], 16),
        ("U64", [], 8),
    ],
)
def test_dtypes_that_the_library_knows(dtype: str, shape: list[int], size: int) -> None:
    data = padded({"a": tensor_item(dtype, shape, 0, size)}, BYTES[:size])
    findings = found(data)
    assert (findings.errors, findings.warnings) == ([], [])
    assert library_refuses(data) is None
    [tensor] = describe(memoryview(data)).tensors
    assert (tensor.element is None) == (dtype[:2] in ("F4", "F6"))


def test_tensors_of_no_bytes_between_others() -> None:
    items = {
        "b": tensor_item("U8", [2], 0, 2),
        "a": tensor_item("F32", [0], 0, 0),
        "z": tensor_item("F32", [4, 0], 2, 2),
    }
    data = padded(items, b"ab")
    findings = found(data)
    assert (findings.errors, findings.warnings) == ([], [])
    assert library_refuses(data) is None


def test_dtypes_that_the_library_does_not_know() -> None:
    for dtype, shape, size, errors in (
        ("Q8", [3], 5, 0),
        ("f32", [1], 4, 0),
        ("C128", [1], 16, 0),
        ("C128", [1], 15, 1),
    ):
        data = padded({"a": tensor_item(dtype, shape, 0, size)}, BYTES[:size])
        findings = found(data)
        assert findings.warnings == []
        [unknown, *others] = findings.errors
        assert len(others) == errors
        assert (unknown.kind, unknown.field, unknown.offset) == ("structure", "dtype", 8)
        assert f"'{dtype}'" in unknown.message
        assert "unknown variant" in (library_refuses(data) or "")


PLAIN = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]%b}}'


@pytest.mark.parametrize(
    "header",
    [
        b'{"__metadata__":{"a":"\\ud800"}}',
        b'{"__metadata__":{"\\\\\\udc00":"a"}}',
        PLAIN % b',"x":["\\ud83d\\ud83d"]',
        PLAIN % b',"x":NaN',
        PLAIN % b',"x":-Infinity',
        PLAIN % b',"x":1e999',
        b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}',
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}}',
    ],
)
def test_json_that_a_strict_reader_refuses(header: bytes) -> None:
    size = 1 if b"[1]" in header else 0
    data = safetensors(header, bytes(size))
    [error] = found(data).errors
    assert (error.kind, error.field, error.offset) == ("structure", "header", 8)
    assert library_refuses(data)


@pytest.mark.parametrize("text", [b"\\ud83d\\ude00", b"\\\\ud800", b"\\u00e9", b"NaN", b"-0"])
def test_texts_that_look_like_it(text: bytes) -> None:
    header = b'{"__metadata__":{"a":"%b"}}' % text
    data = safetensors(header, b"")
    assert found(data).errors == []
    assert library_refuses(data) is None


def test_dimensions_that_overflow_before_one_of_0() -> None:
    for shape in ([2**63, 2, 0], [2**32, 2**32, 0, 3]):
        data = padded({"a": tensor_item("U8", shape, 0, 0)})
        [error] = found(data).errors
        assert (error.kind, error.field, error.offset) == ("structure", "shape", 8)
        assert "overflow" in (library_refuses(data) or "")
    for shape in ([0, 2**63, 2], [2**63, 0, 2**63]):
        data = padded({"a": tensor_item("U8", shape, 0, 0)})
        assert found(data).errors == []
        assert library_refuses(data) is None


@pytest.mark.parametrize("metadata", [7, [], "a", False, {"a": 1}, {"a": None}, {"a": {"b": "c"}}])
def test_metadata_that_are_no_strings(metadata: object) -> None:
    data = padded({"__metadata__": metadata})
    findings = found(data)
    assert findings.warnings == []
    [error] = findings.errors
    assert (error.kind, error.field, error.offset) == ("structure", "__metadata__", 8)
    assert library_refuses(data)


def test_metadata_as_tags() -> None:
    for metadata, tags, untold in (
        (None, {}, ()),
        ({"a": "b", "": "é"}, {"a": "b", "": "é"}, ()),
        ({"a": "b", "n": 1, "x\n": []}, {"a": "b"}, ("__metadata__.n", "__metadata__.'x\\n'")),
        ({"s": "\ud800", "\udfff": ""}, {}, ("__metadata__.s", "__metadata__.'\\udfff'")),
        (7, {}, ("__metadata__",)),
    ):
        listed = describe(memoryview(padded({"__metadata__": metadata})))
        assert (listed.tags, listed.untold) == (tags, untold)


def test_a_header_that_is_not_padded() -> None:
    raw = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    for padding in range(9):
        data = safetensors(raw + b" " * padding, b"\1")
        findings = found(data)
        fields = [(w.kind, w.field, w.offset) for w in findings.warnings]
        aligned = (len(raw) + padding) % 8 == 0
        assert fields == ([] if aligned else [("structure", "header length", 0)])
        assert findings.errors == []


def test_a_header_longer_than_the_library_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    data = padded({"a": tensor_item("U8", [1], 0, 1)}, b"\1")
    length = base_of(data) - 8
    monkeypatch.setattr(safetensors_check, "MAX_HEADER", length)
    assert found(data).errors == []
    monkeypatch.setattr(safetensors_check, "MAX_HEADER", length - 1)
    [error] = found(data).errors
    assert (error.kind, error.field, error.offset) == ("limit", "header length", 0)


def test_the_limit_of_headers_is_the_librarys() -> None:
    refused = [library_refuses(struct.pack("<Q", MAX_HEADER + more)) for more in (0, 1)]
    assert refused[0] != refused[1]
    assert "too large" in (refused[1] or "")


def test_what_can_not_be_read_is_an_error() -> None:
    data = safetensors({"a": tensor_item("U8", [4], 0, 4)}, b"abc")
    [error] = found(data).errors
    assert error.kind == "structure"
    assert "reaches outside" in error.message


ITEM = st.tuples(
    st.sampled_from(["U8", "F16", "F4", "F6_E2M3", "C64", "C128", "Q"]),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 24),
    st.integers(0, 24),
)


@given(st.lists(ITEM, max_size=4), st.integers(0, 24), st.integers(0, 8))
def test_what_holds_without_warnings_is_what_the_library_reads(
    items: list[tuple[str, list[int], int, int]], size: int, padding: int
) -> None:
    header = {
        str(number): tensor_item(dtype, shape, min(a, b, size), min(max(a, b), size))
        for number, (dtype, shape, a, b) in enumerate(items)
    }
    raw = json.dumps(header).encode()
    data = safetensors(raw + b" " * padding, BYTES[:size])
    findings = found(data)
    refused = [w for w in findings.warnings if w.field != "header length"]
    assert bool(findings.errors or refused) == (library_refuses(data) is not None)
    for problem in (*findings.errors, *findings.warnings):
        assert problem.offset is not None
        assert 0 <= problem.offset <= len(data)


@given(st.lists(st.tuples(st.sampled_from(["U8", "F16", "F4"]), st.integers(0, 8)), max_size=5))
def test_tensors_back_to_back_hold(sizes: list[tuple[str, int]]) -> None:
    bits = {"U8": 8, "F16": 16, "F4": 4}
    header, end = {}, 0
    for number, (dtype, count) in enumerate(sizes):
        count += count % 2
        length = count * bits[dtype] // 8
        header[f"t{number}"] = tensor_item(dtype, [count], end, end + length)
        end += length
    data = padded(header, BYTES[:end])
    findings = found(data)
    assert (findings.errors, findings.warnings) == ([], [])
    assert library_refuses(data) is None
