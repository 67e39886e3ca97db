"""What an audit found, as data: the contract of `audit --json`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from wtxtgit.errors import CheckError, EnvironmentFailure, TrustError, counted
from wtxtgit.model.plain import JsonObject

UNTRUSTED = frozenset(
    {"missing-signature", "bad-signature", "untrusted-signer", "signers-changed", "bad-root"}
)
"""Kinds that concern trust, not integrity."""

_STAYS = "COMMIT itself can only be cleared by a later trust root or a rewritten history"
_RESEAL = "wtxtgit seal --reseal -- PATH"
_REVERT = "git revert --no-commit COMMIT && wtxtgit seal --reseal"
_CLEAN = "wtxtgit install && git add --renormalize -- PATH"
FROM_LFS = "wtxtgit install && wtxtgit fetch ./PATH && git add --renormalize -- PATH"
FETCH = "wtxtgit fetch without a path fetches all files that stand as pointers"
_COUNTERSIGN = "wtxtgit seal --countersign -- PATH"
FOREIGN_SIGNATURE = "wtxtgit signers list  # add the signer's key, or sign the text again"
"""What to do about a text's own signature, which no seal replaces, by a key that is not trusted."""
LIST_ROOTS = "git log --oneline --no-abbrev-commit -- :/.wtxt/signers"
"""Lists commits to choose a trust root from, by whole ids: a tag can take an abbreviated one."""
_OF_WARNINGS = {
    "untracked-artifact": "wtxtgit install && wtxtgit track PATH && git add --renormalize -- PATH "
    "&& git add -- ':/*.gitattributes' && wtxtgit seal --staged -- PATH",
    "unsealed": "wtxtgit seal --staged -- PATH",
    "untrusted-signer": FOREIGN_SIGNATURE,
}
"""What to do about kinds that are reported as warnings."""
_SIGNERS = ".wtxt/signers"
# Git reads `:/` before a path as the top level; commands that take plain paths get them from here.
_PLACEHOLDER = re.compile(r"COMMIT|PATH\.wsum|PATH|(?<=-- )\.wtxt/signers")
_TRACKS = "wtxtgit track"


def _mended(command: str, about: str = "") -> str:
    """Return a hint about what a later commit can repair; the finding in the old one remains."""
    return f"{command}  # {about}; {_STAYS}" if about else f"{command}  # {_STAYS}"


UNSEALED = "unsealed"
ODD_CHECKPOINT = "odd-checkpoint"
"""Audits find this kind only if they are strict."""
UNCHECKED = "unchecked-checkpoint"
"""A checkpoint over a limit: only strict checks and audits find this kind."""
HINTS = {
    "raw-binary": _mended(_CLEAN),
    "corrupt-text": _mended(f"git stash push -- PATH && git checkout COMMIT^ -- PATH && {_RESEAL}"),
    "not-canonical": _mended(_CLEAN),
    "untracked-artifact": _mended(_REVERT),
    "altered-checkout": _mended(_REVERT),
    "unsealed": _mended("wtxtgit seal --staged -- PATH"),
    "content-mismatch": _mended(
        "wtxtgit seal --staged -- PATH", "by someone who knows why it changed"
    ),
    "bad-record": _mended(_RESEAL),
    "moved-unsealed": _RESEAL,
    "ledger-rewritten": _mended(_RESEAL),
    "ledger-removed": _mended(_RESEAL, "restores it, or seals its deletion"),
    "bad-signature": _mended(_RESEAL),
    "missing-signature": _mended(_COUNTERSIGN),
    "untrusted-signer": _mended(_COUNTERSIGN, "with a trusted signer's key"),
    "signers-changed": _mended(
        # Where the tip has no signers, there is nothing to stash.
        "git stash push -- :/.wtxt; git checkout COMMIT^ -- :/.wtxt",
        "or wtxtgit seal --staged --cosign -- .wtxt/signers, by as many of the earlier signers "
        "as their threshold requires",
    ),
    "bad-root": f"{LIST_ROOTS}  # choose a trust root that has signers, and that the tip descends "
    "from; merge the old tip into a rewritten branch, or push it by another name",
    "shallow": "git fetch --unshallow",
    ODD_CHECKPOINT: "wtxtgit verify --strict -- PATH  # once it is checked out; if the file is "
    "fine, audit without --strict",
    UNCHECKED: "wtxtgit verify --strict -- PATH  # once it is checked out, shows the limit; audit "
    "without --strict if that is enough",
    "lfs-pointer": _mended(FROM_LFS, FETCH),
}
"""What to do about each kind; COMMIT and PATH are replaced by those of a finding.

Each is a command for a shell, with a comment on what has to be known of it.
"""

_SETTLED = dict.fromkeys(
    ("raw-binary", "content-mismatch", "untrusted-signer"),
    "wtxtgit audit --trust-root COMMIT  # by someone who vouches for COMMIT; or, if it is not "
    "pushed yet, git reset --soft COMMIT^ and commit again; the tip itself has no such error",
)
"""What is left to do where only commits before the tip have errors of such a kind."""


