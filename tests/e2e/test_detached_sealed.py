"""Seals of detached texts, and what an audit holds them against, with their payload and without."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from hashlib import sha256

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    Sealed,
    assert_found,
    assert_holds,
    secret,
    signed_ledger,
)
from tests.kit import safetensors, text_of
from tests.text.naive_detached import detached
from wtxtgit.model.ledger import Ledger, Record
from wtxtgit.store.place import store_of
from wtxtgit.text import ledger as text_ledger

CHANCE = random.Random(2)  # noqa: S311 - the same in every run
VALUES = [CHANCE.gauss(0, 1) for _ in range(24_000)]
ATTRIBUTES = "*.safetensors filter=wtxt-detached diff=wtxt merge=wtxt -text\n"


def version(last: float) -> bytes:
    """The text of a checkpoint, which is large enough to be detached."""
    return text_of(safetensors(*VALUES, last))


def put(repo: Sealed, text: bytes, *, kept: bool = True) -> bytes:
    """Stage the detached text of a text, and keep its payload; gives what is staged."""
    made, payload = detached(text)
    if kept:
        with store_of(repo.repository).writing() as writer:
            for name, chunk in payload.items():
                writer.put(bytes.fromhex(name), memoryview(chunk), 4)
    repo.write(MODEL, made)
    repo.add(MODEL)
    return made


@pytest.fixture
def kept(chain: Sealed) -> Sealed:
    """A repository whose checkpoint became a detached text, sealed so and committed."""
    chain.write(".gitattributes", ATTRIBUTES)
    chain.add(".gitattributes")
    put(chain, version(1.0))
    chain.seal(MODEL)
    chain.commit()
    return chain


def forget(repo: Sealed) -> None:
    """Take away the payload, and all that is known of it."""
    for folder in ("wtxt", "wtxtgit"):
        shutil.rmtree(repo.path / ".git" / folder, ignore_errors=True)


def last(repo: Sealed) -> Record:
    read = text_ledger.read(repo.blob(LEDGER, "")).ledger
    assert read is not None
    return read.last


def assert_only_held_against_the_record(repo: Sealed) -> None:
    said = assert_holds(repo)
    assert any("held against the record alone" in note for note in said.report["notes"])


class TestSeal:
    def test_the_record_names_the_blob(self, kept: Sealed) -> None:
        text = version(1.0)
        made = kept.blob(MODEL, "HEAD")
        assert made == detached(text)[0]
        assert last(kept).detached == sha256(made).digest()
        root = text[text.index(b"sha256_all=") + 11 :][:64].decode()
        assert last(kept).sha256_all.hex() == root
        assert b"\ndetached sha256=" in kept.ledger()
        assert kept.seal(MODEL).out == "all 1 are sealed already\n"

    def test_with_payload_all_is_proved(self, kept: Sealed) -> None:
        said = assert_holds(kept)
        assert not any("held against" in note for note in said.report["notes"])

    def test_without_payload_the_line_is_what_it_is_held_against(self, kept: Sealed) -> None:
        forget(kept)
        assert_only_held_against_the_record(kept)

    def test_nothing_is_sealed_without_its_payload(self, kept: Sealed) -> None:
        put(kept, version(2.0), kept=False)
        said = kept.call("seal", "--staged", "--key", "alice", MODEL, ok=(1,))
        assert "at hand" in said.err
        assert kept.git("diff", "--cached", "--name-only").split() == [MODEL.encode()]

    def test_a_file_of_the_work_tree_is_sealed_as_git_will_have_it(self, kept: Sealed) -> None:
        kept.write(MODEL, safetensors(*VALUES, 3.0))
        kept.call("seal", "--key", "alice", MODEL)
        put(kept, version(3.0))
        kept.add(LEDGER)
        kept.commit()
        assert_holds(kept)

    def test_forms_change_in_one_chain(self, kept: Sealed) -> None:
        first = last(kept)
        kept.write(MODEL, version(1.0))
        kept.add(MODEL)
        # A whole text proves itself: the record that there is will do.
        assert kept.seal(MODEL).out == "all 1 are sealed already\n"
        kept.commit()
        assert_holds(kept)
        assert last(kept) == first

    def test_a_whole_text_that_is_detached_is_sealed_anew(self, chain: Sealed) -> None:
        chain.write(MODEL, version(1.0))
        chain.add(MODEL)
        chain.seal(MODEL)
        chain.commit()
        before = last(chain)
        chain.write(".gitattributes", ATTRIBUTES)
        chain.add(".gitattributes")
        put(chain, version(1.0))
        unsealed = chain.commit()
        assert_found(chain, (unsealed, MODEL, "content-mismatch"))
        chain.git("reset", "-q", "--soft", "HEAD~1")
        chain.seal(MODEL)
        chain.commit()
        assert_holds(chain)
        after = last(chain)
        assert (after.sha256_all, after.merkle_prev) == (before.sha256_all, before.merkle_this)
        forget(chain)
        assert_only_held_against_the_record(chain)


class TestAttacks:
    @pytest.mark.parametrize("payload", [True, False], ids=["payload", "none"])
    def test_other_chunks_under_a_sealed_root(self, kept: Sealed, payload: bool) -> None:
        ours, theirs = detached(version(1.0))[0], version(9.0)
        other, _ = detached(theirs)
        head = ours.index(b"arr name=")
        swapped = ours[:head] + other[other.index(b"arr name=") :]
        put(kept, theirs)
        kept.write(MODEL, swapped)
        kept.add(MODEL)
        bad = kept.commit()
        if not payload:
            forget(kept)
        said = kept.audit()
        assert said.code == 1
        kinds = {found.kind for found in said.found if found.commit == bad}
        assert "content-mismatch" in kinds
        assert ("corrupt-text" in kinds) == payload

    @pytest.mark.parametrize("payload", [True, False], ids=["payload", "none"])
    def test_an_inline_array_that_was_changed(self, kept: Sealed, payload: bool) -> None:
        text = kept.blob(MODEL, "HEAD")
        # Of the header's array, its data line: another character, and parity to match.
        at = text.index(b"\n", text.index(b"\nch ix=", text.index(b"arr name=_header")) + 1) + 1
        other = b"B" if text[at : at + 1] != b"B" else b"C"
        kept.write(MODEL, text[:at] + other + text[at + 1 :])
        kept.add(MODEL)
        bad = kept.commit()
        if not payload:
            forget(kept)
        found = [(f.commit, f.kind) for f in kept.audit().found]
        assert (bad, "corrupt-text") in found
        assert (bad, "content-mismatch") in found

    def test_a_record_without_its_line(self, kept: Sealed) -> None:
        ledger = text_ledger.read(kept.ledger()).ledger
        assert ledger is not None
        unsigned = [replace(record, signatures=()) for record in ledger.records]
        records = (*unsigned[:-1], replace(unsigned[-1], detached=None))
        # As an older version of us would sign it.
        kept.write(LEDGER, signed_ledger(kept, MODEL, records, secret("alice")))
        kept.git("reset", "-q", "--soft", "HEAD~1")
        kept.git("add", "--all")
        bad = kept.commit()
        assert_found(kept, (bad, MODEL, "content-mismatch"))
        forget(kept)
        assert_found(kept, (bad, MODEL, "content-mismatch"))

    def test_a_line_that_nobody_signed(self, kept: Sealed) -> None:
        ledger = text_ledger.read(kept.ledger()).ledger
        assert ledger is not None
        made, _ = detached(version(9.0))
        forged = replace(ledger.last, detached=sha256(made).digest())
        text = text_ledger.format_ledger(Ledger(ledger.head, (*ledger.records[:-1], forged)))
        kept.write(LEDGER, text)
        kept.write(MODEL, made)
        kept.git("add", "--all")
        bad = kept.commit()
        forget(kept)
        said = kept.audit()
        assert said.code != 0
        assert any(found.commit == bad for found in said.found)

    def test_a_detached_text_that_nothing_filters_any_more(self, kept: Sealed) -> None:
        kept.write(".gitattributes", "")
        kept.add(".gitattributes")
        bad = kept.commit()
        assert (bad, MODEL, "untracked-artifact", "error") in kept.audit().found
        forget(kept)
        assert (bad, MODEL, "untracked-artifact", "error") in kept.audit().found

    def test_a_damaged_store_is_no_fault_of_the_text(self, kept: Sealed) -> None:
        shutil.rmtree(kept.path / ".git/wtxt/", ignore_errors=True)
        put(kept, version(1.0))
        for pack in (kept.path / ".git/wtxt/store/packs").glob("*.pack"):
            content = bytearray(pack.read_bytes())
            content[len(content) // 2] ^= 1
            pack.chmod(0o600)
            pack.write_bytes(content)
        assert_only_held_against_the_record(kept)


def test_the_line_has_one_spelling() -> None:
    line = b"detached sha256=" + b"ab" * 32 + b"\n"
    assert text_ledger.parse_detached(line, 0) == (b"\xab" * 32, len(line))
    assert text_ledger.format_detached(b"\xab" * 32) == line
    for other in (line.upper(), line[:-2] + b"\n", line.replace(b"sha256=", b"sha256= ")):
        assert text_ledger.parse_detached(other, 0) is None


def test_a_detached_line_stands_in_its_place_alone(kept: Sealed) -> None:
    ledger = kept.ledger()
    lines = ledger.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith(b"detached "))
    report = text_ledger.read(ledger)
    assert report.ok
    assert report.ledger is not None
    assert text_ledger.format_ledger(report.ledger) == ledger
    *_, number = text_ledger.record_lines(report.ledger)
    assert lines[number - 1].startswith(b"meta ")
    swapped = [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]
    twice = [*lines[: at + 1], *lines[at:]]
    behind = [*lines[:at], *lines[at + 1 :], lines[at]]
    for wrong in (swapped, twice, behind):
        assert text_ledger.read(b"".join(wrong)).ledger is None
    missing = text_ledger.read(b"".join([*lines[:at], *lines[at + 1 :]]))
    assert missing.ledger is not None
    assert missing.ledger.last.detached is None
