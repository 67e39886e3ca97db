"""Rules of `docs/spec/trust.md`, each by the smallest history that shows it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.trust.symbolic import (
    ALICE,
    BOB,
    CAROL,
    STRANGER,
    add_signatures,
    begin,
    content,
    seal,
    sign,
    signed_by,
    signers_file,
)
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_LEDGER, SIGNERS_PATH, Ledger
from wtxtgit.trust.state import (
    SignersContent,
    SignersState,
    Tree,
    TrustState,
    join,
    open_ledgers,
    start,
)
from wtxtgit.trust.step import step

M, K, N = b"m.fold", b"k.fold", b"n.fold"
FILE = signers_file([ALICE, BOB])
SEALED = seal(begin(SIGNERS_PATH, None), FILE.sha256_all, [ALICE])
R = start(SignersState(FILE, SEALED), Tree())


def tree(
    ledgers: Mapping[bytes, Ledger] | None = None,
    *,
    signers: SignersContent | None = FILE,
    sealed: Ledger | None = SEALED,
) -> Tree:
    """A tree with ledgers, by the path of what they seal, and the root's signers."""
    found = {path + LEDGER_SUFFIX: ledger for path, ledger in (ledgers or {}).items()}
    if sealed is not None:
        found[SIGNERS_LEDGER] = sealed
    return Tree(found, signers=signers)


def after(before: TrustState, at: Tree) -> TrustState:
    """The state after a commit at which nothing fails."""
    state, violations = step(at, before, signed_by)
    assert not violations
    return state


def found(before: TrustState, at: Tree) -> set[tuple[str, bytes]]:
    return {(one.kind, one.path) for one in step(at, before, signed_by)[1]}


def open_at(state: TrustState, place: bytes) -> set[Ledger]:
    known = open_ledgers(state, signed_by).values()
    return {one for line in known for one in line if one.place == place}


def new(path: bytes, what: object, *keys: bytes) -> Ledger:
    return seal(begin(path, SEALED), content(what), keys)


def test_equal_ledgers_are_told_apart_by_path() -> None:
    """A reader may give one value for both, since their blobs are one."""
    ledger = new(M, 1, ALICE)
    state = after(R, tree({M: ledger}))
    kinds = found(state, tree({K: ledger, N: ledger}))
    assert {("ledger-rewritten", K), ("ledger-rewritten", N)} <= kinds


def test_an_unsealed_move_joins_nothing_where_it_came_to() -> None:
    first = new(M, 1, ALICE)
    here = seal(first, content(2), [ALICE])
    there = seal(first, content(3), [ALICE], at=K)
    state = after(after(R, tree({M: first})), tree({M: here, K: there}))
    moved, violations = step(tree({K: seal(here, content(4), [ALICE])}), state, signed_by)
    kinds = {(one.kind, one.path) for one in violations}
    assert kinds == {("moved-unsealed", K), ("ledger-rewritten", K)}
    assert open_at(moved, K) == {there}


def test_a_record_beside_the_last_one_of_the_signers_is_a_change_of_them() -> None:
    other = seal(begin(SIGNERS_PATH, None), FILE.sha256_all, [BOB], gen=2)
    assert ("signers-changed", SIGNERS_PATH) in found(R, tree(sealed=other))


def test_signers_come_after_a_ledger_of_nobody() -> None:
    nobody = start(SignersState(None, SEALED), Tree())
    fresh = seal(begin(SIGNERS_PATH, None), FILE.sha256_all, [ALICE], gen=7)
    state, _ = step(tree(sealed=fresh), nobody, signed_by)
    assert state.trusted == {ALICE, BOB}


def test_signatures_before_the_record_that_fails_are_taken() -> None:
    ledger = new(M, 1, ALICE)
    state = after(R, tree({M: ledger}))
    signed = add_signatures(ledger, 0, sign(ledger.head, ledger.last, BOB))
    state, violations = step(tree({M: seal(signed, content(2))}), state, signed_by)
    assert [one.kind for one in violations] == ["missing-signature"]
    assert open_at(state, M) == {signed}


def test_nothing_is_taken_beside_a_signature_that_fails() -> None:
    ledger = new(M, 1, ALICE)
    state = after(R, tree({M: ledger}))
    signed = add_signatures(ledger, 0, sign(ledger.head, ledger.last, STRANGER))
    state, violations = step(tree({M: seal(signed, content(2), [ALICE])}), state, signed_by)
    assert [one.kind for one in violations] == ["untrusted-signer"]
    assert open_at(state, M) == {ledger}


def test_a_ledger_that_left_the_signers_names_no_repository() -> None:
    state = start(SignersState(FILE, is_fixed=True), Tree())
    left = seal(begin(SIGNERS_PATH, None), content(1), [ALICE], at=N)
    state = after(state, tree({N: left}, sealed=None))
    ledger = seal(begin(M, left), content(1), [ALICE])
    kinds = found(state, tree({N: left, M: ledger}, sealed=None))
    assert kinds == {("bad-record", M)}


def test_an_older_record_joins_nothing_that_was_sealed_knowing_of_it() -> None:
    """A commit that leaves out a parent hides what a joining record joined."""
    first = new(M, 1, ALICE)
    one, two = seal(first, content(2), [ALICE]), seal(first, content(3), [ALICE])
    later = seal(two, content(4), [ALICE])
    joining = seal(one, content(5), [ALICE], gen=later.last.meta.gen + 1)
    state = after(R, tree({M: first}))
    left, right = after(state, tree({M: one})), after(state, tree({M: two}))
    both = join([left, after(right, tree({M: later}))])
    assert open_at(after(both, tree({M: joining})), M) == {joining}
    without = join([after(left, tree({M: joining})), right])
    assert found(without, tree({M: later})) == {("ledger-rewritten", M)}


