"""Seal: records of artifacts' contents, appended to their ledgers and signed.

Ledgers stand in the work tree, and in the index where that is sealed: there
both get the same bytes. All is made and signed before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from wtxtgit.errors import CheckError, TextError, UsageError
from wtxtgit.git import history, index
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.repository import Repository
from wtxtgit.model import Signature
from wtxtgit.model.ledger import LEDGER_SUFFIX, NO_REPO, SIGNERS_PATH, Head, Ledger, Record, extends
from wtxtgit.ops.artifact import ArtifactFacts
from wtxtgit.ops.examine import examine
from wtxtgit.ops.files import shown_path
from wtxtgit.ops.seal_files import SealedFiles
from wtxtgit.text import ledger as text
from wtxtgit.text.digest import keyid
from wtxtgit.text.ledger_chain import native_record, next_record, with_signature
from wtxtgit.trust.signing import SigningKey


@dataclass(frozen=True, slots=True)
class SealOptions:
    """How to seal.

    `now` is the time as a record has it, `build` the word for what made the
    content. `staged` seals the index. `cosign` signs the last records once
    more and appends none. `reseal` is the revision whose records are kept,
    "" for the one that fits.
    """

    now: str
    build: str = "none"
    staged: bool = False
    cosign: bool = False
    reseal: str | None = None


class Action(StrEnum):
    """What became of a ledger; one that is kept may be another commit's."""

    SEALED = "sealed"
    COSIGNED = "cosigned"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Sealed:
    """What became of an artifact."""

    path: bytes
    action: Action
    gen: int
    sha256_all: bytes

    def as_dict(self) -> dict[str, object]:
        return {
            "path": os.fsdecode(self.path),
            "action": str(self.action),
            "gen": self.gen,
            "sha256_all": self.sha256_all.hex(),
        }


@dataclass(frozen=True, slots=True)
class SealReport:
    """What became of all artifacts, and by which key: None where nothing was signed.

    `is_listed` says whether the key is one of the signers file.
    """

    sealed: tuple[Sealed, ...]
    keyid: str | None = None
    is_listed: bool = True

    def as_dict(self) -> dict[str, object]:
        return {
            "keyid": self.keyid,
            "listed": self.is_listed,
            "sealed": [sealed.as_dict() for sealed in self.sealed],
        }


def seal(
    repo: Repository,
    paths: Sequence[str],
    key: Callable[[], SigningKey],
    options: SealOptions,
    *,
    threads: int | None = None,
) -> SealReport:
    """Seal artifacts: those at `paths` (files or folders, from here), or all.

    `key` gives the signing key, and is called where there is something to sign.

    Raises CheckError for what can't be sealed (raw or damaged contents,
    ledgers that do not read or differ between index and work tree), InputError
    for paths that are no artifacts, UsageError for a key that can't cosign.
    """
    repo.check_worktree()
    is_staged = options.staged or options.reseal is not None
    with BlobReader(repo) as blobs:
        files = SealedFiles(repo, blobs, is_staged)
        work = _Work(files, options, threads)
        plans = [plan for path in work.choose(paths) if (plan := work.plan(path)) is not None]
        unsigned = [plan for plan in plans if plan.action is not Action.UNCHANGED]
        signer = key() if unsigned else None
        if signer is not None:
            for plan in unsigned:
                plan.sign(signer)
        files.write({p.path + LEDGER_SUFFIX: p.content() for p in plans if p.is_written})
        outcomes = tuple(plan.outcome() for plan in plans)
        if signer is None:
            return SealReport(outcomes)
        return SealReport(outcomes, keyid(signer.public_key), signer.public_key in files.signers)


