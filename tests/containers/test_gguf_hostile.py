"""GGUF: whatever the bytes, only FormatError escapes, and memory stays bounded."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.containers.gguf_files import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    STRING,
    array,
    entry,
    head,
    info,
    string,
)
from tests.containers.gguf_files import gguf as made
from tests.containers.samples import check_cut
from tests.data import fixture, golden_of
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.errors import FormatError

EDGES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
SMALL = made(
    [
        ARCHITECTURE,
        entry("k", ARRAY, array(ARRAY, 1, array(STRING, 2, string("ab") + string("c")))),
    ],
    [info("w", (2, 2), 0), info("q", (32,), 32, 2)],
    bytes(range(64)),
)


def hold(data: bytes) -> None:
    """What holds for any bytes."""
    result = split(memoryview(data))
    check_cut(result, data)
    findings = check(memoryview(data))
    reason = None
    try:
        listed = describe(memoryview(data)).tensors
    except FormatError as error:
        listed, reason = (), error.message
    if data.startswith(b"GGUF"):
        assert reason == result.reason
    assert bool(findings.errors) >= (result.reason is not None)
    assert all(len(tensor.data) <= len(data) for tensor in listed)


def test_every_truncation() -> None:
    assert split(memoryview(SMALL)).layout.format == "gguf"
    for end in range(len(SMALL)):
        hold(SMALL[:end])


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_byte_changed(mask: int) -> None:
    for at in range(len(SMALL)):
        hold(SMALL[:at] + bytes([SMALL[at] ^ mask]) + SMALL[at + 1 :])


@given(st.binary(max_size=300))
def test_arbitrary_bytes(rest: bytes) -> None:
    hold(b"GGUF" + rest)
    hold(head([], [])[:8] + rest)


@given(
    st.sampled_from(sorted(golden_of("gguf"))),
    st.lists(
        st.tuples(st.integers(0, 600), st.sampled_from(EDGES) | st.integers(0, 3000)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([1, 4, 8]),
)
@example("golden/gguf/metadata.gguf", [(8, 2**63)], 8)
def test_numbers_changed(path: str, changes: list[tuple[int, int]], width: int) -> None:
    data = bytearray(fixture(path))
    order = "big" if path.endswith("big_endian.gguf") else "little"
    for at, value in changes:
        data[at : at + width] = (value % 256**width).to_bytes(width, order)
    hold(bytes(data))


COUNT = 2**63
CLAIMS = {
    "tensor_count": head(tensor_count=COUNT) + bytes(4096),
    "kv_count": head(kv_count=COUNT) + bytes(4096),
    "array": head([entry("a", ARRAY, array(BOOL, COUNT, bytes(4096)))]),
    "array of strings": head([entry("a", ARRAY, array(STRING, 2**40, bytes(4096)))]),
    "array of arrays": head([entry("a", ARRAY, array(ARRAY, 2**40, bytes(4096)))]),
    "string": head([entry("a", STRING, struct.pack("<Q", COUNT) + bytes(4096))]),
    "key": head([struct.pack("<Q", COUNT) + bytes(4096)]),
    "name": head([], [struct.pack("<Q", COUNT) + bytes(4096)]),
    "dimensions": head([], [info("w", (2**64 - 1,) * 8, 2**64 - 1)]),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_allocates_nothing(name: str) -> None:
    data = memoryview(CLAIMS[name])
    hold(bytes(data))
    tracemalloc.start()
    with pytest.raises(FormatError):
        describe(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


CROWDS = {
    "entries": head([entry("", BOOL, b"\1")] * 20_000),
    "different keys": head([entry(f"{n:x}", BOOL, b"\1") for n in range(20_000)]),
    "tensors": head([], [info("", (), 0, 24)] * 20_000) + bytes(64),
    "strings": head([entry("a", ARRAY, array(STRING, 50_000, bytes(8 * 50_000)))]),
    "arrays": head([entry("a", ARRAY, array(ARRAY, 30_000, array(BOOL, 0, b"") * 30_000))]),
    "short arrays": head([entry("", ARRAY, array(BOOL, 64, bytes(64)))] * 4_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CROWDS)
def test_memory_is_a_small_multiple_of_the_file(name: str) -> None:
    data = memoryview(CROWDS[name])
    tracemalloc.start()
    describe(data)
    check(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(data)
