"""`seal --reseal`: the ledger that has to go on by all that is known, whatever trees say."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Grown
from tests.e2e.merging import unmerged
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    ROOT,
    SIGNERS,
    Sealed,
    assert_found,
    assert_holds,
    assert_holds_by_any_range,
    forged,
    secret,
    text,
)
from tests.kit import Repo
from wtxtgit.text import ledger as text_ledger

NEW, THIRD = "new.safetensors", "third.safetensors"
NEW_LEDGER, THIRD_LEDGER = f"{NEW}.wsum", f"{THIRD}.wsum"


def move(repo: Sealed, before: str = MODEL, after: str = NEW) -> None:
    for end in ("", ".wsum"):
        repo.git("mv", before + end, after + end)


def reseal(repo: Sealed, *words: str, ok: tuple[int, ...] = (0,), key: str = "alice") -> str:
    said = repo.call("seal", "--reseal", "--key", key, *words, ok=ok)
    return said.out + said.err


def gens(repo: Sealed, name: str = LEDGER) -> list[tuple[int, str | None]]:
    """The generations of a staged ledger, with where each moved it."""
    read = text_ledger.read(repo.blob(name, "")).ledger
    assert read is not None
    return [(one.meta.gen, one.at.decode() if one.at else None) for one in read.records]


def settle(repo: Sealed, name: str, content: bytes) -> None:
    """End a conflict of a checkpoint, or bring it to where it stays."""
    repo.write(name, content)
    repo.add(name)


class TestMoves:
    @pytest.fixture
    def diverged(self, grown: Grown) -> Sealed:
        """`side` moved the model, `main` sealed another generation of it."""

        def grow(chain: Sealed) -> None:
            chain.branch("side")
            move(chain)
            chain.seal()
            chain.commit("moved")
            chain.switch("main")
            chain.generation(2.0)

        return grown("moved aside", grow)

    @pytest.mark.parametrize("onto", ["main", "side"])
    def test_on_one_side_and_a_generation_on_the_other(self, diverged: Sealed, onto: str) -> None:
        diverged.switch(onto)
        diverged.merge("side" if onto == "main" else "main", ok=(1,))
        assert unmerged(diverged) == [NEW_LEDGER]
        settle(diverged, NEW, text(2.0))
        reseal(diverged)
        assert gens(diverged, NEW_LEDGER) == [(1, None), (2, None), (3, NEW)]
        diverged.git("commit", "-q", "--no-edit")
        assert_holds(diverged)
        assert_holds(diverged, "--every")

    def test_where_it_stays(self, diverged: Sealed) -> None:
        diverged.merge("side", ok=(1,))
        diverged.git("rm", "-q", "-f", NEW, NEW_LEDGER)
        settle(diverged, MODEL, text(2.0))
        reseal(diverged)
        assert gens(diverged) == [(1, None), (2, NEW), (3, MODEL)]
        diverged.git("commit", "-q", "--no-edit")
        assert_holds(diverged)

    def test_one_that_git_does_not_see(self, diverged: Sealed) -> None:
        """Both ledgers stand: one of them is taken away, what it says is joined."""
        diverged.run("git", "merge", "-q", "-s", "resolve", "side", ok=(1,))
        diverged.git("rm", "-q", "-f", MODEL, LEDGER)
        settle(diverged, NEW, text(2.0))
        reseal(diverged)
        diverged.git("commit", "-q", "--no-edit")
        assert_holds(diverged)

    def test_as_a_rebase(self, diverged: Sealed) -> None:
        diverged.switch("side")
        diverged.run("git", "rebase", "-q", "main", ok=(1,))
        settle(diverged, NEW, text(2.0))
        reseal(diverged)
        diverged.git("rebase", "--continue", env={"GIT_EDITOR": "true"})
        assert gens(diverged, NEW_LEDGER) == [(1, None), (2, None), (3, NEW)]
        assert_holds_by_any_range(diverged)

    def both(self, chain: Sealed) -> None:
        for branch, name in (("side", NEW), ("main", THIRD)):
            chain.branch(branch, ROOT)
            move(chain, MODEL, name)
            chain.seal()
            chain.commit(branch)
        chain.merge("side", ok=(1,))

    @pytest.mark.parametrize(("kept", "gone"), [(NEW, THIRD), (THIRD, NEW)])
    def test_both_sides_moved_it(self, chain: Sealed, kept: str, gone: str) -> None:
        self.both(chain)
        chain.git("rm", "-q", "-f", "--ignore-unmatch", MODEL, LEDGER, gone, f"{gone}.wsum")
        settle(chain, kept, text(1.0))
        reseal(chain)
        assert gens(chain, f"{kept}.wsum") == [(1, None), (2, gone), (3, kept)]
        chain.git("commit", "-q", "--no-edit")
        assert_holds(chain)

    def test_neither_of_both_places(self, chain: Sealed) -> None:
        self.both(chain)
        chain.git("rm", "-q", "-f", NEW, NEW_LEDGER, THIRD, THIRD_LEDGER)
        settle(chain, MODEL, text(1.0))
        assert f"{MODEL}: its ledger was continued at {NEW} and {THIRD}" in reseal(chain, ok=(1,))

    def test_a_move_that_is_reverted(self, chain: Sealed) -> None:
        move(chain)
        chain.seal()
        chain.commit("moved")
        chain.git("revert", "--no-commit", "HEAD")
        said = reseal(chain)
        assert f"moved     {MODEL}  generation 3" in said
        chain.commit("back")
        assert gens(chain) == [(1, None), (2, NEW), (3, MODEL)]
        assert_holds_by_any_range(chain)

    @pytest.mark.parametrize("words", [(), ("--", NEW)], ids=["all", "path"])
    def test_one_that_is_not_sealed(self, chain: Sealed, words: tuple[str, ...]) -> None:
        move(chain)
        chain.commit("moved")
        assert chain.audit().kinds == {"moved-unsealed"}
        assert f"moved     {NEW}  generation 2" in reseal(chain, *words)
        chain.commit("sealed")
        assert_holds(chain)
        assert_holds(chain, "--every")

    def test_two_that_changed_places(self, chain: Sealed) -> None:
        chain.generation(2.0)
        move(chain, MODEL, THIRD)
        move(chain, OTHER, MODEL)
        move(chain, THIRD, OTHER)
        chain.commit("not sealed")
        assert not chain.audit().report["ok"]
        reseal(chain)
        chain.commit("sealed")
        assert_holds(chain, "HEAD~1..HEAD")

    def test_a_legacy_history(self, chain: Sealed) -> None:
        """Moved with plain git, and gone on from by records that do not say where."""
        move(chain)
        chain.commit("moved")
        for value in (2.0, 3.0):
            ledger = (chain.path / NEW_LEDGER).read_bytes()
            chain.put(value, name=NEW)
            chain.write(NEW_LEDGER, forged(ledger, text(value), secret("alice")))
            chain.add()
            chain.commit(f"generation {value}")
        said = chain.audit()
        assert {(one.path, one.kind) for one in said.found} == {(NEW, "moved-unsealed")}
        assert len(said.found) == 1, "it is told once, not with each generation"
        reseal(chain)
        chain.commit("the move")
        assert gens(chain, NEW_LEDGER) == [(1, None), (2, None), (3, None), (4, NEW)]
        assert_holds_by_any_range(chain)
        assert_holds(chain, "--every")
        chain.generation(4.0, name=NEW)
        assert_holds_by_any_range(chain)


class TestSides:
    @pytest.fixture
    def conflict(self, grown: Grown) -> Sealed:
        def grow(chain: Sealed) -> None:
            chain.branch("side")
            chain.generation(2.0)
            chain.generation(3.0)
            chain.switch("main")
            chain.generation(4.0)
            chain.merge("side", ok=(1,))
            settle(chain, MODEL, text(5.0))

        return grown("settled conflict", grow)

    def test_ours_goes_on(self, conflict: Sealed) -> None:
        reseal(conflict)
        assert gens(conflict) == [(1, None), (2, None), (4, None)], "later than theirs"
        conflict.git("commit", "-q", "--no-edit")
        assert_holds(conflict)

    def test_theirs_goes_on(self, conflict: Sealed) -> None:
        reseal(conflict, "--reseal=side")
        assert len(gens(conflict)) == 4
        conflict.git("commit", "-q", "--no-edit")
        assert_holds(conflict)

    def test_that_of_the_upstream_goes_on(self, conflict: Sealed, tmp_path: object) -> None:
        conflict.git("remote", "add", "origin", ".")
        conflict.git("update-ref", "refs/remotes/origin/side", "side")
        conflict.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/side")
        reseal(conflict)
        assert len(gens(conflict)) == 4

    def test_what_a_wrong_key_made_is_made_anew(self, conflict: Sealed) -> None:
        reseal(conflict, key="mallory")
        reseal(conflict)
        conflict.git("commit", "-q", "--no-edit")
        assert_holds(conflict)

    def test_what_is_right_stays(self, conflict: Sealed) -> None:
        reseal(conflict)
        before = conflict.blob(LEDGER, "")
        assert "are already sealed" in reseal(conflict)
        assert conflict.blob(LEDGER, "") == before

    def test_a_merge_that_was_made_already(self, conflict: Sealed) -> None:
        conflict.git("checkout", "-q", "--ours", "--", LEDGER)
        conflict.git("add", LEDGER)
        conflict.git("commit", "-q", "--no-edit")
        assert not conflict.audit().report["ok"]
        reseal(conflict)
        conflict.git("commit", "-q", "--amend", "--no-edit")
        assert_holds(conflict)

    def test_what_a_commit_before_lost(self, conflict: Sealed) -> None:
        """It is in no tree that the next commit has as a parent."""
        conflict.git("checkout", "-q", "--theirs", "--", LEDGER)
        conflict.git("add", LEDGER)
        conflict.git("commit", "-q", "--no-edit")
        conflict.git("commit", "-q", "--allow-empty", "-m", "later")
        reseal(conflict)
        conflict.commit("joined")
        assert_holds(conflict, "HEAD~1..HEAD")

    def test_both_began_one(self, chain: Sealed) -> None:
        for branch, value in (("side", 2.0), ("main", 3.0)):
            chain.branch(branch, ROOT)
            chain.generation(value, name=NEW)
        chain.merge("side", ok=(1,))
        settle(chain, NEW, text(2.0))
        reseal(chain)
        chain.git("commit", "-q", "--no-edit")
        assert_holds(chain)

    def test_one_began_where_the_other_moved(self, chain: Sealed) -> None:
        chain.branch("side")
        chain.generation(7.0, name=NEW)
        chain.switch("main")
        move(chain)
        chain.seal()
        chain.commit("moved")
        chain.merge("side", ok=(1,))
        settle(chain, NEW, text(7.0))
        reseal(chain)
        chain.git("commit", "-q", "--no-edit")
        assert_holds(chain)


class TestHistory:
    def test_an_older_ledger_that_came_back(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.take(ROOT, LEDGER, MODEL)
        chain.commit("rolled back")
        assert chain.audit().kinds == {"ledger-rewritten"}
        reseal(chain, "--", MODEL)
        assert gens(chain) == [(1, None), (2, None), (3, None)]
        chain.commit("goes on")
        assert_holds(chain, "HEAD~1..HEAD")

    def test_a_ledger_that_does_not_read(self, chain: Sealed) -> None:
        chain.write(LEDGER, chain.ledger() + b"meta\n")
        chain.add()
        chain.commit("broken")
        reseal(chain)
        chain.commit("whole")
        assert_holds(chain, "HEAD~1..HEAD")

    def test_a_ledger_begun_anew(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.git("rm", "-q", LEDGER)
        chain.seal(MODEL)
        chain.commit("anew")
        assert chain.audit().kinds == {"ledger-rewritten"}
        reseal(chain)
        assert gens(chain) == [(1, None), (2, None)], "its last generation is of this content"
        chain.commit("goes on")
        assert_holds(chain, "HEAD~1..HEAD")

    def test_a_ledger_of_another_repository(self, chain: Sealed) -> None:
        ledger = chain.ledger()
        head = b"WLEDGER 1 repo=" + b"1" * 64
        chain.put(1.0, name=NEW)
        chain.write(NEW_LEDGER, head + ledger[len(head) :])
        chain.add()
        reseal(chain)
        chain.commit()
        assert_holds_by_any_range(chain)

    def test_what_was_sealed_and_not_committed(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal("--build", "run-17", MODEL)
        chain.put(1.0, name=NEW)
        chain.seal("--build", "run-17", NEW)
        before = chain.blob(LEDGER, ""), chain.blob(NEW_LEDGER, "")
        assert "are already sealed" in reseal(chain)
        assert before == (chain.blob(LEDGER, ""), chain.blob(NEW_LEDGER, ""))

    def test_the_signers(self, chain: Sealed) -> None:
        for branch, name in (("side", "bob"), ("main", "carol")):
            chain.branch(branch, ROOT)
            chain.add_signer(name)
            chain.change_signers("alice")
        chain.merge("side", ok=(1,))
        chain.git("checkout", "-q", "--ours", "--", SIGNERS)
        chain.add_signer("bob")
        reseal(chain)
        chain.git("commit", "-q", "--no-edit")
        said = assert_holds(chain)
        assert len(said.report["signers"]) == 3

    def test_of_nothing(self, repo: Repo, keys: None) -> None:
        sealed = Sealed(repo.path)
        sealed.track("*.safetensors")
        sealed.put(1.0)
        said = sealed.call("seal", "--reseal", "--key", "alice", ok=(2,))
        assert "no commit yet" in said.err

    def test_where_nobody_signs(self, repo: Repo, keys: None) -> None:
        sealed = Sealed(repo.path)
        sealed.track("*.safetensors")
        sealed.generation(1.0)
        sealed.generation(2.0)
        sealed.take("HEAD~1", MODEL, LEDGER)
        sealed.call("seal", "--reseal", "--key", "alice")
        assert len(gens(sealed)) == 3
        sealed.commit()
        assert_holds(sealed, root=None)

    def test_a_shallow_clone(self, chain: Sealed) -> None:
        chain.generation(2.0)
        shallow = Sealed(chain.path.parent / "shallow")
        chain.git("clone", "-q", "--depth", "1", f"file://{chain.path}", str(shallow.path))
        shallow.put(1.0)
        shallow.write(LEDGER, chain.ledger(revision=ROOT))
        shallow.add()
        reseal(shallow)
        assert gens(shallow) == [(1, None), (2, None), (3, None)]

    def test_by_a_trust_root_that_it_does_not_have(self, chain: Sealed) -> None:
        chain.branch("other")
        chain.generation(2.0)
        chain.switch("main")
        said = chain.call("seal", "--reseal", "--trust-root", "other", "--key", "alice", ok=(4,))
        assert "does not descend from the trust root" in said.err


def test_of_a_copy_there_is_one(chain: Sealed) -> None:
    """The ledger stays where its place is, the copy begins one of its own."""
    chain.write(NEW, text(1.0))
    chain.write(NEW_LEDGER, chain.ledger())
    chain.add()
    commit = chain.commit("copied")
    assert_found(chain, (commit, NEW, "bad-record"), (commit, MODEL, "ledger-rewritten"))
    reseal(chain)
    assert gens(chain) == [(1, None)]
    assert gens(chain, OTHER_LEDGER) == [(1, None)]
    chain.commit("its own")
    assert_holds(chain, "HEAD~1..HEAD")
