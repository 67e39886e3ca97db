"""The rules on ledgers, one by one: what each lets pass, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wtxtgit.trust.policy import Parent, Tree, extends

from trust.ledgers import (
    ALICE,
    BOB,
    EMPTY,
    FIRST_LEDGER,
    MALLORY,
    MODEL,
    REPO,
    SECOND,
    SECOND_LEDGER,
    SECOND_TRUST,
    bad_signature,
    begun,
    found,
    grown,
    kinds,
    model,
    parent,
    signature,
    tree,
    with_last,
)
from wtxtgit.model.ledger import SIGNERS_PATH, Ledger


class TestRule5:
    """A ledger stays in the tree."""

    OURS = begun(1, ALICE, repo=REPO)
    OTHER = begun(1, ALICE, repo=REPO, path=b"other")

    def test_it_stays(self) -> None:
        assert found(model(self.OURS), parent(model(self.OURS))) == []

    def test_it_is_gone(self) -> None:
        assert found(tree(), parent(model(self.OURS))) == [("ledger-removed", b"model")]

    def test_one_that_no_longer_reads_is_not_gone(self) -> None:
        """That it does not read is told where artifacts are judged."""
        assert found(tree(broken=frozenset({MODEL})), parent(model(self.OURS))) == []

    def test_another_one_stands_there(self) -> None:
        after = model(begun(2, ALICE, repo=REPO, path=b"other"))
        assert found(after, parent(model(self.OURS))) == [("ledger-rewritten", b"model")]

    def test_it_moves(self) -> None:
        assert found(tree({b"x.wsum": self.OURS}), parent(model(self.OURS))) == []

    def test_it_moves_onto_another_one(self) -> None:
        before = tree({MODEL: self.OURS, b"other.wsum": self.OTHER})
        onto = tree({b"other.wsum": self.OURS})
        swapped = tree({MODEL: self.OTHER, b"other.wsum": self.OURS})
        for after in (onto, swapped):
            assert found(after, parent(before)) == [
                ("ledger-rewritten", b"model"),
                ("ledger-rewritten", b"other"),
            ]

    def test_that_of_the_signers_does_not_move(self) -> None:
        after = tree({b"x.wsum": FIRST_LEDGER}, ledger=None)
        assert found(after, parent(tree())) == [("ledger-removed", SIGNERS_PATH)]

    def test_every_parent_counts(self) -> None:
        parents = (parent(tree()), parent(model(self.OURS)))
        assert kinds(tree(), *parents) == ["ledger-removed"]
        assert kinds(tree(), *reversed(parents)) == ["ledger-removed"]

    def test_a_parent_that_is_joined_does_not(self) -> None:
        parents = (parent(tree()), parent(model(self.OURS), is_joined=True))
        assert kinds(tree(), *parents) == []


class TestRule6:
    """A ledger extends those of the parents."""

    BASE = begun(1, ALICE, repo=REPO)
    OURS = grown(BASE, 2, ALICE)
    THEIRS = grown(BASE, 3, ALICE)

    def test_extends(self) -> None:
        assert extends(self.BASE, self.BASE)
        assert extends(self.OURS, self.BASE)
        assert not extends(self.BASE, self.OURS)
        assert not extends(self.OURS, self.THEIRS)
        assert not extends(begun(1, ALICE, repo=REPO, path=b"x"), self.BASE)
        assert not extends(begun(1, ALICE), self.BASE)

    def test_signatures_are_added_and_never_lost(self) -> None:
        more = with_last(self.OURS, signature(ALICE), signature(BOB))
        assert extends(more, self.OURS)
        assert not extends(self.OURS, more)
        assert not extends(with_last(self.OURS, signature(BOB)), self.OURS)
        assert not extends(with_last(self.OURS, bad_signature(ALICE)), self.OURS)

    def test_what_a_record_says_stays(self) -> None:
        last = self.OURS.last
        for other in (
            replace(last, meta=replace(last.meta, build="x")),
            replace(last, sha256_all=bytes(32)),
            replace(last, merkle_prev=bytes(32)),
            replace(last, merkle_this=bytes(32)),
        ):
            assert not extends(replace(self.OURS, records=(*self.BASE.records, other)), self.OURS)

    @pytest.mark.parametrize(
        ("after", "wanted"),
        [
            (BASE, []),
            (OURS, []),
            (grown(OURS, 5, ALICE), []),
            (begun(2, ALICE, repo=REPO), ["ledger-rewritten"]),
        ],
    )
    def test_of_one_parent(self, after: Ledger, wanted: list[str]) -> None:
        assert kinds(model(after), parent(model(self.BASE))) == wanted

    def test_an_older_state(self) -> None:
        assert kinds(model(self.BASE), parent(model(self.OURS))) == ["ledger-rewritten"]

    def test_moved_and_shortened(self) -> None:
        after = tree({b"x.wsum": self.BASE})
        assert found(after, parent(model(self.OURS))) == [("ledger-rewritten", b"x")]

    @pytest.mark.parametrize("is_first", [True, False])
    def test_of_a_merge_where_one_side_went_on(self, is_first: bool) -> None:
        parents = [parent(model(self.OURS)), parent(model(self.BASE))]
        if not is_first:
            parents.reverse()
        assert kinds(model(self.OURS), *parents) == []
        assert kinds(model(self.BASE), *parents) == ["ledger-rewritten"]
        # A record that comes next does not make up for those that are gone.
        gone = grown(self.BASE, 9, ALICE)
        assert kinds(model(gone), *parents) == ["ledger-rewritten"]

    @pytest.mark.parametrize(
        ("after", "wanted"),
        [
            (grown(OURS, 9, ALICE), []),
            (grown(THEIRS, 9, ALICE), []),
            (grown(grown(THEIRS, 8, MALLORY), 9, ALICE), ["untrusted-signer"]),
            (OURS, ["ledger-rewritten"]),
            (THEIRS, ["ledger-rewritten"]),
            (BASE, ["ledger-rewritten"]),
            (grown(BASE, 9, ALICE), ["ledger-rewritten"]),
            (grown(OURS, 9, MALLORY), ["ledger-rewritten", "untrusted-signer"]),
            (grown(OURS, 9), ["ledger-rewritten", "missing-signature"]),
        ],
    )
    def test_of_a_merge_where_both_went_on(self, after: Ledger, wanted: list[str]) -> None:
        parents = (parent(model(self.OURS)), parent(model(self.THEIRS)))
        assert kinds(model(after), *parents) == wanted

    def test_who_joins_is_trusted_on_all_sides(self) -> None:
        """Bob is trusted on one of them alone."""

        def state(ledger: Ledger) -> Tree:
            return tree({MODEL: ledger}, SECOND, SECOND_LEDGER)

        parents = (parent(model(self.OURS)), parent(state(self.THEIRS), SECOND_TRUST))
        by_bob, by_alice = (state(grown(self.OURS, 9, key)) for key in (BOB, ALICE))
        assert kinds(by_bob, *parents, trust=SECOND_TRUST) == ["ledger-rewritten"]
        assert kinds(by_alice, *parents, trust=SECOND_TRUST) == []

    def test_anybody_joins_where_nobody_is_trusted(self) -> None:
        parents = [
            Parent(EMPTY, Tree({MODEL: one})) for one in (grown(begun(1), 2), grown(begun(1), 3))
        ]
        joined = Tree({MODEL: grown(grown(begun(1), 2), 4)})
        assert kinds(joined, *parents, trust=EMPTY) == []
        assert kinds(parents[0].tree, *parents, trust=EMPTY) == ["ledger-rewritten"]

    def test_a_parent_that_is_joined_is_left_out(self) -> None:
        """The other one descends from it, and joined both before."""
        joined = grown(self.THEIRS, 9, ALICE)
        parents = (parent(model(self.OURS), is_joined=True), parent(model(joined)))
        assert kinds(model(joined), *parents) == []
        parents = (parent(model(self.OURS)), parent(model(joined)))
        assert kinds(model(joined), *parents) == ["ledger-rewritten"]
