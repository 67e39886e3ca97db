"""A step, (2) and (3): where ledgers stand, what they go on from, what is missing; places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trust.ledgers import (
    ALICE,
    BOB,
    FIRST,
    FIRST_LEDGER,
    MALLORY,
    MODEL,
    OTHER,
    REPO,
    S1,
    S2,
    S3,
    also_by,
    begun,
    deleted,
    digest,
    found,
    grown,
    kinds,
    numbered,
    opened,
    resealed,
    root,
    signers,
    state_after,
    step,
    tree,
)
from wtxtgit.model.ledger import NO_REPO, SIGNERS_PATH, Ledger
from wtxtgit.trust.state import SignersState, Tree, TrustState, start

BASE = begun(1, ALICE)
ELSE = begun(1, ALICE, path=OTHER)
OURS, THEIRS = grown(BASE, 2, ALICE), grown(BASE, 3, ALICE)
MOVED = grown(BASE, 2, ALICE, at=b"k")
REWRITTEN, REMOVED = "ledger-rewritten", "ledger-removed"


def sides(*ledgers: Ledger, base: Ledger = BASE) -> list[TrustState]:
    return [state_after(tree(one), root(base)) for one in ledgers]


class TestPlace:
    """(2.1)"""

    def test_at_its_place(self) -> None:
        assert found(tree(BASE, ELSE), root(BASE)) == []
        assert found(tree(MOVED), root(BASE)) == []

    def test_a_move_that_nobody_sealed(self) -> None:
        state, violations = step(tree(at={b"k": BASE}), root(BASE))
        assert [(v.kind, v.path, v.moved) for v in violations] == [("moved-unsealed", b"k", BASE)]
        assert opened(state) == {BASE}

    def test_it_is_told_until_it_is_sealed(self) -> None:
        state, _ = step(tree(at={b"k": BASE}), root(BASE))
        assert found(tree(at={b"k": BASE}), state) == [("moved-unsealed", b"k")]
        further = grown(BASE, 2, ALICE)
        assert found(tree(at={b"k": further}), state) == [("moved-unsealed", b"k")]
        assert found(tree(grown(further, 3, ALICE, at=b"k")), state) == []

    def test_its_records_are_taken_all_the_same(self) -> None:
        state, _ = step(tree(at={b"k": OURS}), root(BASE))
        assert opened(state) == {OURS}
        assert found(tree(BASE), state) == [(REWRITTEN, MODEL)]
        by_bob = grown(BASE, 2, BOB)
        assert kinds(tree(at={b"k": by_bob}), root(BASE)) == ["moved-unsealed", "untrusted-signer"]

    def test_a_copy(self) -> None:
        """Something is left where it was."""
        for left in (tree(BASE, at={b"k": BASE}), tree(at={b"k": BASE}, broken=[MODEL])):
            assert ("bad-record", b"k") in found(left, root(BASE))
        assert found(tree(OURS, at={b"k": BASE}), root(BASE)) == [("bad-record", b"k")]

    def test_two_swapped(self) -> None:
        after = tree(at={MODEL: ELSE, OTHER: BASE})
        assert found(after, root(BASE, ELSE))[:2] == [("bad-record", MODEL), ("bad-record", OTHER)]

    def test_one_that_is_not_known(self) -> None:
        assert found(tree(at={b"k": BASE}), root()) == [("bad-record", b"k")]

    def test_one_that_does_not_go_on(self) -> None:
        wanted = [("bad-record", b"k"), (REMOVED, MODEL)]
        assert found(tree(at={b"k": BASE}), root(OURS)) == wanted
        assert found(tree(at={b"k": THEIRS}), root(OURS)) == wanted

    def test_what_fails_here_adds_nothing(self) -> None:
        state, _ = step(tree(OURS, at={b"k": grown(ELSE, 2, ALICE)}), root(OURS))
        assert opened(state) == {OURS}

    def test_there_and_back_has_two_seals(self) -> None:
        moved = state_after(tree(MOVED), root(BASE))
        assert found(tree(at={MODEL: MOVED}), moved) == [("moved-unsealed", MODEL)]
        assert found(tree(grown(MOVED, 3, ALICE, at=MODEL)), moved) == []

    def test_that_of_the_signers_is_not_moved(self) -> None:
        after = Tree({b"x.wsum": FIRST_LEDGER}, signers=FIRST)
        assert found(after, root()) == [("bad-record", b"x")]

    def test_a_place_that_was_let_go(self) -> None:
        """By a sealed move or deletion; another ledger may stand there."""
        for gone in (MOVED, deleted(BASE, ALICE)):
            free = state_after(tree(gone), root(BASE))
            fresh = numbered(begun(9, ALICE), 3)
            kept = [MOVED] if gone is MOVED else []
            assert found(tree(fresh, *kept), free) == []
            onto = numbered(grown(ELSE, 2, ALICE, at=MODEL), 3)
            both = root(gone, ELSE)
            assert found(tree(onto, *kept), both) == []


class TestGoingOn:
    """(2.2)"""

    @pytest.mark.parametrize(
        ("after", "wanted"),
        [
            (BASE, []),
            (OURS, []),
            (grown(OURS, 5, ALICE), []),
            (also_by(BASE, 0, MALLORY), []),
            (begun(2, ALICE), [REWRITTEN]),
        ],
    )
    def test_of_one_parent(self, after: Ledger, wanted: list[str]) -> None:
        assert kinds(tree(after), root(BASE)) == wanted

    def test_an_older_state(self) -> None:
        assert kinds(tree(BASE), root(OURS)) == [REWRITTEN]

    def test_another_record_in_the_place_of_one(self) -> None:
        assert kinds(tree(THEIRS), root(OURS)) == [REWRITTEN]
        assert kinds(tree(grown(THEIRS, 9, ALICE)), root(OURS)) == [REWRITTEN]

    def test_a_signature_that_is_gone(self) -> None:
        assert kinds(tree(BASE), root(also_by(BASE, 0, MALLORY))) == [REWRITTEN]

    def test_it_adds_nothing(self) -> None:
        state, _ = step(tree(grown(BASE, 9, ALICE)), root(OURS))
        assert state == root(OURS)

    @pytest.mark.parametrize("is_first", [True, False])
    def test_of_a_merge_where_one_side_went_on(self, is_first: bool) -> None:
        parents = [*sides(OURS), root(BASE)]
        if not is_first:
            parents.reverse()
        assert kinds(tree(OURS), *parents) == []
        assert kinds(tree(BASE), *parents) == [REWRITTEN]
        # A record that comes next does not make up for those that are gone.
        assert kinds(tree(grown(BASE, 9, ALICE)), *parents) == [REWRITTEN]

    def test_an_old_first_parent_brings_nothing_back(self) -> None:
        parents = [root(BASE), state_after(tree(OURS), *sides(OURS))]
        assert kinds(tree(BASE), *parents) == [REWRITTEN]

    def test_a_detour_brings_nothing_back(self) -> None:
        """The violation of one commit is no state to go on from for the next."""
        state, _ = step(tree(BASE), *sides(OURS))
        assert kinds(tree(BASE), state) == [REWRITTEN]
        state, _ = step(tree(), *sides(OURS))
        assert kinds(tree(BASE), state) == [REWRITTEN]

    def test_what_does_not_count_any_more_need_not_go_on(self) -> None:
        """A record that mallory signed beside the removal of the key."""
        beside = state_after(tree(grown(BASE, 2, MALLORY)), root(BASE))
        removed = state_after(tree(BASE, signers=S2), root(BASE))
        assert kinds(tree(BASE, signers=S2), removed, beside) == []
        assert kinds(tree(THEIRS, signers=S2), removed, beside) == []


class TestRepository:
    """(2.3)"""

    def test_a_new_line_names_it(self) -> None:
        assert kinds(tree(begun(1, ALICE, repo=REPO)), root()) == []
        assert kinds(tree(begun(1, ALICE, repo=digest("other"))), root()) == ["bad-record"]
        assert kinds(tree(begun(1, ALICE, repo=NO_REPO)), root()) == ["bad-record"]

    def test_a_line_that_is_known_may_name_another(self) -> None:
        foreign = begun(1, ALICE, repo=digest("other"))
        assert kinds(tree(grown(foreign, 2, ALICE)), root(foreign)) == []

    def test_zeros_where_there_were_no_signers_before(self) -> None:
        empty = TrustState(frozenset({SignersState()}))
        early = begun(1, ALICE, repo=NO_REPO)
        assert kinds(tree(early, signers=None), empty) == []
        assert kinds(tree(early), empty) == [], "it comes in with the first signers"
        assert kinds(tree(begun(1, ALICE)), empty) == []
        assert kinds(tree(begun(1), signers=None), empty) == ["bad-record"]

    def test_the_first_record_is_that_of_accepted_signers(self) -> None:
        refused = SignersState(signers(BOB), resealed(FIRST_LEDGER, signers(BOB), BOB))
        assert refused.ledger is not None
        foreign = begun(1, ALICE, repo=refused.ledger.last.merkle_this)
        assert "bad-record" in kinds(tree(foreign, signers=refused), root())


class TestTwice:
    """(2.4)"""

    def test_one_that_another_one_extends(self) -> None:
        assert found(tree(MOVED, at={MODEL: BASE}), root(BASE)) == [(REWRITTEN, MODEL)]

    def test_one_that_another_one_equals(self) -> None:
        after = tree(at={b"a": BASE, b"b": BASE})
        assert found(after, root(BASE)) == [
            ("moved-unsealed", b"a"),
            (REWRITTEN, b"a"),
            ("moved-unsealed", b"b"),
            (REWRITTEN, b"b"),
        ]

    def test_whoever_signed_them(self) -> None:
        after = tree(MOVED, at={MODEL: also_by(BASE, 0, MALLORY)})
        assert (REWRITTEN, MODEL) in found(after, root(BASE))

    def test_of_the_same_content_they_are_two(self) -> None:
        assert BASE.last == ELSE.last
        assert found(tree(BASE, ELSE), root()) == []


class TestJoining:
    """(2.5)"""

    @pytest.mark.parametrize(
        ("after", "wanted"),
        [
            (grown(OURS, 9, ALICE), []),
            (grown(THEIRS, 9, ALICE), []),
            (grown(THEIRS, 9, MALLORY), []),
            (grown(grown(THEIRS, 8, BOB), 9, ALICE), ["untrusted-signer", REWRITTEN]),
            (OURS, [REWRITTEN]),
            (THEIRS, [REWRITTEN]),
            (BASE, [REWRITTEN]),
            (grown(BASE, 9, ALICE), [REWRITTEN]),
            (grown(OURS, 9, BOB), [REWRITTEN]),
            (grown(OURS, 9), [REWRITTEN]),
        ],
    )
    def test_where_both_sides_went_on(self, after: Ledger, wanted: list[str]) -> None:
        parents = sides(OURS, THEIRS)
        assert kinds(tree(after), *parents) == wanted
        assert kinds(tree(after), *reversed(parents)) == wanted

    def test_then_it_alone_is_open(self) -> None:
        joined = grown(OURS, 9, ALICE)
        state = state_after(tree(joined), *sides(OURS, THEIRS))
        assert opened(state) == {joined}
        assert kinds(tree(OURS), state) == [REWRITTEN]
        assert kinds(tree(THEIRS), state) == [REWRITTEN]

    def test_one_that_fails_joins_nothing(self) -> None:
        state, _ = step(tree(grown(OURS, 9, BOB)), *sides(OURS, THEIRS))
        assert opened(state) == {OURS, THEIRS}

    def test_of_a_merge_of_three(self) -> None:
        parents = sides(OURS, THEIRS, grown(BASE, 4, ALICE))
        assert kinds(tree(grown(OURS, 9, ALICE)), *parents) == []
        assert opened(state_after(tree(grown(OURS, 9, ALICE)), *parents)) == {grown(OURS, 9, ALICE)}

    def test_the_record_is_unknown_so_far(self) -> None:
        """One that was made before, on a branch that knew of one side alone, joins nothing."""
        made = grown(OURS, 9, ALICE)
        parents = [state_after(tree(made), *sides(OURS)), *sides(THEIRS)]
        assert kinds(tree(made), *parents) == [REWRITTEN]
        assert kinds(tree(grown(made, 10, ALICE)), *parents) == []

    def test_the_record_is_later_than_all_that_it_joins(self) -> None:
        """By its ts, then its gen: it was sealed by who knew of them."""
        longer = grown(THEIRS, 4, ALICE)
        parents = [*sides(OURS), state_after(tree(longer), *sides(THEIRS))]
        joined = grown(OURS, 9, ALICE)
        assert longer.last.meta.gen == joined.last.meta.gen
        assert kinds(tree(joined), *parents) == [REWRITTEN]
        for more in ({"gen": 4}, {"ts": "2030-01-01T00:00:00Z", "gen": 3}):
            last = replace(joined.last, meta=replace(joined.last.meta, **more))  # type: ignore[arg-type]
            later = replace(joined, records=(*joined.records[:-1], last))
            assert kinds(tree(later), *parents) == [], more

    def test_its_key_is_trusted_now(self) -> None:
        """Mallory is trusted on one side alone, and bob on the other."""
        left = state_after(tree(OURS), root(BASE))
        right = state_after(tree(THEIRS, signers=S3), root(BASE))
        for key, wanted in ((MALLORY, [REWRITTEN]), (ALICE, []), (BOB, [])):
            assert kinds(tree(grown(OURS, 9, key), signers=S3), left, right) == wanted, key

    def test_anybody_where_nobody_is_trusted(self) -> None:
        empty = TrustState(frozenset({SignersState()}))
        one, two = (grown(begun(1, repo=NO_REPO), n) for n in (2, 3))
        parents = [state_after(tree(ledger, signers=None), empty) for ledger in (one, two)]
        assert kinds(tree(grown(one, 4), signers=None), *parents) == []
        assert kinds(tree(one, signers=None), *parents) == [REWRITTEN]

    def test_two_lines_at_a_place(self) -> None:
        """Both branches began one."""
        one, two = begun(1, ALICE), begun(2, ALICE)
        parents = [state_after(tree(ledger), root()) for ledger in (one, two)]
        for ledger in (one, two):
            assert kinds(tree(ledger), *parents) == [REWRITTEN]
            joined = grown(ledger, 3, ALICE)
            assert opened(state_after(tree(joined), *parents)) == {joined}

    def test_a_third_line_joins_none(self) -> None:
        parents = [state_after(tree(begun(n, ALICE)), root()) for n in (1, 2)]
        assert kinds(tree(begun(3, ALICE)), *parents) == [REWRITTEN]
        assert kinds(tree(begun(3, ALICE)), root(BASE)) == [REWRITTEN]

    def test_one_that_comes_from_elsewhere_joins_none(self) -> None:
        """It goes on from another place's ledger: two seals would be one, of whatever was there."""
        onto = grown(ELSE, 2, ALICE, at=MODEL)
        assert kinds(tree(onto), root(BASE, ELSE)) == [REWRITTEN]

    def test_what_was_joined_is_not_missing(self) -> None:
        """Though it is of another line, and no ledger of the tree extends it."""
        parents = [state_after(tree(begun(n, ALICE)), root()) for n in (1, 2)]
        state = state_after(tree(grown(begun(1, ALICE), 3, ALICE)), *parents)
        assert kinds(tree(grown(begun(1, ALICE), 3, ALICE)), state) == []

    def test_a_deletion_is_undone_by_a_later_record(self) -> None:
        """Of the line or another one; who signed it need not be trusted on both sides."""
        parents = sides(deleted(BASE, ALICE), OURS)
        assert kinds(tree(OURS), *parents) == [REWRITTEN]
        assert kinds(tree(grown(OURS, 3, ALICE)), *parents) == []
        gone = state_after(tree(deleted(BASE, ALICE)), root(BASE))
        for gen, wanted in ((1, [REWRITTEN]), (2, [REWRITTEN]), (3, [])):
            assert kinds(tree(numbered(begun(9, ALICE), gen)), gone) == wanted, gen

    def test_a_move_on_one_side_and_a_generation_on_the_other(self) -> None:
        parents = sides(MOVED, THEIRS)
        assert found(tree(MOVED), *parents) == [(REMOVED, MODEL)]
        assert found(tree(THEIRS), *parents) == [(REMOVED, b"k")]
        joined = grown(THEIRS, 9, ALICE, at=b"k")
        assert opened(state_after(tree(joined), *parents)) == {joined}


