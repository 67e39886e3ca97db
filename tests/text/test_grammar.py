"""The grammar: every line has one spelling, and a formatter is its parser's inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import valid_cases
from wtxtgit.errors import TextError
from wtxtgit.model.array import ITEM_SIZE, Meta, Rows, Signature
from wtxtgit.text import grammar

NUMBERS = st.integers(0, 10**20 - 1)
TOKENS = st.from_regex(r"[A-Za-z0-9._/+:@-]{1,30}", fullmatch=True)
HASHES = st.binary(min_size=32, max_size=32)
TIMES = st.datetimes().map(
    lambda t: t.strftime("%Y").rjust(4, "0") + t.strftime("-%m-%dT%H:%M:%SZ")
)
AUDIT_FIELD = st.from_regex(r'[A-Za-z0-9._]{1,8}=("[ !#-~]{0,12}"|[!#-~]{1,12})', fullmatch=True)

METAS = st.builds(
    Meta, schema=TOKENS, gen=NUMBERS, ts=TIMES, build=TOKENS, host=TOKENS, cuda=TOKENS
)
LINES: dict[str, tuple[Any, Callable[..., Any], Callable[..., bytes]]] = {
    "meta": (METAS, grammar.parse_meta, grammar.format_meta),
    "cap": (
        st.lists(TOKENS, min_size=1, max_size=6).map(tuple),
        grammar.parse_cap,
        grammar.format_cap,
    ),
    "root": (
        st.builds(grammar.Root, HASHES, HASHES, HASHES, st.integers(0, 2**64 - 1)),
        grammar.parse_root,
        grammar.format_root,
    ),
    "sign": (
        st.builds(
            Signature,
            st.binary(min_size=64, max_size=64),
            st.integers(0, 2**64 - 1).map("{:016x}".format),
        ),
        grammar.parse_sign,
        grammar.format_sign,
    ),
    "arr": (
        st.builds(
            grammar.ArrayLine,
            st.from_regex(r"[A-Za-z0-9_]{1,20}", fullmatch=True),
            st.sampled_from(sorted(ITEM_SIZE)),
            st.lists(NUMBERS, max_size=5).map(tuple),
            NUMBERS,
            HASHES,
            HASHES,
            st.binary(min_size=8, max_size=8),
        ),
        grammar.parse_array,
        grammar.format_array,
    ),
    "idx": (
        st.builds(Rows, NUMBERS, NUMBERS, st.booleans()),
        grammar.parse_rows,
        grammar.format_rows,
    ),
    "ch": (
        st.builds(
            grammar.ChunkLine,
            st.integers(0, 10**6 - 1),
            st.integers(0, 10**12 - 1),
            NUMBERS,
            HASHES,
            st.integers(0, 2**32 - 1),
            NUMBERS,
        ),
        grammar.parse_chunk,
        grammar.format_chunk,
    ),
    "audit": (
        st.lists(AUDIT_FIELD, min_size=1, max_size=4).map(" ".join),
        grammar.parse_audit,
        grammar.format_audit,
    ),
    "wsum": (
        st.builds(
            grammar.Wsum,
            HASHES,
            HASHES,
            HASHES,
            st.none() | st.binary(min_size=64, max_size=64),
        ),
        grammar.parse_wsum,
        grammar.format_wsum,
    ),
}


@pytest.mark.parametrize("label", LINES)
@given(data=st.data())
def test_a_line_that_was_formatted_is_parsed_to_the_same(label: str, data: st.DataObject) -> None:
    values, parse, write = LINES[label]
    value = data.draw(values)
    line = write(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert all(0x20 <= byte <= 0x7E for byte in line[:-1])
    assert parse(line, 0) == (value, len(line))
    assert parse(memoryview(b"x\n" + line + b"more\n"), 2) == (value, len(line) + 2)


@pytest.mark.parametrize("label", LINES)
@given(data=st.data())
def test_a_line_with_a_changed_byte_is_refused_or_spelled_as_written(
    label: str, data: st.DataObject
) -> None:
    values, parse, write = LINES[label]
    line = bytearray(write(data.draw(values)))
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    parsed = parse(bytes(line), 0)
    if parsed is not None:
        value, end = parsed
        assert write(value) == bytes(line)[:end]


@pytest.mark.parametrize("label", LINES)
@given(data=st.data())
def test_a_line_without_its_end_is_refused(label: str, data: st.DataObject) -> None:
    values, parse, write = LINES[label]
    line = write(data.draw(values))
    assert parse(line[: data.draw(st.integers(0, len(line) - 1))], 0) is None


@pytest.mark.parametrize("case", valid_cases(), ids=lambda c: c.file)
def test_every_line_of_a_valid_text_is_formatted_as_it_stands(case: object) -> None:
    seen = 0
    for line in case.text.splitlines(keepends=True):  # type: ignore[attr-defined]
        label = line.split(b" ")[0].decode()
        if label in LINES:
            _, parse, write = LINES[label]
            value, end = parse(line, 0)
            assert end == len(line)
            assert write(value) == line
            seen += 1
    assert seen >= 3


GOOD = {
    "meta": b"meta schema=weights/v1 gen=000123 ts=2025-10-09T03:12:45Z build=abc123 endian=LE "
    b"host=cpu cuda=off\n",
    "cap": b"cap ext=crc32c,line_parity\n",
    "root": b"root sha256_all=%b merkle_prev=%b merkle_this=%b fastxor=%b\n"
    % (b"a" * 64, b"b" * 64, b"c" * 64, b"0" * 16),
    "sign": b"sign ed25519=%b== keyid=%b\n" % (b"A" * 86, b"0" * 16),
    "arr": b"arr name=W dtype=f64 shape=2,3 order=C bytes=48 sha256=%b hmac=%b salt=%b\n"
    % (b"a" * 64, b"0" * 64, b"0" * 16),
    "idx": b"idx rows_per_chunk=128 row_size=512 row_blocking=on\n",
    "ch": b"ch ix=000001 off=000000065536 len=4096 sha256=%b crc32c=0123abcd b64=on width=76 "
    b"lines=72\n" % (b"a" * 64),
    "audit": b'audit kahan_max_resid=1.1e-15 notes="Sera gamma=0.96 r=4096"\n',
    "wsum": b"WSUM 1 sha256_all=%b merkle_prev=%b merkle_this=%b sign=%b==\n"
    % (b"a" * 64, b"b" * 64, b"c" * 64, b"A" * 86),
}


@pytest.mark.parametrize("label", GOOD)
def test_the_lines_that_the_refusals_start_from_are_good(label: str) -> None:
    _, parse, write = LINES[label]
    value, end = parse(GOOD[label], 0)
    assert end == len(GOOD[label])
    assert write(value) == GOOD[label]


EVERY_LINE = [
    (b" ", b"  "),
    (b"\n", b" \n"),
    (b"\n", b"\r\n"),
    (b"\n", b""),
    (b" ", b"\t"),
    (b"=", b"= "),
    (b"=", b" ="),
]


@pytest.mark.parametrize("label", GOOD)
@pytest.mark.parametrize(("old", "new"), EVERY_LINE)
def test_other_whitespace_is_refused_in_every_line(label: str, old: bytes, new: bytes) -> None:
    _, parse, _ = LINES[label]
    assert parse(GOOD[label].replace(old, new, 1), 0) is None


@pytest.mark.parametrize(
    ("label", "old", "new"),
    [
        ("meta", b"gen=000123", b"gen=123"),
        ("meta", b"gen=000123", b"gen=0000123"),
        ("meta", b"gen=000123", b"gen=" + b"9" * 21),
        ("meta", b"gen=000123", b"gen=-00123"),
        ("meta", b"gen=000123", b"gen=+00123"),
        ("meta", b"build=abc123", b"build="),
        ("meta", b"build=abc123", b'build="abc"'),
        ("meta", b"endian=LE", b"endian=BE"),
        ("meta", b"host=cpu cuda=off", b"cuda=off host=cpu"),
        ("meta", b" cuda=off", b""),
        ("meta", b"cuda=off", b"cuda=off x=1"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-10-09T03:12:60Z"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-02-29T03:12:45Z"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-13-09T03:12:45Z"),
        ("meta", b"2025-10-09T03:12:45Z", b"0000-10-09T03:12:45Z"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-10-09T24:00:00Z"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-10-09T03:12:45z"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-10-09 03:12:45Z"),
        ("meta", b"2025-10-09T03:12:45Z", b"2025-10-09T03:12:45+00:00"),
        ("meta", b"schema=weights/v1", b"schema=weights\xc3\xa9"),
        ("cap", b"crc32c,", b"crc32c,,"),
        ("cap", b"line_parity", b"line_parity,"),
        ("cap", b"crc32c,line_parity", b""),
        ("root", b"a" * 64, b"A" * 64),
        ("root", b"a" * 64, b"a" * 63),
        ("root", b"fastxor=" + b"0" * 16, b"fastxor=" + b"0" * 15),
        ("sign", b"A==", b"B=="),
        ("sign", b"A==", b"A="),
        ("sign", b"A==", b"A"),
        ("sign", b"keyid=0", b"keyid=F"),
        ("arr", b"name=W", b"name="),
        ("arr", b"name=W", b"name=a-b"),
        ("arr", b"dtype=f64", b"dtype=f16"),
        ("arr", b"dtype=f64", b"dtype=F64"),
        ("arr", b"shape=2,3", b"shape="),
        ("arr", b"shape=2,3", b"shape=2,"),
        ("arr", b"shape=2,3", b"shape=02,3"),
        ("arr", b"shape=2,3", b"shape=-2,3"),
        ("arr", b"shape=2,3", b"shape=2x3"),
        ("arr", b"shape=2,3", b"shape=" + b"1" * 21),
        ("arr", b"order=C", b"order=F"),
        ("arr", b"bytes=48", b"bytes=048"),
        ("arr", b"bytes=48", b"bytes=4_8"),
        ("idx", b"row_blocking=on", b"row_blocking=yes"),
        ("idx", b"rows_per_chunk=128", b"rows_per_chunk=0128"),
        ("ch", b"ix=000001", b"ix=1"),
        ("ch", b"ix=000001", b"ix=0000001"),
        ("ch", b"off=000000065536", b"off=65536"),
        ("ch", b"off=000000065536", b"off=0000000065536"),
        ("ch", b"crc32c=0123abcd", b"crc32c=123abcd"),
        ("ch", b"b64=on", b"b64=off"),
        ("ch", b"width=76", b"width=64"),
        ("audit", b"kahan_max_resid=1.1e-15", b"kahan_max_resid="),
        ("audit", b"kahan_max_resid=1.1e-15", b"=1"),
        ("audit", b'"Sera', b'"Se"ra'),
        ("audit", b'4096"', b"4096"),
        ("audit", b" kahan_max_resid=1.1e-15", b""),
        ("wsum", b"WSUM 1", b"WSUM 2"),
        ("wsum", b"sign=A", b"sign=*"),
    ],
)
def test_another_spelling_is_refused(label: str, old: bytes, new: bytes) -> None:
    _, parse, _ = LINES[label]
    changed = GOOD[label].replace(old, new, 1)
    assert changed != GOOD[label]
    parsed = parse(changed, 0)
    if label == "audit" and new == b"":
        assert parsed is not None
    else:
        assert parsed is None


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (grammar.format_meta, Meta(schema="")),
        (grammar.format_meta, Meta(schema="a b")),
        (grammar.format_meta, Meta(build="a\n")),
        (grammar.format_meta, Meta(host="é")),
        (grammar.format_meta, Meta(cuda="=")),
        (grammar.format_meta, Meta(gen=-1)),
        (grammar.format_meta, Meta(gen=10**20)),
        (grammar.format_meta, Meta(ts="now")),
        (grammar.format_meta, Meta(ts="2025-06-30T23:59:60Z")),
        (grammar.format_cap, ()),
        (grammar.format_cap, ("a,b",)),
        (grammar.format_cap, ("",)),
        (grammar.format_audit, ""),
        (grammar.format_audit, "a"),
        (grammar.format_audit, "a=1\n"),
        (grammar.format_audit, "a=1  b=2"),
        (grammar.format_audit, 'a="b"c"'),
    ],
)
def test_what_no_line_can_hold_is_not_written(write: Callable[..., bytes], value: object) -> None:
    with pytest.raises(TextError) as caught:
        write(value)
    assert caught.value.kind == "syntax"


@pytest.mark.parametrize("audit", ["note=é", 'note="naïve"', "n\u00f6te=1", "a=\ud800"])
def test_an_audit_line_that_is_not_ascii_is_refused_rather_than_changed(audit: str) -> None:
    with pytest.raises(TextError):
        grammar.format_audit(audit)


@given(st.text(max_size=24))
def test_only_times_that_exist_are_times(value: str) -> None:
    assert not grammar.is_time(value) or grammar.parse_meta(grammar.format_meta(Meta(ts=value)), 0)
