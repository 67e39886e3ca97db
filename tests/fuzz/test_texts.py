"""Mutated texts: only our errors, and nothing is accepted that a hash covers."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.data import Case, cases, fixture, golden, seeded, valid_cases
from tests.fuzz.mutations import text_mutant
from tests.fuzz.oracle import check_text
from tests.kit.changes import TEXT, share
from tests.text.edits import IS_NIGHTLY, WORD, in_turn, inside_of_words
from wtxtgit.filter.clean import text_of as emitted
from wtxtgit.model.array import ITEM_SIZE
from wtxtgit.text import grammar
from wtxtgit.text.index import TextIndex, index
from wtxtgit.text.verify import verify

SMALL = 7000
TINY = 1600
MUTANTS_OF_A_VECTOR = 120
MUTANTS_OF_A_FILE = 80
SOURCES = [case for case in cases() if len(case.text) <= SMALL]
FILES = [path for path, record in golden().items() if record["bytes"] <= SMALL]
TINY_CASES = [case for case in valid_cases() if len(case.text) <= TINY]
SOME_TINY_CASES = TINY_CASES[: share(TEXT, len(TINY_CASES))]
"""All where the reader of texts changed: each byte of them is tried."""


def facts(found: TextIndex) -> tuple[Any, ...]:
    """All that the hashes cover."""
    meta = found.meta
    lines = [array.header for array in found.arrays]
    return found.root, meta.gen, meta.ts, meta.build, lines


@cache
def text_of(path: str) -> bytes:
    return b"".join(emitted(memoryview(fixture(path))).pieces())


def test_there_is_enough_to_mutate() -> None:
    count = len(SOURCES) * MUTANTS_OF_A_VECTOR + len(FILES) * MUTANTS_OF_A_FILE
    assert count >= 20_000
    assert len(TINY_CASES) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCES, ids=lambda c: c.file)
def test_a_mutated_vector_is_refused_or_says_the_same(case: Case) -> None:
    rng = seeded(case.file)
    original = facts(index(memoryview(case.text)))
    for _ in range(share(TEXT, MUTANTS_OF_A_VECTOR)):
        mutant = text_mutant(case.text, rng)
        report = check_text(mutant, **case.given)
        if report.ok and case.valid:
            assert facts(report.index) == original


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES)
def test_a_mutated_text_of_a_file_is_refused_or_gives_the_file(path: str) -> None:
    text = text_of(path)
    rng = seeded(path)
    original = facts(index(memoryview(text)))
    for _ in range(share(TEXT, MUTANTS_OF_A_FILE)):
        mutant = text_mutant(text, rng)
        report = check_text(mutant)
        if report.ok:
            assert facts(report.index) == original
            assert mutant == text or report.layout is not None


def is_container(text: bytes) -> bool:
    return b"\narr name=_layout " in text


def is_keyed(case: Case) -> bool:
    """Whether its signature is checked, and holds."""
    return bool(case.public_keys) and case.expected["signature"] == "valid"


def item_size(text: bytes, line_start: int) -> tuple[int, int]:
    """Item size and bytes of the array whose `arr` line ends where this line starts."""
    start = text.rindex(b"arr name=", 0, line_start)
    parsed = grammar.parse_array(text, start)
    assert parsed is not None
    return ITEM_SIZE[parsed[0].dtype], parsed[0].nbytes


def is_free(text: bytes, at: int, new: int, *, keyed: bool) -> bool:
    """Whether no hash covers this change of a byte in a valid text.

    Free are schema (where no layout fixes it), host, cuda, the cap's items but
    `layout`, the hints of `idx` as long as they cut the same chunks, the
    audit line, and without its key the sign line. With the key, the header is
    covered by the signature, and of the sign line only the keyid is free: it
    says that another key is meant.
    """
    start = text.rfind(b"\n", 0, at) + 1
    end = text.index(b"\n", at) + 1
    old = text[start:end]
    line = text[start:at] + bytes([new]) + text[at + 1 : end]
    has_layout = is_container(text)
    signed = keyed and b"\nsign " in text
    for prefix, parse in (
        (b"meta ", grammar.parse_meta),
        (b"cap ", grammar.parse_cap),
        (b"sign ", grammar.parse_sign),
        (b"idx ", grammar.parse_rows),
        (b"audit ", grammar.parse_audit),
    ):
        if not old.startswith(prefix):
            continue
        was, now = parse(old, 0), parse(line, 0)
        assert was is not None
        if now is None or now[1] != len(line):
            return False
        before: Any = was[0]
        after: Any = now[0]
        if prefix == b"meta ":
            same = (before.gen, before.ts, before.build) == (after.gen, after.ts, after.build)
            return same and not signed and (before.schema == after.schema or not has_layout)
        if prefix == b"cap ":
            return not signed and ("layout" in after) == has_layout
        if prefix == b"sign ":
            return not signed or before.signature == after.signature
        if prefix == b"idx ":
            item, nbytes = item_size(text, start)
            if not after.rows_per_chunk or not after.row_size or after.row_size % item:
                return False
            one, two = grammar.chunk_size(before), grammar.chunk_size(after)
            return one == two or (nbytes <= one and nbytes <= two)
        return True
    return False


REPLACEMENTS = b"\n =A0\xff"


@cache
def alike() -> dict[str, frozenset[int]]:
    """By vector: where a line stands that only in its words differs from one tried before."""
    tried: set[tuple[bool, bool, bytes]] = set()
    found = {}
    for case in [] if IS_NIGHTLY else TINY_CASES:
        at, places = 0, set[int]()
        for line in case.text.splitlines(keepends=True):
            shape = (is_keyed(case), is_container(case.text), WORD.sub(b"", line))
            if shape in tried:
                places.update(range(at, at + len(line)))
            tried.add(shape)
            at += len(line)
        found[case.file] = frozenset(places)
    return found


def replacements(case: Case, at: int) -> set[int]:
    """What takes a byte's place: a byte of each kind; where many are alike two kinds in turn."""
    old = case.text[at]
    kinds = (*REPLACEMENTS, old ^ 1)
    if at in inside_of_words(case.text) or at in alike().get(case.file, ()):
        kinds = in_turn(kinds, at)
    return {*kinds} - {old}


