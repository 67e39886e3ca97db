"""The record of a pruning, and the proof that a history is another one pruned.

`docs/spec/pruned.md` has both; the numbers are those of its claim.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from wtxtgit.chain.audit import AuditRequest, audit
from wtxtgit.chain.reader import ChainReader, Facts, signed
from wtxtgit.chain.walk import commit_of
from wtxtgit.errors import CheckError, TrustError
from wtxtgit.filter.content import opaque_hash
from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import MODE_FILE, TreeEntry, TreeReader
from wtxtgit.history.refs import without_signatures
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.prune import PruneProof

PRUNED = b".wtxt/pruned"
PRUNED_LEDGER = PRUNED + LEDGER_SUFFIX
PRUNED_BUILD = "pruned"
PATHS = (PRUNED, PRUNED_LEDGER)
_MAGIC = "WTXTGIT-PRUNED 1"
MAX_RECORD = 16 * 1024 * 1024
_SPELLED = re.compile(
    rb"WTXTGIT-PRUNED 1\nfrom=([0-9a-f]{40}|[0-9a-f]{64})\n"
    rb"((?:kept=(?:[0-9a-f]{40}|[0-9a-f]{64})\n)+)"
)


@dataclass(frozen=True, slots=True)
class PruningRecord:
    """Which tip was pruned, and which commits were kept, the oldest first: ids."""

    old: str
    kept: tuple[str, ...]


def format_pruning(record: PruningRecord) -> bytes:
    """The bytes of the record."""
    lines = [_MAGIC, f"from={record.old}", *(f"kept={oid}" for oid in record.kept)]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def parse_pruning(content: bytes) -> PruningRecord:
    """Read a record; raises CheckError for what is none."""
    match = _SPELLED.fullmatch(content)
    if match is None:
        raise CheckError(f"{PRUNED.decode()} is not a record of a pruning")
    kept = tuple(line.removeprefix("kept=") for line in match[2].decode("ascii").split())
    return PruningRecord(match[1].decode("ascii"), kept)


def first_parents(repo: Repository, tip: str) -> list[Commit]:
    """The line of first parents that leads to a commit, the oldest first."""
    return history.commits(repo, [tip], first_parent=True)


def prove(
    repo: Repository, old: str, new: str, trust_root: str, facts: Facts
) -> AuditReport | PruneProof:
    """Prove that the history of `new` is that of `old` pruned; both are revisions.

    Gives the audit that failed, or what was proved. Raises CheckError for another content,
    TrustError for a record that nobody trusted has signed, and as `audit` does.
    """
    old, tip = commit_of(repo, old), commit_of(repo, new)
    # 1.
    audited = audit(repo, AuditRequest(old, trust_root=trust_root, require_signed=True), facts)
    if not audited.ok:
        return audited
    line = first_parents(repo, tip)
    root = line[0].oid
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as files:
        reader = ChainReader(blobs)
        record, signers = _sealed(files, reader, blobs, root, old)
    _compare(repo, record, line)
    # 5.
    audited = audit(repo, AuditRequest(tip, trust_root=root, require_signed=True), facts)
    if not audited.ok:
        return audited
    return PruneProof(root, old, len(record.kept), signers)


def _sealed(
    files: CommitFilesReader,
    reader: ChainReader,
    blobs: BlobReader,
    root: str,
    old: str,
) -> tuple[PruningRecord, tuple[str, ...]]:
    """The record of a pruned root, and who of the old tip's signers sealed it: 2."""
    snapshot = files.files(root)
    entry = files.at(root, PATHS).get(PRUNED)
    report = reader.ledger_in(snapshot, PRUNED)
    if entry is None or entry.mode != MODE_FILE or report is None or report.ledger is None:
        raise CheckError(f"commit {root}, the first of its branch, has no record of a pruning")
    content = blobs.read(entry.oid, MAX_RECORD)
    ledger = report.ledger
    if ledger.last.sha256_all != opaque_hash(memoryview(content)) or ledger.place != PRUNED:
        raise CheckError(
            f"{PRUNED.decode()}: the last record of its ledger does not match the content"
        )
    record = parse_pruning(content)
    if record.old != old:
        raise CheckError(f"{PRUNED.decode()} names {record.old} as the old tip, not {old}")
    before = files.files(old)
    trusted, _ = reader.signers(before.entries[SIGNERS_PATH].oid)
    own = reader.ledger_in(before, SIGNERS_PATH)
    if trusted is None or own is None or own.ledger is None:
        raise TrustError(f"{SIGNERS_PATH.decode()} of the old tip is not sealed")
    if ledger.head.repo != own.ledger.records[0].merkle_this:
        raise CheckError(f"{PRUNED.decode()}: its ledger is of another repository")
    valid = signed(ledger, len(ledger.records) - 1, trusted.keys).valid
    if trusted.count(valid) < trusted.threshold:
        raise TrustError(
            f"{PRUNED.decode()}: sealed by {trusted.count(valid)} of the signers trusted at the "
            f"old tip, but {trusted.threshold} are needed"
        )
    return record, tuple(sorted({who for key, who in trusted.principals if key in valid}))


def _compare(repo: Repository, record: PruningRecord, line: list[Commit]) -> None:
    """Hold new commits against old ones: 3 and 4. Raises CheckError."""
    if len(line) < len(record.kept):
        raise CheckError(f"{len(record.kept)} commits were kept, but the branch has {len(line)}")
    new = line[: len(record.kept)]
    if new[0].parents:
        raise CheckError(f"commit {new[0].oid} should be the first, but has parents")
    for before, after in pairwise(new):
        if after.parents != (before.oid,):
            raise CheckError(f"the only parent of commit {after.oid} must be the commit before it")
    old = {commit.oid: n for n, commit in enumerate(first_parents(repo, record.old))}
    places = [old.get(oid, -1) for oid in record.kept]
    if record.kept[-1] != record.old or -1 in places or places != sorted({*places}):
        raise CheckError("the commits that were kept are not those of the old line, in order")
    with CommitReader(repo) as commits, TreeReader(repo) as trees:
        sealed = trees.at(new[0].tree, PATHS)
        for was, now in zip(record.kept, new, strict=True):
            _compare_commit(commits, trees, was, now, sealed)


def _compare_commit(
    commits: CommitReader, trees: TreeReader, was: str, now: Commit, sealed: dict[bytes, TreeEntry]
) -> None:
    for change in trees.between(commits.commit(was).tree, now.tree):
        if change.path not in PATHS:
            raise CheckError(f"commit {now.oid}: {change.path!r} differs from the one in {was}")
    if trees.at(now.tree, PATHS) != sealed:
        raise CheckError(f"commit {now.oid} has a different record of the pruning")
    (had, message), (has, other) = commits.content(was), commits.content(now.oid)
    if identity(had) != identity(has) or message != other:
        raise CheckError(f"commit {now.oid} has a different author, date or message than {was}")


def identity(head: bytes) -> bytes:
    """What of a commit's head stays when its tree, its parents and its signatures are others."""
    lines = without_signatures(head).split(b"\n")
    return b"".join(b"%b\n" % one for one in lines if not one.startswith((b"tree ", b"parent ")))
