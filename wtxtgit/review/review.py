"""Review: every checkpoint that a branch changes, what changed in it, and what is risky.

The review goes on whatever a checkpoint holds: one that can't be compared is reported with the
reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from wtxtgit.chain import judge
from wtxtgit.chain.judge import JudgedFiles
from wtxtgit.chain.reader import ChainReader, Facts, artifacts
from wtxtgit.chain.walk import BadRoot, Walk
from wtxtgit.errors import clipped
from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.history import AlteredHistory, CommitReader, changing
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io.progress import Progress, expect
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.remotes.lfs_pointer import POINTER
from wtxtgit.report.audit import Finding
from wtxtgit.report.figures import OID_SHOWN
from wtxtgit.report.review import (
    SEVERE,
    Fate,
    Flag,
    Review,
    Reviewed,
    ReviewedCommit,
    Risk,
    Sizes,
    by_severity,
)
from wtxtgit.review.changes import (
    Branch,
    ChangedCheckpoint,
    attribute_notes,
    branch_of,
    changes,
    with_bases,
)
from wtxtgit.review.contents import BranchReader, Comparer, Comparison, StoredBlob, here
from wtxtgit.review.seals import Seals
from wtxtgit.review.sets import with_sets
from wtxtgit.setup.sizes import large_blob, max_blob

MOST_COMMITS = 50
"""The most commits listed for a checkpoint, newest first."""
MOST_SUBJECT = 200
"""The longest subject of a commit in characters."""
MOST_AUTHOR = 100
"""The longest author of a commit in characters."""


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """What is to be reviewed, and how.

    `asked` is a range as `branch.branch_of` parses it, `trust_root` a revision or a signers file.
    `with_distributions` reads tensors a second time for histograms of their values.
    """

    asked: str | None = None
    trust_root: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    with_distributions: bool = False


def review(
    repo: Repository,
    request: ReviewRequest,
    facts: Facts,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    comparer: Comparer = here,
) -> Review:
    """Review what a branch changes; `progress` receives counts of bytes read.

    Raises UsageError for an invalid range, EnvironmentFailure for unknown revisions, and
    KeyFileError for a trust root's file.
    """
    branch = branch_of(repo, request.asked)
    with (
        BlobReader(repo) as blobs,
        ObjectStore(repo) as store,
        CommitFilesReader(repo) as snapshots,
        CommitReader(repo) as commits,
    ):
        if branch.is_whole:
            snapshots.adopt(branch.before)
        seals, notes = _seals(repo, request, branch, blobs, snapshots)
        contents = BranchReader(
            repo,
            store,
            branch,
            request.options,
            threads,
            request.with_distributions,
            progress,
        )
        under_way = _ReviewWork(repo, branch, commits, seals, contents, comparer)
        return under_way.run(facts, notes, progress)


def _seals(
    repo: Repository,
    request: ReviewRequest,
    branch: Branch,
    blobs: BlobReader,
    snapshots: CommitFilesReader,
) -> tuple[Seals, list[str]]:
    """Return the chain, and notes on it for the reader."""
    reader = ChainReader(blobs)
    notes = []
    if branch.is_whole:
        notes.append(
            "this clone has no remote branch, so HEAD is compared with nothing; wtxtgit review "
            "BASE...HEAD compares it with where it branched off BASE"
        )
    fault = None
    try:
        history.refuse_altered(repo)
        walk = Walk.to(repo, [branch.after.oid], request.trust_root, reader, snapshots)
    except (AlteredHistory, BadRoot) as error:
        walk = Walk(repo, reader, snapshots)
        fault = error.message
    line = history.commits(repo, [branch.after.oid], branch.known, first_parent=True)
    every = history.commits(repo, [branch.after.oid], branch.known)
    ids = frozenset(commit.oid for commit in every)
    seals = Seals(walk, blobs, branch, tuple(line), ids, fault)
    if fault is not None and (seals.anybody_seals or request.trust_root is not None):
        notes.append(f"no signer is trusted: {fault}")
    notes += _notes_on_trust(seals)
    return seals, notes


def _notes_on_trust(seals: Seals) -> Iterator[str]:
    walk, branch = seals.walk, seals.branch
    if walk.is_first_use and walk.root is not None:
        whose = ", which is on this branch itself" if seals.is_self_made else ""
        where = f"trust starts at {walk.root[:12]}, the first commit with signers{whose}"
        yield f"no trust root is given: {where}"
    elif walk.root is not None and not walk.start.is_signed:
        yield "the trust root has no signers"
    states = [walk.snapshot(commit.oid) for commit in (branch.before, branch.after)]
    before, after = (state.entries.get(SIGNERS_PATH) for state in states)
    # Only mentioned here: audit decides along the history whether such a change counts.
    if before != after and not branch.is_whole:
        yield "the branch changes .wtxt/signers; wtxtgit audit checks whether that is allowed"
    for violation in seals.signer_changes():
        yield f".wtxt/signers: {violation.message}"


@dataclass(frozen=True, slots=True)
class _ReviewWork:
    """A review in progress."""

    repo: Repository
    branch: Branch
    commits: CommitReader
    seals: Seals
    contents: BranchReader
    comparer: Comparer

    def run(self, facts: Facts, notes: list[str], progress: Progress | None) -> Review:
        branch, walk = self.branch, self.seals.walk
        changed, more = changes(self.repo, branch, walk.snapshots, walk.reader)
        ends = [walk.snapshot(commit.oid) for commit in (branch.before, branch.after)]
        changed = with_sets(self.repo, branch, changed, artifacts(ends[0]) | artifacts(ends[1]))
        files = self._files(changed)
        verified = [*self._to_be_verified(changed), *files.blobs.values()]
        # How many bytes are in each shows when it is opened.
        expect(progress, None, len(changed))
        known = facts.of(verified, progress, opaque=files.unfiltered)
        after = branch.after.oid
        # Judged as `audit` judges the head, so that both agree on a seal.
        judged: dict[bytes, list[Finding]] = {}
        for finding in judge.judge(
            after, files, walk.reader, known.__getitem__, walk.standing(after)
        ):
            judged.setdefault(finding.path, []).append(finding)
        more += attribute_notes(self.repo, *ends)
        # One limit for flags and sizes, which are shown side by side.
        limit = max_blob(self.repo)
        changed = with_bases(self.repo, branch, changed)
        compared = self._compared(changed)
        reviewed = [
            self._reviewed(
                one,
                contents,
                self._with_wsum(one, files, known),
                judged.get(one.path, ()),
                limit,
                touching,
            )
            for one, contents, touching in zip(
                changed, compared, self._commits(changed), strict=True
            )
        ]
        return Review(
            branch.base,
            branch.head,
            branch.before.oid,
            branch.after.oid,
            len(self.seals.all_commits),
            tuple(sorted(reviewed, key=_weight)),
            (*notes, *more),
        )

    def _compared(self, changed: Sequence[ChangedCheckpoint]) -> list[Comparison]:
        """Compare checkpoints, in their order; shards separately if their set can't be compared."""
        compared = list(self.comparer(self.contents, changed))
        pairs = zip(changed, compared, strict=True)
        unread = {one.path for one, contents in pairs if one.parts and contents.report is None}
        alone = [n for n, one in enumerate(changed) if one.part_of in unread]
        again = [replace(changed[n], part_of=None) for n in alone]
        # Without work, do not start a cluster.
        for n, contents in zip(
            alone, self.comparer(self.contents, again) if again else (), strict=True
        ):
            compared[n] = contents
        return compared

    def _with_wsum(
        self, changed: ChangedCheckpoint, files: JudgedFiles, known: dict[str, ArtifactFacts]
    ) -> dict[str, ArtifactFacts]:
        """Add facts on a text that has a WSUM, verified together with it."""
        oid = None if changed.after is None else changed.after.oid
        if oid is None or oid not in known:
            return known
        return known | {
            oid: judge.facts_at(changed.path, files, self.seals.walk.reader, known[oid])
        }

    def _files(self, changed: list[ChangedCheckpoint]) -> JudgedFiles:
        """Return the files to judge at the head: the artifacts among what the branch changes."""
        walk, oid = self.seals.walk, self.branch.after.oid
        listing = walk.snapshots.listing(oid)
        files = judge.whole(walk.snapshots, walk.snapshot(oid), listing, walk.standing(oid))
        return files.only({path for checkpoint in changed for path in checkpoint.paths})

    def _to_be_verified(self, changed: list[ChangedCheckpoint]) -> list[str]:
        """Return blobs to be verified completely: those that are sealed, and those added."""
        state = self.seals.walk.snapshot(self.branch.after.oid)
        ledgers = state.entries
        return [
            checkpoint.after.oid
            for checkpoint in changed
            if checkpoint.after is not None
            and checkpoint.after.is_file
            and (
                checkpoint.path + LEDGER_SUFFIX in ledgers
                # The index of a set need not be a text or have the filter.
                or (
                    checkpoint.fate is Fate.ADDED
                    and (not checkpoint.parts or checkpoint.path in state.filtered)
                )
            )
        ]

    def _reviewed(
        self,
        changed: ChangedCheckpoint,
        comparison: Comparison,
        facts: dict[str, ArtifactFacts],
        findings: Sequence[Finding],
        limit: int,
        touching: tuple[ReviewedCommit, ...],
    ) -> Reviewed:
        seal, of_seal = self.seals.seal(changed, facts, findings)
        before, after = comparison.stored
        sizes = Sizes(
            *comparison.sizes,
            None if before is None else before.size,
            None if after is None else after.size,
            limit,
        )
        is_compared = comparison.report is not None
        of_blob = self._of_blob(changed, facts, after, limit, is_compared=is_compared)
        flags = [*of_blob, *comparison.flags, *of_seal]
        return Reviewed(
            changed.path,
            changed.fate,
            changed.base_path,
            comparison.report,
            comparison.reason,
            comparison.groups,
            tuple(by_severity(_once(flags))),
            seal,
            sizes,
            touching,
            comparison.distributions,
            comparison.delta,
        )

    def _of_blob(
        self,
        changed: ChangedCheckpoint,
        facts: dict[str, ArtifactFacts],
        stored: StoredBlob | None,
        limit: int,
        *,
        is_compared: bool,
    ) -> Iterator[Flag]:
        """Yield what is risky about the blob at the head itself."""
        entry = changed.after
        if entry is None:
            what = "delta" if changed.is_delta else "checkpoint"
            yield Flag(Risk.REMOVED, f"the {what} was removed")
            return
        if stored is None:
            return
        known = facts.get(entry.oid)
        # A comparison has read all that differs; the rest has the same hashes as the base.
        is_read = is_compared and changed.before is not None
        if known is not None and known.lacks_payload:
            if not is_read:
                commit = self.branch.after.oid[:OID_SHOWN]
                yield Flag(Risk.UNREAD, f"{known.fault}: wtxtgit fetch {commit} fetches it")
        elif known is not None and known.fault is not None:
            yield Flag(Risk.DAMAGED, known.fault)
        state = self.seals.walk.snapshot(self.branch.after.oid)
        base = self.seals.walk.snapshot(self.branch.before.oid)
        was_filtered = changed.base_path in base.filtered
        if changed.path not in state.filtered and was_filtered:
            yield Flag(Risk.RAW, "its attributes no longer name the filter")
        elif changed.path in state.filtered and stored.is_pointer:
            yield Flag(Risk.POINTER, f"{POINTER}: wtxtgit fetch, then git add --renormalize")
        elif changed.path in state.filtered and not stored.is_text:
            yield Flag(Risk.RAW, "a raw binary, not the text that the filter makes")
        large = large_blob(stored.size, limit)
        if large is not None:
            yield Flag(Risk.LARGE, large)

    def _commits(
        self, changed: Sequence[ChangedCheckpoint]
    ) -> Iterator[tuple[ReviewedCommit, ...]]:
        """Yield, for each checkpoint, the commits of the branch that change it, newest first."""
        every = history.commits(self.repo, [self.branch.after.oid], self.branch.known)
        paths = {path for checkpoint in changed for path in checkpoint.touched}
        touching = changing(self.repo, every, paths, self.commits)
        commits: dict[str, ReviewedCommit] = {}
        for checkpoint in changed:
            numbers = sorted({number for path in checkpoint.touched for number in touching[path]})
            newest = [every[number].oid for number in numbers[: -MOST_COMMITS - 1 : -1]]
            for oid in newest:
                if oid not in commits:
                    commits[oid] = self._commit(oid)
            yield tuple(commits[oid] for oid in newest)

    def _commit(self, oid: str) -> ReviewedCommit:
        author, date = self.commits.author(oid)
        subject = clipped(self.commits.subject(oid), MOST_SUBJECT)
        return ReviewedCommit(oid, subject, clipped(author, MOST_AUTHOR), date)


def _once(flags: list[Flag]) -> Iterator[Flag]:
    """Yield flags in their order; the same thing said twice of a whole file appears once."""
    listed = set()
    for flag in flags:
        is_whole = flag.tensor is None and flag.risk in (Risk.DAMAGED, Risk.UNREAD)
        key = flag.risk, flag.tensor, "" if is_whole else flag.message
        if key not in listed:
            listed.add(key)
            yield flag


def _weight(reviewed: Reviewed) -> tuple[int, int, float, bytes]:
    """The sort key: most severe risks first, then most flags, then the largest change."""
    severe = {flag.risk for flag in reviewed.flags} & SEVERE
    relative = 0.0
    if reviewed.diff is not None:
        change = reviewed.diff.summary.relative_l2
        relative = inf if change is None else change
    return -len(severe), -len(reviewed.flags), -relative, reviewed.path
