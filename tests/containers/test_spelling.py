"""How documents are spelled: what is the same, and what is named."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.containers.spelling import difference
from wtxtgit.model.tensor import Document

ORDER, SPELLING = "keys stand in another order", "values are spelled in another way"


def compared(before: bytes, after: bytes, **options: Any) -> str | None:
    sides = (Document("it", raw, memoryview(raw), **options) for raw in (before, after))
    return difference(*sides)


TEXTS = {
    "another value": (b'{"a":1}', b'{"a":2}', None),
    "a key more": (b'{"a":1}', b'{"a":1,"b":[1,2]}', None),
    "the first character beyond ASCII": (b'{"a":"b"}', '{"a":"ü"}'.encode(), None),
    "the order": (b'{"a":1,"b":2}', b'{"b":2,"a":1}', ORDER),
    "the order within a list": (b'[{"a":1,"b":2}]', b'[{"b":2,"a":3}]', ORDER),
    "spaces": (b'{"a":1,"b":2}', b'{"a":1, "b":2}', SPELLING),
    "spaces and a value": (b'{"a":1,"b":2}', b'{"a":1, "b":3}', SPELLING),
    "indentation": (b'{\n  "a": 1\n}', b'{\n   "a": 1\n}', SPELLING),
    "ends of lines": (b'{\n  "a": 1\n}', b'{\r\n  "a": 1\r\n}', SPELLING),
    "the first item": (b"{}", b'{\n    "a": 1\n}', None),
    "blanks after an empty object": (b"{}", b"{}\n\n", SPELLING),
    "an escape": (b'["a"]', b'["\\u0061"]', SPELLING),
    "a zero more": (b"[1.5]", b"[1.50]", SPELLING),
    "no style on either side": (b'{"a" :1}', b'{"a" :2}', None),
    "no style, and the same values": (b'{"a" :1}', b'{ "a":1}', SPELLING),
}


@pytest.mark.parametrize("case", TEXTS)
def test_json(case: str) -> None:
    before, after, wanted = TEXTS[case]
    assert compared(before, after) == wanted
    assert compared(after, before) == wanted


def test_padding_of_a_list_of_tensors() -> None:
    """Up to seven spaces align the tensors; the order of names is that of the tensors."""
    assert compared(b'{"a":{},"b":{}}', b'{"b":{},"a":{}}   ', lists=True) is None
    assert compared(b'{"a":{}}', b'{"a":{}}' + b" " * 8, lists=True) == SPELLING
    assert compared(b'{"a":{}}', b'{"a":{}} ') == SPELLING


PACKED = {
    "another value": (msgpack.packb({"a": 1}), msgpack.packb({"a": 300}), None),
    "the width of a number": (b"\x81\xa1a\x01", b"\x81\xa1a\xcc\x01", SPELLING),
    "the width of a text": (b"\x81\xa1a\x01", b"\x81\xd9\x01a\x01", SPELLING),
    "the order": (b"\x82\xa1a\x01\xa1b\x02", b"\x82\xa1b\x02\xa1a\x01", ORDER),
    "zeros behind": (b"\x81\xa1a\x01", b"\x81\xa1a\x01\0", SPELLING),
    "one length with zeros": (b"\x81\xa1a\x01\0\0\0", b"\x81\xa1a\xcd\x01\x02\0", None),
    "bytes behind": (b"\x81\xa1a\x01\0", b"\x81\xa1a\x01x", SPELLING),
}


@pytest.mark.parametrize("case", PACKED)
def test_messagepack(case: str) -> None:
    before, after, wanted = PACKED[case]
    assert compared(before, after, is_json=False) == wanted


def test_another_compression() -> None:
    sides = [Document("it", b"{}", memoryview(stored)) for stored in (b"a", b"b")]
    assert difference(*sides) == "it is compressed in another way"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(before=VALUES, after=VALUES)
def test_what_one_writer_writes_is_spelled_in_one_way(before: object, after: object) -> None:
    for indent in (None, 2):
        spelled = [json.dumps(value, indent=indent).encode() for value in (before, after)]
        assert compared(*spelled) != SPELLING
    assert compared(msgpack.packb(before), msgpack.packb(after), is_json=False) != SPELLING


@given(before=st.binary(), after=st.binary(), is_json=st.booleans())
def test_foreign_bytes_break_nothing(before: bytes, after: bytes, *, is_json: bool) -> None:
    compared(before, after, is_json=is_json)
