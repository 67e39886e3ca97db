"""Push: parses what git passes to a pre-push hook, and audits each pushed branch.

githooks(5), "pre-push". A branch that the remote has is judged from its position there, which it
has to descend from; a new one from what is known of the remote's branches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.io.progress import Progress
from wtxtgit.model.plain import JsonObject
from wtxtgit.report.audit import AuditReport, Finding, Severity

MAX_LINES = 64 * 1024 * 1024
"""Most bytes of the input of a pre-push hook."""

_LINE = re.compile(rb"([^ \n]+) ([0-9a-f]{40,64}) ([^ \n]+) ([0-9a-f]{40,64})")
PAYLOAD = "refs/wtxt/"
"""The prefix of refs of payload, which lead to no commit."""
_SEALED = (b":(glob)**/*.wsum", b":(top,literal).wtxt/signers", b":(glob)**/.gitattributes")
"""Without any of these paths nothing is tracked, sealed or signed."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A pushed ref with the object ids here and at the remote; None if there is none."""

    local: str
    local_oid: str | None
    remote: str
    remote_oid: str | None


@dataclass(frozen=True, slots=True)
class PushedRef(JsonObject):
    """A pushed ref, with the audit of the commits that it brings."""

    KEYS = "local=ref.local remote=ref.remote audit=report"

    ref: Ref
    report: AuditReport


def parse(lines: bytes) -> list[Ref]:
    """Parse the input of a pre-push hook; raises UsageError for anything else."""
    # The caller reads up to one byte more than the limit.
    if len(lines) > MAX_LINES:
        raise UsageError(f"more than {MAX_LINES} bytes of refs are pushed")
    return [_parse_line(line) for line in lines.splitlines() if line]


def audit_push(
    repo: Repository,
    refs: Iterable[Ref],
    known: Callable[[], Sequence[str]],
    root: str | None,
    processes: Callable[[], int],
    key_file: Path | None = None,
    *,
    strict: bool = False,
    progress: Progress | None = None,
) -> Iterator[PushedRef]:
    """Audit the commits of each ref, except deletions and refs with nothing tracked.

    `known` returns the commits that a new branch is judged from: those that the remote has. `root`
    is a trust root as in AuditRequest, `key_file` as in `filter.content`. With `strict` warnings
    are errors. `progress` gets counts as in `audit`. Raises as `audit` does.
    """
    done: set[tuple[str, str | None]] = set()
    for ref in refs:
        tip = _commit(repo, ref.local_oid)
        was = _commit(repo, ref.remote_oid)
        if tip is None or tip == was or (tip, was) in done:
            continue
        # Several refs may be pushed at the same commit, such as a branch and its tag.
        done.add((tip, was))
        # An existing branch is judged from its old position, even if other branches have its
        # commits.
        bases = [was] if was is not None else known()
        if was is None and not history.commits(repo, [tip], bases):
            continue
        if root is None and not _is_anything_sealed(repo, tip, bases):
            continue
        # Imported here: numpy and cryptography take longer to load than git takes to answer.
        from wtxtgit.chain.audit import AuditRequest, audit
        from wtxtgit.chain.reader import Facts
        from wtxtgit.chain.state_cache import StateCache

        request = AuditRequest(
            tip, was, root, was, known=() if was is not None else tuple(bases), strict=strict
        )
        facts, cache = Facts(repo, processes(), key_file=key_file), StateCache(repo, key_file)
        report = audit(repo, request, facts, progress=progress, cache=cache)
        # In a repository where nobody seals, unsealed files need no warning, and no history has to
        # be proved.
        if not (report.generations or report.signers):
            proves = strict or root is not None or _has_any(repo, (tip, *bases), _is_sealed)
            findings = report.errors if proves else map(_unproved, report.errors)
            report = replace(report, findings=tuple(findings))
        yield PushedRef(ref, report)


def ends(repo: Repository, refs: Iterable[Ref]) -> tuple[list[str], list[str] | None]:
    """Return the commits at which refs are pushed, and those where they were at the remote.

    The latter are None if they do not suffice to tell what is new there, as with a new branch.
    """
    tips, before = [], []
    for ref in refs:
        tip, was = _commit(repo, ref.local_oid), _commit(repo, ref.remote_oid)
        if tip is not None:
            tips.append(tip)
            before.append(was)
    known = [was for was in before if was is not None]
    is_all = len(known) == len(before)
    return list(dict.fromkeys(tips)), list(dict.fromkeys(known)) if is_all else None


def tracked_tips(repo: Repository, remote: str | None) -> list[str]:
    """Return the known positions of a remote's branches; of all remotes if it is None."""
    prefix = "refs/remotes/" if remote is None else f"refs/remotes/{remote}/"
    output = repo.git("for-each-ref", "--format=%(objectname) %(objecttype)", prefix)
    lines = (line.split() for line in output.decode("ascii", "backslashreplace").splitlines())
    return list(dict.fromkeys(oid for oid, kind in lines if kind == "commit"))


def removed_payload(refs: Iterable[Ref]) -> list[str]:
    """Return the refs of payload that a push would delete."""
    return [ref.remote for ref in refs if ref.local_oid is None and ref.remote.startswith(PAYLOAD)]


def _parse_line(line: bytes) -> Ref:
    match = _LINE.fullmatch(line)
    if match is None:
        raise UsageError(f"not a line that git passes to a pre-push hook: {line[:80]!a}")
    local, local_oid, remote, remote_oid = (
        word.decode("utf-8", "backslashreplace") for word in match.groups()
    )
    return Ref(local, _present(local_oid), remote, _present(remote_oid))


def _present(oid: str) -> str | None:
    return oid if oid.strip("0") else None


def _commit(repo: Repository, oid: str | None) -> str | None:
    """Return the commit that an object is or, as a tag, leads to; None if there is none here."""
    if oid is None:
        return None
    try:
        return history.resolve_commit(repo, oid)
    except EnvironmentFailure:
        return None


def _is_anything_sealed(repo: Repository, tip: str, bases: Sequence[str]) -> bool:
    """Tell whether anything may be tracked or sealed in the tip, in the bases, or in between."""
    if _has_any(repo, (tip, *bases), lambda path: _is_sealed(path) or _is_attributes(path)):
        return True
    return bool(history.commits(repo, [tip], bases, touching=_SEALED))


def _has_any(repo: Repository, commits: Iterable[str], is_wanted: Callable[[bytes], bool]) -> bool:
    return any(
        is_wanted(entry.path)
        for oid in commits
        for entry in history.listing(repo, history.resolve_tree(repo, oid))
    )


def _is_sealed(path: bytes) -> bool:
    return path.endswith(b".wsum") or path == b".wtxt/signers"


def _is_attributes(path: bytes) -> bool:
    return path.rpartition(b"/")[2] == b".gitattributes"


def _unproved(finding: Finding) -> Finding:
    """Return a finding as a warning if it says that the history is not whole."""
    return replace(finding, severity=Severity.WARNING) if finding.kind == "shallow" else finding
