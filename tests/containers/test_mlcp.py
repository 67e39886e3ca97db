"""MLCP: the three places of tensor bytes, and what is refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers import samples
from tests.containers.samples import check_cut, count, mlcp_record, spelled, words
from wtxtgit.containers import cursor
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.cursor import Cursor
from wtxtgit.containers.mlcp import read as mlcp_read
from wtxtgit.errors import FormatError

A = mlcp_record(b"a.w", "Float32", [2], 8)
B = mlcp_record(b"b", "BFloat16", [1], 2)
BYTES = (b"\1" * 8, b"\2\2")
TWO = {"shards": [{}, {}]}


def test_no_bytes_whatever_the_count_says() -> None:
    for metadata in (TWO, {"shards": None}, {}, [], 1, {"shards": [1] * 9}):
        data = samples.mlcp(metadata, count(1) + A + count(0) + count(1) + B)
        assert words(data) == ["_header", "_records"]
        listed = describe(memoryview(data))
        assert [(t.name, t.dtype, t.shape, len(t.data)) for t in listed.tensors] == [
            ("a.w", "Float32", (2,), 0),
            ("b", "BFloat16", (1,), 0),
        ]
        assert listed.metadata["metadata"] == metadata
        reason = "the file does not hold the bytes of tensors"
        assert [t.absent for t in listed.tensors] == [reason] * 2


def test_no_records() -> None:
    assert words(samples.mlcp({})) == ["_header"]


def test_bytes_after_each_record() -> None:
    data = samples.mlcp(TWO, count(1) + A + BYTES[0] + count(1) + B + BYTES[1])
    result = split(memoryview(data))
    check_cut(result, data)
    gaps = ["hex:" + (count(1) + A).hex(), "hex:" + (count(1) + B).hex()]
    assert spelled(result) == ["_header", gaps[0], "a_w", gaps[1], "b"]
    assert [(a.dtype, a.shape) for a in result.arrays[1:]] == [("f32", (2,)), ("u16", (1,))]
    listed = describe(memoryview(data)).tensors
    assert [(bytes(t.data), t.absent) for t in listed] == [(BYTES[0], None), (BYTES[1], None)]


def test_bytes_after_all_records() -> None:
    data = samples.mlcp(TWO, count(1) + A + count(1) + B + b"".join(BYTES))
    assert words(data) == ["_header", "_records", "a_w", "b"]
    assert [bytes(t.data) for t in describe(memoryview(data)).tensors] == list(BYTES)


@pytest.mark.parametrize(
    "body",
    [
        count(1) + A[:-1],
        count(1) + A + b"\0",
        count(-1),
        count(1) + count(-1),
        count(1) + count(3) + b"a.w\x07Float32" + count(-1) + bytes(8),
        count(1) + count(1) + b"\xff\x07Float32" + count(0) + bytes(8),
        count(1) + count(1) + b"a\x01\xff" + count(0) + bytes(8),
        count(1) + count(1) + b"a\x80\x80\x80\x80\x80\x00",
        count(1) + count(1) + b"a\xff\xff\xff\xff\x0f",
        count(1) + A + BYTES[0] + count(1) + B + BYTES[1] + b"\0",
        count(2) + mlcp_record(b"a", "Int8", [1], -1) + B + b"\1",
        count(2**31 - 1),
    ],
)
def test_records_that_are_refused(body: bytes) -> None:
    assert words(samples.mlcp(TWO, body)) == ["data"]


def test_negative_sizes_and_dims_without_bytes() -> None:
    data = samples.mlcp({}, count(1) + mlcp_record(b"a", "99", [-1], -5))
    assert words(data) == ["_header", "_records"]
    assert describe(memoryview(data)).tensors[0].shape == (-1,)


@pytest.mark.parametrize(
    "data",
    [
        b"PCLM\x01",
        b"PCLM\x01\xff" + count(2) + b"{}",
        b"PCLM\x011" + count(-1),
        b"PCLM\x011" + count(3) + b"{}",
        samples.mlcp(b""),
        samples.mlcp(b"{]"),
        samples.mlcp(b"\xef\xbb\xbf{}"),
    ],
)
def test_headers_that_are_refused(data: bytes) -> None:
    assert words(data) == ["data"]
    with pytest.raises(FormatError):
        describe(memoryview(data))


def test_the_last_of_equal_keys_counts() -> None:
    body = count(1) + A + BYTES[0]
    assert words(samples.mlcp(b'{"shards":[1,1],"shards":[1]}', body))[-1] == "a_w"
    assert words(samples.mlcp(b'{"shards":[1],"shards":[1,1]}', body)) == ["data"]


def test_millions_of_empty_shards_are_skipped() -> None:
    data = samples.mlcp({}, bytes(40_000_000) + count(1) + A + bytes(4_000))
    started = time.process_time()
    assert words(data) == ["_header", "_records"]
    assert time.process_time() - started < 5


def test_empty_shards_count_when_bytes_follow() -> None:
    metadata = {"shards": [0] * 5}
    body = bytes(8) + count(1) + A + BYTES[0] + bytes(8)
    assert words(samples.mlcp(metadata, body))[2:] == ["a_w", "zeros:8"]
    assert words(samples.mlcp({"shards": [0] * 4}, body)) == ["data"]


def test_zero_run() -> None:
    for length in (0, 1, 63, 64, 65, 1000, 200_000):
        data = memoryview(b"x" + bytes(length) + b"y" * 100)
        assert mlcp_read._zero_run(data, 1) == length
        assert mlcp_read._zero_run(data[: length + 1], 1) == length


@given(st.binary(max_size=12) | st.text(max_size=6).map(str.encode), st.integers(-1, 14))
def test_long_texts_are_decoded_in_steps(raw: bytes, length: int) -> None:
    def tried() -> object:
        try:
            return Cursor(memoryview(b"x" + raw), 1).text(length, "name")
        except FormatError as error:
            return error.message, error.offset, error.field

    at_once = tried()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursor, "TEXT_STEP", 2)
        assert tried() == at_once
    if 0 <= length <= len(raw):
        is_text = raw[:length].decode(errors="ignore").encode() == raw[:length]
        assert isinstance(at_once, str) == is_text


def test_too_many_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(samples.mlcp({}, count(3) + B * 3))
    monkeypatch.setattr(mlcp_read, "MAX_TENSORS", 3)
    assert split(data).layout.format == "mlcp"
    monkeypatch.setattr(mlcp_read, "MAX_TENSORS", 2)
    assert "too many" in (split(data).reason or "")
