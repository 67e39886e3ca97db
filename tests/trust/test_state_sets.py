"""States: what joins, what is accepted, open, newest and trusted; roots.

Rule by rule as `docs/spec/trust.md` has them, "Words" and "State".
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import permutations

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
    S1,
    S2,
    S3,
    SECOND,
    accepts,
    also_by,
    bad_signature,
    begun,
    deleted,
    grown,
    kinds,
    numbered,
    opened,
    resealed,
    root,
    signature,
    signed_by,
    signers,
    state_after,
    step,
    tree,
    with_last,
)
from wtxtgit.model.ledger import NO_REPO, SIGNERS_PATH, Ledger
from wtxtgit.trust.state import (
    SignersState,
    Tree,
    TrustState,
    Violation,
    extends,
    join,
    line_of,
    open_ledgers,
    seals_move,
    shared,
    start,
)

BASE = begun(1, ALICE)
OURS, THEIRS = grown(BASE, 2, ALICE), grown(BASE, 3, ALICE)
STRANGE = grown(BASE, 4, MALLORY)
"""By mallory, who is trusted in S1 alone."""


class TestWords:
    def test_a_ledger_extends_another_one(self) -> None:
        assert extends(BASE, BASE)
        assert extends(OURS, BASE)
        assert not extends(BASE, OURS)
        assert not extends(OURS, THEIRS)
        assert not extends(begun(1, ALICE, path=b"x"), BASE)
        assert not extends(begun(1, ALICE, repo=bytes(32)), BASE)

    def test_signatures_are_added_and_never_lost(self) -> None:
        more = also_by(OURS, 1, BOB)
        assert extends(more, OURS)
        assert not extends(OURS, more)
        assert not extends(with_last(OURS, signature(BOB)), OURS)
        assert not extends(with_last(OURS, bad_signature(ALICE)), OURS)

    def test_what_a_record_says_stays(self) -> None:
        last = OURS.last
        for other in (
            replace(last, meta=replace(last.meta, build="x")),
            replace(last, sha256_all=bytes(32)),
            replace(last, merkle_prev=bytes(32)),
            replace(last, merkle_this=bytes(32)),
            replace(last, at=b"x"),
            replace(last, detached=bytes(32)),
        ):
            changed = replace(OURS, records=(*BASE.records, other))
            assert not extends(changed, OURS)
            assert shared(changed, OURS) == 1

    def test_signatures_are_no_part_of_a_record(self) -> None:
        assert shared(with_last(OURS, signature(BOB)), OURS) == 2

    def test_the_place_is_that_of_the_last_move(self) -> None:
        moved = grown(BASE, 2, ALICE, at=b"k")
        assert [BASE.place, moved.place, grown(moved, 3).place] == [MODEL, b"k", b"k"]

    def test_a_principal_counts_once(self) -> None:
        file = signers(ALICE, BOB)
        assert file.count(frozenset({ALICE, BOB, CAROL})) == 2
        both = replace(file, principals=frozenset({(ALICE, "a"), (BOB, "a")}))
        assert both.count(both.keys) == 1


class TestJoin:
    """The union: no order of parents and no detour loses anything."""

    STATES = (
        root(BASE),
        state_after(tree(OURS, artifacts=[b"plain"]), root(BASE)),
        state_after(tree(THEIRS), root(BASE)),
        state_after(tree(BASE, signers=S2), root(BASE)),
        state_after(tree(BASE, signers=S3), root(BASE)),
        state_after(
            tree(grown(OURS, 9, ALICE)),
            *(state_after(tree(one), root(BASE)) for one in (OURS, THEIRS)),
        ),
    )

    def test_idempotent(self) -> None:
        for one in self.STATES:
            assert join([one]) == join([one, one]) == one

    @pytest.mark.parametrize("n", range(len(STATES)))
    def test_commutative_and_associative(self, n: int) -> None:
        three = [*self.STATES[n:], *self.STATES[:n]][:3]
        whole = join(self.STATES)
        wanted = join(three)
        for order in permutations(three):
            assert join(order) == wanted
            one, two, last = order
            assert join([one, join([two, last])]) == wanted
        assert join([wanted, whole]) == whole

    def test_it_has_all_that_any_had(self) -> None:
        whole = reduce(lambda one, other: join([one, other]), self.STATES)
        for one in self.STATES:
            assert one.signers <= whole.signers
            assert one.places <= whole.places
            assert one.introductions <= whole.introductions
            for name, line in one.lines.items():
                assert line.joined <= whole.lines[name].joined
                for ledger, stood in line.stands:
                    assert any(
                        other == stood and extends(longer, ledger)
                        for longer, other in whole.lines[name].stands
                    )

    def test_what_was_derived_is_not_taken_over_wrongly(self) -> None:
        """Open ledgers are kept with a state; another line's or signers' are others."""
        before = [root(BASE), *self.STATES[1:4]]
        for one in before:
            open_ledgers(one, signed_by)
        joined = join(before)
        assert opened(joined) == opened(TrustState(joined.signers, joined.lines, joined.places))
        assert opened(join([root(BASE), self.STATES[3]])) == {BASE}


class TestAccepted:
    REMOVED = state_after(tree(BASE, signers=S2), root(BASE))

    def test_what_stands_under_every_signers_state(self) -> None:
        state = state_after(tree(OURS), root(BASE))
        assert accepts(state, BASE)
        assert accepts(state, OURS)
        assert not accepts(state, THEIRS)
        assert not accepts(state, begun(1, ALICE, path=b"x"))

    def test_what_a_removed_key_signed_before_stays(self) -> None:
        before = state_after(tree(STRANGE), root(BASE))
        assert accepts(state_after(tree(STRANGE, signers=S2), before), STRANGE)

    def test_what_it_signed_beside_its_removal_does_not_count(self) -> None:
        beside = state_after(tree(STRANGE), root(BASE))
        state = join([self.REMOVED, beside])
        assert accepts(state, BASE)
        assert not accepts(state, STRANGE)

    def test_a_countersignature_makes_it_count(self) -> None:
        both = also_by(STRANGE, 1, ALICE)
        assert accepts(join([self.REMOVED, state_after(tree(both), root(BASE))]), both)

    def test_what_lies_below_a_seal_is_held_by_it(self) -> None:
        """Who sealed a record knew those before it; to be accepted each needs its own."""
        later = grown(STRANGE, 5, ALICE)
        state = join([self.REMOVED, state_after(tree(later), root(BASE))])
        assert not accepts(state, later)
        assert opened(state) == {later}
        assert kinds(tree(later, signers=S2), state) == ["untrusted-signer"]
        assert kinds(tree(also_by(later, 1, ALICE), signers=S2), state) == []

    def test_the_key_has_to_have_made_its_signature(self) -> None:
        forged = with_last(STRANGE, *STRANGE.last.signatures, bad_signature(ALICE))
        # As by a root, which takes records as they stand.
        assert not accepts(join([self.REMOVED, root(forged)]), forged)

    def test_where_branches_diverged_both(self) -> None:
        states = [state_after(tree(one), root(BASE)) for one in (OURS, THEIRS)]
        state = join([root(BASE), *states])
        assert accepts(state, OURS)
        assert accepts(state, THEIRS)

    def test_under_signers_who_are_nobody_nothing_has_to_be_signed(self) -> None:
        nobody = SignersState(NOBODY)
        early = begun(1, repo=NO_REPO)
        before = start(nobody, tree(early, signers=nobody))
        state = state_after(tree(grown(early, 2), signers=nobody), before)
        assert accepts(state, grown(early, 2))

    def test_what_one_introduction_lacks_is_held_and_not_accepted(self) -> None:
        """The same change of the signers came twice, once behind a record of the removed key."""
        beside = state_after(tree(STRANGE), root(BASE))
        again = state_after(tree(STRANGE, signers=S2), beside)
        assert accepts(again, STRANGE)
        state = join([self.REMOVED, again])
        assert not accepts(state, STRANGE)
        assert opened(state) == {STRANGE}, "nor is it lost"

    def test_the_shorter_of_two_pairs_says_nothing(self) -> None:
        before = root(BASE)
        line = state_after(tree(OURS), before).lines[line_of(BASE)]
        assert line.stands == {(OURS, S1)}
        both = join([before, state_after(tree(THEIRS), before)])
        assert both.lines[line_of(BASE)].stands == {(THEIRS, S1)}


class TestOpen:
    SIDES = tuple(state_after(tree(one), root(BASE)) for one in (OURS, THEIRS))
    JOINED = grown(OURS, 9, ALICE)

    def test_what_is_accepted_is_open(self) -> None:
        assert opened(join(self.SIDES)) == {OURS, THEIRS}

    def test_unless_one_that_is_joined_with_it_is_accepted(self) -> None:
        assert opened(state_after(tree(self.JOINED), *self.SIDES)) == {self.JOINED}

    def test_it_is_open_again_where_that_one_no_longer_is(self) -> None:
        """Mallory joined both sides, beside the removal of the key."""
        by_mallory = grown(OURS, 9, MALLORY)
        joined = state_after(tree(by_mallory), *self.SIDES)
        removed = state_after(tree(BASE, signers=S2), root(BASE))
        assert opened(join([joined, removed])) == {OURS, THEIRS}

    def test_one_that_went_on_from_a_joined_one_is_open(self) -> None:
        joined = state_after(tree(self.JOINED), *self.SIDES)
        further = grown(THEIRS, 5, ALICE)
        beside = state_after(tree(further), self.SIDES[1])
        assert opened(join([joined, beside])) == {self.JOINED, further}

    def test_two_do_not_join_each_other(self) -> None:
        """Else nothing would have to go on, and any state that ever was could come back."""
        z, w = OURS, THEIRS
        x, y = grown(z, 5, ALICE), grown(w, 6, ALICE)
        of = {one: state_after(tree(one), root(BASE)) for one in (z, w)}
        of[x], of[y] = state_after(tree(x), of[z]), state_after(tree(y), of[w])
        # Whoever can make merges, without a key, leaves out how each was known.
        one, told = step(tree(x), of[y], of[z])
        other, told_too = step(tree(y), of[x], of[w])
        assert {v.kind for v in (*told, *told_too)} == {"ledger-rewritten"}
        assert opened(join([one, other])) == {x, y}
        assert kinds(tree(BASE), one, other) == ["ledger-rewritten"]

    def test_a_deletion_lets_go_of_the_place(self) -> None:
        gone = deleted(BASE, ALICE)
        state = state_after(tree(gone), root(BASE))
        assert opened(state) == {gone}
        assert kinds(tree(), state) == []
        assert kinds(tree(numbered(begun(7, ALICE), 3)), state) == []
        empty = grown(BASE, "", ALICE)
        assert kinds(tree(), state_after(tree(empty), root(BASE))) == ["ledger-removed"]


class TestNewest:
    def test_the_one_that_came_after(self) -> None:
        state = state_after(tree(signers=S2), root())
        assert state.signers == {S1, S2}
        assert state.newest == {S2}
        assert state.trusted == {ALICE}

    def test_those_of_histories_that_diverged(self) -> None:
        sides = [state_after(tree(signers=one), root()) for one in (S2, S3)]
        both = join(sides)
        assert both.newest == {S2, S3}
        assert both.trusted == {ALICE}, "who is in every one"

    def test_the_one_that_went_on_in_their_place(self) -> None:
        sides = [state_after(tree(signers=one), root()) for one in (S2, S3)]
        met = SignersState(SECOND, resealed(S3.ledger or FIRST_LEDGER, SECOND, ALICE))
        assert state_after(tree(signers=met), *sides).newest == {met}

    def test_two_do_not_go_on_in_each_others_place(self) -> None:
        """Then none would be the newest."""
        one, other = signers(ALICE, BOB), signers(ALICE, CAROL)
        later = signers(ALICE, BOB, MALLORY), signers(ALICE, CAROL, MALLORY)
        z, w = (SignersState(file, resealed(FIRST_LEDGER, file, ALICE)) for file in (one, other))
        assert z.ledger is not None
        assert w.ledger is not None
        x = SignersState(later[0], resealed(z.ledger, later[0], ALICE))
        y = SignersState(later[1], resealed(w.ledger, later[1], ALICE))
        of = {side: state_after(tree(signers=side), root()) for side in (z, w)}
        of |= {x: state_after(tree(signers=x), of[z]), y: state_after(tree(signers=y), of[w])}
        left, told = step(tree(signers=x), of[y], of[z])
        right, told_too = step(tree(signers=y), of[x], of[w])
        for violations in (told, told_too):
            assert "signers-changed" in {v.kind for v in violations}
        assert join([left, right]).newest == {x, y}

    def test_one_without_a_ledger_or_a_key_is_followed_by_any_other(self) -> None:
        for earlier in (SignersState(), SignersState(NOBODY), SignersState(FIRST)):
            assert TrustState(frozenset({earlier, S2})).newest == {S2}
        assert TrustState(frozenset({SignersState(), SignersState(FIRST)})).newest == {
            SignersState(FIRST)
        }
        two = {SignersState(FIRST), SignersState(SECOND)}
        assert TrustState(frozenset(two)).newest == two

    def test_an_equal_ledger_with_more_signatures_comes_not_after(self) -> None:
        more = SignersState(FIRST, also_by(FIRST_LEDGER, 0, MALLORY))
        assert TrustState(frozenset({S1, more})).newest == {S1, more}

    def test_nobody_is_trusted_where_none_has_a_key(self) -> None:
        state = TrustState(frozenset({SignersState(NOBODY)}))
        assert (state.trusted, state.is_signed) == (frozenset(), False)
        assert kinds(tree(begun(1, repo=bytes(32)), signers=None), state) == []

    def test_nobody_in_common_is_not_nobody_at_all(self) -> None:
        """Records have to be signed, and no key is good enough."""
        state = TrustState(frozenset({SignersState(signers(ALICE)), SignersState(signers(BOB))}))
        assert (state.trusted, state.is_signed) == (frozenset(), True)


class TestRoot:
    def test_all_stands_as_it_is(self) -> None:
        unsigned = begun(1)
        state = root(unsigned, with_last(begun(1, path=b"x"), bad_signature(ALICE)))
        assert state.trusted == FIRST.keys
        assert len(opened(state)) == 2
        assert kinds(tree(grown(unsigned, 2, ALICE)), root(unsigned)) == []

    def test_its_artifacts_are_places(self) -> None:
        state = start(S1, tree(BASE, artifacts=[b"plain.fold"]))
        assert state.places == {MODEL, b"plain.fold", SIGNERS_PATH}

    def test_a_file_with_its_ledger(self) -> None:
        """It is the state before the first commit: older records of the same signers are none."""
        state = start(S2, Tree())
        assert state.newest == {S2}
        assert kinds(tree(signers=S2), state) == []
        assert kinds(tree(signers=S1), state) == ["signers-changed", "ledger-rewritten"]
        assert kinds(tree(signers=None), state) == ["signers-changed", "ledger-removed"]

    def test_a_file_alone_fixes_the_signers(self) -> None:
        fixed = start(SignersState(FIRST, is_fixed=True), Tree())
        for one in (S1, S2, SignersState(signers(BOB)), None):
            state, _ = step(tree(signers=one), fixed)
            assert state.signers == fixed.signers
            assert not [kind for kind in kinds(tree(signers=one), fixed) if "signers" in kind]
        assert kinds(tree(begun(1, BOB), signers=S1), fixed) == ["untrusted-signer"]


class TestMoves:
    """A move that is sealed later is sealed."""

    MOVED = grown(BASE, 2, ALICE, at=b"k")

    def unsealed(self, ledger: Ledger, to: bytes) -> Violation:
        (violation,) = step(tree(at={to: ledger}), root(ledger))[1]
        return violation

    def test_sealed(self) -> None:
        move = self.unsealed(BASE, b"k")
        state = state_after(tree(self.MOVED), root(BASE))
        assert seals_move(state, move, signed_by)
        further = state_after(tree(grown(self.MOVED, 3, ALICE, at=b"j")), state)
        assert seals_move(further, move, signed_by)

    def test_not_sealed(self) -> None:
        move = self.unsealed(BASE, b"k")
        assert not seals_move(state_after(tree(OURS), root(BASE)), move, signed_by)
        elsewhere = state_after(tree(grown(BASE, 2, ALICE, at=b"j")), root(BASE))
        assert not seals_move(elsewhere, move, signed_by)

    def test_not_before_it_was_moved(self) -> None:
        away_and_back = grown(self.MOVED, 3, ALICE, at=MODEL)
        state = state_after(tree(away_and_back), root(BASE))
        assert seals_move(state, self.unsealed(BASE, b"k"), signed_by)
        assert not seals_move(state, self.unsealed(away_and_back, b"k"), signed_by)

    def test_not_by_another_ledger(self) -> None:
        moved = state_after(tree(self.MOVED), root(BASE))
        assert not seals_move(moved, self.unsealed(OURS, b"k"), signed_by)

    def test_not_by_who_is_trusted(self) -> None:
        by_mallory = grown(BASE, 2, MALLORY, at=b"k")
        state = state_after(tree(by_mallory), root(BASE))
        removed = state_after(tree(BASE, signers=S2), root(BASE))
        assert not seals_move(join([state, removed]), self.unsealed(BASE, b"k"), signed_by)

    def test_nothing_else_is_mended_so(self) -> None:
        other = Violation("unsealed", b"k", "")
        assert not seals_move(state_after(tree(self.MOVED), root(BASE)), other, signed_by)
