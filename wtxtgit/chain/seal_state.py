"""What is known before the next commit, and which ledger goes on by it.

`docs/spec/trust.md` has the rules. A ledger that is in nobody's tree any more
has to go on all the same, so trees of commits alone do not tell what to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wtxtgit.chain.reader import ChainReader, signed
from wtxtgit.chain.states import KeptStates
from wtxtgit.chain.walk import NOBODY, Walk
from wtxtgit.errors import CheckError
from wtxtgit.git import history
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.history import AlteredHistory
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown_path
from wtxtgit.model.ledger import NO_REPO, SIGNERS_PATH, Ledger, extends
from wtxtgit.trust.state import (
    LineId,
    Signers,
    State,
    Violation,
    join,
    lets_go,
    line_of,
    open_ledgers,
    shared,
    start,
    unaccepted,
)
from wtxtgit.trust.step import step


@dataclass(frozen=True, slots=True)
class Choice:
    """The ledger that goes on at a path, None where one begins.

    `joined` are those that a further record, later than each, has to join with
    it, whatever the content. `is_here` says that the ledger that is here stays.
    """

    ledger: Ledger | None
    joined: tuple[Ledger, ...] = ()
    is_here: bool = False

    @property
    def joins(self) -> bool:
        return bool(self.joined)


class Before:
    """The state before a commit that is made now, and what is wrong with what is staged."""

    def __init__(self, state: State, after: State, violations: Sequence[Violation]) -> None:
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
        entries: Iterable[Entry],
        trust_root: str | None,
        kept: KeptStates,
    ) -> Before:
        """What is known from a trust root on; `entries` are those of the index.

        Raises BadRoot, EnvironmentFailure and KeyFileError for trust roots that
        are none.
        """
        parents = history.next_parents(repo)
        try:
            history.refuse_altered(repo)
        except AlteredHistory:
            # Who is trusted is not known then: what the parents hold stands.
            trees = [reader.tree(snapshots.files(oid)) for oid in parents]
            state = join([start(Signers(), tree) for tree in trees]) if trees else NOBODY
        else:
            walk = Walk.to(repo, parents, trust_root, reader, snapshots, kept=kept)
            state = walk.before(parents)
        after, violations = step(reader.tree(snapshots.staged(entries)), state, signed)
        return cls(state, after, violations)

    # Signatures.

    @property
    def is_signed(self) -> bool:
        return self._state.is_signed

    @property
    def trusted(self) -> frozenset[bytes]:
        """Keys whose signatures count in that commit."""
        return self._state.trusted | self._after.trusted

    def unsigned(self, ledger: Ledger) -> list[int]:
        """The records, by number, that count once a key that is trusted signs them."""
        return [
            n
            for n in unaccepted(self._state, ledger, signed)
            if not signed(ledger, n, self.trusted).valid
        ]

    def wrong_signature(self, path: bytes, ledger: Ledger) -> Violation | None:
        """A signature of a ledger's record that no further one mends."""
        first = unaccepted(self._state, ledger, signed).start
        gens = {record.meta.gen for record in ledger.records[:first]}
        for one in self._violations:
            if one.path != path:
                continue
            if one.kind == "bad-signature" or (one.kind == "untrusted-signer" and one.gen in gens):
                return one
        return None

    # Ledgers.

    def knows(self, path: bytes) -> bool:
        """Whether a ledger has to go on at a path."""
        return any(
            one.place == path and not lets_go(one) for some in self._open.values() for one in some
        )

    def choose(
        self,
        path: bytes,
        here: Ledger | None,
        sides: Sequence[Ledger],
        standing: Mapping[bytes, Ledger],
        repo_id: bytes,
    ) -> Choice:
        """The ledger whose records stay at a path.

        `here` is the one that stands there. Of several that may go on that is
        taken which the first of `sides` belongs to. `standing` are all ledgers
        here, by their artifacts. Raises CheckError where none can go on.
        """
        lines = {line_of(one) for one in (*sides, *((here,) if here is not None else ()))}
        lines |= {
            name for name, some in self._open.items() if any(one.place == path for one in some)
        }
        free = [
            one
            for name in sorted(lines, key=_order)
            for one in self._open.get(name, ())
            if self._holder(one, standing) in (None, path)
        ]
        away = [one for one in free if one.place != path and not lets_go(one)]
        mine = [one for one in free if one.place == path and not lets_go(one)]
        deleted = [one for one in free if one.place == path and lets_go(one)]
        is_here = here is not None and self._is_settled(path, here, [*away, *mine])
        if is_here:
            return Choice(here, is_here=True)
        if here is not None and any(line_of(one) == line_of(here) for one in away):
            away = [one for one in away if line_of(one) == line_of(here)]
        # One that comes from elsewhere joins those of its own line alone.
        if away and all(line_of(one) == line_of(away[0]) for one in (*away, *mine)):
            one = self._only_one(path, away)
        elif mine or deleted:
            one = _preferred(mine or deleted, sides)
        else:
            begins = here is not None and self._begins_here(path, here, repo_id)
            return Choice(here if begins else None, is_here=begins)
        others = {*mine, *(self._other_signers(one) if path == SIGNERS_PATH else ())} - {one}
        # What is older than a sealed deletion does not come back by itself.
        others |= {gone for gone in deleted if not extends(one, gone) and not _is_later(one, gone)}
        return Choice(one, tuple(others))

    def deleted(self, path: bytes, ledger: Ledger | None) -> tuple[Ledger, ...]:
        """Sealed deletions at a path, which what a ledger says there next has to be later than."""
        return tuple(
            one
            for some in self._open.values()
            for one in some
            if one.place == path and lets_go(one) and not (ledger and extends(ledger, one))
        )

    def _is_settled(self, path: bytes, here: Ledger, others: Sequence[Ledger]) -> bool:
        """Whether the ledger that is here holds, and all others went on in it."""
        return not any(one.path == path for one in self._violations) and all(
            extends(here, one) or one not in self._still_open for one in others
        )

    def _other_signers(self, ledger: Ledger) -> Iterator[Ledger]:
        """Ledgers of other signers that are trusted now, too: a change is later than each."""
        for signers in self._state.newest:
            if signers.ledger is not None and not extends(ledger, signers.ledger):
                yield signers.ledger

    def _holder(self, ledger: Ledger, standing: Mapping[bytes, Ledger]) -> bytes | None:
        """Where an open ledger goes on already."""
        own = standing.get(ledger.place)
        if own is not None and extends(own, ledger):
            return ledger.place
        found = [path for path, other in standing.items() if extends(other, ledger)]
        found.sort(key=lambda path: (standing[path].place != path, path))
        return found[0] if found else None

    def _only_one(self, path: bytes, away: Sequence[Ledger]) -> Ledger:
        """The ledger that moves here, which those that stand here are joined with."""
        if len(away) > 1:
            places = " and ".join(sorted(shown_path(one.place) for one in away))
            raise CheckError(
                f"{shown_path(path)}: its ledger went on at {places}",
                hint="git mv it and its ledger to one of these, seal that, and move on from there",
            )
        return away[0]

    def _begins_here(self, path: bytes, here: Ledger, repo_id: bytes) -> bool:
        """Whether a ledger that nobody knows yet is that of this path."""
        return (
            line_of(here) not in self._state.lines
            and here.place == path
            and here.head.repo in (repo_id, NO_REPO)
        )


def _is_later(one: Ledger, other: Ledger) -> bool:
    last, before = one.last.meta, other.last.meta
    return (last.ts, last.gen) > (before.ts, before.gen)


def _preferred(ledgers: Sequence[Ledger], sides: Iterable[Ledger]) -> Ledger:
    """Of several ledgers that may go on, that of the first side that has one; else the longest."""
    for side in sides:
        found = [one for one in ledgers if shared(one, side)]
        if found:
            return max(found, key=lambda one: (shared(one, side), len(one.records)))
    return max(ledgers, key=lambda one: (len(one.records), one.last.merkle_this))


def _order(line: LineId) -> tuple[bytes, bytes, bytes]:
    head, first = line
    return head.repo, head.path, first
