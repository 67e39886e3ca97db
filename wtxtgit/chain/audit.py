"""Audit: proves the chain of every artifact across commits.

Trust states are computed for all commits, from the trust root forward. Of the commits in the range
the changes are judged, of each tip the whole tree. Each blob is examined once, by several
processes; verdicts are never cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from wtxtgit.chain import judge
from wtxtgit.chain.judge import JudgedFiles, attribute_twins, of_violation, untracked
from wtxtgit.chain.reader import ChainReader, Facts, artifacts, signed
from wtxtgit.chain.walk import BadRoot, Walk, commit_of
from wtxtgit.git import attributes, history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.repository import TRUST_ROOT, Repository
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import ENCRYPTED_SUFFIX, LEDGER_SUFFIX, SIGNERS_PATH
from wtxtgit.report.audit import AuditReport, DetachedTexts, Finding, Severity, as_errors
from wtxtgit.trust.state import TrustFacts, Violation, join, seals_move, unaccepted
from wtxtgit.trust.step import step

if TYPE_CHECKING:  # `wtxtgit audit` keeps no states, only hooks do
    from wtxtgit.chain.state_cache import StateCache
    from wtxtgit.checkpoint.encrypted import EncryptedTexts
    from wtxtgit.trust.age.identities import AgeIdentity

_MOST_MISLEADING = 100
"""Most findings at a tip about files that look like checkpoints."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What is to be audited.

    `tip` and `base` are revisions: commits that `base` or one of `known` reaches are not judged.
    `trust_root` is a revision or a signers file. `was` is the tip that the branch had before a
    push: the tip has to descend from it, unless nobody was ever trusted there. With `every` the
    commits of merged side branches are judged as well. With `all_refs` all branches and tags are
    tips, besides `tip`. `signers_of` is a commit whose signers also have to accept all records of
    the tips. With `strict` warnings are errors, and the checkpoints of the tips are checked as by
    `verify --strict`. `identities` decrypt the encrypted texts of the tips.
    """

    tip: str = "HEAD"
    base: str | None = None
    trust_root: str | None = None
    was: str | None = None
    every: bool = False
    require_signed: bool = False
    known: tuple[str, ...] = ()
    all_refs: bool = False
    signers_of: str | None = None
    strict: bool = False
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)


def audit(
    repo: Repository,
    request: AuditRequest,
    facts: Facts,
    *,
    progress: Progress | None = None,
    cache: StateCache | None = None,
) -> AuditReport:
    """Judge a range of commits, and its tips; `progress` gets counts of blobs.

    States of commits before the range are taken from `cache` if it has any. Raises
    EnvironmentFailure for unknown revisions, and KeyFileError for a trust root that is an
    unreadable file.
    """
    try:
        history.refuse_altered(repo)
    except history.AlteredHistory as error:
        return AuditReport(0, findings=(Finding("", b"", "shallow", error.message),))
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as snapshots:
        tip = commit_of(repo, request.tip)
        tips = list(dict.fromkeys([tip, *(history.tips(repo) if request.all_refs else ())]))
        was, signers_tip = (
            commit_of(repo, name) if name is not None else None
            for name in (request.was, request.signers_of)
        )
        root, reader = request.trust_root, ChainReader(blobs)
        walk = Walk(repo, reader, snapshots)
        if was is not None and root is None and not walk.has_had_signers(was):
            # Where nobody seals, a branch may be amended and rebased.
            was = None
        targets = [*tips, *(oid for oid in (was, signers_tip) if oid is not None)]
        session = _Audit(repo, request, tips, was, signers_tip, facts, progress, walk)
        revisions = [request.base, request.was, *request.known]
        judged_before = [commit_of(repo, name) for name in revisions if name is not None]
        try:
            walk.go(targets, root, cache=cache, judged_before=judged_before, visit=session.visit)
        except BadRoot as error:
            return AuditReport(0, findings=(Finding("", b"", "bad-root", error.message),))
        return session.report()


@dataclass
class _Audit:
    """An audit in progress; without slots, for its cached properties."""

    _repo: Repository
    _request: AuditRequest
    _tips: list[str]
    _was: str | None
    """The tip before the push."""
    _signers_tip: str | None
    """The commit whose signers also have to accept all records."""
    _facts: Facts
    _progress: Progress | None
    _walk: Walk
    _changes: dict[str, JudgedFiles] = field(default_factory=dict, init=False)
    """The artifacts that each judged commit changes."""
    _detached: DetachedTexts | None = field(default=None, init=False)

    def visit(self, oid: str) -> None:
        """Note what a commit changes, if it is to be judged, while the walk has its files."""
        if any(oid in line for line in self._lines.values()):
            self._changes[oid] = self._changed(oid)

    def report(self) -> AuditReport:
        """Judge all commits and tips that the walk has reached."""
        walk = self._walk
        findings = list(self._judge_roots())
        lines = [oid for line in self._lines.values() for oid in line if oid not in walk.unjudged]
        judged = dict.fromkeys(lines)
        changes = {oid: self._changes[oid] for oid in judged}
        tip_trees = {tip: self._whole(tip) for tip in self._lines}
        every = [*changes.values(), *(files for files, *_ in tip_trees.values())]
        opaque = {oid for files in every for oid in files.unfiltered}
        blob_ids = dict.fromkeys(oid for files in every for oid in files.blobs.values())
        # All blobs at once, so that the processes share the reading.
        facts = self._facts.of(blob_ids, self._progress, opaque=opaque)
        self._detached = judge.detached_texts(every, facts.__getitem__)
        by_commit: dict[str, list[Finding]] = {}
        for oid, files in changes.items():
            introduced = [of_violation(oid, one) for one in self._introduced(oid, judged)]
            trust = walk.standing(oid)
            verdicts = judge.judge(oid, files, walk.reader, facts.__getitem__, trust)
            by_commit[oid] = [*introduced, *verdicts]
        findings += [finding for some in by_commit.values() for finding in some]
        # A finding that was reported for a commit on the tip's line is not reported again for the
        # tip.
        kinds_at_tips: set[str] = set()
        for tip, (files, trust, violations, name_findings) in tip_trees.items():
            verdicts = judge.judge(tip, files, walk.reader, facts.__getitem__, trust)
            reported = {
                (one.path, one.kind, one.severity)
                for oid in self._lines[tip].keys() & judged.keys()
                for one in by_commit[oid]
            }
            tip_findings = [
                *(of_violation(tip, one) for one in violations),
                *verdicts,
                *name_findings,
            ]
            kinds_at_tips.update(one.kind for one in tip_findings)
            findings += [
                one for one in tip_findings if (one.path, one.kind, one.severity) not in reported
            ]
            findings += self._judge_push(tip)
            findings += self._judge_encrypted(tip, files)
            if self._request.strict:
                # Imported here: most audits don't look into checkpoints, and need no format's
                # checks.
                from wtxtgit.chain.strict import judge_contents

                findings += judge_contents(self._walk.repo, tip, files.blobs)
        settled = {one.kind for one in findings} - kinds_at_tips
        return self._summary(len(judged), findings, frozenset(settled))

    def _judge_encrypted(self, tip: str, files: JudgedFiles) -> Iterator[Finding]:
        blobs = {
            path: oid
            for path, oid in files.blobs.items()
            if path.endswith(ENCRYPTED_SUFFIX) and path not in files.filtered
        }
        if blobs:
            from wtxtgit.chain.encrypted import judge_encrypted

            yield from judge_encrypted(self._walk.repo, tip, blobs, self._opener)

    @cached_property
    def _opener(self) -> EncryptedTexts:
        from wtxtgit.checkpoint.encrypted import EncryptedTexts

        return EncryptedTexts(self._request.identities)

    # Which commits and files are judged.

    @cached_property
    def _base(self) -> set[str]:
        """The commits of the walk that are not judged."""
        revisions = (self._request.base, *self._request.known)
        bases = [commit_of(self._repo, base) for base in revisions if base is not None]
        return {commit.oid for commit in self._walk.graph.listed(bases)}

    @cached_property
    def _lines(self) -> dict[str, dict[str, None]]:
        """For each tip, the commits to be judged as changes, parents first."""
        tips = (tip for tip in self._tips if self._reaches_root(tip))
        return {tip: dict.fromkeys(self._line(tip)) for tip in tips}

    def _line(self, tip: str) -> list[str]:
        commits = self._walk.commits
        if self._request.every:
            reachable = self._walk.graph.listed([tip])
            return [c.oid for c in reachable if c.oid in commits and c.oid not in self._base]
        line: list[str] = []
        oid: str | None = tip
        while oid is not None and oid in commits and oid not in self._base:
            line.append(oid)
            oid = commits[oid].parents[0] if commits[oid].parents else None
        return line[::-1]

    def _changed(self, oid: str) -> JudgedFiles:
        """Return the artifacts that a commit changes compared with its first parent."""
        walk, snapshots = self._walk, self._walk.snapshots
        first = next(iter(walk.commits[oid].parents), None)
        snapshot = walk.snapshot(oid)
        before = walk.snapshot(first) if first is not None else None
        changes = snapshots.changes(first, oid)
        return judge.changed(snapshots, oid, snapshot, before, changes, walk.standing(oid))

    def _whole(
        self, tip: str
    ) -> tuple[JudgedFiles, TrustFacts, Sequence[Violation], Sequence[Finding]]:
        """Return what is judged at a tip: all its artifacts, and the trust facts to judge them by.

        Also returns the violations in its ledgers and signers, and findings about misleading names.
        """
        walk, snapshots = self._walk, self._walk.snapshots
        trust, violations = walk.standing(tip), list(walk.violations(tip))
        if self._was is not None:
            # What the tip adds is in its own state already; new is only what it lacks compared with
            # the old tip.
            before = join([walk.state(self._was), walk.state(tip)])
            state, lost = step(walk.tree(tip), before, signed)
            violations += lost
            trust = state.facts
        violations += self._unaccepted(tip)
        (root, *_) = walk.start.signers
        signers = walk.tree(tip).signers
        if root.is_fixed and root.file is not None and signers not in (None, root.file):
            message = "not the signers file that is the trust root"
            violations.append(Violation("signers-changed", SIGNERS_PATH, message))
        listing = snapshots.listing(tip)
        files = judge.whole(snapshots, walk.snapshot(tip), listing, trust)
        return files, trust, violations, list(self._misleading_names(tip, listing, files.paths))

    def _unaccepted(self, tip: str) -> Iterator[Violation]:
        """Yield violations for records of a tip that the signers of `signers_of` do not accept."""
        if self._signers_tip is None:
            return
        state = join([self._walk.state(tip), self._walk.state(self._signers_tip)])
        for path, ledger in self._walk.tree(tip).ledgers.items():
            for n in unaccepted(state, ledger, signed)[:1]:
                gen = ledger.records[n].meta.gen
                message = (
                    f"generation {gen} is not signed by any key that is trusted at the other tip"
                )
                artifact = path.removesuffix(LEDGER_SUFFIX)
                yield Violation("untrusted-signer", artifact, message, gen)

    def _introduced(self, oid: str, judged: dict[str, None]) -> Iterator[Violation]:
        """Yield what a commit violates, except moves that were sealed later in all tips that
        contain it.
        """
        tips = [tip for tip, line in self._lines.items() if oid in line]
        for violation in self._walk.brought(oid, judged):
            states = (self._walk.state(tip) for tip in tips)
            if not all(seals_move(state, violation, signed) for state in states):
                yield violation

    # Findings that concern no file.

    def _judge_roots(self) -> Iterator[Finding]:
        walk = self._walk
        if self._request.require_signed and not walk.start.is_signed:
            is_given = self._request.trust_root is not None
            message = "the trust root has no signers" if is_given else "no commit has signers"
            yield Finding("", b"", "bad-root", message)
        for tip in self._tips:
            if not self._reaches_root(tip):
                message = f"the tip does not descend from the trust root {walk.root or ''!s:.12}"
                yield Finding(tip, b"", "bad-root", message)

    def _reaches_root(self, tip: str) -> bool:
        return self._walk.root is None or self._walk.graph.reaches_base(tip)

    def _judge_push(self, tip: str) -> Iterator[Finding]:
        was = self._was
        if was is not None and not self._walk.graph.descends(tip, was):
            message = f"the tip does not descend from {was[:12]}, where the branch was"
            yield Finding(tip, b"", "bad-root", message)

    def _misleading_names(
        self, tip: str, listing: Mapping[bytes, TreeEntry], judged: Sequence[bytes]
    ) -> Iterator[Finding]:
        """Yield findings for files that look like checkpoints but are neither tracked nor sealed.

        Nothing is reported if the tip has no artifact at all; `judged` are its artifacts.
        """
        walk = self._walk
        snapshot = walk.snapshot(tip)
        if not judged:
            return
        for path in attribute_twins(listing):
            message = "some file systems treat it as a gitattributes file"
            yield Finding(tip, path, "altered-checkout", message)
        lines = (
            line
            for oid in snapshot.attribute_files.values()
            for line in attributes.parse(walk.reader.attribute_file(oid))
        )
        files = (path for path, entry in listing.items() if entry.is_file)
        for n, (path, why) in enumerate(untracked(files, frozenset(judged), lines)):
            if n == _MOST_MISLEADING:
                break
            yield Finding(tip, path, "untracked-artifact", why, Severity.WARNING)

    def _summary(
        self, judged: int, findings: Iterable[Finding], settled: frozenset[str]
    ) -> AuditReport:
        walk, tip = self._walk, self._tips[0]
        snapshot = walk.snapshot(tip)
        present = [path for path in artifacts(snapshot) if path in snapshot.entries]
        ledgers = walk.tree(tip).ledgers
        trusted = self._trusted_at(tip)
        principals = sorted(walk.reader.principals.get(key, key.hex()) for key in trusted)
        reported = as_errors(findings) if self._request.strict else tuple(dict.fromkeys(findings))
        return AuditReport(
            judged,
            len(present),
            sum(len(ledger.records) for ledger in ledgers.values()),
            tuple(principals),
            reported,
            walk.count_unjudged(),
            tuple(self._notes(judged, matches=bool(present and principals and not reported))),
            self._detached,
            settled,
        )

    def _trusted_at(self, tip: str) -> frozenset[bytes]:
        """Return the keys trusted by the tip and the branch's old tip together.

        So a push of an older tip does not bring back a key that was removed.
        """
        states = [self._walk.state(oid) for oid in (tip, self._was) if oid is not None]
        return join(states).trusted

    def _notes(self, judged: int, *, matches: bool) -> Iterator[str]:
        walk = self._walk
        if self._request.trust_root is None:
            yield "no trust root is given: " + (
                f"trust starts at {walk.root[:12]}, the first commit with signers that was seen; "
                f"git config {TRUST_ROOT} {walk.root} fixes it there"
                if walk.root is not None
                else "nobody is trusted, since no commit has signers"
            )
        elif not walk.start.is_signed:
            yield "the trust root has no signers"
        if not judged:
            proved = ", but the files at the tip match their seals" if matches else ""
            yield f"no commit was judged{proved}"
        if self._detached is not None:
            yield str(self._detached)
        if "_opener" in self.__dict__ and (note := self._opener.note()) is not None:
            yield note
