"""Seal: appends signed records of artifacts' contents to their ledgers.

A plan says what happens to a ledger. All plans are made, and signed, before the first ledger is
written. Ledgers are written to the work tree and, if the index is sealed, also to the index, with
the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.chain.reader import ChainReader
from wtxtgit.chain.seal_files import ContentReader, Doubt, SealedFiles
from wtxtgit.chain.seal_plan import Action, LedgerPlan, SealOptions, SealPlanner
from wtxtgit.chain.seal_state import StateBefore
from wtxtgit.chain.state_cache import StateCache
from wtxtgit.errors import (
    UsageError,
)
from wtxtgit.filter.content import ContentCache
from wtxtgit.filter.status import file_changes, filtered_here_alone, tracked
from wtxtgit.git import index
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.index import FileChange
from wtxtgit.git.index_file import sweep
from wtxtgit.git.repository import FILTERS, Repository
from wtxtgit.git.turn import turn
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import (
    DELETED_BUILD,
    LEDGER_SUFFIX,
    SIGNERS_PATH,
)
from wtxtgit.model.plain import JsonObject
from wtxtgit.setup.diagnosis import arguments_here, listed
from wtxtgit.setup.track import here_alone_hint
from wtxtgit.text.digest import keyid
from wtxtgit.trust.signing import SigningKey


@dataclass(frozen=True, slots=True)
class Sealed(JsonObject):
    """The outcome for one artifact.

    `gen` and `sha256_all` are those of the last record, `generations` those of the records that
    were signed now. `moved_from` is the ledger's previous path.
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
    """The outcomes for all artifacts, and the keyid that signed them, None if nothing was signed.

    `is_listed` says whether the key is one of the signers whose signatures count. `note` says how
    far encrypted texts were checked.
    """

    KEYS = "keyid listed=is_listed sealed doubts note?"

    sealed: tuple[Sealed, ...]
    keyid: str | None = None
    is_listed: bool = True
    doubts: tuple[Doubt, ...] = ()
    note: str | None = None


def seal(
    repo: Repository,
    paths: Sequence[str],
    key: Callable[[], SigningKey],
    options: SealOptions,
    *,
    threads: int | None = None,
    key_file: Path | None = None,
    progress: Progress | None = None,
) -> SealReport:
    """Seal artifacts: those at `paths` (files or folders, relative to this folder), or all.

    `key` returns the signing key, and is called only if there is something to sign. Trust states
    are cached under the secret in `key_file`, see `chain.state_cache`. `progress` gets counts of
    bytes of files that were read. Raises CheckError for what
    can't be sealed (raw or damaged contents, ledgers that are invalid or differ between index and
    work tree), InputError for paths that are no artifacts, UsageError for a key that can't cosign,
    and TrustError for a native text's own signature that its key did not make, for a key that can't
    countersign, and for an invalid trust root.
    """
    repo.check_worktree()
    sweep(repo)
    if options.build == DELETED_BUILD:
        raise UsageError(
            f'build "{DELETED_BUILD}" is reserved for records of deletions',
            hint="wtxtgit seal --staged -- PATH seals the deletion of PATH",
        )
    # Countersigning and resealing use the index: after a merge the work tree may contain anything.
    is_staged = options.staged or options.countersign or options.reseal is not None
    with turn(repo), BlobReader(repo) as blobs, ExitStack() as closing:
        files = SealedFiles(repo, blobs, is_staged)

        def find_state_before() -> StateBefore:
            snapshots = closing.enter_context(CommitFilesReader(repo))
            entries = files.entries.values()
            reader, cache = ChainReader(blobs), StateCache(repo, key_file)
            return StateBefore.of(repo, reader, snapshots, entries, options.trust_root, cache)

        contents = ContentReader(files, threads, identities=options.identities, progress=progress)
        planner = SealPlanner(files, options, contents, find_state_before)
        plans = list(planner.plans(paths))
        unsigned = [plan for plan in plans if plan.numbers]
        signer = key() if unsigned else None
        if signer is not None:
            planner.check_key(signer)
            for plan in unsigned:
                plan.sign(signer)
        files.write(
            {p.path + LEDGER_SUFFIX: p.content() for p in plans if p.is_written},
            [p.taken_from + LEDGER_SUFFIX for p in plans if p.taken_from is not None],
        )
        outcomes, doubts = tuple(_outcome(plan) for plan in plans), tuple(planner.contents.doubts)
        doubts += tuple(_here_alone_doubts(files, outcomes))
        note = contents.opener.note() if "opener" in vars(contents) else None
        if signer is None:
            if options.staged:
                doubts += tuple(_unstaged_doubts(repo, paths, outcomes, threads, key_file))
            return SealReport(outcomes, doubts=doubts, note=note)
        key_doubts = tuple(_key_doubts(files, signer, {plan.path for plan in unsigned}))
        return SealReport(
            outcomes, keyid(signer.public_key), not key_doubts, (*doubts, *key_doubts), note
        )


