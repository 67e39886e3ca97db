"""A step, (2.6): which records are taken, and which signatures."""

from __future__ import annotations

import pytest

from tests.trust.ledgers import (
    ALICE,
    BOB,
    CAROL,
    FIRST_LEDGER,
    MALLORY,
    S1,
    S2,
    S3,
    SECOND,
    SECOND_LEDGER,
    accepts,
    also_by,
    bad_signature,
    begun,
    found,
    grown,
    kinds,
    opened,
    resealed,
    root,
    signature,
    signers,
    state_after,
    step,
    tree,
    with_last,
    with_signatures,
)
from wtxtgit.model.ledger import NO_REPO, Ledger
from wtxtgit.trust.state import SignersState, TrustState, cut, line_of

BASE = begun(1, ALICE)


class TestNewRecords:
    @pytest.mark.parametrize(
        ("ledger", "wanted"),
        [
            (grown(BASE, 2, ALICE), []),
            (grown(BASE, 2, ALICE, BOB), []),
            (grown(BASE, 2, BOB), ["untrusted-signer"]),
            (grown(BASE, 2), ["missing-signature"]),
            (with_last(grown(BASE, 2), bad_signature(ALICE)), ["bad-signature"]),
            (grown(grown(BASE, 2, BOB), 3, ALICE), ["untrusted-signer"]),
            (grown(grown(BASE, 2, ALICE), 3, BOB), ["untrusted-signer"]),
            (grown(grown(BASE, 2), 3, BOB), ["missing-signature"]),
        ],
    )
    def test_are_signed_by_a_trusted_key(self, ledger: Ledger, wanted: list[str]) -> None:
        assert kinds(tree(ledger), root(BASE)) == wanted
        assert kinds(tree(ledger), root()) == wanted, "of a ledger that begins, too"

    def test_a_bad_signature_beside_a_good_one(self) -> None:
        ledger = with_last(grown(BASE, 2), signature(ALICE), bad_signature(MALLORY))
        assert kinds(tree(ledger), root(BASE)) == ["bad-signature"]
        # Of a key that nobody knows nothing can be said.
        ledger = with_last(grown(BASE, 2), signature(ALICE), bad_signature(BOB))
        assert kinds(tree(ledger), root(BASE)) == []

    def test_those_before_the_first_that_fails_are_taken(self) -> None:
        ledger = grown(grown(grown(BASE, 2, ALICE), 3, BOB), 4, ALICE)
        state, violations = step(tree(ledger), root(BASE))
        assert [(v.kind, v.gen) for v in violations] == [("untrusted-signer", 3)]
        assert opened(state) == {cut(ledger, 2)}
        assert kinds(tree(BASE), state) == ["ledger-rewritten"]

    def test_one_that_failed_is_told_until_it_is_signed(self) -> None:
        ledger = grown(BASE, 2, BOB)
        state, _ = step(tree(ledger), root(BASE))
        assert kinds(tree(ledger), state) == ["untrusted-signer"]
        assert kinds(tree(also_by(ledger, 1, ALICE)), state) == []

    def test_what_the_root_holds_is_not_asked(self) -> None:
        ledger = begun(1, BOB)
        assert kinds(tree(ledger), root(ledger)) == []
        assert kinds(tree(grown(ledger, 2, ALICE)), root(ledger)) == []

    def test_that_stand_in_the_place_of_others(self) -> None:
        before = root(grown(BASE, 2, ALICE))
        assert kinds(tree(grown(BASE, 3, ALICE)), before) == ["ledger-rewritten"]

    def test_by_a_key_of_before_or_after_the_change(self) -> None:
        third = signers(CAROL)
        after = SignersState(third, resealed(FIRST_LEDGER, third, ALICE))
        for key in (ALICE, MALLORY, CAROL):
            assert kinds(tree(grown(BASE, 2, key), signers=after), root(BASE)) == [], key
        strange = tree(grown(BASE, 2, BOB), signers=after)
        assert kinds(strange, root(BASE)) == ["untrusted-signer"]

    def test_where_nobody_is_trusted(self) -> None:
        empty = TrustState(frozenset({SignersState()}))
        for keys in ((), (MALLORY,)):
            assert kinds(tree(begun(1, *keys, repo=NO_REPO), signers=None), empty) == []

    def test_of_a_commit_without_parents(self) -> None:
        """Which starts with the root's state."""
        assert kinds(tree(BASE), root()) == []
        assert kinds(tree(begun(1, BOB)), root()) == ["untrusted-signer"]

    def test_they_stand_under_every_signers_state(self) -> None:
        before = state_after(tree(BASE, signers=S2), root(BASE))
        ledger = grown(BASE, 2, ALICE)
        line = state_after(tree(ledger, signers=S2), before).lines[line_of(BASE)]
        assert line.stands == {(ledger, S1), (ledger, S2)}

    def test_that_of_the_change_included(self) -> None:
        ledger = grown(BASE, 2, MALLORY)
        assert accepts(state_after(tree(ledger, signers=S2), root(BASE)), ledger)

    def test_one_of_the_signers_without_a_change(self) -> None:
        """Two records came with one change: the first of them is signed as well."""
        unsigned = resealed(resealed(FIRST_LEDGER, signers(ALICE, BOB)), SECOND, ALICE)
        after = tree(signers=SignersState(SECOND, unsigned))
        assert set(kinds(after, root())) == {"missing-signature", "signers-changed"}
        assert step(after, root())[0].newest == {S1}
        signed = resealed(resealed(FIRST_LEDGER, signers(ALICE, BOB), MALLORY), SECOND, ALICE)
        assert kinds(tree(signers=SignersState(SECOND, signed)), root()) == []