class TestMissing:
    def test_it_is_gone(self) -> None:
        assert found(tree(), root(BASE)) == [(REMOVED, MODEL)]
        assert found(tree(artifacts=[MODEL]), root(BASE)) == [(REMOVED, MODEL)]

    def test_a_ledger_stands_in_its_place(self) -> None:
        assert (REWRITTEN, MODEL) in found(tree(at={MODEL: ELSE}), root(BASE))
        assert found(tree(begun(2, ALICE)), root(BASE)) == [(REWRITTEN, MODEL)]

    def test_one_that_can_not_be_read(self) -> None:
        """Told where files are judged; what mends it extends the open one."""
        state, violations = step(tree(broken=[MODEL]), root(OURS))
        assert violations == []
        assert kinds(tree(OURS), state) == []
        assert kinds(tree(BASE), state) == [REWRITTEN]
        assert kinds(tree(begun(2, ALICE)), state) == [REWRITTEN]

    def test_of_every_parent(self) -> None:
        parents = [root(), state_after(tree(BASE), root())]
        assert kinds(tree(), *parents) == [REMOVED]
        assert kinds(tree(), *reversed(parents)) == [REMOVED]

    def test_it_is_told_of_every_commit(self) -> None:
        state, _ = step(tree(), root(BASE))
        assert kinds(tree(), state) == [REMOVED]

    def test_a_deletion_that_is_not_sealed_by_who_is_trusted(self) -> None:
        for keys, kind in (((BOB,), "untrusted-signer"), ((), "missing-signature")):
            state, violations = step(tree(deleted(BASE, *keys)), root(BASE))
            assert [v.kind for v in violations] == [kind]
            assert kinds(tree(), state) == [REMOVED]

    def test_what_comes_after_a_deletion_is_no_deletion(self) -> None:
        back = grown(deleted(BASE, ALICE), 5, ALICE)
        state = state_after(tree(back), root(BASE))
        assert kinds(tree(), state) == [REMOVED]

    def test_an_older_state_does_not_come_back_after_a_deletion(self) -> None:
        state = state_after(tree(), state_after(tree(deleted(BASE, ALICE)), root(BASE)))
        assert kinds(tree(BASE), state) == [REWRITTEN]