@dataclass(slots=True)
class _Plan:
    """What is to become of an artifact's ledger.

    The last record is to be signed unless nothing changes; `is_written` says
    whether the ledger is another one than what is there.
    """

    path: bytes
    head: Head
    records: tuple[Record, ...]
    action: Action
    is_written: bool = True

    def sign(self, key: SigningKey) -> None:
        """Sign the last record."""
        last = self.records[-1]
        made = Signature(key.sign(text.covered(self.head, last)), keyid(key.public_key))
        if any(signature.keyid == made.keyid for signature in last.signatures):
            who = shown_path(self.path)
            raise UsageError(f"{who}: generation {last.meta.gen} is signed by that key already")
        try:
            self.records = (*self.records[:-1], with_signature(last, made))
        except TextError as error:
            raise CheckError(f"{shown_path(self.path)}: {error.message}") from None

    def content(self) -> bytes:
        """The ledger's bytes."""
        try:
            return text.format_ledger(Ledger(self.head, self.records))
        except TextError as error:
            raise CheckError(f"{shown_path(self.path)}: {error.message}") from None

    def outcome(self) -> Sealed:
        last = self.records[-1]
        return Sealed(self.path, self.action, last.meta.gen, last.sha256_all)


@dataclass
class _Work:
    """Sealing under way; without slots, for what is found out once."""

    _files: SealedFiles
    _options: SealOptions
    _threads: int | None
    _repo_id: bytes | None = field(default=None, init=False)

    def choose(self, paths: Sequence[str]) -> list[bytes]:
        """The artifacts that are meant, the signers first: other ledgers name theirs."""
        chosen = self._files.choose(paths)
        if self._options.cosign and not paths:
            chosen = {path for path in chosen if self._is_fresh(path)}
            if not chosen:
                raise UsageError("no ledger differs from HEAD's: name what is to be cosigned")
        return sorted(chosen, key=lambda path: (path != SIGNERS_PATH, path))

    def _is_fresh(self, path: bytes) -> bool:
        """Whether a ledger is another one than in the commit before."""
        before = self._files.ledger_at(self._parents[0], path) if self._parents else None
        return self._files.ledger(path) != before

    def plan(self, path: bytes) -> _Plan | None:
        """The ledger that an artifact gets, None where it has no content here."""
        facts = self._facts(path)
        if facts is None:
            return None
        ledger = self._kept_ledger(path)
        if self._options.cosign:
            return self._cosigned(path, facts, ledger)
        is_resealed = self._options.reseal is not None
        is_joining = is_resealed and self._is_joining(path, ledger)
        if ledger is not None and ledger.last.sha256_all == facts.sha256_all and not is_joining:
            # One that is kept from another commit is signed already.
            is_other = is_resealed and not self._files.has(path, ledger)
            return _Plan(path, ledger.head, ledger.records, Action.UNCHANGED, is_other)
        record = self._record(path, facts, ledger)
        head = ledger.head if ledger is not None else self._first_head(path)
        records = (*(ledger.records if ledger is not None else ()), record)
        if path == SIGNERS_PATH and self._repo_id is None:
            self._repo_id = records[0].merkle_this
        return _Plan(path, head, records, Action.SEALED)

    def _record(self, path: bytes, facts: ArtifactFacts, ledger: Ledger | None) -> Record:
        if facts.sha256_all is None:
            raise CheckError(f"{shown_path(path)}: {facts.fault}")
        try:
            if facts.meta is not None:
                return native_record(ledger, sha256_all=facts.sha256_all, meta=facts.meta)
            return next_record(
                ledger,
                sha256_all=facts.sha256_all,
                ts=self._options.now,
                build=self._options.build,
                schema=facts.schema,
            )
        except TextError as error:
            raise CheckError(f"{shown_path(path)}: {error.message}") from None

    def _cosigned(self, path: bytes, facts: ArtifactFacts, ledger: Ledger | None) -> _Plan | None:
        if ledger is None:
            return None
        if ledger.last.sha256_all != facts.sha256_all:
            raise CheckError(
                f"{shown_path(path)}: its last record is of other content",
                hint=f"wtxtgit seal -- {shown_path(path)} seals what is there",
            )
        return _Plan(path, ledger.head, ledger.records, Action.COSIGNED)

    def _first_head(self, path: bytes) -> Head:
        """The first line of a ledger that begins now: no other one has the same."""
        head = Head(self._repo_of(path), path)
        other = self._files.place_of(head)
        if other is not None and other != path:
            raise CheckError(
                f"{shown_path(path)}: the ledger of {shown_path(other)} began at this path, "
                "no two may begin alike",
                hint="git mv the file to a name that was not sealed yet",
            )
        return head

    def _repo_of(self, path: bytes) -> bytes:
        """What a ledger that begins now says of its repository."""
        if path == SIGNERS_PATH:
            return NO_REPO
        if self._repo_id is None:
            signers = self._files.ledger(SIGNERS_PATH)
            self._repo_id = NO_REPO if signers is None else signers.records[0].merkle_this
        return self._repo_id

    def _facts(self, path: bytes) -> ArtifactFacts | None:
        self._files.check_settled(path)
        data = self._files.content(path)
        if data is None:
            return None
        facts = examine(data, threads=self._threads)
        if self._files.is_staged and path in self._files.filtered and not facts.is_text:
            raise CheckError(
                f"{shown_path(path)}: staged as a binary, not as the text of the filter",
                hint=f"wtxtgit install, then git add --renormalize -- {shown_path(path)}",
            )
        if facts.sha256_all is None:
            raise CheckError(
                f"{shown_path(path)}: {facts.fault}", hint=f"wtxtgit verify -- {shown_path(path)}"
            )
        if not facts.is_canonical and path in self._files.filtered:
            raise CheckError(
                f"{shown_path(path)}: a valid text, but not the one that clean gives",
                hint=f"git add --renormalize -- {shown_path(path)}",
            )
        return facts

    def _kept_ledger(self, path: bytes) -> Ledger | None:
        """The ledger whose records stay."""
        if self._options.reseal is None:
            return self._files.ledger(path)
        kept = self._files.ledger_at(self._reseal_from, path)
        if kept is not None:
            return kept if self._options.reseal else self._gone_on(path, kept)
        for other in self._parents:
            if (found := self._files.ledger_at(other, path)) is not None:
                return found
        return None if path + LEDGER_SUFFIX in self._files.conflicts else self._files.ledger(path)

    # After merges.

    def _gone_on(self, path: bytes, kept: Ledger) -> Ledger:
        """The longest ledger of a side that went on from the one that is kept, or that one."""
        sides = (self._files.ledger_at(commit, path) for commit in self._sides)
        further = [other for other in sides if other is not None and extends(other, kept)]
        return max(further, key=lambda other: len(other.records), default=kept)

    @cached_property
    def _parents(self) -> list[str]:
        """The commits that the next one is to have as parents."""
        return history.next_parents(self._files.repo)

    @cached_property
    def _reseal_from(self) -> str:
        """The commit whose records stay."""
        if self._options.reseal:
            return index.resolve(self._files.repo, self._options.reseal + "^{commit}")
        parents = self._parents
        if not parents:
            raise UsageError("there is no commit yet whose records could be kept")
        upstream = history.default_branch(self._files.repo)
        if upstream is not None:
            tip = index.resolve(self._files.repo, upstream + "^{commit}")
            for parent in parents:
                if history.is_ancestor(self._files.repo, parent, tip):
                    return parent
        return parents[0]

    @cached_property
    def _sides(self) -> list[str]:
        """The commits whose records are to stay: parents, and those of a merge at HEAD."""
        parents = self._parents
        if len(parents) != 1:
            return parents
        # A merge that was made already is going to be amended.
        before = history.head(self._files.repo)
        merged = before.parents if before is not None else ()
        return [*parents, *(merged if len(merged) > 1 else ())]

    def _is_joining(self, path: bytes, kept: Ledger | None) -> bool:
        """Whether a parent has records that the kept ledger lacks."""
        others = (self._files.ledger_at(commit, path) for commit in self._sides)
        return any(
            other is not None and (kept is None or not extends(kept, other)) for other in others
        )
