"""Ledgers, signers and trees made by hand: no signature in them is a real one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.ledger import (
    DELETED_BUILD,
    DELETED_CONTENT,
    NO_REPO,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Ledger,
    LedgerHead,
    Record,
)
from wtxtgit.trust import state
from wtxtgit.trust import step as rules
from wtxtgit.trust.state import SignersContent, SignersState, Tree, TrustState, Violation

ALICE, BOB, CAROL, MALLORY = (bytes([number]) * 32 for number in range(1, 5))
MODEL, OTHER = b"model", b"other"


@dataclass(frozen=True)
class Signed:
    valid: frozenset[bytes]
    invalid: tuple[str, ...]
    unknown: tuple[str, ...]


def signed_by(ledger: Ledger, n: int, keys: frozenset[bytes]) -> Signed:
    """A signature holds where it begins with the public key that it names."""
    named = {
        signature.keyid: signature.signature[:32] for signature in ledger.records[n].signatures
    }
    ours = {keyid(key): key for key in keys}
    valid = {ours[name] for name, key in named.items() if ours.get(name) == key}
    invalid = sorted(name for name, key in named.items() if ours.get(name) not in (None, key))
    return Signed(frozenset(valid), tuple(invalid), tuple(sorted(named.keys() - ours.keys())))


def keyid(key: bytes) -> str:
    return key[:8].hex()


def signature(key: bytes) -> Signature:
    return Signature(key + key, keyid(key))


def bad_signature(key: bytes) -> Signature:
    """One that names a key which did not make it."""
    return Signature(bytes(64), keyid(key))


def digest(content: object) -> bytes:
    return sha256(repr(content).encode()).digest()


def _appended(
    head: LedgerHead,
    records: tuple[Record, ...],
    made: bytes,
    keys: Iterable[bytes],
    *,
    at: bytes | None = None,
    build: str = "",
) -> Ledger:
    prev = records[-1].merkle_this if records else bytes(32)
    this = sha256(prev + made + build.encode()).digest()
    signatures = tuple(map(signature, sorted(keys)))
    meta = Meta("opaque/v1", len(records) + 1, build=build)
    return Ledger(head, (*records, Record(meta, made, prev, this, signatures, at)))


# Signers.


def signers(*keys: bytes, threshold: int = 1) -> SignersContent:
    """A file of principals who have a key each."""
    return of_principals({str(key[0]): (key,) for key in keys}, threshold)


def of_principals(keys: Mapping[str, Iterable[bytes]], threshold: int = 1) -> SignersContent:
    """A file of principals who may have several keys."""
    held = frozenset((key, who) for who, theirs in keys.items() for key in theirs)
    return SignersContent(held, threshold, digest((sorted(held), threshold)))


def signers_ledger(file: SignersContent, *keys: bytes) -> Ledger:
    """The first record of a signers file."""
    return _appended(LedgerHead(NO_REPO, SIGNERS_PATH), (), file.sha256_all, keys)


def resealed(ledger: Ledger, file: SignersContent, *keys: bytes) -> Ledger:
    """The ledger of the signers with a record of another file."""
    return _appended(ledger.head, ledger.records, file.sha256_all, keys)


FIRST = signers(ALICE, MALLORY)
FIRST_LEDGER = signers_ledger(FIRST, ALICE)
REPO = FIRST_LEDGER.last.merkle_this
SECOND = signers(ALICE)
SECOND_LEDGER = resealed(FIRST_LEDGER, SECOND, ALICE)
"""Mallory's key is taken away."""
THIRD = signers(ALICE, BOB)
THIRD_LEDGER = resealed(FIRST_LEDGER, THIRD, ALICE)
"""So it is on another branch, where bob's came in the same change."""
S1, S2, S3 = (
    SignersState(FIRST, FIRST_LEDGER),
    SignersState(SECOND, SECOND_LEDGER),
    SignersState(THIRD, THIRD_LEDGER),
)
NOBODY = signers()


