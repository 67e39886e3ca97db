"""JSON is read within fixed limits, and only FormatError comes out."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.containers import json_text
from wtxtgit.errors import FormatError


def parse(raw: bytes, *, unique_keys: bool = False) -> object:
    return json_text.parse(memoryview(raw), "index", offset=100, unique_keys=unique_keys)


def test_depth_counts_the_outermost_container_as_one() -> None:
    assert parse(b"[" * 64 + b"]" * 64)
    assert parse(b'{"a":' * 64 + b"1" + b"}" * 64)
    for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
        with pytest.raises(FormatError, match="too deeply") as caught:
            parse(opened * 65 + b"1" + closed * 65)
        assert caught.value.kind == "limit"


def test_brackets_in_strings_are_not_depth() -> None:
    assert parse(rb'["\\", "[[\"' + b"[{" * 100 + b'"]') == ["\\", '[["' + "[{" * 100]


def test_depth_of_a_value_that_a_duplicate_replaces_counts() -> None:
    with pytest.raises(FormatError, match="too deeply"):
        parse(b'{"a":' + b"[" * 64 + b"]" * 64 + b',"a":1}')


def test_a_million_brackets_do_not_recurse() -> None:
    for raw in (b"[" * 10**6, b"[" * 10**6 + b"]" * 10**6, b'{"a":' * 10**5):
        with pytest.raises(FormatError):
            parse(raw)


@pytest.mark.parametrize("value", [-(2**63), 2**64 - 1, 0, -1])
def test_integers_inside(value: int) -> None:
    assert parse(str(value).encode()) == value


@pytest.mark.parametrize("digits", [str(-(2**63) - 1), str(2**64), "1" * 21, "9" * 10_000])
def test_integers_outside(digits: str) -> None:
    with pytest.raises(FormatError, match="64 bits") as caught:
        parse(b'{"a":' + digits.encode() + b"}")
    assert caught.value.kind == "limit"


def test_duplicate_keys() -> None:
    raw = b'{"a":1,"a":2}'
    assert parse(raw) == {"a": 2}
    with pytest.raises(FormatError, match="repeats a key"):
        parse(raw, unique_keys=True)
    with pytest.raises(FormatError, match="repeats a key"):
        parse(b'{"b":[' + raw + b"]}", unique_keys=True)


def test_nan_and_infinity_are_read() -> None:
    value = parse(b"[NaN, Infinity, -Infinity, 1e999]")
    assert isinstance(value, list)
    assert math.isnan(value[0])
    assert value[1:] == [math.inf, -math.inf, math.inf]


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (b"", 100),
        (b'{"a":}', 105),
        ('{"é":}'.encode(), 106),
        (b'"a\xff"', 102),
        (b'"\xed\xa0\x80"', 101),
        (b"[1]\0", 103),
        (b" " * 1000 + b"\0", 1100),
        (b"[1] x", 104),
        (b'"a\nb"', 102),
        ("\ufeff1".encode(), 100),
    ],
)
def test_what_is_not_json_is_told_by_its_byte(raw: bytes, offset: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse(raw)
    assert caught.value.offset == offset
    assert str(offset) in caught.value.message


def test_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_JSON", 10)
    assert parse(b"1" + b" " * 9) == 1
    with pytest.raises(FormatError, match="too long"):
        parse(b"1" + b" " * 10)


def test_lone_surrogates_are_refused_in_names_alone() -> None:
    value = parse(rb'["\ud800"]')
    assert value == ["\ud800"]
    with pytest.raises(FormatError, match="surrogate"):
        json_text.check_name("a\ud800", "name", offset=0)
    json_text.check_name("é\U0001f600", "name", offset=0)


@given(st.binary(max_size=200))
def test_only_format_errors_escape(raw: bytes) -> None:
    try:
        parse(raw)
    except FormatError:
        return


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_json_writes_is_read(value: object) -> None:
    assert parse(json.dumps(value).encode(), unique_keys=True) == value
