"""What an audit, a check and a review found, in the one form that `report.forges` renders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtxtgit.errors import MAX_NAME, clipped
from wtxtgit.report import audit, check
from wtxtgit.report.audit import UNTRUSTED, AuditReport, Severity, hints
from wtxtgit.report.check import LARGE_BLOB, STALE_INDEX, UNFILTERED, CheckReport
from wtxtgit.report.forges import ForgeFinding, ForgeReport, ForgeRule

if TYPE_CHECKING:  # an audit does without the reports of a review
    from wtxtgit.report.review import Review

ABOUT = {
    "lfs-pointer": "A tracked path holds a git-lfs pointer, not the file it stands for.",
    "raw-binary": "A tracked path holds a raw binary, not the text that the filter makes.",
    "corrupt-text": "A text does not verify.",
    "odd-checkpoint": "The text of a checkpoint that verify --strict rejects.",
    "unchecked-checkpoint": "A checkpoint is over a limit, and was not checked.",
    "not-canonical": "A text verifies, but is not the text that the filter makes.",
    "untracked-artifact": "A checkpoint is no longer filtered, or was replaced by a link.",
    "altered-checkout": "Attributes make a checkout write bytes that were not sealed.",
    "unsealed": "A checkpoint has no ledger.",
    "content-mismatch": "The last record of a ledger does not match the content.",
    "bad-record": "A ledger or one of its records breaks the format's rules.",
    "moved-unsealed": "A checkpoint was moved with its ledger, but the move is not sealed.",
    "ledger-rewritten": "A ledger does not continue that of the previous commit.",
    "ledger-removed": "A ledger is missing.",
    "bad-signature": "A signature does not verify.",
    "missing-signature": "A record is not signed.",
    "untrusted-signer": "A record is not signed by any trusted key.",
    "signers-changed": "The signers file changed without a seal by the previous signers.",
    "bad-root": "The history does not descend from the trust root, or from the branch's old tip.",
    "shallow": "The history is incomplete: it is shallow, replaced or grafted.",
    UNFILTERED: "A text that was filtered in an earlier commit no longer is.",
    STALE_INDEX: "The index of a set lists a size or hash that one of its files does not have.",
    LARGE_BLOB: "A text is near or over the limit for one blob.",
}
"""What each kind of an audit and a check is, for people who meet it in a forge."""

_LOOK = "wtxtgit diff BASE:PATH HEAD:PATH  # shows the figures before and after"
_READ = (
    "wtxtgit fetch HEAD  # if data is missing; wtxtgit diff --key FILE BASE:PATH HEAD:PATH opens "
    "encrypted FOLD files"
)
_DETACH = (
    "wtxtgit track --detached PATTERN && git add --renormalize -- PATH  # keeps the data outside "
    "git; commits that have the large text keep it"
)
RISKS = {
    "new-nan": ("Items of a tensor became NaN.", _LOOK),
    "new-inf": ("Items of a tensor became infinite.", _LOOK),
    "dead-layer": ("All matrices of a layer became zero or constant.", _LOOK),
    "all-zero": ("All items of a tensor became 0.", _LOOK),
    "constant": ("All items of a tensor became one number.", _LOOK),
    "negated": ("The items of a tensor changed their signs.", _LOOK),
    "other-tensor": ("A tensor has the values that another one had.", _LOOK),
    "reordered": ("A tensor has the same items in another order.", _LOOK),
    "collapsed-rows": ("Rows of a tensor became constant.", _LOOK),
    "saturated": ("Rows of a tensor reached their limit.", _LOOK),
    "outlier-norm": ("The norms of a tensor's rows grew sharply.", _LOOK),
    "dtype-changed": ("A tensor's dtype changed.", _LOOK),
    "shape-changed": ("A tensor's shape changed.", _LOOK),
    "tensor-removed": (
        "A tensor or a checkpoint was removed.",
        "git log BASE..HEAD -- PATH  # shows the commits that may have removed it",
    ),
    "single-layer": ("Only one layer of a checkpoint changed.", _LOOK),
    "unusual-change": ("A layer or tensor changed far more than similar ones.", _LOOK),
    "runs-code": ("Loading a checkpoint with pickle may run other code than before.", _LOOK),
    "repeated-name": ("Several tensors or members have the same name.", _LOOK),
    "misleading-name": (
        "A new name looks like another one, or has characters that are not shown.",
        _LOOK,
    ),
    "hidden-bytes": (
        "A file has new bytes that belong to no tensor or part.",
        "wtxtgit inspect --parts HEAD:PATH  # lists all pieces of the file with their offsets",
    ),
    "part-changed": ("A part of a file that is not a tensor changed.", _LOOK),
    "metadata-changed": ("Metadata changed that saving alone does not change.", _LOOK),
    "not-compared": (
        "Values, or encrypted parts, could not be read.",
        _READ,
    ),
    "unsealed": (
        "A checkpoint has no record in any ledger, or the last one does not match it.",
        check.HINTS["unsealed"],
    ),
    "unknown-signer": (
        "A record of a ledger is not signed by any trusted key.",
        check.HINTS["untrusted-signer"],
    ),
    "broken-chain": (
        "A ledger was rewritten or removed, or cannot be read.",
        "wtxtgit audit BASE..HEAD  # names the commits, and says what to do",
    ),
    "opaque": (
        "A file is of an unknown format, or stored whole.",
        "wtxtgit inspect HEAD:PATH  # says what is known of it",
    ),
    "damaged": (
        "A text does not verify.",
        "git stash push -- PATH && git checkout BASE -- PATH  # wtxtgit recover -- PATH may mend",
    ),
    "lfs-pointer": (ABOUT["lfs-pointer"], check.HINTS["lfs-pointer"]),
    "raw-binary": (ABOUT["raw-binary"], check.HINTS["raw-binary"]),
    "large-blob": (
        ABOUT[LARGE_BLOB],
        _DETACH,
    ),
}
"""What each risk is, and what a reviewer can do: PATH from the top level, BASE and HEAD revisions.

