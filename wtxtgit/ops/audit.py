"""Audit: the chain of every artifact, proved across commits.

S, the trusted signers, is computed over all commits from the trust root
forward; the commits of the range are judged. Facts about blobs are found once
each, in several processes; verdicts are never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.history import Commit
from wtxtgit.git.repository import Repository
from wtxtgit.git.snapshots import Snapshots
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.ops import judge
from wtxtgit.ops.artifact import ArtifactFacts
from wtxtgit.ops.chain import ChainReader, artifacts, signed
from wtxtgit.ops.facts import Facts
from wtxtgit.ops.files import shown_path
from wtxtgit.ops.walk import OF_ORDER, BadRoot, Walk, commit_of
from wtxtgit.report.audit import AuditReport, Finding
from wtxtgit.trust.ledger_rules import check_ledgers
from wtxtgit.trust.policy import Parent, Violation


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be audited.

    `tip` and `base` are revisions: commits that `base` reaches are not judged.
    `trust_root` is a revision or a signers file, `was` the tip that a branch
    had before. `every` judges side commits as well. What `known` reach is not
    judged either.
    """

    tip: str = "HEAD"
    base: str | None = None
    trust_root: str | None = None
    was: str | None = None
    every: bool = False
    require_signed: bool = False
    known: tuple[str, ...] = ()


Progress = Callable[[int], None]
_MOST_MOVED = 20


def audit(
    repo: Repository,
    request: Request,
    facts: Facts,
    *,
    progress: Progress | None = None,
) -> AuditReport:
    """Judge a range of commits; `progress` gets counts of blobs.

    Raises EnvironmentFailure for revisions that there are not, and KeyFileError
    for a trust root's file.
    """
    try:
        history.refuse_altered(repo)
    except history.AlteredHistory as error:
        return AuditReport(0, findings=(Finding("", b"", "shallow", error.message),))
    with BlobReader(repo) as blobs, Snapshots(repo) as snapshots:
        try:
            tip = commit_of(repo, request.tip)
            walk = Walk.to(
                repo,
                [tip],
                request.trust_root,
                ChainReader(blobs),
                snapshots,
                require_signed=request.require_signed,
            )
        except BadRoot as error:
            return AuditReport(0, findings=(Finding("", b"", "bad-root", error.message),))
        return _Audit(repo, request, walk, tip, facts, progress).report()


