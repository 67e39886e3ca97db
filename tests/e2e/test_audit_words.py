"""Sentences of `docs/spec/trust.md` that two readers could take otherwise."""

from __future__ import annotations

import pytest

from tests.data import case_named
from tests.docs.pages import spans, tables
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_found,
    assert_holds,
    checkpoint,
)
from tests.e2e.test_audit_found import link
from wtxtgit.filter.content import opaque_hash
from wtxtgit.text import ledger as text_ledger

NATIVE = case_named("valid/signed_unknown_key.wtxt").text
PENDING = case_named("valid/pending_with_wsum.wtxt")


class TestWhatIsALedger:
    @pytest.mark.parametrize("beside", [b"", b"garbage\n", PENDING.wsum, b"WLEDGER\n"])
    def test_a_file_in_wsum_that_begins_otherwise_is_none(
        self, chain: Sealed, beside: bytes
    ) -> None:
        """Yet what stands beside it is an artifact."""
        chain.write("notes.txt", b"notes")
        chain.write("notes.txt.wsum", beside)
        assert_found(chain, (chain.commit_all(), "notes.txt", "unsealed"))

    def test_one_that_begins_so_and_can_not_be_read(self, chain: Sealed) -> None:
        chain.write("notes.txt", b"notes")
        chain.write("notes.txt.wsum", b"WLEDGER 2\n")
        assert_found(chain, (chain.commit_all(), "notes.txt", "bad-record"))

    def test_a_link_is_none(self, chain: Sealed) -> None:
        link(chain, LEDGER, "model.wsum")
        bad = chain.commit()
        assert_found(chain, (bad, MODEL, "bad-record"), (bad, MODEL, "ledger-removed"))

    def test_a_ledger_without_its_file(self, chain: Sealed) -> None:
        chain.write("TEXT.root.wsum", PENDING.wsum or b"")
        chain.commit_all()
        assert_holds(chain)

    def test_ledgers_attributes_and_signers_never_go_through_the_filter(
        self, chain: Sealed
    ) -> None:
        chain.write(".gitattributes", "*.safetensors filter=wtxt\n* filter=wtxt\n")
        for name in (LEDGER, SIGNERS, SIGNERS_LEDGER, ".gitattributes"):
            assert chain.git("check-attr", "filter", name).endswith(b" wtxt\n")
        chain.git("add", "--all")
        chain.commit()
        assert_holds(chain)


class TestWhatIsSealed:
    @pytest.mark.parametrize("name", ["native.wtxt", "native.safetensors"])
    def test_a_native_text_as_its_bytes_filtered_or_not(self, chain: Sealed, name: str) -> None:
        chain.write(name, NATIVE)
        chain.add(name)
        chain.seal(name)
        chain.commit()
        read = text_ledger.read(chain.ledger(f"{name}.wsum")).ledger
        assert read is not None
        assert read.last.sha256_all == opaque_hash(memoryview(NATIVE))
        said = chain.audit()
        assert (said.code, said.kinds) == (0, {"untrusted-signer"})
        assert {one.severity for one in said.found} == {"warning"}

    def test_a_pending_text_in_a_filtered_path(self, chain: Sealed) -> None:
        chain.write("p.safetensors", PENDING.text)
        bad = chain.commit_all()
        wanted = [(bad, "p.safetensors", kind) for kind in ("corrupt-text", "unsealed")]
        assert_found(chain, *wanted)

    def test_a_text_that_is_not_filtered(self, chain: Sealed) -> None:
        """Whatever it begins with, what counts are its bytes."""
        for n, content in enumerate((PENDING.text, b"WTXT 1\nnonsense\n", checkpoint(1.0))):
            chain.write(f"file{n}", content)
            chain.add(f"file{n}")
            chain.seal(f"file{n}")
            read = text_ledger.read(chain.blob(f"file{n}.wsum", "")).ledger
            assert read is not None
            assert read.last.sha256_all == opaque_hash(memoryview(content))
        chain.commit()
        assert_holds(chain)

    def test_the_value_of_the_attribute_is_wtxt_and_no_other(self, chain: Sealed) -> None:
        values = {"a.bin": "wtxt", "b.bin": "WTXT", "c.bin": "wtxt2", "d.bin": ""}
        lines = [f"{name} filter={value}" for name, value in values.items()]
        chain.write(".gitattributes", "\n".join(["*.safetensors filter=wtxt", *lines, ""]))
        for name in values:
            chain.write(name, checkpoint(1.0))
        bad = chain.commit_all()
        wanted = [(bad, "a.bin", kind) for kind in ("raw-binary", "unsealed")]
        assert_found(chain, *wanted)