class TestPlaces:
    """(3)"""

    def test_artifacts_are_added(self) -> None:
        state = state_after(tree(BASE, artifacts=[b"plain.fold"]), root())
        assert state.places == {MODEL, b"plain.fold", SIGNERS_PATH}

    def test_and_never_taken_away(self) -> None:
        state = state_after(tree(artifacts=[b"a"]), root())
        assert state_after(tree(), state).places == {b"a", SIGNERS_PATH}
        moved = state_after(tree(MOVED), root(BASE))
        assert moved.places == {MODEL, b"k", SIGNERS_PATH}

    def test_though_something_else_fails(self) -> None:
        state, violations = step(tree(begun(1), artifacts=[b"a"]), root())
        assert violations
        assert state.places == {MODEL, b"a", SIGNERS_PATH}

    def test_judging_takes_them(self) -> None:
        state = state_after(tree(artifacts=[b"a"]), root())
        standing = state_after(tree(), state).facts
        assert standing.places == {b"a", SIGNERS_PATH}
        assert (standing.trusted, standing.is_signed) == (FIRST.keys, True)
        nobody = start(SignersState(), Tree(artifacts=frozenset({b"a"})))
        assert (nobody.facts.places, nobody.facts.is_signed) == ({b"a"}, False)


class TestWorkedExample:
    """That of `docs/spec/trust.md`."""

    G1 = begun(1, ALICE)
    G2 = grown(G1, 2, ALICE)
    G3 = grown(G2, 3, MALLORY)
    BOTH = grown(G2, 3, MALLORY, ALICE)

    def test_each_line(self) -> None:
        r = root(self.G1)
        a = state_after(tree(self.G2), r)
        b = state_after(tree(self.G2, signers=S2), a)
        assert b.signers == {S1, S2}
        x = state_after(tree(self.G3), a)
        assert kinds(tree(self.G3, signers=S2), b, x) == ["untrusted-signer"]
        x_signed = state_after(tree(self.BOTH), a)
        n = state_after(tree(self.BOTH, signers=S2), b, x_signed)
        assert state_after(tree(self.BOTH, signers=S2), b, x).trusted == {ALICE}
        assert opened(n) == {self.BOTH}
        assert kinds(tree(self.G1, signers=S2), r, n) == [REWRITTEN]
        moved = grown(self.BOTH, 3, ALICE, at=b"k")
        p = state_after(tree(moved, signers=S2), n)
        assert opened(p) == {moved}
        # What stands at `model` is judged there, without a ledger: it is a place.
        assert MODEL in state_after(tree(moved, signers=S2), p).facts.places
