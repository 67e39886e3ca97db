"""What a seal covers, and which ledger it continues.

`docs/spec/trust.md`, section "Artifacts": the seal of a filtered file covers its text, that of any
other file the opaque text of its bytes, whatever they begin with. Even a ledger that is in no tree
any more has to be continued, so the trust state before the commit decides what is kept, not only
the trees of its parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wtxtgit.chain.reader import ChainReader, signed
from wtxtgit.chain.state_cache import StateCache
from wtxtgit.chain.walk import NOBODY, Walk
from wtxtgit.errors import CheckError
from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.git import history
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.history import AlteredHistory, Head
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown_path
from wtxtgit.model.array import Meta
from wtxtgit.model.ledger import NO_REPO, SIGNERS_PATH, Ledger, Record, extends, is_deletion, shared
from wtxtgit.text.ledger import native_record, next_record
from wtxtgit.trust.state import (
    SignersState,
    TrustState,
    Violation,
    is_later,
    join,
    lets_go,
    line_of,
    open_ledgers,
    start,
    unaccepted,
)
from wtxtgit.trust.step import step

_OPAQUE = "opaque/v1"


@dataclass(frozen=True, slots=True)
class LedgerChoice:
    """The ledger that continues at a path; None if a new one begins.

    `joined` are ledgers that have to be joined with it by another record, later than each, whatever
    the content is. `is_here` says that the ledger at the path stays there.
    """

    ledger: Ledger | None
    joined: tuple[Ledger, ...] = ()
    is_here: bool = False

    @property
    def joins(self) -> bool:
        return bool(self.joined)


class StateBefore:
    """The state before the commit that is being made, and what is wrong with what is staged."""

    def __init__(
        self, state: TrustState, after: TrustState, violations: Sequence[Violation]
    ) -> None:
        self._state = state
        self._after = after
        self._violations = violations
        self._open = open_ledgers(state, signed)
        self._still_open = {one for some in open_ledgers(after, signed).values() for one in some}

    @classmethod
    def of(
        cls,
        repo: Repository,
        reader: ChainReader,
        snapshots: CommitFilesReader,
        entries: Iterable[TreeEntry],
        trust_root: str | None,
        cache: StateCache,
    ) -> StateBefore:
        """Compute the state from the trust root on; `entries` are those of the index.

        Raises BadRoot, EnvironmentFailure and KeyFileError for invalid trust roots.
        """
        parents = history.next_parents(Head(repo))
        try:
            history.refuse_altered(repo)
        except AlteredHistory:
            # Then nobody knows who is trusted, so what the parents contain is accepted.
            trees = [reader.tree(snapshots.files(oid)) for oid in parents]
            state = join([start(SignersState(), tree) for tree in trees]) if trees else NOBODY
        else:
            walk = Walk.to(repo, parents, trust_root, reader, snapshots, cache=cache)
            state = walk.before(parents)
        after, violations = step(reader.tree(snapshots.staged(entries)), state, signed)
        return cls(state, after, violations)

    # Signatures.

    @property
    def is_signed(self) -> bool:
        return self._state.is_signed

    @property
    def trusted(self) -> frozenset[bytes]:
        """The keys whose signatures count in the commit."""
        return self._state.trusted | self._after.trusted

    def unsigned(self, ledger: Ledger) -> list[int]:
        """Return the indices of the records that will count once a trusted key signs them."""
        return [
            n
            for n in unaccepted(self._state, ledger, signed)
            if not signed(ledger, n, self.trusted).valid
        ]

    def wrong_signature(self, path: bytes, ledger: Ledger) -> Violation | None:
        """Return a violation by a signature that a further signature can't mend; None if there
        is none.
        """
        first = unaccepted(self._state, ledger, signed).start
        gens = {record.meta.gen for record in ledger.records[:first]}
        for violation in self._violations:
            if violation.path != path:
                continue
            if violation.kind == "bad-signature" or (
                violation.kind == "untrusted-signer" and violation.gen in gens
            ):
                return violation
        return None

    # Ledgers.

    def knows(self, path: bytes) -> bool:
        """Tell whether a ledger has to continue at a path."""
        return any(
            one.place == path and not lets_go(one) for some in self._open.values() for one in some
        )

    def choose(
        self,
        path: bytes,
        current: Ledger | None,
        sides: Sequence[Ledger],
        ledgers: Mapping[bytes, Ledger],
        repo_id: bytes,
    ) -> LedgerChoice:
        """Return the ledger whose records are kept at a path.

        `current` is the ledger at the path. If several may continue, the one that the first of
        `sides` belongs to is chosen. `ledgers` are all ledgers here, by artifact. Raises CheckError
        if none can continue.
        """
        lines = {line_of(one) for one in (*sides, *((current,) if current is not None else ()))}
        lines |= {
            name for name, some in self._open.items() if any(one.place == path for one in some)
        }
        unclaimed = [
            one
            for name in sorted(lines, key=lambda line: (line[0].repo, line[0].path, line[1]))
            for one in self._open.get(name, ())
            if self._holder(one, ledgers) in (None, path)
        ]
        elsewhere = [one for one in unclaimed if one.place != path and not lets_go(one)]
        at_path = [one for one in unclaimed if one.place == path and not lets_go(one)]
        deleted = [one for one in unclaimed if one.place == path and lets_go(one)]
        is_here = current is not None and self._is_settled(path, current, [*elsewhere, *at_path])
        if is_here:
            return LedgerChoice(current, is_here=True)
        if current is not None and any(line_of(one) == line_of(current) for one in elsewhere):
            elsewhere = [one for one in elsewhere if line_of(one) == line_of(current)]
        # A ledger that comes from elsewhere only joins others of its own line.
        if elsewhere and all(
            line_of(one) == line_of(elsewhere[0]) for one in (*elsewhere, *at_path)
        ):
            chosen = self._only_one(path, elsewhere)
        elif at_path or deleted:
            chosen = _preferred(at_path or deleted, sides)
        else:
            begins = current is not None and self._begins_here(path, current, repo_id)
            return LedgerChoice(current if begins else None, is_here=begins)
        signers = self._other_signers(chosen) if path == SIGNERS_PATH else ()
        joined = {*at_path, *signers} - {chosen}
        # Content older than a sealed deletion must not return without a new record.
        joined |= {
            one for one in deleted if not extends(chosen, one) and not is_later(chosen.last, one)
        }
        return LedgerChoice(chosen, tuple(joined))

    def deleted(self, path: bytes, ledger: Ledger | None) -> tuple[Ledger, ...]:
        """Return the sealed deletions at a path that a ledger's next record there has to be
        later than.
        """
        return tuple(
            one
            for some in self._open.values()
            for one in some
            if one.place == path and lets_go(one) and not (ledger and extends(ledger, one))
        )

    def _is_settled(self, path: bytes, current: Ledger, others: Sequence[Ledger]) -> bool:
        """Tell whether the ledger at the path is valid and continues all others."""
        return not any(one.path == path for one in self._violations) and all(
            extends(current, one) or one not in self._still_open for one in others
        )

    def _other_signers(self, ledger: Ledger) -> Iterator[Ledger]:
        """Yield ledgers of other signers that are trusted now.

        A change has to be later than each.
        """
        for signers in self._state.newest:
            if signers.ledger is not None and not extends(ledger, signers.ledger):
                yield signers.ledger

    def _holder(self, ledger: Ledger, ledgers: Mapping[bytes, Ledger]) -> bytes | None:
        """Return the path at which an open ledger continues already; None if it does not."""
        own = ledgers.get(ledger.place)
        if own is not None and extends(own, ledger):
            return ledger.place
        holders = [path for path, other in ledgers.items() if extends(other, ledger)]
        holders.sort(key=lambda path: (ledgers[path].place != path, path))
        return holders[0] if holders else None

    def _only_one(self, path: bytes, elsewhere: Sequence[Ledger]) -> Ledger:
        """Return the ledger that moves here; raises CheckError if there are several."""
        if len(elsewhere) > 1:
            places = " and ".join(sorted(shown_path(one.place) for one in elsewhere))
            raise CheckError(
                f"{shown_path(path)}: its ledger was continued at {places}",
                hint="git mv it and its ledger to one of these, seal that, and then move it here",
            )
        return elsewhere[0]

    def _begins_here(self, path: bytes, ledger: Ledger, repo_id: bytes) -> bool:
        """Tell whether a ledger that is not known yet belongs to this path."""
        return (
            line_of(ledger) not in self._state.lines
            and ledger.place == path
            and ledger.head.repo in (repo_id, NO_REPO)
        )


def _preferred(ledgers: Sequence[Ledger], sides: Iterable[Ledger]) -> Ledger:
    """Choose among ledgers that may continue: that of the first side that has one, else the
    longest.
    """
    for side in sides:
        related = [one for one in ledgers if shared(one, side)]
        if related:
            return max(related, key=lambda one: (shared(one, side), len(one.records)))
    return max(ledgers, key=lambda one: (len(one.records), one.last.merkle_this))


@dataclass(frozen=True, slots=True)
class After:
    """What the next record has to be later than.

    `ts` is its time unless the last record of its ledger is later, `gen` its least generation.
    `joined` is the latest time of the ledgers that it joins.
    """

    ts: str
    gen: int = 1
    joined: str | None = None

    def gen_of(self, ledger: Ledger | None) -> int:
        """Return the next generation of a ledger."""
        return self.gen if ledger is None else max(self.gen, ledger.last.meta.gen + 1)


@dataclass(frozen=True, slots=True)
class SealedContent:
    """A content that can be sealed.

    `sha256_all` (32 bytes) goes into its record, with `schema`. `others` are hashes that cover its
    bytes as well; `own` is the hash that older records of it may have, which covers less. `meta` is
    that of a native text. If it `is_withheld` its payload is not complete here and no hash is
    known: it may be sealed already, but no new record of it can be made.
    """

    facts: ArtifactFacts
    sha256_all: bytes
    schema: str
    others: frozenset[bytes] = frozenset()
    own: bytes | None = None
    meta: Meta | None = None

    @property
    def is_withheld(self) -> bool:
        return self.facts.lacks_payload and self.facts.detached is not None

    def is_sealed_by(self, record: Record) -> bool:
        """Tell whether a record covers all of it, so that no further one is needed."""
        if is_deletion(record):
            return False
        # A record of the attached form does not seal the detached form, nor the reverse.
        if self.facts.detached not in (None, record.detached):
            return False
        # Whoever sealed this very text has seen its payload.
        if self.is_withheld:
            return True
        return record.sha256_all == self.sha256_all or record.sha256_all in self.others

    def is_named_by(self, record: Record) -> bool:
        """Tell whether a record is of this content, perhaps by an older rule."""
        return self.is_sealed_by(record) or (
            self.own == record.sha256_all and not is_deletion(record)
        )

    def record(
        self, ledger: Ledger | None, after: After, *, build: str, at: bytes | None = None
    ) -> Record:
        """Return the record that seals this content after a ledger's last; raises TextError.

        A native text's own generation is used if it can follow.
        """
        gen = after.gen_of(ledger)
        if self.meta is not None and self.meta.gen >= gen and self._is_late(ledger, after):
            return native_record(
                ledger,
                sha256_all=self.sha256_all,
                meta=self.meta,
                at=at,
                detached=self.facts.detached,
            )
        return next_record(
            ledger,
            sha256_all=self.sha256_all,
            ts=after.ts,
            build=build,
            schema=self.schema,
            gen=gen,
            at=at,
            detached=self.facts.detached,
        )

    def _is_late(self, ledger: Ledger | None, after: After) -> bool:
        """Tell whether a native text's own time is not before the last record's or those joined."""
        if self.meta is None or (after.joined is not None and self.meta.ts < after.joined):
            return False
        return ledger is None or self.meta.ts >= ledger.last.meta.ts


def content_of(facts: ArtifactFacts, *, is_filtered: bool) -> SealedContent | None:
    """Return what a seal covers; None for a filtered text that does not verify."""
    if facts.detached is not None and facts.is_text:
        # If nothing filters a detached text, it is sealed as the bytes that it has.
        if not is_filtered:
            facts = replace(facts, detached=None, sha256_all=None, meta=None)
        elif facts.is_native:
            facts = replace(facts, opaque=facts.attached_opaque)
    if is_filtered and not facts.is_native:
        if facts.sha256_all is None:
            return SealedContent(facts, b"", facts.schema) if facts.lacks_payload else None
        return SealedContent(facts, facts.sha256_all, facts.schema)
    if facts.opaque is None:
        raise AssertionError("nobody asked for the hash of its bytes")
    if facts.has_wsum:
        return SealedContent(facts, facts.opaque, _OPAQUE, meta=facts.meta)
    # The text that clean makes of a binary determines every byte; a native text's root does not.
    others = (
        frozenset({facts.sha256_all}) if facts.sha256_all and not facts.is_text else frozenset()
    )
    return SealedContent(facts, facts.opaque, _OPAQUE, others, facts.sha256_all, facts.meta)
