"""What an audit must find of ledgers, within a line of commits and in merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import sealed
from tests.e2e.conftest import Grown
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    Found,
    Sealed,
    assert_found,
    assert_holds,
    forged,
    secret,
    text,
)


class TestLedgers:
    @pytest.fixture
    def long(self, grown: Grown) -> Sealed:
        """Three generations of each checkpoint."""

        def grow(chain: Sealed) -> None:
            for number in (2.0, 3.0):
                chain.generation(number)
                chain.generation(number + 10, name=OTHER)

        return grown("three of each", grow)

    def test_rewritten(self, long: Sealed) -> None:
        """The same contents, sealed by the same signer, at another time."""
        made = long.ledger()
        for keep, content in enumerate((text(1.0), text(2.0), text(3.0))):
            made = forged(made, content, secret("alice"), keep=keep, ts="2026-01-01T00:00:00Z")
        long.write(LEDGER, made)
        assert_found(long, (long.commit_all(), MODEL, "ledger-rewritten"))

    def test_shortened(self, long: Sealed) -> None:
        long.take("HEAD~2", LEDGER)
        bad = long.commit()
        kinds = ("ledger-rewritten", "content-mismatch")
        assert_found(long, *((bad, MODEL, kind) for kind in kinds))

    @pytest.mark.slow
    def test_shortened_in_its_middle(self, long: Sealed) -> None:
        made = forged(long.ledger(), text(3.0), secret("alice"), keep=1)
        long.write(LEDGER, made)
        assert_found(long, (long.commit_all(), MODEL, "ledger-rewritten"))

    @pytest.mark.slow
    def test_an_old_record_that_lost_a_signature(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.put(2.0)
        chain.seal()
        chain.seal("--cosign", MODEL, key="bob")
        chain.commit()
        assert_holds(chain)
        lines = chain.ledger().splitlines(keepends=True)
        chain.write(LEDGER, b"".join(lines[:-1]))
        assert_found(chain, (chain.commit_all(), MODEL, "ledger-rewritten"))

    def test_removed(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER)
        bad = long.commit()
        kinds = ("ledger-removed", "unsealed")
        assert_found(long, *((bad, MODEL, kind) for kind in kinds))

    def test_removed_with_its_checkpoint(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER, MODEL)
        assert_found(long, (long.commit(), MODEL, "ledger-removed"))

    def test_begun_anew_in_one_commit(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER)
        long.generation(4.0)
        assert long.ledger().count(b"WSUM 1") == 1
        assert_found(long, (long.head, MODEL, "ledger-rewritten"))

    def test_begun_anew_in_two_commits(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER, MODEL)
        bad = long.commit()
        worse = long.generation(4.0)
        assert_found(long, (bad, MODEL, "ledger-removed"), (worse, MODEL, "ledger-rewritten"))

    def test_begun_anew_on_a_branch(self, long: Sealed) -> None:
        """As a whole: of the branch nothing but the merge is judged."""
        long.branch("pr")
        long.git("rm", "-q", LEDGER, MODEL)
        long.commit()
        long.generation(4.0)
        long.switch("main")
        assert_found(long, (long.merge("pr"), MODEL, "ledger-rewritten"))

    def test_begun_anew_behind_one_that_does_not_read(self, long: Sealed) -> None:
        """Of the branch nothing but the merge is judged, and its last commit follows main."""
        long.branch("pr")
        long.write(LEDGER, long.ledger() + b"x\n")
        bad = long.commit_all("broken")
        long.git("rm", "-q", LEDGER)
        worse = long.generation(4.0)
        long.switch("main")
        merged = long.merge("pr")
        assert_found(long, (merged, MODEL, "ledger-rewritten"))
        assert_found(
            long,
            (bad, MODEL, "bad-record"),
            (worse, MODEL, "ledger-rewritten"),
            args=["--every"],
        )

    def test_swapped_with_their_checkpoints(self, long: Sealed) -> None:
        for one, two in ((MODEL, OTHER), (LEDGER, OTHER_LEDGER)):
            first, second = long.blob(one, "HEAD"), long.blob(two, "HEAD")
            long.write(one, second)
            long.write(two, first)
        bad = long.commit_all()
        assert_found(long, *((bad, name, "bad-record") for name in (MODEL, OTHER)))

    def test_an_old_checkpoint_with_its_old_ledger(self, long: Sealed) -> None:
        long.take("HEAD~2", MODEL, LEDGER)
        assert_found(long, (long.commit(), MODEL, "ledger-rewritten"))

    def test_moved_onto_another_one(self, long: Sealed) -> None:
        long.git("mv", "-f", MODEL, OTHER)
        long.git("mv", "-f", LEDGER, OTHER_LEDGER)
        bad = long.commit()
        kinds = ("moved-unsealed", "ledger-rewritten")
        assert_found(long, *((bad, OTHER, kind) for kind in kinds))

    def test_copied_to_a_second_checkpoint(self, long: Sealed) -> None:
        long.write("copy.safetensors", long.blob(MODEL, "HEAD"))
        long.write("copy.safetensors.wsum", long.ledger())
        bad = long.commit_all()
        twice = (MODEL, "ledger-rewritten")
        assert_found(long, (bad, "copy.safetensors", "bad-record"), (bad, *twice))
        # Also where the copy comes first by name, and where the first is moved along.
        long.git("mv", "copy.safetensors", "a.safetensors")
        long.git("mv", "copy.safetensors.wsum", "a.safetensors.wsum")
        long.git("commit", "-q", "--amend", "--no-edit")
        assert_found(long, (long.head, "a.safetensors", "bad-record"), (long.head, *twice))
        long.git("mv", MODEL, "b.safetensors")
        long.git("mv", LEDGER, "b.safetensors.wsum")
        long.git("commit", "-q", "--amend", "--no-edit")
        kinds = ("moved-unsealed", "ledger-rewritten")
        names = ("a.safetensors", "b.safetensors")
        assert_found(long, *((long.head, name, kind) for name in names for kind in kinds))

    def test_of_another_repository(self, long: Sealed, tmp_path: Path, keys: None) -> None:
        """Its signer is the same person, and its path as well."""
        foreign = sealed.make(tmp_path / "foreign")
        foreign.generation(2.0, name="new.safetensors")
        for name in ("new.safetensors", "new.safetensors.wsum"):
            long.write(name, foreign.blob(name, "HEAD"))
        assert_found(long, (long.commit_all(), "new.safetensors", "bad-record"))

    @pytest.mark.parametrize(
        "meta", [{"gen": 3}, {"gen": 2}, {"ts": "2026-01-01T00:00:00Z"}], ids=str
    )
    def test_that_goes_back(self, long: Sealed, meta: dict[str, object]) -> None:
        content = text(4.0)
        long.write(LEDGER, forged(long.ledger(), content, secret("alice"), **meta))
        long.write(MODEL, content)
        assert_found(long, (long.commit_all(), MODEL, "bad-record"))

    @pytest.mark.parametrize("end", [b"\n", b"meta\n", b"\xff\n", b"sign ed25519=AAAA keyid=0\n"])
    @pytest.mark.slow
    def test_with_lines_that_are_none(self, long: Sealed, end: bytes) -> None:
        long.write(LEDGER, long.ledger() + end)
        assert_found(long, (long.commit_all(), MODEL, "bad-record"))

    def test_that_is_something_else(self, long: Sealed) -> None:
        long.write(LEDGER, b"a note\n")
        bad = long.commit_all()
        kinds = ("ledger-removed", "unsealed")
        assert_found(long, *((bad, MODEL, kind) for kind in kinds))

    @pytest.mark.slow
    def test_a_chain_that_does_not_hold(self, long: Sealed) -> None:
        made = long.ledger()
        at = made.rindex(b"merkle_prev=") + 12
        long.write(LEDGER, made[:at] + b"0" * 64 + made[at + 64 :])
        assert_found(long, (long.commit_all(), MODEL, "bad-record"))


class TestMerges:
    @pytest.fixture
    def forked(self, chain: Sealed) -> Sealed:
        """An old branch, and a main that went on."""
        chain.branch("old")
        chain.write("readme", "x")
        chain.commit_all()
        chain.switch("main")
        for number in (2.0, 3.0):
            chain.generation(number)
        return chain

    def test_a_rollback_onto_an_old_branch(self, forked: Sealed) -> None:
        """`merge -s ours` made on the old branch, and taken by main."""
        forked.switch("old")
        forked.git("merge", "-q", "-s", "ours", "--no-edit", "main")
        bad = forked.head
        assert_found(forked, (bad, MODEL, "ledger-rewritten"))
        forked.switch("main")
        merged = forked.merge("old")
        assert forked.blob(MODEL, "HEAD") == text(1.0)
        assert_found(forked, (merged, MODEL, "ledger-rewritten"))
        assert_found(forked, (merged, MODEL, "ledger-rewritten"), args=["HEAD~1..HEAD"])
        assert_found(
            forked,
            (bad, MODEL, "ledger-rewritten"),
            args=["--every"],
        )

    def test_a_rollback_onto_an_old_branch_the_other_way_round(self, forked: Sealed) -> None:
        """Parents of the merge as if it was made on main, with the tree of the old branch."""
        tree = forked.git("rev-parse", "old^{tree}").decode().strip()
        made = forked.git("commit-tree", "-p", "main", "-p", "old", "-m", "x", tree)
        forked.git("reset", "-q", "--hard", made.decode().strip())
        assert_found(forked, (forked.head, MODEL, "ledger-rewritten"))

    def test_a_branch_that_went_on_is_dropped(self, forked: Sealed) -> None:
        """`merge -s ours` of a branch with generations of its own, from main."""
        forked.switch("old")
        forked.generation(9.0)
        forked.switch("main")
        forked.git("merge", "-q", "-s", "ours", "--no-edit", "old")
        assert_found(forked, (forked.head, MODEL, "ledger-rewritten"))
        # Said by a signer it is in order.
        forked.seal("--reseal")
        forked.git("commit", "-q", "--amend", "--no-edit")

    def test_a_join_that_nobody_trusted_signed(self, forked: Sealed) -> None:
        forked.switch("old")
        forked.generation(9.0)
        forked.switch("main")
        forked.merge("old", ok=(1,))
        forked.take("main", MODEL, LEDGER)
        forked.write(LEDGER, forged(forked.ledger(), text(3.0), None))
        forked.add(LEDGER)
        bad = forked.commit("joined")
        assert_found(forked, (bad, MODEL, "ledger-rewritten"))

    def test_an_unrelated_ledger_of_the_same_path(self, chain: Sealed) -> None:
        """Both sides began a checkpoint of the same name: one of them is lost."""
        chain.branch("pr")
        chain.generation(2.0, name="new.safetensors")
        chain.switch("main")
        chain.generation(3.0, name="new.safetensors")
        chain.merge("pr", ok=(1,))
        chain.take("main", "new.safetensors", "new.safetensors.wsum")
        assert_found(chain, (chain.commit("merged"), "new.safetensors", "ledger-rewritten"))

    @pytest.mark.slow
    def test_merges_within_merges(self, forked: Sealed) -> None:
        """Each merges the commit before with the one before that, and goes to and fro."""
        forked.switch("old")
        forked.generation(9.0)
        trees = [forked.git("rev-parse", f"{c}^{{tree}}").decode().strip() for c in ("main", "old")]

        def made(tree: str, *parents: str) -> str:
            named = [word for parent in parents for word in ("-p", parent)]
            return forked.git("commit-tree", *named, "-m", "x", tree).decode().strip()

        line = [forked.oid("main~1"), forked.oid("main")]
        for number in range(1, 300):
            line.append(made(trees[number % 2], line[-1], line[-2]))
        tip = made(trees[0], "old", line[-1], line[-2])
        assert Found(tip, MODEL, "ledger-rewritten") in forked.audit(tip).found

    @pytest.mark.slow
    def test_what_was_before_the_root_comes_back(self, chain: Sealed) -> None:
        """An accepted fault that was mended up to the root, from a parent that it reaches."""
        chain.put(5.0, name="fault.safetensors")
        fault = chain.commit("nobody seals")
        chain.git("rm", "-q", "fault.safetensors")
        root = chain.commit("mended")
        chain.write("readme", "x")
        chain.commit_all()
        tree = chain.git("rev-parse", f"{fault}^{{tree}}").decode().strip()
        for parents in (("HEAD", fault), (fault, "HEAD"), (root, fault), (fault, root)):
            named = [word for parent in parents for word in ("-p", parent)]
            made = chain.git("commit-tree", *named, "-m", "x", tree).decode().strip()
            said = chain.audit(made, root=root)
            assert said.found == [Found(made, "fault.safetensors", "unsealed")], parents

    def test_a_checkpoint_lost_in_a_merge(self, chain: Sealed) -> None:
        chain.branch("pr")
        chain.generation(2.0, name="new.safetensors")
        chain.switch("main")
        chain.git("merge", "-q", "-s", "ours", "--no-edit", "--no-ff", "pr")
        assert_found(chain, (chain.head, "new.safetensors", "ledger-removed"))
