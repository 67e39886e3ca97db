"""What is in a conflict is not sealed, whatever else there is to seal."""

from __future__ import annotations

import pytest

from tests.e2e.merging import unmerged
from tests.e2e.sealed import LEDGER, MODEL, SIGNERS, SIGNERS_LEDGER, Sealed

NEW = "new.safetensors"


def refused(repo: Sealed, *arguments: str) -> list[str]:
    """What a seal says that writes nothing."""
    before = repo.git("ls-files", "-s"), repo.git("status", "--porcelain")
    said = repo.call("seal", "--key", "alice", *arguments, ok=(1,))
    assert (repo.git("ls-files", "-s"), repo.git("status", "--porcelain")) == before
    assert said.out == ""
    return said.err.splitlines()


@pytest.mark.parametrize("paths", [(), ("--", MODEL), ("--", ".")], ids=["all", "path", "folder"])
@pytest.mark.parametrize("option", ["--reseal", "--staged"])
def test_a_checkpoint(chain: Sealed, option: str, paths: tuple[str, ...]) -> None:
    chain.branch("side")
    chain.generation(2.0)
    chain.switch("main")
    chain.generation(3.0)
    chain.merge("side", ok=(1,))
    assert unmerged(chain) == [MODEL, LEDGER]
    assert refused(chain, option, *paths) == [
        f"wtxtgit: error: {MODEL}: in conflict",
        f"wtxtgit: hint: wtxtgit resolve {MODEL} first",
    ]


def test_a_checkpoint_without_a_ledger(chain: Sealed) -> None:
    chain.branch("side")
    chain.put(2.0, name=NEW)
    chain.commit("theirs")
    chain.switch("main")
    chain.put(3.0, name=NEW)
    chain.commit("ours")
    chain.merge("side", ok=(1,))
    assert unmerged(chain) == [NEW]
    assert refused(chain, "--staged")[0] == f"wtxtgit: error: {NEW}: in conflict"


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_one_side_deleted_it(chain: Sealed, side: str) -> None:
    chain.branch("side")
    chain.git("rm", "-q", MODEL, LEDGER)
    chain.commit("deleted")
    chain.switch("main")
    chain.generation(3.0)
    if side == "ours":
        chain.switch("side")
    chain.merge("main" if side == "ours" else "side", ok=(1,))
    keeping = f"git add -- {MODEL} keeps it, git rm --cached -- {MODEL} does not"
    assert refused(chain, "--reseal") == [
        f"wtxtgit: error: {MODEL}: in conflict",
        f"wtxtgit: hint: {keeping}; then seal again",
    ]


def test_the_signers(chain: Sealed) -> None:
    """They are lines, which nobody merges tensor by tensor."""
    chain.branch("side")
    chain.add_signer("bob")
    chain.change_signers("alice")
    chain.switch("main")
    chain.add_signer("carol")
    chain.change_signers("alice")
    chain.merge("side", ok=(1,))
    assert unmerged(chain) == [SIGNERS, SIGNERS_LEDGER]
    assert refused(chain, "--reseal") == [
        f"wtxtgit: error: {SIGNERS}: in conflict",
        f"wtxtgit: hint: settle it and git add -- {SIGNERS} first",
    ]
