"""What a seal is of: what a checkout writes, and what its record says besides.

`docs/spec/trust.md`, section "Artifacts": a filtered file counts by its text,
every other file by the opaque text of its bytes, whatever they begin with.
"""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.model import Meta
from wtxtgit.model.ledger import Ledger, Record, is_deletion
from wtxtgit.ops.artifact import ArtifactFacts
from wtxtgit.text.ledger_chain import native_record, next_record

_OPAQUE = "opaque/v1"


@dataclass(frozen=True, slots=True)
class Content:
    """A content that can be sealed.

    `sha256_all` (32 bytes) is what a record of it has, `schema` that text's.
    `others` are hashes that bind its bytes as well, `own` is the hash that older
    records of it may have, which binds less. `meta` is a native text's own.
    """

    facts: ArtifactFacts
    sha256_all: bytes
    schema: str
    others: frozenset[bytes] = frozenset()
    own: bytes | None = None
    meta: Meta | None = None

    def is_sealed_by(self, record: Record) -> bool:
        """Whether a record binds all of it: no other one is needed."""
        if is_deletion(record):
            return False
        return record.sha256_all == self.sha256_all or record.sha256_all in self.others

    def is_named_by(self, record: Record) -> bool:
        """Whether a record is of it, by an older rule maybe."""
        return self.is_sealed_by(record) or (
            self.own == record.sha256_all and not is_deletion(record)
        )

    def record(
        self, ledger: Ledger | None, *, now: str, build: str, at: bytes | None, gen: int | None
    ) -> Record:
        """The record that seals it after a ledger's last; raises TextError.

        A native text's generation is its own where that can follow.
        """
        if self.meta is not None and gen is None and _follows(self.meta, ledger):
            return native_record(ledger, sha256_all=self.sha256_all, meta=self.meta, at=at)
        return next_record(
            ledger,
            sha256_all=self.sha256_all,
            ts=now,
            build=build,
            schema=self.schema,
            gen=gen,
            at=at,
        )


def content_of(facts: ArtifactFacts, *, is_filtered: bool) -> Content | None:
    """What a seal is of, None for a filtered text that does not verify."""
    if is_filtered and not facts.is_native:
        if facts.sha256_all is None:
            return None
        return Content(facts, facts.sha256_all, facts.schema)
    if facts.opaque is None:
        raise AssertionError("nobody asked for the hash of its bytes")
    # clean's text of a binary gives each byte of it, a native text's root does not.
    others = (
        frozenset({facts.sha256_all}) if facts.sha256_all and not facts.is_text else frozenset()
    )
    return Content(facts, facts.opaque, _OPAQUE, others, facts.sha256_all, facts.meta)


def _follows(meta: Meta, ledger: Ledger | None) -> bool:
    if ledger is None:
        return True
    last = ledger.last.meta
    return meta.gen > last.gen and meta.ts >= last.ts