# Ledgers of artifacts.


def begun(
    content: object, *keys: bytes, path: bytes = MODEL, repo: bytes = REPO, at: bytes | None = None
) -> Ledger:
    """A ledger of one record."""
    return _appended(LedgerHead(repo, path), (), digest(content), keys, at=at)


def grown(ledger: Ledger, content: object, *keys: bytes, at: bytes | None = None) -> Ledger:
    """A ledger with one more record, which these keys signed."""
    return _appended(ledger.head, ledger.records, digest(content), keys, at=at)


def deleted(ledger: Ledger, *keys: bytes) -> Ledger:
    """A ledger with the record of a deletion."""
    return _appended(ledger.head, ledger.records, DELETED_CONTENT, keys, build=DELETED_BUILD)


def numbered(ledger: Ledger, gen: int) -> Ledger:
    """A ledger whose last record is of another generation."""
    last = replace(ledger.last, meta=replace(ledger.last.meta, gen=gen))
    return replace(ledger, records=(*ledger.records[:-1], last))


def with_last(ledger: Ledger, *signatures: Signature) -> Ledger:
    """A ledger whose last record has these signatures instead."""
    return with_signatures(ledger, len(ledger.records) - 1, *signatures)


def with_signatures(ledger: Ledger, n: int, *signatures: Signature) -> Ledger:
    """A ledger whose nth record has these signatures instead."""
    records = list(ledger.records)
    records[n] = replace(records[n], signatures=signatures)
    return replace(ledger, records=tuple(records))


def also_by(ledger: Ledger, n: int, *keys: bytes) -> Ledger:
    """A ledger whose nth record these keys have signed as well."""
    return with_signatures(ledger, n, *ledger.records[n].signatures, *map(signature, keys))


# Trees and states.


def tree(
    *ledgers: Ledger,
    at: Mapping[bytes, Ledger] | None = None,
    signers: SignersState | None = S1,
    artifacts: Iterable[bytes] = (),
    broken: Iterable[bytes] = (),
    fault: str | None = None,
) -> Tree:
    """A tree with ledgers at their places, or `at` others; the signers' ledger among them."""
    found = {one.place + b".wsum": one for one in ledgers}
    found |= {path + b".wsum": one for path, one in (at or {}).items()}
    file = None if signers is None else signers.file
    if signers is not None and signers.ledger is not None:
        found[SIGNERS_LEDGER] = signers.ledger
    unread = frozenset(path + b".wsum" for path in broken)
    every = {path.removesuffix(b".wsum") for path in {*found, *unread}}
    return Tree(found, unread, file, fault, frozenset(every | set(artifacts)))


def root(*ledgers: Ledger, signers: SignersState = S1) -> TrustState:
    """The state of a trust root."""
    return state.start(signers, tree(*ledgers, signers=signers))


def step(after: Tree, *parents: TrustState) -> tuple[TrustState, list[Violation]]:
    return rules.step(after, state.join(parents), signed_by)


def state_after(after: Tree, *parents: TrustState) -> TrustState:
    """The state after a commit in which nothing fails."""
    made, violations = step(after, *parents)
    assert violations == []
    return made


def found(after: Tree, *parents: TrustState) -> list[tuple[str, bytes]]:
    return [(violation.kind, violation.path) for violation in step(after, *parents)[1]]


def kinds(after: Tree, *parents: TrustState) -> list[str]:
    return [kind for kind, _ in found(after, *parents)]


def accepts(of: TrustState, ledger: Ledger) -> bool:
    """Whether all records of a ledger are accepted."""
    return state.is_accepted(of, ledger, signed_by)


def opened(of: TrustState) -> set[Ledger]:
    """All open ledgers but those of signers."""
    lines = state.open_ledgers(of, signed_by).values()
    return {one for line in lines for one in line if one.head.path != SIGNERS_PATH}
