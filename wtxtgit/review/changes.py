"""What a branch changes: its two ends, the checkpoints that differ, and gitattributes.

A line `wtxt-merge=theirs` changes no checkpoint, but it changes the result of the next merge of
all of them.
"""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wtxtgit.chain.judge import is_same_place
from wtxtgit.chain.reader import ChainReader, artifacts
from wtxtgit.chain.walk import commit_of
from wtxtgit.checkpoint.delta_base import BaseFinder, StoredBase, base_of, delta_in
from wtxtgit.checkpoint.open import blob
from wtxtgit.errors import MAX_NAME, EnvironmentFailure, UsageError, clipped, counted
from wtxtgit.git import history
from wtxtgit.git.attributes import CHECKOUT, FILE_NAME, TreeAttributes, altering
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import DRIVER, FILTERS, UNSPECIFIED, Repository
from wtxtgit.git.trees import TreeReader, renames
from wtxtgit.model.ledger import (
    DELTA_SUFFIX,
    ENCRYPTED_SUFFIX,
    LEDGER_SUFFIX,
    SIGNERS_PATH,
    TEXT_SUFFIX,
    Ledger,
)
from wtxtgit.report.review import Fate


@dataclass(frozen=True, slots=True)
class Branch:
    """A range of commits.

    `base` and `head` are spelled as in the request. `tip` is the commit that `base` names, None if
    nothing was pushed yet; `before` is the one that is compared with `after`: `tip`, the commit
    where the branch forked off, or one that holds nothing.
    """

    base: str
    head: str
    tip: str | None
    before: Commit
    after: Commit

    @property
    def is_whole(self) -> bool:
        """Whether there is no base, and all that the head holds is new."""
        return self.tip is None

    @property
    def known(self) -> list[str]:
        """The ids of commits that are no part of the branch, nor is what they descend from."""
        return [] if self.tip is None else [self.tip, self.before.oid]


NOTHING = "nothing"
"""The name of the base if nothing has been pushed yet."""


def branch_of(repo: Repository, spelled: str | None) -> Branch:
    """Parse `BASE...HEAD`, `BASE..HEAD`, or `BASE` for `BASE...HEAD`.

    An end that is left out is HEAD; if nothing is given, the base is the upstream's default branch.
    Raises UsageError if there is none, and EnvironmentFailure for a revision that names no commit.
    """
    if spelled is None:
        spelled = _default(repo)
        if spelled is None:
            after = commit_of(repo, "HEAD")
            with CommitReader(repo) as reader:
                return Branch(NOTHING, "HEAD", None, history.nothing(repo), reader.commit(after))
    base, head, is_direct = _ends(spelled)
    tip, after = commit_of(repo, base), commit_of(repo, head)
    before: str | None = tip
    if not is_direct:
        before = history.merge_base(repo, tip, after)
    # Unrelated histories, or a shallow clone that ends before the fork.
    if before is None:
        raise EnvironmentFailure(
            f"{base!r} and {head!r} have no common commit",
            hint="git fetch --unshallow fetches the whole history; BASE..HEAD needs no common "
            "commit",
        )
    with CommitReader(repo) as reader:
        return Branch(base, head, tip, reader.commit(before), reader.commit(after))


def _ends(spelled: str) -> tuple[str, str, bool]:
    """Return base and head of a range, and whether the base itself is compared with."""
    if spelled.startswith("-"):
        raise UsageError(f"{spelled!r} is not a revision")
    # The longer one first: the shorter one is part of it.
    for dots in ("...", ".."):
        base, separator, head = spelled.partition(dots)
        if separator:
            return base or "HEAD", head or "HEAD", dots == ".."
    return spelled, "HEAD", False


def _default(repo: Repository) -> str | None:
    name = history.default_branch(repo)
    remote = history.upstream(repo)
    if name is None and remote is not None and history.remote_branches(repo, remote):
        raise UsageError(
            f"the default branch of the remote {remote!r} is not known here",
            hint=f"git remote set-head --auto -- {shlex.quote(remote)}",
        )
    return None if name is None else name.removeprefix("refs/remotes/")


MOST_SEARCHED = 500
"""Up to this many added or removed files, renames are searched by content."""