def test_signers_joined_by_all_sides_are_the_newest() -> None:
    """Also where one ledger is not accepted on the other side, which took its signer away."""
    mine, theirs = signers_file([ALICE]), signers_file([ALICE, BOB, STRANGER])
    here = seal(SEALED, mine.sha256_all, [ALICE])
    there = seal(SEALED, theirs.sha256_all, [BOB])
    left = after(R, tree(signers=mine, sealed=here))
    right = after(R, tree(signers=theirs, sealed=there))
    joint = signers_file([ALICE, CAROL])
    at = tree(signers=joint, sealed=seal(here, joint.sha256_all, [ALICE]))
    state = after(join([left, right]), at)
    assert state.trusted == {ALICE, CAROL}
    assert after(state, at) == state


def test_signers_whose_ledger_fails_change_nothing() -> None:
    """Else they were the newest, and no ledger could follow both them and what is open."""
    left, right = signers_file([ALICE, CAROL]), signers_file([ALICE, BOB])
    one, two = seal(SEALED, left.sha256_all, [ALICE]), seal(SEALED, right.sha256_all, [BOB])
    here = after(R, tree(signers=left, sealed=one))
    there = after(R, tree(signers=right, sealed=two))
    both = signers_file([ALICE, BOB, CAROL])
    wrong = tree(signers=both, sealed=seal(two, both.sha256_all, [ALICE]))
    state, violations = step(wrong, join([here, there]), signed_by)
    assert {one.kind for one in violations} == {"signers-changed", "ledger-rewritten"}
    assert state == join([here, there])
    after(state, tree(signers=both, sealed=seal(one, both.sha256_all, [ALICE])))


def test_a_seal_holds_the_records_before_it() -> None:
    """Else the seal of one who stays was lost with that of one who left, on which it was made."""
    first = new(M, 1, ALICE)
    state = after(R, tree({M: first}))
    by_alice = seal(first, content(2), [ALICE])
    by_bob = seal(by_alice, content(3), [BOB])
    branch = after(after(state, tree({M: by_alice})), tree({M: by_bob}))
    only = signers_file([BOB])
    sealed = seal(SEALED, only.sha256_all, [ALICE])
    left = after(state, tree({M: first}, signers=only, sealed=sealed))
    both = join([left, branch])
    assert found(both, tree({M: first}, signers=only, sealed=sealed)) == {("ledger-rewritten", M)}
    there = tree({M: by_bob}, signers=only, sealed=sealed)
    assert found(both, there) == {("untrusted-signer", M)}
    bobs = sign(by_bob.head, by_bob.records[1], BOB)
    after(both, tree({M: add_signatures(by_bob, 1, bobs)}, signers=only, sealed=sealed))


def test_a_sealed_deletion_is_not_undone_by_what_was_there_before_it() -> None:
    """Countersigned on a branch it is no beginning of the ledger that says so."""
    first = new(M, 1, ALICE)
    state = after(R, tree({M: first}))
    gone = after(state, tree({M: seal(first, content(None), [ALICE])}))
    signed = add_signatures(first, 0, sign(first.head, first.last, BOB))
    both = join([gone, after(state, tree({M: signed}))])
    assert found(both, tree({M: signed})) == {("ledger-rewritten", M)}
    after(both, tree({M: seal(signed, content(2), [BOB], gen=3)}))


def test_join_is_of_what_each_side_knows() -> None:
    ledger = new(M, 1, ALICE)
    one, other = after(R, tree({M: ledger})), after(R, tree({K: new(K, 2, BOB)}))
    assert join([one, other]) == join([other, one])
    assert found(join([one, other]), tree({M: ledger})) == {("ledger-removed", K)}


def test_a_key_that_was_taken_out_on_one_side_comes_back_by_no_record_of_the_other() -> None:
    """Who sealed that one did not know; the shape of history must not decide."""
    both, only = signers_file([ALICE, BOB], 2), signers_file([ALICE])
    more = signers_file([ALICE, BOB, CAROL], 2)
    left = seal(SEALED, only.sha256_all, [ALICE])
    strict = seal(SEALED, both.sha256_all, [ALICE], name="strict")
    grown = seal(strict, more.sha256_all, [ALICE, BOB], gen=9)
    states = [
        after(R, tree(signers=only, sealed=left)),
        after(R, tree(signers=both, sealed=strict)),
    ]
    at = tree(signers=more, sealed=grown)
    kinds = {kind for kind, path in found(join(states), at) if path == SIGNERS_PATH}
    assert "signers-changed" in kinds


def test_the_first_signers_do_without_a_ledger_of_another_place() -> None:
    """Else no ledger could ever go on from it, and no change of the signers count."""
    nobody = start(SignersState(), Tree())
    strange = seal(begin(M, None), FILE.sha256_all, [ALICE])
    before, _ = step(tree(sealed=strange), nobody, signed_by)
    more = signers_file([ALICE, BOB, CAROL])
    state = after(before, tree())
    grown = seal(SEALED, more.sha256_all, [ALICE])
    assert after(state, tree(signers=more, sealed=grown)).trusted == {ALICE, BOB, CAROL}
