"""AERO: damaged and hostile files are told about or refused, and never raise anything else."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.aero_files import (
    TOC,
    WEIGHTS,
    Chunk,
    check,
    entry,
    file,
    model,
    pages,
    phsh,
    shard,
    tidx,
)
from tests.data import entries, fixture
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.aero.repack import repack
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ReadOptions

AERO = [item for item in entries() if item["format"] == "AERO" and item["size"] < 10_000]
FILES = [
    model(ihsh=True),
    file(
        [
            Chunk(b"MJSN", b"meta.json", b'{"model_name":"x"}', 1),
            Chunk(b"MMSG", b"manifest", msgpack.packb({"shards": []})),
            tidx(entry("a", [50], 0, 200, hash_b3="00" * 32), flags=1),
            shard(WEIGHTS, flags=1),
            phsh("weights.shard0", 64, pages(WEIGHTS, 64)),
        ],
        ihsh=True,
    ),
    *(fixture(item["file"]) for item in AERO),
]
NUMBERS = st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2000)


def look_at(data: bytes) -> None:
    """Everything that is done with a file; only FormatError may leave."""
    options = ReadOptions(max_chunk=2**20)
    found = any_format.check(memoryview(data), options)
    assert len(found.errors) <= found.errors.MOST + 1
    try:
        for tensor in any_format.describe(memoryview(data), options).tensors:
            assert tensor.absent is None or len(tensor.data) == 0
        container: Any = any_format.read(memoryview(data))
        for compression in ("none", "zstd"):
            made = b"".join(repack(container, compression, options))
            assert registry.detect(memoryview(made)) == "aero"
    except FormatError:
        pass


@given(st.sampled_from(FILES), st.lists(st.tuples(st.integers(4, 900), st.binary(max_size=9))))
def test_changed_bytes(data: bytes, changes: list[tuple[int, bytes]]) -> None:
    raw = bytearray(data)
    for place, new in changes:
        raw[place : place + len(new)] = new
    look_at(bytes(raw))


@given(st.sampled_from(FILES), st.integers(0, 2000))
def test_cut_files(data: bytes, size: int) -> None:
    look_at(data[:size])


@given(
    st.sampled_from(FILES),
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([4, 8, 16, 24, 32, 36, 40]), NUMBERS),
        min_size=1,
        max_size=4,
    ),
)
def test_changed_fields_of_the_toc(data: bytes, changes: list[tuple[int, int, int]]) -> None:
    raw = bytearray(data.ljust(TOC + 6 * 80, b"\0"))
    for place, field, value in changes:
        wide = field in {8, 16, 24, 40}
        number = value if wide else value % 2**32
        struct.pack_into("<Q" if wide else "<I", raw, TOC + 80 * place + field, number)
    look_at(bytes(raw))


PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
VALUES = st.recursive(
    PLAIN | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
KEYS = ["name", "dtype", "shape", "shard_id", "data_off", "data_len", "hash_b3", "flags", "x"]


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES | NUMBERS), max_size=3))
def test_indexes_of_any_values(changes: list[dict[str, Any]]) -> None:
    items = [entry("a", [50], 0, 200) | change for change in changes]
    look_at(file([tidx(*items), shard(WEIGHTS), shard(WEIGHTS, 1, flags=1)]))


@given(st.sampled_from([b"MMSG", b"PHSH", b"IHSH"]), VALUES)
def test_metadata_of_any_values(fourcc: bytes, value: Any) -> None:
    look_at(model(Chunk(fourcc, b"x", msgpack.packb(value))))


KNOWN = {
    b"MMSG": ["chunks", "shards", "model", "format"],
    b"PHSH": ["shard_name", "page_size", "digests"],
    b"IHSH": ["algo", "covered_ranges", "digest"],
}


@given(st.sampled_from(sorted(KNOWN)), st.lists(VALUES | NUMBERS, min_size=4, max_size=4))
def test_metadata_of_known_keys(fourcc: bytes, values: list[Any]) -> None:
    fine = {
        "shard_name": "weights.shard0",
        "page_size": 400,
        "algo": "blake3-256",
        "covered_ranges": [[0, 96]],
        "digest": bytes(32),
    }
    held = dict(zip(KNOWN[fourcc], values, strict=False))
    for key in held:
        value = held | {other: fine[other] for other in held if other != key and other in fine}
        look_at(model(Chunk(fourcc, b"x", msgpack.packb(value))))


@pytest.mark.parametrize("shape", [[2**63] * 3, [1] * 5000, [2**64 - 1], [0, 2**64 - 1]])
def test_shapes_whose_product_is_long(shape: list[int]) -> None:
    data = file([tidx(entry("a", shape, 0, 4)), shard(WEIGHTS)])
    problems = check(data)
    assert all(problem.field == "data_len" for problem in (*problems.errors, *problems.warnings))
    look_at(data)