@dataclass(frozen=True, slots=True)
class ChangedCheckpoint:
    """A checkpoint that the branch changes: its path at the head, and at the base if not new.

    `before` and `after` are its blobs, None if absent. For a set they are the index; `parts` are
    the paths of its files at both ends. `part_of` is the index of the set as which a shard is
    compared. `delta_base` is the base of a delta at the head, if that is in the repository.
    """

    path: bytes
    fate: Fate
    base_path: bytes | None
    before: TreeEntry | None
    after: TreeEntry | None
    parts: tuple[bytes, ...] = ()
    part_of: bytes | None = None
    delta_base: StoredBase | None = None

    @property
    def is_delta(self) -> bool:
        """Whether it has the name of a delta, whatever it holds."""
        return self.path.endswith(DELTA_SUFFIX)

    @property
    def touched(self) -> set[bytes]:
        """All paths at which a commit changes it."""
        return {*self.paths, *self.parts}

    @property
    def paths(self) -> tuple[bytes, ...]:
        """Its path, and its former path."""
        if self.base_path is None or self.base_path == self.path:
            return (self.path,)
        return self.path, self.base_path


def changes(
    repo: Repository, branch: Branch, snapshots: CommitFilesReader, reader: ChainReader
) -> tuple[list[ChangedCheckpoint], list[str]]:
    """Return the checkpoints that differ, in order of their paths, and what was not checked.

    They are the paths that have the filter at either end, have a ledger, or hold native texts or
    deltas; signers are not included. A file differs, too, whose attributes now have a checkout
    write other bytes.
    """
    ends = [snapshots.files(commit.oid) for commit in (branch.before, branch.after)]
    pairs = _differing(repo, branch, snapshots, *ends)
    gone = {path: before for path, (before, after) in pairs.items() if before and not after}
    come = {path: after for path, (before, after) in pairs.items() if after and not before}
    moved, notes = _moved(repo, branch, reader, ends, gone, come)
    changed = []
    for path, (before, after) in pairs.items():
        if path in moved:
            source = moved[path]
            changed.append(ChangedCheckpoint(path, Fate.RENAMED, source, gone[source], after))
        elif path not in moved.values():
            changed.append(_of_one_path(path, before, after))
    return sorted(changed, key=lambda one: one.path), notes


def _of_one_path(
    path: bytes, before: TreeEntry | None, after: TreeEntry | None
) -> ChangedCheckpoint:
    if before is None:
        return ChangedCheckpoint(path, Fate.ADDED, None, before, after)
    fate = Fate.REMOVED if after is None else Fate.CHANGED
    return ChangedCheckpoint(path, fate, path, before, after)


def _differing(
    repo: Repository,
    branch: Branch,
    snapshots: CommitFilesReader,
    old: CommitFiles,
    new: CommitFiles,
) -> dict[bytes, tuple[TreeEntry | None, TreeEntry | None]]:
    """Return what stands at each path that differs, before and after."""
    paths = sorted(artifacts(old) | artifacts(new))
    altered = _altered(snapshots, old, new, paths)
    differing = [path for path in paths if path in altered or not is_same_place(old, new, path)]
    with TreeReader(repo) as trees:
        ends = [
            _entries_at(trees, commit.tree, state, differing)
            for commit, state in ((branch.before, old), (branch.after, new))
        ]
        entries = {path: (ends[0].get(path), ends[1].get(path)) for path in differing}
        # A checkpoint that was already deleted may still have a ledger.
        entries = {path: pair for path, pair in entries.items() if any(pair)}
        for change in trees.between(branch.before.tree, branch.after.tree):
            if change.path.endswith((TEXT_SUFFIX, ENCRYPTED_SUFFIX, DELTA_SUFFIX)):
                entries.setdefault(change.path, (change.before, change.after))
    entries.pop(SIGNERS_PATH, None)
    return entries


def _altered(
    snapshots: CommitFilesReader, old: CommitFiles, new: CommitFiles, paths: Sequence[bytes]
) -> set[bytes]:
    """Return the paths whose attributes have a checkout write other bytes at the head alone."""
    if _attribute_files(old) == _attribute_files(new):
        return set()
    altered: set[bytes] = set()
    for ignore_case in (False, True):
        before, after = (
            snapshots.attributes(one, paths, CHECKOUT, ignore_case=ignore_case)
            for one in (old, new)
        )
        altered |= {path for path in paths if {*altering(after[path])} - {*altering(before[path])}}
    return altered


