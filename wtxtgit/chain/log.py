"""Log: the generations of one artifact, as its ledger has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.chain.reader import ChainReader, signed
from wtxtgit.chain.walk import Walk, commit_of
from wtxtgit.errors import CheckError, InputError
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.history import Commit
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.model.ledger import LEDGER_SUFFIX, Ledger
from wtxtgit.trust.state import seals_move

OK = "ok"


@dataclass(frozen=True, slots=True)
class Generation:
    """A record: `commit` is the first one that has it, `size` that of the blob there.

    `size` is None for one of several records that came with one commit, but
    for the last. `signers` are principals, or the keyids of unknown keys.
    `verdict` is "ok", or the kinds of what an audit finds of the record's
    chain and signatures.
    """

    gen: int
    ts: str
    build: str
    signers: tuple[str, ...]
    sha256_all: bytes
    commit: str | None
    size: int | None
    verdict: str

    def as_dict(self) -> dict[str, object]:
        return {
            "gen": self.gen,
            "ts": self.ts,
            "build": self.build,
            "signers": list(self.signers),
            "sha256_all": self.sha256_all.hex(),
            "commit": self.commit,
            "size": self.size,
            "verdict": self.verdict,
        }


def log(
    repo: Repository, path: str, *, revision: str = "HEAD", trust_root: str | None = None
) -> list[Generation]:
    """List the generations of the artifact at `path` (from here), the newest first.

    Raises InputError where it has no ledger in the revision, CheckError where
    that does not read, BadRoot and EnvironmentFailure.
    """
    artifact = repo.path_from_top(path).removesuffix(LEDGER_SUFFIX)
    ledger_path = artifact + LEDGER_SUFFIX
    tip = commit_of(repo, revision)
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as snapshots:
        reader = ChainReader(blobs)
        entry = snapshots.files(tip).entries.get(ledger_path)
        report = None
        if entry is not None and entry.is_file:
            report = reader.ledger(ledger_path, entry.oid)
        if report is None:
            raise InputError(
                f"{shown(Path(path))}: no ledger in {revision}",
                hint=f"wtxtgit seal --staged -- {shown(Path(path))}",
            )
        if report.ledger is None:
            raise CheckError(f"{shown(Path(path))}: {report.problems[0]}")
        walk = Walk.to(repo, [tip], trust_root, reader, snapshots)
        return generations(walk, blobs, artifact, report.ledger, tip)


def generations(
    walk: Walk, blobs: BlobReader, artifact: bytes, ledger: Ledger, tip: str
) -> list[Generation]:
    """List the records of an artifact's ledger at a commit, the newest first."""
    moves = (record.at for record in ledger.records if record.at is not None)
    first: dict[bytes, _First] = {}
    for place in dict.fromkeys([ledger.head.path, *moves, artifact]):
        for commit, other in walk.ledgers_at(place + LEDGER_SUFFIX, [tip]):
            for record in other.records if other.head == ledger.head else ():
                first.setdefault(record.merkle_this, _First(commit, place))
    return _generations(ledger, first, walk, blobs, tip)


@dataclass(frozen=True, slots=True)
class _First:
    """The first commit that has a record, and where the artifact stood there."""

    commit: Commit
    place: bytes


def _generations(
    ledger: Ledger,
    first: Mapping[bytes, _First],
    walk: Walk,
    blobs: BlobReader,
    tip: str,
) -> list[Generation]:
    """The records, the newest first; `first` has the first commit of each, by merkle_this."""
    keys = frozenset(walk.reader.principals)
    found = []
    after: str | None = None
    for n in reversed(range(len(ledger.records))):
        record = ledger.records[n]
        came = first.get(record.merkle_this)
        oid = None if came is None else came.commit.oid
        who = signed(ledger, n, keys)
        size = None
        if came is not None and oid != after:
            entry = walk.snapshot(came.commit.oid).entries.get(came.place)
            size = blobs.size(entry.oid) if entry is not None and entry.is_file else None
        found.append(
            Generation(
                record.meta.gen,
                record.meta.ts,
                record.meta.build,
                (*sorted(walk.reader.principals[key] for key in who.valid), *who.unknown),
                record.sha256_all,
                oid,
                size,
                _verdict(walk, came, record.meta.gen, tip),
            )
        )
        after = oid
    return found


def _verdict(walk: Walk, came: _First | None, gen: int, tip: str) -> str:
    """What the commit that brought a record did that it may not, and that no seal mended since."""
    if came is None or came.commit.oid not in walk.commits:
        return OK
    kinds = [
        violation.kind
        for violation in walk.brought(came.commit.oid)
        if violation.path == came.place
        and violation.gen in (None, gen)
        and not seals_move(walk.state(tip), violation, signed)
    ]
    return ", ".join(dict.fromkeys(kinds)) or OK
