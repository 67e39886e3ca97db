"""The state of trust after a commit: sets that only grow, and what follows from them.

Pure functions that implement `docs/spec/trust.md`, "State". `join` is the union of states, so no
shape of history takes anything away; what a commit adds is in `trust.step`. No clock is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Protocol

from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    Ledger,
    LedgerHead,
    Record,
    extends,
    is_deletion,
    shared,
)


class SignatureCheck(Protocol):
    """Who signed a record: public keys with valid signatures, and keyids of invalid ones.

    `unknown` are the keyids of signatures by none of the keys.
    """

    @property
    def valid(self) -> frozenset[bytes]: ...
    @property
    def invalid(self) -> tuple[str, ...]: ...
    @property
    def unknown(self) -> tuple[str, ...]: ...


SignedBy = Callable[[Ledger, int, frozenset[bytes]], SignatureCheck]
"""Checks the signatures of a ledger's nth record against keys."""


@dataclass(frozen=True, slots=True)
class SignersContent:
    """The content of a signers file: who has which public key (32 bytes each), and the threshold.

    The threshold is the number of principals who have to seal a change of the file. `sha256_all` is
    the hash in the seal of the file.
    """

    principals: frozenset[tuple[bytes, str]]
    threshold: int
    sha256_all: bytes

    @property
    def keys(self) -> frozenset[bytes]:
        return frozenset(key for key, _ in self.principals)

    def count(self, keys: frozenset[bytes]) -> int:
        """Return the number of principals who have one of these keys."""
        return len({who for key, who in self.principals if key in keys})


@dataclass(frozen=True, slots=True)
class SignersState:
    """A signers state: a file, and the signers ledger up to the record by which it counts.

    `ledger` is None if the file is not sealed; `file` is None if nobody may sign. If it `is_fixed`
    no other state ever follows it.
    """

    file: SignersContent | None = None
    ledger: Ledger | None = None
    is_fixed: bool = False

    @property
    def keys(self) -> frozenset[bytes]:
        return frozenset() if self.file is None else self.file.keys

    @property
    def threshold(self) -> int:
        return 0 if self.file is None else self.file.threshold


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """What is known of all ledgers that begin with the same record.

    `stands`: pairs of a ledger and a signers state that was known where its last record was
    accepted. `joined`: pairs of a ledger and the one, of this line or another, that has continued
    in its place.
    """

    stands: frozenset[tuple[Ledger, SignersState]] = frozenset()
    joined: frozenset[tuple[Ledger, Ledger]] = frozenset()


@dataclass(frozen=True)
class Introduction:
    """A commit that introduced a signers state, and the ledgers that were accepted there.

    Anybody can introduce the same signers again by copying the record that sealed them. So what was
    accepted before counts only if it was accepted at every introduction.
    """

    signers: SignersState
    ledgers: frozenset[Ledger]

    @cached_property
    def by_line(self) -> Mapping[LineId, tuple[Ledger, ...]]:
        ledgers: dict[LineId, tuple[Ledger, ...]] = {}
        for ledger in self.ledgers:
            ledgers[line_of(ledger)] = (*ledgers.get(line_of(ledger), ()), ledger)
        return ledgers


@dataclass(frozen=True, slots=True)
class TrustFacts:
    """The part of a state that is needed to judge files.

    `trusted` are the keys that are trusted now, `is_signed` says whether there are any, `places`
    are the paths that ever were artifacts.
    """

    trusted: frozenset[bytes] = frozenset()
    is_signed: bool = False
    places: frozenset[bytes] = frozenset()


LineId = tuple[LedgerHead, bytes]
"""The first line, and merkle_this of the first record."""


