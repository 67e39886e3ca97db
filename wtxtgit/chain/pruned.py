"""The record of a pruning, and the proof that one history is another one pruned.

`docs/spec/pruned.md` describes both; numbers are those of its rules, which are checked in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from wtxtgit.chain.audit import AuditRequest, audit
from wtxtgit.chain.reader import ChainReader, Facts, signed
from wtxtgit.chain.walk import Walk, commit_of
from wtxtgit.errors import CheckError, TrustError
from wtxtgit.filter.content import opaque_hash
from wtxtgit.git.blobs import BlobReader, TooLarge
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import MODE_FILE, TreeEntry, TreeReader
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, Ledger, LedgerHead, extends
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.prune import ForgottenDeletion, PruneProof
from wtxtgit.rewrite.refs import without_signatures
from wtxtgit.trust.state import lets_go, open_ledgers

PRUNED = b".wtxt/pruned"
PRUNED_LEDGER = PRUNED + LEDGER_SUFFIX
PRUNED_BUILD = "pruned"
PATHS = (PRUNED, PRUNED_LEDGER)
_MAGIC = "WTXTGIT-PRUNED 1"
MAX_RECORD = 16 * 1024 * 1024
_RECORD = re.compile(
    rb"WTXTGIT-PRUNED 1\nfrom=([0-9a-f]{40}|[0-9a-f]{64})\n"
    rb"((?:kept=(?:[0-9a-f]{40}|[0-9a-f]{64})\n)+)"
)


@dataclass(frozen=True, slots=True)
class PruningRecord:
    """The tip that was pruned, and the commits that were kept, oldest first, as object ids."""

    old: str
    kept: tuple[str, ...]


def format_pruning(record: PruningRecord) -> bytes:
    """Return the bytes of a record."""
    lines = [_MAGIC, f"from={record.old}", *(f"kept={oid}" for oid in record.kept)]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def parse_pruning(content: bytes) -> PruningRecord:
    """Parse a record; raises CheckError for invalid bytes."""
    match = _RECORD.fullmatch(content)
    if match is None:
        raise CheckError(f"{PRUNED.decode()} is not a record of a pruning")
    kept = tuple(line.removeprefix("kept=") for line in match[2].decode("ascii").split())
    return PruningRecord(match[1].decode("ascii"), kept)


def first_parents(repo: Repository, tip: str) -> list[Commit]:
    """Return the line of first parents that leads to a commit, oldest first.

    Read from each commit's own bytes, because git lists commits without hashing them.
    """
    with CommitReader(repo) as commits:
        line = [commits.commit(tip)]
        while line[-1].parents:
            line.append(commits.commit(line[-1].parents[0]))
    return line[::-1]


def prove(
    repo: Repository,
    old: str,
    new: str,
    trust_root: str,
    facts: Facts,
    progress: Progress | None = None,
) -> AuditReport | PruneProof:
    """Prove that the history of `new` is that of `old` pruned; both are revisions.

    `progress` gets counts of bytes of blobs that audits read. Returns the audit if it failed, else
    what was proved. Raises CheckError if the content differs, TrustError if too few have signed the
    record, and as `audit` does.
    """
    old, tip = commit_of(repo, old), commit_of(repo, new)
    # 1.
    request = AuditRequest(old, trust_root=trust_root, require_signed=True)
    audited = audit(repo, request, facts, progress=progress)
    if not audited.ok:
        return audited
    proof = prove_audited(repo, old, tip, facts, progress)
    if isinstance(proof, AuditReport):
        return proof
    line = [commit.oid for commit in first_parents(repo, old)]
    kept = [commit.oid for commit in first_parents(repo, tip)[: proof.kept]]
    return replace(proof, forgotten=forgotten(repo, trust_root, line, kept))


def forgotten(
    repo: Repository, trust_root: str, line: Sequence[str], kept: Sequence[str]
) -> tuple[ForgottenDeletion, ...]:
    """Return the sealed deletions that are known at the end of a line, but whose ledger is in no
    kept commit.

    The audit of the line from the trust root has passed. `kept` are commits of the line, or copies
    of them.
    """
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as files:
        walk = Walk.to(repo, [line[-1]], trust_root, ChainReader(blobs), files)

        def has(oid: str, deletion: Ledger) -> bool:
            ledger = walk.tree(oid).ledgers.get(deletion.place + LEDGER_SUFFIX)
            return ledger is not None and extends(ledger, deletion)

        lost = [
            ledger
            for ledgers in open_ledgers(walk.state(line[-1]), signed).values()
            for ledger in ledgers
            if lets_go(ledger) and not any(has(oid, ledger) for oid in kept)
        ]
        at_tip = files.at(line[-1], [one.place + LEDGER_SUFFIX for one in lost])
        deletions = (
            ForgottenDeletion(
                one.place,
                one.last.meta.gen,
                None
                if one.place + LEDGER_SUFFIX in at_tip
                else next((oid for oid in reversed(line) if has(oid, one)), None),
            )
            for one in lost
        )
        return tuple(sorted(deletions, key=lambda one: (one.path, one.gen)))


def prove_audited(
    repo: Repository, old: str, tip: str, facts: Facts, progress: Progress | None = None
) -> AuditReport | PruneProof:
    """Check rules 2 to 9, where the audit of the old history has passed; `old` and `tip` are
    ids.
    """
    line = first_parents(repo, tip)
    root = line[0].oid
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as files:
        reader = ChainReader(blobs)
        # 2.
        content, ledger = _sealed_in(files, reader, blobs, root)
        # 3.
        before = files.files(old)
        _check_ledger(reader, before, ledger, content)
        # 4.
        record = parse_pruning(content)
        if record.old != old:
            raise CheckError(f"{PRUNED.decode()} names {record.old} as the old tip, not {old}")
        # 5.
        signers = _check_signatures(reader, before, ledger)
    # 6.
    _check_kept(record, first_parents(repo, old))
    # 7.
    new = line[: len(record.kept)]
    _check_line(record, new)
    # 8.
    with CommitReader(repo) as commits, TreeReader(repo) as trees:
        sealed = trees.at(new[0].tree, PATHS)
        for old_oid, new_commit in zip(record.kept, new, strict=True):
            _compare(commits, trees, old_oid, new_commit, sealed)
    # 9.
    request = AuditRequest(tip, trust_root=root, require_signed=True)
    audited = audit(repo, request, facts, progress=progress)
    if not audited.ok:
        return audited
    return PruneProof(root, old, len(record.kept), signers)


def _sealed_in(
    files: CommitFilesReader, reader: ChainReader, blobs: BlobReader, root: str
) -> tuple[bytes, Ledger]:
    """Return the record of pruning in a root commit, and its ledger: rule 2."""
    entries = files.at(root, PATHS)
    modes = [entries[path].mode for path in PATHS if path in entries]
    report = reader.ledger_in(files.files(root), PRUNED)
    if modes != [MODE_FILE] * len(PATHS) or report is None or report.ledger is None:
        raise CheckError(f"commit {root}, the first of its branch, has no record of a pruning")
    try:
        return blobs.read(entries[PRUNED].oid, MAX_RECORD), report.ledger
    except TooLarge as error:
        raise CheckError(f"{PRUNED.decode()}: {error.message}") from error


def _check_ledger(reader: ChainReader, before: CommitFiles, ledger: Ledger, content: bytes) -> None:
    """Check the ledger of the record against that of the old tip: rule 3."""
    signers = reader.ledger_in(before, SIGNERS_PATH)
    if signers is None or signers.ledger is None:
        raise CheckError(f"{SIGNERS_PATH.decode()} of the old tip has no ledger")
    if ledger.head != LedgerHead(signers.ledger.records[0].merkle_this, PRUNED):
        raise CheckError(f"{PRUNED.decode()}: its ledger belongs to another repository or path")
    previous = reader.ledger_in(before, PRUNED)
    length = 0
    if previous is not None and previous.ledger is not None:
        length = len(previous.ledger.records)
        if not extends(ledger, previous.ledger):
            raise CheckError(f"{PRUNED.decode()}: its ledger does not extend that of the old tip")
    if len(ledger.records) != length + 1:
        raise CheckError(f"{PRUNED.decode()}: its ledger has more than one new record")
    last = ledger.last
    if any(one.at for one in ledger.records) or last.meta.build != PRUNED_BUILD:
        raise CheckError(f"{PRUNED.decode()}: its ledger's last record is not of a pruning")
    if last.sha256_all != opaque_hash(memoryview(content)):
        raise CheckError(
            f"{PRUNED.decode()}: the last record of its ledger does not match the content"
        )


def _check_signatures(reader: ChainReader, before: CommitFiles, ledger: Ledger) -> tuple[str, ...]:
    """Return which of the old tip's signers sealed the record.

    Raises TrustError if too few: rule 5.
    """
    trusted, fault = reader.signers(before.entries[SIGNERS_PATH].oid)
    if trusted is None:
        raise CheckError(f"{SIGNERS_PATH.decode()} of the old tip: {fault}")
    valid = signed(ledger, len(ledger.records) - 1, trusted.keys).valid
    if trusted.count(valid) < trusted.threshold:
        raise TrustError(
            f"{PRUNED.decode()}: sealed by {trusted.count(valid)} of the signers trusted at the "
            f"old tip, but {trusted.threshold} are needed"
        )
    return tuple(sorted({who for key, who in trusted.principals if key in valid}))


def _check_kept(record: PruningRecord, line: list[Commit]) -> None:
    """Check that the kept commits are on the old line, in order: rule 6."""
    numbers = {commit.oid: n for n, commit in enumerate(line)}
    places = [numbers.get(oid, -1) for oid in record.kept]
    if record.kept[-1] != record.old or -1 in places or places != sorted({*places}):
        raise CheckError("the commits that were kept are not those of the old line, in order")


def _check_line(record: PruningRecord, new: list[Commit]) -> None:
    """Check that there are as many new commits, each with the one before as only parent: rule 7."""
    if len(new) < len(record.kept):
        raise CheckError(f"{len(record.kept)} commits were kept, but the branch has {len(new)}")
    for before, after in pairwise(new):
        if after.parents != (before.oid,):
            raise CheckError(f"the only parent of commit {after.oid} must be the commit before it")


def _compare(
    commits: CommitReader,
    trees: TreeReader,
    old: str,
    new: Commit,
    sealed: dict[bytes, TreeEntry],
) -> None:
    """Compare a new commit with the old one: rule 8."""
    for change in trees.between(commits.commit(old).tree, new.tree):
        if change.path not in PATHS:
            raise CheckError(f"commit {new.oid}: {change.path!r} differs from the one in {old}")
    if trees.at(new.tree, PATHS) != sealed:
        raise CheckError(f"commit {new.oid} has a different record of the pruning")
    (old_head, message), (new_head, other) = (
        commits.content(old),
        commits.content(new.oid),
    )
    if identity(old_head) != identity(new_head) or message != other:
        raise CheckError(f"commit {new.oid} has a different author, date or message than {old}")


def identity(head: bytes) -> bytes:
    """Return the part of a commit's header without tree, parents and signatures."""
    lines = without_signatures(head).split(b"\n")
    # Git only reads parents that directly follow the tree.
    first = next((n for n, one in enumerate(lines) if n and not one.startswith(b"parent ")), 1)
    return b"".join(b"%b\n" % one for one in lines[first:])
