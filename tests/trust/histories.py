"""Random histories as short programs of acts, and what both implementations make of them.

A program is a root and a list of commits. Whatever is left out of a program leaves a program, since
numbers of commits are taken modulo what there is. So a history over which the implementations
disagree is made small by leaving out what can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.trust import naive
from tests.trust.symbolic import (
    ALICE,
    ALICE2,
    BOB,
    CAROL,
    KEYS,
    NAMES,
    STRANGER,
    add_signatures,
    bad_signature,
    begin,
    content,
    drop_signature,
    keyid,
    seal,
    sign,
    signed_by,
    signers_file,
    tree,
)
from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Ledger,
    LedgerHead,
    Record,
)
from wtxtgit.trust import state as rules
from wtxtgit.trust import step as trust_step
from wtxtgit.trust.state import SignersContent, SignersState, TrustState

NAMED = {ALICE: "ALICE", ALICE2: "ALICE2", BOB: "BOB", CAROL: "CAROL", STRANGER: "STRANGER"}
PATHS = (b"m.fold", b"k.fold", b"n.fold")
Act = tuple[object, ...]


@dataclass(frozen=True)
class Step:
    """A commit: its parents, the one whose tree it starts from, what is done to that."""

    parents: tuple[int, ...]
    base: int
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Program:
    """A history. `root` is the trust root: "commit", "file" and ledger, "fixed" or "none"."""

    root: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"Program({self.root!r}, ("]
        lines += [f"    {step!r},  # {n}" for n, step in enumerate(self.steps)]
        said = "\n".join([*lines, "))"])
        for key, name in NAMED.items():
            said = said.replace(repr(key), name)
        return said


@dataclass
class Desk:
    """A tree that acts change."""

    files: dict[bytes, object]
    ledgers: dict[bytes, Ledger]
    broken: set[bytes]
    signers: SignersContent | None

    def copy(self) -> Desk:
        return Desk(dict(self.files), dict(self.ledgers), set(self.broken), self.signers)

    def put(self, path: bytes, ledger: Ledger) -> None:
        self.ledgers[path] = ledger
        self.broken.discard(path)

    def content(self, path: bytes) -> bytes:
        if path == SIGNERS_PATH:
            return self.signers.sha256_all if self.signers else content(None)
        return content(self.files.get(path))

    def seal(self, path: bytes, keys: tuple[bytes, ...]) -> None:
        beside = path + LEDGER_SUFFIX
        before = self.ledgers.get(beside) or begin(path, self.ledgers.get(SIGNERS_LEDGER))
        self.put(beside, seal(before, self.content(path), keys, detached=self.form(path)))

    def form(self, path: bytes) -> bytes | None:
        """The hash of a file's detached text: every other content has one."""
        number = self.files.get(path)
        return content((number, "D")) if isinstance(number, int) and number % 2 else None


def _edit(desk: Desk, past: list[Desk], path: bytes, what: int) -> None:
    desk.files[path] = what


def _seal(desk: Desk, past: list[Desk], path: bytes, *keys: bytes) -> None:
    desk.seal(path, keys)


def _seal_later(desk: Desk, past: list[Desk], path: bytes, day: int, *keys: bytes) -> None:
    """Seal as somebody with a clock does."""
    beside = path + LEDGER_SUFFIX
    before = desk.ledgers.get(beside) or begin(path, desk.ledgers.get(SIGNERS_LEDGER))
    ts = f"2026-01-{day:02d}T00:00:00Z"
    desk.put(beside, seal(before, desk.content(path), keys, ts=ts))


def _seal_elsewhere(desk: Desk, past: list[Desk], path: bytes, *keys: bytes) -> None:
    """Begin a ledger that names another repository."""
    desk.put(path + LEDGER_SUFFIX, seal(LedgerHead(b"r" * 32, path), desk.content(path), keys))


def _move(desk: Desk, past: list[Desk], old: bytes, new: bytes, *keys: bytes) -> None:
    """Move a file and its ledger; seal the move, where there are keys."""
    if old in desk.files:
        desk.files[new] = desk.files.pop(old)
    ledger = desk.ledgers.pop(old + LEDGER_SUFFIX, None)
    if ledger is not None:
        if keys:
            ledger = seal(ledger, desk.content(new), keys, at=new)
        desk.put(new + LEDGER_SUFFIX, ledger)


