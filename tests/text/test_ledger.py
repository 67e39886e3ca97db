"""Ledgers: the vectors, one spelling, order and chain, reading on."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import LEDGERS as LEDGERS_FOLDER
from tests.data import LedgerCase, ledger_cases, ledger_named
from tests.text.ledgers import HEADS, LEDGERS, PATHS, RECORDS, chain_of
from tests.text.moved import made
from wtxtgit.errors import TextError
from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.ledger import Ledger, LedgerHead, Record
from wtxtgit.text import grammar, ledger
from wtxtgit.text.ledger import (
    MAX_LINE,
    MAX_PROBLEMS,
    MAX_SIZE,
    check_link,
    covered,
    format_at,
    format_head,
    format_ledger,
    format_record,
    is_path,
    parse_at,
    parse_head,
    read,
    record_lines,
    signed_by,
)

READABLE = [case for case in ledger_cases() if case.signed_by is not None]
FOUR = ledger_named("four").text
HEX = b"[0-9a-f]{64}"


def lines_of(text: bytes) -> list[bytes]:
    return text.splitlines(keepends=True)


class TestVectors:
    def test_there_are_enough(self) -> None:
        assert len(ledger_cases()) >= 25 + len(made())
        assert len(READABLE) >= 30

    @pytest.mark.parametrize("name", made())
    def test_ours_are_what_the_spec_says(self, name: str) -> None:
        case, wanted = ledger_named(name), made()[name]
        assert case.text == wanted.text
        told = (case.kinds, case.signed_by, case.public_keys, case.note)
        assert told == (
            frozenset(wanted.kinds),
            wanted.signed_by,
            wanted.public_keys,
            wanted.note,
        )
        assert case.valid is not bool(wanted.kinds)

    def test_ours_are_all_made(self) -> None:
        assert {path.stem for path in LEDGERS_FOLDER.iterdir()} == set(made())

    def test_where_they_stand(self) -> None:
        told = {}
        for name in made():
            found = read(ledger_named(name).text).ledger
            told[name] = None if found is None else found.place
        assert told["moved"] == told["moved_there_again"] == told["moved_at_once"]
        assert told["moved"] == b"models/b.fold"
        assert told["moved_twice"] == b"models/c.fold"
        assert told["moved_back"] == told["deleted"] == b"models/a.fold"
        assert told["moved_escaped"] == "größe/100% b.fold".encode()
        assert told["move_twice"] is None

    @pytest.mark.parametrize("case", ledger_cases(), ids=lambda c: c.file)
    def test_kinds_and_signatures(self, case: LedgerCase) -> None:
        report = read(case.text)
        kinds = {problem.kind for problem in report.problems}
        found = report.ledger
        assert (found is None) == (case.signed_by is None)
        if found is not None:
            signers = [signed_by(found.head, r, case.public_keys) for r in found.records]
            assert tuple(s.signatures for s in signers) == case.signed_by
            if any(s.invalid for s in signers):
                kinds.add("signature")
        assert kinds >= case.kinds
        assert bool(kinds) is not case.valid

    @pytest.mark.parametrize("case", READABLE, ids=lambda c: c.file)
    def test_what_was_read_is_formatted_to_the_same_bytes(self, case: LedgerCase) -> None:
        for data in (case.text, memoryview(case.text)):
            found = read(data).ledger
            assert found is not None
            assert format_ledger(found) == case.text

    def test_what_a_ledger_says(self) -> None:
        found = read(ledger_named("co_signed").text).ledger
        assert found is not None
        assert found.head.path == b"models/a b.fold"
        assert found.head.repo.hex().startswith("ee8ab2aa")
        first = found.records[0]
        assert first.meta == Meta("fold/v1", 1, "2026-02-01T00:00:00Z", "c0")
        assert first.merkle_prev == bytes(32)
        assert found.last.merkle_prev == first.merkle_this
        keyids = [signature.keyid for signature in found.last.signatures]
        assert keyids == ["436fe053345cb651", "823c531697b75912"]

    def test_problems_name_their_lines(self) -> None:
        told = {
            name: [(p.kind, p.line) for p in read(ledger_named(name).text).problems]
            for name in ("gap", "gen_equal", "ts_back", "signs_descending", "blank_line", "empty")
        }
        assert told == {
            "gap": [("merkle", 6)],
            "gen_equal": [("structure", 8)],
            "ts_back": [("structure", 8)],
            "signs_descending": [("structure", 5)],
            "blank_line": [("syntax", 5)],
            "empty": [("syntax", 1)],
        }

    def test_records_before_a_stop_are_reported_on(self) -> None:
        text = ledger_named("gap").text + b"junk\n"
        assert [p.kind for p in read(text).problems] == ["merkle", "syntax"]
        assert read(text).ledger is None


class TestSpelling:
    @given(LEDGERS)
    def test_a_ledger_that_was_formatted_is_read_as_the_same(self, made: Ledger) -> None:
        text = format_ledger(made)
        report = read(text)
        assert report.ledger == made
        assert report.source == text
        assert all(1 <= (p.line or 0) <= text.count(b"\n") for p in report.problems)

    @given(chain_of())
    def test_a_chain_that_was_made_holds(self, made: Ledger) -> None:
        report = read(format_ledger(made))
        assert report.problems == ()
        assert report.ledger == made

    @given(LEDGERS)
    def test_the_lines_of_records(self, made: Ledger) -> None:
        lines = lines_of(format_ledger(made))
        starts = [
            number - before.startswith(b"at ")
            for number, (before, line) in enumerate(pairwise(lines), 2)
            if line.startswith(b"meta ")
        ]
        assert list(record_lines(made)) == starts

    @given(HEADS)
    def test_a_head_that_was_formatted_is_parsed_to_the_same(self, head: LedgerHead) -> None:
        line = format_head(head)
        assert re.fullmatch(
            rb"WLEDGER 1 repo=" + HEX + rb" path=(?:[A-Za-z0-9._/-]|%[0-9A-F]{2})+\n", line
        )
        assert parse_head(line, 0) == (head, len(line))
        assert parse_head(b"x\n" + line + b"more", 2) == (head, len(line) + 2)

    @given(HEADS, st.data())
    def test_a_head_with_a_changed_byte_is_refused_or_spelled_as_written(
        self, head: LedgerHead, data: st.DataObject
    ) -> None:
        line = bytearray(format_head(head))
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
        parsed = parse_head(bytes(line), 0)
        if parsed is not None:
            assert format_head(parsed[0]) == bytes(line)[: parsed[1]]

    @pytest.mark.parametrize(
        ("path", "spelled"),
        [
            (b"a", b"a"),
            (b"models/a b.fold", b"models/a%20b.fold"),
            ("größe.npz".encode(), b"gr%C3%B6%C3%9Fe.npz"),
            (b"50%.gguf", b"50%25.gguf"),
            (b".wtxt/signers", b".wtxt/signers"),
            (b"a\nb\\\xff", b"a%0Ab%5C%FF"),
            (b"...", b"..."),
            (b"a/..b/.c.", b"a/..b/.c."),
        ],
    )
    def test_paths(self, path: bytes, spelled: bytes) -> None:
        line = format_head(LedgerHead(bytes(32), path))
        assert line == b"WLEDGER 1 repo=" + b"0" * 64 + b" path=" + spelled + b"\n"
        assert parse_head(line, 0) == (LedgerHead(bytes(32), path), len(line))

    @pytest.mark.parametrize(
        "spelled",
        [
            b"",
            b"a b",
            b"a%",
            b"a%2",
            b"a%c3%b6",
            b"a%C3%b6",
            b"%41",
            b"a%2Fb",
            b"%2E%2E/a",
            b"a%00b",
            b"a%GG",
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"..",
            b"../a",
            b"a/../b",
            b"a/./b",
            b"a\xc3\xb6",
            b"a+b",
            b'"a"',
            b"a ",
            b"a path=b",
        ],
    )
    def test_paths_that_are_refused(self, spelled: bytes) -> None:
        text = re.sub(rb"path=\S+", b"path=" + spelled.replace(b"\\", rb"\\"), FOUR, count=1)
        assert text != FOUR
        report = read(text)
        assert [(p.kind, p.line) for p in report.problems] == [("syntax", 1)]
        assert report.ledger is None

    @pytest.mark.parametrize("path", [b"", b"/a", b"a/", b"a//b", b".", b"a/..", b"a\0b"])
    def test_paths_that_are_not_written(self, path: bytes) -> None:
        assert not is_path(path)
        with pytest.raises(TextError) as caught:
            format_head(LedgerHead(bytes(32), path))
        assert caught.value.kind == "syntax"

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b"WLEDGER 1", b"WLEDGER 2"),
            (b"WLEDGER 1", b"WLEDGER 01"),
            (b"WLEDGER 1", b"WLEDGER  1"),
            (b"WLEDGER 1", b" WLEDGER 1"),
            (b"WLEDGER 1", b"\xef\xbb\xbfWLEDGER 1"),
            (b"repo=ee", b"repo=EE"),
            (b"repo=ee", b"repo=e"),
            (b"repo=ee", b"Repo=ee"),
            (b" path=", b" x=1 path="),
            (b".fold\n", b".fold \n"),
            (b".fold\n", b".fold\n\n"),
            (b".fold\n", b".fold\nWLEDGER 1 repo=" + b"0" * 64 + b" path=a\n"),
            (b"gen=000003", b"gen=3"),
            (b"ts=2026-02-03", b"ts=2026-02-30"),
            (b"ts=2026-02-03", b"ts=0000-02-03"),
            (b"endian=LE", b"endian=BE"),
            (b"WSUM 1", b"WSUM 2"),
            (b"merkle_this=4", b"merkle_this=F"),
            (b"WSUM 1", b"wsum 1"),
            (b"sign ed25519=C", b"sign ed25519=\xff"),
            (b"DQ== keyid", b"DR== keyid"),
            (b"DQ== keyid", b"DQ keyid"),
            (b"keyid=4", b"keyid=Z"),
            (b"keyid=436fe053345cb651\n", b"keyid=436fe053345cb651\n# a remark\n"),
            (b"keyid=436fe053345cb651\n", b"keyid=436fe053345cb651\naudit a=1\n"),
            (b"\n", b"\r\n"),
            (b"\n", b"\0\n"),
        ],
    )
    def test_another_spelling_is_refused(self, old: bytes, new: bytes) -> None:
        text = FOUR.replace(old, new, 1)
        assert text != FOUR
        report = read(text)
        assert report.ledger is None
        assert [p.kind for p in report.problems] == ["syntax"]

    @pytest.mark.parametrize("tail", [b"\n", b" ", b"\0", b"endwtxt\n", b"meta", b"sign "])
    def test_nothing_stands_after_the_last_record(self, tail: bytes) -> None:
        assert [p.kind for p in read(FOUR + tail).problems] == ["syntax"]

    def test_lines_in_another_order_are_refused(self) -> None:
        head, meta, wsum, sign, *_ = lines_of(FOUR)
        for order in (
            (meta, wsum, sign),
            (head, wsum, meta, sign),
            (head, meta, sign, wsum),
            (head, sign, meta, wsum),
            (head, meta, wsum, sign, wsum),
            (head, meta, wsum, sign, head),
            (head, head, meta, wsum, sign),
            (head, meta),
            (head,),
        ):
            report = read(b"".join(order))
            assert report.ledger is None
            assert [p.kind for p in report.problems] == ["syntax"]
        assert read(head + meta + wsum + sign).ok

    def test_it_ends_after_a_wsum_or_sign_line_and_nowhere_else(self) -> None:
        ends = {m.end() for m in re.finditer(rb"^(?:WSUM|sign) .*\n", FOUR, re.MULTILINE)}
        assert len(ends) == 8
        for cut in range(len(FOUR) + 1):
            assert read(FOUR[:cut]).ok is (cut in ends), cut


class TestChain:
    """Each rule, broken in a ledger whose other rules hold."""

    def kinds(self, *records: Record) -> list[tuple[str, int | None]]:
        text = format_ledger(Ledger(LedgerHead(bytes(32), b"a"), records))
        return [(p.kind, p.line) for p in read(text).problems]

    @pytest.fixture
    def records(self) -> tuple[Record, ...]:
        found = read(FOUR).ledger
        assert found is not None
        return tuple(replace(record, signatures=()) for record in found.records)

    def test_as_it_is(self, records: tuple[Record, ...]) -> None:
        assert self.kinds(*records) == []

    def test_the_first_record_follows_nothing(self, records: tuple[Record, ...]) -> None:
        assert self.kinds(*records[1:]) == [("merkle", 3)]

    @pytest.mark.parametrize("which", [0, 1, 3])
    def test_other_content_breaks_the_records_own_hash(
        self, which: int, records: tuple[Record, ...]
    ) -> None:
        changed = list(records)
        changed[which] = replace(changed[which], sha256_all=bytes(32))
        assert self.kinds(*changed) == [("merkle", 3 + 2 * which)]

    @pytest.mark.parametrize("field", ["gen", "ts", "build"])
    def test_what_merkle_this_covers(self, field: str, records: tuple[Record, ...]) -> None:
        values = {"gen": 5, "ts": "2026-02-05T00:00:00Z", "build": "c4"}
        meta = replace(records[3].meta, **{field: values[field]})
        assert self.kinds(*records[:3], replace(records[3], meta=meta)) == [("merkle", 9)]

    @pytest.mark.parametrize("field", ["schema", "host", "cuda"])
    def test_what_it_does_not(self, field: str, records: tuple[Record, ...]) -> None:
        meta = replace(records[3].meta, **{field: "x"})
        assert self.kinds(*records[:3], replace(records[3], meta=meta)) == []

    def test_a_record_repeated(self, records: tuple[Record, ...]) -> None:
        found = self.kinds(*records, records[3])
        assert found == [("structure", 10), ("merkle", 11)]

    @pytest.mark.parametrize("count", [0, 1, 8, 9, 20])
    def test_at_most_eight_signatures(self, count: int, records: tuple[Record, ...]) -> None:
        signatures = tuple(Signature(bytes(64), f"{n:016x}") for n in range(count))
        found = self.kinds(replace(records[0], signatures=signatures), *records[1:])
        assert found == ([("structure", 12)] if count > 8 else [])

    def test_keyids_ascend(self, records: tuple[Record, ...]) -> None:
        for keyids, line in (("12", None), ("11", 5), ("21", 5), ("132", 6), ("122", 6)):
            signatures = tuple(Signature(bytes(64), f"{k:0>16}") for k in keyids)
            found = self.kinds(replace(records[0], signatures=signatures))
            assert found == ([] if line is None else [("structure", line)])

    def test_a_link_is_judged_by_itself(self, records: tuple[Record, ...]) -> None:
        assert list(check_link(None, records[0], b"a")) == []
        assert list(check_link(records[1], records[2], b"a")) == []
        assert [p.kind for p in check_link(records[0], records[2], b"a")] == ["merkle"]
        assert [p.kind for p in check_link(None, records[2], b"a")] == ["merkle"]

    def test_a_move_to_where_the_ledger_is(self, records: tuple[Record, ...]) -> None:
        """Each move says something: the same place would have two spellings else."""
        one, two, three, four = records
        moved = replace(two, at=b"b")
        assert self.kinds(one, moved, replace(three, at=b"a"), replace(four, at=b"b")) == []
        assert self.kinds(replace(one, at=b"a"), two) == [("structure", 2)]
        assert self.kinds(one, moved, replace(three, at=b"b")) == [("structure", 7)]
        assert self.kinds(one, moved, three, replace(four, at=b"b")) == [("structure", 9)]

    def test_lines_of_problems_in_a_record_that_moves(self, records: tuple[Record, ...]) -> None:
        one, two, *_ = records
        moved = replace(two, at=b"b")
        signatures = tuple(Signature(bytes(64), f"{n:016x}") for n in range(9))
        for wrong, found in (
            ({"meta": replace(two.meta, gen=1)}, [("structure", 5), ("merkle", 6)]),
            ({"merkle_prev": bytes(32)}, [("merkle", 6), ("merkle", 6)]),
            ({"sha256_all": bytes(32)}, [("merkle", 6)]),
            ({"signatures": signatures}, [("structure", 15)]),
            ({"signatures": (signatures[1], signatures[0])}, [("structure", 8)]),
        ):
            assert self.kinds(one, replace(moved, **wrong)) == found  # type: ignore[arg-type]


class TestPlace:
    """A ledger stands at its first line's path, or at that of the last record that moves it."""

    @given(chain_of())
    def test_it_is_that_of_the_last_move(self, made: Ledger) -> None:
        place = made.head.path
        for count, record in enumerate(made.records, 1):
            place = place if record.at is None else record.at
            assert Ledger(made.head, made.records[:count]).place == place

    @given(PATHS)
    def test_a_move_that_was_formatted_is_parsed_to_the_same(self, path: bytes) -> None:
        line = format_at(path)
        assert (
            line == b"at path=" + format_head(LedgerHead(bytes(32), path)).partition(b" path=")[2]
        )
        assert parse_at(b"x\n" + line + b"more", 2) == (path, len(line) + 2)

    @pytest.mark.parametrize(
        "line",
        [
            b"at path=\n",
            b"at path=/a\n",
            b"at path=a/../b\n",
            b"at path=%41\n",
            b"at path=a%c3\n",
            b"at path=a b\n",
            b"at path=a",
            b"at  path=a\n",
            b"at a\n",
            b"at path=a \n",
            b"at path=a\r\n",
            b"at path=a gen=1\n",
            b"at repo=a path=a\n",
            b"At path=a\n",
        ],
    )
    def test_another_spelling_is_refused(self, line: bytes) -> None:
        assert parse_at(line, 0) is None
        head, *rest = lines_of(FOUR)
        report = read(b"".join((head, line, *rest)))
        assert report.ledger is None
        assert [(p.kind, p.line) for p in report.problems] == [("syntax", 2)]

    @pytest.mark.parametrize("path", [b"", b"/a", b"a//b", b"a/..", b"a\0b"])
    def test_what_is_not_written(self, path: bytes) -> None:
        found = read(FOUR).ledger
        assert found is not None
        with pytest.raises(TextError) as caught:
            format_record(replace(found.last, at=path))
        assert caught.value.kind == "syntax"

    def test_it_stands_before_meta_and_nowhere_else(self) -> None:
        lines = lines_of(FOUR)
        starts = {1, 4, 7, 10}
        for at in range(len(lines) + 1):
            report = read(b"".join((*lines[:at], b"at path=b\n", *lines[at:])))
            assert (report.ledger is not None) is (at in starts), at
        twice = b"".join((lines[0], b"at path=b\n", b"at path=c\n", *lines[1:]))
        assert [(p.kind, p.line) for p in read(twice).problems] == [("syntax", 3)]

    @pytest.mark.parametrize("excess", [0, 1])
    def test_a_long_path(self, excess: int) -> None:
        path = b"a" * (MAX_LINE - len(b"at path=\n") + excess)
        head, *rest = lines_of(FOUR)
        report = read(b"".join((head, b"at path=", path, b"\n", *rest)))
        assert [(p.kind, p.line) for p in report.problems] == ([("limit", 2)] if excess else [])
        if excess:
            with pytest.raises(TextError):
                format_at(path)
        elif report.ledger is not None:
            twice = Ledger(report.ledger.head, (*report.ledger.records, report.ledger.last))
            moved = replace(twice.records[-1], at=path)
            found = read(format_ledger(Ledger(twice.head, (*twice.records[:-1], moved))))
            assert max(len(problem.message) for problem in found.problems) < 200

    def test_a_sign_that_the_wsum_line_carries_is_told_with_its_line(self) -> None:
        head, meta, wsum, *_ = lines_of(ledger_named("wsum_with_sign").text)
        report = read(b"".join((head, b"at path=b\n", meta, wsum)))
        assert [(p.kind, p.line) for p in report.problems] == [("syntax", 4)]


