"""Which keys are trusted after a commit, and what a commit may do to ledgers.

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

Of the ledgers of c, against every parent p:

5. A ledger of p is in c: at its path, or, but for that of the signers, moved
   to one where p had none. No other ledger takes its path, and none that p has
   broken is left out.
6. It extends p's: the same first line and records, with the same signatures
   or more. Where the parents' diverged, it extends one of them and adds a
   record signed by a key that is trusted in all. (A parent that is an ancestor
   of another may be left out of 5 and 6 where the commits between keep them.)
7. Each record that p lacks is signed by a key of S(p), of S(c), or of an S by
   which S(p) became S(c), once any has keys. A key that left S stays good for
   what it signed before: p may be a branch that is older than some changes.
   So is each signature that p lacks on a record that it has.
8. No two ledgers of a tree have the same first line. A ledger that p lacks
   names the repository by the signers ledger's first record; one that every
   parent lacks names the path where it stands.

No clock is read: order is that of commits and records.
Spec: `docs/spec/ledger.md`, "Along commits".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Head,
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
    return start == shorter.records or all(map(_keeps, start, shorter.records))


def _keeps(new: Record, old: Record) -> bool:
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


def _keys_between(old: Trust, new: Trust) -> frozenset[bytes]:
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


def check_ledgers(
    tree: Tree,
    parents: Sequence[Parent],
    after: Trust,
    signed_by: SignedBy,
    *,
    require_signed: bool = False,
) -> Iterator[Violation]:
    """What a commit does to ledgers that it may not; `after` is its S.

    With `require_signed` records have to be signed where S is empty, too.
    """
    places: dict[Head, list[bytes]] = {}
    for path in sorted(tree.ledgers):
        places.setdefault(tree.ledgers[path].head, []).append(path)
    for paths in places.values():
        yield from _doubles(paths, tree, parents)
    for parent in parents:
        if not parent.is_joined:
            yield from _lost(tree, parent.tree, places)
    for path, ledger in tree.ledgers.items():
        if parents and all(parent.tree.ledgers.get(path) is ledger for parent in parents):
            continue
        is_double = len(places[ledger.head]) > 1
        yield from _check_ledger(
            path, ledger, tree, parents, after, signed_by, require_signed, is_double=is_double
        )


def _doubles(paths: Sequence[bytes], tree: Tree, parents: Sequence[Parent]) -> Iterator[Violation]:
    """Ledgers that are the same one, at these paths: those that came in with this commit."""
    before = parents[0].tree.ledgers if parents else {}
    head = tree.ledgers[paths[0]].head
    known = [path for path in paths if path in before and before[path].head == head]
    first = known[0] if known else paths[0]
    for path in paths:
        if path != first and path not in known:
            message = f"the ledger is that of {_shown(first)} as well"
            yield Violation("bad-record", _artifact(path), message)


def _lost(tree: Tree, parent: Tree, places: Mapping[Head, Sequence[bytes]]) -> Iterator[Violation]:
    """Ledgers of a parent that are gone, replaced, or moved onto another one."""
    for path, ledger in parent.ledgers.items():
        here = tree.ledgers.get(path)
        if here is ledger or path in tree.broken or (here and here.head == ledger.head):
            continue
        # Nobody would look for the signers' ledger elsewhere.
        found = places.get(ledger.head, ()) if path != SIGNERS_LEDGER else ()
        if here is None and any(place not in parent.ledgers for place in found):
            continue
        if here is not None or found:
            message = "another ledger stands in its place"
            yield Violation("ledger-rewritten", _artifact(path), message)
        else:
            message = "the ledger is gone: a deleted checkpoint keeps its ledger"
            yield Violation("ledger-removed", _artifact(path), message)
    for path in sorted(parent.broken - tree.ledgers.keys() - tree.broken):
        message = "the ledger, which could not be read, is gone instead of mended"
        yield Violation("ledger-removed", _artifact(path), message)


def _check_ledger(
    path: bytes,
    ledger: Ledger,
    tree: Tree,
    parents: Sequence[Parent],
    after: Trust,
    signed_by: SignedBy,
    require_signed: bool,
    *,
    is_double: bool,
) -> Iterator[Violation]:
    artifact = _artifact(path)
    found = [(parent, _same_head(parent.tree, path, ledger)) for parent in parents]
    known = [(parent, other) for parent, other in found if other is not None]
    is_new = not known and not is_double
    yield from _check_head(path, ledger, tree, found, after, is_new=is_new)
    apart = [(parent, other) for parent, other in known if not parent.is_joined]
    if not all(extends(ledger, other) for _, other in apart):
        yield from _check_join(artifact, ledger, apart, signed_by)
    told: set[int] = set()
    for parent, other in found or [(Parent(Trust(), Tree({})), None)]:
        start = 0 if other is None else _shared(ledger, other)
        keys = _keys_between(parent.trust, after)
        added = [] if other is None else _added_signatures(ledger, other, start)
        for n in (*added, *range(start, len(ledger.records))):
            if n in told:
                continue
            before = other.records[n] if other is not None and n < start else None
            why = _check_signed(ledger, n, keys, signed_by, require_signed, before)
            if why is not None:
                told.add(n)
                kind, message = why
                gen = ledger.records[n].meta.gen
                yield Violation(kind, artifact, f"generation {gen} {message}", gen)


def _same_head(parent: Tree, path: bytes, ledger: Ledger) -> Ledger | None:
    """The parent's ledger of the same first line, wherever it stands."""
    at_path = parent.ledgers.get(path)
    if at_path is not None and at_path.head == ledger.head:
        return at_path
    return next((other for other in parent.ledgers.values() if other.head == ledger.head), None)


