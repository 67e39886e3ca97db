"""Log: the generations of one artifact, as recorded in its ledger."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.chain.reader import ChainReader, signed
from wtxtgit.chain.walk import Walk, commit_of
from wtxtgit.errors import CheckError, InputError
from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeReader
from wtxtgit.io.files import shown
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.model.ledger import LEDGER_SUFFIX, Ledger, equal_records
from wtxtgit.model.plain import JsonObject
from wtxtgit.trust.state import seals_move

OK = "ok"


class NoLedger(InputError):
    """An artifact has no ledger."""


@dataclass(frozen=True, slots=True)
class LogEntry(JsonObject):
    """A record: `commit` is the first commit that has it, `size` the size of the blob there.

    `size` is None for all but the last of several records that came with one commit. `signers` are
    principals, or the keyids of unknown keys. `verdict` is "ok", or the kinds of what an audit
    finds wrong with the record's chain and signatures. `detached` (hex) is the SHA-256 of the
    detached text that the record names, if any. `path` is the path of the sealed content in
    `commit`, None if it was never committed.
    """

    KEYS = "gen ts build signers sha256_all:hex commit size verdict detached?"

    gen: int
    ts: str
    build: str
    signers: tuple[str, ...]
    sha256_all: bytes
    commit: str | None
    size: int | None
    verdict: str
    detached: str | None = None
    path: bytes | None = None


@dataclass(frozen=True, slots=True)
class LogCommit(JsonObject):
    """A commit that changed a path: who made it and when, and the size of the blob there.

    `size` is None if there is no file at the path.
    """

    KEYS = "commit=oid date author subject size"

    oid: str
    date: str
    author: str
    subject: str
    size: int | None


def changes(
    repo: Repository, path: str, *, revision: str = "HEAD", progress: Progress | None = None
) -> list[LogCommit]:
    """List the commits that changed `path` (relative to this folder), newest first.

    For paths without a ledger. `progress` counts commits as files. Raises InputError if no commit
    has the path, and EnvironmentFailure.
    """
    place = repo.path_from_top(path)
    tip = commit_of(repo, revision)
    commits = history.commits(repo, [tip], touching=(b":(top,literal)" + place,))
    expect(progress, None, len(commits))
    changed: list[LogCommit] = []
    with BlobReader(repo) as blobs, CommitReader(repo) as reader, TreeReader(repo) as trees:
        previous_blob: str | None = None
        for commit in commits:
            finish_file(progress)
            entry = trees.at(commit.tree, (place,)).get(place)
            blob = entry.oid if entry is not None and entry.is_file else None
            # If git takes no pathspec of this length all commits are listed.
            if entry is None and previous_blob is None:
                continue
            author, date = reader.author(commit.oid)
            size = None if blob is None else blobs.size(blob)
            changed.append(LogCommit(commit.oid, date, author, reader.subject(commit.oid), size))
            previous_blob = blob
    if not changed:
        raise InputError(f"{shown(Path(path))}: no commit of {revision} has it")
    return changed[::-1]


def log(
    repo: Repository,
    path: str,
    *,
    revision: str = "HEAD",
    trust_root: str | None = None,
    progress: Progress | None = None,
) -> list[LogEntry]:
    """List the generations of the artifact at `path` (relative to this folder), newest first.

    `progress` counts the commits that are walked as files. Raises NoLedger if it has no ledger in
    the revision, CheckError if the ledger is invalid, InputError if the ledger is no file, BadRoot
    and EnvironmentFailure.
    """
    walking = walked(repo, path, revision=revision, trust_root=trust_root, progress=progress)
    with walking as (_, entries):
        return entries


@contextmanager
def walked(
    repo: Repository,
    path: str,
    *,
    revision: str,
    trust_root: str | None,
    progress: Progress | None = None,
) -> Iterator[tuple[Walk, list[LogEntry]]]:
    """Yield the walk to the revision, which stays open for more questions, and what `log` lists."""
    artifact = repo.path_from_top(path).removesuffix(LEDGER_SUFFIX)
    tip = commit_of(repo, revision)
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as snapshots:
        reader = ChainReader(blobs)
        snapshot = snapshots.files(tip)
        report = reader.ledger_in(snapshot, artifact)
        if report is None:
            is_there = artifact + LEDGER_SUFFIX in snapshot.entries
            can_be_sealed = artifact in snapshot.entries or os.path.lexists(repo.file(artifact))
            quoted = shlex.quote(shown(Path(path)))
            raise (InputError if is_there else NoLedger)(
                f"{shown(Path(path))}: no ledger in {revision}",
                hint=f"wtxtgit seal --staged -- {quoted}, then git commit"
                if can_be_sealed
                else None,
            )
        if report.ledger is None:
            raise CheckError(f"{shown(Path(path))}: {report.problems[0]}")
        walk = Walk(repo, reader, snapshots)
        is_counted = False

        def visit(_oid: str) -> None:
            nonlocal is_counted
            if not is_counted:
                expect(progress, None, len(walk.commits))
            is_counted = True
            finish_file(progress)

        walk.go([tip], trust_root, visit=visit)
        yield walk, generations(walk, blobs, artifact, report.ledger, tip)


def places(ledger: Ledger, artifact: bytes) -> list[bytes]:
    """Return the paths at which an artifact has stood, in order; the last is where it is now."""
    moves = (record.at for record in ledger.records if record.at is not None)
    return list(dict.fromkeys([ledger.head.path, *moves, artifact]))


def generations(
    walk: Walk, blobs: BlobReader, artifact: bytes, ledger: Ledger, tip: str
) -> list[LogEntry]:
    """List the records of an artifact's ledger at a commit, newest first."""
    first: dict[bytes, _First] = {}
    for place in places(ledger, artifact):
        previous: Ledger | None = None
        for commit, other in _ledgers_at(walk, place, tip):
            # An earlier ledger of another artifact stood here.
            if other.head != ledger.head:
                continue
            # Most ledgers have all records of the one before.
            shared_records = 0 if previous is None else equal_records(previous, other)
            for record in other.records[shared_records:]:
                first.setdefault(record.merkle_this, commit)
            previous = other
    keys = frozenset(walk.reader.principals)
    generations = []
    after: str | None = None
    for n in reversed(range(len(ledger.records))):
        record = ledger.records[n]
        origin = first.get(record.merkle_this)
        oid = None if origin is None else origin.commit.oid
        signers = signed(ledger, n, keys)
        # Of several records in one commit only the last one's content was committed.
        blob = None if origin is None or oid == after else origin.blob
        generations.append(
            LogEntry(
                record.meta.gen,
                record.meta.ts,
                record.meta.build,
                (*sorted(walk.reader.principals[key] for key in signers.valid), *signers.unknown),
                record.sha256_all,
                oid,
                None if blob is None else blobs.size(blob),
                _verdict(walk, origin, record.meta.gen, tip),
                None if record.detached is None else record.detached.hex(),
                None if origin is None or blob is None else origin.place,
            )
        )
        after = oid
    return generations