class TestReadingOn:
    @given(chain_of(), st.integers(1, 4))
    def test_from_every_state_of_a_chain(self, made: Ledger, count: int) -> None:
        state = format_ledger(Ledger(made.head, made.records[:count]))
        text = format_ledger(made)
        assert read(text, after=read(state)) == read(text)

    def test_a_move_is_held_against_where_the_ledger_was_before(self) -> None:
        """The last record is read again, with the place of those before it."""
        found = read(FOUR).ledger
        assert found is not None
        one, two, three, four = (replace(record, signatures=()) for record in found.records)
        two, three, four = replace(two, at=b"b"), replace(three, at=b"c"), replace(four, at=b"b")
        text = format_ledger(Ledger(found.head, (one, two, three, four)))
        for records in ((one,), (one, two), (one, two, three), (one, two, three, four)):
            state = read(format_ledger(Ledger(found.head, records)))
            assert state.ok
            assert read(text, after=state) == read(text)
            assert read(text, after=state).ok

    def states(self, text: bytes) -> list[bytes]:
        ends = [m.end() for m in re.finditer(rb"^(?:WSUM|sign) .*\n", text, re.MULTILINE)]
        return [text[:end] for end in ends]

    @pytest.mark.parametrize("case", ledger_cases(), ids=lambda c: c.file)
    def test_from_every_state_of_a_vector(self, case: LedgerCase) -> None:
        whole = read(case.text)
        for state in self.states(case.text):
            assert read(case.text, after=read(state)) == whole

    def test_what_was_read_is_not_read_again(self) -> None:
        before = read(b"".join(lines_of(FOUR)[:7]))
        assert before.ledger is not None
        found = read(FOUR, after=before).ledger
        assert found is not None
        assert found.head is before.ledger.head
        assert found.records[0] is before.ledger.records[0]
        assert found.records[1] == before.ledger.records[1]

    def test_a_signature_added_to_the_last_record(self) -> None:
        text = ledger_named("co_signed").text
        once = b"".join(lines_of(text)[:-1])
        found = read(text, after=read(once)).ledger
        assert found is not None
        assert [len(record.signatures) for record in found.records] == [2, 2]

    @given(chain_of(), chain_of())
    def test_after_another_ledger_it_is_as_without(self, one: Ledger, two: Ledger) -> None:
        first, second = format_ledger(one), format_ledger(two)
        assert read(second, after=read(first)) == read(second)
        assert read(first, after=read(first)) == read(first)

    def test_after_what_is_longer_or_no_ledger(self) -> None:
        for other in (FOUR + b"junk", b"", b"WLEDGER 1 ", FOUR[:-1]):
            assert read(FOUR, after=read(other)) == read(FOUR)
        shorter = b"".join(lines_of(FOUR)[:4])
        assert read(shorter, after=read(FOUR)) == read(shorter)