def _swap(desk: Desk, past: list[Desk], one: bytes, two: bytes, *keys: bytes) -> None:
    aside = b"aside"
    _move(desk, past, one, aside)
    _move(desk, past, two, one, *keys)
    _move(desk, past, aside, two, *keys)


def _copy(desk: Desk, past: list[Desk], old: bytes, new: bytes, *keys: bytes) -> None:
    if old in desk.files:
        desk.files[new] = desk.files[old]
    ledger = desk.ledgers.get(old + LEDGER_SUFFIX)
    if ledger is not None:
        if keys:
            ledger = seal(ledger, desk.content(new), keys, at=new)
        desk.put(new + LEDGER_SUFFIX, ledger)


def _delete(desk: Desk, past: list[Desk], path: bytes) -> None:
    desk.files.pop(path, None)
    if path == SIGNERS_PATH:
        desk.signers = None


def _delete_ledger(desk: Desk, past: list[Desk], path: bytes) -> None:
    desk.ledgers.pop(path + LEDGER_SUFFIX, None)
    desk.broken.discard(path + LEDGER_SUFFIX)


def _seal_deletion(desk: Desk, past: list[Desk], path: bytes, *keys: bytes) -> None:
    desk.files.pop(path, None)
    if path in PATHS:
        desk.seal(path, keys)


def _signers(desk: Desk, past: list[Desk], threshold: int, *keys: bytes) -> None:
    names = len(signers_file(keys).principals)
    desk.signers = signers_file(keys, max(1, min(threshold, names)))


def _rollback(desk: Desk, past: list[Desk], number: int, what: str, path: bytes) -> None:
    """Take a file, a ledger, both or the signers of an older commit."""
    if not past:
        return
    old = past[number % len(past)]
    beside = path + LEDGER_SUFFIX
    if "file" in what:
        if path == SIGNERS_PATH:
            desk.signers = old.signers
        elif path in old.files:
            desk.files[path] = old.files[path]
        else:
            desk.files.pop(path, None)
    if "ledger" in what:
        desk.ledgers.pop(beside, None)
        desk.broken.discard(beside)
        if beside in old.ledgers:
            desk.put(beside, old.ledgers[beside])
        elif beside in old.broken:
            desk.broken.add(beside)


def _swallow(desk: Desk, past: list[Desk], number: int, path: bytes, other: bytes) -> None:
    """Put the ledger of another path, of an older commit, to a path."""
    ledger = past[number % len(past)].ledgers.get(other + LEDGER_SUFFIX) if past else None
    if ledger is not None:
        desk.put(path + LEDGER_SUFFIX, ledger)


def _signature(desk: Desk, past: list[Desk], path: bytes, n: int, key: bytes, how: str) -> None:
    ledger = desk.ledgers.get(path + LEDGER_SUFFIX)
    if ledger is None:
        return
    n %= len(ledger.records)
    if how == "drop":
        names = [signature.keyid for signature in ledger.records[n].signatures]
        ledger = drop_signature(ledger, n, names[key[0] % len(names)] if names else "")
    elif how == "bad":
        ledger = add_signatures(ledger, n, bad_signature(key))
    else:
        ledger = add_signatures(ledger, n, sign(ledger.head, ledger.records[n], key))
    desk.put(path + LEDGER_SUFFIX, ledger)


def _countersign(desk: Desk, past: list[Desk], *keys: bytes) -> None:
    """Sign every record of every ledger."""
    for path, ledger in list(desk.ledgers.items()):
        for n, record in enumerate(ledger.records):
            ledger = add_signatures(ledger, n, *(sign(ledger.head, record, key) for key in keys))
        desk.put(path, ledger)


def _break(desk: Desk, past: list[Desk], path: bytes) -> None:
    if desk.ledgers.pop(path + LEDGER_SUFFIX, None) is not None:
        desk.broken.add(path + LEDGER_SUFFIX)


def _cut(desk: Desk, past: list[Desk], path: bytes, *keys: bytes) -> None:
    """Leave out the last record; where there are keys, put another one in its place."""
    ledger = desk.ledgers.pop(path + LEDGER_SUFFIX, None)
    if ledger is None:
        return
    if len(ledger.records) > 1:
        desk.put(path + LEDGER_SUFFIX, Ledger(ledger.head, ledger.records[:-1]))
    if keys:
        desk.seal(path, keys)


