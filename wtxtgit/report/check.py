"""What a check of the index found, as data: the contract of `check --staged --json`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from wtxtgit.errors import counted
from wtxtgit.model.plain import JsonObject
from wtxtgit.report.audit import (
    FETCH,
    FOREIGN_SIGNATURE,
    FROM_LFS,
    LIST_ROOTS,
    ODD_CHECKPOINT,
    UNCHECKED,
    Finding,
    Severity,
    WithFindings,
    pasted,
)

LARGE_BLOB = "large-blob"
UNFILTERED = "unfiltered-text"
STALE_INDEX = "stale-index"

_SEAL = "wtxtgit seal --staged -- PATH"
_RESEAL = "wtxtgit seal --reseal -- PATH"
_CLEAN = "wtxtgit install && git add --renormalize -- PATH"
_COUNTERSIGN = "wtxtgit seal --countersign -- PATH"
# Unlike `git restore --staged`, this also works before the first commit.
_UNSTAGE = "git reset -q --"
HINTS = {
    "lfs-pointer": f"{FROM_LFS}  # {FETCH}",
    "raw-binary": _CLEAN,
    "corrupt-text": f"{_UNSTAGE} PATH  # wtxtgit verify -- PATH shows the problems",
    "not-canonical": _CLEAN,
    "untracked-artifact": f"{_UNSTAGE} ':(icase)'PATH ':/*.gitattributes'  # the files stay as "
    "they are",
    "altered-checkout": f"{_UNSTAGE} ':/*.gitattributes'  # the files stay as they are",
    "unsealed": _SEAL,
    "content-mismatch": _SEAL,
    "moved-unsealed": _SEAL,
    "bad-record": _RESEAL,
    "ledger-rewritten": _RESEAL,
    "ledger-removed": f"{_RESEAL}  # restores it, or seals its deletion",
    "bad-signature": _RESEAL,
    "missing-signature": _COUNTERSIGN,
    "untrusted-signer": f"{_COUNTERSIGN}  # with a trusted signer's key",
    "signers-changed": "wtxtgit seal --staged --cosign -- .wtxt/signers  # by as many of the "
    f"earlier signers as their threshold requires; {_UNSTAGE} :/.wtxt leaves the change out",
    "bad-root": f"{LIST_ROOTS}  # set the config wtxtgit.trustRoot to a commit that has signers, "
    "and that HEAD descends from",
    ODD_CHECKPOINT: f"{_UNSTAGE} PATH  # wtxtgit verify --strict -- PATH shows the "
    "problems; if the file is fine, only wtxtgit.strict refuses it: git config --unset "
    "wtxtgit.strict",
    UNCHECKED: "wtxtgit verify --strict -- PATH  # shows the limit; git config --unset "
    "wtxtgit.strict commits the file unchecked",
    UNFILTERED: "wtxtgit track -- PATH && git add -- .gitattributes  # or git add --renormalize "
    "-- PATH, to store a plain file",
    STALE_INDEX: "wtxtgit reseal --stage -- PATH",
    LARGE_BLOB: f"{_UNSTAGE} PATH  # then: wtxtgit track --detached PATTERN keeps "
    "the data outside git; wtxtgit convert A B --max-shard 64MiB splits a file, but not a "
    "tensor; git config wtxtgit.maxBlob SIZE if the forge takes more",
}
"""What to do about each kind, before the commit is made: commands, and comments on them."""

_KEEP = 'git stash store "$(git stash create)" && '
_RESTAGES = re.compile(r"(.* && )?git (add|reset) ")

_RESEAL_AND_COMMIT = f"{_RESEAL} && git commit --no-edit"
_IN_A_MERGE = {
    "unsealed": _RESEAL_AND_COMMIT,
    "content-mismatch": _RESEAL_AND_COMMIT,
    "ledger-rewritten": _RESEAL_AND_COMMIT,
    "moved-unsealed": _RESEAL_AND_COMMIT,
    "ledger-removed": _RESEAL_AND_COMMIT,
}
_STAGE_AND_SEAL = f"git add -- PATH && {_SEAL} && git commit"
_UNSTAGED = {
    "unsealed": _STAGE_AND_SEAL,
    "content-mismatch": _STAGE_AND_SEAL,
    "moved-unsealed": _STAGE_AND_SEAL,
}


class Occasion(StrEnum):
    """The kind of commit that is about to be made.

    A merge; a commit whose files are not staged any more if it is refused (`git commit -a`,
    `git commit PATH`); or any other.
    """

    COMMIT = "commit"
    MERGE = "merge"
    UNSTAGED = "unstaged"


@dataclass(frozen=True, slots=True)
class CheckedFile(JsonObject):
    """A file that was checked, and its state.

    `state` is what is wrong with it, or how it is sealed. `size` is the size of the blob in bytes,
    None if nothing is staged. `generation` is that of the last record, `signers` are the trusted
    principals who signed it.
    """

    path: bytes
    state: str
    size: int | None = None
    generation: int | None = None
    signers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport(WithFindings, JsonObject):
    """The result of checking the files of a commit that is about to be made.

    `is_sealing` says whether anything is sealed there, or anybody is allowed to seal; `notes` are
    further facts that a reader has to know. Findings belong to no commit. Of the paths in
    `half_staged` the work tree has another content, so that only the index has the staged one.
    """

    KEYS = "ok files notes findings"

    files: tuple[CheckedFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    is_sealing: bool = False
    occasion: Occasion = Occasion.COMMIT
    half_staged: frozenset[bytes] = frozenset()


_NO_REPORT = CheckReport()


def hint(finding: Finding, report: CheckReport = _NO_REPORT, folder: str = "") -> str:
    """Return what to do about a finding, as commands to paste; `folder` as for `pasted`.

    No command takes a content from the index that is nowhere else: it is put into the stash first.
    """
    spelled = _spelled(finding, report.occasion)
    named = {p for p in report.half_staged if p == finding.path or p.endswith(b".gitattributes")}
    if named and restages(finding, report.occasion):
        spelled = _KEEP + spelled
    return pasted(spelled, finding, folder)


def restages(finding: Finding, occasion: Occasion) -> bool:
    """Tell whether what to do about a finding takes the staged content from the index."""
    return _RESTAGES.match(_spelled(finding, occasion)) is not None


def hints(report: CheckReport) -> dict[str, str]:
    """Return what to do about each kind of finding, with PATH for the path of any."""
    # An error's hint comes last, and replaces that of a warning of its kind.
    findings = sorted(report.findings, key=lambda one: one.severity is Severity.ERROR)
    return {finding.kind: _spelled(finding, report.occasion) for finding in findings}


def _spelled(finding: Finding, occasion: Occasion) -> str:
    kind = finding.kind
    if kind == "untrusted-signer" and finding.severity is Severity.WARNING:
        return FOREIGN_SIGNATURE
    special = {Occasion.MERGE: _IN_A_MERGE, Occasion.UNSTAGED: _UNSTAGED}.get(occasion, {})
    return special.get(kind) or HINTS[kind]


def totals(report: CheckReport) -> str:
    """Return a sentence that says what was checked, and with what result."""
    return (
        f"{counted(len(report.files), 'file')} checked, {counted(len(report.errors), 'error')}, "
        f"{counted(len(report.warnings), 'warning')}"
    )
