"""FOLD: payloads decoded, and what a description tells of them."""

from __future__ import annotations

import json
import tracemalloc
from hashlib import sha256
from typing import Any

import pytest
import zstandard

from tests.containers.fold_files import (
    AES_KEY,
    HMAC_KEY,
    MODEL,
    NOISE,
    built,
    edited,
    flipped,
    model_file,
)
from tests.containers.samples import manifest_entries
from tests.data import fixture
from wtxtgit.containers.any_format import describe, tensors
from wtxtgit.containers.fold import describe as fold_description
from wtxtgit.containers.fold import payloads, read
from wtxtgit.containers.fold.read import FoldChunk
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import MAX_CHUNK, ReadOptions

ENTRIES = [entry for entry in manifest_entries() if entry["format"] == "FOLD" and entry["valid"]]
OPTIONS = ReadOptions(MAX_CHUNK, AES_KEY, HMAC_KEY)
STEN_ONLY = [
    entry
    for entry in ENTRIES
    if entry.get("tensors")
    and not {"tsav_torch_zip", "tsav_legacy_non_zip", "torc_ctype"} & set(entry["quirks"])
]


def chunks_of(data: bytes) -> dict[str, FoldChunk]:
    return {chunk.name: chunk for chunk in read.read(memoryview(data)).chunks}


def payload(data: bytes, name: str, options: ReadOptions = OPTIONS) -> bytes:
    return bytes(payloads.payload(memoryview(data), chunks_of(data)[name], options))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["file"])
def test_the_chunks_of_each_file(entry: dict[str, Any]) -> None:
    data = fixture(entry["file"])
    held = read.read(memoryview(data))
    if "chunks" not in entry:
        for chunk in held.chunks:
            assert len(payloads.payload(held.data, chunk, OPTIONS)) == chunk.uncomp_len
        return
    for chunk, wanted in zip(held.chunks, entry["chunks"], strict=True):
        assert (chunk.name, chunk.ctype_text) == (wanted["name"], wanted["ctype"])
        decoded = payloads.payload(held.data, chunk, OPTIONS)
        assert len(decoded) == wanted["uncomp_len"]
        if "sha256_uncompressed" in wanted:
            assert sha256(decoded).hexdigest() == wanted["sha256_uncompressed"]


@pytest.mark.parametrize("entry", STEN_ONLY, ids=lambda e: e["file"])
def test_the_tensors_in_safetensors_chunks(entry: dict[str, Any]) -> None:
    data = memoryview(fixture(entry["file"]))
    found = {tensor.name: tensor for tensor in tensors(describe(data, OPTIONS), OPTIONS)}
    sten = {chunk.name for chunk in read.read(data).chunks if chunk.ctype == b"STEN"}
    seen = 0
    for wanted in entry["tensors"]:
        if wanted["path"][0] not in sten:
            continue
        tensor = found["/".join(wanted["path"])]
        seen += 1
        assert tensor.shape == tuple(wanted["shape"])
        if "sha256" in wanted:
            assert sha256(tensor.data).hexdigest() == wanted["sha256"]
        if tensor.offset is not None:
            assert data[tensor.offset : tensor.offset + len(tensor.data)] == tensor.data
    assert seen or not sten


def test_tensors_of_a_damaged_payload_are_the_mended_ones() -> None:
    whole = describe(memoryview(fixture("fold/none_rs16_a.fold"))).tensors
    mended = describe(memoryview(fixture("fold/none_rs16_flipped_a.fold"))).tensors
    assert whole
    assert [(t.name, bytes(t.data)) for t in mended] == [(t.name, bytes(t.data)) for t in whole]
    data = model_file(ecc=16)
    at = data.index(NOISE)
    [tensor] = describe(memoryview(data)).tensors
    assert tensor.offset == at
    [tensor] = describe(memoryview(flipped(data, at + 7))).tensors
    assert (bytes(tensor.data), tensor.offset) == (NOISE, None)
    [tensor] = describe(memoryview(flipped(data, at - 7))).tensors
    assert (bytes(tensor.data), tensor.offset) == (NOISE, at)
    beyond = flipped(data, *range(at, at + 40))
    [tensor] = describe(memoryview(beyond)).tensors
    assert (bytes(tensor.data), tensor.offset) == (beyond[at : at + 1000], at)


def test_names_of_mended_tensors_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = flipped(model_file(ecc=16), 28 + 32 + 100)
    monkeypatch.setattr(fold_description, "MAX_NESTED_NAMES", len("torch_state/w"))
    assert [tensor.name for tensor in describe(memoryview(data)).tensors] == ["torch_state/w"]
    monkeypatch.setattr(fold_description, "MAX_NESTED_NAMES", len("torch_state/w") - 1)
    with pytest.raises(FormatError, match="too many tensors") as caught:
        describe(memoryview(data))
    assert (caught.value.kind, caught.value.field) == ("limit", "tensors")


