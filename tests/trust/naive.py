"""The rules of `docs/spec/trust.md` once more, as naive as can be, to hold `trust.state` against.

Written from the page alone. What is known is one set of facts, tuples that say

    ("signer", S)        S was accepted as a signers state
    ("stands", L, S)     all records of the ledger L stand under S
    ("found", S, {L})    a commit brought S, and these ledgers were held there
    ("place", path)      the path was an artifact once
    ("joined", O, L)     the ledger L has gone on in the place of O

and what a commit knows is the union of what its ancestors added. Whatever follows from facts is
worked out from all of them, record by record, and remembered for these very facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Ledger,
    LedgerHead,
    is_deletion,
)
from wtxtgit.trust.state import SignatureCheck, SignedBy, SignersContent, SignersState, Tree

Facts = frozenset[tuple[Any, ...]]
Quantifier = Callable[[Iterable[bool]], bool]
Finding = tuple[str, bytes]
RecordId = int
remembered = lru_cache(maxsize=1024)
_NUMBERS: dict[tuple[Any, ...], RecordId] = {}


@dataclass(frozen=True)
class Commit:
    parents: tuple[int, ...]
    tree: Tree


@dataclass(frozen=True)
class Judged:
    """What is so after a commit, and what it broke."""

    signers: frozenset[SignersState]
    open: frozenset[Ledger]
    trusted: frozenset[bytes]
    is_signed: bool
    places: frozenset[bytes]
    findings: frozenset[Finding]


def judge(
    root: SignersState,
    root_tree: Tree,
    root_reaches: frozenset[int],
    history: Sequence[Commit],
    by: SignedBy,
) -> list[Judged]:
    """Judge each commit of a history; parents have lower numbers than their children."""
    rules = Rules(by)
    begin = rules.start(root, root_tree)
    added: list[Facts] = []
    judged = []
    for number, commit in enumerate(history):
        if number in root_reaches:
            added.append(begin)
            judged.append(rules.judged(begin, frozenset()))
            continue
        before = begin.union(*(added[ancestor] for ancestor in ancestors(history, number)))
        facts, findings = rules.step(commit.tree, before)
        added.append(facts)
        judged.append(rules.judged(before | facts, findings))
    return judged


def ancestors(history: Sequence[Commit], number: int) -> set[int]:
    reached: set[int] = set()
    for parent in history[number].parents:
        reached |= {parent} | ancestors(history, parent)
    return reached


def name_of(ledger: Ledger, n: int) -> RecordId:
    """What makes a record that very one: the first line and all records up to it, unsigned.

    Each has a number, which is compared sooner than all of that.
    """
    return names_in_order(ledger)[n]


@remembered
def names_in_order(ledger: Ledger) -> tuple[RecordId, ...]:
    names: list[RecordId] = []
    for r in ledger.records:
        said = (r.at, r.meta, r.sha256_all, r.merkle_prev, r.merkle_this, r.detached)
        before = names[-1] if names else ledger.head
        names.append(_NUMBERS.setdefault((before, said), len(_NUMBERS)))
    return tuple(names)


@remembered
def names_of(ledger: Ledger | None) -> frozenset[RecordId]:
    return frozenset(names_in_order(ledger)) if ledger else frozenset()


def line_of(ledger: Ledger) -> tuple[LedgerHead, bytes]:
    return ledger.head, ledger.records[0].merkle_this


def extends(longer: Ledger, shorter: Ledger) -> bool:
    if not names_of(shorter) <= names_of(longer):
        return False
    pairs = zip(longer.records, shorter.records, strict=False)
    return all(set(old.signatures) <= set(new.signatures) for new, old in pairs)


def begins(shorter: Ledger, longer: Ledger) -> bool:
    return names_of(shorter) <= names_of(longer)


def stands_at_its_place(path: bytes, ledger: Ledger) -> bool:
    return path == ledger.place + LEDGER_SUFFIX


def lets_go(ledger: Ledger) -> bool:
    return is_deletion(ledger.last)


def is_later(ledger: Ledger, n: int, other: Ledger) -> bool:
    one, last = ledger.records[n].meta, other.last.meta
    return (one.ts, one.gen) > (last.ts, last.gen)


def keys_of(file: SignersContent | None) -> frozenset[bytes]:
    return file.keys if file else frozenset()


def artifact(path: bytes) -> bytes:
    return path.removesuffix(LEDGER_SUFFIX)


@dataclass(frozen=True)
class Rules:
    by: SignedBy

    # What follows from what is known.

    def signers(self, facts: Facts) -> set[SignersState]:
        return {fact[1] for fact in facts if fact[0] == "signer"}

    def known(self, facts: Facts) -> set[Ledger]:
        return {fact[1] for fact in facts if fact[0] == "stands"}

    @remembered
    def standing(self, facts: Facts) -> frozenset[tuple[RecordId, SignersState]]:
        """Each record that is known, with each signers state under which it stands."""
        pairs = {(fact[1], fact[2]) for fact in facts if fact[0] == "stands"}
        return frozenset((name, one) for ledger, one in pairs for name in names_of(ledger))

    def known_records(self, facts: Facts) -> set[RecordId]:
        return {name for name, _ in self.standing(facts)}

    @remembered
    def good_length(self, ledger: Ledger, facts: Facts, of: Quantifier = all) -> int:
        """How many of a ledger's first records are accepted; with `any`, are held.

        A record is accepted if it is known, and for each signers state stands under it, or was
        found by each commit that brought it, or is signed by a key, as all before it; it is held
        if one behind it is.
        """
        standing = self.standing(facts)
        known = {name for name, _ in standing}

        def counts(n: int, one: SignersState) -> bool:
            name = name_of(ledger, n)
            found = [
                any(name in names_of(other) for other in fact[2])
                for fact in facts
                if fact[0] == "found" and fact[1] == one
            ]
            return (
                (name, one) in standing
                or bool(found and of(found))
                or not one.keys
                or bool(self.by(ledger, n, one.keys).valid)
            )

        good = [
            n
            for n in range(len(ledger.records))
            if name_of(ledger, n) in known and all(counts(n, one) for one in self.signers(facts))
        ]
        if of is any:
            return max(good) + 1 if good else 0
        return max(n for n in range(len(ledger.records) + 1) if set(range(n)) <= set(good))

    @remembered
    def longest(self, facts: Facts, of: Quantifier) -> frozenset[Ledger]:
        good = {
            Ledger(ledger.head, ledger.records[:n])
            for ledger in self.known(facts)
            if (n := self.good_length(ledger, facts, of))
        }
        return frozenset(one for one in good if not any(extends(o, one) and o != one for o in good))

    def accepted(self, facts: Facts) -> frozenset[Ledger]:
        """The longest ledgers of accepted records."""
        return self.longest(facts, all)

    def held(self, facts: Facts) -> frozenset[Ledger]:
        """The longest ledgers of records that are held."""
        return self.longest(facts, any)

    @remembered
    def open(self, facts: Facts) -> frozenset[Ledger]:
        accepted = self.accepted(facts)
        return frozenset(
            ledger
            for ledger in self.held(facts)
            if not any(
                fact[0] == "joined"
                and begins(ledger, fact[1])
                and any(begins(fact[2], one) for one in accepted)
                for fact in facts
            )
        )

    def newest(self, facts: Facts) -> set[SignersState]:
        signers = self.signers(facts)
        return {
            one
            for one in signers
            if not any(self.came_after(other, one) for other in signers if other != one)
            and not any(self.has_gone_on(other, one, facts) for other in signers if other != one)
        }

    def came_after(self, new: SignersState, old: SignersState) -> bool:
        if not old.keys:
            return bool(new.keys)
        if old.ledger is None:
            return new.ledger is not None and bool(new.keys)
        return (
            new.ledger is not None
            and begins(old.ledger, new.ledger)
            and len(new.ledger.records) > len(old.ledger.records)
        )

    def has_gone_on(self, new: SignersState, old: SignersState, facts: Facts) -> bool:
        """Whether the ledger of one state was joined with that of another one."""
        return (
            new.ledger is not None
            and old.ledger is not None
            and any(
                fact[0] == "joined" and begins(old.ledger, fact[1]) and begins(fact[2], new.ledger)
                for fact in facts
            )
        )

    def trusted(self, facts: Facts) -> frozenset[bytes]:
        newest = [signers.keys for signers in self.newest(facts)]
        return newest[0].intersection(*newest) if newest else frozenset()

    def is_signed(self, facts: Facts) -> bool:
        return any(signers.keys for signers in self.newest(facts))

    def places(self, facts: Facts) -> frozenset[bytes]:
        return frozenset(fact[1] for fact in facts if fact[0] == "place")

    def judged(self, facts: Facts, findings: Iterable[Finding]) -> Judged:
        return Judged(
            frozenset(self.signers(facts)),
            frozenset(self.open(facts)),
            self.trusted(facts),
            self.is_signed(facts),
            self.places(facts),
            frozenset(findings),
        )

    # What a commit adds.

    def start(self, signers: SignersState, tree: Tree) -> Facts:
        ledgers = set(tree.ledgers.values()) | ({signers.ledger} if signers.ledger else set())
        return frozenset(
            {("signer", signers)}
            | {("stands", ledger, signers) for ledger in ledgers}
            | {("place", path) for path in tree.artifacts}
        )

    def step(self, tree: Tree, before: Facts) -> tuple[Facts, set[Finding]]:
        """What a commit adds to what its ancestors knew, and what fails at it."""
        findings: set[Finding] = set()
        change = self.step_signers(tree, before, findings)
        added, findings = self.step_ledgers(tree, before, findings, change)
        failed = {finding for finding in findings if finding[1] == SIGNERS_PATH}
        if change[0] and self.is_signed(before) and failed:
            # A change of the signers counts if nothing fails at its ledger.
            refused = {("signers-changed", SIGNERS_PATH)}
            added, findings = self.step_ledgers(tree, before, refused, (frozenset(), False))
        return added, findings | failed

    def step_ledgers(
        self, tree: Tree, before: Facts, findings: set[Finding], change: tuple[Facts, bool]
    ) -> tuple[Facts, set[Finding]]:
        """Rules 2 and 3, after what the first one made of the signers."""
        findings = set(findings)
        brought, do_signers_count = change
        keys = self.trusted(before).union(*(signers.keys for signers in self.signers(brought)))
        # What a new signers state lacks of the records of before, its introduction will have.
        added = frozenset(fact for fact in brought if fact[0] == "joined")
        is_asked = self.is_signed(before) or bool(keys)

        # That a ledger can't be read is told by who reads it.
        open_before = self.open(before | added)
        joined: set[Ledger] = set()
        # All are held against what is known after (1). That of the signers is the first, since
        # others name the repository by it.
        known = added
        for path in sorted(tree.ledgers, key=lambda path: path != SIGNERS_LEDGER):
            counts = do_signers_count or path != SIGNERS_LEDGER
            one = OneLedger(
                self, tree, path, before, known, added | brought, keys, is_asked, counts
            )
            kinds, facts, others = one.step()
            findings |= {(kind, artifact(path)) for kind in kinds}
            if one.is_moved:
                findings.add(("moved-unsealed", artifact(path)))
            added |= facts
            joined |= others
        for ledger in open_before - joined:
            if lets_go(ledger) or any(extends(one, ledger) for one in tree.ledgers.values()):
                continue
            there = ledger.place + LEDGER_SUFFIX
            if there not in tree.broken:
                kind = "ledger-rewritten" if there in tree.ledgers else "ledger-removed"
                findings.add((kind, ledger.place))

        found = frozenset(self.held(before | added))
        added |= {("found", one, found) for one in self.signers(brought)} | brought
        added |= {("place", path) for path in tree.artifacts}
        return added, findings

    def step_signers(self, tree: Tree, before: Facts, findings: set[Finding]) -> tuple[Facts, bool]:
        """Rule 1: what it adds, and whether the signers ledger counts."""
        newest = self.newest(before)
        file = tree.signers
        ledger = tree.ledgers.get(SIGNERS_LEDGER)
        if any(signers.is_fixed for signers in newest):
            return frozenset(), True
        if not self.is_signed(before) and tree.signers_fault is None and not keys_of(file):
            return frozenset(), True
        has_more = all(bool(names_of(ledger) - names_of(one.ledger)) for one in newest)
        if len(newest) == 1 and not has_more and {one.file for one in newest} == {file}:
            return frozenset(), True
        is_first = not self.is_signed(before)
        is_sealed = (
            file is not None
            and ledger is not None
            and stands_at_its_place(SIGNERS_LEDGER, ledger)
            and any(one.ledger is None or extends(ledger, one.ledger) for one in newest)
            and has_more
            and ledger.last.sha256_all == file.sha256_all
            and all(self.principals(ledger, one) >= one.threshold for one in newest)
            and all(is_later(ledger, -1, one.ledger) for one in newest if one.ledger)
            and not any(
                keys_of(file) & (old.keys - one.keys)
                for one in newest
                if one.ledger and not begins(one.ledger, ledger)
                for old in self.signers(before)
                if old != one and self.came_after(one, old)
            )
        )
        if not (keys_of(file) and (is_first or is_sealed)):
            findings.add(("signers-changed", SIGNERS_PATH))
            return frozenset(), False
        if ledger and not stands_at_its_place(SIGNERS_LEDGER, ledger):
            ledger = None
        new = SignersState(file, ledger)
        joined = {
            ("joined", one.ledger, ledger)
            for one in newest
            if one.keys and one.ledger and ledger and not begins(one.ledger, ledger)
        }
        return frozenset({("signer", new)} | joined), True

    def principals(self, ledger: Ledger, signers: SignersState) -> int:
        """How many principals have signed a ledger's last record."""
        valid = self.by(ledger, len(ledger.records) - 1, signers.keys).valid
        pairs = signers.file.principals if signers.file else frozenset()
        return len({name for key, name in pairs if key in valid})


