"""What a seal does to ledgers: a plan for each artifact, before anything is signed or written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from wtxtgit.chain.seal_files import ContentReader, SealedFiles
from wtxtgit.chain.seal_state import After, LedgerChoice, SealedContent, StateBefore
from wtxtgit.errors import (
    CheckError,
    EnvironmentFailure,
    InputError,
    TextError,
    TrustError,
    UsageError,
)
from wtxtgit.git import history
from wtxtgit.io.files import shown_path
from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_PATH,
    Ledger,
    LedgerHead,
    Record,
    extends,
    is_deletion,
    shared,
)
from wtxtgit.text import ledger as text
from wtxtgit.text.digest import keyid, signer
from wtxtgit.text.ledger import deletion_record, with_signature
from wtxtgit.trust.signing import SigningKey
from wtxtgit.trust.state import lets_go, line_of

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.trust.age.identities import AgeIdentity


@dataclass(frozen=True, slots=True)
class SealOptions:
    """How to seal.

    `now` is the time for records, `build` the word for what made the content. `staged` seals the
    index. `cosign` adds a signature to the last records and appends none, `countersign` adds one to
    records that are not accepted. `reseal` is the revision whose records are kept, "" to find the
    one that fits. `trust_root` is used for the last two. `identities` decrypt encrypted texts.
    """

    now: str
    build: str = "none"
    staged: bool = False
    cosign: bool = False
    reseal: str | None = None
    countersign: bool = False
    trust_root: str | None = None
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)


class Action(StrEnum):
    """What happens to a ledger; an UNCHANGED one may come from another commit."""

    SEALED = "sealed"
    MOVED = "moved"
    DELETED = "deleted"
    COSIGNED = "cosigned"
    COUNTERSIGNED = "countersigned"
    UNCHANGED = "unchanged"


@dataclass(slots=True)
class LedgerPlan:
    """What happens to an artifact's ledger.

    `numbers` are the indices of the records to be signed; in a ledger that `is_adopted` they may
    have a signature of the key already. `is_written` says whether the ledger differs from what is
    there. `moved_from` is where it stood before; `taken_from` is where its file has to be removed.
    """

    path: bytes
    head: LedgerHead
    records: tuple[Record, ...]
    action: Action
    numbers: tuple[int, ...] = ()
    is_written: bool = True
    moved_from: bytes | None = None
    taken_from: bytes | None = None
    is_adopted: bool = False

    def sign(self, key: SigningKey) -> None:
        """Sign the records `numbers`."""
        sign = signer(key.sign, key.public_key)
        for n in self.numbers:
            record = self.records[n]
            signature = sign(text.covered(self.head, record))
            if any(signature.keyid == other.keyid for other in record.signatures):
                if self.is_adopted:
                    continue
                artifact = shown_path(self.path)
                raise UsageError(
                    f"{artifact}: generation {record.meta.gen} is signed by that key already"
                )
            with _naming_artifact(self.path):
                signed = with_signature(record, signature)
            self.records = (*self.records[:n], signed, *self.records[n + 1 :])

    def content(self) -> bytes:
        """Return the ledger's bytes."""
        with _naming_artifact(self.path):
            return text.format_ledger(Ledger(self.head, self.records))


@contextmanager
def _naming_artifact(path: bytes) -> Iterator[None]:
    """Turn an error about a record that no ledger can hold into a CheckError that names the
    artifact.
    """
    try:
        yield
    except TextError as error:
        raise CheckError(f"{shown_path(path)}: {error.message}") from None


