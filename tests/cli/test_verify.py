"""`wtxtgit verify`: the vectors, the codes, the words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command, Done
from tests.data import (
    FIXTURES,
    VECTORS,
    Case,
    all_entries,
    case_named,
    cases,
    fixture,
    path_of,
    signers_lines,
    valid_cases,
)
from tests.kit import Repo

PLAIN = [case for case in cases() if case.is_plain]
SMALL = case_named("texts/signature_by_small_key.wtxt")
KEYED = [case for case in cases() if not case.is_plain and case is not SMALL]
ONLY_TRUST = frozenset({"signature"})


def check_file(case: Case, record: dict[str, Any]) -> None:
    """A file's part of `verify --json` says what the vectors' manifest says."""
    assert record["path"] == str(case.path)
    assert record["ok"] is case.valid
    kinds = {error["kind"] for error in record["errors"]}
    assert kinds >= case.kinds
    for error in record["errors"] + record["warnings"]:
        assert set(error) <= {"kind", "message", "line", "array", "chunk", "offset"}
    if case.valid:
        assert record["format"] == "wtxt"
        assert record["errors"] == []
        assert record["sha256_all"] == case.expected["sha256_all"]
        assert record["signature"] == case.expected["signature"]
        assert record["authenticated"] == case.expected["authenticated"]
        assert record["arrays"] == case.expected["arrays"]
    else:
        assert kinds


def test_every_plain_vector_in_one_call(wtxtgit: Command) -> None:
    assert len(PLAIN) > 100
    done = wtxtgit("verify", "--json", *[case.path for case in PLAIN])
    assert (done.code, done.err) == (1, "")
    verdict = json.loads(done.out)
    assert set(verdict) == {"ok", "files"}
    assert verdict["ok"] is False
    for case, record in zip(PLAIN, verdict["files"], strict=True):
        check_file(case, record)


def test_all_valid_plain_vectors_together_are_ok(wtxtgit: Command) -> None:
    paths = [case.path for case in valid_cases() if case.is_plain]
    done = wtxtgit("verify", "--json", *paths)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["ok"] is True


def with_keys(case: Case, folder: Path) -> list[str | Path]:
    options: list[str | Path] = []
    if case.wsum_file is not None:
        options += ["--wsum", case.folder / case.wsum_file]
    if case.hmac_key is not None:
        (folder / "hmac").write_bytes(case.hmac_key)
        options += ["--hmac-key", folder / "hmac"]
    if case.public_keys:
        (folder / "signers").write_bytes(signers_lines(case.public_keys))
        options += ["--signers", folder / "signers"]
    return options


@pytest.mark.parametrize("case", KEYED, ids=lambda c: c.file)
def test_a_vector_with_keys_or_a_wsum(case: Case, wtxtgit: Command, tmp_path: Path) -> None:
    done = wtxtgit("verify", "--json", case.path, *with_keys(case, tmp_path))
    assert done.err == ""
    (record,) = json.loads(done.out)["files"]
    check_file(case, record)
    if case.valid:
        assert done.code == 0
    else:
        kinds = {error["kind"] for error in record["errors"]}
        assert done.code == (4 if kinds <= ONLY_TRUST else 1)


def test_a_file_of_keys_with_one_of_small_order_is_refused(
    wtxtgit: Command, tmp_path: Path
) -> None:
    done = wtxtgit("verify", SMALL.path, *with_keys(SMALL, tmp_path))
    assert (done.code, done.out) == (3, b"")
    assert "line 1: a key of small order" in done.err


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("valid/one_byte.wtxt", 0),
        ("invalid/flipped_char.wtxt", 1),
        ("invalid/crlf.wtxt", 1),
        ("invalid/pending_alone.wtxt", 1),
        ("invalid/magic_2.wtxt", 1),
        ("invalid/bom.wtxt", 3),
    ],
)
def test_the_code_of_one_text(file: str, code: int, wtxtgit: Command) -> None:
    done = wtxtgit("verify", VECTORS / file)
    assert (done.code, done.err) == (code, "")
    assert done.out.startswith({0: b"ok", 1: b"FAILED", 3: b"unknown"}[code])


def test_damage_is_told_with_line_array_and_chunk(wtxtgit: Command) -> None:
    done = wtxtgit("verify", VECTORS / "invalid/flipped_char.wtxt")
    assert b'parity: line 9, array "W", chunk 0: ' in done.out or b"parity: line " in done.out
    assert b'array "' in done.out
    assert b"chunk 0" in done.out


def test_the_worst_of_several_files_decides_the_code(wtxtgit: Command) -> None:
    good, bad = VECTORS / "valid/one_byte.wtxt", VECTORS / "invalid/crlf.wtxt"
    (wtxtgit.folder / "junk").write_bytes(b"junk")
    assert wtxtgit("verify", good, bad).code == 1
    assert wtxtgit("verify", good, "junk").code == 3
    assert wtxtgit("verify", good, "missing").code == 3
    assert wtxtgit("verify", bad, "missing").code == 1


def test_a_signature_is_demanded_on_request(wtxtgit: Command, tmp_path: Path) -> None:
    case = case_named("valid/signed.wtxt")
    signers = tmp_path / "signers"
    signers.write_bytes(signers_lines(case.public_keys))
    assert wtxtgit("verify", case.path, "--signers", signers, "--require-signed").code == 0
    assert wtxtgit("verify", case.path, "--require-signed").code == 4
    signers.write_bytes(signers_lines((b"\3" * 32,)))
    assert wtxtgit("verify", case.path, "--signers", signers, "--require-signed").code == 4
    assert wtxtgit("verify", case.path, "--signers", signers).code == 0
    unsigned = VECTORS / "valid/one_byte.wtxt"
    assert wtxtgit("verify", unsigned, "--require-signed").code == 4


def test_a_demand_for_a_signature_does_not_pass_a_container(wtxtgit: Command) -> None:
    done = wtxtgit("verify", FIXTURES / "fold/none_json_a.fold", "--require-signed")
    assert done.code != 0


def test_an_array_without_hmac_passes_a_key_only_on_request(
    wtxtgit: Command, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"key")
    path = VECTORS / "valid/one_byte.wtxt"
    assert wtxtgit("verify", path, "--hmac-key", key).code == 1
    assert wtxtgit("verify", path, "--hmac-key", key, "--allow-unauthenticated").code == 0


FORMATS = {
    "FOLD": "fold",
    "AERO": "aero",
    "AEROSET": "aeroset",
    "MLCP": "mlcp",
    "TARIDX": "taridx",
    "safetensors": "safetensors",
    "npz": "npz",
    "torch.pt": "torch",
}
KEYS = {"env PYFOLDS_INTEGRITY_KEY", "key_hex"}
OWN_DAMAGE = "tidx_overruns_wtsh_writer_bug"
"""A bug of the original writer, which breaks the hashes of its files."""


def test_files_of_the_original_writers_hold(wtxtgit: Command) -> None:
    listed = [e for e in all_entries() if e["valid"] and OWN_DAMAGE not in e["quirks"]]
    done = wtxtgit("verify", "--json", *map(path_of, listed))
    assert (done.code, done.err) == (0, "")
    for entry, record in zip(listed, json.loads(done.out)["files"], strict=True):
        assert record["ok"]
        assert record["format"] == FORMATS[entry["format"]]
        assert record["errors"] == []
        assert bool(KEYS & set(entry["options"])) <= bool(record["warnings"])


def test_what_they_damaged_themselves_is_told(wtxtgit: Command) -> None:
    listed = [e for e in all_entries() if OWN_DAMAGE in e["quirks"]]
    assert listed
    done = wtxtgit("verify", "--json", *map(path_of, listed))
    assert (done.code, done.err) == (1, "")
    for record in json.loads(done.out)["files"]:
        assert {error["kind"] for error in record["errors"]} == {"blake3"}
        assert all("offset" in error for error in record["errors"])


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("aero/low_ihsh_write_a.aero", 1, "filled with zeros"),
        ("aero/low_file_flags_a.aero", 1, "file_flags"),
        ("fold/unfinalized_a.fold", 1, "not finalized"),
        ("mlcp/meta_more_shards_a.checkpoint", 1, "shards"),
    ],
)
def test_files_that_are_not_valid(path: str, code: int, words: str, wtxtgit: Command) -> None:
    done = wtxtgit("verify", FIXTURES / path, "--json")
    assert (done.code, done.err) == (code, "")
    (record,) = json.loads(done.out)["files"]
    first = record["errors"][0]
    assert first["kind"] == "structure"
    assert words in first["message"]
    assert isinstance(first["offset"], int)
    assert first["field"]
    plain = wtxtgit("verify", FIXTURES / path)
    assert (plain.code, plain.err) == (code, "")
    assert words in plain.out.decode()


def test_keys_of_fold_files(wtxtgit: Command, tmp_path: Path) -> None:
    key, wrong = tmp_path / "key", tmp_path / "wrong"
    entry = next(e for e in all_entries() if e["file"] == "fold/encrypted_high_a.fold")
    key.write_bytes(bytes.fromhex(entry["options"]["key_hex"]))
    wrong.write_bytes(bytes(32))
    done = wtxtgit("verify", path_of(entry), "--key", key, "--json")
    assert done.code == 0
    assert json.loads(done.out)["files"][0]["warnings"] == []
    assert wtxtgit("verify", path_of(entry), "--key", wrong).code == 1
    wrong.write_bytes(b"short")
    done = wtxtgit("verify", path_of(entry), "--key", wrong)
    assert "32 bytes or 64 hex digits" in complaint(done, 3)

    entry = next(e for e in all_entries() if e["file"] == "fold/hmac_a.fold")
    key.write_text(entry["options"]["env PYFOLDS_INTEGRITY_KEY"])
    done = wtxtgit("verify", path_of(entry), "--hmac-key", key, "--json")
    assert done.code == 0
    (record,) = json.loads(done.out)["files"]
    assert record["authenticated"] is True
    assert record["warnings"] == []
    done = wtxtgit("verify", path_of(entry), "--hmac-key", wrong, "--json")
    assert done.code == 1
    assert {e["kind"] for e in json.loads(done.out)["files"][0]["errors"]} >= {"hmac"}
    plain = FIXTURES / "fold/none_json_a.fold"
    assert wtxtgit("verify", plain, "--hmac-key", key).code == 1
    assert wtxtgit("verify", plain, "--hmac-key", key, "--allow-unauthenticated").code == 0


def test_a_limit_is_the_users(wtxtgit: Command) -> None:
    path = FIXTURES / "fold/none_sten_alldtypes_a.fold"
    assert wtxtgit("verify", path, "--max-chunk", "1MiB").code == 0
    done = wtxtgit("verify", path, "--max-chunk", "1kB", "--json")
    assert done.code == 5
    assert {e["kind"] for e in json.loads(done.out)["files"][0]["errors"]} == {"limit"}


def test_a_damaged_container_is_told_with_its_place(wtxtgit: Command) -> None:
    data = bytearray(fixture("fold/none_sten_alldtypes_a.fold"))
    data[1500] ^= 1
    (wtxtgit.folder / "d.fold").write_bytes(data)
    done = wtxtgit("verify", "d.fold", "--json")
    assert done.code == 1
    (record,) = json.loads(done.out)["files"]
    assert {error["kind"] for error in record["errors"]} == {"crc32c", "sha256"}
    assert {error["chunk"] for error in record["errors"]} == {"torch_state"}
    lines = wtxtgit("verify", "d.fold").out.decode().splitlines()
    assert any(line.strip().startswith('crc32c: chunk "torch_state", byte ') for line in lines)


def test_a_blob_of_a_commit_is_verified(repo: Repo, driver: None) -> None:
    repo.track("*.fold")
    repo.write("m.fold", fixture("fold/none_json_a.fold"))
    repo.add()
    repo.commit()
    found = json.loads(repo.wtxtgit("verify", "HEAD:m.fold", "--json").stdout)
    assert [(file["path"], file["format"], file["ok"]) for file in found["files"]] == [
        ("HEAD:m.fold", "wtxt", True)
    ]


def complaint(done: Done, code: int) -> str:
    assert done.code == code
    assert done.out == b""
    return done.complaint()


@pytest.mark.parametrize(
    ("option", "content", "code"),
    [
        ("--signers", b"junk\n", 3),
        ("--signers", b"\xff", 3),
        ("--hmac-key", b"", 3),
        ("--wsum", bytes(70_000), 3),
    ],
)
def test_a_bad_key_file_ends_the_command(
    option: str, content: bytes, code: int, wtxtgit: Command
) -> None:
    (wtxtgit.folder / "keys").write_bytes(content)
    done = wtxtgit("verify", VECTORS / "valid/one_byte.wtxt", option, "keys")
    assert "keys" in complaint(done, code)


@pytest.mark.parametrize("option", ["--signers", "--hmac-key", "--wsum"])
def test_a_key_file_that_is_not_there_ends_the_command(option: str, wtxtgit: Command) -> None:
    done = wtxtgit("verify", VECTORS / "valid/one_byte.wtxt", option, "missing")
    assert complaint(done, 3) == "missing: no such file or directory"