def _check_join(
    artifact: bytes,
    ledger: Ledger,
    known: Sequence[tuple[Parent, Ledger]],
    signed_by: SignedBy,
) -> Iterator[Violation]:
    """A ledger that does not extend that of every parent."""
    others = [other for _, other in known]
    extended = [other for other in others if extends(ledger, other)]
    longest = max(extended, key=lambda other: len(other.records), default=None)
    if longest is None:
        message = "the ledger does not extend that of the commit before"
        if len(others) > 1:
            message = "the ledger extends that of no parent"
        yield Violation("ledger-rewritten", artifact, message)
        return
    if any(extends(other, longest) for other in others if not extends(ledger, other)):
        message = "the ledger lacks generations that a parent has: an older state came back"
        yield Violation("ledger-rewritten", artifact, message)
        return
    trusted = [parent.trust.keys for parent, _ in known if parent.trust.keys]
    common = frozenset.intersection(*trusted) if trusted else frozenset()
    added = range(len(longest.records), len(ledger.records))
    is_sealed = any(signed_by(ledger, n, common).valid for n in added) if trusted else bool(added)
    if not is_sealed:
        message = "both sides went on, and no new record by a key trusted on both joins them"
        yield Violation("ledger-rewritten", artifact, message)


def _check_head(
    path: bytes,
    ledger: Ledger,
    tree: Tree,
    found: Sequence[tuple[Parent, Ledger | None]],
    after: Trust,
    *,
    is_new: bool,
) -> Iterator[Violation]:
    """A ledger that a parent lacks has to be of this repository, a new one of this path."""
    artifact, head = _artifact(path), ledger.head
    lacking = [parent for parent, other in found if other is None]
    if found and not lacking:
        return
    signers_ledger = after.ledger or tree.signers_ledger
    wanted = NO_REPO
    if path != SIGNERS_LEDGER and signers_ledger is not None:
        wanted = signers_ledger.records[0].merkle_this
    # One that began before there were signers may come in with them, squashed.
    began_before = head.repo == NO_REPO and not any(p.tree.signers_ledger for p in lacking)
    if head.repo != wanted and not began_before:
        yield Violation("bad-record", artifact, "the ledger is that of another repository")
    elif is_new and head.path != artifact and not any(path in p.tree.ledgers for p in lacking):
        message = f"the ledger began as that of {_quoted(head.path)}, which no parent has"
        yield Violation("bad-record", artifact, message)


def _added_signatures(ledger: Ledger, other: Ledger, shared: int) -> list[int]:
    """Records that both have, and that have more signatures now."""
    return [
        n
        for n in range(shared)
        if ledger.records[n] is not other.records[n]
        and ledger.records[n].signatures != other.records[n].signatures
    ]


def _shared(ledger: Ledger, other: Ledger) -> int:
    """How many records two ledgers begin with alike."""
    for n, (new, old) in enumerate(zip(ledger.records, other.records, strict=False)):
        if new is not old and not _keeps(new, old):
            return n
    return min(len(ledger.records), len(other.records))


def _check_signed(
    ledger: Ledger,
    n: int,
    keys: frozenset[bytes],
    signed_by: SignedBy,
    require_signed: bool,
    before: Record | None,
) -> tuple[str, str] | None:
    """Why a record that is new to a parent does not count, None where it does.

    `before` is the parent's record where that has one with fewer signatures:
    then those that it lacks are looked at.
    """
    signed = signed_by(ledger, n, keys)
    had = {signature.keyid for signature in before.signatures} if before is not None else set()
    for keyid in signed.invalid:
        if keyid not in had:
            return "bad-signature", f"has a signature that key {keyid} did not make"
    if before is not None:
        strange = [keyid for keyid in signed.unknown if keyid not in had]
        if strange and keys:
            return "untrusted-signer", f"got a signature by key {strange[0]}, which is not trusted"
        return None
    if signed.valid or not (keys or require_signed):
        return None
    if not ledger.records[n].signatures:
        return "missing-signature", "is not signed"
    if not keys:
        return "untrusted-signer", "is signed, and no signers are trusted"
    return "untrusted-signer", "is signed by no trusted key"


def _artifact(ledger_path: bytes) -> bytes:
    return ledger_path.removesuffix(LEDGER_SUFFIX)


def _shown(ledger_path: bytes) -> str:
    return _quoted(_artifact(ledger_path))


def _quoted(path: bytes) -> str:
    return ascii(path.decode("utf-8", "backslashreplace"))