class Severity(StrEnum):
    """Whether a finding fails an audit."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding(JsonObject):
    """One thing that does not hold, with its commit ("" for none) and path (b"" for none)."""

    KEYS = "commit path kind severity message"

    commit: str
    path: bytes
    kind: str
    message: str
    severity: Severity = Severity.ERROR


def hint(finding: Finding, here: str = "", settled: Collection[str] = ()) -> str:
    """Return what to do about a finding, with its own names filled in; `here` as for `pasted`.

    `settled` as in AuditReport.
    """
    return pasted(_spelled(finding, settled), finding, here)


def pasted(spelled: str, finding: Finding, here: str = "") -> str:
    """Fill a finding's own commit and path into a hint, quoted for a shell.

    `here` is the folder, from the top level, in which the hint will be pasted.
    """
    command, mark, about = spelled.partition("  # ")
    # Patterns are relative to the folder of the command, and only match below it.
    if here and _TRACKS in command:
        up = shlex.quote(os.path.relpath(".", here))
        return f"cd {up} && {pasted(command, finding)}{mark}{pasted(about, finding, here)}"

    def quoted(path: str) -> str:
        return shlex.quote(os.path.relpath(path, here) if here and path else path)

    path = os.fsdecode(finding.path)
    words = {
        "COMMIT": finding.commit,
        "PATH.wsum": quoted(f"{path}.wsum"),
        "PATH": quoted(path),
        _SIGNERS: quoted(_SIGNERS),
    }
    return _PLACEHOLDER.sub(lambda match: words[match[0]], spelled)


def hints(findings: Iterable[Finding], settled: Collection[str] = ()) -> dict[str, str]:
    """Return what to do about each kind of finding; only about errors, if there are any.

    `settled` as in AuditReport.
    """
    by_kind: dict[str, str] = {}
    for finding in findings:
        if finding.severity is Severity.ERROR or finding.kind not in by_kind:
            by_kind[finding.kind] = _spelled(finding, settled)
    return by_kind


def _spelled(finding: Finding, settled: Collection[str]) -> str:
    if finding.severity is Severity.WARNING and finding.kind in _OF_WARNINGS:
        return _OF_WARNINGS[finding.kind]
    if finding.kind in settled and finding.kind in _SETTLED:
        return _SETTLED[finding.kind]
    return HINTS[finding.kind]


def as_errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with warnings turned into errors; duplicates that result are dropped.

    That something is unsealed remains a warning: whether it has to be sealed is up to the signers.
    """
    made = (
        one if one.kind == UNSEALED else replace(one, severity=Severity.ERROR) for one in findings
    )
    return tuple(dict.fromkeys(made))


class WithFindings:
    """A report with findings, which holds if none of them is an error."""

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
        """0 if all holds; 1 for an integrity error; 4 if only trust fails; 5 if all that is left
        is what was not checked because of a limit.
        """
        kinds = {finding.kind for finding in self.errors}
        # Integrity comes first: if the bytes can't be trusted, it does not matter who signed them.
        if kinds - UNTRUSTED - {UNCHECKED}:
            return CheckError.exit_code
        if kinds & UNTRUSTED:
            return TrustError.exit_code
        return EnvironmentFailure.exit_code if kinds else 0

    @property
    def word(self) -> str:
        """What the report says in one word."""
        if self.ok:
            return "ok"
        return "not checked" if {one.kind for one in self.errors} == {UNCHECKED} else "FAILED"


@dataclass(frozen=True, slots=True)
class DetachedTexts(JsonObject):
    """How many detached texts were judged, and by what; damaged ones are not counted.

    `verified` texts had all of their payload checked. `held` texts were only compared with their
    seals, since some of their payload is not available.
    """

    verified: int
    held: int

    def __str__(self) -> str:
        texts = counted(self.verified + self.held, "detached text")
        parts = [f"{self.verified} verified with payload"] if self.verified else []
        parts += [f"{self.held} compared with the seal as text only"] if self.held else []
        return f"{texts}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class AuditReport(WithFindings, JsonObject):
    """The result of auditing a range of commits.

    `commits` were judged; `unjudged` are those that the trust root reaches. `artifacts` and
    `generations` count those at the tip, `signers` are the principals trusted there, and `notes`
    are further facts that a reader has to know. `detached` is set if a detached text was judged.
    """

    KEYS = "ok commits unjudged artifacts generations signers notes detached? findings"

    commits: int
    artifacts: int = 0
    generations: int = 0
    signers: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unjudged: int = 0
    notes: tuple[str, ...] = ()
    detached: DetachedTexts | None = None
    settled: frozenset[str] = frozenset()
    """The kinds of findings that no tip has any more: no part of the data, for hints alone."""


def totals(report: AuditReport) -> str:
    """Return a sentence that says what was judged, and with what result."""
    judged = f"{counted(report.commits, 'commit')} judged" if report.commits else "nothing to judge"
    if report.unjudged:
        older = counted(report.unjudged, "older commit" if report.commits else "commit")
        judged += f" ({older} covered by the trust root)"
    warnings = len(report.findings) - len(report.errors)
    return ", ".join(
        (
            judged,
            counted(report.artifacts, "artifact"),
            counted(report.generations, "generation"),
            counted(len(report.errors), "error"),
            counted(warnings, "warning"),
        )
    )
