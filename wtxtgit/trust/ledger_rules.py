"""What a commit may do to ledgers.

Of the ledgers of a commit c, against every parent p; S is what `policy` computes:

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

Spec: `docs/spec/ledger.md`, "Along commits".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_LEDGER,
    Head,
    Ledger,
    Record,
)
from wtxtgit.trust.policy import (
    Parent,
    SignedBy,
    Tree,
    Trust,
    Violation,
    extends,
    keeps,
    keys_between,
)


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
        keys = keys_between(parent.trust, after)
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
        if new is not old and not keeps(new, old):
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
