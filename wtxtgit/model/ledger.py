"""A ledger: the generations of one artifact, oldest first, each sealed by signatures.

Plain data; `text.ledger` reads and writes it. Spec: `docs/spec/ledger.md`.
"""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.model import Meta, Signature

LEDGER_SUFFIX = b".wsum"
"""The end of a ledger's path; before it stands the path of what it seals."""
SIGNERS_PATH = b".wtxt/signers"
SIGNERS_LEDGER = SIGNERS_PATH + LEDGER_SUFFIX
NO_REPO = bytes(32)
"""What a ledger says of its repository where that has no signers yet."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line: which repository, and where in it the ledger began.

    `repo` (32 bytes) is merkle_this of the first record of the signers
    ledger, zeros for that ledger itself and where there was none. `path` are
    the bytes of a path, relative to the top level.
    """

    repo: bytes
    path: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A generation: what its content's text says of it, and who signed that.

    `sha256_all`, `merkle_prev` and `merkle_this` are 32 bytes each.
    `signatures` are in ascending order of their keyid.
    """

    meta: Meta
    sha256_all: bytes
    merkle_prev: bytes
    merkle_this: bytes
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """All generations of an artifact, oldest first, one at least."""

    head: Head
    records: tuple[Record, ...]

    @property
    def last(self) -> Record:
        return self.records[-1]