By the words of `Risk`: an audit does without the module that has them.
"""
_OF_TRUST = frozenset({"unsealed", "unknown-signer", "broken-chain"})
_OF_FILES = frozenset(
    {
        *(
            "runs-code",
            "repeated-name",
            "misleading-name",
            "hidden-bytes",
            "part-changed",
            "metadata-changed",
            "not-compared",
            "opaque",
        ),
        *("damaged", "lfs-pointer", "raw-binary", "large-blob"),
    }
)


def of_audit(report: AuditReport) -> ForgeReport:
    """An audit; its findings have the hints of their kinds, with COMMIT and PATH."""
    return ForgeReport(
        "audit",
        _rules(audit.HINTS),
        tuple(
            ForgeFinding(
                finding.kind,
                finding.severity,
                finding.path,
                finding.message,
                hints([finding], report.settled)[finding.kind],
                finding.commit,
            )
            for finding in report.findings
        ),
        report.notes,
        report.ok,
    )


def of_check(report: CheckReport) -> ForgeReport:
    """A check of the index; its hints can be pasted at the top level."""
    return ForgeReport(
        "check",
        _rules(check.HINTS),
        tuple(
            ForgeFinding(
                finding.kind,
                finding.severity,
                finding.path,
                finding.message,
                check.hint(finding, report),
            )
            for finding in report.findings
        ),
        report.notes,
        report.ok,
    )


def _rules(todo: dict[str, str]) -> dict[str, ForgeRule]:
    return {
        kind: ForgeRule(ABOUT[kind], hint, "trust" if kind in UNTRUSTED else "integrity")
        for kind, hint in todo.items()
    }


def of_review(report: Review) -> ForgeReport:
    """A review: risks that a merge should wait for are errors, the others warnings.

    It is not ok if there is any of the former.
    """
    from wtxtgit.report.review import SEVERE

    severe = frozenset(map(str, SEVERE))
    rules = {
        risk: ForgeRule(
            about, hint, _tag(risk), Severity.ERROR if risk in severe else Severity.WARNING
        )
        for risk, (about, hint) in RISKS.items()
    }
    flags = [
        (artifact.path, str(flag.risk), flag)
        for artifact in report.artifacts
        for flag in artifact.flags
    ]
    return ForgeReport(
        "review",
        rules,
        tuple(
            ForgeFinding(
                risk,
                rules[risk].severity,
                path,
                flag.message
                if flag.tensor is None
                else f"{clipped(flag.tensor, MAX_NAME)}: {flag.message}",
                rules[risk].hint,
                subject=flag.tensor or "",
            )
            for path, risk, flag in flags
        ),
        report.notes,
        not any(risk in severe for _, risk, _ in flags),
    )


def _tag(risk: str) -> str:
    if risk in _OF_TRUST:
        return "trust"
    return "integrity" if risk in _OF_FILES else "values"
