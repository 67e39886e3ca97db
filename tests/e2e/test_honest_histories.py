"""Histories that honest people make: every audit of them is green, by whichever range."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import hostile, sealed
from tests.e2e.hostile import (
    BEFORE,
    DATA,
    MALLORY,
    NEW,
    NEW_LEDGER,
    REVOKED,
    SECOND,
    audit,
    commit_of,
    records,
    stage,
)
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    ROOT,
    SIGNERS,
    Sealed,
    assert_holds,
    checkpoint,
    text,
)

pytestmark = pytest.mark.slow


def green(repo: Sealed, was: str | None = None, root: str | None = ROOT) -> None:
    """By default, of every commit, as the last push, and as one push after `was`.

    Of the pushes one alone, but for every night; where nothing that audits has changed, by one
    of both ways.
    """
    hostile.honest(repo, root=root)
    pushes = sorted({"HEAD~1", *([was] if was else [])})
    ways = [
        way
        for start in pushes
        for way in (("--was", start, f"{start}..HEAD"), (hostile.EVERY, f"{start}..HEAD"))
    ]
    for way in hostile.chosen(ways, hostile.WAYS):
        strict = () if hostile.EVERY in way else ("--require-signed",)
        assert_holds(repo, *strict, *way, root=root)


@pytest.fixture
def pr(base: Sealed) -> Sealed:
    """A branch of two generations, and a main that went on with another checkpoint."""
    base.branch("pr")
    for number in (3.0, 4.0):
        base.generation(number)
    base.switch("main")
    base.generation(5.0, name=OTHER)
    return base


class TestMerges:
    def test_a_merge(self, pr: Sealed) -> None:
        pr.merge("pr")
        green(pr, SECOND)

    def test_a_squash(self, pr: Sealed) -> None:
        pr.git("merge", "-q", "--squash", "pr")
        pr.commit("squashed")
        green(pr, SECOND)

    def test_a_rebase(self, pr: Sealed) -> None:
        pr.switch("pr")
        pr.git("rebase", "-q", "main")
        green(pr, SECOND)

    def test_a_rebase_merge(self, pr: Sealed) -> None:
        """As a forge does it: rebased, and moved onto."""
        main = pr.head
        pr.switch("pr")
        pr.git("rebase", "-q", "main")
        pr.switch("main")
        pr.git("merge", "-q", "--ff-only", "pr")
        green(pr, main)

    def test_a_rebase_with_a_merge_commit(self, pr: Sealed) -> None:
        """Rebased first, merged by a merge commit: half linear."""
        pr.switch("pr")
        pr.git("rebase", "-q", "main")
        pr.switch("main")
        pr.merge("pr")
        green(pr, SECOND)

    def test_a_cherry_pick(self, pr: Sealed) -> None:
        pr.git("cherry-pick", "pr~1", "pr")
        green(pr, SECOND)
        pr.merge("pr")
        green(pr, SECOND)

    def test_part_of_a_branch_is_picked(self, pr: Sealed) -> None:
        """The branch goes on from what was picked, so it fits in later."""
        pr.git("cherry-pick", "pr~1")
        green(pr, SECOND)
        pr.merge("pr", ok=(1,))
        pr.take("pr", MODEL, LEDGER)
        pr.commit("merged")
        green(pr, SECOND)
        assert pr.blob(MODEL, "HEAD") == text(4.0)

    def test_a_revert(self, base: Sealed) -> None:
        base.git("revert", "--no-commit", "HEAD")
        base.seal("--reseal")
        base.commit("back")
        assert base.blob(MODEL, "HEAD") == text(1.0)
        green(base, SECOND)
        base.git("revert", "--no-commit", "HEAD")
        base.seal("--reseal")
        base.commit("and forth")
        green(base, SECOND)

    def test_a_revert_of_a_merge(self, pr: Sealed) -> None:
        merged = pr.merge("pr")
        pr.git("revert", "--no-commit", "-m", "1", "HEAD")
        pr.seal("--reseal")
        pr.commit("taken back")
        green(pr, merged)

    def test_an_octopus(self, base: Sealed) -> None:
        names = ("a.safetensors", "b.safetensors", "c.safetensors")
        for name in names:
            base.branch(f"topic-{name}", SECOND)
            base.generation(7.0, name=name)
        base.switch("main")
        base.generation(3.0)
        base.merge(*(f"topic-{name}" for name in names))
        assert len(base.git("log", "-1", "--format=%P").split()) == 4
        green(base, SECOND)

    def test_main_merged_into_a_branch_again_and_again(self, pr: Sealed) -> None:
        for number in range(3):
            pr.switch("pr")
            pr.merge("main")
            pr.generation(10.0 + number)
            pr.switch("main")
            pr.generation(20.0 + number, name=OTHER)
        pr.merge("pr")
        green(pr, SECOND)

    def test_a_branch_from_the_root(self, base: Sealed) -> None:
        base.branch("old", ROOT)
        base.write("notes", "x\n")
        base.add("notes")
        base.commit("notes")
        for way in ("main", "old"):
            base.branch(f"try-{way}", way)
            base.merge("old" if way == "main" else "main")
            assert base.blob(MODEL, "HEAD") == text(2.0)
            green(base)

    def test_a_branch_that_began_before_the_root(self, base: Sealed) -> None:
        """The root was moved on since."""
        base.branch("old", ROOT)
        base.write("notes", "x\n")
        base.add("notes")
        base.commit("notes")
        base.switch("main")
        # Of the branch's own commits, judged against what the root knows, all are old.
        for _ in range(2):
            base.merge("old")
            assert_holds(base, "--require-signed", root=SECOND)
            assert_holds(base, "--was", "HEAD~1", "HEAD~1..HEAD", root=SECOND)
            base.generation(3.0)
            assert_holds(base, "--require-signed", root=SECOND)
            base.switch("old")
            base.write("more", "x\n")
            base.add("more")
            base.commit("more")
            base.switch("main")

    @pytest.mark.parametrize("order", [0, 1])
    def test_criss_cross(self, pr: Sealed, order: int) -> None:
        """Each branch merges the other; then the two merges are merged."""
        main, branch = pr.oid("main"), pr.oid("pr")
        merged = pr.merge("pr")
        other = commit_of(pr, branch, main, tree=merged)
        parents = [merged, other][:: -1 if order else 1]
        pr.git("reset", "-q", "--hard", commit_of(pr, *parents, tree=merged))
        hostile.honest(pr)

    def test_another_history_without_checkpoints(self, base: Sealed) -> None:
        base.git("checkout", "-q", "--orphan", "pages")
        base.git("rm", "-rqf", ".")
        base.write("page", "x\n")
        base.add("page")
        base.commit("pages")
        base.switch("main")
        base.git("merge", "-q", "--no-edit", "--allow-unrelated-histories", "pages")
        green(base)
        base.generation(3.0)
        green(base, SECOND)

    def test_a_subtree(self, base: Sealed, tmp_path: Path) -> None:
        """Another project's files in a folder, with its history."""
        (tmp_path / "library").mkdir()
        library = Sealed(tmp_path / "library")
        library.git("init", "-q")
        library.write("code.py", "x = 1\n")
        library.add("code.py")
        library.commit("code")
        base.git("fetch", "-q", str(library.path), "main:library")
        base.git(
            "merge", "-q", "-s", "ours", "--no-commit", "--allow-unrelated-histories", "library"
        )
        base.git("read-tree", "--prefix=vendor/", "-u", "library")
        base.commit("vendor")
        green(base)

    def test_empty_commits_and_modes(self, base: Sealed) -> None:
        base.commit("empty")
        (base.path / MODEL).chmod(0o755)
        base.add(MODEL)
        base.commit("executable")
        green(base, SECOND)


