"""Generations by name: `PATH@gen:12`, `PATH@latest` and `PATH@signed-by:alice`.

A name means the content that its record seals. It is an error if the commit that introduced the
record has other content. Where a revision is expected, a name means that commit.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterable

from wtxtgit.chain.judge import JudgedFiles, judge
from wtxtgit.chain.log import OK, LogEntry, walked
from wtxtgit.chain.reader import Facts
from wtxtgit.chain.walk import Walk
from wtxtgit.checkpoint.open import is_url, shown_name
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, UsageError
from wtxtgit.git.history import find
from wtxtgit.git.repository import TRUST_ROOT, Repository
from wtxtgit.remotes.git_urls import fetched, parse_git_url
from wtxtgit.remotes.urls import GIT
from wtxtgit.report.audit import Severity

_NAME = re.compile(r"(.+)@(?:gen:([0-9]{1,20})|(latest)|signed-by:(.+))", re.DOTALL)
_HALF = re.compile(r"(.+)@(?:gen|signed-by)(?::.*)?", re.DOTALL)
# In a path such as ../x the dots are followed by a slash, in a range they are not.
_RANGE = re.compile(r"(.*?)(\.{2,3})(?!/)(.*)", re.DOTALL)


def resolved(target: str) -> str:
    """Return what a generation's name means, as COMMIT:PATH; any other target as it is.

    COMMIT is a whole id, which no tag can capture.
    If the file is in a repository elsewhere, its revision becomes a commit's id, once that has been
    fetched.

    An existing file takes precedence. `REV:PATH@latest` is looked up in the ledger of that
    revision, `PATH@latest` in that of HEAD. `signed-by:NAME` means the last generation that NAME
    signed and whose place in the chain passes an audit; `alice` stands for the only signer called
    alice@..., whatever follows the @.

    Raises InputError if there is no such generation, CheckError if its commit does not have the
    content that it seals, UsageError if NAME may be several signers, and whatever `log` raises.
    """
    if is_url(target) and target.startswith(GIT):
        return _elsewhere(target)
    match = _NAME.fullmatch(target)
    if os.path.lexists(target) or is_url(target):
        return target
    if match is None:
        _refuse_half_a_name(target)
        return target
    return _here(Repository.discover(), match)


def _refuse_half_a_name(target: str) -> None:
    """Raise UsageError for the beginning of a name with anything but a number or a signer."""
    match = _HALF.fullmatch(target)
    if match is None:
        return
    # Git takes PATH@gen:x for the file `x` of a branch `PATH@gen`.
    with contextlib.suppress(EnvironmentFailure):
        if find(Repository.discover(), target) is not None:
            return
    raise UsageError(
        f"{shown_name(target)}: not a generation's name",
        hint=f"names are {shlex.quote(match[1])}@gen:12, @latest and @signed-by:NAME",
    )


def resolved_revision(revision: str) -> str:
    """Replace generations' names in a revision, or in a range of two, with the commits that they
    mean.

    Names of existing files and git's own revisions are returned unchanged. Raises what `resolved`
    raises, and UsageError for a name that is also a branch or tag of another commit.
    """
    ends, name = _RANGE.fullmatch(revision), _NAME.fullmatch(revision)
    # The name of a file may contain two dots.
    if ends is None or (name is not None and os.path.lexists(name[1])):
        return _commit(revision)
    return f"{_commit(ends[1])}{ends[2]}{_commit(ends[3])}"


def _commit(revision: str) -> str:
    match = _NAME.fullmatch(revision)
    if match is None or os.path.lexists(revision):
        return revision
    repo = Repository.discover()
    if find(repo, revision) is None:
        return _here(repo, match).partition(":")[0]
    # Anybody who may push could have given a tag this name; other commands read it as a generation.
    try:
        commit = _here(repo, match).partition(":")[0]
    except (EnvironmentFailure, InputError):
        return revision
    if find(repo, f"{revision}^{{commit}}") != commit:
        raise UsageError(
            f"{shown_name(revision)}: a branch or tag, and a generation of another commit: "
            "write refs/heads/..., refs/tags/... or HEAD:PATH@..."
        )
    return commit


def _here(repo: Repository, match: re.Match[str]) -> str:
    """Return a generation of this repository as COMMIT:PATH."""
    artifact, number, _, signer = match.groups()
    revision, colon, path = artifact.partition(":")
    if not colon or os.path.lexists(artifact):
        revision, path = "HEAD", artifact
    elif not path.startswith(("./", "../")):
        # Git takes such a path as one from the top level.
        path = repo.path_from_here(os.fsencode(path))
    return _resolve(repo, artifact, revision, path, number, signer)


def _elsewhere(target: str) -> str:
    match = _NAME.fullmatch(target)
    repo, source = fetched(parse_git_url(target if match is None else match[1]))
    if match is None:
        return str(source)
    artifact, number, _, signer = match.groups()
    resolved_name = _resolve(repo, artifact, source.revision, source.path, number, signer)
    commit, _, path = resolved_name.partition(":")
    return str(source._replace(revision=commit, path=path))


def _resolve(
    repo: Repository,
    artifact: str,
    revision: str,
    path: str,
    number: str | None,
    signer: str | None,
) -> str:
    """Return the COMMIT:PATH of a generation; `artifact` is what messages call the artifact."""
    root = repo.config.get(TRUST_ROOT)
    with walked(repo, path, revision=revision, trust_root=root) as (walk, entries):
        if signer is not None:
            signer = _principal(artifact, entries, signer)
        entry = _first_match(entries, number, signer)
        if entry is None:
            generation = number if number is not None else f"that {signer!a} signed"
            raise InputError(
                f"{shown_name(artifact)}: no generation {generation}",
                hint=f"wtxtgit log {shlex.quote(path)} {shlex.quote(revision)} lists all",
            )
        name = f"generation {entry.gen}"
        if entry.commit is None or entry.path is None:
            raise InputError(
                f"{shown_name(artifact)}: the content that {name} seals was never committed"
            )
        fault = _fault_at(repo, walk, entry.commit, entry.path)
    if fault is not None:
        raise CheckError(
            f"{shown_name(artifact)}: commit {entry.commit} does not have the content that {name} "
            f"seals: {fault}"
        )
    return f"{entry.commit}:{os.fsdecode(entry.path)}"


def _principal(artifact: str, entries: Iterable[LogEntry], signer: str) -> str:
    """Return the principal that `alice` stands for: the only one who signed and whose name begins
    with alice@.

    Raises UsageError if there are several. A name that matches nobody is returned unchanged.
    """
    signers = {one for entry in entries for one in entry.signers}
    matches = sorted(one for one in signers if one.partition("@")[0] == signer)
    if signer in signers or not matches:
        return signer
    if len(matches) > 1:
        raise UsageError(
            f"{shown_name(artifact)}: {signer!a} may be {' or '.join(map(ascii, matches))}"
        )
    return matches[0]


def _first_match(
    entries: Iterable[LogEntry], number: str | None, signer: str | None
) -> LogEntry | None:
    """Return the first matching entry; entries are ordered newest first."""
    for entry in entries:
        if number is not None and entry.gen != int(number):
            continue
        if signer is not None and (signer not in entry.signers or entry.verdict != OK):
            continue
        return entry
    return None


def _fault_at(repo: Repository, walk: Walk, commit: str, path: bytes) -> str | None:
    """Return what an audit finds wrong with the content at a path; None if nothing."""
    snapshot = walk.snapshots.files(commit)
    files = JudgedFiles((path,), snapshot.filtered, snapshot.entries)
    facts = Facts(repo, 1).of(files.blobs.values(), opaque=files.unfiltered)
    findings = judge(commit, files, walk.reader, facts.__getitem__, walk.standing(commit))
    errors = [finding.message for finding in findings if finding.severity is Severity.ERROR]
    return errors[0] if errors else None