@dataclass(frozen=True)
class OneLedger:
    """Rule 2 for one ledger of a tree."""

    rules: Rules
    tree: Tree
    path: bytes
    before: Facts
    added: Facts
    added_so_far: Facts
    keys: frozenset[bytes]
    is_asked: bool
    counts: bool

    @property
    def ledger(self) -> Ledger:
        return self.tree.ledgers[self.path]

    @property
    def facts(self) -> Facts:
        return self.before | self.added

    @property
    def is_moved(self) -> bool:
        there = self.ledger.place + LEDGER_SUFFIX
        return (
            not stands_at_its_place(self.path, self.ledger)
            and any(extends(self.ledger, one) for one in self.rules.open(self.facts))
            and there not in self.tree.ledgers
            and there not in self.tree.broken
            and there != SIGNERS_LEDGER
        )

    def step(self) -> tuple[set[str], Facts, set[Ledger]]:
        """What fails, what is added, and which ledgers this one has joined."""
        rules: list[Callable[[], str | None]] = [self._1, self._2, self._3, self._4, self._5]
        for rule in rules:
            if kind := rule():
                return {kind}, frozenset(), set()
        if not self.counts:
            return set(), frozenset(), set()
        kinds, taken = self._6()
        others = set() if kinds else self.others()
        added = {("joined", other, self.ledger) for other in others}
        if taken:
            one = Ledger(self.ledger.head, self.ledger.records[:taken])
            added |= {("stands", one, signers) for signers in self.standing_under(one)}
        return kinds, frozenset(added), others

    def standing_under(self, taken: Ledger) -> set[SignersState]:
        """The signers states under which what is taken stands from now on."""
        rules, last = self.rules, len(taken.records) - 1
        every = rules.signers(self.facts)
        if rules.good_length(self.ledger, self.facts) < len(taken.records):
            return every
        if any(extends(one, taken) for one in rules.known(self.facts)):
            return set()
        standing = rules.standing(self.facts)
        return {
            one
            for one in every
            if (name_of(taken, last), one) in standing
            or not one.keys
            or rules.by(taken, last, one.keys).valid
        }

    def _1(self) -> str | None:
        return (
            None if stands_at_its_place(self.path, self.ledger) or self.is_moved else "bad-record"
        )

    def _2(self) -> str | None:
        of_line = [o for o in self.rules.open(self.facts) if line_of(o) == line_of(self.ledger)]
        if of_line and not any(extends(self.ledger, one) for one in of_line):
            return "ledger-rewritten"
        return None

    def _3(self) -> str | None:
        if line_of(self.ledger) in {line_of(one) for one in self.rules.known(self.facts)}:
            return None
        if self.path == SIGNERS_LEDGER:
            return None if self.ledger.head.repo == NO_REPO else "bad-record"
        before = self.repositories(self.before)
        repositories = self.repositories(self.before | self.added_so_far) | (
            set() if before else {NO_REPO}
        )
        return None if self.ledger.head.repo in repositories else "bad-record"

    def repositories(self, facts: Facts) -> set[bytes]:
        """The first record of the accepted signers ledger, of each where there are several."""
        sealed = {one.ledger for one in self.rules.signers(facts) if one.ledger}
        sealed |= {one for one in self.rules.held(facts) if one.place == SIGNERS_PATH}
        return {one.records[0].merkle_this for one in sealed}

    def _4(self) -> str | None:
        for path, other in self.tree.ledgers.items():
            if path != self.path and begins(self.ledger, other):
                return "ledger-rewritten"
        return None

    def not_extended(self) -> set[Ledger]:
        return {
            one
            for one in self.rules.open(self.facts)
            if one.place == self.ledger.place
            and not any(extends(ledger, one) for ledger in self.tree.ledgers.values())
        }

    def others(self) -> set[Ledger]:
        return {one for one in self.not_extended() if not lets_go(one)}

    def _5(self) -> str | None:
        others = self.others()
        gone = [one for one in self.not_extended() if lets_go(one)]
        if not all(is_later(self.ledger, -1, one) for one in gone):
            return "ledger-rewritten"
        if not others:
            return None
        here = [one for one in self.rules.open(self.facts) if one.place == self.ledger.place]
        goes_on = any(extends(self.ledger, one) for one in here) or all(
            line_of(other) == line_of(self.ledger) for other in others
        )
        return None if goes_on and self.has_joining_record(others) else "ledger-rewritten"

    def has_joining_record(self, others: set[Ledger]) -> bool:
        known = self.rules.known_records(self.facts)
        return any(
            name_of(self.ledger, n) not in known
            and all(is_later(self.ledger, n, other) for other in others)
            and (not self.is_asked or bool(self.rules.by(self.ledger, n, self.keys).valid))
            for n in range(len(self.ledger.records))
        )

    def _6(self) -> tuple[set[str], int]:
        """What fails, and how many records are taken."""
        if not self.is_asked:
            return set(), len(self.ledger.records)
        accepted = self.rules.good_length(self.ledger, self.facts)
        if kinds := {kind for n in range(accepted) if (kind := self.why_not_added(n))}:
            return kinds, 0
        for n in range(accepted, len(self.ledger.records)):
            if kind := self.why_not_signed(n):
                return {kind}, n
        return set(), len(self.ledger.records)

    def why_not_signed(self, n: int) -> str | None:
        signed = self.rules.by(self.ledger, n, self.keys)
        if signed.invalid:
            return "bad-signature"
        if signed.valid:
            return None
        return "untrusted-signer" if self.ledger.records[n].signatures else "missing-signature"

    def why_not_added(self, n: int) -> str | None:
        known = {
            signature.keyid
            for ledger in self.rules.known(self.facts)
            if name_of(self.ledger, n) in names_of(ledger)
            for signature in ledger.records[n].signatures
            if signature in self.ledger.records[n].signatures
        }
        signed: SignatureCheck = self.rules.by(self.ledger, n, self.keys)
        if set(signed.invalid) - known:
            return "bad-signature"
        return "untrusted-signer" if set(signed.unknown) - known else None
