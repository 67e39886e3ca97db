"""AERO: what is written is read by a reader made from the spec alone, and repacked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.aero_files import (
    WEIGHTS,
    Chunk,
    brief,
    changed,
    check,
    digest,
    entry,
    file,
    model,
    pages,
    phsh,
    read_strictly,
    shard,
    tidx,
)
from tests.containers.sources import content, models, source
from tests.data import entries, fixture
from wtxtgit.containers import any_format
from wtxtgit.containers.aero import write
from wtxtgit.containers.aero.repack import repack
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import ReadOptions, TensorSource

AERO = [item for item in entries() if item["format"] == "AERO"]
NUMBERS = [
    "f16",
    "f32",
    "bf16",
    "f64",
    "i8",
    "u8",
    "i16",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "bool",
]
"""The dtypes in the order of their numbers."""
MODELS = models(NUMBERS)
SMALL = "b3db51453ab51652"
"""BLAKE3 of the file with one tensor below: what is written does not change with libraries."""


def built(tensors: list[TensorSource], **options: Any) -> bytes:
    return b"".join(write.build(tensors, **options))


def check_file(data: bytes, tensors: list[TensorSource]) -> None:
    """What holds for all that is written."""
    found = check(data)
    assert (found.errors, found.warnings) == ([], [])
    reading = read_strictly(data)
    assert list(reading.tensors) == [tensor.name for tensor in tensors]
    for tensor in tensors:
        expected = (NUMBERS.index(tensor.element), tensor.shape, content(tensor))
        assert reading.tensors[tensor.name] == expected
    listed = any_format.describe(memoryview(data)).tensors
    assert [(t.name, t.element, t.shape, bytes(t.data)) for t in listed] == [
        (t.name, t.element, t.shape, content(t)) for t in tensors
    ]


@given(
    MODELS,
    st.fixed_dictionaries(
        {},
        optional={
            "tags": st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"])), st.just("é")
            ),
            "max_shard": st.integers(1, 100),
            "uuid": st.binary(min_size=16, max_size=16),
            "ihsh": st.booleans(),
            "phsh": st.integers(1, 100),
            "tensor_hash": st.booleans(),
            "compress_metadata": st.booleans(),
        },
    ),
)
def test_every_model_with_every_option(
    tensors: list[TensorSource], options: dict[str, Any]
) -> None:
    data = built(tensors, **options)
    assert data == built(tensors, **options)
    check_file(data, tensors)
    reading = read_strictly(data)
    types = {fourcc for fourcc, _ in reading.chunks}
    assert (b"IHSH" in types) == options.get("ihsh", False)
    assert (b"PHSH" in types) == (options.get("phsh") is not None and bool(tensors))
    index = msgpack.unpackb(reading.chunks[b"TIDX", "tensors"])["tensors"]
    assert all(("hash_b3" in item) == options.get("tensor_hash", False) for item in index)
    assert all(item["data_off"] % 16 == 0 for item in index)
    if "uuid" in options:
        assert reading.uuid == options["uuid"]


@given(MODELS, st.dictionaries(st.sampled_from(["model_name", "architecture", "x"]), st.text("é")))
def test_models(tensors: list[TensorSource], tags: dict[str, str]) -> None:
    data = b"".join(write.build_model(tensors, tags))
    check_file(data, tensors)
    told = any_format.describe(memoryview(data))
    assert (told.tags, told.untold) == (tags, ())
    flags = {chunk["flags"] & 1 for chunk in told.metadata["chunks"]}  # type: ignore[attr-defined]
    assert flags == {0}
    assert b"IHSH" in {fourcc for fourcc, _ in read_strictly(data).chunks}


def test_the_bytes_of_a_small_file() -> None:
    data = b"".join(write.build_model([source("w", "u8", (3,), b"abc")], {}))
    assert data[:4] == b"AERO"
    assert data.endswith(b"abc")
    assert digest(data).hex()[:16] == SMALL
    reading = read_strictly(data)
    assert msgpack.unpackb(reading.chunks[b"TIDX", "tensors"]) == {
        "tensors": [entry("w", [3], 0, 3, dtype=5)]
    }
    assert msgpack.unpackb(reading.chunks[b"MMSG", "manifest"]) == {
        "format": {"name": "AERO", "version": [0, 1]},
        "model": {"name": "", "architecture": ""},
        "chunks": [
            {"role": "control_integrity", "fourcc": "IHSH", "toc_index": 0},
            {"role": "manifest", "fourcc": "MMSG", "toc_index": 1},
            {"role": "tensors", "fourcc": "TIDX", "toc_index": 2},
            {"role": "weights", "fourcc": "WTSH", "toc_index": 3, "shard_id": 0},
        ],
        "shards": [
            {
                "shard_id": 0,
                "toc_index": 3,
                "size_bytes": 3,
                "tensor_count": 1,
                "mmap_critical": True,
            }
        ],
    }


def test_shards_are_filled_in_order() -> None:
    sizes = [10, 20, 90, 500, 0, 60]
    tensors = [source(f"t{n}", "u8", (size,)) for n, size in enumerate(sizes)]
    reading = read_strictly(built(tensors, max_shard=100))
    shards = {name: len(raw) for (fourcc, name), raw in reading.chunks.items() if fourcc == b"WTSH"}
    # The second tensor starts at 16; the fifth shares the shard of the one before it.
    assert list(shards.values()) == [36, 90, 500, 60]
    assert list(shards) == [f"weights.shard{n}" for n in range(4)]
    one = read_strictly(built(tensors))
    assert [name for fourcc, name in one.chunks if fourcc == b"WTSH"] == ["weights.shard0"]


def test_a_file_of_empty_tensors_has_no_shard_past_its_end() -> None:
    data = built([source("a", "f32", (0,)), source("b", "f64", (4, 0))], phsh=64)
    check_file(data, [source("a", "f32", (0,)), source("b", "f64", (4, 0))])
    assert check(built([])).warnings == []


def test_the_uuid_follows_from_the_content() -> None:
    one, other = ([source("a", "u8", (3,), raw)] for raw in (b"abc", b"abd"))
    uuids = {
        read_strictly(built(tensors, ihsh=seal)).uuid
        for tensors in (one, other)
        for seal in (False, True)
    }
    assert len(uuids) == 4
    assert bytes(16) not in uuids


@pytest.mark.parametrize(
    ("tensors", "field"),
    [
        ([source("a", "u8", (1,)), source("a", "u8", (2,))], "name"),
        ([TensorSource("\ud800", "u8", (), 1, lambda: iter([b"a"]))], "tensor name"),
        ([source("a", "f8_e4m3", (1,))], "dtype"),
        ([source("a", "c64", (1,))], "dtype"),
        ([TensorSource("a", "u8", (2,), 1, lambda: iter([b"a"]))], "shape"),
        ([TensorSource("a", "u8", (-1, -1), 1, lambda: iter([b"a"]))], "shape"),
        ([TensorSource("a", "u8", (2**64, 0), 0, lambda: iter([]))], "shape"),
    ],
)
def test_what_the_format_can_not_hold(tensors: list[TensorSource], field: str) -> None:
    for build in (
        lambda: write.build(tensors),
        lambda: write.build_model(tensors, {}),
        lambda: write.build_set(tensors, {}, "m", 100),
    ):
        with pytest.raises(FormatError) as caught:
            build()
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"uuid": bytes(15)}, "uuid"),
        ({"phsh": 0}, "page_size"),
        ({"tags": {"a": "\ud800"}}, "metadata"),
        ({"tags": {"\ud800": "a"}}, "metadata"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(FormatError) as caught:
        write.build([], **options)
    assert caught.value.field == field


def test_the_dtypes() -> None:
    assert {element: NUMBERS.index(element) for element in NUMBERS} == write.DTYPES


def test_a_source_that_gives_other_bytes_than_it_says() -> None:
    for raw in (b"ab", b"abcd"):
        short = TensorSource("a", "u8", (3,), 3, lambda raw=raw: iter([raw]))
        with pytest.raises(FormatError, match="bytes, not 3"):
            built([short])
    runs = iter([b"abc", b"ab"])
    fickle = TensorSource("a", "u8", (3,), 3, lambda: iter([next(runs)]))
    pieces = write.build([fickle])
    with pytest.raises(FormatError, match="2 bytes, not 3"):
        b"".join(pieces)


def test_tensors_are_taken_in_blocks_twice() -> None:
    calls = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal calls
        calls += 1
        yield from (b"abcd" for _ in range(1000))

    tensor = TensorSource("a", "u8", (4000,), 4000, blocks)
    pieces = list(write.build([tensor], phsh=64, tensor_hash=True, ihsh=True))
    assert calls == 2
    assert max(map(len, pieces)) < 4000
    check_file(b"".join(pieces), [source("a", "u8", (4000,), b"abcd" * 1000)])


def test_a_source_format_is_not_taken_over() -> None:
    # It would say that shapes are reversed.
    data = built([source("a", "u8", (2, 3))], tags={"source_format": "gguf", "x": "y"})
    found = any_format.describe(memoryview(data))
    assert [tensor.order for tensor in found.tensors] == ["C"]
    assert found.tags == {"x": "y"}


def repacked(data: bytes, compression: str, **options: Any) -> bytes:
    container = any_format.read(memoryview(data))
    return b"".join(repack(container, compression, ReadOptions(**options)))  # type: ignore[arg-type]


def chunk_facts(data: bytes) -> list[tuple[str, str, int]]:
    chunks: Any = any_format.describe(memoryview(data)).metadata["chunks"]
    return [(chunk["fourcc"], chunk["name"], chunk["flags"]) for chunk in chunks]


def tensor_facts(data: bytes) -> list[tuple[str, str, tuple[int, ...], bytes, str]]:
    found = any_format.describe(memoryview(data)).tensors
    return [(t.name, t.dtype, t.shape, bytes(t.data), t.order) for t in found]


SOUND = [item for item in AERO if not check(fixture(item["file"])).errors]


@pytest.mark.parametrize("item", SOUND, ids=lambda item: item["file"])
def test_repacking_files_of_the_original_writer(item: dict[str, Any]) -> None:
    data = fixture(item["file"])
    for compression in ("none", "zstd"):
        made = repacked(data, compression)
        found = check(made)
        assert found.errors == []
        assert {warning.field for warning in found.warnings} <= {"fourcc"}
        assert tensor_facts(made) == tensor_facts(data)
        assert made[52:68] == data[52:68]
        for before, after in zip(chunk_facts(data), chunk_facts(made), strict=True):
            assert before[:2] == after[:2]
            assert before[2] | 1 == after[2] | 1
            if compression == "none" or before[0] in {"WTSH", "IHSH", "PHSH"}:
                assert after[2] & 1 == 0
            elif before[0] in {"TIDX", "MMSG", "MJSN"}:
                assert after[2] & 1 == 1
        # Once more changes nothing.
        assert repacked(made, compression) == made


def test_repacking_keeps_what_is_unknown() -> None:
    notes = [Chunk(b"NOTE", b"a", b"abc" * 100, 0x8000_0001), Chunk(b"\xff\xfeX ", b"b\0c", b"d")]
    data = model(*notes)
    zipped, plain = repacked(data, "zstd"), repacked(data, "none")
    assert [flags for _, _, flags in chunk_facts(zipped)] == [5, 2, 0x8000_0001, 0]
    assert [flags for _, _, flags in chunk_facts(plain)] == [4, 2, 0x8000_0000, 0]
    assert plain.endswith(b"abc" * 100 + bytes(-300 % 16) + b"d")


def test_repacking_seals_and_hashes_anew() -> None:
    bare = model(ihsh=True)
    bare = changed(bare, 96 + 16 + 80 + 48, "32s", bytes(32))
    assert brief(check(bare).warnings) == [("blake3", "blake3_256", 96 + 16 + 80 + 48)]
    for compression in ("none", "zstd"):
        made = repacked(bare, compression)
        assert check(made).warnings == []
        read_strictly(made)


@pytest.mark.parametrize(
    "data",
    [
        model(flags=1),
        model(Chunk(b"NOTE", b"n", b"abc", digest=digest(b""))),
        model(Chunk(b"NOTE", b"n", b"abc", 1, b"no zstd")),
        model(Chunk(b"NOTE", b"n", b"abc", ulen=4)),
        changed(model(ihsh=True), 52, "B", 0xEE),
        *(fixture(item["file"]) for item in AERO if item not in SOUND),
    ],
)
def test_damage_is_not_hashed_anew(data: bytes) -> None:
    for compression in ("none", "zstd"):
        with pytest.raises(FormatError):
            repacked(data, compression)


def test_repacking_is_bounded() -> None:
    bomb = model(Chunk(b"NOTE", b"n", bytes(2**20), 1))
    assert len(repacked(bomb, "none")) > 2**20
    with pytest.raises(FormatError) as caught:
        repacked(bomb, "none", max_chunk=2**20 - 1)
    assert caught.value.kind == "limit"
    raw = WEIGHTS * 25

    def with_copies(start: int) -> bytes:
        return model(Chunk(b"NOTE", b"", raw), *[Chunk(b"NOTE", b"", raw, offset=start)] * 300)

    shared = with_copies(with_copies(0).index(raw))
    assert check(shared).errors == []
    with pytest.raises(FormatError) as caught:
        repacked(shared, "none")
    assert caught.value.kind == "limit"


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(FormatError, match="not one of none, zstd"):
        repacked(model(), "gzip")


def test_pages_are_kept() -> None:
    data = file([tidx(), shard(WEIGHTS), phsh("weights.shard0", 64, pages(WEIGHTS, 64))])
    for compression in ("none", "zstd"):
        read_strictly(repacked(data, compression))


def test_the_example_in_the_spec() -> None:
    text = (Path(__file__).parents[2] / "docs/spec/aero.md").read_text()
    lines = re.findall(r"^(\d+): ((?:[0-9a-f]{2} ?){16})$", text, re.MULTILINE)
    assert len(lines) == 5
    data = built([source("w", "u8", (3,), b"abc")], uuid=bytes(16), compress_metadata=False)
    for start, shown in lines:
        assert data[int(start) :][:16].hex(" ") == shown
    told: Any = any_format.describe(memoryview(data)).metadata["chunks"]
    assert [(chunk["offset"], chunk["offset"] + chunk["length"]) for chunk in told] == [
        (384, 642),
        (656, 726),
        (736, 739),
    ]
