"""Checkpoints in several files: treating the shards of a set as one changed checkpoint.

A set is found by its index, whether or not that has the filter, in the folder of a changed shard or
above it. A shard is part of the set if the indexes of both ends list it, so far as it exists there.
A shard that only one end lists is compared by itself, so that no index can hide a change. Spec:
`docs/spec/containers.md`, "Sets".
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from wtxtgit.checkpoint.open import as_checked_out, blob, payload_in
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.format import SetFolder, is_in_folder
from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry, TreeReader
from wtxtgit.report.review import Fate
from wtxtgit.review.changes import Branch, ChangedCheckpoint


@dataclass(frozen=True, slots=True)
class _ListedSet:
    """The index of a set at one end, and the paths of the files that it lists."""

    entry: TreeEntry
    files: frozenset[bytes]

    @property
    def folder(self) -> bytes:
        return posixpath.dirname(self.entry.path)


_Indexes = Mapping[bytes, _ListedSet]
"""The sets of one end, by the paths of their indexes."""


def with_sets(
    repo: Repository,
    branch: Branch,
    changed: Iterable[ChangedCheckpoint],
    artifacts: Collection[bytes],
) -> list[ChangedCheckpoint]:
    """Add the sets to which changed files belong, in order of the paths.

    `artifacts` are the paths of checkpoints at either end: other sets are not part of the review.
    Raises EnvironmentFailure if git can't provide a tree.
    """
    alone = {checkpoint.path: checkpoint for checkpoint in changed}
    with TreeReader(repo) as trees:
        reader = _ListedSetReader(repo, trees)
        names = registry.index_endings()
        moved = {
            change.path
            for change in trees.between(branch.before.tree, branch.after.tree)
            if os.fsdecode(change.path).endswith(names)
        }
        paths = moved.union(*(checkpoint.paths for checkpoint in alone.values()))
        before, after = (
            reader.listings(commit.tree, paths) for commit in (branch.before, branch.after)
        )
        # An index that lists nothing any more is still there.
        unread = {path: trees.standing(branch.after.tree, path).entry for path in before}
    sets = [
        pair
        for pair in _paired(before, after, alone, unread)
        if not alone.keys().isdisjoint(pair.touched)
        or (not moved.isdisjoint(pair.paths) and any(path in artifacts for path in pair.parts))
    ]
    for one in sets:
        old, new = before.get(one.base_path or b""), after.get(one.path)
        parts = {shard for shard in one.parts if shard in alone}
        for shard in parts:
            if alone[shard].part_of is None and _is_part(alone[shard], old, new):
                alone[shard] = replace(alone[shard], part_of=one.path)
    # An index that has the filter is already there, as a file of its own.
    for one in sets:
        alone[one.path] = replace(one, part_of=None)
    return sorted(alone.values(), key=lambda checkpoint: checkpoint.path)


def _paired(
    before: _Indexes,
    after: _Indexes,
    changed: Mapping[bytes, ChangedCheckpoint],
    unread: Mapping[bytes, TreeEntry | None],
) -> Iterator[ChangedCheckpoint]:
    """Yield each set that is at either end, with its former place.

    `unread` is what stands at the head where a set's index was at the base.
    """
    renamed: dict[bytes, bytes] = {}
    for path, listing in after.items():
        source = None if path in before else _source(listing, before, changed)
        if source is not None and source not in after and source not in renamed.values():
            renamed[path] = source
    for path, listing in after.items():
        old = before.get(renamed.get(path, path))
        fate = Fate.ADDED if old is None else Fate.RENAMED if path in renamed else Fate.CHANGED
        base = None if old is None else old.entry
        files = listing.files | (frozenset() if old is None else old.files)
        base_path = None if base is None else base.path
        yield ChangedCheckpoint(path, fate, base_path, base, listing.entry, tuple(sorted(files)))
    for path, listing in before.items():
        if path not in after and path not in renamed.values():
            left = unread.get(path)
            fate = Fate.REMOVED if left is None else Fate.CHANGED
            yield ChangedCheckpoint(
                path, fate, path, listing.entry, left, tuple(sorted(listing.files))
            )


def _source(
    listing: _ListedSet, before: _Indexes, changed: Mapping[bytes, ChangedCheckpoint]
) -> bytes | None:
    """Return the former index of a set whose shards were moved from another folder, if any."""
    for shard in sorted(listing.files):
        one = changed.get(shard)
        if one is None or one.base_path is None or one.base_path == shard:
            continue
        within = shard[len(listing.folder) :]
        if one.base_path.endswith(within):
            folder = one.base_path[: len(one.base_path) - len(within)]
            name = posixpath.basename(listing.entry.path)
            source = posixpath.join(folder, name)
            if source in before:
                return source
    return None


def _is_part(shard: ChangedCheckpoint, old: _ListedSet | None, new: _ListedSet | None) -> bool:
    """Whether the set's index lists the shard at every end at which the shard exists."""
    is_listed = shard.after is None or (new is not None and shard.path in new.files)
    base = shard.base_path
    return is_listed and (shard.before is None or (old is not None and base in old.files))


class _ListedSetReader:
    """Reads the indexes of sets in trees."""

    def __init__(self, repo: Repository, trees: TreeReader) -> None:
        self._repo = repo
        self._trees = trees
        self._files: dict[tuple[str, str], tuple[str, ...]] = {}

    def listings(self, tree: str, paths: Iterable[bytes]) -> dict[bytes, _ListedSet]:
        """Return the sets whose index is in the folder of one of these paths, or above it."""
        folders = {above for path in paths for above in _above(path)}
        sets = {}
        for folder in sorted(folders):
            for name in self._names(tree, folder):
                path = posixpath.join(folder, name)
                entry = self._trees.standing(tree, path).entry
                if entry is None or not entry.is_file:
                    continue
                # Files that are never opened as parts of the set are not parts.
                listed = filter(is_in_folder, self._listed(entry))
                files = frozenset(posixpath.join(folder, os.fsencode(file)) for file in listed)
                if files:
                    sets[path] = _ListedSet(entry, files)
        return sets

    def _names(self, tree: str, folder: bytes) -> list[bytes]:
        oid = tree
        if folder:
            entry = self._trees.standing(tree, folder).entry
            if entry is None or not entry.is_folder:
                return []
            oid = entry.oid
        endings = registry.index_endings()
        return [n for n in self._trees.names(oid) if os.fsdecode(n).endswith(endings)]

    def _listed(self, entry: TreeEntry) -> tuple[str, ...]:
        """Return the files that an index lists; none if it is not an index, or can't be read."""
        name = os.fsdecode(posixpath.basename(entry.path))
        # In some sets the files' names depend on the name of the index.
        key = (entry.oid, name)
        if key not in self._files:
            try:
                data = blob(self._repo, entry.oid)
                payload = payload_in(self._repo, data)
                opened = as_checked_out(os.fsdecode(entry.path), data, None, payload=payload)
                folder = SetFolder(_unopened, lambda: name)
                self._files[key] = any_format.members(opened.data, folder)
            except (EnvironmentFailure, InputError):
                self._files[key] = ()
        return self._files[key]


def _unopened(path: str) -> NoReturn:
    raise InputError(f"{path} is not opened")


def _above(path: bytes) -> Iterator[bytes]:
    """Yield the folder of a path, and all folders above it; b"" for the top level."""
    while path:
        path = posixpath.dirname(path)
        yield path