@dataclass(frozen=True, slots=True)
class _First:
    """The first commit that has a record, the artifact's path there, and its blob."""

    commit: Commit
    place: bytes
    blob: str | None


def _ledgers_at(walk: Walk, place: bytes, tip: str) -> Iterator[tuple[_First, Ledger]]:
    """Yield each commit that changed a ledger, with the ledger, oldest first.

    The trust root does not matter here. Commits in which the ledger is invalid are left out.
    """
    path = place + LEDGER_SUFFIX
    with TreeReader(walk.repo) as trees:
        for commit in history.commits(walk.repo, [tip], touching=(b":(top,literal)" + path,)):
            entries = trees.at(commit.tree, (place, path))
            entry, artifact = entries.get(path), entries.get(place)
            if entry is None or not entry.is_file:
                continue
            report = walk.reader.ledger(path, entry.oid)
            if report is not None and report.ledger is not None:
                is_file = artifact is not None and artifact.is_file
                blob = artifact.oid if artifact is not None and is_file else None
                yield _First(commit, place, blob), report.ledger


def _verdict(walk: Walk, first: _First | None, gen: int, tip: str) -> str:
    """Return what the commit that introduced a record violated and no later seal mended, or
    "ok".
    """
    if first is None or first.commit.oid not in walk.commits:
        return OK
    kinds = [
        violation.kind
        for violation in walk.brought(first.commit.oid)
        if violation.path == first.place
        and violation.gen in (None, gen)
        and not seals_move(walk.state(tip), violation, signed)
    ]
    return ", ".join(dict.fromkeys(kinds)) or OK
