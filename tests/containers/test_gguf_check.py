"""GGUF: what the check finds beyond the structure. One case a rule."""

from __future__ import annotations

import struct

import pytest

from tests.containers.gguf_files import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    Q4_0,
    STRING,
    UINT32,
    alignment,
    array,
    entry,
    head,
    info,
    padded,
    string,
)
from tests.containers.gguf_files import gguf as made
from tests.data import fixture, golden_of
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.gguf.check import check_into
from wtxtgit.containers.gguf.read import read
from wtxtgit.model.findings import Findings

ONE = info("w", (8,), 0)
BASE = 24 + len(ARCHITECTURE)
START = len(padded(head(infos=[ONE])))
PAIR = (info("a", (8,), 0), info("b", (8,), 32))
PAIR_START = len(padded(head(infos=PAIR)))
SECOND = BASE + len(PAIR[0])

Found = tuple[int | None, str | None]


def found(data: bytes) -> tuple[list[Found], list[Found]]:
    """Where the errors and the warnings of a file are; all are about its structure."""
    assert split(memoryview(data)).layout.format == "gguf"
    findings = check(memoryview(data))
    assert {p.kind for p in (*findings.errors, *findings.warnings)} <= {"structure"}
    errors = [(p.offset, p.field) for p in findings.errors]
    return errors, [(p.offset, p.field) for p in findings.warnings]


@pytest.mark.parametrize("path", golden_of("gguf"))
def test_files_of_the_gguf_package_have_no_findings(path: str) -> None:
    assert found(fixture(path)) == ([], [])


def with_value(value_type: int, raw: bytes) -> bytes:
    return head([ARCHITECTURE, entry("k", value_type, raw)])


VALUE = BASE + 8 + 1 + 4

ERRORS = {
    "repeats a key": (head([ARCHITECTURE, ARCHITECTURE]), BASE, "key"),
    "the same tensor twice": (
        made(infos=[info("a", (8,), 0), info("a", (8,), 32)], data=bytes(64)),
        SECOND,
        "name",
    ),
    "a boolean that is 2": (with_value(BOOL, b"\2"), VALUE, "bool"),
    "a boolean in an array": (
        with_value(ARRAY, array(BOOL, 4, b"\0\1\xff\2")),
        VALUE + 14,
        "bool",
    ),
    "a boolean in an array of arrays": (
        with_value(ARRAY, array(ARRAY, 2, array(BOOL, 0, b"") + array(BOOL, 1, b"\7"))),
        VALUE + 36,
        "bool",
    ),
}
WITH_OTHERS = ("a boolean in an array of arrays",)


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    data, offset, field = ERRORS[name]
    errors, _ = found(data)
    assert errors[-1] == (offset, field)
    assert len(errors) == 1 + (name in WITH_OTHERS)


def test_tensors_that_overlap_in_part_are_an_error() -> None:
    infos = [info("a", (16,), 0), info("b", (8,), 32), info("c", (4,), 48)]
    errors, warnings = found(made(infos=infos, data=bytes(64)))
    start = len(padded(head(infos=infos)))
    assert errors[-2:] == [(start + 32, "offset"), (start + 48, "offset")]
    # What ggml wants elsewhere is told of each that is not where the one before ends.
    assert len(errors) == 4
    assert warnings == []


def test_tensors_that_share_all_their_bytes_are_an_error() -> None:
    infos = [info("a", (8,), 0), info("b", (8,), 0)]
    errors, _ = found(made(infos=infos, data=bytes(32)))
    assert (len(padded(head(infos=infos))), "offset") in errors


