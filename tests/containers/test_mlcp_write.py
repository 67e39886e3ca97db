"""MLCP: files that are written, and that they read back as what they were made of."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.containers import samples
from tests.containers.samples import count, manifest_entries, mlcp_record
from tests.containers.sources import content, models, source
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.mlcp import write
from wtxtgit.containers.mlcp.read import Mlcp, Placement, read, read_body
from wtxtgit.containers.mlcp.write import (
    DTYPES,
    ShardPiece,
    Unwritten,
    body_pieces,
    build,
    build_model,
    bytes_of,
    format_json,
    header,
    record_bytes,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

FILES = [
    entry
    for entry in manifest_entries()
    if entry["format"] == "MLCP" and entry["file"].endswith(".checkpoint")
]


def rebuilt(container: Mlcp) -> bytes:
    """What the writer makes of what was read."""
    records = [
        write.NewRecord(
            record.shard,
            record_bytes(record.name, record.dtype, record.shape, record.size),
            ShardPiece.fixed(bytes(container.data[tensor.start : tensor.end])),
        )
        for record, tensor in zip(container.body.records, container.tensors(), strict=True)
    ]
    metadata = bytes(container.data[container.metadata_start : container.header_end])
    body = body_pieces(records, container.body.shard_count, container.body.placement)
    return header(container.version, metadata) + b"".join(bytes_of(body))


@pytest.mark.parametrize("entry", FILES, ids=lambda e: e["file"])
def test_read_then_written_is_the_same_file(entry: dict[str, Any]) -> None:
    data = fixture(entry["file"])
    assert rebuilt(read(memoryview(data))) == data


@pytest.mark.parametrize("entry", FILES, ids=lambda e: e["file"])
def test_json_is_spelled_as_the_original_writer_does(entry: dict[str, Any]) -> None:
    container = read(memoryview(fixture(entry["file"])))
    raw = bytes(container.data[container.metadata_start : container.header_end])
    assert format_json(container.metadata) == raw.replace(b"\r\n", b"\n")


def test_json_escapes() -> None:
    text = "\"\\/\b\f\n\r\t\0\x1b\x7f<>&'+`é\u2028😀 \\u00e9~"
    assert format_json({text: [text, [], {}]}).decode() == (
        '{\n  "_": [\n    "_",\n    [],\n    {}\n  ]\n}'.replace(
            "_",
            "\\u0022\\\\/\\b\\f\\n\\r\\t\\u0000\\u001B\\u007F\\u003C\\u003E\\u0026\\u0027\\u002B"
            "\\u0060\\u00E9\\u2028\\uD83D\\uDE00 \\\\u00e9~",
        )
    )


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_that_is_spelled_reads_back(value: object) -> None:
    spelled = format_json(value)
    assert spelled.isascii()
    assert json.loads(spelled) == value


def test_the_bytes_of_a_small_file() -> None:
    tensors = [source("w", "f32", (2, 1), b"\1" * 8), source("n", "i64", (), b"\2" * 8)]
    data = b"".join(build_model(tensors, {"owner": "Zoë"}, inline_data=True))
    length = struct.unpack_from("<i", data, 10)[0]
    body = (
        count(2)
        + mlcp_record(b"w", "Float32", [2, 1], 8)
        + b"\1" * 8
        + mlcp_record(b"n", "Int64", [], 8)
        + b"\2" * 8
    )
    assert data[:10] == b"PCLM\x051.0.0"
    assert data[14 + length :] == body
    assert json.loads(data[14 : 14 + length]) == {
        "version": "1.0.0",
        "timestamp": "1970-01-01T00:00:00Z",
        "worldSize": 1,
        "ddpRank": 0,
        "sharding": {
            "strategy": "none",
            "shardCount": 1,
            "precision": "fp32",
            "strategySpecificInfo": {},
        },
        "shards": [
            {
                "rank": 0,
                "filePath": "shard_0.shard",
                "fileSize": 16,
                "tensors": [
                    {"name": "w", "shape": [2, 1], "dataType": 1, "offset": 0, "size": 8},
                    {"name": "n", "shape": [], "dataType": 6, "offset": 8, "size": 8},
                ],
                "checksum": None,
            }
        ],
        "training": None,
        "customFields": {"owner": "Zoë"},
        "format": "single_file",
        "shardingStrategy": {
            "strategy": "none",
            "shardCount": 1,
            "precision": "fp32",
            "strategySpecificInfo": {},
        },
        "tensorInfos": None,
    }


@given(models(list(DTYPES)), st.dictionaries(st.text(st.characters(codec="utf-8")), st.just("é")))
def test_a_model_without_bytes(tensors: list[TensorSource], tags: dict[str, str]) -> None:
    data = memoryview(b"".join(build_model(tensors, tags)))
    assert b"".join(build_model(tensors, tags)) == data
    findings = check(data)
    assert (findings.errors, findings.warnings) == ([], [])
    found = describe(data)
    assert found.tags == tags
    assert [(t.name, t.element, t.shape) for t in found.tensors] == [
        (t.name, t.element, t.shape) for t in tensors
    ]
    for listed in found.tensors:
        assert (listed.absent is None) == (0 in listed.shape)


def shards_of(tensors: list[TensorSource], cuts: list[int]) -> list[list[TensorSource]]:
    edges = [0, *sorted(min(cut, len(tensors)) for cut in cuts), len(tensors)]
    return [tensors[a:b] for a, b in pairwise(edges)]


@given(models(list(DTYPES)), st.lists(st.integers(0, 6), max_size=3))
def test_bytes_read_back(tensors: list[TensorSource], cuts: list[int]) -> None:
    """Refused is nothing here: bytes are noise that is no record."""
    shards = shards_of(tensors, cuts)
    data = memoryview(b"".join(build(shards, inline_data=True)))
    found = describe(data)
    assert [(t.name, t.element, t.shape, bytes(t.data)) for t in found.tensors] == [
        (t.name, t.element, t.shape, content(t)) for t in tensors
    ]
    assert all(t.absent is None for t in found.tensors)
    assert check(data).errors == []
    container = read(data)
    assert container.body.shard_count == len(shards)
    assert rebuilt(container) == data
    assert split(data).reason is None


def test_bytes_that_would_be_read_as_shards_are_refused() -> None:
    zeros = source("b", "f32", (4,), bytes(16))
    with pytest.raises(FormatError, match="would be read as records") as caught:
        build([[zeros]], inline_data=True)
    assert caught.value.field == "tensor bytes"
    # What such a file would be: a tensor without bytes, then four shards without tensors.
    misread = samples.mlcp(
        {"shards": [{}]}, count(1) + mlcp_record(b"b", "Float32", [4], 16) + bytes(16)
    )
    assert describe(memoryview(misread)).tensors[0].absent is not None
    # One bit that is set, or a record after it, makes it plain.
    for rest in (
        [source("b", "f32", (4,), bytes(15) + b"\1")],
        [zeros, source("c", "f32", (4,), bytes(16))],
        [source("a", "u8", (1,), b"\0"), zeros],
    ):
        data = memoryview(b"".join(build_model(rest, {}, inline_data=True)))
        assert [bytes(t.data) for t in describe(data).tensors] == [content(t) for t in rest]


def test_bytes_after_all_records_are_written_there_again() -> None:
    body = count(1) + mlcp_record(b"a", "Int8", [2], 2)
    body += count(0) + count(1) + mlcp_record(b"b", "Int8", [3], 3) + b"\1\2\3\4\5"
    data = samples.mlcp({"shards": [1, 2, 3]}, body)
    container = read(memoryview(data))
    assert container.body.placement is Placement.AFTER_ALL
    assert rebuilt(container) == data


def test_bytes_that_are_a_file_of_their_own_are_refused() -> None:
    inner = count(1) + mlcp_record(b"inner", "Int8", [], 1)
    with pytest.raises(FormatError, match="would be read as records"):
        build_model([source("a", "u8", (len(inner),), inner)], {}, inline_data=True)


def test_metadata_that_are_given_are_kept() -> None:
    tensors = [source("w", "i8", (3,))]
    given_json = b'{"version":"7","shards":[ 1 ],\r\n"customFields":{"a":"b"}}'
    data = b"".join(build([tensors], given_json, inline_data=True))
    assert data.startswith(b"PCLM\x017" + count(len(given_json)) + given_json)
    assert describe(memoryview(data)).tags == {"a": "b"}
    assert b"".join(build([tensors], b'{"shards":null}')).startswith(b"PCLM\x051.0.0")
    named = b"".join(build([tensors], b"{}", version="é" * 100))
    assert named.startswith(b"PCLM\xc8\x01" + "é".encode() * 100)


@pytest.mark.parametrize(
    ("metadata_json", "shards", "inline_data", "field"),
    [
        (b"{", 1, False, "metadata"),
        (b"\xff", 1, False, "metadata"),
        (b'{"shards":[1,2]}', 1, False, "shards"),
        (b'{"shards":[1,2]}', 1, True, "shards"),
        (b'{"shards":[1]}', 2, True, "shards"),
        (b'{"shards":null}', 1, True, "shards"),
    ],
)
def test_metadata_that_do_not_go_with_the_shards(
    metadata_json: bytes, shards: int, inline_data: bool, field: str
) -> None:
    tensors = [source("w", "f32", (4,))]
    with pytest.raises(FormatError) as caught:
        build([tensors] * shards, metadata_json, inline_data=inline_data)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("tensor", "field"),
    [
        (source("a", "c64", (1,)), "dtype"),
        (source("a", "f8_e4m3", (1,)), "dtype"),
        (source("\ud800", "u8", (1,), b"a"), "tensor name"),
        (source("a", "u8", (2**63, 0), b""), "shape"),
    ],
)
def test_what_the_format_can_not_hold(tensor: TensorSource, field: str) -> None:
    for inline in (False, True):
        with pytest.raises(FormatError) as caught:
            build_model([source("w", "f32", (1,)), tensor], {}, inline)
        assert caught.value.field == field


def test_tags_that_are_no_text() -> None:
    for tags in ({"\ud800": "a"}, {"a": "\udfff"}):
        with pytest.raises(FormatError):
            build_model([], tags)


def test_too_many_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MAX_TENSORS", 2)
    tensors = [source(name, "u8", (1,)) for name in "abc"]
    assert build_model(tensors[:2], {})
    with pytest.raises(FormatError) as caught:
        build_model(tensors, {})
    assert caught.value.kind == "limit"


def test_nothing_of_a_tensor_is_held() -> None:
    """Tensors are made block by block, and only their beginning to try the reading."""
    block = b"\x0a\xd7\x23\x3c" * 2**18
    made = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal made
        for _ in range(2048):
            made += 1
            yield block

    tensors = [TensorSource(name, "f32", (2**29,), 2**31, blocks) for name in "ab"]
    pieces = build_model(tensors, {}, inline_data=True)
    assert made <= 4
    assert next(pieces)[:4] == b"PCLM"
    assert len(next(pieces)) < 100
    assert next(pieces) is block


CONTENTS = st.lists(st.binary(max_size=40), max_size=6)


@given(
    CONTENTS,
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 250)), max_size=8),
    st.integers(1, 9),
)
@example([b"", b"abc", b"", b"de"], [(0, 5), (0, 1)], 1)
@example([bytes(range(40))], [(30, 31), (0, 2), (38, 40), (20, 22)], 1)
def test_slices_of_what_is_not_written(
    contents: list[bytes], parts: list[tuple[int, int]], kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "KEPT", kept)
        patch.setattr(write, "STEP", 3)
        whole = b"".join(contents)
        lazy = Unwritten([ShardPiece.fixed(part) for part in contents])
        assert len(lazy) == len(whole)
        for start, end in parts:
            assert lazy[start:end] == whole[start:end]


def test_a_tensor_that_gives_too_little() -> None:
    short = TensorSource("a", "u8", (100,), 100, lambda: iter([b"\1" * 9]))
    with pytest.raises(FormatError, match="too few bytes"):
        list(build_model([short], {}, inline_data=True))


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 255]), max_size=80).map(bytes), st.integers(0, 3))
def test_the_lazy_reading_is_the_reading(body: bytes, listed: int) -> None:
    halves = [ShardPiece.fixed(body[: len(body) // 2]), ShardPiece.fixed(body[len(body) // 2 :])]

    def tried(data: Any) -> object:
        try:
            return read_body(data, 0, listed)
        except FormatError as error:
            return str(error)

    assert tried(Unwritten(halves)) == tried(memoryview(body))


def test_long_runs_of_zeros_and_long_names_are_tried_fast() -> None:
    started = time.process_time()
    zeros = bytes(2**22)
    noise = Random(1).randbytes(2**22)  # noqa: S311
    tensors = [
        TensorSource("a", "u8", (2**22,), 2**22, lambda: iter([zeros])),
        TensorSource("b", "u8", (2**22,), 2**22, lambda: iter([count(2**21) + noise[4:]])),
        TensorSource("c", "u8", (2**22,), 2**22, lambda: iter([zeros[:-1] + b"\1"])),
    ]
    assert build([[t] for t in tensors], inline_data=True)
    assert time.process_time() - started < 5
