"""What an audit must find of changes of the signers, and of signers of other histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import hostile, sealed
from tests.e2e.sealed import (
    MODEL,
    OTHER,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_found,
    assert_holds,
)


class TestSigners:
    @pytest.fixture
    def two(self, chain: Sealed) -> Sealed:
        """Alice and bob, both of whom have to seal a change of the signers."""
        chain.add_signer("bob")
        chain.set_threshold(2)
        chain.change_signers("alice")
        return chain

    def test_a_key_removed_and_then_used(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        chain.call("signers", "remove", "bob@example.com")
        chain.add(SIGNERS)
        chain.change_signers("alice")
        assert_holds(chain)
        bad = chain.generation(3.0, key="bob")
        assert_found(chain, (bad, MODEL, "untrusted-signer"), code=4)

    def test_a_key_removed_and_then_used_on_an_older_branch(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.branch("pr")
        chain.generation(2.0, key="bob")
        chain.switch("main")
        chain.call("signers", "remove", "bob@example.com")
        chain.add(SIGNERS)
        chain.change_signers("alice")
        merged = chain.merge("pr")
        assert_found(chain, (merged, MODEL, "untrusted-signer"), code=4)
        assert_found(chain, (merged, MODEL, "untrusted-signer"), code=4, args=["--every"])

    @pytest.mark.slow
    def test_an_older_branch_that_never_knew_a_key_which_came_and_went(self, chain: Sealed) -> None:
        """What it signed in between stays good, for the older branch as well."""
        chain.branch("old")
        chain.write("readme", "x")
        chain.commit_all()
        chain.switch("main")
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        chain.call("signers", "remove", "bob@example.com")
        chain.add(SIGNERS)
        chain.change_signers("alice")
        merged = chain.merge("old")
        assert_holds(chain)
        chain.switch("old")
        chain.merge("main")
        assert_holds(chain)
        # Not so where bob signs on that branch.
        chain.git("reset", "-q", "--hard", "HEAD~1")
        chain.generation(3.0, name=OTHER, key="bob")
        chain.switch("main")
        chain.git("reset", "-q", "--hard", f"{merged}~1")
        assert_found(chain, (chain.merge("old"), OTHER, "untrusted-signer"), code=4)

    def test_a_change_sealed_by_fewer_than_the_threshold(self, two: Sealed) -> None:
        two.add_signer("carol")
        bad = two.change_signers("alice")
        assert_found(two, (bad, SIGNERS, "signers-changed"), code=4)

    def test_a_change_sealed_by_one_of_before_and_one_that_it_adds(self, two: Sealed) -> None:
        two.add_signer("carol")
        bad = two.change_signers("alice", "carol")
        assert_found(two, (bad, SIGNERS, "signers-changed"), code=4)

    def test_a_threshold_lowered_by_one(self, two: Sealed) -> None:
        two.set_threshold(1)
        bad = two.change_signers("alice")
        assert_found(two, (bad, SIGNERS, "signers-changed"), code=4)
        # It counts for nothing afterwards.
        two.add_signer("carol")
        worse = two.change_signers("alice")
        wanted = [(commit, SIGNERS, "signers-changed") for commit in (bad, worse)]
        assert_found(two, *wanted, code=4)

    def test_two_changes_squashed(self, chain: Sealed) -> None:
        """Alice lets bob in, bob puts alice out: as one it is sealed by bob alone."""
        chain.branch("pr")
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.call("signers", "remove", "alice@example.com")
        chain.add(SIGNERS)
        chain.change_signers("bob")
        assert_holds(chain)
        chain.switch("main")
        chain.git("merge", "-q", "--squash", "pr")
        bad = chain.commit("squashed")
        assert_found(chain, (bad, SIGNERS, "signers-changed"), code=4)

    def test_the_file_deleted(self, chain: Sealed) -> None:
        chain.git("rm", "-q", SIGNERS)
        bad = chain.commit("nobody")
        assert_found(chain, (bad, SIGNERS, "signers-changed"), code=4)
        # The signers stay: neither no seal nor another's will do.
        worse = chain.generation(2.0, key="mallory")
        assert_found(
            chain,
            (bad, SIGNERS, "signers-changed"),
            (worse, MODEL, "untrusted-signer"),
            code=4,
        )

    def test_the_file_deleted_with_its_ledger_and_begun_anew(self, chain: Sealed) -> None:
        chain.git("rm", "-q", SIGNERS, SIGNERS_LEDGER)
        bad = chain.commit("nobody")
        found = [(bad, SIGNERS, "signers-changed"), (bad, SIGNERS, "ledger-removed")]
        assert_found(chain, *found)
        chain.add_signer("mallory")
        chain.change_signers("mallory")
        worse = chain.generation(2.0, key="mallory")
        said = chain.audit()
        assert said.code == 1
        assert sealed.Found(worse, MODEL, "untrusted-signer") in said.found
        assert said.report["signers"] == ["alice@example.com"]

    @pytest.mark.parametrize(
        "content",
        ["", "# nobody\n", "alice ssh-rsa AAAA\n", "alice cert-authority ssh-ed25519 AAAA\n", "\0"],
    )
    @pytest.mark.slow
    def test_a_file_of_nobody_or_of_nonsense(self, chain: Sealed, content: str) -> None:
        chain.write(SIGNERS, content)
        chain.add(SIGNERS)
        # `seal` refuses most of them; another program may not.
        ledger = hostile.appended(chain.blob(SIGNERS_LEDGER), chain.blob(SIGNERS), "alice")
        chain.write(SIGNERS_LEDGER, ledger)
        chain.add(SIGNERS_LEDGER)
        bad = chain.commit()
        assert_found(chain, (bad, SIGNERS, "signers-changed"), code=4)

    def test_their_ledger_moved_away(self, chain: Sealed) -> None:
        chain.git("mv", SIGNERS_LEDGER, "elsewhere.wsum")
        bad = chain.commit()
        assert_found(chain, (bad, "elsewhere", "bad-record"), (bad, SIGNERS, "unsealed"))

    def test_a_signers_file_that_nobody_seals(self, tmp_path: Path, keys: None) -> None:
        (tmp_path / "chain").mkdir()
        repo = Sealed(tmp_path / "chain")
        repo.git("init", "-q")
        repo.add_signer("alice")
        bad = repo.commit()
        assert_found(repo, (bad, SIGNERS, "unsealed"), root=None)
        # The root's own tree is the tip's.
        assert_found(repo, (bad, SIGNERS, "unsealed"), root="HEAD")

    def test_a_first_file_of_nobody(self, tmp_path: Path, keys: None) -> None:
        """It lets the first one with a key come after it."""
        (tmp_path / "chain").mkdir()
        repo = Sealed(tmp_path / "chain")
        repo.git("init", "-q")
        repo.write(SIGNERS, "# nobody yet\n")
        repo.add(SIGNERS)
        repo.seal()
        repo.commit("nobody")
        said = repo.audit(root="HEAD")
        assert said.report["notes"] == ["the trust root has no signers", "no commit was judged"]
        repo.add_signer("alice")
        repo.seal()
        repo.commit("alice")
        assert assert_holds(repo, root=None).report["signers"] == ["alice@example.com"]


class TestOtherHistories:
    """A history without a common commit, with signers and checkpoints of its own."""

    @pytest.fixture
    def both(self, chain: Sealed, tmp_path: Path) -> Sealed:
        other = tmp_path / "foreign"
        other.mkdir()
        foreign = Sealed(other)
        foreign.git("init", "-q")
        foreign.track("*.safetensors")
        foreign.add_signer("mallory")
        foreign.put(7.0, name="foreign.safetensors")
        foreign.seal(key="mallory")
        foreign.commit("foreign")
        chain.git("fetch", "-q", str(foreign.path), "main:foreign")
        return chain

    def tree(self, repo: Sealed, *from_foreign: str) -> str:
        """Main's tree with files of the other one."""
        repo.switch("main")
        repo.take("foreign", "foreign.safetensors", "foreign.safetensors.wsum", *from_foreign)
        return repo.git("write-tree").decode().strip()

    def merge(self, repo: Sealed, tree: str, *parents: str) -> str:
        named = [word for parent in parents for word in ("-p", parent)]
        made = repo.git("commit-tree", *named, "-m", "merged", tree).decode().strip()
        repo.git("reset", "-q", "--hard", made)
        return made

    @pytest.mark.parametrize("root", [ROOT, None])
    @pytest.mark.parametrize("signers", [(), (SIGNERS, SIGNERS_LEDGER)], ids=["ours", "theirs"])
    def test_merged_into_ours(self, both: Sealed, root: str | None, signers: tuple[str]) -> None:
        bad = self.merge(both, self.tree(both, *signers), "main", "foreign")
        said = both.audit(root=root)
        assert said.code == 1
        # It names a repository whose signers nobody here has sealed.
        found = {sealed.Found(bad, "foreign.safetensors", "bad-record")}
        assert said.report["signers"] == ["alice@example.com"]
        if signers:
            kinds = ("signers-changed", "ledger-rewritten")
            found |= {sealed.Found(bad, SIGNERS, kind) for kind in kinds}
        assert set(said.found) == found
        worse = both.generation(8.0, key="mallory")
        assert sealed.Found(worse, MODEL, "untrusted-signer") in both.audit(root=root).found

    @pytest.mark.parametrize("root", [ROOT, None])
    @pytest.mark.parametrize("signers", [(), (SIGNERS, SIGNERS_LEDGER)], ids=["ours", "theirs"])
    def test_ours_merged_into_it(self, both: Sealed, root: str | None, signers: tuple[str]) -> None:
        bad = self.merge(both, self.tree(both, *signers), "foreign", "main")
        said = both.audit(root=root)
        assert said.code == 1
        if root is not None:
            # Which parent is the first one changes nothing of who is trusted.
            assert said.report["signers"] == ["alice@example.com"]
            found = {(one.path, one.kind) for one in said.found}
            assert {("foreign.safetensors", "bad-record"), (SIGNERS, "signers-changed")} <= found
            return
        # On the line of first parents mallory's are the first signers: ours come from elsewhere.
        assert said.report["signers"] == ["mallory@example.com"]
        theirs = {sealed.Found(bad, name, "bad-record") for name in (MODEL, OTHER)}
        if not signers:
            kinds = ("signers-changed", "ledger-rewritten")
            theirs |= {sealed.Found(bad, SIGNERS, kind) for kind in kinds}
        assert set(said.found) == theirs

    def test_signers_that_nobody_sealed_are_not_replaced(
        self, both: Sealed, tmp_path: Path
    ) -> None:
        """With no root and no ledger, the first file that was seen is what is trusted."""
        both.git("checkout", "-q", "--orphan", "plain")
        both.git("rm", "-rq", "--cached", ".")
        both.git("clean", "-fdq")
        both.add_signer("alice")
        both.commit("never sealed")
        tree = both.git("rev-parse", "HEAD^{tree}").decode().strip()
        self.merge(both, tree, "plain", "foreign")
        assert both.audit(root=None).report["signers"] == ["alice@example.com"]
