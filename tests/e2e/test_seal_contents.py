"""What a seal is of: the text of a filtered file, the bytes of every other one."""

from __future__ import annotations

import re
import shlex
from typing import Any

import numpy as np
import pytest

import wtxtgit
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    SIGNERS,
    Sealed,
    assert_holds,
    checkpoint,
    secret,
    signed_ledger,
    text,
)
from tests.kit import Repo
from wtxtgit.filter.content import examine, opaque_hash
from wtxtgit.model.array import Meta
from wtxtgit.model.ledger import Record
from wtxtgit.text import ledger as text_ledger
from wtxtgit.text.digest import sign
from wtxtgit.text.ledger import native_record, next_record
from wtxtgit.trust.openssh import SecretKey

NATIVE = "notes.wtxt"
RAW = "raw.bin"


def native(value: float, **meta: Any) -> bytes:
    about = Meta("weights/v1", meta.pop("gen", 1), meta.pop("ts", "2026-01-01T00:00:00Z"), "made")
    return wtxtgit.dumps({"W": np.full((2, 3), value)}, meta=about, **meta)


def last(repo: Sealed, name: str) -> Record:
    """The last record that is staged."""
    read = text_ledger.read(repo.blob(f"{name}.wsum", "")).ledger
    assert read is not None
    return read.last


def put(repo: Sealed, name: str, content: bytes) -> None:
    repo.write(name, content)
    repo.add(name)


