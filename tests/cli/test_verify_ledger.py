"""`wtxtgit verify` of ledgers: the vectors, the codes, the words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.data import LedgerCase, case_named, ledger_cases, ledger_named, signers_lines
from tests.kit import Repo

LEDGERS = [case for case in ledger_cases() if case.text.startswith(b"WLEDGER ")]
OTHERS = [case for case in ledger_cases() if case not in LEDGERS]


@pytest.fixture
def signers(tmp_path: Path) -> Path:
    """A signers file with the first key of the vectors."""
    path = tmp_path / "signers"
    path.write_bytes(signers_lines(ledger_named("one").public_keys))
    return path


def files(out: bytes) -> list[dict[str, Any]]:
    found = json.loads(out)
    assert set(found) == {"ok", "files"}
    assert found["ok"] == all(file["ok"] for file in found["files"])
    listed: list[dict[str, Any]] = found["files"]
    return listed


@pytest.mark.parametrize("case", LEDGERS, ids=lambda c: c.file)
def test_vectors(case: LedgerCase, wtxtgit: Command, tmp_path: Path) -> None:
    (tmp_path / "signers").write_bytes(signers_lines(case.public_keys))
    done = wtxtgit("verify", case.path, "--signers", tmp_path / "signers", "--json")
    assert done.err == ""
    (record,) = files(done.out)
    assert record["format"] == "ledger"
    assert record["ok"] is case.valid
    kinds = {error["kind"] for error in record["errors"]}
    assert kinds >= case.kinds
    assert done.code == (0 if case.valid else 4 if kinds == {"signature"} else 1)
    for error in record["errors"]:
        assert set(error) == {"kind", "message", "line"}
    if case.signed_by is None:
        assert "records" not in record
        assert "signature" not in record
    else:
        assert tuple(r["signed_by"] for r in record["records"]) == case.signed_by


@pytest.mark.parametrize("case", OTHERS, ids=lambda c: c.file)
def test_what_does_not_start_as_a_ledger_is_nothing_known(
    case: LedgerCase, wtxtgit: Command
) -> None:
    done = wtxtgit("verify", case.path, "--json")
    assert (done.code, done.err) == (3, "")
    (record,) = files(done.out)
    assert record["format"] == "unknown"
    assert {error["kind"] for error in record["errors"]} == case.kinds == {"syntax"}


def test_there_are_both_kinds() -> None:
    assert len(LEDGERS) > 20
    assert len(OTHERS) >= 2


def test_records_as_json(wtxtgit: Command, signers: Path) -> None:
    case = ledger_named("one_key_unknown")
    done = wtxtgit("verify", case.path, "--signers", signers, "--json")
    (record,) = files(done.out)
    assert set(record) == {"path", "format", "ok", "errors", "warnings", "signature", "records"}
    assert record["path"] == str(case.path)
    assert record["signature"] == "valid"
    assert record["records"][0] == {
        "gen": 1,
        "ts": "2026-02-01T00:00:00Z",
        "build": "c0",
        "sha256_all": "48737e17a6e28ffbe546e547000a25b004fd863437a48feb7766a69b769ce73d",
        "signed_by": 1,
        "keyids": ["436fe053345cb651", "e00dfdec7e6443c3"],
    }


def test_moves_as_json(wtxtgit: Command, tmp_path: Path) -> None:
    """Records that move the ledger say where to, the others nothing."""
    for name, moves in (
        ("moved_back", [None, "models/b.fold", "models/a.fold"]),
        ("moved_escaped", [None, "größe/100% b.fold"]),
    ):
        case = ledger_named(name)
        (tmp_path / "signers").write_bytes(signers_lines(case.public_keys))
        (record,) = files(
            wtxtgit("verify", case.path, "--signers", tmp_path / "signers", "--json").out
        )
        assert [told.get("at") for told in record["records"]] == moves
        assert ["at" in told for told in record["records"]] == [move is not None for move in moves]


def test_a_signature_that_does_not_fit_is_told_with_its_line(
    wtxtgit: Command, signers: Path
) -> None:
    path = ledger_named("meta_host_changed").path
    done = wtxtgit("verify", path, "--signers", signers)
    assert (done.code, done.err) == (4, "")
    first, second = done.out.decode().splitlines()
    assert first == f"FAILED  {path}  (ledger, 4 records, signature invalid)"
    assert second.strip() == (
        "signature: line 5: the signature of keyid 436fe053345cb651 does not match the record "
        "and the given keys"
    )


@pytest.mark.parametrize(
    ("name", "known", "words", "code"),
    [
        ("four", True, [], 0),
        ("co_signed", True, [], 0),
        ("one_key_unknown", True, [], 0),
        ("unsigned", True, ["not signed"] * 3, 4),
        ("four", False, ["by an unknown key"] * 4, 4),
        ("other_path", True, ["does not match"] * 3, 4),
        ("other_path", False, ["by an unknown key"] * 3, 4),
    ],
)
def test_signatures_on_demand(
    name: str, known: bool, words: list[str], code: int, wtxtgit: Command, signers: Path
) -> None:
    if not known:
        signers.write_bytes(signers_lines((b"\3" * 32,)))
    path = ledger_named(name).path
    done = wtxtgit("verify", path, "--signers", signers, "--require-signed", "--json")
    assert done.code == code
    (record,) = files(done.out)
    errors = record["errors"]
    assert [error["kind"] for error in errors] == ["signature"] * len(words)
    assert all(word in error["message"] for word, error in zip(words, errors, strict=True))
    lines = path.read_bytes().splitlines()
    assert all(lines[error["line"] - 1].startswith(b"meta ") for error in errors)


def test_without_keys_signatures_are_only_counted_as_unknown(wtxtgit: Command) -> None:
    done = wtxtgit("verify", ledger_named("other_path").path, ledger_named("unsigned").path)
    assert (done.code, done.err) == (0, "")
    told = [line.rpartition("(")[2] for line in done.out.decode().splitlines()]
    assert told == [
        "ledger, 3 records, signature unknown-key)",
        "ledger, 3 records, signature absent)",
    ]
    assert wtxtgit("verify", ledger_named("unsigned").path, "--require-signed").code == 4


def test_damage_outweighs_signatures(wtxtgit: Command, signers: Path) -> None:
    bad, forged = ledger_named("gap").path, ledger_named("other_path").path
    assert wtxtgit("verify", bad, forged, "--signers", signers).code == 1
    assert wtxtgit("verify", forged, "--signers", signers).code == 4
    data = ledger_named("other_path").text.replace(b"gen=000003", b"gen=000001")
    (wtxtgit.folder / "both.wsum").write_bytes(data)
    assert wtxtgit("verify", "both.wsum", "--signers", signers).code == 1


def test_a_key_for_hmacs_is_not_taken_for_nothing(wtxtgit: Command, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"key")
    path = ledger_named("four").path
    assert wtxtgit("verify", path, "--hmac-key", tmp_path / "key").code == 1
    options = ("--hmac-key", tmp_path / "key", "--allow-unauthenticated")
    assert wtxtgit("verify", path, *options).code == 0


def test_a_single_wsum_needs_its_text(wtxtgit: Command) -> None:
    case = case_named("valid/pending_with_wsum.wtxt")
    assert case.wsum is not None
    (wtxtgit.folder / "w.wsum").write_bytes(case.wsum)
    done = wtxtgit("verify", "w.wsum")
    assert (done.code, done.err) == (3, "")
    assert b"a WSUM means nothing without its text" in done.out
    assert wtxtgit("verify", case.path, "--wsum", "w.wsum").code == 0


def test_a_ledger_of_a_commit(repo: Repo, driver: None) -> None:
    repo.write("m.fold.wsum", ledger_named("gap").text)
    repo.add()
    repo.commit()
    done = repo.wtxtgit("verify", "HEAD:m.fold.wsum", "--json", ok=(1,))
    (record,) = files(done.stdout)
    assert (record["format"], record["ok"]) == ("ledger", False)