class TestForks:
    """Two branches went on with one checkpoint: a signer says which one counts."""

    @pytest.fixture
    def forked(self, base: Sealed) -> Sealed:
        base.branch("pr")
        for number in (30.0, 31.0):
            base.generation(number)
        base.switch("main")
        base.generation(3.0)
        return base

    def settle(self, repo: Sealed, name: str, side: str) -> str:
        repo.merge(name, ok=(1,))
        repo.git("checkout", "-q", f"--{side}", "--", MODEL)
        repo.add(MODEL)
        repo.seal("--reseal")
        return repo.commit(f"{name} merged")

    @pytest.mark.parametrize("side", ["ours", "theirs"])
    def test_settled_in_the_merge(self, forked: Sealed, side: str) -> None:
        self.settle(forked, "pr", side)
        assert forked.blob(MODEL, "HEAD") == text(3.0 if side == "ours" else 31.0)
        green(forked, SECOND)
        forked.generation(4.0)
        green(forked, SECOND)
        forked.write("notes", "x\n")
        forked.add("notes")
        forked.commit("notes")
        green(forked, SECOND)

    def test_settled_in_the_branch(self, forked: Sealed) -> None:
        """The branch takes main in, then main takes the branch."""
        forked.switch("pr")
        self.settle(forked, "main", "ours")
        forked.switch("main")
        forked.merge("pr")
        green(forked, SECOND)
        forked.generation(4.0)
        green(forked, SECOND)

    def test_settled_twice(self, forked: Sealed) -> None:
        self.settle(forked, "pr", "theirs")
        forked.switch("pr")
        forked.generation(32.0)
        forked.switch("main")
        self.settle(forked, "pr", "ours")
        green(forked, SECOND)
        forked.generation(5.0)
        green(forked)

    def test_settled_by_a_rebase(self, forked: Sealed) -> None:
        forked.git("branch", "other", "pr~1")
        forked.switch("other")
        forked.run("git", "rebase", "-q", "main", ok=(1,))
        forked.git("checkout", "-q", "--theirs", "--", MODEL)
        forked.add(MODEL)
        forked.seal("--reseal")
        forked.git("-c", "core.editor=true", "rebase", "--continue")
        hostile.honest(forked)

    def test_dropped_by_ours(self, forked: Sealed) -> None:
        forked.git("merge", "-q", "-s", "ours", "--no-edit", "pr")
        forked.seal("--reseal")
        forked.git("commit", "-q", "--amend", "--no-edit")
        green(forked, SECOND)

    def test_criss_cross_and_settled(self, forked: Sealed) -> None:
        """Each side settled it for itself; one more record settles the two."""
        fork = forked.oid("pr")
        mine = self.settle(forked, "pr", "ours")
        forked.git("checkout", "-q", "-B", "theirs", fork)
        forked.merge(f"{mine}~1", ok=(1,))
        forked.git("checkout", "-q", "--ours", "--", MODEL)
        forked.add(MODEL)
        forked.seal("--reseal")
        forked.commit("their way")
        forked.git("checkout", "-q", "main")
        self.settle(forked, "theirs", "ours")
        hostile.honest(forked)
        forked.generation(5.0)
        hostile.honest(forked)

    def test_both_began_a_checkpoint_of_one_name(self, base: Sealed) -> None:
        base.branch("pr")
        base.generation(6.0, name=NEW)
        base.switch("main")
        base.generation(7.0, name=NEW)
        base.merge("pr", ok=(1,))
        base.git("checkout", "-q", "--ours", "--", NEW)
        base.add(NEW)
        base.seal("--reseal")
        base.commit("ours")
        green(base, SECOND)

    def test_both_sealed_the_same_content(self, base: Sealed) -> None:
        base.branch("pr")
        base.generation(6.0)
        base.switch("main")
        base.put(6.0)
        base.seal("--build", "other", MODEL)
        base.commit("the same")
        base.merge("pr", ok=(1,))
        base.seal("--reseal")
        base.commit("joined")
        green(base, SECOND)


