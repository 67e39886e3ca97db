"""Which checkpoints two commits differ in, and which of them are the same one, renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wtxtgit.chain.check import TEXT_SUFFIX
from wtxtgit.chain.judge import place
from wtxtgit.chain.reader import ChainReader, artifacts
from wtxtgit.errors import counted
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeReader, renames
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, Ledger
from wtxtgit.report.review import Fate
from wtxtgit.review.branch import Branch

MOST_SEARCHED = 500
"""Files that came or went, up to which renames are looked for by content."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A checkpoint that is another one at the head: its path there, and at the base if not new.

    `before` and `after` are what stands there, None for nothing.
    """

    path: bytes
    fate: Fate
    base_path: bytes | None
    before: Entry | None
    after: Entry | None

    @property
    def paths(self) -> tuple[bytes, ...]:
        """Its path, and the one that it had before."""
        if self.base_path is None or self.base_path == self.path:
            return (self.path,)
        return self.path, self.base_path


def changes(
    repo: Repository, branch: Branch, snapshots: CommitFilesReader, reader: ChainReader
) -> tuple[list[Changed], list[str]]:
    """List the checkpoints that differ, in order of their paths, and what was not looked for.

    They are what the filter is for at either end, what has a ledger, and
    native texts; the signers are none.
    """
    ends = [snapshots.files(commit.oid) for commit in (branch.before, branch.after)]
    pairs = _differing(repo, branch, *ends)
    gone = {path: before for path, (before, after) in pairs.items() if before and not after}
    come = {path: after for path, (before, after) in pairs.items() if after and not before}
    moved, notes = _moved(repo, branch, reader, ends, gone, come)
    found = []
    for path, (before, after) in pairs.items():
        if path in moved:
            source = moved[path]
            found.append(Changed(path, Fate.RENAMED, source, gone[source], after))
        elif path not in moved.values():
            found.append(_of_one_path(path, before, after))
    return sorted(found, key=lambda one: one.path), notes


def _of_one_path(path: bytes, before: Entry | None, after: Entry | None) -> Changed:
    if before is None:
        return Changed(path, Fate.ADDED, None, before, after)
    fate = Fate.REMOVED if after is None else Fate.CHANGED
    return Changed(path, fate, path, before, after)


def _differing(
    repo: Repository, branch: Branch, old: CommitFiles, new: CommitFiles
) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """What stands at each path, before and after."""
    paths = sorted(artifacts(old) | artifacts(new))
    differing = [path for path in paths if place(old, path) != place(new, path)]
    with TreeReader(repo) as trees:
        ends = [
            _standing(trees, commit.tree, state, differing)
            for commit, state in ((branch.before, old), (branch.after, new))
        ]
        found = {path: (ends[0].get(path), ends[1].get(path)) for path in differing}
        # A checkpoint that was gone before may still have a ledger.
        found = {path: pair for path, pair in found.items() if any(pair)}
        for change in trees.between(branch.before.tree, branch.after.tree):
            if change.path.endswith(TEXT_SUFFIX):
                found.setdefault(change.path, (change.before, change.after))
    found.pop(SIGNERS_PATH, None)
    return found


def _standing(
    trees: TreeReader, tree: str, state: CommitFiles, paths: Sequence[bytes]
) -> dict[bytes, Entry]:
    """What stands at these paths, also where the filter is not for them."""
    found = {path: state.entries[path] for path in paths if path in state.entries}
    return found | trees.at(tree, [path for path in paths if path not in found])


def _moved(
    repo: Repository,
    branch: Branch,
    reader: ChainReader,
    ends: list[CommitFiles],
    gone: Mapping[bytes, Entry],
    come: Mapping[bytes, Entry],
) -> tuple[dict[bytes, bytes], list[str]]:
    """Where each of `come` was before, by its ledger, else by content as git finds it; notes."""
    if not gone or not come:
        return {}, []
    old, new = (reader.tree(state).ledgers for state in ends)
    sources = {
        ledger.head: path
        for path in gone
        if (ledger := _ledger(old, path)) is not None and _ledger(new, path) is None
    }
    moved: dict[bytes, bytes] = {}
    for path in come:
        ledger = _ledger(new, path)
        if ledger is not None and ledger.head in sources and _ledger(old, path) is None:
            moved[path] = sources.pop(ledger.head)
    left = [*(gone.keys() - moved.values()), *(come.keys() - moved.keys())]
    trees = branch.before.tree, branch.after.tree
    renamed = renames(repo, *trees, left) if len(left) <= MOST_SEARCHED else None
    if renamed is None:
        note = f"renames by content are not looked for: {counted(len(left), 'file')} came or went"
        return moved, [note if len(left) > MOST_SEARCHED else f"{note}, with paths too long"]
    return moved | renamed, []


def _ledger(ledgers: Mapping[bytes, Ledger], path: bytes) -> Ledger | None:
    return ledgers.get(path + LEDGER_SUFFIX)
