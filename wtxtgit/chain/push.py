"""Push: what git tells a pre-push hook, and the audit of each branch that is pushed.

githooks(5), "pre-push". A branch that the other side has is judged from where
it was there, and has to go on from that; a new one from what is known of the
other side's branches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.model.plain import JsonObject
from wtxtgit.report.audit import AuditReport

MAX_LINES = 64 * 1024 * 1024
"""Bytes of what git tells of a push."""

_LINE = re.compile(rb"([^ \n]+) ([0-9a-f]{40,64}) ([^ \n]+) ([0-9a-f]{40,64})")
_SEALED = (b":(glob)**/*.wsum", b":(top,literal).wtxt/signers", b":(glob)**/.gitattributes")
"""Paths without which nothing is tracked, sealed or signed."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A ref that is pushed: object ids here and on the other side, None for none."""

    local: str
    local_oid: str | None
    remote: str
    remote_oid: str | None


@dataclass(frozen=True, slots=True)
class PushedRef(JsonObject):
    """A pushed ref, and the audit of what it brings."""

    KEYS = "local=ref.local remote=ref.remote audit=report"

    ref: Ref
    report: AuditReport


def parse(lines: bytes) -> list[Ref]:
    """Read what git writes to a pre-push hook; raises UsageError for anything else."""
    # The caller reads one byte more than that.
    if len(lines) > MAX_LINES:
        raise UsageError(f"more than {MAX_LINES} bytes of refs are pushed")
    return [_parse_line(line) for line in lines.splitlines() if line]


def audit_push(
    repo: Repository,
    refs: Iterable[Ref],
    remote: str | None,
    root: str | None,
    processes: Callable[[], int],
    key_file: Path | None = None,
    *,
    strict: bool = False,
) -> Iterator[PushedRef]:
    """Audit the commits of each ref; those with nothing tracked, and deletions, are passed over.

    `remote` is the name of the other side where it has one, `root` a trust
    root as an audit takes it, `key_file` as `filter.content` does. If `strict` warnings are
    errors. Raises what an audit does.
    """
    known = _remote_tips(repo, remote)
    done: set[tuple[str, str | None]] = set()
    for ref in refs:
        tip = _commit(repo, ref.local_oid)
        was = _commit(repo, ref.remote_oid)
        if tip is None or tip == was or (tip, was) in done:
            continue
        # Several refs may be pushed at one commit, as a branch and its tag are.
        done.add((tip, was))
        # A branch that is there is judged from where it was, also where others have its commits.
        bases = [was] if was is not None else known
        if was is None and not history.commits(repo, [tip], known):
            continue
        if root is None and not _is_anything_sealed(repo, tip, bases):
            continue
        # Numbers and cryptography take longer to load than git to answer.
        from wtxtgit.chain.audit import AuditRequest, audit
        from wtxtgit.chain.reader import Facts
        from wtxtgit.chain.state_cache import KeptStates

        request = AuditRequest(
            tip, was, root, was, known=() if was is not None else tuple(known), strict=strict
        )
        facts, kept = Facts(repo, processes(), key_file=key_file), KeptStates(repo, key_file)
        report = audit(repo, request, facts, kept=kept)
        # Where nobody seals, that something is unsealed is no news.
        if not (report.generations or report.signers):
            report = replace(report, findings=report.errors)
        yield PushedRef(ref, report)


def ends(repo: Repository, refs: Iterable[Ref], remote: str | None) -> tuple[list[str], list[str]]:
    """The commits that refs are pushed at, and those that the other side is known to have."""
    tips, known = [], _remote_tips(repo, remote)
    for ref in refs:
        tip, was = _commit(repo, ref.local_oid), _commit(repo, ref.remote_oid)
        if tip is not None:
            tips.append(tip)
        if was is not None:
            known.append(was)
    return list(dict.fromkeys(tips)), list(dict.fromkeys(known))


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
    """The commit that an object is, or is a tag of; None where it is none, or is not here."""
    if oid is None:
        return None
    try:
        return history.resolve(repo, oid + "^{commit}")
    except EnvironmentFailure:
        return None


def _remote_tips(repo: Repository, remote: str | None) -> list[str]:
    """What the other side's branches are known to be at; any other side's where it has no name."""
    names = repo.git("remote").decode("utf-8", "backslashreplace").splitlines()
    where = f"refs/remotes/{remote}/" if remote in names else "refs/remotes/"
    listed = repo.git("for-each-ref", "--format=%(objectname) %(objecttype)", where)
    lines = (line.split() for line in listed.decode("ascii", "backslashreplace").splitlines())
    return list(dict.fromkeys(oid for oid, kind in lines if kind == "commit"))


def _is_anything_sealed(repo: Repository, tip: str, bases: Sequence[str]) -> bool:
    """Whether anything may be tracked or sealed in the tip, in what it comes from, or between."""
    for oid in (tip, *bases):
        if any(
            _is_of_ours(entry.path)
            for entry in history.listing(repo, history.resolve_tree(repo, oid))
        ):
            return True
    return bool(history.commits(repo, [tip], bases, touching=_SEALED))


def _is_of_ours(path: bytes) -> bool:
    return (
        path.endswith(b".wsum")
        or path == b".wtxt/signers"
        or path.rpartition(b"/")[2] == b".gitattributes"
    )
