"""All small histories, each tip that is accepted held against the claim of `docs/spec/trust.md`.

Two sorts of commits are enumerated. **Acts**: on the clean tree of a commit, or of either parent of
a merge, a key seals a content, a move, a deletion or other signers; two clean histories are merged
as they should be. Who is trusted seals nothing that is refused where he seals it. **Attacks**: over
any one or two parents, any tree that can be put together from the ledgers of the world, what they
begin with, one with a record that nobody signed, and one whose last record names another form.

The claim is stated on what really happened (`Truth`), which knows none of the rules: a seal is a
record for a path that a key signed, knowing all that was in the history below it.

A history is a set of commits, since the order in which they were made changes nothing; and commits
are one where tree, seals known, and what the rules make of them are. So each set is made once, and
each commit is judged once. Each seal is of a content of its own, so that no rollback hides behind
an equal content.

    python -m tests.trust.small_worlds COMMITS PATHS [narrow]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from time import perf_counter

from tests.trust.symbolic import (
    ALICE,
    BOB,
    NAMES,
    add_signatures,
    begin,
    content,
    seal,
    sign,
    signed_by,
    signers_file,
)
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, Ledger, Record, is_deletion
from wtxtgit.trust import state as rules
from wtxtgit.trust.state import SignersState, TrustState
from wtxtgit.trust.step import step

FILES = {
    file.sha256_all: file
    for file in (signers_file([ALICE]), signers_file([BOB]), signers_file([ALICE, BOB]))
}
PATHS = (b"m.fold", b"k.fold")
GONE = content(None)

Known = frozenset[str]
"""What a history knows: names of records, and `NAME+KEY` for their signatures."""
Ledgers = tuple[tuple[bytes, Ledger], ...]
"""A tree: the ledger of each path that has one. The file there is what the last record is of."""


@dataclass(frozen=True)
class View:
    """What is so after a commit, whatever the rules say.

    `changes` are those of the signers that came, each at a commit over which its maker was trusted,
    and knowing one of the last ones there.
    `stood` are pairs of a seal and a change: the seal was there when the change came, or came
    where its maker was trusted although the change was known.
    """

    known: Known
    changes: frozenset[str]
    stood: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Seal:
    """What really happened: somebody made a record, knowing of others."""

    path: bytes
    sha256_all: bytes
    detached: bytes | None
    key: bytes
    knew: Known


def reformed(ledger: Ledger) -> Ledger:
    """A ledger whose last record names another detached text, below the signatures that it has."""
    return Ledger(
        ledger.head,
        (*ledger.records[:-1], replace(ledger.last, detached=content("of nobody"))),
    )


def signed(name: str, key: bytes) -> str:
    return f"{name}+{key.hex()}"


class Truth:
    """Every seal that was made, by the name of its record."""

    def __init__(self) -> None:
        self.seals: dict[str, Seal] = {}
        self._names: dict[object, str] = {}

    def seal(
        self,
        before: Ledger | None,
        path: bytes,
        key: bytes,
        knew: Known,
        what: bytes | None = None,
        *,
        beside: Ledger | None = None,
    ) -> Ledger:
        """Let a key seal, a content of its own if none is given, later than all that it knows."""
        gens = [int(name.split(".")[0]) for name in knew if self._is_of(name, path)]
        if before is not None:
            gens.append(before.last.meta.gen)
        gen = max(gens, default=0) + 1
        who = (before, beside, path, key, knew, what)
        name = self._names.setdefault(who, f"{gen}.{len(self._names)}")
        sha256_all = content(name) if what is None else what
        at = path if before is not None and before.place != path else None
        head = before or begin(path, beside)
        # Files change their form with every generation; signers have none.
        detached = content((name, "D")) if what is None and gen % 2 else None
        ledger = seal(head, sha256_all, [key], at=at, detached=detached, gen=gen, name=name)
        self.seals[name] = Seal(path, sha256_all, detached, key, knew)
        return ledger

    def _is_of(self, name: str, path: bytes) -> bool:
        return name in self.seals and self.seals[name].path == path

    def known_in(self, ledgers: Ledgers) -> Known:
        known = set()
        for _, ledger in ledgers:
            for n, record in enumerate(ledger.records):
                valid = signed_by(ledger, n, frozenset(NAMES)).valid
                if valid:
                    known |= {record.meta.host, *(signed(record.meta.host, key) for key in valid)}
        return frozenset(known)

    def after(self, tree: Known, change: str | None, over: list[View]) -> View:
        """What is so after a commit: its tree has these seals, and that change of the signers."""
        known, changes, stood = (
            frozenset().union(*(getattr(one, name) for one in over))
            for name in ("known", "changes", "stood")
        )
        before = View(known, changes, stood)
        trusted = self.trusted(before) if over else frozenset(NAMES)
        is_new = change in tree - known and self.seals[str(change)].key in trusted
        last = frozenset(self.last_changes(before))
        if is_new and (not last or last & self.seals[str(change)].knew):
            changes |= {str(change)}
            trusted |= self.trusted(View(known | tree, changes, stood))
        here = {n for n in tree if n in self.seals}
        signed_here = {n for n in here if any(signed(n, key) in tree for key in trusted)}
        stood |= frozenset(product(signed_here, changes))
        known |= tree
        if new := changes - before.changes:
            old = View(known, before.changes, stood)
            there = {n for n in known if n in self.seals and self.counts(n, old)}
            stood |= frozenset(product(there, new))
        return View(known, changes, stood)

    def last_changes(self, view: View) -> list[str]:
        return [
            one
            for one in view.changes
            if not any(one in self.seals[other].knew for other in view.changes)
        ]

    def trusted(self, view: View) -> frozenset[bytes]:
        files = [FILES[self.seals[name].sha256_all] for name in self.last_changes(view)]
        return frozenset.intersection(*(file.keys for file in files))

    def counts(self, name: str, view: View) -> bool:
        """Whether somebody who was trusted at that place stands for a seal.

        That is: by each change of the signers that is known, unless it stood there.
        """
        return all(
            (name, change) in view.stood
            or any(
                signed(name, key) in view.known for key in FILES[self.seals[change].sha256_all].keys
            )
            for change in view.changes
        )

    def holds(self, path: bytes, record: Record, view: View) -> bool:
        """The claim: a trusted signer sealed this last for the path, of all that is known.

        The content in this form.
        """
        if path == SIGNERS_PATH:
            last = self.last_changes(view)
        else:
            good = [n for n in view.known if self._is_of(n, path) and self.counts(n, view)]
            last = [n for n in good if not any(n in self.seals[other].knew for other in good)]
        wanted = record.sha256_all, record.detached
        return any((self.seals[one].sha256_all, self.seals[one].detached) == wanted for one in last)


@dataclass(frozen=True)
class Commit:
    """A commit by value: its state and tree by number, and what really is so after it.

    The tree is None where something fails, since nobody goes on from there.
    """

    state: int
    tree: int | None
    view: View
    is_honest: bool


World = frozenset[int]


@dataclass
class Count:
    worlds: int = 0
    commits: int = 0
    accepted: int = 0
    honest: int = 0


@dataclass
class Worlds:
    """Values by number, and what is so of them."""

    paths: tuple[bytes, ...]
    is_narrow: bool = False
    truth: Truth = field(default_factory=Truth)
    count: Count = field(default_factory=Count)
    wrong: list[str] = field(default_factory=list)
    states: list[TrustState] = field(default_factory=list)
    trees: list[Ledgers] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    how: list[str] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)
    joins: dict[frozenset[int], int] = field(default_factory=dict)
    steps: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)
    made: list[Ledgers] = field(default_factory=list)
    known_by_tree: dict[int, Known] = field(default_factory=dict)

    def tree(self, ledgers: Iterable[tuple[bytes, Ledger]]) -> int:
        value = tuple(sorted(ledgers, key=lambda pair: pair[0]))
        number = self.numbers.setdefault(value, len(self.trees))
        if number == len(self.trees):
            self.trees.append(value)
            self.known_by_tree[number] = self.truth.known_in(value)
        return number

    def state(self, state: TrustState) -> int:
        key = (state.signers, frozenset(state.lines.items()), state.places, state.introductions)
        number = self.numbers.setdefault(key, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def join(self, states: frozenset[int]) -> int:
        if states not in self.joins:
            self.joins[states] = self.state(rules.join([self.states[n] for n in sorted(states)]))
        return self.joins[states]

    def step(self, state: int, tree: int) -> tuple[int, bool]:
        """The state after a tree, and whether nothing fails at it."""
        if (state, tree) not in self.steps:
            ledgers = self.trees[tree]
            at = as_tree(ledgers)
            after, violations = step(at, self.states[state], signed_by)
            is_clean = not violations and not artifacts_without(ledgers, after)
            self.steps[state, tree] = self.state(after), is_clean
        return self.steps[state, tree]

    def commit(
        self, parents: tuple[int, ...], tree: int, how: str, *, is_honest: bool = False
    ) -> int:
        """A commit by its number. It is judged when it is met first."""
        over = [self.commits[n] for n in parents]
        before = self.join(frozenset(one.state for one in over))
        after, is_clean = self.step(before, tree)
        view = self.view(tree, [one.view for one in over])
        commit = Commit(after, tree if is_clean else None, view, is_honest)
        number = self.numbers.setdefault(commit, len(self.commits))
        if number == len(self.commits):
            self.commits.append(commit)
            self.made.append(self.trees[tree])
            self.how.append(f"{number}: {how} over {parents}")
            self._judge(number)
        return number

    def view(self, tree: int, over: list[View]) -> View:
        signers = dict(self.trees[tree]).get(SIGNERS_PATH)
        change = signers.last.meta.host if signers else None
        return self.truth.after(self.known_by_tree[tree], change, over)

    def is_clean(self, over: list[Commit], tree: int) -> bool:
        return self.step(self.join(frozenset(one.state for one in over)), tree)[1]

    def _judge(self, number: int) -> None:
        commit = self.commits[number]
        self.count.commits += 1
        self.count.accepted += commit.tree is not None
        self.count.honest += commit.is_honest
        if commit.tree is None:
            if commit.is_honest:
                self.wrong.append(f"an honest commit is refused: {self.told(number)}")
            return
        for path, ledger in self.trees[commit.tree]:
            if not is_deletion(ledger.last) and not self.truth.holds(
                path, ledger.last, commit.view
            ):
                self.wrong.append(
                    f"{path.decode()} is not what was sealed last: {self.told(number)}"
                )

    def told(self, number: int) -> str:
        """How a commit came to be, with all below it."""
        lines = [self.how[number]]
        parents = lines[0].rpartition("(")[2].strip(",)").split(",")
        for parent in sorted({int(one) for one in parents if one.strip()}, reverse=True):
            lines += self.told(parent).splitlines()
        return "\n".join(dict.fromkeys(lines))

    # What can be done in a world.

    def root(self) -> int:
        file = signers_file([ALICE, BOB])
        signers = self.truth.seal(None, SIGNERS_PATH, ALICE, frozenset(), file.sha256_all)
        only = self.tree([(SIGNERS_PATH, signers)])
        knew = self.known_by_tree[only]
        first = self.truth.seal(None, PATHS[0], ALICE, knew, beside=signers)
        ledgers = [(SIGNERS_PATH, signers), (PATHS[0], first)]
        tree = self.tree(ledgers)
        state = self.state(rules.start(SignersState(file, signers), as_tree(self.trees[tree])))
        self.commits.append(Commit(state, tree, self.view(tree, []), True))
        self.made.append(self.trees[tree])
        self.how.append("0: root over ()")
        return 0

    def after(self, world: World) -> Iterator[int]:
        """All commits that a world can get."""
        for count in (1, 2):
            for parents in combinations(sorted(world), count):
                yield from self.acts(parents)
                yield from self.attacks(world, parents)

    def acts(self, parents: tuple[int, ...]) -> Iterator[int]:
        over = [self.commits[n] for n in parents]
        views = [one.view for one in over]
        known = frozenset[str]().union(*(view.known for view in views))
        trusted = self.truth.trusted(self.truth.after(frozenset(), None, views))
        for one in over:
            if one.tree is None:
                continue
            for key in (ALICE, BOB):
                is_honest = len(over) == 1 and one.is_honest and key in trusted
                for how, ledgers in self.acts_on(dict(self.trees[one.tree]), key, known):
                    how = f"{NAMES[key]} {how}"
                    number = self.tree(ledgers.items())
                    if key not in trusted or is_honest or self.is_clean(over, number):
                        yield self.commit(parents, number, how, is_honest=is_honest)
        if len(over) == 2 and all(one.is_honest for one in over):
            for key in sorted(trusted):
                trees = [self.tree(made.items()) for made in self.merged(over, key, known)]
                # What a signer who was taken away sealed beside that is no side to go on from.
                clean = [tree for tree in trees if self.is_clean(over, tree)]
                how = f"{NAMES[key]} merges"
                yield self.commit(parents, (clean or trees)[0], how, is_honest=True)

    def acts_on(
        self, tree: dict[bytes, Ledger], key: bytes, knew: Known
    ) -> Iterator[tuple[str, dict[bytes, Ledger]]]:
        for path in self.paths:
            ledger = tree.get(path)
            made = self.truth.seal(ledger, path, key, knew, beside=tree.get(SIGNERS_PATH))
            yield f"seals {path.decode()}", {**tree, path: made}
            if ledger is None or is_deletion(ledger.last) or self.is_narrow:
                continue
            gone = self.truth.seal(ledger, path, key, knew, GONE)
            yield f"seals that {path.decode()} is gone", {**tree, path: gone}
            without = {name: value for name, value in tree.items() if name != path}
            for other in self.paths:
                if other not in tree:
                    moved = self.truth.seal(ledger, other, key, knew)
                    yield f"moves {path.decode()} to {other.decode()}", {**without, other: moved}
        signers = tree.get(SIGNERS_PATH)
        if signers is not None and not self.is_narrow:
            for sha256_all in FILES:
                made = self.truth.seal(signers, SIGNERS_PATH, key, knew, sha256_all)
                yield f"seals signers {names(sha256_all)}", {**tree, SIGNERS_PATH: made}

    def merged(self, over: list[Commit], key: bytes, known: Known) -> Iterator[dict[bytes, Ledger]]:
        """Two histories merged as they should be: a key joins what diverged, and countersigns.

        It may go on from either side.
        """
        found = [ledger for one in over for _, ledger in self.trees[one.tree or 0]]
        found = [one for one in found if not any(is_begun(one, other) for other in found)]
        options = []
        for path in sorted({ledger.place for ledger in found}):
            here = list(dict.fromkeys(ledger for ledger in found if ledger.place == path))
            joined = here
            if len(here) > 1:
                joined = [self.truth.seal(one, path, key, known, self.what(one)) for one in here]
            options.append([(path, countersigned(one, key)) for one in joined])
        for chosen in product(*options):
            yield dict(chosen)

    def what(self, ledger: Ledger) -> bytes | None:
        """What a record that joins seals: the same signers, or a content of its own."""
        return ledger.last.sha256_all if ledger.place == SIGNERS_PATH else None

    def attacks(self, world: World, parents: tuple[int, ...]) -> Iterator[int]:
        """Every tree of pieces of a world that is no tree of the only parent."""
        pieces = self.pieces_of(world)
        options: list[list[tuple[bytes, Ledger] | None]] = []
        for path in (*self.paths, SIGNERS_PATH):
            here = [one for one in pieces if one.place == path]
            forged = [seal(one, content("forged")) for one in here[-1:] if path != SIGNERS_PATH]
            # With two paths that would be twice the time, and no other rule.
            if len(self.paths) == 1 and path != SIGNERS_PATH:
                forged += [reformed(one) for one in here[-1:]]
            if self.is_narrow:
                options.append([(path, one) for one in here])
            else:
                options.append([None, *((path, one) for one in (*here, *forged))])
        for chosen in product(*options):
            ledgers = [pair for pair in chosen if pair is not None]
            yield self.commit(parents, self.tree(ledgers), told_tree(ledgers))

    def pieces_of(self, world: World) -> list[Ledger]:
        """All ledgers of a world and what they begin with."""
        found: dict[Ledger, None] = {}
        for number in sorted(world):
            for _, ledger in self.made[number]:
                for length in range(1, len(ledger.records) + 1):
                    found[rules.cut(ledger, length)] = None
        return list(found)


def is_begun(one: Ledger, other: Ledger) -> bool:
    return one != other and rules.extends(other, one)


def countersigned(ledger: Ledger, key: bytes) -> Ledger:
    for n, record in enumerate(ledger.records):
        ledger = add_signatures(ledger, n, sign(ledger.head, record, key))
    return ledger


def names(sha256_all: bytes) -> str:
    return ", ".join(sorted(NAMES[key] for key in FILES[sha256_all].keys))


def told_tree(ledgers: list[tuple[bytes, Ledger]]) -> str:
    said = (f"{path.decode()} {[r.meta.host for r in one.records]}" for path, one in ledgers)
    return "attack " + "; ".join(said)


def artifacts_without(ledgers: Ledgers, state: TrustState) -> set[bytes]:
    """Files that their ledgers do not speak of: those of this model have none without a ledger.

    By the table "Artifacts" a file needs a ledger at its place, whose last record is of it.
    """
    return {path for path, ledger in ledgers if path in state.places and ledger.place != path}


def as_tree(ledgers: Ledgers) -> rules.Tree:
    by_path = dict(ledgers)
    signers = by_path.get(SIGNERS_PATH)
    return rules.Tree(
        {path + LEDGER_SUFFIX: ledger for path, ledger in ledgers},
        signers=FILES.get(signers.last.sha256_all) if signers else None,
        artifacts=frozenset(by_path),
    )


def explore(commits: int, paths: int, *, is_narrow: bool = False) -> Worlds:
    """Make all worlds of that many commits, the root among them, and judge each commit of them.

    Narrow ones are of two keys that seal one path, and of clean commits: they show in more commits
    what becomes of histories that diverge and are joined.
    """
    worlds = Worlds(PATHS[:paths], is_narrow)
    level: set[World] = {frozenset({worlds.root()})}
    for size in range(2, commits + 1):
        last = size == commits
        following: set[World] = set()
        for world in sorted(level, key=sorted):
            for number in worlds.after(world):
                worlds.count.worlds += last
                is_dead = is_narrow and worlds.commits[number].tree is None
                if not last and number not in world and not is_dead:
                    following.add(world | {number})
        level = following
    return worlds


def main() -> int:
    commits, paths = int(sys.argv[1]), int(sys.argv[2])
    begun = perf_counter()
    worlds = explore(commits, paths, is_narrow="narrow" in sys.argv)
    print(worlds.count, f"{perf_counter() - begun:.1f} s")
    for one in worlds.wrong[:5]:
        print(one)
    return bool(worlds.wrong)


if __name__ == "__main__":
    raise SystemExit(main())
