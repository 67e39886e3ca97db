"""The rules on signers, one by one: what each lets pass, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wtxtgit.trust.policy import Parent, SealedSigners, Tree, Trust

from trust.ledgers import (
    ALICE,
    BOB,
    CAROL,
    CHANGED,
    EMPTY,
    FIRST,
    FIRST_LEDGER,
    FOREIGN,
    FOREIGN_LEDGER,
    FOREIGN_TRUST,
    MALLORY,
    NOBODY,
    SECOND,
    SECOND_LEDGER,
    SECOND_TRUST,
    STRICT,
    STRICT_LEDGER,
    STRICT_TRUST,
    TRUST,
    bad_signature,
    parent,
    resealed,
    signature,
    signers,
    signers_ledger,
    step,
    tree,
    with_last,
)
from wtxtgit.model.ledger import Ledger


class TestRule1:
    """S of what the trust root reaches."""

    def test_a_commit_without_parents_starts_with_it(self) -> None:
        assert step(tree(file=None, ledger=None), start=TRUST) == (TRUST, [])
        assert step(tree(), start=TRUST) == (TRUST, [])

    def test_a_file_takes_up_the_ledger_of_the_tree(self) -> None:
        assert step(tree(), start=Trust(FIRST)) == (TRUST, [])

    def test_a_file_takes_up_no_ledger_that_others_signed(self) -> None:
        foreign = tree(ledger=signers_ledger(FIRST, MALLORY))
        assert step(foreign, start=Trust(FIRST)) == (Trust(FIRST), [])

    def test_a_file_is_not_changed_by_the_first_tree(self) -> None:
        assert step(tree(), start=Trust(FOREIGN)) == (Trust(FOREIGN), CHANGED)

    def test_without_a_root_it_is_empty(self) -> None:
        assert step(Tree({})) == (EMPTY, [])


class TestRule2:
    """Trust on first use."""

    @pytest.mark.parametrize("parents", [(), (parent(Tree({}), EMPTY),)])
    def test_the_first_file_is_taken(self, parents: tuple[Parent, ...]) -> None:
        assert step(tree(), *parents) == (TRUST, [])
        assert step(tree(ledger=None), *parents) == (Trust(FIRST), [])

    def test_one_of_nobody_leaves_it_empty(self) -> None:
        trust, wrong = step(tree(file=NOBODY, ledger=None))
        assert (trust.keys, wrong) == (frozenset(), [])
        after = step(tree(), parent(tree(file=NOBODY, ledger=None), trust))
        assert after == (TRUST, [])

    def test_one_that_does_not_read_is_not_taken(self) -> None:
        bad = Tree({}, signers_fault="nonsense")
        assert step(bad) == (EMPTY, CHANGED)
        assert step(bad, parent(bad, EMPTY)) == (EMPTY, []), "it is told once"

    def test_there_is_one_first_use(self) -> None:
        after = tree(file=FOREIGN, ledger=FOREIGN_LEDGER)
        assert step(after, parent(tree())) == (TRUST, CHANGED)


class TestRule3:
    """What S a commit starts with."""

    def test_that_of_its_parent(self) -> None:
        assert step(tree(), parent(tree())) == (TRUST, [])

    @pytest.mark.parametrize("is_first", [True, False])
    def test_the_one_that_went_on(self, is_first: bool) -> None:
        old, new = parent(tree()), parent(tree(file=SECOND, ledger=SECOND_LEDGER), SECOND_TRUST)
        parents = (new, old) if is_first else (old, new)
        after = tree(file=SECOND, ledger=SECOND_LEDGER)
        assert step(after, *parents) == (SECOND_TRUST, [])

    @pytest.mark.parametrize("is_first", [True, False])
    def test_it_never_goes_back(self, is_first: bool) -> None:
        old, new = parent(tree()), parent(tree(file=SECOND, ledger=SECOND_LEDGER), SECOND_TRUST)
        parents = (new, old) if is_first else (old, new)
        trust, wrong = step(tree(), *parents)
        assert trust == SECOND_TRUST
        assert wrong == CHANGED

    @pytest.mark.parametrize("state", [TRUST, Trust(FIRST)], ids=["sealed", "unsealed"])
    def test_another_history_does_not_replace_it(self, state: Trust) -> None:
        foreign = parent(tree(file=FOREIGN, ledger=FOREIGN_LEDGER), FOREIGN_TRUST)
        ours = parent(tree(ledger=state.ledger), state)
        # Nobody of the other history agreed; it may not be merged over that.
        assert step(tree(ledger=state.ledger), ours, foreign) == (state, CHANGED)
        after = tree(file=FOREIGN, ledger=FOREIGN_LEDGER)
        assert step(after, ours, foreign) == (state, CHANGED)

    def test_an_empty_one_takes_that_of_another_parent(self) -> None:
        empty = parent(Tree({}), EMPTY)
        assert step(tree(), empty, parent(tree())) == (TRUST, [])
        assert step(Tree({}), empty, parent(tree()))[0] == TRUST
        assert step(Tree({}), empty, empty) == (EMPTY, [])


class TestRule4:
    """What makes a signers file count."""

    def change(
        self, file: SealedSigners, ledger: Ledger | None, before: Trust = TRUST
    ) -> tuple[Trust, list[str]]:
        state = tree(file=before.signers, ledger=before.ledger)
        return step(tree(file=file, ledger=ledger), parent(state, before))

    def test_a_change_that_is_sealed(self) -> None:
        trust, wrong = self.change(SECOND, SECOND_LEDGER)
        assert (trust, wrong) == (SECOND_TRUST, [])
        assert trust.former == TRUST

    @pytest.mark.parametrize("keys", [(), (BOB,), (MALLORY,)])
    def test_not_by_a_signer_of_before(self, keys: tuple[bytes, ...]) -> None:
        ledger = resealed(FIRST_LEDGER, SECOND, *keys)
        assert self.change(SECOND, ledger) == (TRUST, CHANGED)

    def test_a_forged_signature_does_not_count(self) -> None:
        ledger = with_last(SECOND_LEDGER, bad_signature(ALICE))
        assert self.change(SECOND, ledger) == (TRUST, CHANGED)

    @pytest.mark.parametrize(
        ("keys", "counts"),
        [
            ((ALICE, BOB), True),
            ((ALICE, BOB, CAROL), True),
            ((ALICE,), False),
            ((ALICE, CAROL), False),
        ],
    )
    def test_by_as_many_as_the_threshold(self, keys: tuple[bytes, ...], counts: bool) -> None:
        file = signers(ALICE, BOB, CAROL, threshold=1)
        ledger = resealed(STRICT_LEDGER, file, *keys)
        trust, wrong = self.change(file, ledger, STRICT_TRUST)
        assert (trust.signers, wrong) == ((file, []) if counts else (STRICT, CHANGED))

    def test_a_key_that_signs_twice_is_one(self) -> None:
        twice = replace(signature(ALICE), keyid=signature(ALICE).keyid)
        file = signers(CAROL)
        ledger = with_last(resealed(STRICT_LEDGER, file), signature(ALICE), twice)
        assert self.change(file, ledger, STRICT_TRUST) == (STRICT_TRUST, CHANGED)

    def test_only_the_last_record_counts(self) -> None:
        """Two changes in one: the second of them is sealed by a key of the first."""
        file = signers(BOB)
        ledger = resealed(SECOND_LEDGER, file, BOB)
        assert self.change(file, ledger) == (TRUST, CHANGED)
        ledger = resealed(SECOND_LEDGER, file, ALICE)
        assert self.change(file, ledger)[1] == []

    def test_the_ledger_extends_the_trusted_one(self) -> None:
        assert self.change(SECOND, signers_ledger(SECOND, ALICE)) == (TRUST, CHANGED)

    def test_the_last_record_is_of_the_file(self) -> None:
        assert self.change(signers(ALICE, MALLORY), SECOND_LEDGER) == (TRUST, CHANGED)

    def test_without_a_ledger(self) -> None:
        assert self.change(SECOND, None) == (TRUST, CHANGED)
        assert self.change(SECOND, FIRST_LEDGER) == (TRUST, CHANGED)

    def test_a_file_of_nobody(self) -> None:
        assert self.change(NOBODY, resealed(FIRST_LEDGER, NOBODY, ALICE)) == (TRUST, CHANGED)

    def test_a_file_that_is_gone_or_does_not_read(self) -> None:
        before = parent(tree())
        for after in (tree(file=None), tree(file=None, signers_fault="nonsense")):
            assert step(after, before) == (TRUST, CHANGED)
            assert step(after, parent(after)) == (TRUST, []), "it is told once"

    def test_a_change_that_was_refused_may_be_sealed_later(self) -> None:
        refused = resealed(FIRST_LEDGER, SECOND, BOB)
        before = parent(tree(file=SECOND, ledger=refused))
        after = tree(file=SECOND, ledger=with_last(refused, signature(ALICE), signature(BOB)))
        assert step(after, before)[0].signers == SECOND

    @pytest.mark.parametrize(
        ("keys", "counts"), [((ALICE, BOB), True), ((ALICE,), False), ((BOB,), False)]
    )
    def test_what_diverged_is_joined_by_all(self, keys: tuple[bytes, ...], counts: bool) -> None:
        """Main rotated to alice and carol, the branch to bob: both have to agree."""
        ours, theirs = signers(ALICE, CAROL), signers(BOB)
        our_ledger = resealed(FIRST_LEDGER, ours, ALICE)
        their_ledger = resealed(FIRST_LEDGER, theirs, ALICE)
        joined = signers(ALICE, BOB, CAROL)
        after = tree(file=joined, ledger=resealed(our_ledger, joined, *keys))
        parents = (
            parent(tree(file=ours, ledger=our_ledger), Trust(ours, our_ledger, TRUST)),
            parent(tree(file=theirs, ledger=their_ledger), Trust(theirs, their_ledger, TRUST)),
        )
        trust, wrong = step(after, *parents)
        assert (trust.signers, wrong) == ((joined, []) if counts else (ours, CHANGED))
