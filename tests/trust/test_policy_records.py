"""The rules on records and first lines, one by one: what each lets pass, and what not."""

from __future__ import annotations

import pytest
from wtxtgit.trust.policy import Parent, Tree, Trust

from trust.ledgers import (
    ALICE,
    BOB,
    CAROL,
    EMPTY,
    FIRST,
    FIRST_LEDGER,
    FOREIGN_LEDGER,
    MALLORY,
    MODEL,
    REPO,
    SECOND_LEDGER,
    SECOND_TRUST,
    bad_signature,
    begun,
    found,
    grown,
    kinds,
    model,
    parent,
    resealed,
    signature,
    signers,
    tree,
    with_last,
)
from wtxtgit.model.ledger import SIGNERS_PATH, Ledger


class TestRule7:
    """New records are signed."""

    BASE = begun(1, ALICE, repo=REPO)

    @pytest.mark.parametrize(
        ("ledger", "wanted"),
        [
            (grown(BASE, 2, ALICE), []),
            (grown(BASE, 2, ALICE, MALLORY), []),
            (grown(BASE, 2, MALLORY), ["untrusted-signer"]),
            (grown(BASE, 2), ["missing-signature"]),
            (with_last(grown(BASE, 2), bad_signature(ALICE)), ["bad-signature"]),
            (grown(grown(BASE, 2, MALLORY), 3, ALICE), ["untrusted-signer"]),
            (grown(grown(BASE, 2), 3, MALLORY), ["missing-signature", "untrusted-signer"]),
        ],
    )
    def test_by_a_trusted_key(self, ledger: Ledger, wanted: list[str]) -> None:
        assert kinds(model(ledger), parent(model(self.BASE))) == wanted
        assert kinds(model(ledger), parent(tree())) == wanted, "of a ledger that begins, too"

    def test_what_was_there_before_is_not_asked_again(self) -> None:
        ledger = begun(1, MALLORY, repo=REPO)
        assert kinds(model(ledger), parent(model(ledger))) == []
        assert kinds(model(grown(ledger, 2, ALICE)), parent(model(ledger))) == []

    def test_a_bad_signature_beside_a_good_one(self) -> None:
        ledger = with_last(grown(self.BASE, 2), signature(ALICE), bad_signature(BOB))
        assert kinds(model(ledger), parent(model(self.BASE))) == []
        of_both = parent(model(self.BASE), SECOND_TRUST)
        assert kinds(model(ledger), of_both, trust=SECOND_TRUST) == ["bad-signature"]

    def test_records_that_stand_in_the_place_of_others(self) -> None:
        before = parent(model(grown(self.BASE, 2, ALICE)))
        after = model(grown(self.BASE, 3, MALLORY))
        assert kinds(after, before) == ["ledger-rewritten", "untrusted-signer"]

    def test_by_a_key_of_before_or_after(self) -> None:
        before, after = signers(ALICE), signers(BOB)
        old = Trust(before, FIRST_LEDGER)
        new = Trust(after, resealed(FIRST_LEDGER, after, ALICE), old)
        for key in (ALICE, BOB):
            ledger = grown(self.BASE, 2, key)
            assert kinds(model(ledger), parent(model(self.BASE), old), trust=new) == []
        ledger = grown(self.BASE, 2, CAROL)
        assert kinds(model(ledger), parent(model(self.BASE), old), trust=new) != []

    def test_of_a_key_that_came_and_went(self) -> None:
        """Good for a branch that is older than the key, and not where it has gone already."""
        ledger = grown(self.BASE, 2, BOB)
        last = signers(CAROL)
        third = Trust(last, resealed(SECOND_LEDGER, last, ALICE), SECOND_TRUST)
        main, old = parent(model(ledger), third), parent(model(self.BASE))
        assert kinds(model(ledger), main, old, trust=third) == []
        assert kinds(model(ledger), old, main, trust=third) == []
        worse = grown(ledger, 3, BOB)
        assert kinds(model(worse), main, old, trust=third) == ["untrusted-signer"]
        # It has to be the line by which one became the other.
        for former in (None, Trust(signers(BOB), FOREIGN_LEDGER)):
            stray = Trust(last, third.ledger, former)
            assert kinds(model(ledger), old, trust=stray) == ["untrusted-signer"]

    @pytest.mark.parametrize("is_first", [True, False])
    def test_for_each_parent(self, is_first: bool) -> None:
        """Bob is trusted on the branch that he signed on, and no longer on main."""
        ledger = grown(self.BASE, 2, BOB)
        gone = Trust(FIRST, resealed(SECOND_LEDGER, FIRST, ALICE), SECOND_TRUST)
        parents = [parent(model(self.BASE), gone), parent(model(ledger), SECOND_TRUST)]
        if not is_first:
            parents.reverse()
        assert kinds(model(ledger), *parents, trust=gone) == ["untrusted-signer"]

    def test_where_nobody_is_trusted(self) -> None:
        for keys in ((), (MALLORY,)):
            after = Tree({MODEL: begun(1, *keys)})
            assert kinds(after, Parent(EMPTY, Tree({})), trust=EMPTY) == []
            assert kinds(after, trust=EMPTY) == []

    def test_where_signatures_are_required_of_all(self) -> None:
        for keys, kind in (((), "missing-signature"), ((MALLORY,), "untrusted-signer")):
            after = Tree({MODEL: begun(1, *keys)})
            assert kinds(after, trust=EMPTY, require_signed=True) == [kind]

    def test_of_a_commit_without_parents(self) -> None:
        assert kinds(model(self.BASE)) == []
        assert kinds(model(begun(1, MALLORY, repo=REPO))) == ["untrusted-signer"]

    def test_a_joined_parent_still_counts_for_signatures(self) -> None:
        ledger = grown(self.BASE, 2, MALLORY)
        parents = (parent(model(self.BASE), is_joined=True), parent(model(ledger)))
        assert kinds(model(ledger), *parents) == ["untrusted-signer"]