def _twin(desk: Desk, past: list[Desk], path: bytes, n: int, *keys: bytes) -> None:
    """Change a record where its hash does not cover it."""
    ledger = desk.ledgers.get(path + LEDGER_SUFFIX)
    if ledger is None:
        return
    n %= len(ledger.records)
    old = ledger.records[n]
    new = replace(old, meta=replace(old.meta, host="twin"), signatures=())
    new = replace(new, signatures=tuple(sign(ledger.head, new, key) for key in sorted(set(keys))))
    records = (*ledger.records[:n], new, *ledger.records[n + 1 :])
    desk.put(path + LEDGER_SUFFIX, Ledger(ledger.head, records))


def _reform(desk: Desk, past: list[Desk], path: bytes, n: int, *keys: bytes) -> None:
    """Take away the line of a detached text, or put one in; sign that, where there are keys."""
    ledger = desk.ledgers.get(path + LEDGER_SUFFIX)
    if ledger is None:
        return
    n %= len(ledger.records)
    old = ledger.records[n]
    new = replace(old, detached=content("D") if old.detached is None else None)
    if keys:
        made = (sign(ledger.head, new, key) for key in sorted(set(keys)))
        new = replace(new, signatures=tuple(made))
    records = (*ledger.records[:n], new, *ledger.records[n + 1 :])
    desk.put(path + LEDGER_SUFFIX, Ledger(ledger.head, records))


def _join(desk: Desk, past: list[Desk], number: int, path: bytes, *keys: bytes) -> None:
    """Seal later than what another commit has at a path, if that does not go on from here."""
    beside = path + LEDGER_SUFFIX
    mine = desk.ledgers.get(beside)
    theirs = past[number % len(past)].ledgers.get(beside) if past else None
    if mine is None or theirs is None or rules.extends(mine, theirs):
        return
    if rules.extends(theirs, mine):
        desk.put(beside, theirs)
        return
    last = max(mine.last.meta.gen, theirs.last.meta.gen)
    made = seal(mine, desk.content(path), keys, gen=last + 1, ts=theirs.last.meta.ts)
    desk.put(beside, made)


ACTS: dict[str, Callable[..., None]] = {
    "edit": _edit,
    "seal": _seal,
    "seal later": _seal_later,
    "seal elsewhere": _seal_elsewhere,
    "move": _move,
    "swap": _swap,
    "copy": _copy,
    "delete": _delete,
    "delete ledger": _delete_ledger,
    "seal deletion": _seal_deletion,
    "signers": _signers,
    "rollback": _rollback,
    "swallow": _swallow,
    "signature": _signature,
    "countersign": _countersign,
    "break": _break,
    "cut": _cut,
    "twin": _twin,
    "reform": _reform,
    "join": _join,
}


@dataclass(frozen=True)
class History:
    """A program that was run."""

    root: SignersState
    root_tree: rules.Tree
    root_reaches: frozenset[int]
    commits: tuple[naive.Commit, ...]


def run(program: Program) -> History:
    past: list[Desk] = []
    commits: list[naive.Commit] = []
    for number, step in enumerate(program.steps):
        parents = tuple(dict.fromkeys(p % number for p in step.parents)) if number else ()
        if parents:
            desk = past[parents[step.base % len(parents)]].copy()
        else:
            desk = Desk({}, {}, set(), None)
        for name, *rest in step.acts:
            ACTS[str(name)](desk, past, *rest)
        past.append(desk)
        seen = tree(desk.files, desk.ledgers, desk.broken, desk.signers)
        commits.append(naive.Commit(parents, seen))
    nothing = rules.Tree()
    if not commits or program.root == "none":
        return History(SignersState(), nothing, frozenset(), tuple(commits))
    first = commits[0].tree
    ledger = first.ledgers.get(SIGNERS_LEDGER)
    if program.root == "commit":
        signers = SignersState(first.signers, ledger) if first.signers else SignersState()
        return History(signers, first, frozenset({0}), tuple(commits))
    if program.root == "fixed":
        return History(
            SignersState(first.signers, None, True), nothing, frozenset(), tuple(commits)
        )
    return History(SignersState(first.signers, ledger), nothing, frozenset(), tuple(commits))


