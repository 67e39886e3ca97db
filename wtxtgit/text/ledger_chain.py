"""The next record of a ledger, its signatures, and who made them.

`docs/spec/ledger.md`, sections "Records" and "Signatures". Raw keys in, values
out: which keys are trusted, and how many of them it takes, is the business of
`trust`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from wtxtgit.errors import TextError
from wtxtgit.model import Meta, Signature
from wtxtgit.model.ledger import DELETED_BUILD, DELETED_CONTENT, Head, Ledger, Record
from wtxtgit.text import digest, grammar
from wtxtgit.text.ledger import FIRST_PREV, MAX_SIGNATURES, check_link, covered, format_record
from wtxtgit.text.signature import SignatureState, signed_with

_DELETED_SCHEMA = "opaque/v1"


@dataclass(frozen=True, slots=True)
class RecordSigners:
    """What became of a record's signatures, given some public keys.

    `valid` are the keys (32 bytes) that made one. `signatures` counts the
    signatures that one of the keys made: as many as `valid` where their keyids
    are distinct, as they must be. `invalid` are keyids that given keys have,
    none of which made the signature; `unknown` those that no given key has.
    """

    valid: frozenset[bytes]
    signatures: int
    invalid: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def state(self) -> SignatureState:
        """The whole in a word: one signature that does not hold makes it invalid."""
        if self.invalid:
            return SignatureState.INVALID
        if self.valid:
            return SignatureState.VALID
        return SignatureState.UNKNOWN_KEY if self.unknown else SignatureState.ABSENT


def next_record(
    ledger: Ledger | None,
    *,
    sha256_all: bytes,
    ts: str,
    build: str,
    schema: str,
    gen: int | None = None,
    at: bytes | None = None,
) -> Record:
    """The record that seals content after a ledger's last, or first where there is none.

    `ts` is that of the last record where it would go back, `gen` counts on
    unless it is given. `at` is the path to which the ledger moves. The record
    is not signed. Raises TextError for values that no record can hold, for a
    `gen` that does not grow, and for a move that moves nothing.
    """
    last = None if ledger is None else ledger.last
    if gen is None:
        gen = 1 if last is None else last.meta.gen + 1
    if not grammar.is_time(ts):
        raise TextError("syntax", f'ts "{ts}" is no UTC time like 2025-10-09T03:12:45Z')
    meta = Meta(schema, gen, ts if last is None else max(ts, last.meta.ts), build)
    return native_record(ledger, sha256_all=sha256_all, meta=meta, at=at)


def native_record(
    ledger: Ledger | None, *, sha256_all: bytes, meta: Meta, at: bytes | None = None
) -> Record:
    """The record of a text that has a generation of its own: `meta` is taken as it is.

    Raises TextError for values that no record can hold, where gen does not
    grow or ts goes back, and for a move to where the ledger is already. A
    ledger that is yet to begin is nowhere: its first record needs no move.
    """
    before = None if ledger is None else ledger.last
    prev = FIRST_PREV if before is None else before.merkle_this
    grammar.format_meta(meta)
    record = Record(meta, sha256_all, prev, digest.merkle(prev, sha256_all, meta), at=at)
    format_record(record)
    for problem in check_link(before, record, b"" if ledger is None else ledger.place):
        raise TextError(problem.kind, problem.message)
    return record


def deletion_record(ledger: Ledger, *, ts: str, gen: int | None = None) -> Record:
    """The record that seals, after a ledger's last, that its artifact is gone.

    `ts` and `gen` are as in `next_record`. The record is not signed. Raises
    TextError for a time that is none, and where no generation can follow.
    """
    return next_record(
        ledger,
        sha256_all=DELETED_CONTENT,
        ts=ts,
        build=DELETED_BUILD,
        schema=_DELETED_SCHEMA,
        gen=gen,
    )


def with_signature(record: Record, signature: Signature) -> Record:
    """`record` with one more signature, in its place among the others.

    Raises TextError where one of that keyid is there already, or as many as
    a record may have.
    """
    grammar.check_sign(signature)
    if any(other.keyid == signature.keyid for other in record.signatures):
        raise TextError("structure", f"a signature of keyid {signature.keyid} is there already")
    if len(record.signatures) >= MAX_SIGNATURES:
        raise TextError("limit", f"a record has at most {MAX_SIGNATURES} signatures")
    signatures = sorted((*record.signatures, signature), key=lambda other: other.keyid)
    return replace(record, signatures=tuple(signatures))


def signed_by(head: Head, record: Record, public_keys: Collection[bytes]) -> RecordSigners:
    """Check a record's signatures with all keys (32 bytes each) that have their keyids."""
    message = covered(head, record)
    by_keyid: dict[str, list[bytes]] = {}
    for key in sorted(public_keys):
        by_keyid.setdefault(digest.keyid(key), []).append(key)
    valid: list[bytes] = []
    invalid: list[str] = []
    unknown: list[str] = []
    for signature in record.signatures:
        candidates = by_keyid.get(signature.keyid)
        if candidates is None:
            unknown.append(signature.keyid)
        elif (made_by := signed_with(signature.signature, message, candidates)) is not None:
            valid.append(made_by)
        else:
            invalid.append(signature.keyid)
    return RecordSigners(frozenset(valid), len(valid), tuple(invalid), tuple(unknown))
