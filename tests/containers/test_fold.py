"""FOLD: what an index and chunk headers must be, and what becomes of chunks."""

from __future__ import annotations

import json
import struct

import pytest

from tests.containers import samples
from tests.containers.samples import check_cut, fold_chunk, safetensors, tensor_item, words
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.fold import read as fold
from wtxtgit.errors import FormatError

INNER = safetensors({"w.x": tensor_item("F32", [2], 0, 8)}, struct.pack("<2f", 1, 2))


def head(data: bytes, start: int, end: int) -> str:
    return "hex:" + data[start:end].hex()


def test_chunks_parity_and_nested_tensors() -> None:
    chunks = [fold_chunk(b"JSON", b"{}", ecc=b"ecc!"), fold_chunk(b"STEN", INNER, ecc=b"\0\0")]
    data = samples.fold(chunks, names=["a b", "a b"])
    second = 28 + len(chunks[0])
    assert words(data) == [
        head(data, 0, 28),
        head(data, 28, 60),
        "a_b",
        "a_b_ecc",
        head(data, second, second + 32),
        "a_b_header",
        "a_b_w_x",
        "a_b_ecc__2",
        "_index",
    ]
    extents = split(memoryview(data)).layout.extents
    assert extents[2].name == "a b"
    assert extents[2].dtype is extents[3].name is extents[5].name is None
    assert (extents[6].name, extents[6].dtype, extents[6].shape) == ("a b/w.x", "F32", (2,))
    listed = describe(memoryview(data))
    assert [(t.name, t.offset, bytes(t.data)) for t in listed.tensors] == [
        ("a b/w.x", data.index(struct.pack("<2f", 1, 2)), struct.pack("<2f", 1, 2))
    ]
    assert listed.metadata["version"] == "1.2.0"
    table = listed.metadata["chunks"]
    assert isinstance(table, list)
    assert table[0]["ecc_len"] == 4


@pytest.mark.parametrize(
    "chunk",
    [
        fold_chunk(b"STEN", INNER[:-1]),
        fold_chunk(b"STEN", b"no header"),
        fold_chunk(b"STEN", INNER, flags=1),
        fold_chunk(b"STEN", INNER, flags=2),
        fold_chunk(b"BLOB", INNER),
    ],
)
def test_payloads_that_stay_whole(chunk: bytes) -> None:
    assert words(samples.fold([chunk]))[2:] == ["c0", "_index"]


@pytest.mark.parametrize(("encrypted", "whole"), [(True, True), (False, False), (1, False)])
def test_encrypted_counts_only_if_true(encrypted: object, whole: bool) -> None:
    index = {"chunks": [{"name": "c", "offset": 28, "encrypted": encrypted}]}
    data = samples.fold([fold_chunk(b"STEN", INNER)], index)
    assert words(data)[2] == ("c" if whole else "c_header")


def test_an_empty_name() -> None:
    data = samples.fold([fold_chunk(b"STEN", INNER)], names=[""])
    assert words(data)[2:4] == ["t_header", "t_w_x"]


def test_two_entries_for_one_chunk() -> None:
    index = {"chunks": [{"name": "b", "offset": 28}, {"name": "a", "offset": 28}]}
    data = samples.fold([fold_chunk(b"JSON", b"{}")], index)
    assert words(data)[2:] == ["a", "_index"]


def test_all_nested_tensors_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    index = {"chunks": [{"name": str(n), "offset": 28} for n in range(10)]}
    data = memoryview(samples.fold([fold_chunk(b"STEN", INNER)], index))
    assert len(describe(data).tensors) == 10
    monkeypatch.setattr(fold, "MAX_NESTED_NAMES", 49)
    assert split(data).layout.format == "opaque"
    monkeypatch.setattr(fold, "MAX_NESTED_NAMES", 50)
    assert split(data).layout.format == "fold"


def chunk_list(*entries: object) -> bytes:
    return json.dumps({"chunks": entries}).encode()


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{}",
        b"{'chunks':[]}",
        b'{"chunks":{}}',
        b'{"chunks":[]}\xff',
        chunk_list(1),
        chunk_list({"name": "c"}),
        chunk_list({"offset": 28}),
        chunk_list({"name": 1, "offset": 28}),
        chunk_list({"name": "\ud800", "offset": 28}),
        chunk_list({"name": "c", "offset": "28"}),
        chunk_list({"name": "c", "offset": True}),
        chunk_list({"name": "c", "offset": 28.0}),
        chunk_list({"name": "c", "offset": -1}),
        chunk_list({"name": "c", "offset": 10**6}),
        chunk_list({"name": "c", "offset": 2**64 - 1}),
    ],
)
def test_indexes_that_are_refused(index: bytes) -> None:
    assert words(samples.fold([fold_chunk(b"JSON", b"{}")], index)) == ["data"]


def test_index_of_other_places() -> None:
    assert words(samples.fold([], chunk_list({"name": "c", "offset": 0}))) == ["data"]
    assert split(memoryview(samples.fold([], b'{"chunks":[],"a":NaN}'))).reason is None


@pytest.mark.parametrize(("field", "value"), [(16, 2**40), (28, 2**31)])
def test_chunk_lengths_beyond_the_file(field: int, value: int) -> None:
    data = bytearray(samples.fold([fold_chunk(b"JSON", b"{}")]))
    data[28 + field : 28 + field + (8 if field == 16 else 4)] = value.to_bytes(
        8 if field == 16 else 4, "big"
    )
    assert words(bytes(data)) == ["data"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((28, 0, 0), "not finalized"),
        ((27, 28, 13), "header_len is 27"),
        ((28, 27, 13), "inside the file header"),
        ((28, 28, 14), "outside"),
        ((28, 2**64 - 1, 2**64 - 1), "outside"),
        ((28, 28, 12), "not JSON at byte 40"),
    ],
)
def test_file_header(fields: tuple[int, int, int], reason: str) -> None:
    data = struct.pack(">8sIQQ", b"FOLDv1\0\0", *fields) + b'{"chunks":[]}'
    result = split(memoryview(data))
    check_cut(result, data)
    assert reason in (result.reason or "")
    with pytest.raises(FormatError, match=reason):
        describe(memoryview(data))


def test_bytes_after_the_index_are_gap() -> None:
    assert words(samples.fold([]) + b"\1tail")[1:] == ["_index", "hex:" + b"\1tail".hex()]
