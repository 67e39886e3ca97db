"""TARIDX: every rule of the check has a file that breaks it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.tars import index, key_of, row, with_stems
from wtxtgit.containers.any_format import check
from wtxtgit.containers.taridx import check as taridx_check
from wtxtgit.containers.taridx import read as taridx_rows
from wtxtgit.containers.taridx.read import read
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

BIG = 1 << 60
"""A keyhash that is no cut one."""
GOOD = [row(keyhash=BIG), row(offset=1024, keyhash=BIG + 1)]
BASE = 64 + len("jpg")


def told(found: Findings) -> list[tuple[str, str, int | None, str | None]]:
    """Errors and warnings without their words."""
    return [
        (severity, problem.kind, problem.offset, problem.field)
        for severity, problems in (("error", found.errors), ("warning", found.warnings))
        for problem in problems
    ]


def test_a_good_index_has_nothing_to_tell() -> None:
    assert told(check(index(GOOD, n_stems=2))) == []
    assert told(check(index([], "", n_ext=0, n_stems=0))) == []
    assert told(check(index(GOOD, n_stems=2, flags=0))) == []


@pytest.mark.parametrize(
    ("rows", "changes", "offset", "field"),
    [
        (GOOD, {"n_ext": 2}, 32, "n_ext"),
        (GOOD, {"n_crash": 2}, 36, "n_crash"),
        ([*GOOD, row(offset=2048, extid=1, keyhash=BIG + 2)], {"n_stems": 3}, BASE + 64, "extid"),
        ([*GOOD, row(offset=2048, crashid=1, keyhash=BIG)], {"n_stems": 3}, BASE + 64, "crashid"),
        ([*GOOD, row(offset=2049, keyhash=BIG + 2)], {"n_stems": 3}, BASE + 64, "offset"),
        ([*GOOD, row(offset=2**64 - 512, keyhash=BIG + 2)], {"n_stems": 3}, BASE + 64, "size"),
        (
            [*GOOD, row(offset=2048, size=2**63 - 2560, keyhash=BIG + 2)],
            {"n_stems": 3},
            BASE + 64,
            "size",
        ),
        ([*GOOD, row(offset=2048, keyhash=BIG)], {}, BASE + 64, "flags"),
        ([*GOOD, row(offset=1024, size=2, keyhash=BIG + 1)], {}, BASE + 64, "offset"),
    ],
)
def test_errors(rows: list[bytes], changes: dict[str, object], offset: int, field: str) -> None:
    found = check(index(rows, **{"n_stems": 2, **changes}))
    assert ("error", "structure", offset, field) in told(found)
    assert {problem.field for problem in found.errors} == {field}


@pytest.mark.parametrize(
    ("rows", "extensions", "changes", "offset", "field"),
    [
        (GOOD, "jpg", {"minor": 1}, 10, "minor"),
        (GOOD, "jpg", {"flags": 3}, 56, "flags"),
        (GOOD, "jpg", {"n_stems": 3}, 16, "n_stems"),
        (GOOD, "j g", {}, 32, "n_ext"),
        (GOOD, "", {}, 32, "n_ext"),
        (GOOD, "jpg\npng", {}, 32, "n_ext"),
        ([GOOD[0], row(fid=2, keyhash=BIG + 1)], "jpg", {}, BASE, "fid"),
        ([GOOD[0], row(offset=512, keyhash=BIG)], "jpg", {"n_stems": 1}, BASE + 32, "keyhash"),
        ([row(), row(offset=512, keyhash=2)], "jpg", {}, BASE, "keyhash"),
    ],
)
def test_warnings(
    rows: list[bytes], extensions: str, changes: dict[str, object], offset: int, field: str
) -> None:
    found = check(index(rows, extensions, **{"n_stems": 2, **changes}))
    assert found.errors == []
    assert ("warning", "structure", offset, field) in told(found)
    assert {problem.field for problem in found.warnings} == {field}


def test_crash_stems() -> None:
    stem = key_of("b")
    rows = [row(keyhash=stem), row(offset=512, crashid=1, keyhash=stem)]
    assert told(check(with_stems(rows, "b", n_stems=2))) == []
    other = [rows[0], row(offset=512, crashid=1, keyhash=stem ^ 1)]
    warned = told(check(with_stems(other, "b", n_stems=2)))
    assert warned == [("error", "structure", 64 + 3 + 1 + 32, "keyhash")]
    twice = told(check(with_stems(rows, "b\nb", n_stems=2)))
    assert ("error", "structure", 36, "n_crash") in twice
    unused = told(check(with_stems(rows, "b\nc", n_stems=2)))
    assert unused == [("warning", "structure", 36, "n_crash")]
    spaced = told(check(with_stems([rows[0]], "b c", n_stems=1)))
    assert spaced == [("warning", "structure", 36, "n_crash")] * 2


@pytest.mark.parametrize("extensions", ["jpg\njpg", "Jpg", "jpg\nPNG"])
def test_extensions_that_no_writer_leaves_so(extensions: str) -> None:
    found = check(index(GOOD, extensions, n_stems=2))
    assert {(problem.offset, problem.field) for problem in found.errors} == {(32, "n_ext")}


def test_tables_over_their_limits_are_told() -> None:
    found = check(index([], "\n" * (1 << 16), n_stems=0))
    assert told(found) == [("error", "limit", 32, "n_ext")]
    found = check(with_stems([], "\n" * (1 << 20), n_stems=0, n_ext=1))
    assert ("error", "limit", 36, "n_crash") in told(found)


def test_too_many_rows_for_groups_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taridx_check, "MAX_ROWS", 1)
    assert told(check(index(GOOD, n_stems=9))) == [("warning", "limit", 24, "n_rows")]


def test_keys_made_to_be_mixed_alike_are_told_apart() -> None:
    odd = int(taridx_rows._ODD)
    rows = [
        row(keyhash=BIG),
        row(offset=512, crashid=1, keyhash=BIG ^ odd),
        row(offset=1024, crashid=2, keyhash=BIG ^ (2 * odd % 2**64)),
    ]
    found = check(with_stems(rows, "a\nb", n_stems=3))
    assert [error.field for error in found.errors] == ["keyhash"]
    assert not [p for p in found.warnings if p.field == "n_stems" or "an earlier row" in p.message]


def test_the_message_counts_the_rows_and_names_the_first() -> None:
    rows = [GOOD[0], *(row(offset=512 * n, extid=7, keyhash=BIG + n) for n in range(1, 5))]
    (error,) = check(index(rows, n_stems=5)).errors
    assert error.message == "4 rows with an extid that is not below n_ext (1), the first is row 1"


ROWS = st.lists(
    st.builds(
        row,
        fid=st.integers(0, 2),
        offset=st.sampled_from([0, 512, 513, 2**63]),
        extid=st.integers(0, 2),
        crashid=st.integers(0, 2),
        keyhash=st.sampled_from([BIG, BIG + 1, 5, 2**64 - 1]),
    ),
    max_size=12,
)


@given(ROWS, st.sampled_from([1, 2, 3, 1 << 20]))
def test_findings_are_those_of_a_plain_loop(rows: list[bytes], width: int) -> None:
    """Whatever the slices are: groups, members told twice, and limits of each row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taridx_rows, "SLICE", width)
        held = read(index(rows, "jpg\npng", n_stems=1))
        found = taridx_check.check(held, ReadOptions())
    fields = [struct.unpack("<HQQHIQ", data) for data in rows]
    groups = [(key, crash) for _, _, _, _, crash, key in fields]
    starts = [n for n in range(len(rows)) if n == 0 or groups[n] != groups[n - 1]]
    again = [n for n in starts if groups[n] in groups[:n]]
    told_by_field = {problem.field: problem for problem in found.errors}
    assert ("flags" in told_by_field) == bool(again)
    if again:
        assert told_by_field["flags"].offset == held.header.off_arr + 32 * again[0]
    members = [(key, crash, ext) for _, _, _, ext, crash, key in fields]
    twice = [n for n in range(len(rows)) if members[n] in members[:n]]
    offset = held.header.off_arr + 32 * twice[0] if twice else None
    warned = [p.offset for p in found.warnings if "as an earlier row" in p.message]
    assert warned == ([offset] if twice else [])
    assert ("extid" in told_by_field) == any(ext > 1 for _, _, _, ext, _, _ in fields)
    headers = [(fid, start) for fid, start, *_ in fields]
    again = [n for n in range(len(rows)) if headers[n] in headers[:n]]
    offsets = [p.offset for p in found.errors if "for the same tar header as" in p.message]
    assert offsets == [held.header.off_arr + 32 * n for n in again[:1]]
    odd = [p for p in found.errors if "multiple of 512" in p.message]
    assert bool(odd) == any(start % 512 for _, start, *_ in fields)
    stale = [p for p in found.warnings if p.field == "n_stems"]
    assert bool(stale) == (len(set(groups)) != 1)