def by_rules(history: History) -> list[naive.Judged]:
    """What `trust.state` makes of a history."""
    begin = rules.start(history.root, history.root_tree)
    states: list[TrustState] = []
    judged = []
    for number, commit in enumerate(history.commits):
        violations: list[rules.Violation] = []
        if number in history.root_reaches:
            after = begin
        else:
            parents = [states[parent] for parent in commit.parents] or [begin]
            after, violations = trust_step.step(commit.tree, rules.join(parents), signed_by)
        states.append(after)
        ledgers = rules.open_ledgers(after, signed_by)
        judged.append(
            naive.Judged(
                frozenset(after.signers),
                frozenset(ledger for line in ledgers.values() for ledger in line),
                after.trusted,
                after.is_signed,
                frozenset(after.places),
                frozenset((one.kind, one.path) for one in violations),
            )
        )
    return judged


def by_naive(history: History) -> list[naive.Judged]:
    return naive.judge(
        history.root, history.root_tree, history.root_reaches, history.commits, signed_by
    )


def disagreement(program: Program) -> str | None:
    """Where the implementations disagree over a history, None where they do not."""
    history = run(program)
    for number, (ours, theirs) in enumerate(zip(by_rules(history), by_naive(history), strict=True)):
        for field in ("signers", "trusted", "is_signed", "open", "places", "findings"):
            one, other = getattr(ours, field), getattr(theirs, field)
            if one != other:
                if isinstance(one, bool):
                    return f"commit {number}, {field}: rules {one}, naive {other}"
                only = sorted(map(short, one - other)), sorted(map(short, other - one))
                return f"commit {number}, {field}: only rules {only[0]}, only naive {only[1]}"
    return None


def short(value: object) -> str:
    """A value as a person can take it in."""
    if isinstance(value, Ledger):
        records = (
            f"g{one.meta.gen}.{one.merkle_this.hex()[:4]}"
            + (f" at={one.at.decode()}" if one.at else "")
            + "".join(f" {_who(value.head, one, key)}" for key in KEYS)
            for one in value.records
        )
        return f"{value.head.path.decode()}[{', '.join(' '.join(r.split()) for r in records)}]"
    if isinstance(value, SignersState):
        names = sorted(NAMES[key] for key in value.keys)
        return f"Signers({names}, {value.threshold}, {short(value.ledger)})"
    return str(value)


def _who(head: LedgerHead, record: Record, key: bytes) -> str:
    """A key's name where it signed a record, with a ! where it did not make the signature."""
    if keyid(key) not in {one.keyid for one in record.signatures}:
        return ""
    name = f"{NAMES[key]}{key[0]}"
    return name if sign(head, record, key) in record.signatures else f"{name}!"


def shrunk(program: Program, is_bad: Callable[[Program], bool]) -> Program:
    """Leave out commits, parents and acts as long as it stays bad."""
    while True:
        smaller = next((one for one in _smaller(program) if is_bad(one)), None)
        if smaller is None:
            return program
        program = smaller


def _smaller(program: Program) -> Iterator[Program]:
    steps = program.steps
    for n in reversed(range(len(steps))):
        # The numbers of later commits move down with it.
        later = tuple(
            replace(step, parents=tuple(p - (p >= n and p > 0) for p in step.parents))
            for step in steps[n + 1 :]
        )
        yield replace(program, steps=steps[:n] + later)
    for n, step in enumerate(steps):
        smaller = [
            replace(step, acts=step.acts[:i] + step.acts[i + 1 :]) for i in range(len(step.acts))
        ]
        smaller += [
            replace(step, parents=step.parents[:i] + step.parents[i + 1 :])
            for i in range(len(step.parents))
        ]
        for i, act in enumerate(step.acts):
            if len(act) > 2 and act[-1] in KEYS:
                acts = (*step.acts[:i], act[:-1], *step.acts[i + 1 :])
                smaller.append(replace(step, acts=acts))
        for one in smaller:
            yield replace(program, steps=(*steps[:n], one, *steps[n + 1 :]))


def random_program(seed: int) -> Program:
    draw = Random(seed)  # noqa: S311
    root = draw.choices(("commit", "file", "fixed", "none"), (14, 3, 1, 2))[0]
    honest = draw.random() < 0.3
    keys = draw.sample((ALICE, ALICE2, BOB, CAROL), draw.randint(1, 3))
    threshold = draw.choice((1, 1, 1, 2))
    acts: list[Act] = [("signers", threshold, *keys)]
    if draw.random() < 0.9:
        acts.append(("seal", SIGNERS_PATH, *keys))
    for path in draw.sample(PATHS, draw.randint(0, 2)):
        acts += [("edit", path, 0), ("seal", path, draw.choice(keys))]
    steps = [Step((), 0, tuple(acts))]
    if root == "none" and draw.random() < 0.5:
        steps = []
    for number in range(len(steps), draw.randint(4, 11)):
        steps.append(_random_step(draw, number, keys, honest))
    return Program(root, tuple(steps))


