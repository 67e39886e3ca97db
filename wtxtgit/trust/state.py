"""What an audit knows after a commit, and how it comes from that of the parents.

Pure: trees and states go in, a state and what fails come out. The page that
these rules stand on is `docs/spec/trust.md`; comments have its numbers.

A state is sets that only grow. `join` is their union, so that no shape of
history takes anything away; `step` adds what a commit's tree adds, and tells
what fails, which adds nothing. No tree is judged by itself, none is skipped,
and no clock is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Protocol

from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Head,
    Ledger,
    Record,
    extends,
    is_deletion,
)


class Signed(Protocol):
    """Who signed a record: public keys whose signature holds, keyids of those that do not.

    `unknown` are keyids of signatures that none of the keys has.
    """

    @property
    def valid(self) -> frozenset[bytes]: ...
    @property
    def invalid(self) -> tuple[str, ...]: ...
    @property
    def unknown(self) -> tuple[str, ...]: ...


SignedBy = Callable[[Ledger, int, frozenset[bytes]], Signed]
"""Checks the signatures of a ledger's nth record against keys."""


@dataclass(frozen=True, slots=True)
class SignersFile:
    """What a signers file says: who has which public key (32 bytes each), and the threshold.

    The threshold is the number of principals who seal a change of the file.
    `sha256_all` is the hash that the file is sealed with.
    """

    principals: frozenset[tuple[bytes, str]]
    threshold: int
    sha256_all: bytes

    @property
    def keys(self) -> frozenset[bytes]:
        return frozenset(key for key, _ in self.principals)

    def count(self, keys: frozenset[bytes]) -> int:
        """Count the principals who have one of these keys."""
        return len({who for key, who in self.principals if key in keys})


@dataclass(frozen=True, slots=True)
class Signers:
    """A signers state: a file, and the signers ledger up to the record by which it counts.

    `ledger` is None where the file is not sealed; `file` where nobody may
    sign. A fixed one is never followed by another.
    """

    file: SignersFile | None = None
    ledger: Ledger | None = None
    is_fixed: bool = False

    @property
    def keys(self) -> frozenset[bytes]:
        return frozenset() if self.file is None else self.file.keys

    @property
    def threshold(self) -> int:
        return 0 if self.file is None else self.file.threshold


@dataclass(frozen=True, slots=True)
class Line:
    """What is known of all ledgers that begin with the same record.

    `stands`: pairs of a ledger and a signers state that was known where its
    last record was accepted. `joined`: pairs of a ledger and the one, of this line or another,
    that has gone on in its place.
    """

    stands: frozenset[tuple[Ledger, Signers]] = frozenset()
    joined: frozenset[tuple[Ledger, Ledger]] = frozenset()


@dataclass(frozen=True)
class Introduction:
    """A commit by which a signers state came, and the ledgers that were accepted there.

    The same signers can be brought again, by whoever copies the record that
    sealed them. What was accepted before counts where it was so every time.
    """

    signers: Signers
    ledgers: frozenset[Ledger]

    @cached_property
    def by_line(self) -> Mapping[LineId, tuple[Ledger, ...]]:
        found: dict[LineId, tuple[Ledger, ...]] = {}
        for ledger in self.ledgers:
            found[line_of(ledger)] = (*found.get(line_of(ledger), ()), ledger)
        return found


@dataclass(frozen=True, slots=True)
class Standing:
    """What judging files takes of a state.

    `trusted` are the keys that are trusted now, `is_signed` says whether anybody
    is, `places` are the paths that ever were artifacts.
    """

    trusted: frozenset[bytes] = frozenset()
    is_signed: bool = False
    places: frozenset[bytes] = frozenset()


LineId = tuple[Head, bytes]
"""The first line, and merkle_this of the first record."""


