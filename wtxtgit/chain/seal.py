"""Seal: records of artifacts' contents, appended to their ledgers and signed.

Ledgers stand in the work tree, and in the index where that is sealed: there
both get the same bytes. All is made and signed before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.chain.reader import ChainReader
from wtxtgit.chain.seal_files import ContentReader, Doubt, SealedFiles
from wtxtgit.chain.seal_plan import Action, LedgerPlan, SealOptions, SealPlanner
from wtxtgit.chain.seal_state import Before
from wtxtgit.chain.state_cache import KeptStates
from wtxtgit.errors import (
    UsageError,
)
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.repository import Repository
from wtxtgit.model.ledger import (
    DELETED_BUILD,
    LEDGER_SUFFIX,
)
from wtxtgit.model.plain import JsonObject
from wtxtgit.text.digest import keyid
from wtxtgit.trust.signing import SigningKey


@dataclass(frozen=True, slots=True)
class Sealed(JsonObject):
    """What became of an artifact.

    `gen` and `sha256_all` are those of the last record, `generations` of those
    that were signed now. `moved_from` is where the ledger stood before.
    """

    KEYS = "path action gen sha256_all:hex generations moved_from"

    path: bytes
    action: Action
    gen: int
    sha256_all: bytes
    generations: tuple[int, ...] = ()
    moved_from: bytes | None = None


@dataclass(frozen=True, slots=True)
class SealReport(JsonObject):
    """What became of all artifacts, and by which key: None where nothing was signed.

    `is_listed` says whether the key is one of the signers file.
    """

    KEYS = "keyid listed=is_listed sealed doubts"

    sealed: tuple[Sealed, ...]
    keyid: str | None = None
    is_listed: bool = True
    doubts: tuple[Doubt, ...] = ()


def seal(
    repo: Repository,
    paths: Sequence[str],
    key: Callable[[], SigningKey],
    options: SealOptions,
    *,
    threads: int | None = None,
    key_file: Path | None = None,
) -> SealReport:
    """Seal artifacts: those at `paths` (files or folders, from here), or all.

    `key` gives the signing key, and is called where there is something to sign.
    Under the secret in `key_file` states are kept, see `chain.state_cache`.

    Raises CheckError for what can't be sealed (raw or damaged contents,
    ledgers that do not read or differ between index and work tree), InputError
    for paths that are no artifacts, UsageError for a key that can't cosign, and
    TrustError for a native text's own signature that its key did not make, for
    a key that can't countersign, and for a trust root that is none.
    """
    repo.check_worktree()
    if options.build == DELETED_BUILD:
        raise UsageError(
            f'build "{DELETED_BUILD}" is what the record of a deletion says',
            hint="wtxtgit seal --staged -- PATH seals that PATH is deleted",
        )
    is_staged = options.staged or options.countersign or options.reseal is not None
    with BlobReader(repo) as blobs, ExitStack() as closing:
        files = SealedFiles(repo, blobs, is_staged)

        def before() -> Before:
            snapshots = closing.enter_context(CommitFilesReader(repo))
            entries = files.entries.values()
            reader, kept = ChainReader(blobs), KeptStates(repo, key_file)
            return Before.of(repo, reader, snapshots, entries, options.trust_root, kept)

        work = SealPlanner(files, options, ContentReader(files, threads), before)
        plans = list(work.plans(paths))
        unsigned = [plan for plan in plans if plan.numbers]
        signer = key() if unsigned else None
        if signer is not None:
            work.check_key(signer)
            for plan in unsigned:
                plan.sign(signer)
        files.write(
            {p.path + LEDGER_SUFFIX: p.content() for p in plans if p.is_written},
            [p.taken_from + LEDGER_SUFFIX for p in plans if p.taken_from is not None],
        )
        outcomes, doubts = tuple(_outcome(plan) for plan in plans), tuple(work.contents.doubts)
        if signer is None:
            return SealReport(outcomes, doubts=doubts)
        is_listed = signer.public_key in files.signers
        return SealReport(outcomes, keyid(signer.public_key), is_listed, doubts)


def _outcome(plan: LedgerPlan) -> Sealed:
    last = plan.records[-1]
    gens = tuple(plan.records[n].meta.gen for n in plan.numbers)
    return Sealed(plan.path, plan.action, last.meta.gen, last.sha256_all, gens, plan.moved_from)