class TestLimits:
    def test_a_ledger_that_is_too_long(self) -> None:
        report = read(bytes(MAX_SIZE + 1))
        assert report.ledger is None
        assert [p.kind for p in report.problems] == ["limit"]
        assert [p.kind for p in read(bytes(MAX_SIZE)).problems] == ["syntax"]

    def test_a_ledger_that_is_too_long_is_not_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = read(FOUR).ledger
        assert found is not None
        monkeypatch.setattr(ledger, "MAX_SIZE", len(FOUR))
        assert format_ledger(found) == FOUR
        monkeypatch.setattr(ledger, "MAX_SIZE", len(FOUR) - 1)
        with pytest.raises(TextError) as caught:
            format_ledger(found)
        assert caught.value.kind == "limit"
        assert [p.kind for p in read(FOUR).problems] == ["limit"]

    def test_findings_are_told_up_to_a_number(self) -> None:
        """A ledger of 5,000 wrong links is no reason for as many lines, nor is it read on."""
        found = read(FOUR).ledger
        assert found is not None
        first = replace(found.records[0], signatures=())
        records = [
            replace(first, meta=replace(first.meta, gen=gen), merkle_this=bytes([gen % 256]) * 32)
            for gen in range(1, 5001)
        ]
        text = format_ledger(Ledger(found.head, tuple(records)))
        report = read(text + b"what is not read\n")
        assert report.ledger is None
        *told, last = report.problems
        assert MAX_PROBLEMS == 1000
        assert MAX_PROBLEMS < len(told) <= MAX_PROBLEMS + 3
        assert {problem.kind for problem in told} == {"merkle"}
        assert (last.kind, last.message) == (
            "limit",
            "more than 1000 findings, so the rest was not read",
        )
        # As many as there may be are told, and then what comes after them.
        some = format_ledger(Ledger(found.head, tuple(records[:400])))
        assert [problem.kind for problem in read(some + b"x\n").problems][-2:] == [
            "merkle",
            "syntax",
        ]

    @pytest.mark.parametrize("excess", [0, 1, MAX_LINE])
    def test_lines(self, excess: int) -> None:
        size = MAX_LINE - len(format_head(LedgerHead(bytes(32), b"a"))) + 1 + excess
        head = LedgerHead(bytes(32), b"a" * size)
        rest = b"".join(lines_of(FOUR)[1:])
        if not excess:
            assert len(format_head(head)) == MAX_LINE
            assert read(format_head(head) + rest).ok
            return
        with pytest.raises(TextError) as caught:
            format_head(head)
        assert caught.value.kind == "limit"
        line = format_head(LedgerHead(bytes(32), b"a"))[:-2] + b"a" * size + b"\n"
        assert [(p.kind, p.line) for p in read(line + rest).problems] == [("limit", 1)]

    def test_a_line_without_an_end_is_told_as_what_it_is(self) -> None:
        assert [p.kind for p in read(FOUR + b"meta").problems] == ["syntax"]
        long = FOUR + b"meta schema=" + b"x" * MAX_LINE
        assert [(p.kind, p.line) for p in read(long).problems] == [("limit", 14)]

    def test_a_meta_that_is_too_long_is_not_written(self) -> None:
        found = read(FOUR).ledger
        assert found is not None
        meta = replace(found.last.meta, build="x" * MAX_LINE)
        with pytest.raises(TextError) as caught:
            format_record(replace(found.last, meta=meta))
        assert caught.value.kind == "limit"