WARNINGS = {
    "no architecture": (head([]), None, "general.architecture"),
    "an architecture that is no string": (
        head([entry("general.architecture", UINT32, bytes(4))]),
        None,
        "general.architecture",
    ),
    "no quantization version": (
        made(infos=[info("q", (32,), 0, Q4_0)], data=bytes(32)),
        None,
        "general.quantization_version",
    ),
    "an alignment below 8": (head([ARCHITECTURE, alignment(4)]), BASE + 29, "general.alignment"),
    "an empty key": (head([ARCHITECTURE, entry("", BOOL, b"\0")]), BASE, "key"),
    "a key that is not ASCII": (head([ARCHITECTURE, entry("é", BOOL, b"\0")]), BASE, "key"),
    "a key of the Python reader": (
        head([ARCHITECTURE, entry("GGUF.version", UINT32, bytes(4))]),
        BASE,
        "key",
    ),
    "a type that was given up": (
        made(
            [ARCHITECTURE, entry("general.quantization_version", UINT32, b"\2\0\0\0")],
            [info("q", (32,), 0, 31)],
            bytes(32),
        ),
        BASE + len(entry("general.quantization_version", UINT32, bytes(4))),
        "type",
    ),
    "a long key": (head([ARCHITECTURE, entry("k" * 65_536, BOOL, b"\0")]), BASE, "key"),
    "a string that is not UTF-8": (with_value(STRING, string(b"\xff")), VALUE + 8, "string"),
    "a string in an array": (
        with_value(ARRAY, array(STRING, 3, string("a") + string(b"\xff") + string(b"\xff"))),
        VALUE + 29,
        "string",
    ),
    "an array of arrays": (
        with_value(ARRAY, array(ARRAY, 1, array(BOOL, 0, b""))),
        VALUE,
        "array type",
    ),
    "a name of 64 bytes": (made(infos=[info("n" * 64, (8,), 0)], data=bytes(32)), BASE, "name"),
    "five dimensions": (
        made(infos=[info("w", (8, 1, 1, 1, 1), 0)], data=bytes(32)),
        BASE,
        "n_dimensions",
    ),
    "a dimension of 0": (head(infos=[info("w", (0, 3), 0)]), BASE, "dimensions"),
    "an offset off the alignment": (
        made(infos=[PAIR[0], info("b", (4,), 36)], data=bytes(64)),
        SECOND,
        "offset",
    ),
    "an offset later than ggml wants": (
        made(infos=[PAIR[0], info("b", (8,), 64)], data=bytes(96)),
        SECOND,
        "offset",
    ),
    "tensors in another order": (
        made(infos=[info("a", (8,), 32), info("b", (8,), 0)], data=bytes(64)),
        BASE,
        "offset",
    ),
    "padding of the header": (
        padded(head(infos=[ONE]), fill=b"x") + bytes(32),
        len(head(infos=[ONE])),
        "padding",
    ),
    "padding between tensors": (
        made(infos=[info("a", (7,), 0), PAIR[1]], data=bytes(31) + b"x" + bytes(32)),
        PAIR_START + 28,
        "padding",
    ),
    "last tensor's padding": (
        made(infos=[info("w", (7,), 0)], data=bytes(31) + b"x"),
        START + 28,
        "padding",
    ),
    "padding that is not there": (
        made(infos=[info("w", (7,), 0)], data=bytes(28)),
        START + 28,
        "padding",
    ),
    "bytes after the last tensor": (
        made(infos=[ONE], data=bytes(33)),
        START + 32,
        "tensor_data",
    ),
    "bytes after a header without tensors": (
        padded(head()) + b"x",
        len(padded(head())),
        "tensor_data",
    ),
}


REFUSED = {
    "a type that was given up",
    "an empty key",
    "an array of arrays",
    "a name of 64 bytes",
    "five dimensions",
    "an offset off the alignment",
    "an offset later than ggml wants",
    "tensors in another order",
    "padding of the header",
    "padding between tensors",
    "last tensor's padding",
    "bytes after a header without tensors",
}
"""What ggml refuses, or passes over; the others lose nothing."""


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings(name: str) -> None:
    data, offset, field = WARNINGS[name]
    errors, warnings = found(data)
    wanted = [(offset, field)]
    assert (errors, warnings) == ((wanted, []) if name in REFUSED else ([], wanted))
    findings = Findings(is_rewritten=True)
    check_into(read(memoryview(data)), findings)
    assert findings.errors == []


def test_nothing_is_warned_of_where_all_is_well() -> None:
    assert found(made(infos=PAIR, data=b"x" * 64)) == ([], [])
    infos = [info("n" * 63, (1, 1, 1, 8), 0), info("q", (32,), 32, Q4_0)]
    version = entry("general.quantization_version", UINT32, struct.pack("<I", 2))
    entries = [ARCHITECTURE, alignment(32), version, entry("k" * 65_535, BOOL, b"\1")]
    assert found(made(entries, infos, bytes(64))) == ([], [])


def test_padding_is_looked_at_to_its_end() -> None:
    far = 3 * 2**20
    infos = [info("a", (8,), 0), info("b", (8,), far)]
    data = bytearray(made(infos=infos, data=bytes(far + 32)))
    assert [field for _, field in found(bytes(data))[0]] == ["offset"]
    data[-33] = 1
    assert [field for _, field in found(bytes(data))[0]] == ["offset", "padding"]


def test_values_that_are_no_text_are_listed_all_the_same() -> None:
    data = with_value(STRING, string(b"a\xffb"))
    assert describe(memoryview(data)).tags["k"] == "a�b"


def test_findings_are_bounded() -> None:
    entries = [entry("é", BOOL, b"\2")] * 3000
    findings = check(memoryview(head(entries)))
    assert len(findings.errors) == len(findings.warnings) == findings.errors.MOST + 1