@dataclass
class SealPlanner:
    """A seal in progress; without slots, for cached properties."""

    _files: SealedFiles
    _options: SealOptions
    contents: ContentReader
    _find_state_before: Callable[[], StateBefore]
    _repo_id: bytes | None = field(default=None, init=False)
    _moved: dict[bytes, bytes] = field(default_factory=dict, init=False)
    """New paths of artifacts that were moved without their ledgers, with the old paths."""

    def plans(self, paths: Sequence[str]) -> Iterator[LedgerPlan]:
        """Yield the plans for all chosen ledgers, that of the signers first."""
        if self._options.countersign:
            yield from self._plan_countersigning(paths)
            return
        chosen = self._choose(paths)
        contents = {path: content for path, content in self.contents.of_all(chosen) if content}
        # Cosigning appends nothing, so it can't move a ledger.
        if not self._options.cosign:
            self._moved = self._find_moved(contents)
        old_places = set(self._moved.values())
        for path in chosen:
            plan = None
            if path in contents:
                plan = self._plan(path, contents[path], chosen)
            elif path not in old_places:
                plan = self._plan_deletion(path)
            if plan is not None:
                yield plan

    def check_key(self, key: SigningKey) -> None:
        """Raise TrustError if the key's countersignature would not count."""
        if not self._options.countersign or key.public_key in self._state_before.trusted:
            return
        raise TrustError(
            f"key {key.name} ({keyid(key.public_key)}) is not trusted now, so its signature does "
            f"not count",
            hint="one of the signers in .wtxt/signers has to run wtxtgit seal --countersign "
            "--key KEY",
        )

    # Choosing artifacts.

    def _choose(self, paths: Sequence[str]) -> list[bytes]:
        """Return the chosen artifacts, the signers first, because other ledgers refer to theirs."""
        chosen = self._files.choose(paths, self._is_known)
        if self._options.reseal is not None and not paths:
            # Reverting the return of a file removes it and brings back the ledger from the time
            # when it was gone, with or without a sealed deletion.
            chosen |= {
                path
                for path, ledger in self._files.ledgers.items()
                if ledger.place == path
                and self._files.is_gone(path)
                and self._differs_from_parent(path)
                and (is_deletion(ledger.last) or self._lacks_parent_records(path, ledger))
            }
        if self._options.cosign and not paths:
            chosen = {path for path in chosen if self._differs_from_parent(path)}
            if not chosen:
                raise UsageError("no ledger differs from HEAD; name the files to cosign")
        return sorted(chosen, key=lambda path: (path != SIGNERS_PATH, path))

    def _differs_from_parent(self, path: bytes) -> bool:
        """Tell whether a ledger differs from the one in the parent commit."""
        before = self._files.ledger_at(self._parents[0], path) if self._parents else None
        return self._files.ledger(path) != before

    def _lacks_parent_records(self, path: bytes, ledger: Ledger) -> bool:
        """Tell whether a ledger lacks records of the one in the parent commit."""
        before = self._files.ledger_at(self._parents[0], path) if self._parents else None
        return before is not None and not extends(ledger, before)

    def _is_known(self, path: bytes) -> bool:
        """Tell whether there is a ledger for an artifact that is gone."""
        if self._files.has_ledger(path) or any(self._at_parents(path)):
            return True
        return self._options.reseal is not None and self._state_before.knows(path)

    # Ledgers that continue.

    def _plan(
        self, path: bytes, content: SealedContent, chosen: Sequence[bytes]
    ) -> LedgerPlan | None:
        """Plan the ledger of an artifact that exists; None if nothing is to be done."""
        choice = self._choose_ledger(path)
        ledger = choice.ledger
        if self._options.cosign:
            return self._plan_cosigning(path, content, ledger)
        at = path if ledger is not None and ledger.place != path else None
        if ledger is not None and content.is_sealed_by(ledger.last) and not (choice.joins or at):
            # A ledger that is kept from another commit is signed already.
            is_other = self._is_adopted(path) or (
                not choice.is_here and not self._files.has(path, ledger)
            )
            plan = LedgerPlan(
                path, ledger.head, ledger.records, Action.UNCHANGED, is_written=is_other
            )
            self._remember(path, plan)
            return plan
        self.contents.check_payload(path, content)
        if ledger is not None and at is not None and self._options.reseal is None:
            self._check_move(path, ledger)
        if ledger is None:
            self._check_begins(path, chosen)
        if (ledger is None or at is not None) and self._options.reseal is None:
            choice = replace(choice, joined=self._deleted(path, ledger))
        head = LedgerHead(self._repo_of(path), path) if ledger is None else ledger.head
        with _naming_artifact(path):
            record = self._record(path, content, choice, head, at)
        records = (*(ledger.records if ledger is not None else ()), record)
        action = Action.SEALED if at is None else Action.MOVED
        plan = LedgerPlan(
            path, head, records, action, (len(records) - 1,),
            moved_from=None if ledger is None or at is None else ledger.place,
            taken_from=self._moved.get(path),
        )  # fmt: skip
        self._remember(path, plan)
        return plan

    def _record(
        self,
        path: bytes,
        content: SealedContent,
        choice: LedgerChoice,
        head: LedgerHead,
        at: bytes | None,
    ) -> Record:
        ledger, after = choice.ledger, self._after(choice)
        if ledger is not None:
            return content.record(ledger, after, build=self._options.build, at=at)
        record = content.record(None, after, build=self._options.build)
        # Two ledgers with the same first record would be the same: the later one begins with a
        # higher generation. Parent commits count too, since the ledger of a deleted file may only
        # be there.
        others = [*self._files.ledgers.values(), *self._at_parents(path)]
        gens = [
            other.last.meta.gen for other in others if line_of(other) == (head, record.merkle_this)
        ]
        if not gens:
            return record
        return content.record(None, replace(after, gen=max(gens) + 1), build=self._options.build)

    def _deleted(self, path: bytes, ledger: Ledger | None) -> tuple[Ledger, ...]:
        """Return the sealed deletions that a seal at this path now has to be later than."""
        try:
            return self._state_before.deleted(path, ledger)
        except (TrustError, EnvironmentFailure, InputError):
            # An invalid trust root is reported by the audit.
            return ()

    def _after(self, choice: LedgerChoice) -> After:
        """Return what the next record has to be later than: all ledgers that it joins."""
        lasts = [one.last.meta for one in choice.joined]
        joined = max((last.ts for last in lasts), default=None)
        now = self._options.now
        gen = max((last.gen for last in lasts), default=0) + 1
        return After(now if joined is None else max(now, joined), gen, joined)

    def _remember(self, path: bytes, plan: LedgerPlan) -> None:
        """Keep the first record of the signers' ledger: other ledgers name the repository by it."""
        if path == SIGNERS_PATH:
            self._repo_id = plan.records[0].merkle_this

    def _choose_ledger(self, path: bytes) -> LedgerChoice:
        """Return the ledger whose records are kept."""
        if self._options.reseal is None:
            if path in self._moved:
                return LedgerChoice(self._files.ledgers[self._moved[path]])
            return LedgerChoice(self._files.ledger(path), is_here=True)
        ledgers = dict(self._files.ledgers)
        if path in self._moved:
            ledgers[path] = ledgers.pop(self._moved[path])
        current = ledgers.get(path)
        sides = [*self._at_sides(path), *self._files.sides(path)]
        repo_id = NO_REPO if path == SIGNERS_PATH else self._repo_of(path)
        return self._state_before.choose(path, current, sides, ledgers, repo_id)

    def _plan_deletion(self, path: bytes) -> LedgerPlan | None:
        """Plan the ledger of an artifact that was named but is deleted; None if there is nothing
        to seal.
        """
        if path == SIGNERS_PATH or not self._files.is_gone(path):
            return None
        choice = self._choose_ledger(path)
        ledger = choice.ledger
        if self._options.cosign:
            if ledger is None:
                return None
            return self._with_signature(path, ledger)
        if ledger is None:
            ledger = next(iter(self._at_parents(path)), None)
        if ledger is None:
            return None
        if self._options.reseal is None:
            self._check_no_copy(path, ledger)
        if ledger.place != path:
            raise CheckError(
                f"{shown_path(path)}: its ledger is that of {shown_path(ledger.place)}",
                hint=f"git mv -- {self._files.quoted(path + LEDGER_SUFFIX)} "
                f"{self._files.quoted(ledger.place + LEDGER_SUFFIX)}, then wtxtgit seal "
                f"--staged -- {self._files.quoted(ledger.place)}; or put the file back",
            )
        if is_deletion(ledger.last) and not choice.joins:
            is_other = not self._files.has(path, ledger)
            return LedgerPlan(
                path, ledger.head, ledger.records, Action.UNCHANGED, is_written=is_other
            )
        with _naming_artifact(path):
            after = self._after(choice)
            record = deletion_record(ledger, ts=after.ts, gen=after.gen_of(ledger))
        records = (*ledger.records, record)
        return LedgerPlan(path, ledger.head, records, Action.DELETED, (len(ledger.records),))

    def _plan_cosigning(
        self, path: bytes, content: SealedContent, ledger: Ledger | None
    ) -> LedgerPlan | None:
        if ledger is None:
            return None
        self.contents.check_payload(path, content)
        if not content.is_named_by(ledger.last):
            raise CheckError(
                f"{shown_path(path)}: its last record is for different content",
                hint=f"wtxtgit seal -- {self._files.quoted(path)} seals the current content",
            )
        return self._with_signature(path, ledger)

    def _with_signature(self, path: bytes, ledger: Ledger) -> LedgerPlan:
        return LedgerPlan(
            path, ledger.head, ledger.records, Action.COSIGNED, (len(ledger.records) - 1,),
            is_adopted=self._is_adopted(path),
        )  # fmt: skip

    def _is_adopted(self, path: bytes) -> bool:
        return path in self._files.adopted

    def _plan_countersigning(self, paths: Sequence[str]) -> Iterator[LedgerPlan]:
        """Yield plans for ledgers with records that will count once a currently trusted key
        signs them.
        """
        before = self._state_before
        for path, staged in self._files.choose_ledgers(paths).items():
            ledger = self._files.ledger(path) or staged
            # The violations are those of the staged ledger: an adopted one may have mended them.
            violation = before.wrong_signature(path, staged) if before.is_signed else None
            if violation is not None:
                raise TrustError(
                    f"{shown_path(path)}: {violation.kind}: {violation.message}",
                    hint=f"wtxtgit seal --reseal -- {self._files.quoted(path)} "
                    "continues without it",
                )
            missing = {n for one in (staged, ledger) for n in before.unsigned(one)}
            numbers = tuple(sorted(missing)) if before.is_signed else ()
            action = Action.COUNTERSIGNED if numbers else Action.UNCHANGED
            is_adopted = self._is_adopted(path)
            yield LedgerPlan(
                path, ledger.head, ledger.records, action, numbers,
                is_written=bool(numbers) or is_adopted, is_adopted=is_adopted,
            )  # fmt: skip

    # Ledgers that move, and that begin.

    def _find_moved(self, contents: Mapping[bytes, SealedContent]) -> dict[bytes, bytes]:
        """Return the new paths of artifacts that were moved without their ledgers, each with its
        old path.

        Raises CheckError if this is ambiguous.
        """
        new = [
            path
            for path in contents
            if path != SIGNERS_PATH
            and not self._files.has_ledger(path)
            and not any(self._at_parents(path))
        ]
        if not new:
            return {}
        orphaned = {
            path: ledger
            for path, ledger in self._files.ledgers.items()
            if ledger.place == path
            and path != SIGNERS_PATH
            and not lets_go(ledger)
            and self._files.is_gone(path)
        }
        candidates = {
            path: [place for place in orphaned if contents[path].is_sealed_by(orphaned[place].last)]
            for path in new
        }
        moved = {path: sources[0] for path, sources in candidates.items() if sources}
        for path, sources in candidates.items():
            if len(sources) > 1:
                names = " and ".join(shown_path(place + LEDGER_SUFFIX) for place in sources)
                raise CheckError(
                    f"{shown_path(path)}: it may have been moved with any of the ledgers {names}",
                    hint=f"git mv -- {self._files.quoted(sources[0] + LEDGER_SUFFIX)} "
                    f"{self._files.quoted(path + LEDGER_SUFFIX)} chooses the first",
                )
            same = [other for other, others in candidates.items() if others == sources and sources]
            if len(same) > 1:
                names = " and ".join(map(shown_path, same))
                raise CheckError(
                    f"{shown_path(sources[0] + LEDGER_SUFFIX)}: it may be the ledger of {names}",
                    hint=f"git mv -- {self._files.quoted(sources[0] + LEDGER_SUFFIX)} "
                    f"{self._files.quoted(path + LEDGER_SUFFIX)} gives it to that file",
                )
        return moved

    def _check_move(self, path: bytes, ledger: Ledger) -> None:
        """Raise CheckError if a ledger can't move here."""
        if SIGNERS_PATH in (path, ledger.place):
            raise CheckError(
                f"{shown_path(path)}: its ledger belongs to {shown_path(ledger.place)}, and the "
                "signers file can't be moved",
                hint="move both back with git mv",
            )
        self._check_no_copy(path, ledger)
        ledgers = self._files.ledgers
        for previous in self._at_parents(path):
            if (
                previous.place == path
                and not lets_go(previous)
                and not extends(ledger, previous)
                and not any(extends(other, previous) for other in ledgers.values())
            ):
                name = self._files.quoted(path + LEDGER_SUFFIX)
                raise CheckError(
                    f"{shown_path(path)}: a new ledger must continue the one that was there",
                    hint=f"git stash push -- {name}, then wtxtgit seal --staged -- "
                    f"{self._files.quoted(path)}",
                )

    def _check_no_copy(self, path: bytes, ledger: Ledger) -> None:
        """Raise CheckError if another place has the same ledger."""
        for other, copy in self._files.ledgers.items():
            if other in (path, self._moved.get(path)) or copy.head != ledger.head:
                continue
            # One is a prefix of the other: a copy, which would fork as soon as either continues.
            if shared(copy, ledger) == min(len(copy.records), len(ledger.records)):
                raise CheckError(
                    f"{shown_path(path)}: {shown_path(other)} has the same ledger",
                    hint=f"wtxtgit seal --reseal -- {self._files.quoted(path)} "
                    "starts a ledger of its own",
                )

    def _check_begins(self, path: bytes, chosen: Sequence[bytes]) -> None:
        """Raise CheckError if a ledger that was moved away still counts at this path."""
        moved = set(self._moved.values())
        for other, ledger in self._files.ledgers.items():
            if ledger.place == path != other and other not in chosen and other not in moved:
                raise CheckError(
                    f"{shown_path(path)}: its ledger was moved to {shown_path(other)}, but "
                    "the move is not sealed",
                    hint=f"wtxtgit seal -- {self._files.quoted(other)} "
                    f"{self._files.quoted(path)} seals both",
                )

    def _repo_of(self, path: bytes) -> bytes:
        """Return what a ledger that begins now names as its repository."""
        if path == SIGNERS_PATH:
            return NO_REPO
        if self._repo_id is None:
            signers = self._files.ledger(SIGNERS_PATH)
            self._repo_id = NO_REPO if signers is None else signers.records[0].merkle_this
        return self._repo_id

    # What was before.

    @cached_property
    def _state_before(self) -> StateBefore:
        """What is known before the next commit."""
        if self._options.reseal is not None and not self._parents:
            raise UsageError("no commit yet, so no records to keep")
        return self._find_state_before()

    @cached_property
    def _parents(self) -> list[str]:
        """The parents of the next commit."""
        return history.next_parents(history.Head(self._files.repo))

    def _at_parents(self, path: bytes) -> list[Ledger]:
        """Return the ledgers of an artifact in the parents; invalid ones are left out."""
        return self._at(self._parents, path)

    def _at(self, commits: Sequence[str], path: bytes) -> list[Ledger]:
        ledgers = []
        for commit in commits:
            try:
                ledger = self._files.ledger_at(commit, path)
            except CheckError:
                continue
            if ledger is not None:
                ledgers.append(ledger)
        return ledgers

    def _at_sides(self, path: bytes) -> list[Ledger]:
        """Return the ledgers in the commits whose records may be kept, preferred ones first."""
        return self._at(list(dict.fromkeys([self._reseal_from, *self._parents])), path)

    @cached_property
    def _reseal_from(self) -> str:
        """The commit whose records are kept."""
        if self._options.reseal:
            return history.resolve(self._files.repo, self._options.reseal + "^{commit}")
        parents = self._parents
        if not parents:
            raise UsageError("no commit yet, so no records to keep")
        upstream = history.default_branch(self._files.repo)
        if upstream is not None:
            tip = history.resolve(self._files.repo, upstream + "^{commit}")
            for parent in parents:
                if history.is_ancestor(self._files.repo, parent, tip):
                    return parent
        return parents[0]
