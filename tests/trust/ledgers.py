"""Ledgers, signers and trees made by hand: no signature in them is a real one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from wtxtgit.trust.ledger_rules import check_ledgers
from wtxtgit.trust.policy import Parent, SealedSigners, Tree, Trust, advance

from wtxtgit.model import Meta, Signature
from wtxtgit.model.ledger import NO_REPO, SIGNERS_LEDGER, SIGNERS_PATH, Head, Ledger, Record

ALICE, BOB, CAROL, MALLORY = (bytes([number]) * 32 for number in range(1, 5))


@dataclass(frozen=True)
class Signed:
    valid: frozenset[bytes]
    invalid: tuple[str, ...]


def signed_by(ledger: Ledger, n: int, keys: frozenset[bytes]) -> Signed:
    """A signature holds where it begins with the public key that it names."""
    named = {
        signature.keyid: signature.signature[:32] for signature in ledger.records[n].signatures
    }
    ours = {keyid(key): key for key in keys}
    valid = {ours[name] for name, key in named.items() if ours.get(name) == key}
    invalid = sorted(name for name, key in named.items() if ours.get(name) not in (None, key))
    return Signed(frozenset(valid), tuple(invalid))


def keyid(key: bytes) -> str:
    return key[:8].hex()


def signature(key: bytes) -> Signature:
    return Signature(key + key, keyid(key))


def bad_signature(key: bytes) -> Signature:
    """One that names a key which did not make it."""
    return Signature(bytes(64), keyid(key))


def digest(content: object) -> bytes:
    return sha256(repr(content).encode()).digest()


def begun(content: object, *keys: bytes, path: bytes = b"model", repo: bytes = NO_REPO) -> Ledger:
    """A ledger of one record."""
    return _appended(Head(repo, path), (), content, keys)


def grown(ledger: Ledger, content: object, *keys: bytes) -> Ledger:
    """A ledger with one more record, which these keys signed."""
    return _appended(ledger.head, ledger.records, content, keys)


def with_last(ledger: Ledger, *signatures: Signature) -> Ledger:
    """A ledger whose last record has these signatures instead."""
    return replace(
        ledger, records=(*ledger.records[:-1], replace(ledger.last, signatures=signatures))
    )


def signers(*keys: bytes, threshold: int = 1) -> SealedSigners:
    return SealedSigners(frozenset(keys), threshold, signers_digest(keys, threshold))


def signers_digest(keys: Iterable[bytes], threshold: int = 1) -> bytes:
    return digest((sorted(keys), threshold))


def signers_ledger(file: SealedSigners, *keys: bytes) -> Ledger:
    """The first record of a signers file."""
    return sealing(begun(0, *keys, path=SIGNERS_PATH), file)


def resealed(ledger: Ledger, file: SealedSigners, *keys: bytes) -> Ledger:
    """The ledger of the signers with a record of another file."""
    return sealing(grown(ledger, 0, *keys), file)


def sealing(ledger: Ledger, file: SealedSigners) -> Ledger:
    this = sha256(ledger.last.merkle_prev + file.sha256_all).digest()
    last = replace(ledger.last, sha256_all=file.sha256_all, merkle_this=this)
    return replace(ledger, records=(*ledger.records[:-1], last))


def _appended(
    head: Head, records: tuple[Record, ...], content: object, keys: Iterable[bytes]
) -> Ledger:
    prev = records[-1].merkle_this if records else bytes(32)
    made = digest(content)
    this = sha256(prev + made).digest()
    signatures = tuple(map(signature, sorted(keys)))
    meta = Meta("opaque/v1", len(records) + 1)
    return Ledger(head, (*records, Record(meta, made, prev, this, signatures)))


FIRST = signers(ALICE)
FIRST_LEDGER = signers_ledger(FIRST, ALICE)
TRUST = Trust(FIRST, FIRST_LEDGER)
EMPTY = Trust()
REPO = FIRST_LEDGER.last.merkle_this
MODEL = b"model.wsum"


def tree(
    ledgers: Mapping[bytes, Ledger] | None = None,
    file: SealedSigners | None = FIRST,
    ledger: Ledger | None = FIRST_LEDGER,
    **more: object,
) -> Tree:
    """A tree with ledgers, the signers' among them."""
    found = dict(ledgers or {})
    if ledger is not None:
        found[SIGNERS_LEDGER] = ledger
    return Tree(found, signers=file, **more)  # type: ignore[arg-type]


def model(ledger: Ledger, **more: object) -> Tree:
    return tree({MODEL: ledger}, **more)  # type: ignore[arg-type]


def parent(state: Tree, trust: Trust = TRUST, *, is_joined: bool = False) -> Parent:
    return Parent(trust, state, is_joined)


def found(
    after: Tree, *parents: Parent, trust: Trust = TRUST, require_signed: bool = False
) -> list[tuple[str, bytes]]:
    violations = check_ledgers(after, parents, trust, signed_by, require_signed=require_signed)
    return [(violation.kind, violation.path) for violation in violations]


def kinds(after: Tree, *parents: Parent, trust: Trust = TRUST, **more: bool) -> list[str]:
    return [kind for kind, _ in found(after, *parents, trust=trust, **more)]


def step(after: Tree, *parents: Parent, start: Trust = EMPTY) -> tuple[Trust, list[str]]:
    trust, wrong = advance(after, parents, signed_by, start)
    assert all(violation.path == SIGNERS_PATH for violation in wrong)
    return trust, [violation.kind for violation in wrong]


CHANGED = ["signers-changed"]
NOBODY = signers()
SECOND = signers(ALICE, BOB)
SECOND_LEDGER = resealed(FIRST_LEDGER, SECOND, ALICE)
SECOND_TRUST = Trust(SECOND, SECOND_LEDGER, TRUST)
STRICT = signers(ALICE, BOB, threshold=2)
STRICT_LEDGER = signers_ledger(STRICT, ALICE)
STRICT_TRUST = Trust(STRICT, STRICT_LEDGER)
FOREIGN = signers(MALLORY)
FOREIGN_LEDGER = signers_ledger(FOREIGN, MALLORY)
FOREIGN_TRUST = Trust(FOREIGN, FOREIGN_LEDGER)