def _entries_at(
    trees: TreeReader, tree: str, state: CommitFiles, paths: Sequence[bytes]
) -> dict[bytes, TreeEntry]:
    """Return what stands at these paths, including paths without the filter."""
    entries = {path: state.entries[path] for path in paths if path in state.entries}
    return entries | trees.at(tree, [path for path in paths if path not in entries])


def _moved(
    repo: Repository,
    branch: Branch,
    reader: ChainReader,
    ends: list[CommitFiles],
    gone: Mapping[bytes, TreeEntry],
    come: Mapping[bytes, TreeEntry],
) -> tuple[dict[bytes, bytes], list[str]]:
    """Return where each path in `come` was before, by its ledger or else by content; and notes."""
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
    # By ledger first: a chain that continues under another name is proof, similarity a guess.
    left = [*(gone.keys() - moved.values()), *(come.keys() - moved.keys())]
    trees = branch.before.tree, branch.after.tree
    # Git compares all pairs, and silently gives up beyond its own limit.
    renamed = renames(repo, *trees, left) if len(left) <= MOST_SEARCHED else None
    if renamed is None:
        note = f"not searched for renames by content: {counted(len(left), 'file')} added or removed"
        return moved, [note if len(left) > MOST_SEARCHED else f"{note}, with paths too long"]
    return moved | renamed, []


def _ledger(ledgers: Mapping[bytes, Ledger], path: bytes) -> Ledger | None:
    return ledgers.get(path + LEDGER_SUFFIX)


NAMES = ("filter", "merge", "wtxt-merge", "diff")
MOST_NOTES = 20
_TRACKED = (DRIVER, DRIVER, UNSPECIFIED, DRIVER)
"""The attributes that `wtxtgit track` sets: those of newly tracked files are compared with them."""


def attribute_notes(repo: Repository, old: CommitFiles, new: CommitFiles) -> Iterator[str]:
    """Describe which attributes, other than the filter, differ at the head, and of which paths.

    Raises EnvironmentFailure if a gitattributes file is missing.
    """
    files = [_attribute_files(state) for state in (old, new)]
    if files[0] == files[1]:
        return
    paths = sorted(new.filtered)
    with TreeAttributes(repo) as attributes:
        before, after = (attributes.values(one, paths, NAMES) for one in files)
    changed_values: defaultdict[tuple[str, bytes, bytes], list[bytes]] = defaultdict(list)
    for path in paths:
        was = before[path] if before[path][0] in FILTERS else _TRACKED
        for name, old_value, value in list(zip(NAMES, was, after[path], strict=True))[1:]:
            if old_value != value:
                changed_values[name, old_value, value].append(path)
    for (name, old_value, value), changed in list(changed_values.items())[:MOST_NOTES]:
        more = f" and {counted(len(changed) - 1, 'more checkpoint')}" if len(changed) > 1 else ""
        where = clipped(os.fsdecode(changed[0]), MAX_NAME) + more
        yield f"attribute {name}: {_shown(old_value)} -> {_shown(value)}, of {where}"
    if len(changed_values) > MOST_NOTES:
        yield f"and {counted(len(changed_values) - MOST_NOTES, 'more change')} of attributes"


def _attribute_files(state: CommitFiles) -> Mapping[bytes, str]:
    name = FILE_NAME.encode()
    return {
        path: entry.oid
        for path, entry in state.entries.items()
        if entry.is_file and (path == name or path.endswith(b"/" + name))
    }


def _shown(value: bytes) -> str:
    return clipped(os.fsdecode(value), MAX_NAME)


def with_bases(
    repo: Repository, branch: Branch, changed: Sequence[ChangedCheckpoint]
) -> list[ChangedCheckpoint]:
    """Add to each delta at the head its base, if that is in the repository.

    Raises EnvironmentFailure if git can't provide a blob.
    """
    # Mostly found next to what it changes: at the base of the branch, and at its head.
    finder = BaseFinder(repo, [*branch.known[1:], branch.after.oid])
    return [_with_base(repo, finder, one) for one in changed]


def _with_base(
    repo: Repository, finder: BaseFinder, checkpoint: ChangedCheckpoint
) -> ChangedCheckpoint:
    if not checkpoint.is_delta or checkpoint.after is None or not checkpoint.after.is_file:
        return checkpoint
    data = delta_in(blob(repo, checkpoint.after.oid), os.fsdecode(checkpoint.path), repo, None)
    base = base_of(data)
    return checkpoint if base is None else replace(checkpoint, delta_base=finder.find(base))
