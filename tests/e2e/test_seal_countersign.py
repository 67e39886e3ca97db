"""Countersigning: what somebody signed who may no more, or not yet, counts by one signature."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Grown
from tests.e2e.sealed import LEDGER, MODEL, OTHER, OTHER_LEDGER, ROOT, Said, Sealed, assert_holds
from wtxtgit.text import ledger as text_ledger


def keyids(repo: Sealed, name: str = LEDGER) -> list[int]:
    """How many signatures each record of a staged ledger has."""
    read = text_ledger.read(repo.blob(name, "")).ledger
    assert read is not None
    return [len(record.signatures) for record in read.records]


def countersign(repo: Sealed, *words: str, key: str = "alice", ok: tuple[int, ...] = (0,)) -> Said:
    root = () if "--trust-root" in words else ("--trust-root", ROOT)
    return repo.call("seal", "--countersign", "--key", key, *root, *words, ok=ok)


@pytest.fixture
def rotated(grown: Grown) -> Sealed:
    """`side` has two generations of bob, who was removed on main since; main is checked out."""

    def grow(chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.branch("side")
        chain.generation(2.0, key="bob")
        chain.generation(3.0, key="bob")
        chain.switch("main")
        chain.call("signers", "remove", "bob@example.com")
        chain.add(".wtxt")
        chain.change_signers("alice")

    return grown("rotated", grow)


def test_in_a_merge(rotated: Sealed) -> None:
    rotated.git("merge", "-q", "--no-commit", "--no-ff", "side")
    said = countersign(rotated)
    assert said.out == f"countersigned {MODEL}  generations 2, 3\n"
    assert keyids(rotated) == [1, 2, 2]
    rotated.git("commit", "-q", "--no-edit")
    assert_holds(rotated)
    assert_holds(rotated, "--every")


def test_a_merge_that_was_made_already(rotated: Sealed) -> None:
    rotated.merge("side")
    assert rotated.audit().kinds == {"untrusted-signer"}
    countersign(rotated)
    rotated.git("commit", "-q", "--amend", "--no-edit")
    assert_holds(rotated)


def test_one_that_was_killed_before_it_staged(rotated: Sealed) -> None:
    rotated.merge("side")
    countersign(rotated)
    rotated.git("restore", "--staged", "--", LEDGER)
    assert countersign(rotated).out == f"countersigned {MODEL}  generations 2, 3\n"
    assert keyids(rotated) == [1, 2, 2]
    rotated.commit("countersigned")
    assert_holds(rotated, "HEAD~1..HEAD")


def test_in_a_commit_of_its_own(rotated: Sealed) -> None:
    rotated.merge("side")
    countersign(rotated)
    rotated.commit("countersigned")
    assert_holds(rotated, "HEAD~1..HEAD")
    assert_holds(rotated, "HEAD~1..HEAD", "--was", "HEAD~1")


def test_by_the_first_signers_that_are_seen(rotated: Sealed) -> None:
    rotated.merge("side")
    rotated.call("seal", "--countersign", "--key", "alice")
    assert keyids(rotated) == [1, 2, 2]


def test_by_the_config(rotated: Sealed) -> None:
    """What a trust root reaches stands as it is."""
    rotated.merge("side")
    rotated.git("config", "wtxtgit.trustRoot", "side")
    said = rotated.call("seal", "--countersign", "--key", "alice")
    assert "nothing to countersign" in said.out
    rotated.git("config", "wtxtgit.trustRoot", "no-such")
    rotated.call("seal", "--countersign", "--key", "alice", ok=(5,))
    assert countersign(rotated).out.startswith("countersigned ")


def test_chosen_ledgers(rotated: Sealed) -> None:
    rotated.switch("side")
    rotated.generation(5.0, name=OTHER, key="bob")
    rotated.switch("main")
    rotated.merge("side")
    for path in (OTHER, OTHER_LEDGER):
        assert countersign(rotated, path).out == f"countersigned {OTHER}  generation 2\n"
        assert keyids(rotated) == [1, 1, 1]
        rotated.git("reset", "-q", "--hard")
    told = countersign(rotated, "--json").report["sealed"]
    assert {one["path"]: one["generations"] for one in told if one["generations"]} == {
        MODEL: [2, 3],
        OTHER: [2],
    }
    countersign(rotated, "no-such", ok=(3,))


def test_the_ledger_of_a_deleted_one(rotated: Sealed) -> None:
    rotated.switch("side")
    rotated.git("rm", "-q", MODEL)
    rotated.commit("deleted")
    rotated.switch("main")
    rotated.merge("side")
    assert countersign(rotated).out == f"countersigned {MODEL}  generations 2, 3\n"
    rotated.git("commit", "-q", "--amend", "--no-edit")
    assert_holds(rotated)


def test_nothing_to_do(chain: Sealed) -> None:
    said = countersign(chain, key="mallory")
    assert said.out == "nothing to countersign: all records count, or are signed already\n"
    chain.put(2.0)
    chain.seal(MODEL)
    assert "nothing to countersign" in countersign(chain).out


def test_where_nobody_is_trusted(chain: Sealed) -> None:
    chain.git("checkout", "-q", "--orphan", "alone")
    chain.git("rm", "-q", "--cached", "-r", ".wtxt")
    chain.commit("alone")
    assert "nothing to countersign" in chain.call("seal", "--countersign", "--key", "alice").out


@pytest.mark.parametrize("key", ["bob", "mallory"])
def test_by_a_key_that_is_not_trusted(rotated: Sealed, key: str) -> None:
    rotated.merge("side")
    before = rotated.git("ls-files", "-s")
    if key == "bob":
        rotated.generation(8.0, name=OTHER, key="mallory")
        before = rotated.git("ls-files", "-s")
    said = countersign(rotated, key=key, ok=(4,))
    assert f"key {key} (" in said.err
    assert "is not trusted now" in said.err
    assert rotated.git("ls-files", "-s") == before


def test_an_unsigned_record(chain: Sealed) -> None:
    chain.put(2.0)
    chain.seal(MODEL)
    lines = (chain.path / LEDGER).read_bytes().splitlines(keepends=True)
    chain.write(LEDGER, b"".join(lines[:-1]))
    chain.add()
    chain.commit("not signed")
    assert chain.audit().kinds == {"missing-signature"}
    assert countersign(chain).out == f"countersigned {MODEL}  generation 2\n"
    chain.commit("countersigned")
    assert_holds(chain, "HEAD~1..HEAD")


def test_a_false_signature_stays_false(chain: Sealed) -> None:
    chain.put(2.0)
    chain.seal(MODEL)
    chain.falsify_signature()
    said = countersign(chain, ok=(4,))
    assert f"{MODEL}: bad-signature: generation 2" in said.err
    assert f"wtxtgit seal --reseal -- {MODEL} continues without it" in said.err
    chain.call("seal", "--reseal", "--key", "alice", "--", MODEL)
    chain.commit()
    assert_holds(chain)


def test_a_foreign_signature_of_what_counts(chain: Sealed) -> None:
    chain.seal("--cosign", MODEL, key="mallory")
    chain.commit("cosigned by nobody")
    assert chain.audit().kinds == {"untrusted-signer"}
    said = countersign(chain, ok=(4,))
    assert f"{MODEL}: untrusted-signer: generation 1" in said.err
    chain.call("seal", "--reseal", "--key", "alice", "--", MODEL)
    chain.commit("without it")
    assert_holds(chain, "HEAD~1..HEAD")


@pytest.mark.parametrize("option", ["--cosign", "--reseal"])
def test_with_another_way(chain: Sealed, option: str) -> None:
    said = chain.call("seal", "--countersign", option, "--key", "alice", ok=(2,))
    assert f"--countersign and {option} cannot be combined" in said.err


def test_a_trust_root_is_for_these_ways(chain: Sealed) -> None:
    said = chain.call("seal", "--staged", "--trust-root", ROOT, ok=(2,))
    assert "--trust-root needs --reseal or --countersign" in said.err
