"""Attacks by the shape of history: no choice of parents brings back what was left behind."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    NEW,
    NEW_LEDGER,
    REWRITTEN,
    SECOND,
    assert_refused,
    at_once,
    commit_of,
    put_copy,
    stage,
    store,
    unstage,
)
from tests.e2e.sealed import LEDGER, MODEL, OTHER, OTHER_LEDGER, ROOT, Sealed, text

pytestmark = pytest.mark.slow

PAST = {"GIT_COMMITTER_DATE": "@1000 +0000", "GIT_AUTHOR_DATE": "@1000 +0000"}
FUTURE = {"GIT_COMMITTER_DATE": "@4000000000 +0000", "GIT_AUTHOR_DATE": "@4000000000 +0000"}


@pytest.fixture
def rolled(base: Sealed) -> Sealed:
    """A main of two generations, and a side commit that goes back to the first; tag `rolled`."""
    base.take(ROOT, MODEL, LEDGER)
    base.git("tag", "rolled", at_once(base, "as of the first generation"))
    base.git("reset", "-q", "--hard", SECOND)
    return base


@pytest.fixture
def orphan(base: Sealed) -> Sealed:
    """A parent-less commit with the root's tree; tag `orphan`."""
    base.git("tag", "orphan", commit_of(base, tree=ROOT))
    return base