@dataclass(frozen=True)
class State:
    """All that is known after a commit: the sets of `docs/spec/trust.md`.

    `lines` holds the pairs of `stands` and `joined`, by the record that their
    ledgers begin with.
    """

    signers: frozenset[Signers] = frozenset()
    lines: Mapping[LineId, Line] = field(default_factory=dict)
    places: frozenset[bytes] = frozenset()
    introductions: frozenset[Introduction] = frozenset()
    _open: dict[LineId, tuple[Ledger, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The open ledgers of lines, as far as they were asked for."""
    _contested: set[LineId] = field(default_factory=set, init=False, compare=False, repr=False)
    """Lines of which an open ledger is not accepted as a whole."""
    _only: dict[bytes, Ledger] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def newest(self) -> frozenset[Signers]:
        """Signers states that no other one came after; several where histories diverged."""
        return frozenset(
            one
            for one in self.signers
            if not any(_comes_after(other, one) for other in self.signers)
            and not self._is_joined(one)
        )

    def _is_joined(self, one: Signers) -> bool:
        """Whether another signers state has gone on in this one's place."""
        if one.ledger is None or one.is_fixed:
            return False
        joined = self.lines.get(line_of(one.ledger), Line()).joined
        return any(
            _begins(one.ledger, other)
            and any(new.ledger is not None and _begins(by, new.ledger) for new in self.signers)
            for other, by in joined
        )

    @cached_property
    def trusted(self) -> frozenset[bytes]:
        """Keys that are trusted now: those in every newest signers state."""
        return frozenset.intersection(*(one.keys for one in self.newest))

    @property
    def is_signed(self) -> bool:
        """Whether anybody is trusted, so that records have to be signed."""
        return any(one.keys for one in self.newest)

    @cached_property
    def standing(self) -> Standing:
        return Standing(self.trusted, self.is_signed, self.places)


@dataclass(frozen=True, slots=True)
class Tree:
    """What the rules see of a commit's tree.

    `ledgers` are those that read, by the ledger's path; `broken` the paths of
    those that do not. `signers` is None where the file is missing or can't be
    read, and `signers_fault` then says why. `artifacts` are the paths that are
    artifacts by this tree alone.
    """

    ledgers: Mapping[bytes, Ledger] = field(default_factory=dict)
    broken: frozenset[bytes] = frozenset()
    signers: SignersFile | None = None
    signers_fault: str | None = None
    artifacts: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold: `kind` is a word of the audit's list, `path` the artifact's.

    `gen` is that of the record where it is about one. `moved` is the ledger of
    an unsealed move, which a record that seals the move mends.
    """

    kind: str
    path: bytes
    message: str
    gen: int | None = None
    moved: Ledger | None = None


# Ledgers as values.


def line_of(ledger: Ledger) -> LineId:
    """What all ledgers of a line have in common."""
    return ledger.head, ledger.records[0].merkle_this


def shared(one: Ledger, other: Ledger) -> int:
    """How many records two ledgers begin with alike, whoever signed them."""
    if one.head != other.head:
        return 0
    least = min(len(one.records), len(other.records))
    if one.records[:least] == other.records[:least]:
        return least
    for n, (a, b) in enumerate(zip(one.records, other.records, strict=False)):
        if not (a is b or _is_same(a, b)):
            return n
    return least


def cut(ledger: Ledger, length: int) -> Ledger:
    """A ledger's first records."""
    if length == len(ledger.records):
        return ledger
    return Ledger(ledger.head, ledger.records[:length])


def _is_same(one: Record, other: Record) -> bool:
    return (
        one.merkle_this == other.merkle_this
        and one.merkle_prev == other.merkle_prev
        and one.sha256_all == other.sha256_all
        and one.meta == other.meta
        and one.at == other.at
    )


def _begins(shorter: Ledger, longer: Ledger) -> bool:
    """Whether a ledger's records are the first ones of another, whoever signed them."""
    return shared(shorter, longer) == len(shorter.records)


def _is_later(record: Record, ledger: Ledger) -> bool:
    """Whether a record says that it is later than all of a ledger: by its ts, then its gen.

    Who seals a record knows what it joins, and gives it no earlier ts and a
    greater gen. So no older record joins what was sealed knowing of it, in a
    history that leaves out how it was known.
    """
    last = ledger.last.meta
    return (record.meta.ts, record.meta.gen) > (last.ts, last.gen)


# States.


def start(signers: Signers, tree: Tree) -> State:
    """The state of a trust root: its signers, and the records of its tree as they stand."""
    ledgers = list(tree.ledgers.values())
    if signers.ledger is not None:
        ledgers.append(signers.ledger)
    lines: dict[LineId, Line] = {}
    for ledger in ledgers:
        name = line_of(ledger)
        lines[name] = _added(lines.get(name), ledger, (signers,))
    return State(frozenset({signers}), lines, tree.artifacts)


def join(states: Sequence[State]) -> State:
    """The union: what any of them knows. Commutative, associative, idempotent."""
    return reduce(_union, states)


def _union(one: State, other: State) -> State:
    if one is other:
        return one
    lines = dict(one.lines)
    for name, line in other.lines.items():
        mine = lines.get(name)
        if mine is None:
            lines[name] = line
        elif mine is not line and mine != line:
            lines[name] = Line(_longest(mine.stands | line.stands), mine.joined | line.joined)
    joined = State(
        one.signers | other.signers,
        lines,
        one.places | other.places,
        one.introductions | other.introductions,
    )
    _reuse(joined, one)
    _reuse(joined, other)
    return joined


def open_ledgers(state: State, signed_by: SignedBy) -> Mapping[LineId, tuple[Ledger, ...]]:
    """The ledgers that have to go on, by line: the longest of records that are held.

    Left out are those in whose place another one has gone on, as long as that
    one is accepted itself.
    """
    known = state._open  # what is derived of a state is kept in it
    for name, line in state.lines.items():
        if name not in known:
            known[name] = tuple(
                ledger
                for ledger in _held_ledgers(state, name, signed_by)
                if not _is_joined(state, line, ledger, signed_by)
            )
            if any(_length(state, one, signed_by) < len(one.records) for one in known[name]):
                state._contested.add(name)
    return known


def _held_ledgers(state: State, name: LineId, signed_by: SignedBy) -> tuple[Ledger, ...]:
    """The longest ledgers of a line's records that are held: none of them begins another one."""
    line = state.lines.get(name, Line())
    ledgers = {ledger for ledger, _ in line.stands}
    if len(ledgers) == 1 and len(line.stands) == len(state.signers):
        return tuple(ledgers)
    lengths = {one: _length(state, one, signed_by, held=True) for one in ledgers}
    found = {cut(ledger, length) for ledger, length in lengths.items() if length}
    return tuple(
        ledger
        for ledger in found
        if not any(other is not ledger and extends(other, ledger) for other in found)
    )


def _only(state: State) -> Mapping[bytes, Ledger]:
    """Open ledgers by their paths, those that are accepted and the only ones of line and place."""
    found = state._only
    if not found and state._open:
        met: set[bytes] = set()
        for name, ledgers in state._open.items():
            for ledger in ledgers:
                path = ledger.place + LEDGER_SUFFIX
                if path in found or len(ledgers) > 1 or name in state._contested:
                    met.add(path)
                found[path] = ledger
        for path in met:
            del found[path]
    return found


def is_accepted(state: State, ledger: Ledger, signed_by: SignedBy) -> bool:
    """Whether all records of a ledger are accepted, by signatures that are known."""
    line = state.lines.get(line_of(ledger), Line())
    return any(
        _begins(ledger, other) and _length(state, other, signed_by) >= len(ledger.records)
        for other in {one for one, _ in line.stands}
    )


def unaccepted(state: State, ledger: Ledger, signed_by: SignedBy) -> range:
    """The records of a ledger that are not accepted, by their numbers: all from the first on."""
    first = _length(state, ledger, signed_by)
    return range(first, len(ledger.records))


def seals_move(state: State, violation: Violation, signed_by: SignedBy) -> bool:
    """Whether a move that nobody had sealed has been, by a later record of an open ledger."""
    moved = violation.moved
    return moved is not None and any(
        _begins(moved, ledger)
        and any(record.at == violation.path for record in ledger.records[len(moved.records) :])
        for ledger in open_ledgers(state, signed_by).get(line_of(moved), ())
    )


def lets_go(ledger: Ledger) -> bool:
    """Whether a ledger says that what it sealed is deleted, so that its place is free."""
    return is_deletion(ledger.last)


def _comes_after(later: Signers, earlier: Signers) -> bool:
    """Whether a signers state followed another one."""
    if earlier.is_fixed or later == earlier:
        return False
    if not earlier.keys:
        return bool(later.keys)
    if earlier.ledger is None:
        return later.ledger is not None
    return later.ledger is not None and (
        len(later.ledger.records) > len(earlier.ledger.records)
        and _begins(earlier.ledger, later.ledger)
    )


def _longest(pairs: frozenset[tuple[Ledger, Signers]]) -> frozenset[tuple[Ledger, Signers]]:
    """Pairs without those that another one implies: a ledger that extends theirs, same signers."""
    by_signers: dict[Signers, list[Ledger]] = {}
    for ledger, signers in pairs:
        by_signers.setdefault(signers, []).append(ledger)
    return frozenset(
        (ledger, signers)
        for signers, ledgers in by_signers.items()
        for ledger in ledgers
        if not any(other is not ledger and extends(other, ledger) for other in ledgers)
    )


def _added(line: Line | None, ledger: Ledger, signers: Iterable[Signers]) -> Line:
    """A line with one more ledger, all of whose records stand under these signers states."""
    line = line or Line()
    pairs = line.stands.union((ledger, one) for one in signers)
    return line if len(pairs) == len(line.stands) else Line(_longest(pairs), line.joined)


def _length(state: State, ledger: Ledger, signed_by: SignedBy, *, held: bool = False) -> int:
    """How many of a ledger's first records are accepted, or are held.

    Accepted is what is known, and for every signers state stands under it, or
    is in each of its introductions, or is signed by a key of it: by the
    signatures that `ledger` has. To be held any introduction is enough, and a
    later record that is held: who sealed that one knew of those before it.
    """
    name = line_of(ledger)
    line = state.lines.get(name, Line())
    lengths = _standing_lengths(state, line, ledger)
    known = max((shared(ledger, other) for other in {one for one, _ in line.stands}), default=0)
    found: dict[Signers, list[int]] = {}
    for one in state.introductions:
        there = (shared(ledger, other) for other in one.by_line.get(name, ()))
        found.setdefault(one.signers, []).append(max(there, default=0))
    for signers, each in found.items():
        lengths[signers] = max(lengths[signers], max(each) if held else min(each))
    least = min(lengths.values(), default=known)

    def counts(n: int) -> bool:
        # Where nobody may sign, nothing has to be signed.
        return all(
            n < length or not one.keys or bool(signed_by(ledger, n, one.keys).valid)
            for one, length in lengths.items()
        )

    later = range(least, known)
    if held:
        return next((n + 1 for n in reversed(later) if counts(n)), least)
    return next((n for n in later if not counts(n)), known)


def _standing_lengths(state: State, line: Line, ledger: Ledger) -> dict[Signers, int]:
    """How many of a ledger's first records stand under each signers state."""
    lengths = {other: shared(ledger, other) for other in {one for one, _ in line.stands}}
    standing = dict.fromkeys(state.signers, 0)
    for other, one in line.stands:
        standing[one] = max(standing[one], lengths[other])
    return standing


def _is_joined(state: State, line: Line, ledger: Ledger, signed_by: SignedBy) -> bool:
    return any(
        _begins(ledger, other) and is_accepted(state, by, signed_by) for other, by in line.joined
    )


def _reuse(state: State, other: State) -> None:
    """Take over what was derived of lines that another state has as well."""
    if (state.signers, state.introductions) != (other.signers, other.introductions):
        return
    for name, ledgers in other._open.items():
        line = state.lines[name]
        if line is other.lines[name] and not line.joined:
            state._open[name] = ledgers
            if name in other._contested:
                state._contested.add(name)


# A commit.


def step(tree: Tree, before: State, signed_by: SignedBy) -> tuple[State, list[Violation]]:
    """The state after a commit, from the join of its parents' states; and what fails."""
    work = _Step(tree, before, signed_by)
    work.take_signers()  # (1)
    work.take_ledgers()  # (2)
    failed = [one for one in work.violations if one.path == SIGNERS_PATH]
    if before.is_signed and work.has_changed_signers and failed:
        # Signers whose own ledger is not taken would be the newest, and nothing could follow them.
        work = _Step(tree, before, signed_by)
        work.refuse_signers("its ledger does not hold")
        work.take_ledgers()
        work.violations += failed
    return work.after(), list(dict.fromkeys(work.violations))


class _Step:
    """A step under way."""

    def __init__(self, tree: Tree, before: State, signed_by: SignedBy) -> None:
        self._tree = tree
        self._before = before
        self._signed_by = signed_by
        self._open = open_ledgers(before, signed_by)
        self._signers = before.signers
        self._lines: dict[LineId, Line] = {}
        """Lines that are others after the commit."""
        self._keys = before.trusted
        """Keys that are trusted before or after the commit."""
        self._is_refused = False
        """Whether the tree has a change of the signers that does not count."""
        self._repos = self._known_repos()
        self._is_first_repo = not self._repos
        self._standing: dict[LineId, list[tuple[bytes, Ledger]]] = {}
        self._joined: set[Ledger] = set()
        self._gone: list[Ledger] = []
        """Open ledgers that let go of their places, and that no ledger of the tree extends."""
        self.violations: list[Violation] = []

    def after(self) -> State:
        before = self._before
        places = before.places | self._tree.artifacts  # (3)
        if len(places) == len(before.places):
            places = before.places
            if not self._lines and not self.has_changed_signers:
                return before
        lines = {**before.lines, **self._lines}
        state = State(before.signers, lines, places, before.introductions)
        if self.has_changed_signers:
            # All that is held here counts under them as well.
            held = frozenset(
                one for name in lines for one in _held_ledgers(state, name, self._signed_by)
            )
            introductions = before.introductions | {
                Introduction(one, held) for one in self._signers - before.signers
            }
            state = State(self._signers, lines, places, introductions)
        _reuse(state, before)
        return state

    def _line(self, name: LineId) -> Line:
        return self._lines.get(name) or self._before.lines.get(name) or Line()

    def _fail(self, kind: str, path: bytes, message: str, gen: int | None = None) -> None:
        self.violations.append(Violation(kind, path, message, gen))

    # (1) Signers.

    @property
    def has_changed_signers(self) -> bool:
        return self._signers is not self._before.signers

    def take_signers(self) -> None:
        newest = self._before.newest
        file, ledger = self._tree.signers, self._tree.ledgers.get(SIGNERS_LEDGER)
        if any(one.is_fixed for one in newest) or self._is_as_before(file, ledger):
            return
        why = self._why_refused(file, ledger)
        if why is not None:
            self.refuse_signers(why)
            return
        accepted = Signers(file, ledger)
        if ledger is not None:
            self._repos |= {ledger.records[0].merkle_this}
            # All of them have sealed it, also those whose own ledger is not accepted beside others.
            for old in newest:
                if old.keys and old.ledger is not None and not _begins(old.ledger, ledger):
                    self._add_joined(old.ledger, ledger)
        self._signers = self._before.signers | {accepted}
        self._keys |= accepted.keys

    def refuse_signers(self, why: str) -> None:
        self._is_refused = True
        message = f"{why}; the signers stay those of before"
        self._fail("signers-changed", SIGNERS_PATH, message)

    def _is_as_before(self, file: SignersFile | None, ledger: Ledger | None) -> bool:
        """Whether a tree has the newest signers, and no record of them that was not there."""
        newest = self._before.newest
        if file is None and self._tree.signers_fault is None:
            return not any(one.keys for one in newest)
        if file is None or len(newest) != 1:
            return False
        (one,) = newest
        if not file.keys and not one.keys:
            return True
        if one.file is None or file.sha256_all != one.file.sha256_all:
            return False
        return ledger is None or (one.ledger is not None and _begins(ledger, one.ledger))

    def _why_refused(self, file: SignersFile | None, ledger: Ledger | None) -> str | None:
        """Why a signers file changes nothing, None if it is sealed as every newest one demands."""
        newest = self._before.newest
        asked = [one for one in newest if one.file is not None and one.keys]
        if file is None:
            return self._tree.signers_fault or "the file is gone"
        if not file.keys:
            return "it names no signer"
        if not asked:
            # Trust on first use, which a caller has to tell.
            return None
        if ledger is None:
            return "its change is not sealed"
        if ledger.place != SIGNERS_PATH:
            return "its ledger is that of another place"
        if not any(one.ledger is None or extends(ledger, one.ledger) for one in newest):
            return "its ledger does not extend the trusted one"
        if ledger.last.sha256_all != file.sha256_all:
            return "its change is not sealed: the last record is of another content"
        if any(one.ledger is not None and _begins(ledger, one.ledger) for one in newest):
            return "two changes of the signers met, and none of them was sealed by both sides"
        if any(one.ledger is not None and not _is_later(ledger.last, one.ledger) for one in newest):
            return "its record is not later than that of every other change of the signers"
        if file.keys & self._taken_away(ledger):
            return "it brings back a key that was taken out on the other side"
        for one in asked:
            valid = self._signed_by(ledger, len(ledger.records) - 1, one.keys).valid
            count = one.file.count(valid) if one.file is not None else 0
            if count < one.threshold:
                return f"it is sealed by {count} of the signers before it, not {one.threshold}"
        return None

    def _taken_away(self, ledger: Ledger) -> frozenset[bytes]:
        """Keys that newest signers lack, and that those before them had, beside a ledger.

        Who sealed that one may not have known.
        """
        beside = [
            one
            for one in self._before.newest
            if one.ledger is not None and not _begins(one.ledger, ledger)
        ]
        return frozenset(
            key
            for one in beside
            for old in self._before.signers
            if _comes_after(one, old)
            for key in old.keys - one.keys
        )

    # (2) Ledgers.

    def take_ledgers(self) -> None:
        ledgers = self._tree.ledgers
        as_before = {path for path, one in _only(self._before).items() if ledgers.get(path) is one}
        changed = [path for path in ledgers if path not in as_before]
        for path in changed:
            self._standing.setdefault(line_of(ledgers[path]), []).append((path, ledgers[path]))
        for name, standing in self._standing.items():
            paths = (one.place + LEDGER_SUFFIX for one in self._open.get(name, ()))
            standing += [(path, ledgers[path]) for path in paths if path in as_before]
        missing = [
            one
            for name, open_ones in self._open.items()
            for one in open_ones
            if one.place + LEDGER_SUFFIX not in as_before
            and not lets_go(one)
            and not any(extends(other, one) for _, other in self._standing.get(name, ()))
        ]
        self._gone = [
            one
            for name, open_ones in self._open.items()
            for one in open_ones
            if lets_go(one)
            and not any(extends(other, one) for _, other in self._standing.get(name, ()))
        ]
        # What stands as it did is looked at again where others meet it there, or go on from it.
        again = {
            path
            for standing in self._standing.values()
            for path, _ in standing
            if path in as_before
        } | ({one.place + LEDGER_SUFFIX for one in missing} & as_before)
        # Others name the repository by the signers' ledger.
        for path in sorted({*changed, *again}, key=lambda path: (path != SIGNERS_LEDGER, path)):
            self._take_ledger(path, ledgers[path], missing)
        told = {one.path for one in self.violations if one.kind == "ledger-rewritten"}
        for one in missing:
            if one not in self._joined and one.place not in told:
                self._miss(one)

    def _take_ledger(self, path: bytes, ledger: Ledger, missing: Sequence[Ledger]) -> None:
        place, name = path.removesuffix(LEDGER_SUFFIX), line_of(ledger)
        known = self._open.get(name, ())
        is_at_place = ledger.place == place
        here = self._standing.get(name, [(path, ledger)])
        going_on = [one for one in known if extends(ledger, one)]
        if not is_at_place:
            if not self._is_moved(ledger, going_on):
                self._fail("bad-record", place, f"the ledger is that of {_quoted(ledger.place)}")
                return
            message = f"it was moved from {_quoted(ledger.place)}, and nobody has sealed that"
            self.violations.append(Violation("moved-unsealed", place, message, moved=ledger))
        if known and not going_on:
            self._fail("ledger-rewritten", place, _why_not_on(ledger, known))
            return
        if name not in self._before.lines and not self._is_of_repository(path, ledger):
            self._fail("bad-record", place, "the ledger is that of another repository")
            return
        if any(there != path and _begins(ledger, other) for there, other in here):
            self._fail("ledger-rewritten", place, "the ledger has gone on at another path")
            return
        others = [one for one in missing if one.place == ledger.place]
        can_join = any(one.place == ledger.place for one in going_on) or all(
            line_of(one) == name for one in others
        )
        if others and not (can_join and self._has_joining_record(name, ledger, others)):
            what = "both sides went on, and no new, later record by a key trusted now joins them"
            message = what if can_join else "another ledger stands in its place"
            self._fail("ledger-rewritten", place, message)
            return
        gone = [one for one in self._gone if one.place == ledger.place]
        if not all(_is_later(ledger.last, one) for one in gone):
            message = "it is of before a sealed deletion, and no later record brings it back"
            self._fail("ledger-rewritten", place, message)
            return
        self._take_records(path, ledger, others)

    def _take_records(self, path: bytes, ledger: Ledger, others: Sequence[Ledger]) -> None:
        """Add a ledger's records up to the first that fails."""
        place, name = path.removesuffix(LEDGER_SUFFIX), line_of(ledger)
        line = self._before.lines.get(name) or Line()
        accepted = _length(self._before, ledger, self._signed_by)
        if path == SIGNERS_LEDGER and self._is_refused:
            return  # its records count with the change that they seal
        bad = [
            n
            for n in range(accepted)
            if self._fails(place, ledger, n, self._why_not_added(line, ledger, n))
        ]
        if bad:
            return
        length = accepted
        while length < len(ledger.records):
            if self._fails(place, ledger, length, self._why_not_signed(ledger, length)):
                break
            length += 1
        if length:
            self._add(name, cut(ledger, length), is_sealed=length > accepted)
            if path == SIGNERS_LEDGER:
                self._repos |= {ledger.records[0].merkle_this}
        if length == len(ledger.records):
            self._joined.update(others)
            for one in others:
                self._add_joined(one, ledger)

    def _add(self, name: LineId, ledger: Ledger, *, is_sealed: bool) -> None:
        """Add a ledger, under all signers states if its last record is one that it got here.

        Else under those alone for which it needs no word of an introduction: of
        these there may be more than are known here.
        """
        before = self._line(name)
        signers = self._before.signers
        if not is_sealed and any(extends(other, ledger) for other, _ in before.stands):
            return
        if not is_sealed:
            length, last = len(ledger.records), len(ledger.records) - 1
            standing = _standing_lengths(self._before, before, ledger)
            signers = frozenset(
                one
                for one in signers
                if standing[one] == length
                or not one.keys
                or self._signed_by(ledger, last, one.keys).valid
            )
        line = _added(before, ledger, signers)
        if line is not before:
            self._lines[name] = line

    def _add_joined(self, one: Ledger, by: Ledger) -> None:
        line = self._line(line_of(one))
        self._lines[line_of(one)] = Line(line.stands, line.joined | {(one, by)})

    def _fails(self, place: bytes, ledger: Ledger, n: int, why: tuple[str, str] | None) -> bool:
        if why is not None:
            kind, message = why
            gen = ledger.records[n].meta.gen
            self._fail(kind, place, f"generation {gen} {message}", gen)
        return why is not None

    def _why_not_signed(self, ledger: Ledger, n: int) -> tuple[str, str] | None:
        """Why a record that is not accepted yet does not count, None where it does."""
        signed = self._signed_by(ledger, n, self._keys)
        if signed.invalid:
            return "bad-signature", f"has a signature that key {signed.invalid[0]} did not make"
        if signed.valid or not (self._before.is_signed or self._keys):
            return None
        if not ledger.records[n].signatures:
            return "missing-signature", "is not signed"
        return "untrusted-signer", "is signed by no key that is trusted now"

    def _why_not_added(self, line: Line, ledger: Ledger, n: int) -> tuple[str, str] | None:
        """Why signatures that an accepted record got do not count, None where they do."""
        record = ledger.records[n]
        had = {
            signature
            for other, _ in line.stands
            if n < len(other.records) and other.records[n].merkle_this == record.merkle_this
            for signature in other.records[n].signatures
        }
        added = {one.keyid for one in record.signatures if one not in had}
        if not added:
            return None
        signed = self._signed_by(ledger, n, self._keys)
        for keyid in signed.invalid:
            if keyid in added:
                return "bad-signature", f"has a signature that key {keyid} did not make"
        for keyid in signed.unknown:
            if keyid in added and (self._before.is_signed or self._keys):
                return "untrusted-signer", f"got a signature by key {keyid}, which is not trusted"
        return None

    def _has_joining_record(self, name: LineId, ledger: Ledger, others: Sequence[Ledger]) -> bool:
        """Whether a record that nothing knows yet is later, and by a key that is trusted now."""
        line = self._before.lines.get(name) or Line()
        known = max((shared(ledger, other) for other, _ in line.stands), default=0)
        later = [
            n
            for n in range(known, len(ledger.records))
            if all(_is_later(ledger.records[n], one) for one in others)
        ]
        if not (self._before.is_signed or self._keys):
            return bool(later)
        return any(self._signed_by(ledger, n, self._keys).valid for n in later)

    def _is_moved(self, ledger: Ledger, going_on: Sequence[Ledger]) -> bool:
        """Whether a ledger was moved with its file, nothing being left where it was."""
        before = ledger.place + LEDGER_SUFFIX
        is_left = before in self._tree.ledgers or before in self._tree.broken
        return bool(going_on) and not is_left and before != SIGNERS_LEDGER

    def _known_repos(self) -> frozenset[bytes]:
        """What ledgers may call the repository: first records of the signers' ledgers."""
        ledgers = [one.ledger for one in self._before.signers if one.ledger is not None]
        for open_ones in self._open.values():
            ledgers += [one for one in open_ones if one.place == SIGNERS_PATH]
        return frozenset(ledger.records[0].merkle_this for ledger in ledgers)

    def _is_of_repository(self, path: bytes, ledger: Ledger) -> bool:
        """Whether a ledger that begins here names this repository.

        One that began before there were signers may come in with them.
        """
        if path == SIGNERS_LEDGER:
            return ledger.head.repo == NO_REPO
        return ledger.head.repo in self._repos or (
            ledger.head.repo == NO_REPO and self._is_first_repo
        )

    def _miss(self, ledger: Ledger) -> None:
        """Tell of an open ledger that no ledger of the tree goes on from."""
        path = ledger.place + LEDGER_SUFFIX
        if path in self._tree.broken:
            return  # told as what it is
        if path in self._tree.ledgers:
            message = "another ledger stands in its place"
            self._fail("ledger-rewritten", ledger.place, message)
        else:
            message = "the ledger is gone: a deleted checkpoint keeps it, or its deletion is sealed"
            self._fail("ledger-removed", ledger.place, message)


def _why_not_on(ledger: Ledger, known: Iterable[Ledger]) -> str:
    if any(_begins(ledger, one) for one in known):
        return "the ledger lacks what is known of it: an older state came back"
    return "the ledger does not go on from what is known of it"


def _quoted(path: bytes) -> str:
    return ascii(path.decode("utf-8", "backslashreplace"))