class TestMoves:
    def move(self, repo: Sealed, old: str, new: str) -> str:
        (repo.path / new).parent.mkdir(parents=True, exist_ok=True)
        for suffix in ("", ".wsum"):
            repo.git("mv", old + suffix, new + suffix)
        repo.seal()
        return repo.commit(f"{old} to {new}")

    def test_one(self, base: Sealed) -> None:
        self.move(base, MODEL, NEW)
        assert f"at path={NEW}\n".encode() in base.ledger(NEW_LEDGER)
        green(base, SECOND)
        base.generation(3.0, name=NEW)
        green(base, SECOND)

    def test_into_a_folder_and_on(self, base: Sealed) -> None:
        self.move(base, MODEL, f"a/{MODEL}")
        self.move(base, f"a/{MODEL}", f"a/b/{MODEL}")
        green(base, SECOND)
        base.generation(3.0, name=f"a/b/{MODEL}")
        green(base, SECOND)

    def test_and_back(self, base: Sealed) -> None:
        self.move(base, MODEL, NEW)
        self.move(base, NEW, MODEL)
        green(base, SECOND)
        base.generation(3.0)
        green(base, SECOND)

    def test_with_a_generation(self, base: Sealed) -> None:
        """Moved and changed in one commit: one record says both."""
        for suffix in ("", ".wsum"):
            base.git("mv", MODEL + suffix, NEW + suffix)
        base.put(3.0, name=NEW)
        base.seal()
        base.commit("moved, and changed")
        green(base, SECOND)

    def test_and_another_one_in_its_place(self, base: Sealed) -> None:
        self.move(base, MODEL, NEW)
        base.generation(9.0)
        assert base.ledger().count(b"WSUM 1") >= 1
        green(base, SECOND)
        base.generation(10.0)
        green(base, SECOND)

    def test_two_change_places(self, base: Sealed) -> None:
        for old, new in ((MODEL, "x"), (OTHER, MODEL), ("x", OTHER)):
            for suffix in ("", ".wsum"):
                base.git("mv", old + suffix, new + suffix)
        base.seal()
        base.commit("swapped")
        assert base.blob(MODEL, "HEAD") == text(1.0)
        green(base, SECOND)

    def test_on_a_branch(self, base: Sealed) -> None:
        base.branch("pr")
        self.move(base, MODEL, NEW)
        base.generation(3.0, name=NEW)
        base.switch("main")
        base.generation(5.0, name=OTHER)
        base.merge("pr")
        green(base, SECOND)

    def test_of_a_file_without_a_filter(self, base: Sealed) -> None:
        self.move(base, DATA, "data/tokenizer.json")
        green(base, SECOND)

    def test_of_a_branch_that_is_squashed(self, base: Sealed) -> None:
        base.branch("pr")
        self.move(base, MODEL, NEW)
        base.generation(3.0, name=NEW)
        base.switch("main")
        base.git("merge", "-q", "--squash", "pr")
        base.commit("squashed")
        green(base, SECOND)

    def test_of_a_folder(self, base: Sealed) -> None:
        for name in ("a/x.safetensors", "a/y.safetensors"):
            base.generation(7.0, name=name)
        base.git("mv", "a", "b")
        base.seal()
        base.commit("moved")
        green(base, SECOND)