@pytest.mark.parametrize("ctype", [b"STEN", b"NPZ0", b"TSAV", b"TORC"])
def test_chunks_that_hold_files_are_nested(ctype: bytes) -> None:
    content = b"no safetensors"
    plain = describe(memoryview(built(("c", ctype, content))))
    assert [(nested.name, nested.offset) for nested in plain.nested] == [("c", 60)]
    packed = describe(memoryview(built(("c", ctype, content), compression="zstd")))
    assert [(nested.name, nested.offset) for nested in packed.nested] == [("c", None)]
    for found in (plain, packed):
        assert bytes(found.nested[0].open()) == content
        assert found.untold == ()


def test_damaged_files_in_chunks_are_opened_mended() -> None:
    data = built(("c", b"NPZ0", NOISE), ecc=16)
    assert describe(memoryview(data)).nested[0].offset == 60
    [nested] = describe(memoryview(flipped(data, 70))).nested
    assert (nested.offset, bytes(nested.open())) == (None, NOISE)


def test_other_chunks_are_untold() -> None:
    data = built(("c", b"STEN", MODEL), ("d", b"BLOB", b"x"), ("é", b"JSON", b"{}"))
    found = describe(memoryview(data))
    assert [tensor.name for tensor in found.tensors] == ["c/w"]
    assert found.untold == ("chunk 'd'", "chunk '\\xe9'")


def test_encrypted_chunks_are_nested_with_a_key_alone() -> None:
    data = memoryview(fixture("fold/encrypted_high_a.fold"))
    assert describe(data).nested == ()
    assert "chunk 'torch_state'" in describe(data).untold
    [nested] = describe(data, OPTIONS).nested
    assert (nested.name, nested.offset) == ("torch_state", None)
    [wrong] = describe(data, ReadOptions(MAX_CHUNK, bytes(32))).nested
    with pytest.raises(FormatError, match="can't be decrypted"):
        wrong.open()


def test_the_aad_is_the_name() -> None:
    data = fixture("fold/encrypted_high_a.fold")
    renamed = edited(data, lambda index: index["chunks"][0].update(name="gsm", aad="gsm"))
    with pytest.raises(FormatError, match="can't be decrypted"):
        payload(renamed, "gsm")


def test_tags_and_what_is_untold() -> None:
    metadata = {
        "model_type": "X",
        "step": 3,
        "security_level": "basic",
        "security_features": {},
        "owner": "me",
        "tags": {"exp": "t1", "n": 1, "owner": "you"},
    }
    found = describe(memoryview(built(metadata=metadata)))
    assert found.tags == {"model_type": "X", "exp": "t1", "owner": "you"}
    assert found.untold == ("metadata 'step'", "tag 'n'", "metadata 'owner'")
    assert describe(memoryview(built(metadata={"tags": "x"}))).tags == {"tags": "x"}


def test_metadata_of_a_description() -> None:
    data = memoryview(fixture("fold/trust_block_high_a.fold"))
    metadata = describe(data).metadata
    json.dumps(metadata)
    assert metadata["version"] == "1.2.0"
    assert metadata["created_at_unix"] == 1795209561.6142452
    assert isinstance(metadata["merkle_root"], str)
    assert isinstance(metadata["trust_block"], str)
    chunks = metadata["chunks"]
    assert isinstance(chunks, list)
    assert chunks[1]["ecc_algo"] == "none"
    assert chunks[1]["sha256"].startswith("sha256:1019d1d4")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_payloads_have_a_limit(compression: str) -> None:
    data = built(("c", b"BLOB", bytes(1000)), compression=compression)
    assert payload(data, "c", ReadOptions(1000)) == bytes(1000)
    with pytest.raises(FormatError, match="is over 999") as caught:
        payload(data, "c", ReadOptions(999))
    assert caught.value.kind == "limit"


def test_a_bomb_is_left_before_it_is_decoded() -> None:
    data = built(("c", b"BLOB", bytes(2**28)), compression="zstd")
    raw = bytearray(data)
    raw[28 + 8 : 28 + 16] = (2**20).to_bytes(8, "big")
    tracemalloc.start()
    with pytest.raises(FormatError, match="uncomp_len"):
        payload(bytes(raw), "c", ReadOptions(2**20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def test_unknown_flags() -> None:
    data = bytearray(built(("c", b"NPZ0", b"x")))
    data[28 + 7] = 2
    assert describe(memoryview(data)).nested == ()
    with pytest.raises(FormatError, match="flags") as caught:
        payload(bytes(data), "c")
    assert (caught.value.offset, caught.value.field) == (32, "flags")


def test_frames_of_the_original_writer_have_a_size_and_no_checksum() -> None:
    data = fixture("fold/zstd3_sten_npz_a.fold")
    for chunk in chunks_of(data).values():
        head = zstandard.get_frame_parameters(data[chunk.payload_start : chunk.payload_end])
        assert (head.content_size, head.has_checksum) == (chunk.uncomp_len, False)
