"""What a check of the index found, as data: the contract of `check --staged --json`."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from enum import StrEnum

from wtxtgit.report.audit import Finding, Judged

LARGE_BLOB = "large-blob"
_PLACEHOLDER = re.compile("LEDGER|PATH")

_RESTORE_LEDGER = "git restore --staged --worktree -- LEDGER"
_SEAL = "wtxtgit seal --staged -- PATH"
HINTS = {
    "raw-binary": "wtxtgit install && git add --renormalize -- PATH",
    "corrupt-text": "wtxtgit verify -- PATH shows all; git restore --staged -- PATH unstages",
    "not-canonical": "git add --renormalize -- PATH",
    "untracked-artifact": "git restore --staged --worktree -- PATH '*.gitattributes'",
    "altered-checkout": "take the attribute off PATH in .gitattributes; it needs -text, no more",
    "unsealed": _SEAL,
    "content-mismatch": _SEAL,
    "moved-unsealed": _SEAL,
    "bad-record": f"{_RESTORE_LEDGER} && {_SEAL}",
    "ledger-rewritten": "wtxtgit seal --reseal -- PATH",
    "ledger-removed": _RESTORE_LEDGER,
    "bad-signature": f"{_RESTORE_LEDGER} && {_SEAL}",
    "missing-signature": "wtxtgit seal --staged --cosign -- PATH",
    "untrusted-signer": "wtxtgit seal --staged --cosign -- PATH, with a trusted signer's key",
    "signers-changed": "wtxtgit seal --staged -- .wtxt/signers, then --cosign by other signers",
    "bad-root": "git config wtxtgit.trustRoot COMMIT names one that HEAD descends from",
    LARGE_BLOB: "wtxtgit convert --max-shard 64MiB cuts it; "
    "git config wtxtgit.maxBlob SIZE where the forge takes more",
}
"""What to do about each kind, before the commit is made."""

_RESEAL = "wtxtgit seal --reseal -- PATH && git commit --no-edit"
_IN_A_MERGE = {
    "unsealed": _RESEAL,
    "content-mismatch": _RESEAL,
    "ledger-rewritten": _RESEAL,
}
_STAGE_AND_SEAL = f"git add -- PATH && {_SEAL} && git commit"
_OF_PATHS = {"unsealed": _STAGE_AND_SEAL, "content-mismatch": _STAGE_AND_SEAL}


class Occasion(StrEnum):
    """What kind of commit is about to be made: a merge, one of named paths, or any other."""

    COMMIT = "commit"
    MERGE = "merge"
    PATHS = "paths"


def hint(finding: Finding, occasion: Occasion = Occasion.COMMIT) -> str:
    """What to do about a finding, as commands that can be pasted."""
    hints = {Occasion.MERGE: _IN_A_MERGE, Occasion.PATHS: _OF_PATHS}.get(occasion, {})
    path = os.fsdecode(finding.path)
    spelled = hints.get(finding.kind) or HINTS[finding.kind]
    words = {"LEDGER": shlex.quote(f"{path}.wsum"), "PATH": shlex.quote(path)}
    return _PLACEHOLDER.sub(lambda found: words[found[0]], spelled)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that was checked, and how it stands.

    `state` is what is wrong with it, or how it is sealed. `size` are the
    blob's bytes, None where nothing is staged. `generation` is that of the
    last record, `signers` are the principals of those trusted that signed it.
    """

    path: bytes
    state: str
    size: int | None = None
    generation: int | None = None
    signers: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {
            "path": os.fsdecode(self.path),
            "state": self.state,
            "size": self.size,
            "generation": self.generation,
            "signers": list(self.signers),
        }


@dataclass(frozen=True, slots=True)
class CheckReport(Judged):
    """What became of the files of a commit about to be made.

    `is_sealing` says whether anything is sealed there, or anybody may seal;
    `notes` are what a reader has to know besides. Findings are of no commit.
    """

    files: tuple[StagedFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    is_sealing: bool = False
    occasion: Occasion = Occasion.COMMIT

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "files": [file.as_dict() for file in self.files],
            "notes": list(self.notes),
            "findings": [finding.as_dict() for finding in self.findings],
        }
