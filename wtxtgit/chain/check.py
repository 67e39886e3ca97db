"""Check: judges what is about to be committed, from the index alone.

The index is the one that git names: GIT_INDEX_FILE may be a temporary one. The work tree may
contain anything and is not read. If nothing is filtered, sealed or a text, few modules are loaded,
because this runs before every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.git import history, index
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.history import Head
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import FILTERS, Repository
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import ENCRYPTED_SUFFIX, TEXT_SUFFIX
from wtxtgit.report.check import CheckReport

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.trust.age.identities import AgeIdentity


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What is to be checked, and how.

    `trust_root` is a revision or a signers file. `merged` are commits of a merge in progress that
    git has not recorded yet. With `every`, files that are the same as in HEAD are judged as well.
    With `require_sealed` everything has to be sealed, whether there are signers or not. With
    `strict` warnings are errors, and checkpoints are checked as by `verify --strict`. `identities`
    decrypt encrypted texts.
    """

    trust_root: str | None = None
    merged: tuple[str, ...] = ()
    every: bool = False
    require_sealed: bool = False
    strict: bool = False
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)


def check(
    head: Head,
    request: CheckRequest,
    processes: Callable[[], int],
    key_file: Path | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check the index as the commit that is about to be made.

    `processes` gives how many processes at most read large blobs. Facts that `filter.content`
    cached under the secret in `key_file` are reused. `progress` gets counts of bytes of blobs that
    were read. Raises EnvironmentFailure for a trust root that does not exist, and KeyFileError for
    one that is an unreadable file.
    """
    repo = head.repo
    parents = parents_of_next(head, request.merged)
    entries = {
        entry.path: TreeEntry(entry.path, entry.mode, entry.oid)
        for entry in index.entries(repo)
        if entry.stage == 0 and not entry.intended
    }
    with CommitFilesReader(repo) as snapshots:
        snapshot = snapshots.staged(entries.values())
        texts = _texts(repo, entries, snapshot, every=request.every)
        before = [snapshots.files(oid) for oid in parents]
        is_plain = not texts and all(one.is_plain for one in (snapshot, *before))
        # What the trust root knows may have been removed in earlier commits.
        if is_plain and request.trust_root is None and not _filtered_here(repo, entries):
            return CheckReport()
        # Imported here: numpy and cryptography take longer to load than git takes to answer.
        from wtxtgit.chain.reader import Facts
        from wtxtgit.chain.staged import StagedCommit, judge_staged
        from wtxtgit.chain.state_cache import StateCache

        facts = Facts(repo, processes(), key_file=key_file)
        staged = StagedCommit(
            entries,
            snapshot,
            tuple(parents),
            tuple(texts),
            is_whole=request.every,
            is_sealed=request.require_sealed,
            is_strict=request.strict,
            identities=request.identities,
        )
        cache = StateCache(repo, key_file)
        return judge_staged(repo, staged, request.trust_root, snapshots, facts, cache, progress)


def parents_of_next(head: Head, merged: Sequence[str]) -> list[str]:
    """Return the parents of a commit made now; `merged` as in CheckRequest."""
    parents = history.next_parents(head)
    if len(parents) != 1:
        return parents
    # Commits that HEAD contains are left over from an earlier merge.
    merging = [
        oid
        for oid in merged
        if oid != parents[0] and not history.is_ancestor(head.repo, oid, parents[0])
    ]
    return list(dict.fromkeys([*parents, *merging]))


def _filtered_here(repo: Repository, entries: Container[bytes]) -> bool:
    """Tell whether settings of this clone alone have anything filtered that is staged."""
    if repo.is_bare or not repo.has_own_attributes():
        return False
    staged = [path for path in index.staged_paths(repo) if path in entries]
    return any(one["filter"] in FILTERS for one in repo.attributes(staged, ("filter",)).values())


def _texts(
    repo: Repository, entries: dict[bytes, TreeEntry], snapshot: CommitFiles, *, every: bool
) -> list[TreeEntry]:
    """Choose the native and encrypted texts that are to be verified."""
    texts = [
        entry
        for path, entry in sorted(entries.items())
        if path.endswith((TEXT_SUFFIX, ENCRYPTED_SUFFIX))
        and entry.is_file
        and path not in snapshot.filtered
    ]
    if not texts or every:
        return texts
    # Imported here: most commits have no texts.
    from wtxtgit.text.grammar import WSUM_SUFFIX

    changed = index.staged_paths(repo)
    return [entry for entry in texts if {entry.path, entry.path + WSUM_SUFFIX} & changed]
