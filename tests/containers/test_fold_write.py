"""FOLD: files that are written are read back, checked, and the same each time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers.fold_files import (
    AES_KEY,
    HMAC_KEY,
    NOISE,
    built,
    checked,
    edited,
    flipped,
    index_of,
    model_file,
    source,
)
from tests.containers.samples import manifest_entries
from tests.data import fixture
from wtxtgit.containers.any_format import describe, tensors
from wtxtgit.containers.fold import payloads, read, repack, write
from wtxtgit.containers.fold.write import ChunkSource
from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions, TensorSource

ENTRIES = [
    entry
    for entry in manifest_entries()
    if entry["format"] == "FOLD" and entry["valid"] and "encrypted" not in entry["quirks"]
]
OPTIONS = ReadOptions(integrity_key=HMAC_KEY)


def contents(data: bytes, options: ReadOptions = OPTIONS) -> list[tuple[str, bytes, bytes]]:
    held = read.read(memoryview(data))
    return [
        (chunk.name, chunk.ctype, bytes(payloads.payload(held.data, chunk, options)))
        for chunk in held.chunks
    ]


CHUNKS = st.lists(
    st.tuples(
        st.text(max_size=8).filter(lambda name: name.isascii() or name.encode(errors="ignore")),
        st.sampled_from([b"BLOB", b"STEN", b"XYZ "]),
        st.binary(max_size=600),
    ),
    max_size=4,
)


def is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@settings(max_examples=80, deadline=None)
@given(
    CHUNKS.filter(lambda chunks: all(is_utf8(name) for name, _, _ in chunks)),
    st.sampled_from(["none", "zstd"]),
    st.sampled_from([0, 1, 16, 32, 64]),
    st.booleans(),
    st.none() | st.binary(max_size=40),
)
def test_what_is_built_is_read_back(
    chunks: list[tuple[str, bytes, bytes]],
    compression: str,
    ecc: int,
    merkle: bool,
    key: bytes | None,
) -> None:
    options: dict[str, Any] = {
        "compression": compression,
        "ecc": ecc,
        "merkle": merkle,
        "integrity_key": key,
    }
    data = built(*chunks, **options)
    assert data == built(*chunks, **options)
    assert contents(data) == chunks
    found = checked(data, integrity_key=key)
    assert found.errors == []
    names = [name for name, _, _ in chunks]
    if len(set(names)) == len(names):
        assert found.warnings == []
    if key is not None:
        assert found.authenticated is True


def test_the_index_has_the_fields_of_the_original_writer() -> None:
    ours, theirs = index_of(model_file(ecc=16)), index_of(fixture("fold/none_rs16_a.fold"))
    assert list(ours) == list(theirs)
    assert list(ours["chunks"][0]) == list(theirs["chunks"][0])
    assert list(ours["metadata"]) == ["chunk_hashes", "manifest_hash"]
    assert ours["created_at_unix"] == 0
    assert index_of(built(created_at_unix=1.5))["created_at_unix"] == 1.5


def test_the_example_of_the_specification() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spec" / "fold.md").read_text("utf-8")
    example = bytes.fromhex(page.rpartition("```")[0].rpartition("```")[2])
    data = built(("a", b"JSON", b"{}"), ecc=16)
    assert data[:78] == example
    assert len(data) == 78 + 493


def test_frames_have_a_size_and_no_checksum() -> None:
    for content in (b"", NOISE, bytes(3 * 2**20)):
        data = built(("c", b"BLOB", content), compression="zstd", level=10)
        head = zstandard.get_frame_parameters(data[60:78])
        assert (head.content_size, head.has_checksum) == (len(content), False)
        assert contents(data) == [("c", b"BLOB", content)]


def test_large_contents_come_in_pieces() -> None:
    content = bytes(3 * 2**20 + 5)
    pieces = list(write.build([source("c", b"BLOB", content)], ecc=16))
    assert max(map(len, pieces)) <= 2**20
    assert contents(b"".join(map(bytes, pieces))) == [("c", b"BLOB", content)]


@pytest.mark.parametrize(
    ("chunk", "options"),
    [
        (source("\ud800", b"BLOB", b""), {}),
        (source("c", b"BLO", b""), {}),
        (source("c", b"\xff\xff\xff\xff", b""), {}),
        (source("c", b"BLOB", b""), {"ecc": 255}),
        (source("c", b"BLOB", b""), {"ecc": -1}),
        (source("c", b"BLOB", b""), {"compression": "gzip"}),
        (source("c", b"BLOB", b""), {"metadata": {"a": object()}}),
        (source("c", b"BLOB", b""), {"metadata": {"a": 2**64}}),
        (source("c", b"BLOB", b""), {"metadata": {"a": "\ud800"}}),
        (ChunkSource("c", b"BLOB", 3, lambda: iter([b"ab"])), {}),
        (ChunkSource("c", b"BLOB", 1, lambda: iter([b"a", b"b"])), {"compression": "zstd"}),
    ],
)
def test_what_can_not_be_written_is_refused_before_a_byte(
    chunk: ChunkSource, options: dict[str, Any]
) -> None:
    with pytest.raises(FormatError):
        write.build([chunk], **options)


def test_content_that_changes_while_it_is_written_is_told() -> None:
    lengths = iter([3, 2])
    pieces = write.build([ChunkSource("c", b"BLOB", 3, lambda: iter([bytes(next(lengths))]))])
    with pytest.raises(FormatError, match="bytes, not 3"):
        list(pieces)


def model_tensor(name: str, element: str, shape: tuple[int, ...], content: bytes) -> TensorSource:
    def blocks() -> Iterator[bytes]:
        for at in range(0, len(content), 100):
            yield content[at : at + 100]

    return TensorSource(name, element, shape, len(content), blocks)


def test_models_have_every_element_and_their_tags() -> None:
    assert set(write.DTYPES) == set(ITEM_BYTES) - {"c128"}
    given = [
        model_tensor(f"{element}\n{n}", element, (2, 3), NOISE[: 6 * ITEM_BYTES[element]])
        for n, element in enumerate(write.DTYPES)
    ]
    given += [model_tensor("scalar", "f32", (), NOISE[:4]), model_tensor("none", "u8", (0, 4), b"")]
    tags = {"model_type": "X", "ünï": "日本", "chunk_hashes": "a", "tags": "b", "": ""}
    data = b"".join(write.build_model(given, tags))
    assert checked(data) == Findings()
    found = describe(memoryview(data))
    assert found.tags == tags
    assert found.untold == ("chunk 'llm_manifest'", "chunk 'metrics'")
    assert [(t.name, t.element, t.shape, bytes(t.data)) for t in tensors(found)] == [
        (f"torch_state/{t.name}", t.element, t.shape, b"".join(t.blocks())) for t in given
    ]
    assert {tensor.dtype for tensor in found.tensors} == set(write.DTYPES.values())


def test_models_without_tags_and_without_tensors() -> None:
    data = b"".join(write.build_model([], {}))
    assert checked(data) == Findings()
    assert describe(memoryview(data)).tensors == ()
    assert "tags" not in index_of(data)["metadata"]


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        ([("w", "q4_0")], {}),
        ([("w", "u8"), ("w", "u8")], {}),
        ([("\ud800", "u8")], {}),
        ([("__metadata__", "u8")], {}),
        ([], {"\ud800": "x"}),
        ([], {"x": "\ud800"}),
    ],
)
def test_models_that_can_not_be_written(given: list[tuple[str, str]], tags: dict[str, str]) -> None:
    sources = [model_tensor(name, element, (1,), b"x") for name, element in given]
    with pytest.raises(FormatError):
        write.build_model(sources, tags)


def repacked(data: bytes, compression: Any, options: ReadOptions = OPTIONS) -> bytes:
    return b"".join(repack.repack(read.read(memoryview(data)), compression, options))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["file"])
def test_repacking_keeps_all_but_the_compression(entry: dict[str, Any], compression: str) -> None:
    data = fixture(entry["file"])
    made = repacked(data, compression)
    assert checked(made, integrity_key=HMAC_KEY).errors == []
    assert contents(made) == contents(data)
    assert {chunk.flags for chunk in read.read(memoryview(made)).chunks} <= {
        1 if compression == "zstd" else 0
    }
    ours, theirs = index_of(made), index_of(data)
    assert list(ours) == list(theirs)
    assert list(ours["metadata"]) == list(theirs["metadata"])
    for mine, its in zip(ours["chunks"], theirs["chunks"], strict=True):
        assert list(mine) == list(its)
        assert mine["ecc_algo"] == its["ecc_algo"]
        assert mine["sha256"][:-64] == its["sha256"][:-64]
    hashes = {"chunk_hashes", "manifest_hash"}
    for key in set(theirs["metadata"]) - hashes:
        assert json.dumps(ours["metadata"][key]) == json.dumps(theirs["metadata"][key])


def test_repacking_what_has_that_compression_gives_the_file_itself() -> None:
    for name in ("none_rs16_a", "merkle_high_a", "hmac_a", "unicode_names_a", "old_8d76d78_rs32_a"):
        data = fixture(f"fold/{name}.fold")
        assert repacked(data, "none") == data
    for key in (None, HMAC_KEY):
        data = model_file(ecc=32, merkle=True, integrity_key=key)
        assert repacked(repacked(data, "zstd"), "none") == data


def test_repacking_mends() -> None:
    whole = fixture("fold/none_rs16_a.fold")
    assert repacked(fixture("fold/none_rs16_flipped_a.fold"), "none") == whole


def test_what_is_not_repacked() -> None:
    plain = model_file()
    cases = [
        (flipped(plain, 70), OPTIONS, "damaged", "comp_payload"),
        (
            fixture("fold/encrypted_high_a.fold"),
            ReadOptions(decryption_key=AES_KEY),
            "encrypted",
            "encrypted",
        ),
        (fixture("fold/hmac_a.fold"), ReadOptions(), "key", "sha256"),
        (plain, ReadOptions(100), "over 100", "comp_len"),
        (
            edited(plain, lambda index: index["chunks"][0].update(ecc_algo="x")),
            OPTIONS,
            "ecc_algo",
            "ecc_algo",
        ),
        (
            edited(plain, lambda index: index["chunks"][0].update(sha256="x")),
            OPTIONS,
            "sha256",
            "sha256",
        ),
    ]
    for data, options, match, field in cases:
        with pytest.raises(FormatError, match=match) as caught:
            repack.repack(read.read(memoryview(data)), "zstd", options)
        assert caught.value.field == field


def test_chunks_that_overlap_too_much_are_not_repacked() -> None:
    data = built(("c", b"BLOB", bytes(100_000)))
    with pytest.raises(FormatError, match="overlap") as caught:
        repacked(edited(data, lambda index: index["chunks"].extend(index["chunks"] * 20)), "none")
    assert (caught.value.kind, caught.value.field) == ("limit", "offset")


def test_what_repacking_breaks() -> None:
    def broken(name: str) -> tuple[str, ...]:
        return repack.broken_by_repack(read.read(memoryview(fixture(f"fold/{name}.fold"))))

    assert broken("trust_block_high_a") == ("trust_block",)
    assert broken("neuron_signed_high_a") == ()