class TestDeletions:
    def test_that_keeps_its_ledger(self, base: Sealed) -> None:
        base.git("rm", "-q", MODEL)
        base.commit("deleted")
        green(base, SECOND)
        base.generation(3.0)
        assert base.ledger().count(b"WSUM 1") == 3
        green(base, SECOND)

    @pytest.mark.parametrize("names", [(MODEL,), (MODEL, LEDGER)], ids=["file", "file-and-ledger"])
    def test_sealed(self, base: Sealed, names: tuple[str, ...]) -> None:
        base.git("rm", "-q", *names)
        base.seal("--", MODEL)
        base.commit("deleted")
        green(base, SECOND)
        base.write("notes", "x\n")
        base.add("notes")
        base.commit("notes")
        green(base, SECOND)

    @pytest.mark.parametrize("names", [(MODEL,), (MODEL, LEDGER)], ids=["file", "file-and-ledger"])
    def test_sealed_and_a_fresh_one_later(self, base: Sealed, names: tuple[str, ...]) -> None:
        base.git("rm", "-q", *names)
        base.seal("--", MODEL)
        deleted = base.commit("deleted")
        base.generation(9.0)
        green(base, SECOND)
        assert_holds(base, "--was", deleted, f"{deleted}..HEAD")
        base.generation(10.0)
        green(base, SECOND)

    def test_of_a_file_without_a_filter(self, base: Sealed) -> None:
        base.git("rm", "-q", DATA)
        base.seal("--", DATA)
        base.commit("deleted")
        green(base, SECOND)

    def test_on_one_side_of_a_merge(self, base: Sealed) -> None:
        base.branch("pr")
        base.git("rm", "-q", OTHER)
        base.seal("--", OTHER)
        base.commit("deleted")
        base.switch("main")
        base.generation(3.0)
        base.merge("pr")
        green(base, SECOND)


