"""A remote, two clones, and all orders in which they can take their steps: the model of removal.

What is decided is decided by the functions of the program (`remotes/payload/removal.py`); the model
has only the steps, each of which a place does at once: it lists, writes or removes. A clone may be
killed before any step. Time is counted in halves of the grace time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from wtxtgit.remotes.payload import removal as rules
from wtxtgit.remotes.payload.remote_packs import UsableChunks
from wtxtgit.remotes.payload.removal import Seen
from wtxtgit.store.pack import MAX_DEPTH, STORED, XOR, ChunkEntry, ChunkIndex, index_of

GRACE = 2
"""The grace time, in ticks."""
BASES = {"a": "", "b": "a", "c": "", "d": "b"}
"""Chunks, and what each is decoded with, wherever it is."""
NEEDED = {"main": "ab", "side": "abc", "other": "d", "base": "a"}
"""The chunks that each ref needs."""


def chunk(letter: str) -> bytes:
    return letter.encode() * 32


@cache
def index(name: str) -> ChunkIndex:
    """The index of a pack with the chunks that its name says, up to a dot."""
    entries = []
    for letter in name.partition(".")[0]:
        depth = 0
        base = letter
        while base := BASES[base]:
            depth += 1
        bases = tuple(chunk(base) for base in BASES[letter])
        kind = XOR if depth else STORED
        entries.append(ChunkEntry(chunk(letter), 16, 1, 1, bases, kind, 1, depth))
    return index_of(entries)


class Pack(NamedTuple):
    """What is there of a name, and for how many ticks it is in that state."""

    pack: bool = True
    end: bool = True
    mark: bool = False
    age: int = 0

    @property
    def is_whole(self) -> bool:
        return self.pack and self.end

    @property
    def is_gone(self) -> bool:
        return not (self.pack or self.end)


Packs = tuple[tuple[str, Pack], ...]


class World(NamedTuple):
    """A remote: its packs and refs; `deletions` and `ticks` are what may still happen to it."""

    packs: Packs
    refs: frozenset[str]
    deletions: int = 0
    ticks: int = 0
    removals: int = 0

    def there(self) -> dict[str, Pack]:
        return dict(self.packs)

    def whole(self) -> frozenset[str]:
        return frozenset(name for name, pack in self.packs if pack.is_whole)

    def marked(self) -> frozenset[str]:
        return frozenset(name for name, pack in self.packs if pack.mark)

    def put(self, name: str, pack: Pack) -> World:
        packs = {**self.there(), name: pack}
        left = ((n, p) for n, p in packs.items() if not p.is_gone or p.mark)
        return self._replace(packs=tuple(sorted(left)))

    def change(self, name: str, **what: bool) -> World:
        """Write or remove a file; a name that is in another state then is new in that."""
        before = self.there().get(name, Pack(pack=False, end=False))
        after = before._replace(**what)
        is_other = (after.mark, after.is_gone) != (before.mark, before.is_gone)
        return self.put(name, after._replace(age=0 if is_other else before.age))


class _Copies:
    """What `UsableChunks` asks about packs."""

    def __init__(self, packs: Set[str]) -> None:
        self._packs = packs
        self.unproved: dict[str, set[bytes]] = {}

    def copies(self, name: bytes, most_depth: int) -> list[tuple[str, ChunkEntry]]:
        found = []
        for pack in sorted(self._packs):
            row = index(pack).row(name)
            if row is not None and (entry := index(pack).entry(row)).depth <= most_depth:
                found.append((pack, entry))
        return found


@cache
def used(packs: Set[str], letters: str) -> tuple[str, frozenset[str]]:
    """Which of some chunks packs lack, and the packs by which they have the others."""
    usable = UsableChunks(_Copies(packs))  # type: ignore[arg-type]
    lacking = [letter for letter in letters if not usable.has(chunk(letter), MAX_DEPTH)]
    return "".join(lacking), frozenset(usable.used)


def with_bases(letters: str) -> str:
    found = set(letters)
    while more := {BASES[letter] for letter in found if BASES[letter]} - found:
        found |= more
    return "".join(sorted(found))


@dataclass(frozen=True)
class Habits:
    """The rules that clones keep, each of which a test breaks."""

    marks_first: bool = True
    leaves_marks: bool = True
    waits: bool = True
    looks_before_refs: bool = True
    keeps_marks_of_gone: bool = True
    relies_on_unmarked: bool = True
    has_other_names: bool = True
    doubts_commits: bool = True
    looks_again: bool = True
    is_in_time: bool = True


KEPT = Habits()


class Clone(NamedTuple):
    """A clone and what it does: the steps that are left, and for how many ticks since its look."""

    work: tuple[str, ...]
    steps: int
    doing: str = ""
    at: int = 0
    age: int = 0
    ref: str = ""
    refs: frozenset[str] = frozenset()
    seen: Seen | None = None
    aged: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    sends: str | None = None
    todo: tuple[tuple[str, str], ...] = ()

    def done(self) -> Clone:
        return Clone(self.work, self.steps)


State = tuple[World, Clone, Clone]


class Lost(AssertionError):
    """A ref leads to what the remote has not."""


def needed(refs: frozenset[str]) -> str:
    return "".join(sorted({letter for ref in refs for letter in NEEDED[ref]}))


def check(world: World) -> None:
    lacking, _ = used(world.whole(), needed(world.refs))
    if lacking:
        raise Lost(f"{sorted(world.refs)} need {lacking}: {world}")


class Model:
    """Takes all steps from a world, with two clones that do their work in any order."""

    def __init__(self, habits: Habits = KEPT) -> None:
        self._habits = habits
        self.states = 0

    def run(self, world: World, first: Clone, second: Clone) -> None:
        """Visit every state; raises Lost with the steps that led there."""
        start: State = (world, first, second)
        known = {start}
        todo: list[tuple[State, tuple[str, ...]]] = [(start, ())]
        while todo:
            state, path = todo.pop()
            for what, after in self._next(state):
                if after in known:
                    continue
                known.add(after)
                try:
                    check(after[0])
                except Lost as lost:
                    raise Lost("\n".join((*path, what, str(lost)))) from None
                todo.append((after, (*path, what)))
        self.states = len(known)

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        world, first, second = state
        if world.ticks:
            aged = tuple((n, p._replace(age=min(GRACE, p.age + 1))) for n, p in world.packs)
            later = world._replace(packs=aged, ticks=world.ticks - 1)
            yield "half of the grace time passes", (later, self._aged(first), self._aged(second))
        if world.deletions:
            for ref in world.refs:
                left = world._replace(refs=world.refs - {ref}, deletions=world.deletions - 1)
                yield f"{ref} is deleted", (left, first, second)
        # Whoever else removes packs does so before the last look of a push.
        if world.removals and any(c.doing == "push" and 2 <= c.at <= 4 for c in (first, second)):
            for name in world.whole():
                gone = world._replace(removals=world.removals - 1)
                without = gone.change(name, end=False, pack=False)
                yield f"somebody removes {name}", (without, first, second)
        for what, after, clone in self._steps(world, first):
            yield f"A: {what}", (after, clone, second)
        for what, after, clone in self._steps(world, second):
            yield f"B: {what}", (after, first, clone)

    def _aged(self, clone: Clone) -> Clone:
        """Who has not come to an end within the grace time does nothing more."""
        if not clone.doing:
            return clone
        if clone.age + 1 >= GRACE and self._habits.is_in_time:
            return clone.done()
        return clone._replace(age=min(GRACE, clone.age + 1))

    def _steps(self, world: World, clone: Clone) -> Iterator[tuple[str, World, Clone]]:
        if not clone.steps:
            return
        fewer = clone._replace(steps=clone.steps - 1)
        if not clone.doing:
            for number, work in enumerate(clone.work):
                left = clone.work[:number] + clone.work[number + 1 :]
                kind, _, ref = work.partition(" ")
                yield from self._taken(world, fewer._replace(work=left, doing=kind, ref=ref))
            return
        yield from self._taken(world, fewer)

    def _taken(self, world: World, clone: Clone) -> Iterator[tuple[str, World, Clone]]:
        step: Callable[[World, Clone], tuple[str, World, Clone]] = getattr(self, f"_{clone.doing}")
        yield step(world, clone)

    def _push(self, world: World, clone: Clone) -> tuple[str, World, Clone]:
        at, ref = clone.at, clone.ref
        after = clone._replace(at=at + 1)
        if at == 0:
            return f"push {ref}: lists the refs", world, after._replace(refs=world.refs)
        if at == 1:
            return self._chosen(world, after)
        if at in (2, 3) and clone.sends is not None:
            file = "pack" if at == 2 else "end"
            changed = world.change(clone.sends, **{file: True})
            return f"push {ref}: writes the {file} of {clone.sends}", changed, after
        if at in (2, 3, 4) and self._habits.looks_again:
            relied = clone.names | ({clone.sends} if clone.sends else set())
            lost = rules.unreliable(relied, world.whole(), world.marked())
            again = after._replace(at=1 if lost else 5)
            return f"push {ref}: looks again, lost: {sorted(lost)}", world, again
        return f"push {ref}: moves the ref", world._replace(refs=world.refs | {ref}), clone.done()

    def _chosen(self, world: World, clone: Clone) -> tuple[str, World, Clone]:
        whole, marked = world.whole(), world.marked()
        there = rules.reliable(whole, marked) if self._habits.relies_on_unmarked else whole
        wanted = set(NEEDED[clone.ref])
        if rules.commits_count(marked) or not self._habits.doubts_commits:
            wanted -= set(needed(clone.refs))
        letters = "".join(sorted(wanted))
        lacking, relied = used(there, letters)
        sends = None
        if lacking:
            more, _ = used(there, with_bases(lacking))
            sends = "".join(sorted({*lacking, *more}))
            if sends in marked and self._habits.has_other_names:
                sends = self._other_name(sends, whole | marked)
        what = f"push {clone.ref}: looks, relies on {sorted(relied)}, sends {sends}"
        return what, world, clone._replace(names=relied, sends=sends)

    def _other_name(self, name: str, there: frozenset[str]) -> str:
        """Return a name that no pack ever had: a number that is larger than all."""
        numbers = [int(other.partition(".")[2] or 0) for other in there]
        return f"{name}.{1 + max(numbers)}"

    def _fetch(self, world: World, clone: Clone) -> tuple[str, World, Clone]:
        """Look at the refs, list the packs, read them, and do it once more if one is gone."""
        after = clone._replace(at=clone.at + 1)
        if clone.at == 0:
            refs = world.refs & {clone.ref}
            return "fetch: lists the refs", world, after._replace(refs=refs)
        if clone.at in (1, 3):
            lacking, found = used(world.whole(), needed(clone.refs))
            if lacking and clone.refs <= world.refs:
                raise Lost(f"a fetch of {sorted(clone.refs)} finds no {lacking}")
            return f"fetch: finds {sorted(found)}", world, after._replace(names=found)
        if clone.names <= world.whole() or clone.at == 4:
            return "fetch: reads the packs", world, clone.done()
        return "fetch: a pack is gone", world, after

    def _prune(self, world: World, clone: Clone) -> tuple[str, World, Clone]:
        after = clone._replace(at=clone.at + 1)
        order = ("look", "refs") if self._habits.looks_before_refs else ("refs", "look")
        if clone.at < 2 and order[clone.at] == "look":
            seen, aged = self._seen(world)
            after = after._replace(seen=seen, aged=aged)
        elif clone.at < 2:
            after = after._replace(refs=world.refs)
        if clone.at < 2:
            if clone.at == 1:
                after = self._decided(after)
            return f"prune: lists the {order[clone.at]}", world, after
        (what, name), *rest = clone.todo
        after = clone._replace(todo=tuple(rest)) if rest else clone.done()
        if what == "refs":
            if world.refs != clone.refs:
                return "prune: refs have changed", world, clone.done()
            return "prune: the refs are the same", world, after
        if what == "mark":
            return f"prune: marks {name}", world.change(name, mark=True), after
        if what in ("forget", "take back"):
            return f"prune: removes the mark of {name}", world.change(name, mark=False), after
        # Another prune may have removed it.
        if name not in world.there():
            return f"prune: finds no {name}", world, after
        return f"prune: removes the {what} of {name}", world.change(name, **{what: False}), after

    def _seen(self, world: World) -> tuple[Seen, frozenset[str]]:
        there = world.there()
        parts = frozenset(n for n, p in there.items() if p.pack != p.end)
        gone = frozenset(n for n, p in there.items() if p.is_gone)
        aged = frozenset(n for n, p in there.items() if p.age >= GRACE)
        return Seen(world.whole(), parts, world.marked(), gone), aged

    def _decided(self, clone: Clone) -> Clone:
        assert clone.seen is not None
        seen, aged = clone.seen, clone.aged if self._habits.waits else None
        mark, remove, forget = decision(seen, needed(clone.refs), aged)
        steps: list[tuple[str, str]] = []
        if not self._habits.marks_first:
            mark, remove = frozenset(), remove | mark
        steps += [("mark", name) for name in sorted(mark)]
        if not self._habits.leaves_marks:
            kept = rules.holding(seen.packs, map(chunk, needed(clone.refs)), index)
            steps += [("take back", name) for name in sorted(seen.marked & kept)]
        if (mark or remove) and self._habits.looks_before_refs:
            steps.append(("refs", ""))
        for name in sorted(remove):
            steps += [("end", name), ("pack", name)]
            if not self._habits.keeps_marks_of_gone:
                steps.append(("forget", name))
        steps += [("forget", name) for name in sorted(forget)]
        if not steps:
            return clone.done()
        return clone._replace(todo=tuple(steps), seen=None, aged=frozenset())


@cache
def decision(
    seen: Seen, letters: str, aged: frozenset[str] | None
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """What the program decides; `aged` is None where nobody waits for marks to be old."""
    usable = UsableChunks(_Copies(seen.packs), seen.marked)  # type: ignore[arg-type]
    wanted = set(map(chunk, letters))
    done = rules.removal(
        seen,
        wanted,
        index,
        lambda name: usable.has(name, MAX_DEPTH),
        lambda names: {*names} if aged is None else {*names} & aged,
    )
    return frozenset(done.mark), frozenset(done.remove), frozenset(done.forget)
