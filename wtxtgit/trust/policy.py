"""Which keys are trusted after a commit.

A state machine over commits, parents before children. Its state S(c), a
`Trust`, is what is trusted after commit c; it is computed from a trust root
forward and never read from a tree alone, so that no change is judged by what
it changes:

1. S of what the trust root reaches is the signers file of the root commit, or
   the file that was given in its place. Without a root S starts empty.
2. While S is empty, the first readable signers file with a key in it is taken
   as it is: trust on first use, which a caller has to tell.
3. S(c) starts as that of the parent whose S came to be by changes of all the
   others': it never goes back. Where there is none they diverged, and it
   starts as that of the first parent.
4. The signers file of c becomes S(c) if c's signers ledger extends the
   accepted one, its last record is of that file, and as many keys of the S
   before it have signed that record as its threshold says. Where S diverged,
   this has to hold for the S of every parent that is of another file, even if
   the file is the first parent's. Else, and where the file is gone or has no
   key, S stays, and it is reported.

What a commit may do to ledgers, rules 5 to 8, is in `ledger_rules`.

No clock is read: order is that of commits and records.
Spec: `docs/spec/ledger.md`, "Along commits".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wtxtgit.model.ledger import (
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Ledger,
    Record,
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
class SealedSigners:
    """What a signers file says: public keys of 32 bytes, and how many seal a change of it.

    `sha256_all` is that of the file's text.
    """

    keys: frozenset[bytes]
    threshold: int
    sha256_all: bytes


@dataclass(frozen=True, slots=True)
class Trust:
    """S: the signers that are trusted, and the signers ledger by which they came to be.

    `former` is the S that this one took the place of, `joined` are those of
    other parents that agreed.
    """

    signers: SealedSigners | None = None
    ledger: Ledger | None = None
    former: Trust | None = field(default=None, compare=False, repr=False)
    joined: tuple[Trust, ...] = field(default=(), compare=False, repr=False)

    @property
    def keys(self) -> frozenset[bytes]:
        return self.signers.keys if self.signers is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Tree:
    """What the rules see of a commit's tree.

    `ledgers` are those that read, by the ledger's path; `broken` the paths of
    those that do not. `signers` is None where the file is missing or can't be
    read, and `signers_fault` then says why.
    """

    ledgers: Mapping[bytes, Ledger]
    broken: frozenset[bytes] = frozenset()
    signers: SealedSigners | None = None
    signers_fault: str | None = None

    @property
    def signers_ledger(self) -> Ledger | None:
        return self.ledgers.get(SIGNERS_LEDGER)


@dataclass(frozen=True, slots=True)
class Parent:
    """A parent: its S and its tree.

    `is_joined` says that the commits between it and the child keep the rules
    5 and 6, so that it counts for signatures alone.
    """

    trust: Trust
    tree: Tree
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold: `kind` is a word of the audit's list, `path` the artifact's.

    `gen` is that of the record where it is about one.
    """

    kind: str
    path: bytes
    message: str
    gen: int | None = None


def extends(longer: Ledger, shorter: Ledger) -> bool:
    """Whether a ledger has all that another one has, and maybe more: records, signatures."""
    if longer.head != shorter.head or len(longer.records) < len(shorter.records):
        return False
    start = longer.records[: len(shorter.records)]
    return start == shorter.records or all(map(keeps, start, shorter.records))


def keeps(new: Record, old: Record) -> bool:
    """Whether a record is another one, with the same signatures or more."""
    if new is old or new == old:
        return True
    same = (new.meta, new.sha256_all, new.merkle_prev, new.merkle_this) == (
        old.meta,
        old.sha256_all,
        old.merkle_prev,
        old.merkle_this,
    )
    return same and set(old.signatures) <= set(new.signatures)