class TestWhatIsNotWritten:
    def test_hashes_of_another_size(self) -> None:
        found = read(FOUR).ledger
        assert found is not None
        for field in ("sha256_all", "merkle_prev", "merkle_this"):
            with pytest.raises(TextError):
                format_record(replace(found.last, **{field: bytes(31)}))
        with pytest.raises(TextError):
            format_head(replace(found.head, repo=bytes(33)))

    def test_signatures_that_no_line_can_hold(self) -> None:
        found = read(FOUR).ledger
        assert found is not None
        for bad in (Signature(bytes(63), "0" * 16), Signature(bytes(64), "0" * 15)):
            with pytest.raises(TextError):
                format_record(replace(found.last, signatures=(bad,)))

    def test_a_ledger_without_records(self) -> None:
        with pytest.raises(TextError):
            format_ledger(Ledger(LedgerHead(bytes(32), b"a"), ()))


@given(HEADS, RECORDS)
def test_signatures_cover_the_lines_as_they_stand(head: LedgerHead, record: Record) -> None:
    text = format_ledger(Ledger(head, (record,)))
    count = 3 if record.at is None else 4
    assert covered(head, record) == b"".join(lines_of(text)[:count])
    assert lines_of(text)[1].startswith(b"meta " if record.at is None else b"at path=")
    parsed = grammar.parse_meta(text, len(b"".join(lines_of(text)[: count - 2])))
    assert parsed is not None
    assert parsed[0] == record.meta


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_a_surprise(content: bytes) -> None:
    for data in (content, ledger.MAGIC + content, lines_of(FOUR)[0] + content, FOUR + content):
        report = read(data)
        assert report.ok or all(p.message and "\n" not in p.message for p in report.problems)
        if report.ledger is not None:
            assert format_ledger(report.ledger) == data
