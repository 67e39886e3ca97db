"""safetensors: which headers are read, what becomes of the tensors."""

from __future__ import annotations

import struct

import pytest

from tests.containers.samples import check_cut, safetensors, spelled, tensor_item
from wtxtgit.containers.any_format import describe, split
from wtxtgit.errors import FormatError


def test_tensors_header_and_gaps() -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b.w": tensor_item("BF16", [2, 2], 8, 16),
        "a": tensor_item("F64", [], 0, 8),
        "c": tensor_item("C64", [1], 20, 28),
        "f4": tensor_item("F4", [2], 28, 29),
        "empty": tensor_item("F32", [0], 10**6, 10**6),
        "over": tensor_item("U8", [4], 7, 11),
    }
    data = safetensors(header, bytes(range(1, 17)) + bytes(4) + bytes(range(1, 10)))
    result = split(memoryview(data))
    check_cut(result, data)
    assert spelled(result) == ["_header", "a", "b_w", "zeros:4", "c", "f4"]
    assert [(a.dtype, a.shape) for a in result.arrays[1:]] == [
        ("f64", ()),
        ("u16", (2, 2)),
        ("f32", (1, 2)),
        ("u8", (1,)),
    ]
    extent = result.layout.extents[2]
    assert (extent.dtype, extent.name, extent.shape) == ("BF16", "b.w", (2, 2))
    listed = describe(memoryview(data))
    assert [t.name for t in listed.tensors] == ["b.w", "a", "c", "f4", "empty", "over"]
    assert bytes(listed.tensors[5].data) == bytes([8, 9, 10, 11])
    assert listed.tensors[1].offset == len(data) - 29
    assert listed.metadata == {"__metadata__": {"format": "pt"}}


GOOD = tensor_item("U8", [4], 0, 4)


@pytest.mark.parametrize(
    "header",
    [
        b"{}x",
        b"[]",
        b"{",
        b"",
        b" {}",
        b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"__metadata__":{"a":"1","a":"2"}}',
        b'{"\\ud800":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"\\ud800","shape":[4],"data_offsets":[0,4]}}',
        b'{"a":%s,"a":%s}' % ((b'{"dtype":"U8","shape":[4],"data_offsets":[0,4]}',) * 2),
        {"a": 1},
        {"a": []},
        {"a": GOOD | {"dtype": 1}},
        {"a": GOOD | {"shape": 4}},
        {"a": GOOD | {"shape": [-1]}},
        {"a": GOOD | {"shape": [True]}},
        {"a": GOOD | {"shape": [4.0]}},
        {"a": GOOD | {"shape": [2**64]}},
        {"a": GOOD | {"data_offsets": [0]}},
        {"a": GOOD | {"data_offsets": [0, 4, 4]}},
        {"a": GOOD | {"data_offsets": [4, 0]}},
        {"a": GOOD | {"data_offsets": [-1, 4]}},
        {"a": GOOD | {"data_offsets": [False, 4]}},
        {"a": GOOD | {"data_offsets": [0, 5]}},
        {"a": {"dtype": "U8", "shape": [4]}},
        {"a": {"shape": [4], "data_offsets": [0, 4]}},
        {"a": {"dtype": "U8", "data_offsets": [0, 4]}},
    ],
)
def test_headers_that_are_refused(header: object) -> None:
    data = safetensors(header, b"\1\2\3\4")
    result = split(memoryview(data))
    check_cut(result, data)
    assert spelled(result) == ["data"]


def test_odd_headers_that_are_read() -> None:
    for header in (
        {"a": GOOD | {"extra": [1.5, None]}},
        {"a": GOOD, "__metadata__": 7},
        b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}} \t\r\n ',
        b'{"__metadata__":{"a":"\\ud800","b":NaN}}',
    ):
        assert split(memoryview(safetensors(header, b"\1\2\3\4"))).reason is None


def test_a_header_past_the_end_is_told() -> None:
    data = struct.pack("<Q", 100) + b"{}"
    with pytest.raises(FormatError, match="header is cut short at byte 8"):
        describe(memoryview(data))