@pytest.mark.slow
@pytest.mark.parametrize("case", SOME_TINY_CASES, ids=lambda c: c.file)
def test_exactly_the_fields_that_no_hash_covers_can_be_changed(case: Case) -> None:
    """Every byte of the text, replaced by bytes of other kinds."""
    text = case.text
    keyed = is_keyed(case)
    free = 0
    for at in range(len(text)):
        for new in replacements(case, at):
            changed = text[:at] + bytes([new]) + text[at + 1 :]
            ok = verify(memoryview(changed), **case.given).ok
            assert ok == is_free(text, at, new, keyed=keyed), (at, new)
            free += ok
    assert free or keyed


@given(data=st.data(), new=st.integers(0, 255))
def test_any_changed_byte_is_found_where_a_hash_covers_it(data: st.DataObject, new: int) -> None:
    case = data.draw(st.sampled_from([c for c in valid_cases() if len(c.text) <= SMALL]))
    text = case.text
    at = data.draw(st.integers(0, len(text) - 1))
    if new == text[at]:
        return
    changed = text[:at] + bytes([new]) + text[at + 1 :]
    keyed = is_keyed(case)
    assert check_text(changed, **case.given).ok == is_free(text, at, new, keyed=keyed)


@given(data=st.data())
def test_a_text_that_ends_early_is_refused_at_any_byte(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(valid_cases()))
    cut = data.draw(st.integers(0, len(case.text) - 1))
    report = check_text(case.text[:cut], **case.given)
    assert "syntax" in {problem.kind for problem in report.problems} or "structure" in {
        problem.kind for problem in report.problems
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", SOME_TINY_CASES, ids=lambda c: c.file)
def test_a_tiny_text_is_refused_when_it_is_cut_at_each_byte(case: Case) -> None:
    for cut in range(len(case.text)):
        text = case.text[:cut]
        # Read in all ways but where only more or less of a word is there.
        is_alike = cut in inside_of_words(case.text) and cut % 4
        report = verify(memoryview(text), **case.given) if is_alike else None
        assert not (report or check_text(text, **case.given)).ok


@given(st.binary(max_size=300))
@example(b"WTXT ")
@example(b"WTXT 1\n")
@example(b"WTXT 2\n")
def test_any_bytes_are_no_text_and_are_passed_through(content: bytes) -> None:
    assert not check_text(content).ok
    assert not check_text(b"WTXT 1\n" + content).ok


@given(st.lists(st.sampled_from(sorted({
    line for case in valid_cases() if len(case.text) <= TINY
    for line in case.text.splitlines(keepends=True)
})), max_size=30))  # fmt: skip
def test_good_lines_in_any_order_are_read_without_a_surprise(lines: list[bytes]) -> None:
    check_text(b"".join(lines))
    check_text(b"WTXT 1\n" + b"".join(lines) + b"endwtxt\n")
