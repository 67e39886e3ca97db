"""Laws of states: what is joined or stepped loses nothing, and no order of parents matters."""

from __future__ import annotations

from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.trust.histories import History, random_program, run
from tests.trust.symbolic import signed_by
from wtxtgit.trust.state import LedgerLine, TrustState, extends, join, start
from wtxtgit.trust.step import step

seeds = st.integers(0, 2**32)


def states_of(history: History) -> list[TrustState]:
    """The root's state and that of each commit."""
    begin = start(history.root, history.root_tree)
    states: list[TrustState] = []
    for number, commit in enumerate(history.commits):
        if number in history.root_reaches:
            states.append(begin)
        else:
            before = join([states[parent] for parent in commit.parents] or [begin])
            states.append(step(commit.tree, before, signed_by)[0])
    return [begin, *states]


def holds_all(state: TrustState, other: TrustState) -> bool:
    """Whether a state has all that another one has, or pairs that imply it."""
    return (
        other.signers <= state.signers
        and other.places <= state.places
        and all(
            line.joined <= state.lines.get(name, LedgerLine()).joined
            and all(
                any(
                    one == signers and extends(more, ledger)
                    for more, one in state.lines.get(name, LedgerLine()).stands
                )
                for ledger, signers in line.stands
            )
            for name, line in other.lines.items()
        )
    )


@given(seeds)
def test_join_is_a_union(seed: int) -> None:
    states = states_of(run(random_program(seed)))[-4:]
    for one in states:
        assert join([one, one]) == one
    for one, other in product(states, states):
        both = join([one, other])
        assert both == join([other, one])
        assert holds_all(both, one)
        assert holds_all(both, other)
        assert join([both, one]) == both
    for one, other, third in product(states[-3:], repeat=3):
        joined = join([join([one, other]), third])
        assert joined == join([one, join([other, third])]) == join([one, other, third])
        if holds_all(other, one):
            assert holds_all(join([other, third]), join([one, third]))


@given(seeds)
def test_a_step_takes_nothing_away(seed: int) -> None:
    history = run(random_program(seed))
    for before, commit in product(states_of(history)[-4:], history.commits):
        after, _ = step(commit.tree, before, signed_by)
        assert holds_all(after, before)


@given(seeds)
def test_the_order_of_parents_does_not_matter(seed: int) -> None:
    history = run(random_program(seed))
    tree = history.commits[-1].tree
    found = [
        step(tree, join(parents), signed_by) for parents in permutations(states_of(history)[-3:])
    ]
    for after, violations in found:
        assert after == found[0][0]
        assert {(one.kind, one.path) for one in violations} == {
            (one.kind, one.path) for one in found[0][1]
        }


@given(seeds)
def test_the_same_tree_again_adds_nothing(seed: int) -> None:
    history = run(random_program(seed))
    for before, commit in product(states_of(history)[-3:], history.commits[-3:]):
        once, first = step(commit.tree, before, signed_by)
        twice, again = step(commit.tree, once, signed_by)
        assert twice == once
        assert {one.path for one in again} <= {one.path for one in first}
