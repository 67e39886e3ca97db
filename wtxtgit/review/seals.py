"""What the chain says of a changed checkpoint: the seal of its content, and what the branch added.

Trust is computed as an audit does, from the trust root on. What the branch did is judged along its
first parents, as in an audit of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wtxtgit.chain import log
from wtxtgit.chain.reader import signed
from wtxtgit.chain.walk import Walk
from wtxtgit.errors import counted
from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFiles
from wtxtgit.git.history import Commit
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, Ledger
from wtxtgit.report.audit import UNTRUSTED, Finding
from wtxtgit.report.review import Flag, ReviewedGeneration, Risk, Sealing, SealVerdict
from wtxtgit.review.changes import Branch, ChangedCheckpoint
from wtxtgit.trust.state import Violation

MOST_GENERATIONS = 100
"""The most generations listed for a branch, newest first."""
MOST_VIOLATIONS = 20

_RISKS = {
    "altered-checkout": Risk.CHAIN,
    "untracked-artifact": Risk.CHAIN,
    "bad-signature": Risk.SIGNER,
    "untrusted-signer": Risk.SIGNER,
}
"""The risks as which a review reports findings for which it has no other report."""


@dataclass(frozen=True)
class Seals:
    """The chain of a branch's checkpoints; not slotted, for its cached properties.

    `line` are the commits of the branch that are judged, `all_commits` the ids of all of them.
    `fault` says why nobody is trusted, if that is so.
    """

    walk: Walk
    blobs: BlobReader
    branch: Branch
    line: tuple[Commit, ...]
    all_commits: frozenset[str]
    fault: str | None = None

    @cached_property
    def _violations(self) -> list[Violation]:
        """What the branch's commits did wrong to ledgers, and what is wrong at its head."""
        line = (commit.oid for commit in self.line if commit.oid in self.walk.commits)
        on_branch = [violation for oid in line for violation in self.walk.brought(oid)]
        # A fault at the head may be older than the branch: report it once, from either source. By
        # path and kind, as an audit skips what a parent has.
        known = {(violation.path, violation.kind) for violation in on_branch}
        at_head = self.walk.violations(self.branch.after.oid)
        return [
            *on_branch,
            *(violation for violation in at_head if (violation.path, violation.kind) not in known),
        ]

    @property
    def is_self_made(self) -> bool:
        """Whether the branch itself introduces the first signers."""
        is_brought = self.walk.is_first_use and self.walk.root in self.all_commits
        return is_brought and not self.branch.is_whole

    def signer_changes(self) -> list[Violation]:
        """Changes of the signers that are not valid."""
        return [violation for violation in self._violations if violation.kind == "signers-changed"]

    def seal(
        self,
        changed: ChangedCheckpoint,
        facts: Mapping[str, ArtifactFacts],
        findings: Sequence[Finding],
    ) -> tuple[SealVerdict, list[Flag]]:
        """Return the seal of a checkpoint at the head, and what is risky about it.

        `findings` are those of judging what is there.
        """
        flags = list(self._judged(changed))
        flags += [
            Flag(_RISKS[finding.kind], f"{finding.kind}: {finding.message}")
            for finding in findings
            if finding.kind in _RISKS
        ]
        ledger, why = self._ledger(changed.path)
        if ledger is None:
            state = Sealing.UNSEALED if why is None else Sealing.UNTRUSTED
            if why is not None:
                flags.append(Flag(Risk.CHAIN, f"the ledger can't be read: {why}"))
                return SealVerdict(state, f"the ledger can't be read: {why}"), flags
            if changed.after is None:
                return SealVerdict(state, "deleted, with its ledger"), flags
            message = "no record in any ledger"
            if self.anybody_seals:
                flags.append(Flag(Risk.UNSEALED, message))
            return SealVerdict(state, message), flags
        added = self._added(changed, ledger)
        shown, more = added[:MOST_GENERATIONS], len(added) - MOST_GENERATIONS
        rest = f"; {counted(more, 'generation')} before these" if more > 0 else ""
        seal, flag_of_seal = self._of_last(changed, ledger, facts, findings, is_broken=bool(flags))
        if flag_of_seal is not None and flag_of_seal.risk not in {flag.risk for flag in flags}:
            flags.append(flag_of_seal)
        return SealVerdict(seal.state, seal.message + rest, shown), flags

    @property
    def snapshot(self) -> CommitFiles:
        """The files of the head."""
        return self.walk.snapshot(self.branch.after.oid)

    @cached_property
    def anybody_seals(self) -> bool:
        """Whether there are signers or ledgers at either end, or a trust root is given."""
        if self.walk.root is not None and not self.walk.is_first_use:
            return True
        ends = (
            self.walk.snapshot(commit.oid) for commit in (self.branch.before, self.branch.after)
        )
        return any(
            path == SIGNERS_PATH or path.endswith(LEDGER_SUFFIX)
            for end in ends
            for path in end.entries
        )

    def _ledger(self, path: bytes) -> tuple[Ledger | None, str | None]:
        """Return the ledger of a path at the head, or why it can't be read."""
        entry = self.snapshot.entries.get(path + LEDGER_SUFFIX)
        if entry is not None and not entry.is_file:
            return None, "replaced by a link or submodule"
        report = self.walk.reader.ledger_in(self.snapshot, path)
        if report is None:
            return None, None
        return report.ledger, str(report.problems[0]) if report.problems else None

    def _judged(self, changed: ChangedCheckpoint) -> Iterator[Flag]:
        """Yield what the branch did wrong to the ledger, once for each kind."""
        paths = changed.paths
        problems = dict.fromkeys(
            (Risk.SIGNER if violation.kind in UNTRUSTED - {"bad-signature"} else Risk.CHAIN,
             f"{violation.kind}: {violation.message}")
            for violation in self._violations
            if violation.path in paths
        )  # fmt: skip
        for risk, message in list(problems)[:MOST_VIOLATIONS]:
            yield Flag(risk, message)
        if len(problems) > MOST_VIOLATIONS:
            yield Flag(Risk.CHAIN, f"and {len(problems) - MOST_VIOLATIONS} more audit findings")

    def _of_last(
        self,
        changed: ChangedCheckpoint,
        ledger: Ledger,
        facts: Mapping[str, ArtifactFacts],
        findings: Sequence[Finding],
        *,
        is_broken: bool,
    ) -> tuple[SealVerdict, Flag | None]:
        """Return whether the last record seals the content, and who signed it."""
        gen = ledger.last.meta.gen
        if changed.after is not None and changed.after.is_file:
            content = facts[changed.after.oid]
            is_damaged = content.sha256_all is None and not content.lacks_payload
            if changed.path in self.snapshot.filtered and is_damaged:
                return SealVerdict(Sealing.STALE, "the text is damaged, so it has no seal"), Flag(
                    Risk.DAMAGED, content.fault or "the text is damaged"
                )
            for finding in findings:
                if finding.kind == "content-mismatch":
                    return SealVerdict(Sealing.STALE, finding.message), Flag(
                        Risk.UNSEALED, finding.message
                    )
                if finding.kind == "bad-record":
                    return SealVerdict(Sealing.UNTRUSTED, finding.message), Flag(
                        Risk.CHAIN, finding.message
                    )
        kept = "deleted, its ledger kept: " if changed.after is None else ""
        state, by, flag = self._signers(ledger)
        # A good last record does not repair a chain that was broken before it.
        if is_broken:
            state = Sealing.UNTRUSTED
        return SealVerdict(state, f"{kept}generation {gen} {by}"), flag

    def _signers(self, ledger: Ledger) -> tuple[Sealing, str, Flag | None]:
        """Return who signed the last record: state, explanation, and what is risky about it."""
        walk = self.walk
        states = walk.state(self.branch.after.oid).signers
        keys = frozenset[bytes]().union(*(state.keys for state in states))
        who = signed(ledger, len(ledger.records) - 1, keys)
        names = ", ".join(sorted(walk.reader.principals.get(key, key.hex()) for key in who.valid))
        if self.fault is not None:
            message = f"no signer is trusted: {self.fault}"
            return Sealing.UNTRUSTED, message, Flag(Risk.SIGNER, message)
        if names and self.is_self_made:
            by = f"by {names}, added as a signer by this branch"
        elif names:
            return Sealing.SEALED, f"by {names}", None
        elif ledger.last.signatures:
            by = "by no trusted signer"
        else:
            by = "not signed"
        return Sealing.UNTRUSTED, by, Flag(Risk.SIGNER, f"generation {ledger.last.meta.gen} {by}")

    def _added(self, changed: ChangedCheckpoint, ledger: Ledger) -> tuple[ReviewedGeneration, ...]:
        """Return the generations that the base lacks, newest first."""
        before = self.walk.snapshot(self.branch.before.oid)
        reports = (self.walk.reader.ledger_in(before, path) for path in changed.paths)
        known = {
            record.merkle_this
            for report in reports
            if report is not None and report.ledger is not None
            for record in report.ledger.records
        }
        is_new = [record.merkle_this not in known for record in reversed(ledger.records)]
        if not any(is_new):
            return ()
        every = log.generations(self.walk, self.blobs, changed.path, ledger, self.branch.after.oid)
        return tuple(
            ReviewedGeneration(one.gen, one.ts, one.commit, one.signers, one.verdict)
            for one, new in zip(every, is_new, strict=True)
            if new
        )