def _unstaged_doubts(
    repo: Repository,
    paths: Sequence[str],
    outcomes: Sequence[Sealed],
    threads: int | None,
    key_file: Path | None,
) -> Iterator[Doubt]:
    """Yield a doubt if nothing was sealed because the changes were not added to the index.

    Where `paths` are named, only changes of what they name count.
    """
    entries = [e for e in index.entries(repo) if e.path == SIGNERS_PATH] + tracked(repo)
    with ContentCache(repo, key_file) as cache:
        changed = file_changes(repo, entries, cache, threads).changes
    unstaged = {path for path, change in changed.items() if change is not FileChange.DELETED}
    if paths:
        unstaged &= {outcome.path for outcome in outcomes}
    else:
        new = index.untracked_paths(repo)
        drivers = repo.attributes(new, ("filter",))
        unstaged |= {p for p in new if p == SIGNERS_PATH or drivers[p]["filter"] in FILTERS}
    if unstaged:
        ordered = sorted(unstaged)
        yield Doubt(
            f"not staged, so not sealed: {listed(ordered)}",
            f"git add -- {arguments_here(repo, ordered)}, then wtxtgit seal --staged",
        )


def _here_alone_doubts(files: SealedFiles, outcomes: Sequence[Sealed]) -> Iterator[Doubt]:
    """Yield a doubt about files that git filters here, but that are no checkpoints elsewhere."""
    sealed = {outcome.path for outcome in outcomes}
    entries = [entry for entry in files.entries.values() if entry.path not in sealed]
    alone = [entry.path for entry in filtered_here_alone(files.repo, entries, files.filtered)]
    if alone:
        yield Doubt(
            f"only core.ignoreCase or attributes of this clone have them filtered, so they are "
            f"not sealed: {listed(alone)}",
            f"{here_alone_hint(files.repo, alone)}, then wtxtgit seal --staged",
        )


def _key_doubts(
    files: SealedFiles, signer: SigningKey, sealed: Collection[bytes]
) -> Iterator[Doubt]:
    """Yield doubts if the signature may not count: a change of the signers has to be sealed by the
    signers before it.
    """
    key, name = keyid(signer.public_key), os.fsdecode(SIGNERS_PATH)
    before = files.signers_before if SIGNERS_PATH in sealed else frozenset()
    if before and signer.public_key not in before:
        yield Doubt(
            f"key {key} is not one of the signers before the change of {name}",
            f"wtxtgit seal --staged --cosign -- {name}  # with the key of one of them",
        )
    has_artifacts = not before or set(sealed) != {SIGNERS_PATH}
    if has_artifacts and signer.public_key not in files.signers:
        yield Doubt(
            f"key {key} is not one of the signers in {name}",
            "wtxtgit signers list lists them; wtxtgit seal --countersign --key NAME signs with the "
            "key of one, wtxtgit signers add YOU@HOST NAME adds another",
        )


def _outcome(plan: LedgerPlan) -> Sealed:
    last = plan.records[-1]
    gens = tuple(plan.records[n].meta.gen for n in plan.numbers)
    return Sealed(plan.path, plan.action, last.meta.gen, last.sha256_all, gens, plan.moved_from)