class TestRule8:
    """Each first line once, and of this repository."""

    OURS = begun(1, ALICE, repo=REPO)

    @pytest.mark.parametrize("copy", [b"a.wsum", b"z.wsum"])
    def test_a_copy(self, copy: bytes) -> None:
        after = tree({MODEL: self.OURS, copy: self.OURS})
        assert found(after, parent(model(self.OURS))) == [("bad-record", copy[:1])]
        assert found(after, parent(after)) == [], "it is told once"
        assert kinds(after) == ["bad-record"]
        # A third one is told again.
        third = tree({**after.ledgers, b"y.wsum": self.OURS})
        assert found(third, parent(after)) == [("bad-record", b"y")]

    def test_a_copy_by_a_merge_of_a_rename(self) -> None:
        after = tree({MODEL: self.OURS, b"a.wsum": self.OURS})
        parents = (parent(model(self.OURS)), parent(tree({b"a.wsum": self.OURS})))
        assert found(after, *parents) == [("bad-record", b"a")]
        assert found(after, *reversed(parents)) == [("bad-record", b"model")]

    def test_ledgers_of_the_same_content_are_two(self) -> None:
        other = begun(1, ALICE, repo=REPO, path=b"other")
        after = tree({MODEL: self.OURS, b"other.wsum": other})
        assert found(after, parent(model(self.OURS))) == []

    def test_of_another_repository(self) -> None:
        foreign = begun(1, ALICE, repo=FOREIGN_LEDGER.last.merkle_this)
        assert kinds(model(foreign), parent(tree())) == ["bad-record"]
        assert kinds(model(grown(foreign, 2, ALICE)), parent(model(foreign))) == []

    def test_without_a_repository(self) -> None:
        """As one that began before there were signers may say."""
        early = begun(1, ALICE)
        assert kinds(model(early), Parent(EMPTY, Tree({}))) == []
        assert kinds(model(early), parent(tree())) == ["bad-record"]
        assert kinds(Tree({MODEL: early}), trust=EMPTY) == []
        assert kinds(Tree({MODEL: self.OURS}), trust=EMPTY) == ["bad-record"]
        assert kinds(model(early), Parent(EMPTY, Tree({MODEL: early}))) == []

    def test_that_of_the_signers_names_none(self) -> None:
        assert kinds(tree(), Parent(EMPTY, Tree({}))) == []
        other = begun(1, ALICE, path=b"elsewhere")
        assert kinds(tree(ledger=other), parent(tree())) == ["ledger-rewritten"]
        named = begun(1, ALICE, path=SIGNERS_PATH, repo=REPO)
        assert kinds(tree(ledger=named), Parent(EMPTY, Tree({}))) == ["bad-record"]