def advance(
    tree: Tree, parents: Sequence[Parent], signed_by: SignedBy, start: Trust
) -> tuple[Trust, list[Violation]]:
    """S after a commit, from that of its parents; and what is wrong with its signers file.

    `start` is S before a commit that has no parents.
    """
    trusts = list(dict.fromkeys(parent.trust for parent in parents)) or [start]
    before = next((t for t in trusts if all(descends(t, other) for other in trusts)), trusts[0])
    diverged = tuple(trust for trust in trusts if trust.keys and not descends(before, trust))
    if not parents and tree.signers is None and tree.signers_fault is None:
        # Another history's first commit does not take away what it never had.
        return before, []
    if not before.keys and not diverged:
        return _first_trust(tree, before, parents)
    if not diverged and tree.signers is not None and _is_of(before, tree.signers):
        return _with_ledger(before, tree.signers_ledger, signed_by), []
    why = _why_refused(tree, (before, *diverged), signed_by)
    if why is None:
        return Trust(tree.signers, tree.signers_ledger, before, diverged), []
    return before, [] if _is_known(tree, parents, before, diverged) else [_changed(why)]


def descends(trust: Trust, other: Trust) -> bool:
    """Whether an S is another one, or came to be by changes of it, as all do of an empty one."""
    return not other.keys or other in _lineage(trust)


def _lineage(trust: Trust) -> set[Trust]:
    """An S with all by which it came to be."""
    found: set[Trust] = set()
    left = [trust]
    while left:
        at = left.pop()
        if at not in found:
            found.add(at)
            left += at.joined if at.former is None else (at.former, *at.joined)
    return found


def _first_trust(
    tree: Tree, before: Trust, parents: Sequence[Parent]
) -> tuple[Trust, list[Violation]]:
    """S where nobody is trusted yet: the first signers that can be read."""
    if tree.signers is not None:
        return Trust(tree.signers, tree.signers_ledger, before), []
    if tree.signers_fault is None or _is_known(tree, parents, before, ()):
        return before, []
    return before, [_changed(tree.signers_fault)]


def _is_known(
    tree: Tree, parents: Sequence[Parent], before: Trust, diverged: Sequence[Trust]
) -> bool:
    """Whether the first parent has the same file, of the same S: it was reported there."""
    if not parents or diverged or parents[0].trust != before:
        return False
    first = parents[0].tree
    return (first.signers, first.signers_fault) == (tree.signers, tree.signers_fault)


def _is_of(trust: Trust, signers: SealedSigners) -> bool:
    return trust.signers is not None and trust.signers.sha256_all == signers.sha256_all


def _with_ledger(trust: Trust, ledger: Ledger | None, signed_by: SignedBy) -> Trust:
    """The same S, with the ledger by which its file is sealed, where it has none yet."""
    if trust.ledger is not None or ledger is None:
        return trust
    is_theirs = signed_by(ledger, len(ledger.records) - 1, trust.keys).valid
    return Trust(trust.signers, ledger, trust) if is_theirs else trust


def keys_between(old: Trust, new: Trust) -> frozenset[bytes]:
    """Keys of one S or another, and of all by which the one became the other."""
    keys = old.keys | new.keys
    return keys.union(*(trust.keys for trust in _lineage(new) if descends(trust, old)))


def _why_refused(tree: Tree, opinions: Sequence[Trust], signed_by: SignedBy) -> str | None:
    """Why a signers file changes nothing, None if it is sealed as each S before it demands."""
    ledger = tree.signers_ledger
    if tree.signers is None:
        return tree.signers_fault or "the file is gone"
    if not tree.signers.keys:
        return "it names no signer"
    asked = [trust for trust in opinions if trust.keys and not _is_of(trust, tree.signers)]
    if not asked:
        return None
    if ledger is None:
        return "its change is not sealed"
    ledgers = [trust.ledger for trust in opinions if trust.ledger is not None]
    if ledgers and not any(extends(ledger, other) for other in ledgers):
        return "its ledger does not extend the trusted one"
    if ledger.last.sha256_all != tree.signers.sha256_all:
        return "its change is not sealed: the last record is of another content"
    for trust in asked:
        wanted = trust.signers.threshold if trust.signers is not None else 1
        found = len(signed_by(ledger, len(ledger.records) - 1, trust.keys).valid)
        if found < wanted:
            return f"its change is sealed by {found} of the signers before it, not {wanted}"
    return None


def _changed(why: str) -> Violation:
    message = f"{why}; the signers stay those of before"
    return Violation("signers-changed", SIGNERS_PATH, message)