def _random_step(draw: Random, number: int, keys: list[bytes], honest: bool) -> Step:
    count = draw.choices((0, 1, 2, 3), (1, 20, 14, 3))[0]
    # Most parents are recent, so that histories grow long as well as wide.
    recent = [max(0, number - 1 - int(draw.expovariate(0.7))) for _ in range(count)]
    parents = tuple(dict.fromkeys(recent)) if number else ()
    acts: list[Act] = []
    if len(parents) > 1 and draw.random() < 0.5:
        acts += _random_mixture(draw, parents)
    if len(parents) > 1 and draw.random() < 0.7:
        signers = draw.sample(keys, draw.randint(1, len(keys)))
        paths = (SIGNERS_PATH, *PATHS)
        acts += [("join", parent, path, *signers) for path in paths for parent in parents]
    for _ in range(draw.choices((0, 1, 2, 3), (5, 6, 4, 1))[0]):
        acts += _random_acts(draw, number, keys, honest)
    return Step(parents, draw.randrange(3), tuple(acts))


def _random_mixture(draw: Random, parents: tuple[int, ...]) -> list[Act]:
    """Take some paths from another parent than the base."""
    paths = draw.sample((*PATHS, SIGNERS_PATH), draw.randint(1, 3))
    return [("rollback", draw.choice(parents), "file and ledger", path) for path in paths]


def _random_acts(draw: Random, number: int, keys: list[bytes], honest: bool) -> list[Act]:
    path, other = draw.sample(PATHS, 2)
    any_path = draw.choice((*PATHS, SIGNERS_PATH))
    signer = draw.choice(keys) if honest or draw.random() < 0.8 else draw.choice(KEYS)
    older = draw.randrange(max(1, number))
    kind = draw.randrange(10 if honest else 24)
    if kind < 3:
        return [("edit", path, draw.randrange(3)), ("seal", path, signer)]
    if kind == 3:
        return [(draw.choice(("move", "move", "swap")), path, other, signer)]
    if kind == 4:
        return [("seal deletion", path, signer), *([("delete ledger", path)] * draw.randrange(2))]
    if kind in (5, 6):
        new = draw.sample((ALICE, ALICE2, BOB, CAROL), draw.randint(1, 3))
        by = draw.sample(KEYS, draw.randint(0, 2)) if kind == 6 else list(dict.fromkeys(keys))
        keys[:] = new if draw.random() < 0.6 else keys
        return [("signers", draw.choice((1, 1, 2)), *new), ("seal", SIGNERS_PATH, *by)]
    if kind == 7:
        return [("countersign", signer)]
    if kind == 8:
        return [("seal later", any_path, draw.randrange(1, 9), *([signer, *keys[:1]]))]
    if kind == 9:
        return [("cut", path, signer)]
    hostile: list[list[Act]] = [
        [("edit", path, draw.randrange(3))],
        [("seal", any_path)],
        [("move", path, other)],
        [("copy", path, other, *([signer] * draw.randrange(2)))],
        [("delete", any_path)],
        [("delete ledger", any_path)],
        [("rollback", older, draw.choice(("file", "ledger", "file and ledger")), any_path)],
        [("rollback", older, "file and ledger", SIGNERS_PATH)],
        [("signature", any_path, draw.randrange(3), draw.choice(KEYS), "drop")],
        [("signature", any_path, draw.randrange(3), draw.choice(KEYS), "bad")],
        [("signature", any_path, draw.randrange(3), draw.choice(KEYS), "good")],
        [("break", any_path)],
        [("cut", any_path, *([signer] * draw.randrange(2)))],
        [("swallow", older, path, draw.choice((other, SIGNERS_PATH)))],
        [("seal elsewhere", path, signer)],
        [("countersign", STRANGER)],
        [("twin", any_path, draw.randrange(3), *([signer] * draw.randrange(2)))],
        [("reform", any_path, draw.randrange(3), *([signer] * draw.randrange(2)))],
    ]
    return draw.choice(hostile)


def told(program: Program) -> str:
    """A disagreement as a program that shows it, as small as it gets."""
    small = shrunk(program, lambda one: disagreement(one) is not None)
    return f"{disagreement(small)}\n{small}"


__all__ = ["PATHS", "Program", "Step", "disagreement", "keyid", "random_program", "run", "told"]