class TestRollbacks:
    """Without a key: victims get an old model, which its signer has replaced."""

    @pytest.mark.parametrize("first", [ROOT, SECOND, "rolled"])
    def test_by_an_octopus(self, rolled: Sealed, first: str) -> None:
        """Whichever parent comes first."""
        for parents in permutations((ROOT, SECOND, "rolled")):
            if parents[0] == first:
                tip = commit_of(rolled, *parents, tree="rolled")
                assert_refused(rolled, tip, REWRITTEN, was=SECOND)

    def test_by_parents_named_twice(self, rolled: Sealed) -> None:
        """A commit that git's own commands would not make."""
        tree = rolled.git("rev-parse", "rolled^{tree}").decode().strip()
        lines = [f"tree {tree}", *(f"parent {rolled.oid(c)}" for c in (ROOT, ROOT, SECOND, SECOND))]
        lines += [f"{who} a <a@x> 1700000000 +0000" for who in ("author", "committer")]
        tip = store(rolled, "\n".join([*lines, "", "c\n"]).encode(), "commit")
        assert_refused(rolled, tip, REWRITTEN, was=SECOND, unjudged=True)

    @pytest.mark.parametrize("order", [("orphan", SECOND), (SECOND, "orphan")], ids=str)
    def test_by_an_orphan_that_is_merged(self, orphan: Sealed, order: tuple[str, str]) -> None:
        """Another history has only the first generation, and the merge takes its tree."""
        tip = commit_of(orphan, *order, tree="orphan")
        assert_refused(orphan, tip, REWRITTEN, was=SECOND)

    def test_by_an_orphan_as_the_tip(self, orphan: Sealed) -> None:
        """A branch is replaced by a history that reaches no root."""
        assert_refused(orphan, "orphan", "bad-root")
        assert_refused(orphan, "orphan", "bad-root", was=SECOND)

    def test_by_an_orphan_below_an_old_branch(self, orphan: Sealed) -> None:
        """The first parents' line is a history that never knew the second generation."""
        first = commit_of(orphan, "orphan", ROOT, tree=ROOT)
        second = commit_of(orphan, first, tree=ROOT)
        tip = commit_of(orphan, second, SECOND, tree=ROOT)
        assert_refused(orphan, tip, REWRITTEN, was=SECOND)

    def test_mended_on_the_side_and_taken_from_there_again(self, rolled: Sealed) -> None:
        """The side branch ends as main has it, and still holds what the merge takes."""
        mended = commit_of(rolled, "rolled", tree=SECOND)
        main = commit_of(rolled, SECOND, mended, tree=SECOND)
        for parents in (("rolled", main), (main, "rolled"), (ROOT, main, "rolled")):
            assert_refused(rolled, commit_of(rolled, *parents, tree="rolled"), REWRITTEN, was=main)

    def test_by_a_detour_of_many_merges(self, rolled: Sealed) -> None:
        """Each merge has one parent that is as it is, so nothing seems to change."""
        side = commit_of(rolled, ROOT, tree=ROOT)
        for _ in range(5):
            side = commit_of(rolled, side, ROOT, tree=ROOT)
        half = commit_of(rolled, side, "rolled", tree=ROOT)
        tip = commit_of(rolled, half, side, SECOND, tree=ROOT)
        assert_refused(rolled, tip, REWRITTEN, was=SECOND)

    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_by_criss_cross_merges_of_merges(self, rolled: Sealed, depth: int) -> None:
        one, two = SECOND, commit_of(rolled, ROOT, tree=ROOT)
        for _ in range(depth):
            one, two = (
                commit_of(rolled, one, two, tree=SECOND),
                commit_of(rolled, two, one, tree=ROOT),
            )
        for parents in ((one, two), (two, one)):
            assert_refused(rolled, commit_of(rolled, *parents, tree=ROOT), REWRITTEN, was=SECOND)

    def test_by_ours_on_an_old_branch(self, base: Sealed) -> None:
        """`merge -s ours` where main is the second parent, and main is moved onto it."""
        base.branch("old", ROOT)
        base.write("x", "x")
        base.add("x")
        base.commit("old")
        base.git("merge", "-q", "-s", "ours", "--no-edit", "main")
        base.switch("main")
        base.git("merge", "-q", "--ff-only", "old")
        assert base.blob(MODEL, "HEAD") == text(1.0)
        assert_refused(base, "HEAD", REWRITTEN, was=SECOND)

    @pytest.mark.parametrize("dates", [PAST, FUTURE], ids=["past", "future"])
    def test_by_dates(self, rolled: Sealed, dates: dict[str, str]) -> None:
        """Who walks by dates comes to a child before its parents."""
        evil = commit_of(rolled, SECOND, tree="rolled", env=dates)
        old = commit_of(rolled, ROOT, tree=ROOT, env=FUTURE if dates is PAST else PAST)
        tip = commit_of(rolled, old, evil, tree=evil, env=dates)
        assert_refused(rolled, tip, REWRITTEN, was=SECOND)

    def test_hidden_behind_a_tip_that_is_as_one_parent(self, rolled: Sealed) -> None:
        """Nothing changed against the second parent, all against the first."""
        base = commit_of(rolled, SECOND, "rolled", tree="rolled")
        tip = commit_of(rolled, base, "rolled", tree="rolled")
        assert_refused(rolled, tip, REWRITTEN, was=SECOND)

    def test_of_one_checkpoint_of_two(self, base: Sealed) -> None:
        """Each parent has one old model; the merge takes the old one of each."""
        base.branch("one", ROOT)
        base.generation(5.0, name=OTHER)
        base.switch("main")
        unstage(base, OTHER, OTHER_LEDGER)
        put_copy(base, ROOT, OTHER, OTHER)
        put_copy(base, ROOT, MODEL, MODEL)
        for parents in (("one", SECOND), (SECOND, "one"), (ROOT, "one", SECOND)):
            tip = commit_of(base, *parents)
            assert_refused(base, tip, REWRITTEN, was=SECOND)

    def test_two_pushes_that_each_take_a_side(self, rolled: Sealed) -> None:
        """The first push brings the old commit in unseen, the second takes its tree."""
        old = commit_of(rolled, ROOT, tree=ROOT)
        first = commit_of(rolled, SECOND, old, tree=SECOND)
        hostile.honest(rolled, first)
        assert_refused(rolled, commit_of(rolled, old, first, tree=old), REWRITTEN, was=first)

    def test_as_a_tree_inside_another_history(self, rolled: Sealed) -> None:
        """A subtree merge's twin: what lay in a folder elsewhere is put over main's own."""
        rolled.git("read-tree", "--empty")
        rolled.git("read-tree", "--prefix=vendor/", ROOT)
        vendor = commit_of(rolled)
        rolled.git("read-tree", SECOND)
        put_copy(rolled, ROOT, MODEL, MODEL)
        assert_refused(rolled, commit_of(rolled, vendor, SECOND), REWRITTEN, was=SECOND)

    def test_with_the_record_of_a_branch_that_went_on(self, base: Sealed) -> None:
        """Main went on after the branch; the branch's generation is put over main's."""
        base.branch("pr", ROOT)
        base.generation(7.0)
        for parents in ((SECOND, "pr"), ("pr", SECOND), (ROOT, "pr", SECOND)):
            assert_refused(base, commit_of(base, *parents, tree="pr"), was=SECOND)

    def test_with_the_contents_of_one_side_and_the_ledger_of_the_other(self, base: Sealed) -> None:
        base.git("read-tree", SECOND)
        stage(base, MODEL, text(1.0))
        for parents in ((SECOND, ROOT), (ROOT, SECOND)):
            tip = commit_of(base, *parents)
            assert_refused(base, tip, "content-mismatch", was=SECOND)