@dataclass(frozen=True)
class TrustState:
    """All that is known after a commit: the sets of `docs/spec/trust.md`.

    `lines` holds the pairs of `stands` and `joined`, by the first record of their ledgers.
    """

    signers: frozenset[SignersState] = frozenset()
    lines: Mapping[LineId, LedgerLine] = field(default_factory=dict)
    places: frozenset[bytes] = frozenset()
    introductions: frozenset[Introduction] = frozenset()
    _open: dict[LineId, tuple[Ledger, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Cache: the open ledgers by line."""
    _contested: set[LineId] = field(default_factory=set, init=False, compare=False, repr=False)
    """Cache: lines with an open ledger that is not completely accepted."""
    _sole: dict[bytes, Ledger] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def newest(self) -> frozenset[SignersState]:
        """Signers states that no other one comes after; several if histories diverged."""
        return frozenset(
            one
            for one in self.signers
            if not any(comes_after(other, one) for other in self.signers)
            and not self._is_joined(one)
        )

    def _is_joined(self, signers: SignersState) -> bool:
        """Tell whether another signers state has continued in this one's place."""
        # Only sealed signers can be joined: without a ledger nothing continues.
        if signers.ledger is None or signers.is_fixed:
            return False
        joined = self.lines.get(line_of(signers.ledger), LedgerLine()).joined
        return any(
            begins(signers.ledger, other)
            and any(new.ledger is not None and begins(by, new.ledger) for new in self.signers)
            for other, by in joined
        )

    @cached_property
    def trusted(self) -> frozenset[bytes]:
        """The keys that are trusted now: those in every newest signers state."""
        # Of two independent changes, a key that either removed is removed.
        return frozenset.intersection(*(one.keys for one in self.newest))

    @property
    def is_signed(self) -> bool:
        """Whether anybody is trusted, so that records have to be signed."""
        return any(one.keys for one in self.newest)

    @cached_property
    def facts(self) -> TrustFacts:
        return TrustFacts(self.trusted, self.is_signed, self.places)


@dataclass(frozen=True, slots=True)
class Tree:
    """What the rules take from a commit's tree.

    `ledgers` are the valid ones, by the ledger's path; `broken` are the paths of invalid ones.
    `signers` is None if the file is missing or invalid; in the latter case `signers_fault` says
    why. `artifacts` are the paths that are artifacts by this tree alone.
    """

    ledgers: Mapping[bytes, Ledger] = field(default_factory=dict)
    broken: frozenset[bytes] = frozenset()
    signers: SignersContent | None = None
    signers_fault: str | None = None
    artifacts: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule: `kind` is a word of the audit's list, `path` the artifact's.

    `gen` is the generation if it concerns one record. `moved` is the ledger of an unsealed move,
    which a record that seals the move mends.
    """

    kind: str
    path: bytes
    message: str
    gen: int | None = None
    moved: Ledger | None = None


def quoted(path: bytes) -> str:
    """Quote a path for a message, whatever bytes it has."""
    return ascii(path.decode("utf-8", "backslashreplace"))


# Ledgers as values.


def line_of(ledger: Ledger) -> LineId:
    """Return what all ledgers of a line have in common."""
    return ledger.head, ledger.records[0].merkle_this


def cut(ledger: Ledger, length: int) -> Ledger:
    """Return a ledger cut to its first `length` records."""
    if length == len(ledger.records):
        return ledger
    return Ledger(ledger.head, ledger.records[:length])


def begins(shorter: Ledger, longer: Ledger) -> bool:
    """Tell whether a ledger's records are the first ones of another, regardless of signatures."""
    return shared(shorter, longer) == len(shorter.records)


def is_later(record: Record, ledger: Ledger) -> bool:
    """Tell whether a record states that it is later than a whole ledger: by its ts, then its gen.

    Whoever seals a record that joins ledgers knows them, and gives it no earlier ts and a greater
    gen. So an old record can't be used to join ledgers that were sealed after it, in a history that
    hides the order.
    """
    last = ledger.last.meta
    return (record.meta.ts, record.meta.gen) > (last.ts, last.gen)


# States.


def start(signers: SignersState, tree: Tree) -> TrustState:
    """Return the state of a trust root: its signers, and the records of its tree as they are."""
    ledgers = list(tree.ledgers.values())
    if signers.ledger is not None:
        ledgers.append(signers.ledger)
    lines: dict[LineId, LedgerLine] = {}
    for ledger in ledgers:
        name = line_of(ledger)
        lines[name] = added(lines.get(name), ledger, (signers,))
    return TrustState(frozenset({signers}), lines, tree.artifacts)


def join(states: Sequence[TrustState]) -> TrustState:
    """Return the union: what any of the states knows. Commutative, associative, idempotent."""
    return reduce(_union, states)


def _union(one: TrustState, other: TrustState) -> TrustState:
    if one is other:
        return one
    # Most commits change one ledger: lines that both states know are mostly the same object, and
    # stay shared.
    lines = dict(one.lines)
    for name, line in other.lines.items():
        own = lines.get(name)
        if own is None:
            lines[name] = line
        elif own is not line and own != line:
            lines[name] = LedgerLine(_longest(own.stands | line.stands), own.joined | line.joined)
    joined = TrustState(
        one.signers | other.signers,
        lines,
        one.places | other.places,
        one.introductions | other.introductions,
    )
    reuse(joined, one)
    reuse(joined, other)
    return joined


def open_ledgers(state: TrustState, signed_by: SignedBy) -> Mapping[LineId, tuple[Ledger, ...]]:
    """Return the ledgers that have to continue, by line: the longest ones of records that are held.

    Left out are ledgers in whose place another one has continued, as long as that one is accepted
    itself.
    """
    known = state._open  # results are cached in the state
    for name, line in state.lines.items():
        if name not in known:
            known[name] = tuple(
                ledger
                for ledger in held_ledgers(state, name, signed_by)
                if not _is_joined(state, line, ledger, signed_by)
            )
            whole = (
                accepted_length(state, one, signed_by) == len(one.records) for one in known[name]
            )
            if not all(whole):
                state._contested.add(name)
    return known


def held_ledgers(state: TrustState, name: LineId, signed_by: SignedBy) -> tuple[Ledger, ...]:
    """Return the longest ledgers of a line whose records are held.

    None is the beginning of another.
    """
    line = state.lines.get(name, LedgerLine())
    ledgers = {ledger for ledger, _ in line.stands}
    # One ledger under all signers states: no signature has to be checked.
    if len(ledgers) == 1 and len(line.stands) == len(state.signers):
        return tuple(ledgers)
    lengths = {one: accepted_length(state, one, signed_by, held=True) for one in ledgers}
    ledgers_held = {cut(ledger, length) for ledger, length in lengths.items() if length}
    return tuple(
        ledger
        for ledger in ledgers_held
        if not any(other is not ledger and extends(other, ledger) for other in ledgers_held)
    )


def sole_ledgers(state: TrustState) -> Mapping[bytes, Ledger]:
    """Return, by path, open ledgers that are accepted and the only ones of their line and place."""
    ledgers_by_path = state._sole
    if not ledgers_by_path and state._open:
        shared_paths: set[bytes] = set()
        for name, ledgers in state._open.items():
            for ledger in ledgers:
                path = ledger.place + LEDGER_SUFFIX
                if path in ledgers_by_path or len(ledgers) > 1 or name in state._contested:
                    shared_paths.add(path)
                ledgers_by_path[path] = ledger
        for path in shared_paths:
            del ledgers_by_path[path]
    return ledgers_by_path


def is_accepted(state: TrustState, ledger: Ledger, signed_by: SignedBy) -> bool:
    """Tell whether all records of a ledger are accepted, by the signatures that are known."""
    line = state.lines.get(line_of(ledger), LedgerLine())
    return any(
        begins(ledger, other) and accepted_length(state, other, signed_by) >= len(ledger.records)
        for other in {one for one, _ in line.stands}
    )


def unaccepted(state: TrustState, ledger: Ledger, signed_by: SignedBy) -> range:
    """Return the range of a ledger's records that are not accepted: all from the first such one
    on.
    """
    first = accepted_length(state, ledger, signed_by)
    return range(first, len(ledger.records))


def seals_move(state: TrustState, violation: Violation, signed_by: SignedBy) -> bool:
    """Tell whether an unsealed move has been sealed by a later record of an open ledger."""
    moved = violation.moved
    return moved is not None and any(
        begins(moved, ledger)
        and any(record.at == violation.path for record in ledger.records[len(moved.records) :])
        for ledger in open_ledgers(state, signed_by).get(line_of(moved), ())
    )


def lets_go(ledger: Ledger) -> bool:
    """Tell whether a ledger records that its artifact is deleted, so that its place is free."""
    return is_deletion(ledger.last)


def comes_after(later: SignersState, earlier: SignersState) -> bool:
    """Tell whether a signers state followed another one."""
    # Whoever gives a file as the trust root trusts just that file: no record of the repository
    # replaces it.
    if earlier.is_fixed or later == earlier:
        return False
    if not earlier.keys:
        return bool(later.keys)
    if earlier.ledger is None:
        return later.ledger is not None
    return later.ledger is not None and (
        len(later.ledger.records) > len(earlier.ledger.records)
        and begins(earlier.ledger, later.ledger)
    )


def _longest(
    pairs: frozenset[tuple[Ledger, SignersState]],
) -> frozenset[tuple[Ledger, SignersState]]:
    """Drop pairs that another pair implies: with the same signers, and a ledger that extends
    theirs.
    """
    by_signers: dict[SignersState, list[Ledger]] = {}
    for ledger, signers in pairs:
        by_signers.setdefault(signers, []).append(ledger)
    return frozenset(
        (ledger, signers)
        for signers, ledgers in by_signers.items()
        for ledger in ledgers
        if not any(other is not ledger and extends(other, ledger) for other in ledgers)
    )


def added(line: LedgerLine | None, ledger: Ledger, signers: Iterable[SignersState]) -> LedgerLine:
    """Return a line with one more ledger, all of whose records stand under these signers states."""
    line = line or LedgerLine()
    pairs = line.stands.union((ledger, one) for one in signers)
    return line if len(pairs) == len(line.stands) else LedgerLine(_longest(pairs), line.joined)


def accepted_length(
    state: TrustState, ledger: Ledger, signed_by: SignedBy, *, held: bool = False
) -> int:
    """Return how many of a ledger's first records are accepted or, with `held`, are held.

    A record is accepted if it is known and, for every signers state, stands under it, or is in each
    of its introductions, or is signed by one of its keys, judged by the signatures in `ledger`. To
    be held, any introduction is enough, and so is a later record that is held: whoever sealed that
    one knew of those before it.
    """
    name = line_of(ledger)
    line = state.lines.get(name, LedgerLine())
    # A record that stands under a signers state needs no signature of its keys.
    lengths = standing_lengths(state, line, ledger)
    known = max((shared(ledger, other) for other in {one for one, _ in line.stands}), default=0)
    by_introduction: dict[SignersState, list[int]] = {}
    for one in state.introductions:
        shared_lengths = (shared(ledger, other) for other in one.by_line.get(name, ()))
        by_introduction.setdefault(one.signers, []).append(max(shared_lengths, default=0))
    # Anybody who copies a sealed change of the signers introduces them again, behind records of
    # their own. So a record has to be in every introduction to be accepted; any is enough to be
    # held.
    for signers, introduced in by_introduction.items():
        lengths[signers] = max(lengths[signers], max(introduced) if held else min(introduced))
    least = min(lengths.values(), default=known)

    def counts(n: int) -> bool:
        # If nobody may sign, nothing has to be signed.
        return all(
            n < length or not one.keys or bool(signed_by(ledger, n, one.keys).valid)
            for one, length in lengths.items()
        )

    later = range(least, known)
    # Held is decided from the end: whoever sealed a later record knew of those before it. Accepted
    # is decided from the start.
    if held:
        return next((n + 1 for n in reversed(later) if counts(n)), least)
    return next((n for n in later if not counts(n)), known)


def standing_lengths(
    state: TrustState, line: LedgerLine, ledger: Ledger
) -> dict[SignersState, int]:
    """Return how many of a ledger's first records stand under each signers state."""
    lengths = {other: shared(ledger, other) for other in {one for one, _ in line.stands}}
    by_signers = dict.fromkeys(state.signers, 0)
    for other, one in line.stands:
        by_signers[one] = max(by_signers[one], lengths[other])
    return by_signers


def _is_joined(state: TrustState, line: LedgerLine, ledger: Ledger, signed_by: SignedBy) -> bool:
    return any(
        begins(ledger, other) and is_accepted(state, by, signed_by) for other, by in line.joined
    )


def reuse(state: TrustState, other: TrustState) -> None:
    """Copy cached results about lines that another state has as well."""
    # Which records count depends on both; if they are equal, a line that is the same object has the
    # same result.
    if (state.signers, state.introductions) != (other.signers, other.introductions):
        return
    for name, ledgers in other._open.items():
        line = state.lines[name]
        # A ledger that joined this line may be of another line, which may have changed.
        if line is other.lines[name] and not line.joined:
            state._open[name] = ledgers
            if name in other._contested:
                state._contested.add(name)