class TestBytes:
    @pytest.mark.parametrize(
        "content",
        [b"", b"anything\n", checkpoint(1.0), text(1.0), b"WTXT 1 or so\n"],
        ids=["empty", "opaque", "container", "text", "damaged"],
    )
    def test_of_a_file_without_a_filter(self, chain: Sealed, content: bytes) -> None:
        put(chain, RAW, content)
        chain.seal(RAW)
        record = last(chain, RAW)
        assert record.sha256_all == opaque_hash(memoryview(content))
        assert record.meta.schema == "opaque/v1"
        chain.commit()
        assert_holds(chain)
        assert chain.seal(RAW).out == f"{RAW} is already sealed\n"

    def test_of_a_filtered_file_its_text_counts(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        assert last(chain, MODEL).sha256_all == examine(memoryview(checkpoint(2.0))).sha256_all

    def test_the_work_tree_has_the_same(self, chain: Sealed) -> None:
        put(chain, RAW, text(1.0))
        chain.call("seal", "--key", "alice", RAW)
        chain.add()
        chain.commit()
        assert_holds(chain)

    def test_a_damaged_native_text_is_refused(self, chain: Sealed) -> None:
        put(chain, NATIVE, native(1.0)[:-1])
        said = chain.call("seal", "--staged", "--key", "alice", NATIVE, ok=(1,))
        assert f"wtxtgit: hint: wtxtgit verify -- {NATIVE}" in said.err

    def test_one_that_the_filter_left(self, chain: Sealed) -> None:
        """From now on its checkout is the text: that is sealed anew."""
        chain.write(".gitattributes", "")
        chain.add(".gitattributes")
        chain.seal(MODEL)
        assert last(chain, MODEL).sha256_all == opaque_hash(memoryview(text(1.0)))

    def test_the_word_of_a_deletion_makes_none(self, chain: Sealed) -> None:
        put(chain, RAW, b"")
        said = chain.call("seal", "--staged", "--build", "deleted", "--key", "alice", RAW, ok=(2,))
        assert 'build "deleted" is reserved for records of deletions' in said.err


class TestNative:
    @pytest.mark.parametrize("name", [NATIVE, MODEL])
    def test_its_own_generation_stays(self, chain: Sealed, name: str) -> None:
        content = native(1.0, gen=7, ts="2099-01-01T00:00:00Z")
        put(chain, name, content)
        chain.seal(name)
        record = last(chain, name)
        assert record.meta == Meta("weights/v1", 7, "2099-01-01T00:00:00Z", "made")
        assert record.sha256_all == opaque_hash(memoryview(content))
        chain.commit()
        assert_holds(chain)
        assert "already sealed" in chain.seal(name).out

    def test_one_that_can_not_follow_counts_on(self, chain: Sealed) -> None:
        for value, gen in ((1.0, 3), (2.0, 3), (3.0, 2)):
            put(chain, NATIVE, native(value, gen=gen))
            chain.seal(NATIVE)
            chain.commit()
        record = last(chain, NATIVE)
        assert (record.meta.gen, record.meta.schema) == (5, "opaque/v1")
        assert_holds(chain)

    def test_a_changed_cap_line_is_another_content(self, chain: Sealed) -> None:
        before = native(1.0)
        put(chain, NATIVE, before)
        chain.seal(NATIVE)
        chain.commit()
        after = native(1.0, audit="a=1")
        assert after != before
        assert examine(memoryview(after)).sha256_all == examine(memoryview(before)).sha256_all
        put(chain, NATIVE, after)
        chain.commit()
        assert chain.audit().kinds == {"content-mismatch"}
        chain.seal(NATIVE)
        chain.commit()
        assert_holds(chain, "HEAD~1..HEAD")


class TestOlderRecords:
    """What was sealed by the rules of before."""

    def older(self, repo: Sealed, name: str, content: bytes) -> None:
        """Commit a file whose record has the hash that clean, or a native text, gives."""
        facts = examine(memoryview(content))
        assert facts.sha256_all is not None
        put(repo, name, content)
        if facts.meta is not None:
            record = native_record(None, sha256_all=facts.sha256_all, meta=facts.meta)
        else:
            record = next_record(
                None, sha256_all=facts.sha256_all, ts="2026-01-01T00:00:00Z", build="none",
                schema=facts.schema,
            )  # fmt: skip
        put(repo, f"{name}.wsum", signed_ledger(repo, name, [record], secret("alice")))
        repo.commit()

    def test_a_binary_stays_as_it_is(self, chain: Sealed) -> None:
        self.older(chain, RAW, checkpoint(1.0))
        assert_holds(chain)
        assert "already sealed" in chain.seal(RAW).out

    def test_a_native_text_is_sealed_once_more(self, chain: Sealed) -> None:
        content = native(1.0)
        self.older(chain, NATIVE, content)
        said = chain.audit()
        assert [(found.kind, found.severity) for found in said.found] == [("unsealed", "warning")]
        chain.seal("--cosign", NATIVE, key="mallory")
        chain.git("reset", "-q", "--hard")
        chain.seal(NATIVE)
        record = last(chain, NATIVE)
        assert record.meta.gen == 2
        assert record.sha256_all == opaque_hash(memoryview(content))
        chain.commit()
        assert_holds(chain, "HEAD~1..HEAD")


class TestSignLines:
    """A native text's own signature, which a seal does not replace."""

    def made_by(self, name: str) -> bytes:
        key = secret(name)
        held = getattr(key, "secret")  # noqa: B009
        assert isinstance(held, SecretKey)
        return native(1.0, sign=lambda message: sign(held.seed, message))

    def test_by_a_signer(self, chain: Sealed) -> None:
        put(chain, NATIVE, self.made_by("alice"))
        assert chain.seal(NATIVE).err == ""
        chain.commit()
        assert_holds(chain)

    def test_a_foreign_one_is_told(self, chain: Sealed) -> None:
        put(chain, NATIVE, self.made_by("mallory"))
        said = chain.seal(NATIVE)
        assert "its sign line is by key" in said.err
        assert "not one of the signers" in said.err
        # A countersignature on the seal would not change what is in the text.
        told = chain.call("check", "--staged").out
        assert "untrusted-signer  wtxtgit signers list" in told
        assert "--countersign" not in told
        chain.commit()
        assert {(one.kind, one.severity) for one in chain.audit().found} == {
            ("untrusted-signer", "warning")
        }

    def test_one_that_its_key_did_not_make_is_refused(self, chain: Sealed) -> None:
        content = self.made_by("alice")
        line = content[content.index(b"sign ") :].split(b"\n")[0]
        other = native(2.0, sign=lambda message: sign(bytes(32), message))
        mine = other[other.index(b"sign ") :].split(b"\n")[0]
        put(chain, NATIVE, other.replace(mine, line))
        before = chain.git("ls-files", "-s")
        said = chain.call("seal", "--staged", "--key", "alice", NATIVE, ok=(4,))
        assert f"{NATIVE}: bad-signature: its sign line does not verify with key" in said.err
        assert chain.git("ls-files", "-s") == before


class TestSigners:
    def refused(self, repo: Sealed, content: str) -> str:
        """What is said of a signers file that nobody will take: it is not sealed."""
        repo.write(SIGNERS, content)
        repo.add(SIGNERS)
        before = repo.git("ls-files", "-s")
        said = repo.call("seal", "--staged", "--key", "alice", "--", SIGNERS, ok=(1,)).err
        assert repo.git("ls-files", "-s") == before
        return said

    @pytest.mark.parametrize("number", [2, 8, 9, 12])
    def test_a_threshold_that_can_not_hold(self, chain: Sealed, number: int) -> None:
        file = (chain.path / SIGNERS).read_text()
        said = self.refused(chain, file.replace("threshold: 1", f"threshold: {number}"))
        assert "no audit will accept these signers" in said
        assert (
            "wtxtgit: hint: wtxtgit signers threshold 1, then git add -- :/.wtxt/signers\n" in said
        )
        chain.call("signers", "threshold", "1")
        chain.add(SIGNERS)
        assert chain.seal(SIGNERS).err == ""

    def test_one_that_can_not_be_read(self, chain: Sealed) -> None:
        """The hint takes the file of before back, of which nothing is to be sealed."""
        said = self.refused(chain, "who?\n")
        assert "line 1: not of the form" in said
        assert "no audit will accept these signers" in said
        (command,) = re.findall(r"hint: (git stash push .*?) sets", said)
        chain.git(*shlex.split(command)[1:])
        assert "already sealed" in chain.seal(SIGNERS).out

    def test_one_that_holds(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.set_threshold(2)
        assert chain.seal(SIGNERS).err == ""

    def rotated(self, repo: Sealed) -> None:
        """Bob comes in alice's place."""
        repo.call("signers", "add", "bob@example.com", "bob")
        repo.call("signers", "remove", "alice@example.com")
        repo.add(SIGNERS)

    def test_a_rotation_is_sealed_by_a_signer_of_before(self, chain: Sealed) -> None:
        self.rotated(chain)
        assert chain.seal(SIGNERS).err == ""
        chain.commit()
        assert_holds(chain)

    def test_a_rotation_that_the_new_signer_seals_is_told(self, chain: Sealed) -> None:
        """The hint is followed by one who may."""
        self.rotated(chain)
        said = chain.seal(SIGNERS, key="bob").err
        assert "is not one of the signers before the change" in said
        (command,) = re.findall(r"hint: wtxtgit (seal .*?)  #", said)
        _, *arguments = shlex.split(command)
        assert chain.call("seal", "--key", "alice", *arguments).err == ""
        chain.commit()
        assert_holds(chain)


def test_the_ledger_of_another_commit_is_not_taken_for_its_own(chain: Sealed) -> None:
    """An empty file after a sealed deletion is a file."""
    put(chain, RAW, b"x")
    chain.seal(RAW)
    chain.commit()
    chain.git("rm", "-q", RAW)
    chain.seal(RAW)
    chain.commit()
    put(chain, RAW, b"")
    chain.seal(RAW)
    assert last(chain, RAW).meta.gen == 3
    assert last(chain, RAW).meta.build == "none"
    chain.commit()
    assert_holds(chain)
    assert LEDGER != RAW


class TestUnstaged:
    """`seal --staged` where what was changed was not added."""

    def test_it_is_told(self, chain: Sealed) -> None:
        new = "new one.safetensors"
        chain.write(MODEL, text(7.0))
        chain.write(new, text(8.0))
        chain.write("notes.txt", "1")
        said = chain.seal()
        assert "already sealed" in said.out
        assert f"warning: not staged, so not sealed: {MODEL} '{new}'\n" in said.err
        # Only what was named.
        named = chain.seal(MODEL).err
        assert f"not sealed: {MODEL}\n" in named
        assert f"hint: git add -- {MODEL}, then wtxtgit seal --staged\n" in named
        # Who adds one of them wants that one alone.
        chain.add(MODEL)
        assert "not staged" not in chain.seal().err
        assert f"not sealed: '{new}'\n" in chain.seal().err
        chain.add(new)
        assert new in chain.seal().out
        assert chain.seal().err == ""

    def test_a_change_of_the_signers(self, chain: Sealed) -> None:
        chain.call("signers", "add", "bob@example.com", "bob")
        said = chain.seal().err
        assert f"not sealed: {SIGNERS}\n" in said

    def test_where_nothing_was_added(self, repo: Repo, driver: None, keys: None) -> None:
        repo.track("*.safetensors")
        repo.write(MODEL, checkpoint(1.0))
        done = repo.wtxtgit("seal", "--staged", "--key", "alice")
        assert done.stdout == b"nothing to seal: no checkpoint is in the index\n"
        assert f"not staged, so not sealed: {MODEL}\n" in done.stderr.decode()
