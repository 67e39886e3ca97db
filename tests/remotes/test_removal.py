"""Packs go from a remote by rules (`docs/spec/store.md`, "Removal"): all orders of all steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import pytest

from tests.remotes import removing
from tests.remotes.removing import (
    GRACE,
    KEPT,
    Clone,
    Habits,
    Lost,
    Model,
    Pack,
    World,
    chunk,
    index,
)
from wtxtgit.remotes.payload import removal
from wtxtgit.remotes.payload.removal import IndexOf, Seen

OLD, MARKED, AGED = Pack(age=GRACE), Pack(mark=True), Pack(mark=True, age=GRACE)
STEPS = 8
WORLDS = {
    "a base that is old, and what is decoded with it young": {"a": OLD, "b": Pack()},
    "unneeded for long": {"a": OLD, "b": OLD},
    "marked a moment ago": {"ab": MARKED},
    "marked for long": {"ab": AGED, "c": OLD},
    "gone": {"ab": Pack(pack=False, end=False, mark=True, age=GRACE)},
    "there in part": {"ab": Pack(end=False, age=GRACE), "a": Pack(pack=False, age=GRACE)},
    "half removed": {"ab": Pack(end=False, mark=True, age=GRACE), "a": AGED, "b": OLD},
    "there twice": {"ab": AGED, "a": OLD, "b": OLD},
}
FEW = (("push main",), ("prune", "prune"), ("fetch main",))
WORKS = (*FEW, ("push side",), ("prune", "push main"), ("fetch main", "prune"))


def world(packs: dict[str, Pack], *refs: str, **chances: int) -> World:
    return World(tuple(sorted(packs.items())), frozenset(refs), **chances)


def tried(
    start: World,
    first: Iterable[str],
    second: Iterable[str],
    habits: Habits = KEPT,
    steps: int = STEPS,
) -> int:
    model = Model(habits)
    model.run(start, Clone((*first,), steps), Clone((*second,), steps))
    return model.states


@pytest.mark.parametrize("packs", WORLDS.values(), ids=WORLDS)
def test_in_whatever_order_nothing_is_lost(packs: dict[str, Pack]) -> None:
    for first, second in combinations(FEW, 2):
        assert tried(world(packs, ticks=3), first, second) > 100


@pytest.mark.slow
@pytest.mark.parametrize("packs", WORLDS.values(), ids=WORLDS)
def test_in_whatever_order_of_more(packs: dict[str, Pack]) -> None:
    for first, second in combinations_with_replacement(WORKS, 2):
        assert tried(world(packs, ticks=3), first, second)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unneeded for long", "marked for long", "there twice"])
def test_in_whatever_order_where_a_branch_is_deleted(name: str) -> None:
    start = world(WORLDS[name], "main", ticks=2, deletions=1)
    for first, second in combinations_with_replacement(FEW, 2):
        assert tried(start, first, second)


@pytest.mark.slow
def test_in_whatever_order_where_both_push_and_prune() -> None:
    for packs in WORLDS.values():
        start = world(packs, ticks=3)
        assert tried(start, ["push main", "prune"], ["prune", "push other"]) > 10_000


ONE = {"ab": OLD}
BROKEN = {
    "1: bases are needed": ({"a": AGED, "b": OLD, "d": OLD}, ["fetch other"], ["prune"], {}),
    "2: packs are marked first": (ONE, ["push main"], ["prune"], {"marks_first": False}),
    "3: no mark is taken back": (
        {"ab": AGED}, ["prune", "push main"], ["prune"], {"leaves_marks": False},
    ),
    "4: marks get old": (ONE, ["push main"], ["prune", "prune"], {"waits": False}),
    "4: packs are listed before refs": (
        ONE, ["push main"], ["prune", "prune"], {"looks_before_refs": False},
    ),
    "5: a mark outlives its pack": (
        {"ab": AGED}, ["prune", "push main"], ["prune"], {"keeps_marks_of_gone": False},
    ),
    "6: no push relies on what is marked": (
        {"ab": AGED}, ["push main"], ["prune"],
        {"relies_on_unmarked": False, "looks_again": False},
    ),
    "6: no push gives a marked name": (
        {"ab": AGED}, ["push main"], ["prune"],
        {"has_other_names": False, "looks_again": False},
    ),
    "6: commits do not count where anything is marked": (
        {"ab": AGED}, ["push side"], ["prune"], {"doubts_commits": False},
    ),
    "the refs follow in time": (ONE, ["push main"], ["prune", "prune"], {"is_in_time": False}),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_every_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packs, first, second, habits = BROKEN[rule]
    refs = {"1": ["other"], "3": ["main"], "6: commits do": ["main"]}
    known = next((refs[start] for start in refs if rule.startswith(start)), [])
    start = world(packs, *known, ticks=2, deletions=1 if known else 0)
    assert tried(start, first, second, steps=12)
    if rule.startswith("1"):
        monkeypatch.setattr(removal, "holding", without_bases)
        removing.decision.cache_clear()
    with pytest.raises(Lost):
        tried(start, first, second, replace(KEPT, **habits), steps=12)
    removing.decision.cache_clear()


def without_bases(packs: Iterable[str], chunks: Iterable[bytes], of: IndexOf) -> set[str]:
    names = {*chunks}
    return {name for name in packs if any(of(name).row(chunk) is not None for chunk in names)}


def test_a_push_that_finds_a_pack_gone_sends_it_again() -> None:
    start = world(WORLDS["unneeded for long"], removals=1)
    assert tried(start, ["push main"], ["fetch main"])
    with pytest.raises(Lost, match="somebody removes"):
        tried(start, ["push main"], ["fetch main"], replace(KEPT, looks_again=False))


def decided(seen: Seen, *letters: str, old: str = "", elsewhere: str = "") -> removal.Removal:
    return removal.removal(
        seen,
        {*map(chunk, letters)},
        index,
        lambda name: name in map(chunk, elsewhere),
        lambda names: names & {*old.split()},
    )


def test_what_young_packs_are_decoded_with_is_not_marked() -> None:
    there = Seen({"a", "b", "c", "d"}, {"x"}, set(), set())
    done = decided(there, old="a b c")
    assert (done.mark, done.remove, done.young) == ({"c"}, set(), {"a", "b", "d", "x"})
    done = decided(there, old="a b c d x")
    assert (done.mark, done.remove) == ({"a", "b", "c", "d", "x"}, set())


def test_what_is_marked_goes_when_it_is_old_and_all_that_is_needed_is_elsewhere() -> None:
    there = Seen({"a", "b"}, {"x"}, {"a", "b", "x", "gone"}, {"gone"})
    assert decided(there, old="").remove == set()
    assert decided(there, old="a b x").remove == {"a", "b", "x"}
    assert decided(there, "b", old="a b").remove == set()
    assert decided(there, "b", old="a b", elsewhere="b").remove == {"a", "b"}
    assert decided(there, old="gone").forget == {"gone"}