class _Audit:
    """One audit under way."""

    def __init__(
        self,
        repo: Repository,
        request: Request,
        walk: Walk,
        tip: str,
        facts: Facts,
        progress: Progress | None,
    ) -> None:
        self._repo = repo
        self._request = request
        self._walk = walk
        self._tip = tip
        self._facts = facts
        self._progress = progress

    def report(self) -> AuditReport:
        judged = self._judged()
        work = {commit.oid: self._paths(commit, judged) for commit in judged.values()}
        wanted = [
            oid
            for commit, paths in work.items()
            for path in paths
            if (oid := judge.blob_of(self._walk.state(commit), path)) is not None
        ]
        found = self._facts.of(dict.fromkeys(wanted), self._progress)
        findings: list[Finding] = []
        for commit in judged.values():
            findings += self._judge(commit, work[commit.oid], found)
        if self._request.was is not None:
            findings += self._judge_push(commit_of(self._repo, self._request.was))
        return self._summary(len(judged), findings)

    @cached_property
    def _base(self) -> set[str]:
        """Commits that are not judged, of those walked."""
        named = (self._request.base, *self._request.known)
        bases = [commit_of(self._repo, base) for base in named if base is not None]
        return {commit.oid for commit in history.commits(self._repo, bases)}

    def _judged(self) -> dict[str, Commit]:
        """Commits to be judged, parents first."""
        commits = self._walk.commits
        if self._request.every:
            return {oid: c for oid, c in commits.items() if oid not in self._base}
        line = []
        oid: str | None = self._tip
        while oid is not None and oid in commits and oid not in self._base:
            line.append(commits[oid])
            oid = commits[oid].parents[0] if commits[oid].parents else None
        return {commit.oid: commit for commit in reversed(line)}

    def _paths(self, commit: Commit, judged: dict[str, Commit]) -> list[bytes]:
        """Artifacts of a commit that are as in no parent that vouches for them."""
        walk = self._walk
        parents = list(dict.fromkeys(commit.parents))
        return judge.changed(
            walk.state(commit.oid),
            [walk.state(oid) for oid in parents],
            [walk.state(oid) for oid in self._vouching(commit, judged)],
        )

    def _vouching(self, commit: Commit, judged: dict[str, Commit]) -> list[str]:
        """Parents that are judged, or that need not be.

        What the trust root or the range's base reaches is not judged, but may
        have been mended since: of it a parent that another one descends from,
        or that the line that was judged has left, does not count.
        """
        walk = self._walk
        found = dict.fromkeys(commit.parents)
        old = [
            oid
            for oid in found
            if oid in self._base or (oid not in walk.commits and oid != walk.root)
        ]
        if old and len(found) > 1:
            kept = history.parents_not_implied(self._repo, commit)
            found = dict.fromkeys(oid for oid in found if oid not in old or oid in kept)
        return [
            oid for oid in found if oid in judged or oid in self._base or oid not in walk.commits
        ]

    def _judge(
        self, commit: Commit, paths: Sequence[bytes], facts: dict[str, ArtifactFacts]
    ) -> Iterator[Finding]:
        walk = self._walk
        for violation in walk.changes.get(commit.oid, ()):
            yield _finding(commit.oid, violation)
        for violation in walk.violations(commit):
            yield _finding(commit.oid, violation)
        parents = [walk.state(oid) for oid in dict.fromkeys(commit.parents)]
        for path in paths:
            yield from judge.judge_artifact(
                commit.oid,
                path,
                walk.state(commit.oid),
                parents,
                walk.reader,
                facts.__getitem__,
                walk.trust(commit.oid),
                require_signed=self._request.require_signed,
            )

    def _judge_push(self, was: str) -> Iterator[Finding]:
        """Whether a branch only went on from where it was."""
        walk = self._walk
        if not history.is_ancestor(self._repo, was, self._tip):
            message = f"the tip does not descend from {was[:12]}, where the branch was"
            yield Finding(self._tip, b"", "bad-root", message)
        elif walk.is_kept_up_to(was, [self._tip]):
            return
        before = Parent(walk.trust(was), walk.tree(was))
        tree, after = walk.tree(self._tip), walk.trust(self._tip)
        for violation in check_ledgers(tree, [before], after, signed):
            if violation.kind in OF_ORDER:
                yield _finding(self._tip, violation)

    def _summary(self, judged: int, findings: Iterable[Finding]) -> AuditReport:
        walk = self._walk
        state, trust = walk.state(self._tip), walk.trust(self._tip)
        present = [path for path in artifacts(state) if path in state.entries]
        ledgers = walk.tree(self._tip).ledgers
        principals = sorted(walk.reader.principals.get(key, key.hex()) for key in trust.keys)
        return AuditReport(
            judged,
            len(present),
            sum(len(ledger.records) for ledger in ledgers.values()),
            tuple(principals),
            tuple(dict.fromkeys(findings)),
            walk.count_unjudged(),
            tuple(self._notes(judged)),
        )

    def _notes(self, judged: int) -> Iterator[str]:
        walk = self._walk
        if self._request.trust_root is None:
            where = (
                "nowhere: no commit has signers"
                if walk.adopted is None
                else (f"at {walk.adopted[:12]}, the first commit with signers that was seen")
            )
            yield f"no trust root is given: trust starts {where}"
        elif not walk.start.keys:
            yield "the trust root has no signers"
        if not judged:
            yield "no commit was judged"
        moved = [
            f"{shown_path(ledger.head.path)} to {shown_path(path.removesuffix(LEDGER_SUFFIX))}"
            for path, ledger in sorted(walk.tree(self._tip).ledgers.items())
            if ledger.head.path + LEDGER_SUFFIX != path
        ]
        if moved:
            more = f", and {len(moved) - _MOST_MOVED} more" if len(moved) > _MOST_MOVED else ""
            yield f"moved since it was first sealed: {', '.join(moved[:_MOST_MOVED])}{more}"


def _finding(commit: str, violation: Violation) -> Finding:
    return Finding(commit, violation.path, violation.kind, violation.message)
