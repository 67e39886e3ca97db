"""What a seal makes of ledgers: a plan for each artifact, before anything is signed or written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from wtxtgit.chain.seal_files import ContentReader, SealedFiles
from wtxtgit.chain.seal_state import After, Before, Choice, SealedContent
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

    `now` is the time as a record has it, `build` the word for what made the
    content. `staged` seals the index. `cosign` signs the last records once
    more and appends none, `countersign` those that are not accepted. `reseal`
    is the revision whose records are kept, "" for the one that fits. Where
    trust starts says `trust_root`, for the last two. `identities` open encrypted texts.
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
    """What became of a ledger; one that is kept may be another commit's."""

    SEALED = "sealed"
    MOVED = "moved"
    DELETED = "deleted"
    COSIGNED = "cosigned"
    COUNTERSIGNED = "countersigned"
    UNCHANGED = "unchanged"


@dataclass(slots=True)
class LedgerPlan:
    """What is to become of an artifact's ledger.

    `numbers` are the records to be signed; those of a ledger that `is_adopted` may
    be signed by that key. `is_written` says whether the ledger is another one than
    what is there. It stood at `moved_from`; `taken_from`
    is where its file is to be taken away.
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
        """Sign the records that are to be signed."""
        sign = signer(key.sign, key.public_key)
        for n in self.numbers:
            record = self.records[n]
            signature = sign(text.covered(self.head, record))
            if any(signature.keyid == other.keyid for other in record.signatures):
                if self.is_adopted:
                    continue
                who = shown_path(self.path)
                raise UsageError(
                    f"{who}: generation {record.meta.gen} is signed by that key already"
                )
            with _told_of(self.path):
                signed = with_signature(record, signature)
            self.records = (*self.records[:n], signed, *self.records[n + 1 :])

    def content(self) -> bytes:
        """The ledger's bytes."""
        with _told_of(self.path):
            return text.format_ledger(Ledger(self.head, self.records))


@contextmanager
def _told_of(path: bytes) -> Iterator[None]:
    """Raise CheckError, which names the artifact, for a record that no ledger can hold."""
    try:
        yield
    except TextError as error:
        raise CheckError(f"{shown_path(path)}: {error.message}") from None


