"""What people do with their histories is no finding, at any commit and at the tip as a whole."""

from __future__ import annotations

from tests.trust.symbolic import (
    ALICE,
    BOB,
    CAROL,
    add_signatures,
    begin,
    content,
    seal,
    sign,
    signers_file,
)
from tests.trust.test_state import SEALED, K, M, N, R, after, new, open_at, tree
from wtxtgit.trust.state import TrustState, join

FIRST = new(M, 1, ALICE)
BEGUN = after(R, tree({M: FIRST}))


def tip(*parents: TrustState, **rest: object) -> TrustState:
    """A commit at which nothing fails, and that can be followed by the same tree."""
    at = tree(**rest)  # type: ignore[arg-type]
    state = after(join(parents), at)
    assert after(state, at) == state
    return state


def test_squash() -> None:
    more = seal(seal(FIRST, content(2), [BOB]), content(3), [ALICE])
    branch = tip(tip(BEGUN, ledgers={M: seal(FIRST, content(2), [BOB])}), ledgers={M: more})
    squashed = tip(BEGUN, ledgers={M: more})
    tip(squashed, branch, ledgers={M: more})


def test_squash_of_a_seal_and_of_the_removal_of_its_signer() -> None:
    only = signers_file([ALICE])
    sealed = seal(SEALED, only.sha256_all, [ALICE])
    more = seal(FIRST, content(2), [BOB])
    tip(BEGUN, ledgers={M: more}, signers=only, sealed=sealed)


def test_rebase() -> None:
    theirs = tip(BEGUN, ledgers={M: FIRST, K: new(K, 1, BOB)})
    mine = seal(FIRST, content(2), [ALICE])
    tip(theirs, ledgers={M: mine, K: new(K, 1, BOB)})


def test_cherry_pick() -> None:
    picked = seal(FIRST, content(2), [BOB])
    branch = tip(BEGUN, ledgers={M: picked, K: new(K, 1, BOB)})
    line = tip(BEGUN, ledgers={M: picked})
    tip(line, branch, ledgers={M: picked, K: new(K, 1, BOB)})


def test_revert_with_reseal() -> None:
    changed = seal(FIRST, content(2), [ALICE])
    state = tip(BEGUN, ledgers={M: changed})
    tip(state, ledgers={M: seal(changed, content(1), [BOB])})


def test_a_branch_from_before_a_rotation_is_countersigned() -> None:
    only = signers_file([ALICE])
    sealed = seal(SEALED, only.sha256_all, [ALICE])
    rotated = tip(BEGUN, ledgers={M: FIRST}, signers=only, sealed=sealed)
    feature = seal(FIRST, content(2), [BOB])
    branch = tip(BEGUN, ledgers={M: feature})
    signed = add_signatures(feature, 1, sign(feature.head, feature.last, ALICE))
    tip(rotated, branch, ledgers={M: signed}, signers=only, sealed=sealed)


def test_rotation_by_two_of_three() -> None:
    three = signers_file([ALICE, BOB, CAROL], 2)
    sealed = seal(SEALED, three.sha256_all, [BOB])
    state = tip(BEGUN, ledgers={M: FIRST}, signers=three, sealed=sealed)
    two = signers_file([BOB, CAROL])
    again = seal(sealed, two.sha256_all, [ALICE, CAROL])
    tip(state, ledgers={M: FIRST}, signers=two, sealed=again)


def test_sealed_moves() -> None:
    moved = seal(FIRST, content(1), [ALICE], at=K)
    state = tip(BEGUN, ledgers={K: moved})
    back = seal(moved, content(1), [BOB], at=M)
    tip(state, ledgers={M: back})
    tip(state, ledgers={K: moved, M: new(M, 5, BOB)})


def test_a_fork_has_a_ledger_of_its_own() -> None:
    fork = seal(FIRST, content(1), [ALICE], at=K)
    here = seal(FIRST, content(2), [ALICE])
    state = tip(BEGUN, ledgers={M: here, K: fork})
    tip(state, ledgers={M: seal(here, content(3), [BOB]), K: seal(fork, content(4), [BOB])})


def test_criss_cross_joined_by_a_record() -> None:
    one, two = seal(FIRST, content(2), [ALICE]), seal(FIRST, content(3), [BOB])
    left, right = tip(BEGUN, ledgers={M: one}), tip(BEGUN, ledgers={M: two})
    mine, theirs = seal(one, content(4), [ALICE]), seal(two, content(5), [BOB])
    here, there = tip(left, right, ledgers={M: mine}), tip(right, left, ledgers={M: theirs})
    last = seal(mine, content(6), [ALICE], gen=theirs.last.meta.gen + 1)
    state = tip(here, there, ledgers={M: last})
    assert open_at(state, M) == {last}


def test_two_places_are_swapped_in_one_commit() -> None:
    other = new(K, 2, BOB)
    state = tip(BEGUN, ledgers={M: FIRST, K: other})
    there = seal(FIRST, content(1), [ALICE], at=K)
    here = seal(other, content(2), [ALICE], at=M)
    tip(state, ledgers={M: here, K: there})


def test_three_places_change_round() -> None:
    two, three = new(K, 2, BOB), new(N, 3, BOB)
    state = tip(BEGUN, ledgers={M: FIRST, K: two, N: three})
    ledgers = {
        K: seal(FIRST, content(1), [ALICE], at=K),
        N: seal(two, content(2), [ALICE], at=N),
        M: seal(three, content(3), [ALICE], at=M),
    }
    tip(state, ledgers=ledgers)


def test_a_sealed_deletion_and_a_fresh_ledger_later() -> None:
    gone = seal(FIRST, content(None), [ALICE])
    state = tip(BEGUN, ledgers={M: gone})
    state = tip(state, ledgers={})
    fresh = seal(begin(M, SEALED), content(7), [BOB], gen=gone.last.meta.gen + 1)
    state = tip(state, ledgers={M: fresh})
    tip(state, ledgers={M: seal(fresh, content(8), [ALICE])})


def test_a_checkpoint_that_came_back_after_its_deletion_goes_on_with_its_ledger() -> None:
    gone = seal(FIRST, content(None), [ALICE])
    state = tip(BEGUN, ledgers={M: gone})
    tip(state, ledgers={M: seal(gone, content(9), [BOB])})


def test_signers_changed_on_two_branches_are_joined_by_a_change_of_both() -> None:
    left, right = signers_file([ALICE, CAROL]), signers_file([ALICE, BOB], 2)
    one, two = seal(SEALED, left.sha256_all, [ALICE]), seal(SEALED, right.sha256_all, [BOB])
    here = tip(BEGUN, ledgers={M: FIRST}, signers=left, sealed=one)
    there = tip(BEGUN, ledgers={M: FIRST}, signers=right, sealed=two)
    both = signers_file([ALICE, BOB, CAROL], 2)
    joint = seal(one, both.sha256_all, [ALICE, BOB])
    tip(here, there, ledgers={M: FIRST}, signers=both, sealed=joint)
