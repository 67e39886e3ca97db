"""The page on ledgers: its example, its tables, and its program on real ledgers."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path

import pytest

from tests.data import LedgerCase, ledger_cases, ledger_named, ssh_wire
from tests.docs.pages import blocks, prose, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from tests.docs.test_python import execute
from wtxtgit.model.ledger import DELETED_BUILD, DELETED_CONTENT, LedgerHead
from wtxtgit.text import ledger
from wtxtgit.text.digest import keyid
from wtxtgit.text.ledger import covered, format_at, format_head, format_ledger, read, signed_by

PAGE = "docs/spec/ledger.md"
EXAMPLE, BY_HAND = "A worked example in bytes", "Checked by hand"
MOVE = b"at path=models/b.fold\n"
READABLE = [case for case in ledger_cases() if case.signed_by is not None]


def printed() -> bytes:
    (block,) = blocks(PAGE, "", EXAMPLE)
    return block.text.encode("ascii")


def pub_line(public_key: bytes) -> bytes:
    return b"ssh-ed25519 %b alice@example.com\n" % b64encode(ssh_wire(public_key))


def public_key() -> bytes:
    found = re.search(r"The public key is `([0-9a-f]{64})`", prose(PAGE, EXAMPLE))
    assert found
    return bytes.fromhex(found[1])


class TestTheExample:
    def test_it_is_a_signed_ledger(self) -> None:
        report = read(printed())
        assert report.ok
        assert report.ledger is not None
        assert format_ledger(report.ledger) == printed()
        assert report.ledger.head.path == b"models/a b.fold"
        assert "One generation of `models/a b.fold`" in prose(PAGE, EXAMPLE)
        found = signed_by(report.ledger.head, report.ledger.last, [public_key()])
        assert found.valid == {public_key()}

    def test_size_and_hashes(self) -> None:
        said, text = prose(PAGE, EXAMPLE), printed()
        digest = hashlib.sha256(text).hexdigest()
        assert f"{len(text)} bytes (SHA-256 `{digest}`)" in said
        record = read(text).ledger
        assert record is not None
        chain = re.search(r"`(2026\S+)`\.", said)
        assert chain
        content = bytes(32) + record.last.sha256_all + chain[1].encode()
        assert hashlib.sha256(content).digest() == record.last.merkle_this

    def test_the_table(self) -> None:
        position = 0
        (table,) = tables(PAGE, EXAMPLE)
        for number, (row, line) in enumerate(
            zip(table, printed().splitlines(keepends=True), strict=True), 1
        ):
            assert [int(cell) for cell in row[:3]] == [number, position, len(line)]
            position += len(line)
        made = read(printed()).ledger
        assert made is not None
        signed = re.search(r"over bytes 0 to (\d+)", table[-1][3])
        assert signed
        assert covered(made.head, made.last) == printed()[: int(signed[1]) + 1]

    def test_the_key(self) -> None:
        said = prose(PAGE, EXAMPLE)
        assert f"`{pub_line(public_key()).decode().rpartition(' ')[0]}`" in said
        assert f"Its keyid is `{keyid(public_key())}`" in said

    def test_verify_says_what_the_page_shows(self, tmp_path: Path) -> None:
        (tmp_path / "model.fold.wsum").write_bytes(printed())
        (tmp_path / "alice.pub").write_bytes(pub_line(public_key()))
        assert_as_shown(run(steps(*blocks(PAGE, "console", "Verdict")), tmp_path))


class TestTheMove:
    def test_it_is_a_vector(self) -> None:
        (block,) = blocks(PAGE, "", "A move in bytes")
        case = ledger_named("moved")
        assert block.text.encode("ascii") == case.text
        said = prose(PAGE, "A move in bytes")
        digest = hashlib.sha256(case.text).hexdigest()
        assert f"{len(case.text)} bytes (SHA-256 `{digest}`)" in said
        assert f"`{case.public_keys[0].hex()}`" in said
        assert f"`{pub_line(case.public_keys[0]).decode().rpartition(' ')[0]}`" in said
        assert MOVE in case.text

    def test_the_table(self) -> None:
        text, position = ledger_named("moved").text, 0
        (table,) = tables(PAGE, "A move in bytes")
        for number, (row, line) in enumerate(
            zip(table, text.splitlines(keepends=True), strict=True), 1
        ):
            assert [int(cell) for cell in row[:3]] == [number, position, len(line)]
            position += len(line)
        made = read(text).ledger
        assert made is not None
        signed = re.search(r"over bytes 0 to (\d+)", table[3][3])
        assert signed
        assert covered(made.head, made.records[0]) == text[: int(signed[1]) + 1]
        split = text.splitlines(keepends=True)
        assert covered(made.head, made.last) == split[0] + b"".join(split[4:7])

    def test_the_hash_of_a_deletion(self) -> None:
        assert f"`{DELETED_CONTENT.hex()}`" in prose(PAGE, "Deletions")
        assert f"`{DELETED_BUILD}`" in prose(PAGE, "Deletions")


class TestTables:
    def test_paths(self) -> None:
        (table,) = tables(PAGE, "Paths")
        assert len(table) >= 4
        for path, spelled in table:
            line = format_head(LedgerHead(bytes(32), spans(path)[0].encode()))
            assert line.endswith(f" path={spans(spelled)[0]}\n".encode())

    def test_limits(self) -> None:
        (table,) = tables(PAGE, "Limits")
        found = [int(row[1].split()[0].replace(",", "")) for row in table[:3]]
        assert found == [ledger.MAX_SIZE, ledger.MAX_LINE, ledger.MAX_SIGNATURES]

    def test_kinds(self) -> None:
        (table,) = tables(PAGE, "Verdict")
        kinds = {spans(row[0])[0] for row in table}
        assert kinds == {"syntax", "limit", "structure", "merkle", "signature"}


class TestTheProgram:
    @pytest.fixture
    def by_hand(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> ByHand:
        monkeypatch.chdir(tmp_path)
        return ByHand(tmp_path, capsys)

    def test_it_is_short_and_needs_no_code_of_ours(self) -> None:
        (block,) = blocks(PAGE, "python")
        assert block.section == BY_HAND
        modules = set(re.findall(r"^(?:import|from) (\w+)", block.text, re.MULTILINE))
        assert modules == {"base64", "hashlib", "re", "nacl"}
        assert len(block.text.splitlines()) <= 35

    def test_the_example(self, by_hand: ByHand) -> None:
        first, second = blocks(PAGE, "", BY_HAND)
        assert by_hand(printed(), public_key()) == first.text
        case = ledger_named("moved")
        assert by_hand(case.text, case.public_keys[0]) == second.text

    @pytest.mark.parametrize("case", READABLE, ids=lambda c: c.file)
    def test_it_agrees_with_our_reader(self, case: LedgerCase, by_hand: ByHand) -> None:
        made = read(case.text).ledger
        assert made is not None
        broken = [p.line or 0 for p in read(case.text).problems if p.kind == "merkle"]
        wanted, start = [], list(ledger.record_lines(made))
        for record, line in zip(made.records, start, strict=True):
            chained = not broken or line + 1 + (record.at is not None) < min(broken)
            signed = signed_by(made.head, record, case.public_keys[:1]).valid
            wanted.append(("chained" if chained else "BROKEN", "signed" if signed else "-"))
        out = by_hand(case.text, case.public_keys[0]).splitlines()
        assert [tuple(line.split()[2:4]) for line in out] == wanted
        moves = [
            [] if r.at is None else [format_at(r.at).split()[1].decode()] for r in made.records
        ]
        assert [line.split()[4:] for line in out] == moves

    def test_damage(self, by_hand: ByHand) -> None:
        text = ledger_named("four").text
        key = ledger_named("four").public_keys[0]

        def told(old: bytes, new: bytes) -> list[str]:
            assert text.count(old) >= 1
            out = by_hand(text.replace(old, new, 1), key)
            return [" ".join(line.split()[2:]) for line in out.splitlines()]

        good = ["chained signed"] * 4
        assert told(b"build=c1", b"build=c1") == good
        assert told(b"build=c1", b"build=c9") == [good[0], "BROKEN -", *["BROKEN signed"] * 2]
        assert told(b"host=any", b"host=cpu") == ["chained -", *good[1:]]
        assert told(b"path=models", b"path=Models") == ["chained -"] * 4
        assert told(b"DQ== keyid", b"AQ== keyid").count("chained -") == 1

    def test_a_move_that_was_not_signed(self, by_hand: ByHand) -> None:
        case = ledger_named("moved")
        for old, new in ((b"at path=models/b", b"at path=models/c"), (MOVE, b"")):
            assert case.text.count(old) == 1
            out = by_hand(case.text.replace(old, new), case.public_keys[0]).splitlines()
            assert [line.split()[2:4] for line in out] == [["chained", "signed"], ["chained", "-"]]

    def test_another_key(self, by_hand: ByHand) -> None:
        out = by_hand(ledger_named("four").text, bytes(range(32)))
        assert [line.split()[3] for line in out.splitlines()] == ["-"] * 4


class ByHand:
    """Runs the page's program on a ledger, and gives what it prints."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def __call__(self, text: bytes, key: bytes) -> str:
        (self._folder / "model.fold.wsum").write_bytes(text)
        (self._folder / "alice.pub").write_bytes(pub_line(key))
        execute(PAGE, BY_HAND)
        return self._capsys.readouterr().out