class TestLosses:
    """Without a key: a checkpoint is gone, and with it all that its ledger told."""

    def test_of_a_checkpoint_that_only_a_side_branch_had(self, base: Sealed) -> None:
        base.branch("pr")
        base.generation(3.0, name=NEW)
        for parents in ((SECOND, "pr"), ("pr", SECOND)):
            tip = commit_of(base, *parents, tree=SECOND)
            assert_refused(base, tip, "ledger-removed", was=SECOND)

    def test_and_another_one_in_its_place_later(self, base: Sealed) -> None:
        """Dropped in a merge, and put back unsealed where no filter is."""
        base.branch("pr")
        base.generation(3.0, name=NEW)
        dropped = commit_of(base, SECOND, "pr", tree=SECOND)
        base.git("read-tree", SECOND)
        hostile.attributes(base, f"{NEW} -filter")
        stage(base, NEW, b"evil\n")
        tip = commit_of(base, dropped)
        assert_refused(base, tip, was=SECOND)
        assert_refused(base, tip, "unsealed", "untracked-artifact", was=dropped)

    def test_of_all_in_an_empty_tree(self, base: Sealed) -> None:
        base.git("read-tree", "--empty")
        for parents in ((SECOND,), (ROOT, SECOND)):
            tip = commit_of(base, *parents)
            assert_refused(base, tip, "ledger-removed", "signers-changed", was=SECOND)

    def test_of_the_attributes_in_a_merge_with_an_orphan(self, base: Sealed) -> None:
        """All blobs are as sealed; a checkout writes texts, not models."""
        base.git("read-tree", SECOND)
        unstage(base, ".gitattributes")
        orphan = commit_of(base)
        tip = commit_of(base, orphan, SECOND, tree=orphan)
        assert_refused(base, tip, was=SECOND)


class TestForks:
    """Records that a signer made, put together as the signer never did."""

    @pytest.fixture
    def experiment(self, base: Sealed) -> Sealed:
        """A branch of two generations from the root, which nobody merged."""
        base.branch("experiment", ROOT)
        base.generation(70.0)
        base.generation(71.0)
        base.switch("main")
        for number in (3.0, 4.0):
            base.generation(number)
        base.git("tag", "newest")
        hostile.honest(base)
        return base

    def test_an_experiment_instead_of_main(self, experiment: Sealed) -> None:
        """Without a key: main's model becomes one that was never meant for it."""
        for parents in (("newest", "experiment"), ("experiment", "newest")):
            tip = commit_of(experiment, *parents, tree="experiment")
            assert_refused(experiment, tip, REWRITTEN, was="newest")

    def test_an_experiment_without_its_commits(self, experiment: Sealed) -> None:
        """Its ledger and model copied into a commit on main."""
        tip = commit_of(experiment, "newest", tree="experiment")
        assert_refused(experiment, tip, REWRITTEN, was="newest")

    @pytest.mark.parametrize("order", [0, 1])
    def test_half_of_an_experiment_is_merged(self, experiment: Sealed, order: int) -> None:
        """Without a key: the other half's record stands for the one that settles a fork.

        The merge knows main's generations and the experiment's first one; its tree has the
        experiment's second one, a new record of a trusted key that extends one of the two. The
        signer made it before, and settled nothing.
        """
        parents = ["newest", "experiment~1"]
        tip = commit_of(experiment, *parents[:: -1 if order else 1], tree="experiment")
        assert_refused(experiment, tip, was="newest")

    def test_half_of_main_is_merged(self, experiment: Sealed) -> None:
        """The same, where main's own records are torn apart to take an experiment away."""
        base = commit_of(experiment, "experiment", SECOND, tree="experiment")
        tip = commit_of(experiment, base, "newest", tree="experiment")
        assert_refused(experiment, tip, was="newest")

    def test_a_settled_fork_settled_otherwise(self, experiment: Sealed) -> None:
        """Main has settled it with a record; the merge before that is made again, the other way."""
        experiment.git("merge", "-q", "-s", "ours", "--no-edit", "experiment")
        experiment.seal("--reseal")
        experiment.git("commit", "-q", "--amend", "--no-edit")
        main = hostile.honest(experiment)
        for parents in ((main, "experiment"), ("experiment", main), ("experiment", "newest", main)):
            tip = commit_of(experiment, *parents, tree="experiment")
            assert_refused(experiment, tip, REWRITTEN, was=main)
            tip = commit_of(experiment, *parents, tree="newest")
            assert_refused(experiment, tip, REWRITTEN, was=main)

    def test_both_sides_in_one_ledger(self, experiment: Sealed) -> None:
        """Records of both, one after the other: the chain does not hold."""
        mine, theirs = experiment.ledger(LEDGER, "newest"), experiment.ledger(LEDGER, "experiment")
        head, rows = hostile.records(mine)
        _, others = hostile.records(theirs)
        experiment.git("read-tree", "experiment")
        stage(experiment, LEDGER, hostile.joined(head, [*rows, *others[1:]]))
        tip = commit_of(experiment, "newest", "experiment")
        assert_refused(experiment, tip, "bad-record", was="newest")


