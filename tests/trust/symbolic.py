"""Ledgers, signers and trees without cryptography: a signature hashes a key and what it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256, sha512

from wtxtgit.model.array import EPOCH, Meta, Signature
from wtxtgit.model.ledger import (
    DELETED_BUILD,
    DELETED_CONTENT,
    NO_REPO,
    SIGNERS_PATH,
    Ledger,
    LedgerHead,
    Record,
)
from wtxtgit.trust.state import SignersContent, Tree

ALICE, ALICE2, BOB, CAROL, STRANGER = KEYS = tuple(bytes([n]) * 32 for n in range(1, 6))
NAMES = {ALICE: "alice", ALICE2: "alice", BOB: "bob", CAROL: "carol", STRANGER: "stranger"}


@dataclass(frozen=True)
class Signed:
    """What `state.Signed` asks for."""

    valid: frozenset[bytes]
    invalid: tuple[str, ...]
    unknown: tuple[str, ...]


def signed_by(ledger: Ledger, n: int, keys: frozenset[bytes]) -> Signed:
    return _signed_by(ledger.head, ledger.records[n], keys)


@cache
def _signed_by(head: LedgerHead, record: Record, keys: frozenset[bytes]) -> Signed:
    named = {keyid(key): key for key in keys}
    valid, invalid, unknown = [], [], []
    for signature in record.signatures:
        key = named.get(signature.keyid)
        if key is None:
            unknown.append(signature.keyid)
        elif signature == sign(head, record, key):
            valid.append(key)
        else:
            invalid.append(signature.keyid)
    return Signed(frozenset(valid), tuple(invalid), tuple(unknown))


def keyid(key: bytes) -> str:
    return key[:8].hex()


def sign(head: LedgerHead, record: Record, key: bytes) -> Signature:
    said = (record.meta, record.sha256_all, record.merkle_prev, record.detached)
    covered = (head, record.at, *said)
    return Signature(
        sha512(key + repr((*covered, record.merkle_this)).encode()).digest(), keyid(key)
    )


def bad_signature(key: bytes) -> Signature:
    return Signature(b"bad" + key, keyid(key))


def content(name: object) -> bytes:
    """The hash_all of a content that goes by a name, None for no file."""
    return DELETED_CONTENT if name is None else sha256(repr(name).encode()).digest()


def add_signatures(ledger: Ledger, n: int, *signatures: Signature) -> Ledger:
    """Put signatures to a record in the place of those by the same keys."""
    old = ledger.records[n]
    kept = {one.keyid: one for one in (*old.signatures, *signatures)}
    new = replace(old, signatures=tuple(kept[name] for name in sorted(kept)))
    return Ledger(ledger.head, (*ledger.records[:n], new, *ledger.records[n + 1 :]))


def drop_signature(ledger: Ledger, n: int, name: str) -> Ledger:
    old = ledger.records[n]
    new = replace(old, signatures=tuple(one for one in old.signatures if one.keyid != name))
    return Ledger(ledger.head, (*ledger.records[:n], new, *ledger.records[n + 1 :]))


def seal(
    before: Ledger | LedgerHead,
    sha256_all: bytes,
    keys: Iterable[bytes] = (),
    *,
    at: bytes | None = None,
    detached: bytes | None = None,
    gen: int | None = None,
    ts: str | None = None,
    name: str = "",
) -> Ledger:
    """Add a record that keys sign to a ledger, or begin one. A name makes it unlike all others."""
    head, records = (
        (before, ()) if isinstance(before, LedgerHead) else (before.head, before.records)
    )
    if gen is None:
        gen = records[-1].meta.gen + 1 if records else 1
    build = DELETED_BUILD if sha256_all == DELETED_CONTENT else name or "none"
    ts = max(ts or EPOCH, records[-1].meta.ts if records else EPOCH)
    meta = Meta(gen=gen, ts=ts, build=build, host=name or "any")
    previous = records[-1].merkle_this if records else bytes(32)
    link = previous + sha256_all + f"{meta.ts}{gen:06d}{build}".encode()
    this = sha256(link).digest()
    record = Record(meta, sha256_all, previous, this, at=at, detached=detached)
    ledger = Ledger(head, (*records, record))
    signatures = (sign(head, record, key) for key in keys)
    return add_signatures(ledger, len(records), *signatures)


def signers_file(keys: Iterable[bytes], threshold: int = 1) -> SignersContent:
    principals = frozenset((key, NAMES[key]) for key in keys)
    return SignersContent(principals, threshold, content((sorted(principals), threshold)))


def begin(path: bytes, signers_ledger: Ledger | None) -> LedgerHead:
    """The first line of a ledger that begins beside these signers."""
    is_own = path == SIGNERS_PATH or signers_ledger is None
    return LedgerHead(NO_REPO if is_own else signers_ledger.records[0].merkle_this, path)


def tree(
    files: Iterable[bytes],
    ledgers: Mapping[bytes, Ledger],
    broken: Iterable[bytes],
    signers: SignersContent | None,
) -> Tree:
    """A tree in which every file, and what a ledger stands for, is an artifact."""
    artifacts = set(files) | {path[: -len(b".wsum")] for path in (*ledgers, *broken)}
    if signers is not None:
        artifacts.add(SIGNERS_PATH)
    return Tree(dict(ledgers), frozenset(broken), signers, None, frozenset(artifacts))