class TestSigners:
    def test_one_more_and_one_less(self, base: Sealed) -> None:
        base.add_signer("bob")
        base.change_signers("alice")
        base.generation(3.0, key="bob")
        base.call("signers", "remove", "alice@example.com")
        base.add(SIGNERS)
        base.change_signers("bob")
        base.generation(4.0, key="bob")
        green(base, SECOND)
        assert audit(base).report["signers"] == ["bob@example.com"]

    def test_one_more_and_its_first_record_in_one_commit(self, base: Sealed) -> None:
        base.add_signer("bob")
        base.seal(SIGNERS)
        base.generation(3.0, key="bob")
        green(base)

    def test_by_a_threshold(self, two: Sealed) -> None:
        two.add_signer("carol")
        two.change_signers("alice", "bob")
        two.generation(3.0, key="carol")
        two.call("signers", "remove", "alice@example.com")
        two.add(SIGNERS)
        two.change_signers("bob", "carol")
        two.generation(4.0, key="carol")
        green(two, "two")
        hostile.honest(two, root="two")

    def test_a_threshold_by_its_command(self, base: Sealed) -> None:
        base.add_signer("bob")
        base.call("signers", "threshold", "2")
        base.add(SIGNERS)
        base.change_signers("alice")
        green(base)
        base.call("signers", "threshold", "1")
        base.add(SIGNERS)
        base.change_signers("alice", "bob")
        green(base)

    def test_by_one_person_with_two_keys_of_several(self, base: Sealed) -> None:
        """A laptop and a desktop: either key is hers."""
        base.call("signers", "add", "alice@example.com", "bob")
        base.add(SIGNERS)
        base.change_signers("alice")
        base.generation(3.0, key="bob")
        green(base)

    @pytest.fixture
    def late(self, base: Sealed) -> Sealed:
        """A branch of bob's from before bob left, and main after that; tag `gone`."""
        base.add_signer("bob")
        fork = base.change_signers("alice")
        base.branch("feature", fork)
        base.generation(3.0, key="bob")
        base.switch("main")
        base.call("signers", "remove", "bob@example.com")
        base.add(SIGNERS)
        base.git("tag", "gone", base.change_signers("alice"))
        return base

    @pytest.mark.parametrize("paths", [(), (MODEL,)], ids=["all", "path"])
    def test_a_branch_from_before_a_removal(self, late: Sealed, paths: tuple[str, ...]) -> None:
        """Bob's record is in order once somebody who is trusted stands by it."""
        late.git("merge", "-q", "--no-commit", "--no-ff", "feature")
        late.seal("--countersign", *paths)
        late.commit("feature")
        assert late.ledger().count(b"sign ") == 4
        assert late.blob(MODEL, "HEAD") == text(3.0)
        for arguments in ((), (hostile.EVERY,), ("--was", "gone", "gone..HEAD")):
            assert_holds(late, "--require-signed", *arguments)
        late.generation(4.0)
        hostile.honest(late)

    def test_a_branch_from_before_a_removal_rebased(self, late: Sealed) -> None:
        late.switch("feature")
        late.git("rebase", "-q", "main")
        late.seal("--countersign", MODEL)
        late.git("commit", "-q", "--amend", "--no-edit")
        hostile.honest(late)

    def test_a_branch_from_before_a_rotation_without_records(self, late: Sealed) -> None:
        """It never sealed anything: there is nothing to stand by."""
        late.branch("docs", f"{SECOND}")
        late.write("notes", "x\n")
        late.add("notes")
        late.commit("notes")
        late.switch("main")
        late.merge("docs")
        assert_holds(late)
        assert_holds(late, hostile.EVERY)

    def test_what_was_signed_before_a_removal_stays(self, revoked: Sealed) -> None:
        """Generation 3 is mallory's, made while mallory was trusted."""
        assert len(records(revoked.ledger())[1]) == 3
        revoked.generation(4.0)
        green(revoked, REVOKED)
        hostile.honest(revoked, root=REVOKED)
        hostile.honest(revoked, root=BEFORE)
        assert audit(revoked).report["signers"] == ["alice@example.com"]

    def test_a_branch_that_merged_main_after_a_removal(self, revoked: Sealed) -> None:
        revoked.branch("pr", BEFORE)
        revoked.generation(7.0, name=OTHER)
        revoked.merge("main")
        revoked.switch("main")
        revoked.generation(4.0)
        revoked.merge("pr")
        green(revoked, REVOKED)

    def test_somebody_who_comes_back(self, revoked: Sealed) -> None:
        revoked.add_signer("mallory")
        revoked.change_signers("alice")
        revoked.generation(4.0, key="mallory")
        green(revoked, REVOKED)
        assert MALLORY in audit(revoked).report["signers"]

    def test_changes_on_two_branches(self, base: Sealed) -> None:
        """Bob came on one, carol on the other; alice puts the two lists together."""
        base.branch("pr")
        base.add_signer("bob")
        base.change_signers("alice")
        base.switch("main")
        base.add_signer("carol")
        base.change_signers("alice")
        base.merge("pr", ok=(1,))
        base.take("main", SIGNERS)
        base.add_signer("bob")
        base.seal("--reseal")
        base.commit("merged")
        hostile.honest(base)
        for number, key in enumerate(("alice", "bob", "carol")):
            base.generation(10.0 + number, key=key)
        hostile.honest(base)
        assert len(audit(base).report["signers"]) == 3