class TestRanges:
    """A range is where changes are looked for; the tip's tree is judged whatever it is."""

    @pytest.fixture
    def evil(self, base: Sealed) -> Sealed:
        """A commit that nobody sealed (tag `evil`), and an innocent one on it."""
        base.put(66.0)
        base.git("tag", "evil", at_once(base, "evil"))
        base.write("readme", "x")
        base.add("readme")
        at_once(base, "innocent")
        return base

    @pytest.mark.parametrize("given", ["evil..HEAD", "HEAD..HEAD", "evil..evil", "HEAD^..HEAD"])
    def test_that_begins_behind_what_is_evil(self, evil: Sealed, given: str) -> None:
        said = hostile.audit(evil, given)
        assert (said.code, said.kinds) == (1, {"content-mismatch"})

    def test_that_begins_with_a_side_line(self, rolled: Sealed) -> None:
        """From a commit that knows less than the tip does, or nothing of it."""
        tip = commit_of(rolled, ROOT, "rolled", tree="rolled")
        for start in (ROOT, "rolled", SECOND):
            said = hostile.audit(rolled, f"{start}..{tip}")
            assert said.code == 1, start
            assert REWRITTEN in said.kinds

    def test_whose_start_was_evil_and_goes_back_to_it(self, evil: Sealed) -> None:
        """Mended, and unmended by a merge of the evil commit."""
        mended = commit_of(evil, "evil", tree=SECOND)
        tip = commit_of(evil, mended, "evil", tree="evil")
        assert_refused(evil, tip, "content-mismatch", was=mended)

    def test_a_root_that_is_a_side_line(self, rolled: Sealed) -> None:
        """The tip reaches the root, and the root is no ancestor of what was sealed last."""
        rolled.branch("mine", ROOT)
        rolled.write("x", "x")
        rolled.add("x")
        side = at_once(rolled)
        tip = commit_of(rolled, side, SECOND, tree=side)
        assert_refused(rolled, tip, REWRITTEN, root=side)
        assert_refused(rolled, SECOND, "bad-root", root=side)


def test_a_new_ledger_that_two_branches_began(base: Sealed) -> None:
    """Both were sealed; the merge drops one of them without a word of a signer."""
    base.branch("one")
    base.generation(5.0, name=NEW)
    base.branch("other", SECOND)
    base.generation(6.0, name=NEW)
    for tree in ("one", "other"):
        tip = commit_of(base, "one", "other", tree=tree)
        assert_refused(base, tip, REWRITTEN, was="one")


def test_a_ledger_begun_anew_on_an_orphan(base: Sealed) -> None:
    """By a signer's own experiment elsewhere in the repository: a chain of one record."""
    base.git("checkout", "-q", "--orphan", "begin")
    base.git("rm", "-q", "--cached", MODEL, LEDGER)
    (base.path / LEDGER).unlink()
    base.generation(90.0)
    assert base.ledger(LEDGER).count(b"WSUM 1") == 1
    for parents in (("begin", SECOND), (SECOND, "begin")):
        tip = commit_of(base, *parents, tree="begin")
        assert_refused(base, tip, REWRITTEN, was=SECOND)


def test_a_merge_that_adds_what_no_parent_has(base: Sealed) -> None:
    """An evil merge: nobody reads what a merge commit changes by itself."""
    base.branch("pr")
    base.write("readme", "x")
    base.add("readme")
    base.commit("readme")
    base.git("read-tree", "pr")
    stage(base, NEW, text(66.0))
    assert NEW_LEDGER not in base.git("ls-files").decode()
    assert_refused(base, commit_of(base, SECOND, "pr"), "unsealed", was=SECOND)
