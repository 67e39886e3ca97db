"""Whatever the bytes: extents give the file back, and only FormatError escapes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.containers import samples
from tests.containers.samples import aero_entry, check_cut, fold_chunk, tensor_item
from tests.data import fixture, golden
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.torch import legacy
from wtxtgit.errors import FormatError

MAX_SEED = 5_000
SEEDS = sorted(path for path in golden() if path and len(fixture(path)) <= MAX_SEED)
MAGICS = [
    b"FOLDv1\0\0",
    b"AERO\0\0\1\0\x60\0\0\0",
    b"PCLM",
    b"TARIDX\0\0",
    b"GGUF",
    b"PK\3\4",
    b"\x93NUMPY\1\0",
]
EDGES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def check(data: bytes) -> None:
    result = split(memoryview(data))
    check_cut(result, data)
    try:
        tensors = describe(memoryview(data)).tensors
        reason = None
    except FormatError as error:
        tensors, reason = (), error.message
    if result.reason != legacy.REASON:
        # Legacy torch files are read, and stored whole all the same.
        assert reason in (None, result.reason)
    assert all(tensor.nbytes <= len(data) for tensor in tensors if tensor.offset is not None)


@given(st.sampled_from([b"", *MAGICS]), st.binary(max_size=300))
def test_arbitrary_bytes(magic: bytes, rest: bytes) -> None:
    check(magic + rest)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A fixture with a few bytes, numbers or lengths changed."""
    data = bytearray(fixture(draw(st.sampled_from(SEEDS))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1) | st.integers(0, min(len(data) - 1, 200)))
        kind = draw(st.sampled_from(["byte", "number", "cut", "insert"]))
        if kind == "byte":
            data[at] = draw(st.integers(0, 255))
        elif kind == "number":
            width = draw(st.sampled_from([4, 8]))
            order = draw(st.sampled_from(["little", "big"]))
            value = draw(st.sampled_from(EDGES) | st.integers(0, len(data) + 64))
            data[at : at + width] = (value % 256**width).to_bytes(width, order)
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        else:
            data[at:at] = draw(st.binary(min_size=1, max_size=20))
        if not data:
            break
    return bytes(data)


@settings(max_examples=600, deadline=None)
@given(mutated())
@example(b"AERO")
def test_mutated_files(data: bytes) -> None:
    check(data)


SMALL = {
    "fold": samples.fold(
        [
            fold_chunk(b"STEN", samples.safetensors({"a": tensor_item("U8", [2], 0, 2)}, b"ab")),
            fold_chunk(b"JSON", b"{}", ecc=b"xy"),
        ]
    ),
    "aero": samples.aero(
        [
            (b"TIDX", b"t", samples.tidx([aero_entry("a", 0, 4)], compress=True), 1),
            (b"WTSH", b"weights.shard0", b"abcd"),
        ]
    ),
    "mlcp": samples.mlcp(
        {"shards": [1]},
        b"\1\0\0\0" + samples.mlcp_record(b"a", "Int8", [3], 3) + b"abc",
    ),
    "taridx": samples.taridx("é\njpg".encode(), b"s", bytes(32)),
    "safetensors": samples.safetensors({"a": tensor_item("C64", [1], 0, 8)}, b"abcdefgh"),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_truncation(name: str) -> None:
    data = SMALL[name]
    assert split(memoryview(data)).layout.format == name
    for end in range(len(data)):
        check(data[:end])


@pytest.mark.parametrize("name", SMALL)
def test_every_byte_flipped(name: str) -> None:
    data = SMALL[name]
    for at in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            check(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