class TestWhoSigned:
    def test_a_change_of_the_signers_cosigned_by_a_later_commit(self, chain: Sealed) -> None:
        """The first commit stays found; the second one makes the change."""
        chain.add_signer("bob")
        chain.set_threshold(2)
        chain.change_signers("alice")
        chain.add_signer("carol")
        bad = chain.change_signers("alice")
        assert_found(chain, (bad, SIGNERS, "signers-changed"), code=4)
        chain.seal("--cosign", SIGNERS, key="bob")
        chain.commit()
        said = assert_found(chain, (bad, SIGNERS, "signers-changed"), code=4)
        assert "carol@example.com" in said.report["signers"]
        assert_holds(chain, "HEAD~1..HEAD")


class TestSeverity:
    def test_unsealed_while_nobody_is_trusted(self, chain: Sealed) -> None:
        for name in (SIGNERS, SIGNERS_LEDGER, LEDGER, OTHER_LEDGER):
            (chain.path / name).unlink()
        chain.git("add", "--all")
        chain.git("commit", "-q", "--amend", "-m", "nobody")
        said = chain.audit(root=None)
        assert said.code == 0
        wanted = {(name, "unsealed", "warning") for name in (MODEL, OTHER)}
        assert {(one.path, one.kind, one.severity) for one in said.found} == wanted

    def test_a_branch_that_went_back(self, chain: Sealed) -> None:
        was = chain.generation(2.0)
        chain.git("reset", "-q", "--hard", "HEAD~1")
        said = chain.audit("--was", was)
        assert "bad-root" in said.kinds
        assert said.code == 1  # its ledger lacks a record, too
        chain.write("readme", "x")
        chain.commit_all()
        chain.git("checkout", "-q", "--orphan", "other")
        chain.commit("from nothing")
        said = chain.audit("--was", "main")
        assert said.kinds == {"bad-root"}
        assert said.code == 4


def test_the_worked_example(chain: Sealed) -> None:
    """Each commit of the page's table, and what an audit of it finds."""
    (table,) = tables("docs/spec/trust.md", "A worked example")
    wanted = {row[0]: set(spans(row[4])[:1]) for row in table}
    chain.add_signer("mallory")
    chain.change_signers("alice")
    chain.git("tag", "R")
    oids = {"a": chain.generation(2.0)}
    chain.call("signers", "remove", "mallory@example.com")
    chain.add(SIGNERS)
    oids["b"] = chain.change_signers("alice")
    chain.branch("side", oids["a"])
    oids["x"] = chain.generation(3.0, key="mallory")
    chain.branch("m", oids["b"])
    oids["m"] = chain.merge("side")
    chain.branch("n", oids["b"])
    chain.git("merge", "-q", "--no-ff", "--no-commit", "side")
    chain.seal("--countersign", MODEL)
    oids["n"] = chain.commit("countersigned")
    chain.take("R", MODEL, LEDGER)
    tree = chain.git("write-tree").decode().strip()
    made = chain.git("commit-tree", tree, "-p", "R", "-p", oids["n"], "-m", "o")
    oids["o"] = made.decode().strip()
    chain.take(oids["n"], MODEL, LEDGER)
    chain.git("mv", MODEL, "k.safetensors")
    chain.git("mv", LEDGER, "k.safetensors.wsum")
    chain.seal()
    oids["p"] = chain.commit("moved")
    chain.put(1.0)
    oids["q"] = chain.commit("again")
    assert oids.keys() == wanted.keys()
    for name, oid in oids.items():
        said = chain.audit(f"R..{oid}", root="R")
        found = {(one.commit, one.path, one.kind) for one in said.found if one.severity == "error"}
        assert found == {(oid, MODEL, kind) for kind in wanted[name]}, name
