"""What an audit must let pass: how people merge, move and take back what they sealed."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Grown
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    ROOT,
    Sealed,
    assert_holds,
    assert_holds_by_any_range,
    text,
)
from tests.kit import Repo


@pytest.fixture
def pr(grown: Grown) -> Sealed:
    """A branch `pr` of three generations, and `main`, which went on with another checkpoint."""

    def grow(chain: Sealed) -> None:
        chain.branch("pr")
        for number in (2.0, 3.0, 4.0):
            chain.generation(number)
        chain.switch("main")
        chain.generation(2.0, name=OTHER)

    return grown("pull request", grow)


def test_a_line_of_generations(chain: Sealed) -> None:
    for number in (2.0, 3.0, 4.0):
        chain.generation(number)
    said = assert_holds(chain)
    assert said.report == {
        "ok": True,
        "commits": 3,
        "unjudged": 1,
        "artifacts": 3,
        "generations": 6,
        "signers": ["alice@example.com"],
        "notes": [],
        "findings": [],
    }
    assert_holds_by_any_range(chain)


def test_a_squash_merge(pr: Sealed) -> None:
    pr.git("merge", "-q", "--squash", "pr")
    pr.commit("squashed")
    assert pr.ledger().count(b"WSUM 1") == 4
    assert_holds_by_any_range(pr)


def test_a_rebase_merge(pr: Sealed) -> None:
    pr.switch("pr")
    pr.git("rebase", "-q", "main")
    pr.switch("main")
    pr.git("merge", "-q", "--ff-only", "pr")
    assert len(pr.git("log", "--format=%P", "-1").split()) == 1
    assert_holds_by_any_range(pr)


def test_a_merge_commit(pr: Sealed) -> None:
    pr.merge("pr")
    assert len(pr.git("log", "--format=%P", "-1").split()) == 2
    assert_holds_by_any_range(pr)


def test_a_fast_forward(chain: Sealed) -> None:
    chain.branch("pr")
    chain.generation(2.0)
    chain.switch("main")
    chain.git("merge", "-q", "pr")
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_a_cherry_pick(pr: Sealed) -> None:
    pr.git("cherry-pick", "pr~2", "pr~1")
    assert_holds_by_any_range(pr)
    # The request's ledger extends what was picked of it.
    pr.merge("pr", ok=(1,))
    pr.take("pr", MODEL, LEDGER)
    pr.commit("merged")
    assert_holds_by_any_range(pr)


@pytest.mark.slow
def test_an_octopus_merge_of_disjoint_checkpoints(chain: Sealed) -> None:
    names = ("a.safetensors", "b.safetensors", "sub/c.safetensors")
    for number, name in enumerate(names):
        chain.branch(f"topic-{number}", "main")
        chain.generation(float(number), name=name)
    chain.switch("main")
    chain.generation(2.0)
    chain.merge("topic-0", "topic-1", "topic-2")
    assert len(chain.git("log", "--format=%P", "-1").split()) == 4
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_a_rename_with_its_ledger(chain: Sealed) -> None:
    (chain.path / "sub").mkdir()
    chain.git("mv", MODEL, "sub/renamed.safetensors")
    chain.git("mv", LEDGER, "sub/renamed.safetensors.wsum")
    chain.seal()
    chain.commit("renamed")
    assert_holds_by_any_range(chain)
    chain.generation(2.0, name="sub/renamed.safetensors")
    assert chain.ledger("sub/renamed.safetensors.wsum").split()[3] == f"path={MODEL}".encode()
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_a_rename_on_one_side_and_a_generation_on_the_other(chain: Sealed) -> None:
    chain.branch("pr")
    chain.generation(2.0)
    chain.switch("main")
    chain.git("mv", MODEL, "renamed.safetensors")
    chain.git("mv", LEDGER, "renamed.safetensors.wsum")
    chain.seal()
    chain.commit("renamed")
    # Both went on, so the ledger conflicts; a record of both joins them.
    chain.merge("pr", ok=(1,))
    chain.seal("--reseal")
    chain.commit("merged")
    assert chain.blob("renamed.safetensors", "HEAD") == text(2.0)
    assert chain.ledger("renamed.safetensors.wsum").count(b"WSUM 1") == 3
    assert_holds_by_any_range(chain)


def test_a_checkpoint_where_another_one_was(chain: Sealed) -> None:
    """A move that is sealed lets go of its place."""
    chain.git("mv", MODEL, "renamed.safetensors")
    chain.git("mv", LEDGER, "renamed.safetensors.wsum")
    chain.seal()
    chain.commit("renamed")
    chain.generation(9.0)
    assert chain.ledger().count(b"WSUM 1") == 1
    assert_holds_by_any_range(chain)


def test_amends(chain: Sealed) -> None:
    chain.generation(2.0)
    chain.git("commit", "-q", "--amend", "-m", "other words")
    assert_holds_by_any_range(chain)
    chain.put(3.0)
    chain.seal()
    chain.git("commit", "-q", "--amend", "--no-edit")
    assert chain.ledger().count(b"WSUM 1") == 3
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_a_deleted_checkpoint_that_comes_again(chain: Sealed) -> None:
    chain.git("rm", "-q", MODEL)
    chain.seal()
    chain.commit("deleted")
    assert_holds_by_any_range(chain)
    chain.generation(2.0, name=OTHER)
    assert_holds_by_any_range(chain)
    chain.generation(3.0)
    assert chain.ledger().count(b"WSUM 1") == 2
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_a_deleted_checkpoint_that_comes_again_as_it_was(chain: Sealed) -> None:
    chain.git("rm", "-q", MODEL)
    chain.commit("deleted")
    chain.take(ROOT, MODEL)
    chain.seal()
    chain.commit("again")
    assert_holds_by_any_range(chain)


def test_a_revert_that_is_sealed(chain: Sealed) -> None:
    chain.generation(2.0)
    chain.git("revert", "-n", "HEAD")
    chain.seal("--reseal")
    chain.commit("reverted")
    assert chain.blob(MODEL, "HEAD") == chain.blob(MODEL, ROOT)
    assert chain.ledger().count(b"WSUM 1") == 3
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_a_revert_of_a_merge_that_is_sealed(pr: Sealed) -> None:
    pr.merge("pr")
    pr.git("revert", "-n", "-m", "1", "HEAD")
    pr.seal("--reseal")
    pr.commit("reverted")
    assert pr.ledger().count(b"WSUM 1") == 5
    assert_holds_by_any_range(pr)


@pytest.mark.slow
def test_both_sides_sealed_the_same_content(chain: Sealed) -> None:
    """Two records of one content: the ledgers conflict, and one more record joins them."""
    chain.branch("pr")
    chain.generation(2.0)
    chain.switch("main")
    chain.put(2.0)
    chain.seal("--build", "main")
    chain.commit("the same")
    chain.merge("pr", ok=(1,))
    chain.seal("--reseal")
    chain.commit("joined")
    assert_holds_by_any_range(chain)


def test_two_signers_take_turns(chain: Sealed) -> None:
    chain.add_signer("bob")
    chain.change_signers("alice")
    for number, key in enumerate(("bob", "alice", "bob", "alice")):
        chain.generation(float(number + 2), key=key)
    assert_holds_by_any_range(chain)


def test_a_record_that_a_second_signer_signs_later(chain: Sealed) -> None:
    chain.add_signer("bob")
    chain.change_signers("alice")
    chain.generation(2.0)
    chain.seal("--cosign", MODEL, key="bob")
    chain.commit("cosigned")
    assert_holds_by_any_range(chain)


@pytest.mark.slow
def test_commits_of_no_checkpoint(chain: Sealed) -> None:
    chain.write("readme", "x\n")
    chain.commit_all()
    chain.commit("empty")
    (chain.path / MODEL).chmod(0o755)
    chain.commit_all("executable")
    chain.git("revert", "--no-edit", "HEAD")
    assert_holds_by_any_range(chain)


@pytest.mark.parametrize(
    "name", [b"with space.safetensors", b"\xff-latin.safetensors", b"new\nline.safetensors"]
)
@pytest.mark.slow
def test_odd_names(chain: Sealed, name: bytes) -> None:
    for number in (1.0, 2.0):
        Repo.write(chain, name, text(number))
        chain.add(b":(literal)" + name)
        chain.seal()
        chain.commit()
    assert_holds_by_any_range(chain)
