"""Index and verify: what is wrong, and where."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.data import seeded, valid_cases
from wtxtgit.model.array import Array, Meta, Rows, Snapshot
from wtxtgit.model.findings import Problem
from wtxtgit.text.grammar import CAP
from wtxtgit.text.index import index, quote
from wtxtgit.text.verify import verify
from wtxtgit.text.write import dumps


def text_of(*sizes: int, chunk: int = 100) -> bytes:
    """Arrays A, B, ... of bytes, in chunks of `chunk` bytes: two lines each."""
    arrays = tuple(
        Array(
            chr(65 + number),
            "u8",
            (size,),
            memoryview(seeded(number).randbytes(size)),
            Rows(1, chunk),
        )
        for number, size in enumerate(sizes)
    )
    return dumps(Snapshot(Meta(), arrays, CAP, audit="a=1"))


TEXT = text_of(250, 40, 3000)
LINES = TEXT.splitlines(keepends=True)


def line_number(start: bytes, after: int = 0) -> int:
    """The number of the first line that starts so, from line `after` + 1 on."""
    return next(
        number for number, line in enumerate(LINES, 1) if number > after and line.startswith(start)
    )


def with_line(number: int, change: Callable[[bytes], bytes]) -> bytes:
    lines = list(LINES)
    lines[number - 1] = change(lines[number - 1])
    return b"".join(lines)


def problems_of(text: bytes, threads: int = 1) -> list[Problem]:
    return verify(memoryview(text), threads=threads).problems


def chunk_line(array: str, ix: int) -> int:
    """The number of the `ch` line of chunk `ix` of an array."""
    return line_number(b"ch ix=%06d" % ix, line_number(b"arr name=" + array.encode()))


def other_letter(line: bytes, at: int = 5) -> bytes:
    """The line with another base64 letter that the parity notices."""
    new = b"A" if line[at : at + 1] not in b"AQaq" else b"B"
    return line[:at] + new + line[at + 1 :]


def test_the_text_that_the_damage_starts_from_is_good() -> None:
    assert problems_of(TEXT) == []


@pytest.mark.parametrize(
    ("array", "ix", "offset"),
    [("A", 0, 1), ("A", 1, 2), ("A", 2, 1), ("B", 0, 1), ("C", 0, 2), ("C", 17, 1), ("C", 29, 2)],
)
def test_a_changed_letter_is_told_with_line_array_and_chunk(
    array: str, ix: int, offset: int
) -> None:
    ch = chunk_line(array, ix)
    found = problems_of(with_line(ch + offset, other_letter))
    where = {(p.kind, p.line, p.array, p.chunk) for p in found}
    assert ("parity", ch + offset, array, ix) in where
    assert ("crc32c", ch, array, ix) in where
    assert ("chunk_sha256", ch, array, ix) in where
    assert ("array_sha256", line_number(b"arr name=" + array.encode()), array, None) in where
    assert ("root", 4, None, None) in where
    assert {p.chunk for p in found if p.chunk is not None} == {ix}


def test_damage_in_two_arrays_is_told_for_both_in_order() -> None:
    lines = list(LINES)
    for array, ix in (("C", 20), ("A", 1)):
        number = chunk_line(array, ix) + 1
        lines[number - 1] = other_letter(lines[number - 1])
    found = problems_of(b"".join(lines))
    chunks = [(p.array, p.chunk) for p in found if p.kind == "crc32c"]
    assert chunks == [("A", 1), ("C", 20)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_findings_do_not_depend_on_threads(threads: int) -> None:
    big = text_of(400_000, 10, 500_000, chunk=5000)
    damaged = bytearray(big)
    for at in range(50_000, len(big), 211_003):
        damaged[at] ^= 1
    found = problems_of(bytes(damaged), threads)
    assert found
    assert found == problems_of(bytes(damaged), 1)


def digit(line: bytes, field: bytes) -> bytes:
    """The line with the first digit of a hex field changed."""
    at = line.index(field) + len(field)
    return line[:at] + (b"0" if line[at : at + 1] != b"0" else b"1") + line[at + 1 :]


@pytest.mark.parametrize(
    ("start", "field", "kinds"),
    [
        (b"root ", b"sha256_all=", {"root", "merkle"}),
        (b"root ", b"merkle_prev=", {"merkle"}),
        (b"root ", b"merkle_this=", {"merkle"}),
        (b"root ", b"fastxor=", {"fastxor"}),
        (b"meta ", b"gen=", {"merkle"}),
        (b"meta ", b"ts=", {"merkle"}),
        (b"arr name=B", b"sha256=", {"array_sha256", "root"}),
        (b"arr name=B", b"hmac=", {"root"}),
        (b"arr name=B", b"salt=", {"root"}),
        (b"ch ix=000001", b"crc32c=", {"crc32c"}),
        (b"ch ix=000001", b"sha256=", {"chunk_sha256"}),
    ],
)
def test_a_changed_digit_is_told_by_the_hash_that_covers_it(
    start: bytes, field: bytes, kinds: set[str]
) -> None:
    number = line_number(start)
    changed = with_line(number, lambda line: digit(line, field))
    found = problems_of(changed)
    assert {p.kind for p in found} == kinds
    own = {p.line for p in found if p.kind in kinds - {"root", "merkle", "fastxor"}}
    assert own <= {number}


@pytest.mark.parametrize(
    ("number", "change", "kind"),
    [
        (1, lambda _: b"WTXT 2\n", "syntax"),
        (2, lambda line: line.replace(b"LE", b"BE"), "syntax"),
        (3, lambda _: b"", "syntax"),
        (4, lambda _: b"", "syntax"),
        (line_number(b"arr name=B"), lambda line: line.replace(b"=B", b"=A"), "structure"),
        (line_number(b"arr name=B"), lambda line: line.replace(b"=B ", b"=0 "), "structure"),
        (line_number(b"arr name=B"), lambda line: line.replace(b"s=40", b"s=41"), "structure"),
        (line_number(b"arr name=B"), lambda line: line.replace(b"e=40", b"e=39"), "structure"),
        (line_number(b"idx "), lambda line: line.replace(b"=100", b"=0"), "structure"),
        (line_number(b"idx "), lambda line: line.replace(b"k=1 ", b"k=0 "), "structure"),
        (line_number(b"endarr"), lambda _: b"", "syntax"),
        (line_number(b"audit "), lambda _: b"audit\n", "syntax"),
        (line_number(b"audit "), lambda line: line + line, "syntax"),
        (line_number(b"endwtxt"), lambda _: b"", "syntax"),
        (line_number(b"endwtxt"), lambda line: line + b"\n", "syntax"),
        (line_number(b"endwtxt"), lambda _: b"endwtxt", "syntax"),
        (chunk_line("A", 1), lambda line: line.replace(b"ix=000001", b"ix=000002"), "structure"),
        (chunk_line("A", 1), lambda line: line.replace(b"0100 ", b"0200 "), "structure"),
        (chunk_line("A", 1), lambda line: line.replace(b"len=100", b"len=99"), "structure"),
        (chunk_line("A", 1), lambda line: line.replace(b"lines=2", b"lines=3"), "structure"),
        (chunk_line("A", 1), lambda _: b"", "syntax"),
        (chunk_line("A", 1) + 1, lambda line: line[1:], "syntax"),
        (chunk_line("A", 1) + 1, lambda _: b"", "syntax"),
        (chunk_line("A", 1) + 1, lambda line: b"*" + line[1:], "syntax"),
        (chunk_line("A", 1) + 2, lambda line: line[:-1] + b" \n", "syntax"),
    ],
)
def test_a_fault_of_syntax_or_structure_stops_at_its_line(
    number: int, change: Callable[[bytes], bytes], kind: str
) -> None:
    changed = with_line(number, change)
    assert changed != TEXT
    report = verify(memoryview(changed))
    assert report.problems[-1].kind == kind
    assert report.sha256_all is None
    line = report.problems[-1].line
    assert line is not None
    assert number <= line <= number + 2
    # A line that is gone leaves another one of the wrong length in its place.
    gone = ["base64"] if change(b"x") == b"" and TEXT.splitlines()[number - 1][77:78] != b"" else []
    assert [p.kind for p in report.problems] in ([kind], [*gone, kind])


def test_a_fault_of_structure_names_array_and_chunk() -> None:
    number = chunk_line("C", 3)
    changed = with_line(number, lambda line: line.replace(b"len=100", b"len=98"))
    stop = index(memoryview(changed)).stop
    assert stop is not None
    assert (stop.kind, stop.line, stop.array, stop.chunk) == ("structure", number, "C", 3)


def test_what_stands_before_the_fault_is_still_checked() -> None:
    number = chunk_line("C", 20)
    lines = list(LINES)
    lines[number - 1] = lines[number - 1].replace(b"len=", b"len=0")
    at = chunk_line("A", 0) + 1
    lines[at - 1] = other_letter(lines[at - 1])
    found = problems_of(b"".join(lines))
    assert [(p.kind, p.line) for p in found if p.kind in ("parity", "syntax")] == [
        ("parity", at),
        ("syntax", number),
    ]


def test_two_arrays_that_changed_places_are_refused() -> None:
    a, b = line_number(b"arr name=A"), line_number(b"arr name=B")
    c = line_number(b"arr name=C")
    swapped = LINES[: a - 1] + LINES[b - 1 : c - 1] + LINES[a - 1 : b - 1] + LINES[c - 1 :]
    stop = index(memoryview(b"".join(swapped))).stop
    assert stop is not None
    assert (stop.kind, stop.array) == ("structure", "A")


def test_two_chunks_that_changed_places_are_refused() -> None:
    one, two = chunk_line("C", 4), chunk_line("C", 5)
    size = two - one
    lines = list(LINES)
    lines[one - 1 : one - 1 + 2 * size] = (
        lines[two - 1 : two - 1 + size] + lines[one - 1 : one - 1 + size]
    )
    stop = index(memoryview(b"".join(lines))).stop
    assert stop is not None
    assert (stop.kind, stop.chunk) == ("structure", 4)


@pytest.mark.parametrize("case", valid_cases(), ids=lambda c: c.file)
def test_the_index_knows_where_everything_stands(case: object) -> None:
    text = case.text  # type: ignore[attr-defined]
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = index(memoryview(text))
    assert found.stop is None
    for array in found.arrays:
        assert array.complete
        assert lines[array.line - 1] == array.header + b"\n"
        assert len(array.starts) == array.chunks
        for ix in range(array.chunks):
            first = array.lines[ix]
            assert lines[first - 2].startswith(b"ch ix=%06d " % ix)
            assert starts[first - 1] == array.starts[ix]
            assert b"len=%d " % array.size_of(ix) in lines[first - 2]
    signed = [line for line in lines if line.startswith(b"sign ")]
    if signed:
        assert text[found.covered :].startswith(b"sign ")


def test_progress_counts_every_raw_byte() -> None:
    counts: list[int] = []
    verify(memoryview(TEXT), progress=counts.append)
    assert sum(counts) == 250 + 40 + 3000


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"abc", '"abc"'),
        (b'a"b', '"a\\"b"'),
        (b"a\\b", '"a\\\\b"'),
        (b"\x00\xff\n", '"\\x00\\xff\\n"'),
        (b"it's", '"it\'s"'),
        (b"", '""'),
    ],
)
def test_bytes_are_quoted_without_control_characters(raw: bytes, shown: str) -> None:
    assert quote(raw) == shown


@pytest.mark.parametrize("content", [b"", b"\n", b"W", b"WTXT 1", b"WTXT 1\n", b"WTXT 1\nmeta \n"])
def test_a_stub_of_a_text_is_a_syntax_error(content: bytes) -> None:
    report = verify(memoryview(content))
    assert [problem.kind for problem in report.problems] == ["syntax"]
    assert not report.index.has_header


def text_of_chunks(count: int) -> list[bytes]:
    """The lines of a text whose one array has `count` chunks of 100 bytes."""
    raw = memoryview(bytes(range(256)) * 40)[: count * 100]
    array = Array("W", "u8", (raw.nbytes,), raw, Rows(100, 1))
    return dumps(Snapshot(Meta(), (array,), CAP)).splitlines(keepends=True)


def kinds_of(lines: list[bytes]) -> set[str]:
    return {problem.kind for problem in verify(memoryview(b"".join(lines))).problems}


def test_a_line_with_two_faults_tells_both() -> None:
    lines = text_of_chunks(1)
    tail = lines.index(b"endch\n") - 1
    last = len(lines[tail][:76].rstrip(b"=")) - 1
    # All bits set, the unused ones too.
    lines[tail] = lines[tail][:last] + b"/" + lines[tail][last + 1 :]
    assert kinds_of(lines) >= {"base64", "parity"}


@pytest.mark.parametrize("stop", [1, 5, 16, 19])
def test_what_stands_before_a_stop_is_told_whatever_the_blocks(stop: int) -> None:
    lines = text_of_chunks(20)
    heads = [i for i, line in enumerate(lines) if line.startswith(b"ch ")]
    lines[heads[stop - 1]] = re.sub(rb"crc32c=........", b"crc32c=00000000", lines[heads[stop - 1]])
    lines[heads[stop] + 1] = b"*" + lines[heads[stop] + 1][1:]
    assert kinds_of(lines) == {"crc32c", "syntax"}


def test_a_missing_line_is_told_as_its_frame_and_as_its_length() -> None:
    lines = text_of_chunks(2)
    first = next(i for i, line in enumerate(lines) if line.startswith(b"ch ")) + 1
    del lines[first]
    assert kinds_of(lines) >= {"base64", "syntax"}


def test_damage_in_a_chunk_whose_end_is_wrong_is_told() -> None:
    lines = text_of_chunks(2)
    head = next(i for i, line in enumerate(lines) if line.startswith(b"ch "))
    lines[head] = re.sub(rb"crc32c=........", b"crc32c=00000000", lines[head])
    end = lines.index(b"endch\n")
    lines[end] = b"endchx\n"
    assert kinds_of(lines) == {"crc32c", "syntax"}


def test_a_missing_line_is_told_beside_what_is_wrong_elsewhere() -> None:
    """Findings on whole arrays stand after those on chunks, the one that stopped included."""
    raw = memoryview(bytes(100))
    arrays = tuple(Array(name, "u8", (100,), raw, Rows(100, 1)) for name in "AB")
    lines = dumps(Snapshot(Meta(), arrays, CAP)).splitlines(keepends=True)
    first, second = (i for i, line in enumerate(lines) if line.startswith(b"arr "))
    lines[first] = re.sub(rb"sha256=.{8}", b"sha256=00000000", lines[first])
    del lines[second + 3]
    lines.append(b"endwtxt\n" * 10)
    assert kinds_of(lines) >= {"array_sha256", "base64", "syntax"}


def test_the_hash_of_an_array_of_one_chunk_is_told_where_its_end_is_wrong() -> None:
    lines = text_of_chunks(1)
    head = next(i for i, line in enumerate(lines) if line.startswith(b"arr "))
    lines[head] = re.sub(rb" sha256=.{8}", b" sha256=00000000", lines[head])
    lines[lines.index(b"endarr\n")] = b"endarrx\n"
    assert kinds_of(lines) == {"array_sha256", "syntax"}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_told_of_one_line_has_an_order(threads: int) -> None:
    key = bytes(32)
    raw = memoryview(bytes(300))
    arrays = tuple(Array(name, "u8", (300,), raw, Rows(100, 1)) for name in "ABC")
    plain = Snapshot(Meta(), arrays, CAP)
    for signed, kinds in ((None, ["hmac", "array_sha256"]), (key, ["array_sha256", "hmac"])):
        text = re.sub(rb" sha256=.{8}", b" sha256=00000000", dumps(plain, hmac_key=signed))
        text = re.sub(rb" hmac=[^0].{7}", b" hmac=ffffffff", text)
        found = verify(memoryview(text), hmac_key=key, threads=threads).problems
        assert [p.kind for p in found if p.line == 5] == kinds
