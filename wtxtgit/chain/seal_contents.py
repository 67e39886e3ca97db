"""What a seal is of: what a checkout writes, and what its record says besides.

`docs/spec/trust.md`, section "Artifacts": a filtered file counts by its text,
every other file by the opaque text of its bytes, whatever they begin with.
"""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.model import Meta
from wtxtgit.model.ledger import Ledger, Record, is_deletion
from wtxtgit.text.ledger_chain import native_record, next_record

_OPAQUE = "opaque/v1"


@dataclass(frozen=True, slots=True)
class After:
    """What the next record has to be later than.

    `ts` is its time unless its ledger's last is later, `gen` the least generation
    that it may have. `joined` is the latest time of what it joins.
    """

    ts: str
    gen: int = 1
    joined: str | None = None

    def gen_of(self, ledger: Ledger | None) -> int:
        """The generation that comes next in a ledger."""
        return self.gen if ledger is None else max(self.gen, ledger.last.meta.gen + 1)


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
        self, ledger: Ledger | None, after: After, *, build: str, at: bytes | None = None
    ) -> Record:
        """The record that seals it after a ledger's last; raises TextError.

        A native text's generation is its own where that can follow.
        """
        gen = after.gen_of(ledger)
        if self.meta is not None and self.meta.gen >= gen and self._is_late(ledger, after):
            return native_record(ledger, sha256_all=self.sha256_all, meta=self.meta, at=at)
        return next_record(
            ledger,
            sha256_all=self.sha256_all,
            ts=after.ts,
            build=build,
            schema=self.schema,
            gen=gen,
            at=at,
        )

    def _is_late(self, ledger: Ledger | None, after: After) -> bool:
        """Whether a native text's own time does not go back, nor before what is joined."""
        if self.meta is None or (after.joined is not None and self.meta.ts < after.joined):
            return False
        return ledger is None or self.meta.ts >= ledger.last.meta.ts


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
