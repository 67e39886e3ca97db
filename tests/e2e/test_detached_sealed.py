"""Seals of detached texts, and what an audit holds them against, with their payload and without."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from hashlib import sha256

import pytest

from tests.e2e.conftest import Grown
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    ROOT,
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
WHOLE = "*.safetensors filter=wtxt diff=wtxt merge=wtxt -text\n"
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
def kept(grown: Grown) -> Sealed:
    """A repository whose checkpoint became a detached text, sealed so and committed."""

    def grow(chain: Sealed) -> None:
        chain.write(".gitattributes", ATTRIBUTES)
        chain.add(".gitattributes")
        put(chain, version(1.0))
        chain.seal(MODEL)
        chain.commit()

    return grown("detached", grow)


def forget(repo: Sealed) -> None:
    """Take away the payload, and all that is known of it."""
    for folder in ("wtxt", "wtxtgit"):
        shutil.rmtree(repo.path / ".git" / folder, ignore_errors=True)


def last(repo: Sealed) -> Record:
    read = text_ledger.read(repo.blob(LEDGER, "")).ledger
    assert read is not None
    return read.last


def assert_judged(repo: Sealed, *, verified: int = 0, held: int = 0) -> None:
    """An audit holds, and says how far so many detached texts are proved."""
    report = assert_holds(repo).report
    assert report["detached"] == {"verified": verified, "held": held}
    (note,) = (note for note in report["notes"] if "detached text" in note)
    counts = [f"{verified} verified with payload"] if verified else []
    counts += [f"{held} compared with the seal as text only"] if held else []
    assert note.split(": ", 1)[1] == ", ".join(counts)


def assert_only_held_against_the_record(repo: Sealed) -> None:
    assert_judged(repo, held=1)


class TestSeal:
    def test_the_record_names_the_blob(self, kept: Sealed) -> None:
        text = version(1.0)
        made = kept.blob(MODEL, "HEAD")
        assert made == detached(text)[0]
        assert last(kept).detached == sha256(made).digest()
        root = text[text.index(b"sha256_all=") + 11 :][:64].decode()
        assert last(kept).sha256_all.hex() == root
        assert b"\ndetached sha256=" in kept.ledger()
        assert kept.seal(MODEL).out == f"{MODEL} is already sealed\n"

    def test_with_payload_all_is_proved(self, kept: Sealed) -> None:
        assert_judged(kept, verified=1)

    def test_without_payload_the_line_is_what_it_is_held_against(self, kept: Sealed) -> None:
        forget(kept)
        assert_only_held_against_the_record(kept)

    def test_nothing_is_sealed_without_its_payload(self, kept: Sealed) -> None:
        put(kept, version(2.0), kept=False)
        said = kept.call("seal", "--staged", "--key", "alice", MODEL, ok=(1,))
        assert said.err.splitlines() == [
            f"wtxtgit: error: {MODEL}: 1 of 2 chunks are not available here",
            "wtxtgit: hint: wtxtgit fetch fetches the missing data",
        ]
        assert kept.git("diff", "--cached", "--name-only").split() == [MODEL.encode()]

    def test_what_is_sealed_already_needs_no_payload(self, kept: Sealed) -> None:
        forget(kept)
        assert kept.seal().out == "all 3 are already sealed\n"
        kept.generation(5.0, name=OTHER)
        assert_judged(kept, held=1)

    def test_without_payload_nothing_of_it_is_signed(self, kept: Sealed) -> None:
        kept.add_signer("bob")
        kept.change_signers("alice")
        put(kept, version(2.0))
        kept.seal(MODEL)
        forget(kept)
        before = kept.blob(LEDGER, "")
        for arguments in (["--cosign"], ["--reseal"]):
            said = kept.call("seal", "--staged", *arguments, "--key", "bob", MODEL, ok=(0, 1))
            if said.code == 0:
                assert arguments == ["--reseal"]
                assert said.out == f"{MODEL} is already sealed\n"
            assert kept.blob(LEDGER, "") == before

    def test_a_move_is_sealed_with_payload_alone(self, kept: Sealed) -> None:
        kept.git("mv", MODEL, "moved.safetensors")
        kept.git("mv", LEDGER, "moved.safetensors.wsum")
        saved = kept.path / ".git/saved"
        (kept.path / ".git/wtxt").rename(saved)
        said = kept.call("seal", "--staged", "--key", "alice", ok=(1,))
        assert "not available here" in said.err
        saved.rename(kept.path / ".git/wtxt")
        kept.seal()
        kept.commit()
        forget(kept)
        # Both commits have the one blob.
        assert_judged(kept, held=1)

    def test_log_says_which_form_a_generation_has(self, kept: Sealed) -> None:
        whole, made = kept.blob(MODEL, ROOT), kept.blob(MODEL, "HEAD")
        assert len(made) < len(version(1.0))
        new, old = json.loads(kept.call("log", MODEL, "--json").out)["generations"]
        assert (new["detached"], new["size"]) == (sha256(made).hexdigest(), len(made))
        assert "detached" not in old
        assert old["size"] == len(whole)
        lines = kept.call("log", MODEL).out.splitlines()
        assert [" detached " in line for line in lines] == [False, True, False]

    def test_a_check_says_what_it_did_without_payload(self, kept: Sealed) -> None:
        put(kept, version(2.0))
        kept.seal(MODEL)
        assert "detached" not in kept.call("check", "--staged").out
        forget(kept)
        told = "note: 1 detached text: 1 compared with the seal as text only"
        assert told in kept.call("check", "--staged").out.splitlines()

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
        assert kept.seal(MODEL).out == f"{MODEL} is already sealed\n"
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


class TestForms:
    """A checkpoint changes its form and comes back, in one chain."""

    def turn(self, repo: Sealed, value: float, *, detached: bool) -> str:
        """Commit a version in a form, sealed."""
        repo.write(".gitattributes", ATTRIBUTES if detached else WHOLE)
        repo.add(".gitattributes")
        if detached:
            put(repo, version(value))
        else:
            repo.write(MODEL, version(value))
            repo.add(MODEL)
        repo.seal(MODEL)
        return repo.commit(f"{value} {detached}")

    @pytest.mark.slow
    def test_there_and_back(self, chain: Sealed) -> None:
        forms = [(1.0, False), (2.0, True), (2.0, False), (3.0, False), (3.0, True), (4.0, True)]
        commits = [self.turn(chain, value, detached=detached) for value, detached in forms]
        assert_judged(chain, verified=3)
        records = text_ledger.read(chain.ledger()).ledger
        assert records is not None
        assert text_ledger.read(chain.ledger()).ok
        forget(chain)
        assert_judged(chain, held=3)
        # From where anybody looked, and of each old commit.
        for commit in commits:
            said = chain.audit(commit)
            assert (said.code, said.found) == (0, []), commit

    def test_an_older_form_that_comes_back_unsealed(self, chain: Sealed) -> None:
        self.turn(chain, 1.0, detached=True)
        self.turn(chain, 2.0, detached=True)
        chain.take("HEAD~1", MODEL)
        bad = chain.commit()
        forget(chain)
        assert_found(chain, (bad, MODEL, "content-mismatch"))

    def test_a_branch_that_changed_the_form_is_merged(self, chain: Sealed) -> None:
        start = self.turn(chain, 1.0, detached=False)
        chain.branch("side")
        self.turn(chain, 1.0, detached=True)
        chain.branch("main", start)
        chain.generation(7.0, name=OTHER)
        chain.merge("side")
        assert_judged(chain, verified=1)
        forget(chain)
        assert_judged(chain, held=1)

    @pytest.mark.slow
    def test_both_branches_went_on(self, chain: Sealed) -> None:
        start = self.turn(chain, 1.0, detached=False)
        chain.branch("side")
        self.turn(chain, 2.0, detached=True)
        chain.branch("main", start)
        self.turn(chain, 3.0, detached=False)
        chain.merge("side", ok=(1,))
        # Theirs is taken, with its form.
        chain.git("checkout", "-q", "--theirs", "--", MODEL)
        chain.git("checkout", "-q", "side", "--", ".gitattributes")
        chain.add(MODEL)
        chain.call("seal", "--reseal", "--key", "alice", MODEL)
        chain.commit("merged")
        assert_judged(chain, verified=1)
        forget(chain)
        assert_judged(chain, held=1)


class TestAttacks:
    def test_payload_of_another_text(self, kept: Sealed) -> None:
        forget(kept)
        store = store_of(kept.repository)
        with store.writing() as writer:
            for chunk in detached(version(9.0))[1].values():
                writer.put(sha256(chunk).digest(), memoryview(chunk), 4)
        assert_only_held_against_the_record(kept)

    @pytest.mark.parametrize("payload", [True, False], ids=["payload", "none"])
    def test_a_text_that_somebody_else_sealed(self, kept: Sealed, payload: bool) -> None:
        """A whole text with the ledger, and the record's line, of a detached one."""
        kept.write(MODEL, version(9.0))
        kept.add(MODEL)
        bad = kept.commit()
        if not payload:
            forget(kept)
        assert_found(kept, (bad, MODEL, "content-mismatch"))

    def test_a_root_that_is_another_text_s(self, kept: Sealed) -> None:
        """A trusted signer's line for a text whose content the record does not have."""
        ledger = text_ledger.read(kept.ledger()).ledger
        assert ledger is not None
        made = put(kept, version(9.0))
        forged = replace(ledger.last, detached=sha256(made).digest())
        unsigned = [replace(one, signatures=()) for one in (*ledger.records[:-1], forged)]
        kept.write(LEDGER, signed_ledger(kept, MODEL, unsigned, secret("alice")))
        kept.git("reset", "-q", "--soft", "HEAD~1")
        kept.git("add", "--all")
        bad = kept.commit()
        assert_found(kept, (bad, MODEL, "content-mismatch"))

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
