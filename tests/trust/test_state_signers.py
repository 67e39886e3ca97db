"""A step, (1): which signers file counts, and which is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trust.ledgers import (
    ALICE,
    BOB,
    CAROL,
    FIRST,
    FIRST_LEDGER,
    MALLORY,
    MODEL,
    NOBODY,
    REPO,
    S1,
    S2,
    S3,
    SECOND,
    SECOND_LEDGER,
    THIRD,
    THIRD_LEDGER,
    accepts,
    also_by,
    bad_signature,
    begun,
    found,
    grown,
    keyid,
    kinds,
    of_principals,
    resealed,
    root,
    signature,
    signers,
    signers_ledger,
    state_after,
    step,
    tree,
    with_last,
)
from wtxtgit.model.array import Signature
from wtxtgit.model.ledger import SIGNERS_LEDGER, SIGNERS_PATH, Ledger, LedgerHead
from wtxtgit.trust.state import SignersContent, SignersState, Tree, TrustState, start

CHANGED = ["signers-changed"]
EMPTY = TrustState(frozenset({SignersState()}))
"""Where nobody is trusted."""
STRICT = signers(ALICE, BOB, threshold=2)
STRICT_LEDGER = signers_ledger(STRICT, ALICE, BOB)
STRICT_STATE = SignersState(STRICT, STRICT_LEDGER)


def change(
    file: SignersContent | None, ledger: Ledger | None, before: SignersState = S1
) -> tuple[frozenset[SignersState], list[str]]:
    """The newest signers after a change, and what is told of it."""
    after = Tree({SIGNERS_LEDGER: ledger} if ledger is not None else {}, signers=file)
    state, violations = step(after, root(signers=before))
    return state.newest, [one.kind for one in violations]


class TestNothingChanges:
    def test_where_file_and_ledger_are_the_newest(self) -> None:
        state = root()
        assert step(tree(), state) == (state, [])

    @pytest.mark.parametrize("ledger", [SECOND_LEDGER, THIRD_LEDGER])
    def test_not_where_the_ledger_has_a_further_record(self, ledger: Ledger) -> None:
        """Of another file, which waits for the day on which its file is put there."""
        assert change(FIRST, ledger) == ({S1}, CHANGED)

    def test_not_where_the_file_is_that_of_an_older_state(self) -> None:
        assert change(FIRST, SECOND_LEDGER, S2) == ({S2}, CHANGED)
        assert change(FIRST, FIRST_LEDGER, S2) == ({S2}, [*CHANGED, "ledger-rewritten"])

    def test_a_ledger_that_was_cut_is_told_as_one(self) -> None:
        assert change(SECOND, FIRST_LEDGER, S2) == ({S2}, ["ledger-rewritten"])
        assert change(SECOND, None, S2) == ({S2}, ["ledger-removed"])

    def test_a_signature_more_is_no_other_state(self) -> None:
        assert change(FIRST, also_by(FIRST_LEDGER, 0, MALLORY)) == ({S1}, [])

    def test_where_several_are_newest_none_is_the_one(self) -> None:
        sides = [state_after(tree(signers=one), root()) for one in (S2, S3)]
        for one in (S1, S2, S3):
            state, violations = step(tree(signers=one), *sides)
            assert state.newest == {S2, S3}
            assert [v.kind for v in violations][:1] == CHANGED


class TestAChange:
    def test_that_is_sealed(self) -> None:
        assert change(SECOND, SECOND_LEDGER) == ({S2}, [])

    def test_has_a_key(self) -> None:
        assert change(NOBODY, resealed(FIRST_LEDGER, NOBODY, ALICE)) == ({S1}, CHANGED)

    def test_has_its_ledger_in_its_place(self) -> None:
        moved = grown(FIRST_LEDGER, 0, ALICE, at=b"x")
        last = replace(moved.last, sha256_all=SECOND.sha256_all)
        moved = replace(moved, records=(*moved.records[:-1], last))
        assert change(SECOND, moved) == ({S1}, [*CHANGED, "moved-unsealed"])

    def test_goes_on_from_the_newest(self) -> None:
        begun_anew = signers_ledger(SECOND, ALICE)
        assert change(SECOND, begun_anew) == ({S1}, [*CHANGED, "ledger-rewritten"])
        assert change(THIRD, THIRD_LEDGER, S2) == ({S2}, [*CHANGED, "ledger-rewritten"])

    def test_goes_on_from_all_its_signatures(self) -> None:
        before = SignersState(FIRST, also_by(FIRST_LEDGER, 0, MALLORY))
        assert change(SECOND, SECOND_LEDGER, before)[1] == [*CHANGED, "ledger-rewritten"]

    def test_has_a_further_record(self) -> None:
        assert change(SECOND, FIRST_LEDGER) == ({S1}, CHANGED)
        assert change(SECOND, None) == ({S1}, [*CHANGED, "ledger-removed"])

    def test_is_what_the_last_record_is_of(self) -> None:
        assert change(signers(ALICE, CAROL), SECOND_LEDGER) == ({S1}, CHANGED)

    @pytest.mark.parametrize("keys", [(), (BOB,), (CAROL, BOB)])
    def test_is_signed_by_who_was_trusted_before(self, keys: tuple[bytes, ...]) -> None:
        ledger = resealed(FIRST_LEDGER, THIRD, *keys)
        assert change(THIRD, ledger) == ({S1}, CHANGED)

    def test_by_keys_that_made_their_signatures(self) -> None:
        ledger = with_last(SECOND_LEDGER, bad_signature(ALICE))
        assert change(SECOND, ledger) == ({S1}, CHANGED)

    def test_only_the_last_record_counts(self) -> None:
        """Two changes in one: the second of them is sealed by a key of the first."""
        third = resealed(THIRD_LEDGER, SECOND, BOB)
        assert change(SECOND, third) == ({S1}, CHANGED)
        assert change(SECOND, resealed(THIRD_LEDGER, SECOND, ALICE))[1] == []

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
        file = signers(ALICE, BOB, CAROL)
        ledger = resealed(STRICT_LEDGER, file, *keys)
        wanted = ({SignersState(file, ledger)}, []) if counts else ({STRICT_STATE}, CHANGED)
        assert change(file, ledger, STRICT_STATE) == wanted

    def test_two_keys_of_a_principal_are_one(self) -> None:
        strict = of_principals({"alice": [ALICE, CAROL], "bob": [BOB]}, threshold=2)
        before = SignersState(strict, signers_ledger(strict, ALICE, BOB))
        file = signers(ALICE)
        for keys, counts in (((ALICE, CAROL), False), ((CAROL, BOB), True)):
            ledger = resealed(before.ledger or FIRST_LEDGER, file, *keys)
            assert change(file, ledger, before)[1] == ([] if counts else CHANGED), keys

    def test_a_key_that_signs_twice_is_one(self) -> None:
        twice = Signature(ALICE + ALICE, keyid(ALICE))
        file = signers(CAROL)
        ledger = with_last(resealed(STRICT_LEDGER, file), signature(ALICE), twice)
        assert change(file, ledger, STRICT_STATE) == ({STRICT_STATE}, CHANGED)

    def test_one_that_was_refused_may_be_sealed_later(self) -> None:
        refused = resealed(FIRST_LEDGER, THIRD, BOB)
        state, _ = step(tree(signers=SignersState(THIRD, refused)), root())
        sealed = SignersState(THIRD, also_by(refused, 1, ALICE))
        assert state_after(tree(signers=sealed), state).newest == {sealed}

    def test_then_all_that_was_accepted_stands_under_it(self) -> None:
        by_mallory = begun(1, MALLORY)
        before = state_after(tree(by_mallory), root())
        state = state_after(tree(by_mallory, signers=S2), before)
        assert state.newest == {S2}
        assert accepts(state, by_mallory)

    def test_and_what_was_not_accepted_does_not(self) -> None:
        first = begun(1, ALICE)
        by_mallory = grown(first, 2, MALLORY)
        removed = state_after(tree(first, signers=S2), root(first))
        beside = state_after(tree(by_mallory), root(first))
        carol = signers(ALICE, CAROL)
        third = SignersState(carol, resealed(SECOND_LEDGER, carol, ALICE))
        state = state_after(tree(first, signers=third), removed, beside)
        assert kinds(tree(by_mallory, signers=third), state) == ["untrusted-signer"]


class TestARefusedChange:
    @pytest.mark.parametrize("fault", [None, "nonsense"])
    def test_a_file_that_is_gone_or_does_not_read(self, fault: str | None) -> None:
        after = Tree({SIGNERS_LEDGER: FIRST_LEDGER}, signers_fault=fault)
        state, violations = step(after, root())
        assert ([v.kind for v in violations], state.newest) == (CHANGED, {S1})
        assert violations[0].path == SIGNERS_PATH

    def test_it_is_told_of_every_commit(self) -> None:
        after = Tree({SIGNERS_LEDGER: FIRST_LEDGER}, signers_fault="nonsense")
        state, _ = step(after, root())
        assert kinds(after, state) == CHANGED

    def test_its_records_do_not_count(self) -> None:
        """Or a record that is accepted by itself could count for another change later."""
        waiting = tree(signers=SignersState(FIRST, SECOND_LEDGER))
        state, violations = step(waiting, root())
        assert [v.kind for v in violations] == CHANGED
        assert state.lines == root().lines

    def test_nor_do_its_keys(self) -> None:
        by_bob = begun(1, BOB)
        refused = SignersState(THIRD, resealed(FIRST_LEDGER, THIRD, BOB))
        after = tree(by_bob, signers=refused)
        assert found(after, root()) == [
            ("signers-changed", SIGNERS_PATH),
            ("untrusted-signer", MODEL),
        ]


class TestFirstUse:
    """While nobody is trusted, the first file with a key counts as it is."""

    @pytest.mark.parametrize("before", [EMPTY, root(signers=SignersState(NOBODY))])
    def test_it_counts(self, before: TrustState) -> None:
        unsealed = SignersState(FIRST)
        assert state_after(tree(signers=unsealed), before).newest == {unsealed}
        assert state_after(tree(signers=S1), before).newest == {S1}

    def test_one_of_nobody_changes_nothing(self) -> None:
        after = tree(signers=SignersState(NOBODY))
        assert step(after, EMPTY)[1] == []
        assert not step(after, EMPTY)[0].is_signed

    def test_one_that_does_not_read_is_told(self) -> None:
        assert kinds(Tree(signers_fault="nonsense"), EMPTY) == CHANGED

    def test_its_own_ledger_is_signed_by_it(self) -> None:
        for keys, wanted in (
            ((), ["missing-signature"]),
            ((BOB,), ["untrusted-signer"]),
            ((MALLORY,), []),
        ):
            ledger = signers_ledger(FIRST, *keys)
            assert kinds(tree(signers=SignersState(FIRST, ledger)), EMPTY) == wanted

    def test_there_is_one(self) -> None:
        foreign = signers(CAROL)
        after = tree(signers=SignersState(foreign, signers_ledger(foreign, CAROL)))
        state, violations = step(after, state_after(tree(), EMPTY))
        assert state.newest == {S1}
        assert [v.kind for v in violations] == [*CHANGED, "ledger-rewritten"]

    def test_a_file_without_a_ledger_takes_one_up(self) -> None:
        state = root(signers=SignersState(FIRST))
        assert state_after(tree(), state).newest == {S1}
        strange = SignersState(FIRST, signers_ledger(FIRST, CAROL))
        assert kinds(tree(signers=strange), state) == CHANGED


class TestDiverged:
    """Main rotated to alice and carol, a branch to bob: both have to agree."""

    OURS, THEIRS = signers(ALICE, CAROL), signers(BOB)
    MET = signers(ALICE, BOB, CAROL)
    LEFT, RIGHT = (SignersState(f, resealed(FIRST_LEDGER, f, ALICE)) for f in (OURS, THEIRS))

    def met(self, *keys: bytes, onto: SignersState | None = None) -> tuple[TrustState, list[str]]:
        sides = [state_after(tree(signers=one), root()) for one in (self.LEFT, self.RIGHT)]
        onto = onto or self.LEFT
        assert onto.ledger is not None
        ledger = resealed(onto.ledger, self.MET, *keys)
        state, violations = step(tree(signers=SignersState(self.MET, ledger)), *sides)
        return state, [v.kind for v in violations]

    def test_sealed_by_both(self) -> None:
        state, told = self.met(ALICE, BOB, onto=self.RIGHT)
        assert (len(state.newest), state.trusted, told) == (1, self.MET.keys, [])

    def test_it_goes_on_from_the_side_that_the_other_one_signed(self) -> None:
        """Of main's record no key of the branch's signers has signed it."""
        assert "ledger-rewritten" in self.met(ALICE, BOB, onto=self.LEFT)[1]

    def test_its_record_is_later(self) -> None:
        longer = SignersState(THIRD, resealed(self.RIGHT.ledger or FIRST_LEDGER, THIRD, BOB))
        sides = [state_after(tree(signers=one), root()) for one in (self.LEFT, self.RIGHT)]
        sides[1] = state_after(tree(signers=longer), sides[1])
        for met in (
            resealed(self.LEFT.ledger or FIRST_LEDGER, self.MET, ALICE, BOB),
            resealed(longer.ledger or FIRST_LEDGER, self.MET, ALICE, BOB),
        ):
            counts = len(met.records) > 3
            told = kinds(tree(signers=SignersState(self.MET, met)), *sides)
            assert told == [] if counts else "signers-changed" in told

    def test_it_may_be_shorter_than_that_of_the_other_side(self) -> None:
        """It has a record that theirs lacks, and need not have as many."""
        longer = resealed(
            resealed(self.LEFT.ledger or FIRST_LEDGER, self.OURS, ALICE), THIRD, ALICE
        )
        sides = [root(signers=S1), root(signers=S1)]
        sides[0] = state_after(tree(signers=SignersState(THIRD, longer)), sides[0])
        sides[1] = state_after(tree(signers=self.RIGHT), sides[1])
        met = resealed(self.RIGHT.ledger or FIRST_LEDGER, self.MET, ALICE, BOB)
        assert len(met.records) < len(longer.records)
        later = replace(met.last, meta=replace(met.last.meta, ts="2030-01-01T00:00:00Z"))
        met = Ledger(met.head, (*met.records[:-1], later))
        told = kinds(tree(signers=SignersState(self.MET, met)), *sides)
        assert "signers-changed" not in told

    @pytest.mark.parametrize("key", [ALICE, BOB, CAROL, MALLORY])
    def test_sealed_by_one(self, key: bytes) -> None:
        state, told = self.met(key)
        assert state.newest == {self.LEFT, self.RIGHT}
        assert told[0] == "signers-changed"
        assert state.trusted == frozenset()

    def test_neither_takes_the_others_place(self) -> None:
        sides = [state_after(tree(signers=one), root()) for one in (self.LEFT, self.RIGHT)]
        for one in (self.LEFT, self.RIGHT):
            assert kinds(tree(signers=one), *sides)[0] == "signers-changed"

    def test_only_who_is_in_both_seals(self) -> None:
        sides = [
            state_after(tree(begun(1, ALICE), signers=one), root(begun(1, ALICE)))
            for one in (S2, S3)
        ]
        by_bob = tree(grown(begun(1, ALICE), 2, BOB), signers=S3)
        assert "untrusted-signer" in kinds(by_bob, *sides)
        by_alice = tree(grown(begun(1, ALICE), 2, ALICE), signers=S3)
        assert "untrusted-signer" not in kinds(by_alice, *sides)


class TestFixed:
    """A file alone as the root: nothing takes its place, and its ledger is like any other."""

    def test_no_change_counts(self) -> None:
        fixed = start(SignersState(FIRST, is_fixed=True), Tree())
        state = state_after(tree(signers=S2), state_after(tree(), fixed))
        assert state.trusted == FIRST.keys
        assert kinds(tree(signers=S2), state) == []


class TestAKeyOfAnotherRepository:
    def test_signers_of_another_history_come_not_in(self) -> None:
        foreign = signers(MALLORY)
        theirs = SignersState(foreign, signers_ledger(foreign, MALLORY))
        # A commit without parents starts with the root's state.
        state, violations = step(tree(begun(1, MALLORY), signers=theirs), root(signers=S2))
        assert state.newest == {S2}
        assert {v.kind for v in violations} >= {"signers-changed", "untrusted-signer"}

    def test_their_ledger_names_no_repository(self) -> None:
        named = resealed(Ledger(LedgerHead(REPO, SIGNERS_PATH), ()), FIRST, ALICE)
        assert kinds(tree(signers=SignersState(FIRST, named)), EMPTY) == ["bad-record"]
