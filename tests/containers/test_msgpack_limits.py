"""MessagePack is read within fixed limits, and only FormatError comes out."""

from __future__ import annotations

import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.containers import msgpack_limits
from wtxtgit.errors import FormatError

parse = msgpack_limits.parse


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        127,
        -32,
        -33,
        255,
        2**16,
        2**32,
        2**64 - 1,
        -(2**63),
        1.5,
        "a",
        "a" * 40,
        "a" * 300,
        "é" * 70_000,
        b"",
        b"x" * 300,
        b"x" * 70_000,
        [],
        [1] * 20,
        [1] * 70_000,
        {"a": [1, {"b": None}]},
        {str(n): n for n in range(20)},
        {str(n): n for n in range(70_000)},
    ],
)
def test_all_kinds_of_values(value: object) -> None:
    raw = msgpack.packb(value)
    assert parse(raw, "tidx") == value
    assert parse(raw + b"\xc1 more", "tidx") == value
    for end in range(min(len(raw), 50)):
        with pytest.raises(FormatError):
            parse(raw[:end], "tidx")


def test_depth() -> None:
    assert parse(b"\x91" * 64 + b"\xc0", "tidx")
    for raw in (b"\x91" * 65 + b"\xc0", b"\x91" * 64 + b"\x90", b"\x81\xa1a" * 65 + b"\xc0"):
        with pytest.raises(FormatError, match="too deeply") as caught:
            parse(raw, "tidx")
        assert caught.value.kind == "limit"


@pytest.mark.parametrize("first", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
def test_claims_are_not_believed(first: bytes) -> None:
    with pytest.raises(FormatError):
        parse(first + b"\xff\xff\xff\xff" + bytes(100), "tidx")
    with pytest.raises(FormatError):
        parse(b"\x9f" + (first + b"\x00\x00\x00\x20") * 5, "tidx")


def test_keys_may_be_anything_and_strings_count() -> None:
    pairs = [
        ([1], 1),
        ({"x": 1}, 2),
        (b"name", 3),
        (None, 4),
        (1.5, 5),
        ("name", 6),
        ("name", 7),
    ]
    packer = msgpack.Packer()
    raw = packer.pack_map_pairs(pairs)
    assert parse(raw, "tidx") == {"name": 7}


@pytest.mark.parametrize("code", [-1, 0, 5, 127, -128])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 8, 12, 16, 300, 70_000])
def test_extensions_mean_nothing(code: int, length: int) -> None:
    raw = msgpack.packb([msgpack.ExtType(code, b"\xff" * length) if code >= 0 else None, 1])
    if code < 0:
        body = struct.pack(">BIb", 0xC9, length, code) + b"\xff" * length
        raw = b"\x92" + body + b"\x01"
    assert parse(raw, "tidx") == [None, 1]


@pytest.mark.parametrize("first", sorted(msgpack_limits.FIXEXT))
def test_fixed_extensions(first: int) -> None:
    raw = bytes([0x92, first, 0xFF]) + b"\xff" * msgpack_limits.FIXEXT[first] + b"\x01"
    assert parse(raw, "tidx") == [None, 1]


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x91\xc1", b"\xa1\xff", b"\xa3\xed\xa0\x80"])
def test_what_is_not_messagepack(raw: bytes) -> None:
    with pytest.raises(FormatError):
        parse(raw, "tidx")


def test_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgpack_limits, "MAX_JSON", 3)
    assert parse(b"\x92\x01\x02", "tidx") == [1, 2]
    with pytest.raises(FormatError, match="too long"):
        parse(b"\x92\x01\x02\x00", "tidx")


@given(st.binary(max_size=60))
def test_only_format_errors_escape(raw: bytes) -> None:
    try:
        parse(raw, "tidx")
    except FormatError:
        return


@given(
    st.recursive(
        st.none() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.binary(max_size=5),
)
def test_the_walk_ends_where_the_library_ends(value: object, rest: bytes) -> None:
    raw = msgpack.packb(value)
    assert msgpack_limits.end_of(raw + rest, "tidx") == len(raw)


@pytest.mark.parametrize("limit", ["MAX_VALUES", "MAX_CONTAINERS"])
def test_an_index_of_too_many_values_is_refused(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = b"\xdc" + struct.pack(">H", 100) + b"\x80" * 100
    assert parse(raw, "tidx") == [{}] * 100
    monkeypatch.setattr(msgpack_limits, limit, 50)
    with pytest.raises(FormatError, match="too many values") as caught:
        parse(raw, "tidx")
    assert caught.value.kind == "limit"