class TestLateSigners:
    """Signers who came when there were checkpoints already."""

    @pytest.fixture
    def late(self, tmp_path: Path, keys: None) -> Sealed:
        (tmp_path / "late").mkdir()
        repo = Sealed(tmp_path / "late")
        repo.git("init", "-q")
        repo.write(MODEL, checkpoint(1.0))
        repo.add(MODEL)
        repo.commit("raw")
        repo.track("*.safetensors")
        repo.put(1.0)
        repo.git("tag", "tracked", repo.commit("tracked"))
        repo.generation(2.0)
        repo.add_signer("alice")
        repo.seal()
        repo.git("tag", ROOT, repo.commit("signers"))
        return repo

    def test_from_then_on(self, late: Sealed) -> None:
        late.generation(3.0)
        hostile.honest(late)
        late.generation(4.0, name=OTHER)
        hostile.honest(late)

    def test_a_branch_from_before(self, late: Sealed) -> None:
        late.branch("old", "tracked")
        late.write("notes", "x\n")
        late.add("notes")
        late.commit("notes")
        late.switch("main")
        late.generation(3.0)
        late.merge("old")
        assert_holds(late, "--require-signed")

    def test_without_a_root(self, late: Sealed) -> None:
        """Trust starts with the first signers that there are, and that is told."""
        late.generation(3.0)
        said = audit(late, "HEAD", root=None)
        assert said.report["signers"] == ["alice@example.com"]
        assert any("root" in note for note in said.report["notes"])


def test_a_clone_of_everything(base: Sealed) -> None:
    """Packed, bare, from elsewhere: what is proved is in the objects."""
    base.generation(3.0)
    base.git("gc", "-q")
    bare = Sealed(base.clone("bare", "--bare").path)
    hostile.honest(bare)
    assert_holds(bare, "--all")


def test_all_tips(pr: Sealed) -> None:
    """Branches and tags that are not merged yet, none of which is another's ancestor."""
    pr.git("tag", "-a", "-m", "x", "v1", SECOND)
    pr.branch("other", ROOT)
    pr.generation(8.0, name=NEW)
    assert_holds(pr, "--all")


def test_sha256(tmp_path: Path, keys: None) -> None:
    repo = sealed.make(tmp_path / "sha256", "--object-format=sha256")
    repo.generation(2.0)
    hostile.honest(repo)


def test_attributes_that_change_nothing(base: Sealed) -> None:
    """Lines of other files, and of what no checkout looks at."""
    lines = ["*.py text", "*.md text eol=lf", "*.png binary", f"{MODEL} -diff linguist-generated",
             f"{DATA} -text", "*.jpg filter=lfs diff=lfs merge=lfs -text"]  # fmt: skip
    hostile.attributes(base, *lines)
    base.git("checkout", "-q", "--", ".gitattributes")
    stage(base, "run.py", b"x = 1\n")
    base.commit("lines")
    green(base, SECOND)


def test_names_that_are_no_twins(base: Sealed) -> None:
    for name in ("model2.safetensors", "sub/model.safetensors", "mod\u00e8le.safetensors"):
        base.generation(7.0, name=name)
    stage(base, "sub/README", b"x\n")
    stage(base, "Sub.txt", b"x\n")
    base.commit("names")
    green(base, SECOND)


def test_a_file_of_two_generations_in_one_push(base: Sealed) -> None:
    """Sealed twice before it was committed: both records come in at once."""
    for number in (3.0, 4.0):
        base.put(number)
        base.seal()
    base.commit("two generations")
    assert base.ledger().count(b"WSUM 1") == 4
    green(base, SECOND)


def test_a_second_signature_later(two: Sealed) -> None:
    """A record that another signer signs as well, in a commit of its own."""
    two.generation(3.0)
    two.seal("--cosign", MODEL, key="bob")
    two.commit("cosigned")
    green(two, "two")
