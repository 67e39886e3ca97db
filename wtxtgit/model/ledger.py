"""A ledger: the generations of one artifact, oldest first, each sealed by signatures.

Plain data; `text.ledger` reads and writes it. Spec: `docs/spec/ledger.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wtxtgit.model.array import Meta, Signature

LEDGER_SUFFIX = b".wsum"
"""The end of a ledger's path; the path of what it seals precedes it."""
SIGNERS_PATH = b".wtxt/signers"
RECIPIENTS_PATH = b".wtxt/recipients"
"""The recipients for whom a repository's texts are encrypted if none are named."""
AGE_ENDING = ".age"
"""The ending of the name of an age file."""
TEXT_SUFFIX = b".wtxt"
DELTA_SUFFIX = b".wtxtdelta"
ENCRYPTED_SUFFIX = b".wtxt" + AGE_ENDING.encode("ascii")
"""The end of the path of an encrypted text."""
SIGNERS_LEDGER = SIGNERS_PATH + LEDGER_SUFFIX
_ATTRIBUTES = b".gitattributes"


def stands_beside(path: bytes) -> bool:
    """Tell whether a path is no artifact whatever pattern matches it: it stands beside them."""
    is_own = path.endswith((LEDGER_SUFFIX, DELTA_SUFFIX)) or path == SIGNERS_PATH
    return is_own or path.rpartition(b"/")[2] == _ATTRIBUTES


DELETED_BUILD = "deleted"
"""The `build` in the record of a sealed deletion."""
DELETED_CONTENT = bytes.fromhex("e8624cf466515a0fb7a24b13ee5b4dc822a5da9853d9b595cd5ec75b8f1bca79")
"""The sha256_all of such a record: that of the opaque text of an empty file."""
NO_REPO = bytes(32)
"""Stands for the repository in a ledger that began before there were signers."""


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """The first line: the repository, and the path at which the ledger began.

    `repo` (32 bytes) is merkle_this of the first record of the signers ledger; zeros for that
    ledger itself and if there was none. `path` is the bytes of a path, relative to the top level.
    """

    repo: bytes
    path: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One generation: what the text of its content says, and who signed that.

    `sha256_all`, `merkle_prev` and `merkle_this` are 32 bytes each. `signatures` are in ascending
    order of their keyids. `at` is the path to which this record moves the ledger, None if it
    stays. `detached` (32 bytes) is the SHA-256 of the blob if that is a detached text, else None.
    """

    meta: Meta
    sha256_all: bytes
    merkle_prev: bytes
    merkle_this: bytes
    signatures: tuple[Signature, ...] = ()
    at: bytes | None = None
    detached: bytes | None = None


def is_deletion(record: Record) -> bool:
    """Whether a record says that the artifact is deleted from this generation on."""
    return record.sha256_all == DELETED_CONTENT and record.meta.build == DELETED_BUILD


@dataclass(frozen=True, slots=True)
class Ledger:
    """All generations of an artifact, oldest first; at least one."""

    head: LedgerHead
    records: tuple[Record, ...]
    place: bytes = field(init=False, compare=False, repr=False)
    """The path that the signatures cover: that of the last move, else that of the first line."""

    def __post_init__(self) -> None:
        # Computed once: an audit asks for it at every commit.
        place = self.head.path
        for record in reversed(self.records):
            if record.at is not None:
                place = record.at
                break
        object.__setattr__(self, "place", place)

    def __hash__(self) -> int:
        # An audit keeps ledgers of many records in sets. The last link of a chain stands for
        # all that it follows, so there is no need to hash that too.
        last = self.records[-1].merkle_this if self.records else None
        return hash((self.head, len(self.records), last))

    @property
    def last(self) -> Record:
        return self.records[-1]


def extends(longer: Ledger, shorter: Ledger) -> bool:
    """Whether `longer` has all records and signatures that `shorter` has, and maybe more."""
    if longer is shorter:
        return True
    if longer.head != shorter.head or len(longer.records) < len(shorter.records):
        return False
    first = equal_records(longer, shorter)
    return all(
        is_same(new, old) and set(old.signatures) <= set(new.signatures)
        for new, old in zip(longer.records[first:], shorter.records[first:], strict=False)
    )


def shared(one: Ledger, other: Ledger) -> int:
    """Return the number of leading records that say the same in both, whoever signed them."""
    if one.head != other.head:
        return 0
    first = equal_records(one, other)
    for new, old in zip(one.records[first:], other.records[first:], strict=False):
        if not is_same(new, old):
            break
        first += 1
    return first


def equal_records(one: Ledger, other: Ledger) -> int:
    """Return the number of leading records that are equal in both ledgers, signatures included."""
    first, end = 0, min(len(one.records), len(other.records))
    if one.records[:end] == other.records[:end]:
        return end
    # Bisection beats a loop over thousands of generations: slices of tuples are compared in C, and
    # records that were read once are the same object.
    while end - first > 1:
        middle = (first + end) // 2
        if one.records[first:middle] == other.records[first:middle]:
            first = middle
        else:
            end = middle
    return first


def is_same(one: Record, other: Record) -> bool:
    """Whether two records say the same, whoever signed them."""
    return one is other or (
        one.merkle_this == other.merkle_this
        and one.merkle_prev == other.merkle_prev
        and one.sha256_all == other.sha256_all
        and one.meta == other.meta
        and one.at == other.at
        and one.detached == other.detached
    )
