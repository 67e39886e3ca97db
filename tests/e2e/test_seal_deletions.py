"""A deletion that is sealed lets go of its place; one that is not keeps the ledger."""

from __future__ import annotations

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_found,
    assert_holds,
    assert_holds_by_any_range,
    text,
)
from wtxtgit.model.ledger import is_deletion
from wtxtgit.text import ledger as text_ledger

NEW = "new.safetensors"


def last_is_deletion(repo: Sealed, name: str = LEDGER) -> bool:
    read = text_ledger.read(repo.blob(name, "")).ledger
    assert read is not None
    return is_deletion(read.last)


@pytest.mark.parametrize("gone", [(MODEL,), (MODEL, LEDGER)], ids=["file", "both"])
@pytest.mark.parametrize("named", [MODEL, LEDGER])
def test_named(chain: Sealed, gone: tuple[str, ...], named: str) -> None:
    chain.git("rm", "-q", *gone)
    said = chain.seal(named)
    assert said.out.startswith(f"deleted   {MODEL}  generation 2, ")
    assert last_is_deletion(chain)
    chain.commit()
    assert chain.status() == b""
    assert_holds_by_any_range(chain)
    assert chain.seal(MODEL).out == f"{MODEL} is already sealed\n"


def test_its_ledger_may_go_then(chain: Sealed) -> None:
    chain.git("rm", "-q", MODEL)
    chain.seal(MODEL)
    chain.commit()
    chain.git("rm", "-q", LEDGER)
    chain.commit("gone")
    assert_holds_by_any_range(chain)


@pytest.mark.parametrize("words", [(), (".",), (OTHER,)], ids=["all", "folder", "another"])
def test_not_named(chain: Sealed, words: tuple[str, ...]) -> None:
    before = chain.ledger()
    chain.git("rm", "-q", MODEL)
    chain.seal(*words)
    assert chain.ledger(revision="") == before
    chain.commit()
    assert_holds_by_any_range(chain)


def test_not_named_with_its_ledger(chain: Sealed) -> None:
    chain.git("rm", "-q", MODEL, LEDGER)
    chain.seal()
    commit = chain.commit()
    assert_found(chain, (commit, MODEL, "ledger-removed"))


@pytest.mark.parametrize("keeps_ledger", [True, False])
@pytest.mark.parametrize("value", [1.0, 2.0], ids=["the same", "another content"])
def test_another_file_there(chain: Sealed, keeps_ledger: bool, value: float) -> None:
    chain.git("rm", "-q", MODEL)
    chain.seal(MODEL)
    chain.commit()
    if not keeps_ledger:
        chain.git("rm", "-q", LEDGER)
        chain.commit("gone")
    chain.put(value)
    said = chain.seal(MODEL)
    assert f"sealed    {MODEL}  generation 3, " in said.out
    chain.commit()
    assert_holds_by_any_range(chain)


def test_a_file_that_is_there_is_not_deleted(chain: Sealed) -> None:
    chain.git("rm", "-q", "--cached", MODEL)
    said = chain.call("seal", "--staged", "--key", "alice", MODEL, ok=(3,))
    assert f"{MODEL}: not a tracked file" in said.err


@pytest.mark.parametrize("staged", [(), ("--staged",)])
def test_a_folder_without_checkpoints(chain: Sealed, staged: tuple[str, ...]) -> None:
    """It need not be added."""
    chain.write("words/readme", "x")
    chain.add("words")
    for name in ("words", "words/"):
        said = chain.call("seal", *staged, "--key", "alice", name, ok=(3,))
        assert said.err == "wtxtgit: error: words: a folder without checkpoints\n"
    (chain.path / "new").mkdir()
    said = chain.call("seal", *staged, "--key", "alice", "new", ok=(3,))
    assert "hint: git add -- new\n" in said.err


def test_one_that_nobody_knows(chain: Sealed) -> None:
    said = chain.call("seal", "--staged", "--key", "alice", NEW, ok=(3,))
    assert f"{NEW}: no such file, and no ledger of one\n" in said.err
    assert "hint" not in said.err


