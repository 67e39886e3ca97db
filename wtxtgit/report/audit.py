"""What an audit found, as data: the contract of `audit --json`."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from enum import StrEnum

from wtxtgit.errors import CheckError, TrustError

UNTRUSTED = frozenset(
    {"missing-signature", "bad-signature", "untrusted-signer", "signers-changed", "bad-root"}
)
"""Kinds that speak of trust, not of integrity."""

HINTS = {
    "raw-binary": "wtxtgit install && git add --renormalize -- PATH",
    "corrupt-text": "git log --oneline -- PATH; git checkout COMMIT -- PATH takes an intact one",
    "not-canonical": "git add --renormalize -- PATH",
    "untracked-artifact": "wtxtgit track PATTERN && git add --renormalize -- PATH",
    "altered-checkout": "take the attribute off PATH in .gitattributes; it needs -text, no more",
    "unsealed": "wtxtgit seal -- PATH",
    "content-mismatch": "wtxtgit seal -- PATH, by somebody who knows why it changed",
    "bad-record": "git checkout COMMIT^ -- PATH.wsum && wtxtgit seal -- PATH",
    "moved-unsealed": "wtxtgit seal --reseal -- PATH",
    "ledger-rewritten": "wtxtgit seal --reseal=COMMIT^ -- PATH",
    "ledger-removed": "git checkout COMMIT^ -- PATH.wsum, a deleted checkpoint keeps its ledger",
    "bad-signature": "git checkout COMMIT^ -- PATH.wsum && wtxtgit seal -- PATH",
    "missing-signature": "wtxtgit seal --cosign -- PATH",
    "untrusted-signer": "wtxtgit seal --cosign -- PATH, with a trusted signer's key",
    "signers-changed": "wtxtgit seal --cosign -- .wtxt/signers, with keys of the signers before",
    "bad-root": "git log --oneline; take a trust root that the tip descends from",
    "shallow": "git fetch --unshallow",
}
"""What to do about each kind, COMMIT and PATH being those of a finding."""


_PLACEHOLDER = re.compile(r"COMMIT|PATH\.wsum|PATH")
_OID_SHOWN = 12


class Severity(StrEnum):
    """Whether a finding fails an audit."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: in which commit ("" for none), at which path (b"" for none)."""

    commit: str
    path: bytes
    kind: str
    message: str
    severity: Severity = Severity.ERROR

    def as_dict(self) -> dict[str, object]:
        return {
            "commit": self.commit,
            "path": os.fsdecode(self.path),
            "kind": self.kind,
            "severity": str(self.severity),
            "message": self.message,
        }


def hint(finding: Finding) -> str:
    """What to do about a finding, with its own names."""
    commit, path = finding.commit[:_OID_SHOWN], shlex.quote(os.fsdecode(finding.path))
    ledger = shlex.quote(f"{os.fsdecode(finding.path)}.wsum")
    words = {"COMMIT": commit, "PATH.wsum": ledger, "PATH": path}
    return _PLACEHOLDER.sub(lambda found: words[found[0]], HINTS[finding.kind])


class Judged:
    """What has findings holds if none of them is an error."""

    __slots__ = ()
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.WARNING)

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def exit_code(self) -> int:
        """0 all holds; 1 integrity; 4 only trust."""
        kinds = {finding.kind for finding in self.errors}
        if kinds - UNTRUSTED:
            return CheckError.exit_code
        return TrustError.exit_code if kinds else 0


@dataclass(frozen=True, slots=True)
class AuditReport(Judged):
    """What became of a range of commits.

    `commits` were judged, `unjudged` are those that the trust root reaches.
    `artifacts` and `generations` are those at the tip, `signers` the
    principals trusted there, `notes` what a reader has to know besides.
    """

    commits: int
    artifacts: int = 0
    generations: int = 0
    signers: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unjudged: int = 0
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "commits": self.commits,
            "unjudged": self.unjudged,
            "artifacts": self.artifacts,
            "generations": self.generations,
            "signers": list(self.signers),
            "notes": list(self.notes),
            "findings": [finding.as_dict() for finding in self.findings],
        }