class TestSignaturesThatCame:
    """Those that an accepted record got."""

    @pytest.mark.parametrize(
        ("ledger", "wanted"),
        [
            (also_by(BASE, 0, MALLORY), []),
            (also_by(BASE, 0, BOB), ["untrusted-signer"]),
            (
                with_signatures(BASE, 0, signature(ALICE), bad_signature(MALLORY)),
                ["bad-signature"],
            ),
            (also_by(grown(BASE, 2, ALICE), 0, BOB), ["untrusted-signer"]),
        ],
    )
    def test_are_by_a_trusted_key(self, ledger: Ledger, wanted: list[str]) -> None:
        assert kinds(tree(ledger), root(BASE)) == wanted

    def test_else_nothing_is_taken(self) -> None:
        ledger = grown(also_by(BASE, 0, BOB), 2, ALICE)
        state, violations = step(tree(ledger), root(BASE))
        assert [(v.kind, v.gen) for v in violations] == [("untrusted-signer", 1)]
        assert opened(state) == {BASE}
        # It is told until the signature is gone.
        assert kinds(tree(ledger), state) == ["untrusted-signer"]
        assert kinds(tree(grown(BASE, 2, ALICE)), state) == []

    def test_what_another_branch_knew_is_none_that_came(self) -> None:
        by_both = also_by(BASE, 0, MALLORY)
        before = state_after(tree(by_both), root(BASE))
        removed = state_after(tree(BASE, signers=S2), root(BASE))
        assert kinds(tree(by_both, signers=S2), before, removed) == []

    def test_by_a_key_that_was_taken_away(self) -> None:
        removed = state_after(tree(BASE, signers=S2), root(BASE))
        late = also_by(BASE, 0, MALLORY)
        assert kinds(tree(late, signers=S2), removed) == ["untrusted-signer"]

    def test_where_nobody_is_trusted(self) -> None:
        early = begun(1, repo=NO_REPO)
        before = root(early, signers=SignersState())
        assert kinds(tree(also_by(early, 0, BOB), signers=None), before) == []


class TestRemovedKeys:
    """What a key signed before it was taken away stays good, and nothing else does."""

    BY_MALLORY = grown(BASE, 2, MALLORY)

    def removed(self, ledger: Ledger = BASE) -> TrustState:
        return state_after(tree(ledger, signers=S2), root(ledger))

    def test_before(self) -> None:
        after = tree(self.BY_MALLORY, signers=S2)
        assert kinds(after, self.removed(self.BY_MALLORY)) == []

    def test_after(self) -> None:
        after = tree(self.BY_MALLORY, signers=S2)
        assert kinds(after, self.removed()) == ["untrusted-signer"]

    @pytest.mark.parametrize("is_first", [True, False])
    def test_on_a_branch_from_before(self, is_first: bool) -> None:
        beside = state_after(tree(self.BY_MALLORY), root(BASE))
        parents = [self.removed(), beside] if is_first else [beside, self.removed()]
        after = tree(self.BY_MALLORY, signers=S2)
        assert kinds(after, *parents) == ["untrusted-signer"]
        assert kinds(tree(also_by(self.BY_MALLORY, 1, ALICE), signers=S2), *parents) == []

    def test_a_whole_ledger_of_it(self) -> None:
        fresh = begun(1, MALLORY, path=b"fresh")
        beside = state_after(tree(BASE, fresh), root(BASE))
        after = tree(BASE, fresh, signers=S2)
        assert found(after, self.removed(), beside) == [("untrusted-signer", b"fresh")]
        assert kinds(tree(BASE, signers=S2), self.removed(), beside) == []

    def test_on_a_branch_that_puts_the_removal_on_it(self) -> None:
        """Whoever has a key that was taken away has the files that took it away, too."""
        beside = state_after(tree(self.BY_MALLORY), root(BASE))
        after_it = state_after(tree(self.BY_MALLORY, signers=S2), beside)
        at_once = state_after(tree(self.BY_MALLORY, signers=S2), root(BASE))
        for parent in (after_it, at_once):
            after = tree(self.BY_MALLORY, signers=S2)
            assert kinds(after, self.removed(), parent) == ["untrusted-signer"]

    def test_a_key_that_came_back(self) -> None:
        """Bob's was not there in between: what it signs then is by a key trusted now."""
        again = SignersState(S3.file, resealed(SECOND_LEDGER, signers(ALICE, BOB), ALICE))
        state = state_after(tree(BASE, signers=again), self.removed())
        assert kinds(tree(grown(BASE, 2, BOB), signers=again), state) == []