def test_one_that_was_moved(chain: Sealed) -> None:
    """Its ledger is not gone."""
    chain.git("mv", MODEL, NEW)
    chain.git("mv", LEDGER, f"{NEW}.wsum")
    said = chain.call("seal", "--staged", "--key", "alice", MODEL, ok=(1,))
    assert f"{MODEL}: {NEW} has the same ledger" in said.err


def test_one_that_was_moved_without_its_ledger(chain: Sealed) -> None:
    """Both names of a move may be told."""
    chain.git("mv", MODEL, NEW)
    assert f"moved     {NEW}" in chain.seal(MODEL, NEW).out
    chain.commit()
    assert_holds_by_any_range(chain)


def test_the_signers(chain: Sealed) -> None:
    chain.git("rm", "-q", SIGNERS, SIGNERS_LEDGER)
    said = chain.call("seal", "--staged", "--key", "alice", SIGNERS, ok=(3,))
    assert f"{SIGNERS}: no such file" in said.err


def test_on_one_side_and_a_generation_on_the_other(chain: Sealed) -> None:
    chain.branch("side")
    chain.git("rm", "-q", MODEL)
    chain.seal(MODEL)
    chain.commit("deleted")
    chain.switch("main")
    chain.generation(2.0)
    chain.merge("side", ok=(1,))
    chain.git("rm", "-q", MODEL)
    chain.call("seal", "--reseal", "--key", "alice", "--", MODEL)
    chain.git("commit", "-q", "--no-edit")
    assert last_is_deletion(chain)
    assert_holds(chain)
    chain.git("reset", "-q", "--hard", "HEAD~1")
    chain.merge("side", ok=(1,))
    chain.git("add", MODEL)
    chain.call("seal", "--reseal", "--key", "alice")
    chain.git("commit", "-q", "--no-edit")
    assert chain.blob(MODEL) == text(2.0)
    assert_holds(chain)


def test_a_ledger_that_was_removed_before(chain: Sealed) -> None:
    chain.git("rm", "-q", MODEL, LEDGER)
    chain.commit("gone")
    chain.call("seal", "--reseal", "--key", "alice", "--", MODEL)
    chain.commit("sealed")
    assert_holds(chain, "HEAD~1..HEAD")


def test_cosigned(chain: Sealed) -> None:
    chain.add_signer("bob")
    chain.change_signers("alice")
    chain.git("rm", "-q", MODEL)
    chain.seal(MODEL)
    assert chain.seal("--cosign", MODEL, key="bob").out.startswith(f"cosigned  {MODEL}")
    chain.commit()
    assert_holds(chain)


def test_a_return_that_is_reverted(chain: Sealed) -> None:
    """What comes back is the ledger that stood there while the file was gone, unsealed."""
    chain.git("rm", "-q", MODEL)
    chain.commit("gone")
    chain.generation(7.0)
    chain.git("revert", "--no-commit", "HEAD")
    assert chain.call("seal", "--reseal", "--key", "alice").out.startswith(f"deleted   {MODEL}")
    chain.commit("reverted")
    assert_holds_by_any_range(chain)
    assert last_is_deletion(chain)


def test_a_deletion_that_is_reverted_twice(chain: Sealed) -> None:
    """Each revert brings an older ledger back; `--reseal` goes on from what is known."""
    chain.git("rm", "-q", MODEL)
    chain.seal(MODEL)
    chain.commit("gone")
    for said in ("sealed    ", "deleted   "):
        chain.git("revert", "--no-commit", "HEAD")
        assert chain.call("seal", "--reseal", "--key", "alice").out.startswith(f"{said}{MODEL}")
        chain.commit("reverted")
        assert_holds_by_any_range(chain)
    assert last_is_deletion(chain)
    assert "already sealed" in chain.call("seal", "--reseal", "--key", "alice").out