@dataclass
class SealPlanner:
    """Sealing under way; without slots, for what is found out once."""

    _files: SealedFiles
    _options: SealOptions
    contents: ContentReader
    _find_before: Callable[[], Before]
    _repo_id: bytes | None = field(default=None, init=False)
    _taken: dict[bytes, bytes] = field(default_factory=dict, init=False)
    """Artifacts whose ledger is to be taken along, and where it is."""

    def plans(self, paths: Sequence[str]) -> Iterator[LedgerPlan]:
        """What is to become of all ledgers that are meant, the signers' first."""
        if self._options.countersign:
            yield from self._countersigned(paths)
            return
        chosen = self._choose(paths)
        contents = {path: content for path in chosen if (content := self.contents.of(path))}
        # Cosigning appends nothing, so no ledger can move with it.
        if not self._options.cosign:
            self._taken = self._take_along(contents)
        left = set(self._taken.values())
        for path in chosen:
            plan = None
            if path in contents:
                plan = self._plan(path, contents[path], chosen)
            elif path not in left:
                plan = self._gone(path)
            if plan is not None:
                yield plan

    def check_key(self, key: SigningKey) -> None:
        """Raise TrustError for a key whose countersignature would not count."""
        if not self._options.countersign or key.public_key in self._before.trusted:
            return
        raise TrustError(
            f"key {key.name} ({keyid(key.public_key)}) is not trusted now, so its signature does "
            f"not count",
            hint="one of the signers in .wtxt/signers has to run wtxtgit seal --countersign "
            "--key KEY",
        )

    # Which artifacts.

    def _choose(self, paths: Sequence[str]) -> list[bytes]:
        """The artifacts that are meant, the signers first: other ledgers name theirs."""
        chosen = self._files.choose(paths, self._is_told_of)
        if self._options.reseal is not None and not paths:
            # What reverts a file's return takes the file away, and brings the ledger back that
            # stood there while it was gone, with a sealed deletion or without.
            chosen |= {
                path
                for path, ledger in self._files.standing.items()
                if ledger.place == path
                and self._files.is_gone(path)
                and self._is_fresh(path)
                and (is_deletion(ledger.last) or self._is_older(path, ledger))
            }
        if self._options.cosign and not paths:
            chosen = {path for path in chosen if self._is_fresh(path)}
            if not chosen:
                raise UsageError("no ledger differs from HEAD; name the files to cosign")
        return sorted(chosen, key=lambda path: (path != SIGNERS_PATH, path))

    def _is_fresh(self, path: bytes) -> bool:
        """Whether a ledger is another one than in the commit before."""
        before = self._files.ledger_at(self._parents[0], path) if self._parents else None
        return self._files.ledger(path) != before

    def _is_older(self, path: bytes, ledger: Ledger) -> bool:
        """Whether a ledger lacks what that of the commit before has."""
        before = self._files.ledger_at(self._parents[0], path) if self._parents else None
        return before is not None and not extends(ledger, before)

    def _is_told_of(self, path: bytes) -> bool:
        """Whether a ledger tells of an artifact that is gone."""
        if self._files.has_ledger(path) or any(self._at_parents(path)):
            return True
        return self._options.reseal is not None and self._before.knows(path)

    # Ledgers that go on.

    def _plan(
        self, path: bytes, content: SealedContent, chosen: Sequence[bytes]
    ) -> LedgerPlan | None:
        """The ledger that an artifact gets."""
        choice = self._kept(path)
        ledger = choice.ledger
        if self._options.cosign:
            return self._cosigned(path, content, ledger)
        at = path if ledger is not None and ledger.place != path else None
        if ledger is not None and content.is_sealed_by(ledger.last) and not (choice.joins or at):
            # One that is kept from another commit is signed already.
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
        with _told_of(path):
            record = self._record(path, content, choice, head, at)
        records = (*(ledger.records if ledger is not None else ()), record)
        action = Action.SEALED if at is None else Action.MOVED
        plan = LedgerPlan(
            path, head, records, action, (len(records) - 1,),
            moved_from=None if ledger is None or at is None else ledger.place,
            taken_from=self._taken.get(path),
        )  # fmt: skip
        self._remember(path, plan)
        return plan

    def _record(
        self,
        path: bytes,
        content: SealedContent,
        choice: Choice,
        head: LedgerHead,
        at: bytes | None,
    ) -> Record:
        ledger, after = choice.ledger, self._after(choice)
        if ledger is not None:
            return content.record(ledger, after, build=self._options.build, at=at)
        record = content.record(None, after, build=self._options.build)
        # Two ledgers of one first record would be one: the later one counts from there.
        # Here, and in the commits that the next one follows: a deleted file's may be there alone.
        others = [*self._files.standing.values(), *self._at_parents(path)]
        gens = [
            other.last.meta.gen for other in others if line_of(other) == (head, record.merkle_this)
        ]
        if not gens:
            return record
        return content.record(None, replace(after, gen=max(gens) + 1), build=self._options.build)

    def _deleted(self, path: bytes, ledger: Ledger | None) -> tuple[Ledger, ...]:
        """Sealed deletions that what is sealed here now has to be later than."""
        try:
            return self._before.deleted(path, ledger)
        except (TrustError, EnvironmentFailure, InputError):
            # Where trust starts is for the audit to complain of.
            return ()

    def _after(self, choice: Choice) -> After:
        """What the next record has to be later than: all that it joins."""
        lasts = [one.last.meta for one in choice.joined]
        joined = max((last.ts for last in lasts), default=None)
        now = self._options.now
        gen = max((last.gen for last in lasts), default=0) + 1
        return After(now if joined is None else max(now, joined), gen, joined)

    def _remember(self, path: bytes, plan: LedgerPlan) -> None:
        """What other ledgers call the repository is the first record of the signers'."""
        if path == SIGNERS_PATH:
            self._repo_id = plan.records[0].merkle_this

    def _kept(self, path: bytes) -> Choice:
        """The ledger whose records stay."""
        if self._options.reseal is None:
            if path in self._taken:
                return Choice(self._files.standing[self._taken[path]])
            return Choice(self._files.ledger(path), is_here=True)
        standing = dict(self._files.standing)
        if path in self._taken:
            standing[path] = standing.pop(self._taken[path])
        here = standing.get(path)
        sides = [*self._at_sides(path), *self._files.sides(path)]
        repo_id = NO_REPO if path == SIGNERS_PATH else self._repo_of(path)
        return self._before.choose(path, here, sides, standing, repo_id)

    def _gone(self, path: bytes) -> LedgerPlan | None:
        """The ledger of an artifact that was named, and is deleted."""
        if path == SIGNERS_PATH or not self._files.is_gone(path):
            return None
        choice = self._kept(path)
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
            self._check_is_left(path, ledger)
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
        with _told_of(path):
            after = self._after(choice)
            record = deletion_record(ledger, ts=after.ts, gen=after.gen_of(ledger))
        records = (*ledger.records, record)
        return LedgerPlan(path, ledger.head, records, Action.DELETED, (len(ledger.records),))

    def _cosigned(
        self, path: bytes, content: SealedContent, ledger: Ledger | None
    ) -> LedgerPlan | None:
        if ledger is None:
            return None
        self.contents.check_payload(path, content)
        if not content.is_named_by(ledger.last):
            raise CheckError(
                f"{shown_path(path)}: its last record is of other content",
                hint=f"wtxtgit seal -- {self._files.quoted(path)} seals what is there",
            )
        return self._with_signature(path, ledger)

    def _with_signature(self, path: bytes, ledger: Ledger) -> LedgerPlan:
        return LedgerPlan(
            path, ledger.head, ledger.records, Action.COSIGNED, (len(ledger.records) - 1,),
            is_adopted=self._is_adopted(path),
        )  # fmt: skip

    def _is_adopted(self, path: bytes) -> bool:
        return path in self._files.adopted

    def _countersigned(self, paths: Sequence[str]) -> Iterator[LedgerPlan]:
        """Ledgers with records that count once a key that is trusted now signs them."""
        before = self._before
        for path, staged in self._files.choose_ledgers(paths).items():
            ledger = self._files.ledger(path) or staged
            # Violations are those of what is staged: an adopted ledger may have mended them.
            wrong = before.wrong_signature(path, staged) if before.is_signed else None
            if wrong is not None:
                raise TrustError(
                    f"{shown_path(path)}: {wrong.kind}: {wrong.message}",
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

    # Ledgers that move, and begin.

    def _take_along(self, contents: Mapping[bytes, SealedContent]) -> dict[bytes, bytes]:
        """Artifacts that were moved without their ledgers, with the paths of those before.

        Raises CheckError where more than one may be meant.
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
        left = {
            path: ledger
            for path, ledger in self._files.standing.items()
            if ledger.place == path
            and path != SIGNERS_PATH
            and not lets_go(ledger)
            and self._files.is_gone(path)
        }
        candidates = {
            path: [one for one in left if contents[path].is_sealed_by(left[one].last)]
            for path in new
        }
        taken = {path: some[0] for path, some in candidates.items() if some}
        for path, some in candidates.items():
            if len(some) > 1:
                names = " and ".join(shown_path(one + LEDGER_SUFFIX) for one in some)
                raise CheckError(
                    f"{shown_path(path)}: it may have been moved with any of the ledgers {names}",
                    hint=f"git mv -- {self._files.quoted(some[0] + LEDGER_SUFFIX)} "
                    f"{self._files.quoted(path + LEDGER_SUFFIX)} says with which",
                )
            same = [other for other, others in candidates.items() if others == some and some]
            if len(same) > 1:
                names = " and ".join(map(shown_path, same))
                raise CheckError(
                    f"{shown_path(some[0] + LEDGER_SUFFIX)}: it may be the ledger of {names}",
                    hint=f"git mv -- {self._files.quoted(some[0] + LEDGER_SUFFIX)} "
                    f"{self._files.quoted(path + LEDGER_SUFFIX)} says of which",
                )
        return taken

    def _check_move(self, path: bytes, ledger: Ledger) -> None:
        """Raise CheckError for a ledger that can't move here."""
        if SIGNERS_PATH in (path, ledger.place):
            raise CheckError(
                f"{shown_path(path)}: its ledger belongs to {shown_path(ledger.place)}, and the "
                "signers stay where they are",
                hint="move both back with git mv",
            )
        self._check_is_left(path, ledger)
        standing = self._files.standing
        for before in self._at_parents(path):
            if (
                before.place == path
                and not lets_go(before)
                and not extends(ledger, before)
                and not any(extends(other, before) for other in standing.values())
            ):
                name = self._files.quoted(path + LEDGER_SUFFIX)
                raise CheckError(
                    f"{shown_path(path)}: a new ledger must continue the one that was there",
                    hint=f"git checkout HEAD -- {name}, then wtxtgit seal --staged -- "
                    f"{self._files.quoted(path)}",
                )

    def _check_is_left(self, path: bytes, ledger: Ledger) -> None:
        """Raise CheckError where another place has the ledger, too."""
        for other, there in self._files.standing.items():
            if other in (path, self._taken.get(path)) or there.head != ledger.head:
                continue
            # One begins the other: a copy, which would fork the moment that either goes on.
            if shared(there, ledger) == min(len(there.records), len(ledger.records)):
                raise CheckError(
                    f"{shown_path(path)}: {shown_path(other)} has the same ledger",
                    hint=f"wtxtgit seal --reseal -- {self._files.quoted(path)} "
                    "begins one of its own",
                )

    def _check_begins(self, path: bytes, chosen: Sequence[bytes]) -> None:
        """Raise CheckError where a ledger that was moved away still counts here."""
        moved = set(self._taken.values())
        for other, ledger in self._files.standing.items():
            if ledger.place == path != other and other not in chosen and other not in moved:
                raise CheckError(
                    f"{shown_path(path)}: its ledger was moved to {shown_path(other)}, but "
                    "the move is not sealed",
                    hint=f"wtxtgit seal -- {self._files.quoted(other)} "
                    f"{self._files.quoted(path)} seals both",
                )

    def _repo_of(self, path: bytes) -> bytes:
        """What a ledger that begins now says of its repository."""
        if path == SIGNERS_PATH:
            return NO_REPO
        if self._repo_id is None:
            signers = self._files.ledger(SIGNERS_PATH)
            self._repo_id = NO_REPO if signers is None else signers.records[0].merkle_this
        return self._repo_id

    # What was before.

    @cached_property
    def _before(self) -> Before:
        """What is known before the next commit."""
        if self._options.reseal is not None and not self._parents:
            raise UsageError("no commit yet whose records could be kept")
        return self._find_before()

    @cached_property
    def _parents(self) -> list[str]:
        """The commits that the next one is to have as parents."""
        return history.next_parents(history.Head(self._files.repo))

    def _at_parents(self, path: bytes) -> list[Ledger]:
        """The ledgers that those have at an artifact; what does not read is as none."""
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
        """The ledgers of the commits whose records may stay, those to be kept first."""
        return self._at(list(dict.fromkeys([self._reseal_from, *self._parents])), path)

    @cached_property
    def _reseal_from(self) -> str:
        """The commit whose records stay."""
        if self._options.reseal:
            return history.resolve(self._files.repo, self._options.reseal + "^{commit}")
        parents = self._parents
        if not parents:
            raise UsageError("no commit yet whose records could be kept")
        upstream = history.default_branch(self._files.repo)
        if upstream is not None:
            tip = history.resolve(self._files.repo, upstream + "^{commit}")
            for parent in parents:
                if history.is_ancestor(self._files.repo, parent, tip):
                    return parent
        return parents[0]
