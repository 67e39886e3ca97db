"""AERO: tensors as they are listed, and what of the metadata is told."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from tests.containers.aero_files import WEIGHTS, Chunk, digest, entry, file, model, shard, tidx
from tests.data import entries, fixture
from wtxtgit.containers import any_format
from wtxtgit.containers.aero import describe as aero_describe
from wtxtgit.model.tensor import Description, ReadOptions

AERO = [item for item in entries() if item["format"] == "AERO"]


def describe(data: bytes, **options: Any) -> Description:
    found = any_format.describe(memoryview(data), ReadOptions(**options))
    json.dumps(found.metadata)
    return found


def quirky(quirk: str) -> list[Description]:
    found = [describe(fixture(item["file"])) for item in AERO if quirk in item["quirks"]]
    assert found
    return found


def mjsn(value: object, flags: int = 0) -> Chunk:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Chunk(b"MJSN", b"meta.json", raw, flags)


def mmsg(value: object) -> Chunk:
    raw = value if isinstance(value, bytes) else msgpack.packb(value)
    return Chunk(b"MMSG", b"manifest", raw, 1)


def test_tensors_of_compressed_shards_are_decoded() -> None:
    for found in quirky("wtsh_compressed_zstd"):
        assert found.tensors
        for tensor in found.tensors:
            assert (tensor.offset, tensor.absent) == (None, None)
            assert len(tensor.data) > 0


def test_each_decoded_shard_has_a_limit() -> None:
    items = [entry(f"t{n}", [50], 0, 200, shard_id=n) for n in range(3)]
    data = file([tidx(*items), *(shard(WEIGHTS, n, flags=1) for n in range(3))])
    assert [tensor.absent for tensor in describe(data, max_chunk=400).tensors] == [None] * 3
    reasons = [tensor.absent for tensor in describe(data, max_chunk=399).tensors]
    assert reasons == ["its shard is 400 bytes when decoded, over 399"] * 3


def test_a_shard_is_decoded_once_for_all_its_tensors() -> None:
    items = [entry(f"t{n}", [1], 4 * n, 4) for n in range(100)]
    data = file([tidx(*items), shard(WEIGHTS, flags=1)])
    found = describe(data, max_chunk=400).tensors
    assert b"".join(tensor.data for tensor in found) == WEIGHTS
    assert len({id(tensor.data.obj) for tensor in found}) == 1


@pytest.mark.parametrize(
    ("changes", "stored", "reason"),
    [
        ({"data_off": 201}, None, "reaches outside"),
        ({"data_len": -1}, None, "reaches outside"),
        ({"shard_id": 1}, None, "another file"),
    ],
)
def test_tensors_that_are_absent(
    changes: dict[str, Any], stored: bytes | None, reason: str
) -> None:
    item = entry("a", [50], 200, 200) | changes
    data = file([tidx(item), shard(WEIGHTS, flags=1, stored=stored)])
    (tensor,) = describe(data).tensors
    assert reason in str(tensor.absent)
    assert (len(tensor.data), tensor.offset) == (0, None)


def test_raw_tensors_are_views_of_the_file() -> None:
    data = model()
    for tensor, start in zip(describe(data).tensors, (0, 200), strict=True):
        assert tensor.offset == data.index(WEIGHTS) + start
        assert tensor.data.obj is data
        assert (tensor.dtype, tensor.element, tensor.order) == ("f32", "f32", "C")


def test_files_from_gguf_name_the_fastest_dimension_first() -> None:
    for found in quirky("gguf_shape_reversed"):
        assert {tensor.order for tensor in found.tensors} == {"reversed"}
        assert "source_format" not in found.tags
        # Of which type they are goes along with the tensors.
        assert "tidx 'quant_id'" not in found.untold
        assert {tensor.packing for tensor in found.tensors} >= {"ggml:Q4_0", "ggml:Q8_0"}
        tidx_extra = found.metadata["tidx"]
        assert isinstance(tidx_extra, dict)
        assert {"quant_id": 0, "quant_params": {"ggml_type": 2}} in tidx_extra.values()
    for found in quirky("converted_safetensors"):
        assert {tensor.order for tensor in found.tensors} == {"C"}


def test_metadata_chunks_are_shown_and_give_tags() -> None:
    data = model(
        mjsn({"model_name": "m", "license": "MIT", "layers": 3, "note": None, "x": "é"}, 1),
        mmsg(
            {
                "format": {},
                "model": {"name": "other", "architecture": "llama"},
                "digest": b"\xff\0",
                "more": [b"\1", {"k": b"\2"}],
            }
        ),
        Chunk(b"NOTE", b"n", b"?"),
    )
    found = describe(data)
    assert found.tags == {"model_name": "m", "architecture": "llama", "license": "MIT", "x": "é"}
    assert found.untold == ("mjsn 'layers'", "mmsg 'digest'", "mmsg 'more'", "chunk 'n'")
    assert found.metadata["mjsn"] == {
        "model_name": "m",
        "license": "MIT",
        "layers": 3,
        "note": None,
        "x": "é",
    }
    assert found.metadata["mmsg"] == {
        "format": {},
        "model": {"name": "other", "architecture": "llama"},
        "digest": "ff00",
        "more": ["01", {"k": "02"}],
    }


@pytest.mark.parametrize(
    "chunk",
    [
        mjsn(b"{"),
        mjsn(b"[]"),
        mjsn(b""),
        mjsn(b"\xff"),
        mjsn(b"[" * 1000),
        mmsg(b"\xc1"),
        mmsg([]),
        mmsg(b""),
        Chunk(b"MMSG", b"manifest", b"{}", 1, b"no zstd"),
        Chunk(b"MJSN", b"meta.json", b"{}", 1, ulen=2**40),
        Chunk(b"MJSN", b"meta.json", b'{"a":"' + b"a" * 2**22 + b'"}', 1),
    ],
)
def test_metadata_that_can_not_be_read_is_left_out(chunk: Chunk) -> None:
    found = describe(model(chunk))
    assert set(found.metadata) == {"version", "uuid", "file_flags", "chunks"}
    assert found.tags == {}
    assert [told for told in found.untold if "too large" in told] == list(found.untold)
    assert len(found.untold) <= 1
    assert len(found.tensors) == 2


def test_tags_are_short_and_can_be_written() -> None:
    long = "x" * 1001
    data = model(mjsn(b'{"a":"\\ud800","\\udfff":"b","c":"%s","%s":"d"}' % ((long.encode(),) * 2)))
    found = describe(data)
    assert found.tags == {}
    assert len(found.untold) == 4
    assert all(len(told) < 100 for told in found.untold)


def test_further_index_keys_are_shown_for_some_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aero_describe, "MOST_EXTRA", 2)
    items = [
        entry("a", [1], 0, 4, hash_b3=digest(WEIGHTS[:4]).hex()),
        entry("b", [1], 4, 4, flags=3),
        entry("c", [1], 8, 4, quant_params={"raw": b"\1"}),
        entry("d", [1], 12, 4, quant_id=1),
    ]
    found = describe(file([tidx(*items), shard(WEIGHTS)]))
    assert found.metadata["tidx"] == {"b": {"flags": 3}, "c": {"quant_params": {"raw": "01"}}}
