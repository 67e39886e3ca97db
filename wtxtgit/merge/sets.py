"""The index of a set whose files git merges one by one: rebuilt from the merged files.

A driver writes one file. Git calls it for one file after the other, in no certain order. So the
driver for an index finds all other files in the trees that git merges, and merges again those that
both sides changed, which gives the same bytes as the drivers of those files. It gives up if it
can't be certain of the results: if the trees are not known, or have other contents than the driver
was given, or if a file was moved.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wtxtgit.checkpoint.members import entry_members
from wtxtgit.checkpoint.open import as_checked_out, blob, payload_in
from wtxtgit.checkpoint.reseal import shape_of
from wtxtgit.containers import registry
from wtxtgit.containers.format import Format, OpenMember, SetResealer
from wtxtgit.errors import CheckError, FormatError, InputError, WtxtgitError
from wtxtgit.git import index
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.merging import MergedTrees
from wtxtgit.git.repository import DRIVER, Repository
from wtxtgit.git.trees import TreeEntry, TreeReader
from wtxtgit.io.files import shown
from wtxtgit.io.view import ByteView, pieces, same_bytes
from wtxtgit.model.plain import equal_values
from wtxtgit.model.tensor import ReadOptions

_BASE, _OURS, _THEIRS = range(3)
_SIDES = (_OURS, _THEIRS)

MergeFile = Callable[[bytes, Sequence[ByteView]], ByteView | None]
"""Merges three contents as git stores them, for a path; None if that leaves a conflict."""


@dataclass(frozen=True, slots=True)
class _SetVersion:
    """One of the three versions of a set: its JSON, and its files in a tree, by path there."""

    tree: str
    json: ByteView
    files: Mapping[bytes, TreeEntry]
    index: bytes
    parts: tuple[bytes, ...]


@dataclass(eq=False)
class MergedSet:
    """A set in a merge of three trees, whose JSON both sides changed.

    `listing` is the path of the JSON, from the top level like all others.
    """

    repo: Repository
    listing: bytes
    format: Format
    versions: tuple[_SetVersion, _SetVersion, _SetVersion]

    @classmethod
    def find(
        cls, repo: Repository, path: bytes, merging: Callable[[], MergedTrees | None]
    ) -> MergedSet | None:
        """Return the set that a file is in, if git has its JSON merged by our driver; else None.

        None also if it is unknown which trees git merges.
        """
        format_ = registry.of_hashed_set(os.fsdecode(path))
        if format_ is None or format_.reseal_set is None or (trees := merging()) is None:
            return None
        with TreeReader(repo) as reader:
            for listing in _listings(reader, trees.ours, path, format_):
                try:
                    base, ours, theirs = _versions(repo, reader, trees, listing, format_)
                except WtxtgitError:
                    continue
                if path in base.files.keys() | ours.files.keys() | theirs.files.keys():
                    merged_set = cls(repo, listing, format_, (base, ours, theirs))
                    return merged_set if merged_set._is_driven(listing) else None
        return None

    @property
    def index_paths(self) -> tuple[bytes, bytes]:
        """The paths of the files that make up the index."""
        return self.listing, self.versions[_OURS].index

    @property
    def resealer(self) -> SetResealer:
        """What rebuilds the index."""
        if self.format.reseal_set is None:
            raise FormatError(f"sets of {self.format.name} have no hashes")
        return self.format.reseal_set()

    def rebuild(
        self,
        path: bytes,
        contents: Sequence[ByteView],
        merge_file: MergeFile,
        options: ReadOptions,
        threads: int | None,
    ) -> ByteView:
        """Return the JSON, or the file that lists tensors, for the merged files.

        `contents` are the contents that git gave the driver for `path`. Raises CheckError that says
        why it can't be rebuilt.
        """
        for content, oid in zip(contents, self._oids(path), strict=True):
            if oid is None or blob_id(pieces(content), len(content), like=oid) != oid:
                raise CheckError("it is unknown which trees git merges")
        self._refuse_staged()
        try:
            former = self.versions[self._skeleton()]
            sides = {part: self._side_of_part(part) for part in former.parts}
            self._refuse_dropped(former)
            self._refuse_moved(sides)
            merged = {
                part: self._merge_part(part, merge_file, threads)
                for part, side in sides.items()
                if side is None
            }
            files = {
                part: self.versions[side].files[part]
                for part, side in sides.items()
                if side is not None
            }
            files[former.index] = former.files[former.index]
            open_entry: OpenMember = entry_members(
                self.repo, files.get, self.listing, threads=threads
            )

            def opened(member: str) -> ByteView:
                merged_part = merged.get(self._path(member))
                return open_entry(member) if merged_part is None else merged_part

            name, remade, listed = self.resealer.reseal_set(former.json, opened)

            def resealed(member: str) -> ByteView:
                return memoryview(remade) if member == name else opened(member)

            # What only one side changed has been checked, or not, where that was committed.
            checked = [former.index, *merged]
            self._check(memoryview(listed), resealed, checked, options)
        except FormatError as error:
            raise CheckError(error.message) from error
        rebuilt = {former.index: memoryview(remade), self.listing: memoryview(listed)}
        for file, content in rebuilt.items():
            if not self._is_driven(file):
                self._refuse_other(file, content)
        return rebuilt[path]

    def _check(
        self, listed: ByteView, opened: OpenMember, paths: Collection[bytes], options: ReadOptions
    ) -> None:
        """Raise CheckError if files of the set are invalid, or do not match the index."""
        if self.format.read_set is None:
            raise FormatError(f"{self.format.name} has no sets")
        files_read = self.format.read_set().read(listed, opened)
        names = [name for name in files_read.members if self._path(name) in paths]
        for findings in files_read.check_members(names, options):
            for problem in findings.errors:
                raise CheckError(str(problem))

    @cached_property
    def _drivers(self) -> dict[bytes, dict[str, bytes]]:
        paths = sorted({file for one in self.versions for file in one.files})
        return self.repo.attributes(paths, ["merge"], from_index=self.repo.is_bare)

    def _is_driven(self, path: bytes) -> bool:
        """Whether git calls our driver for a path: both sides changed it, each in its way."""
        oids = self._oids(path)
        is_merged = None not in oids and len(set(oids)) == len(oids)
        return is_merged and self._drivers[path]["merge"] == DRIVER

    def _oids(self, path: bytes) -> tuple[str | None, ...]:
        entries = (one.files.get(path) for one in self.versions)
        return tuple(None if entry is None else entry.oid for entry in entries)

    def _path(self, member: str) -> bytes:
        return posixpath.join(posixpath.dirname(self.listing), os.fsencode(member))

    def _skeleton(self) -> int:
        """Return the side whose JSON and index are taken, except for values made from the parts."""
        allowed = set(_SIDES)
        if len({one.index for one in self.versions}) > 1:
            raise CheckError("its index has a different name on one side")
        facts: tuple[tuple[str, list[object]], ...] = (
            ("list different files", [shape_of(one.json) for one in self.versions]),
            (
                "describe tensors differently",
                [self.resealer.unsealed(self._content(one, one.index)) for one in self.versions],
            ),
        )
        for difference, (base, ours, theirs) in facts:
            if equal_values(ours, theirs):
                continue
            changed = [_OURS] if equal_values(base, theirs) else []
            changed += [_THEIRS] if equal_values(base, ours) else []
            allowed &= set(changed)
            if not allowed:
                raise CheckError(f"the two sides {difference}")
        return min(allowed)

    def _side_of_part(self, path: bytes) -> int | None:
        """Return the side from which git takes a part; None if it is merged."""
        base, ours, theirs = self._oids(path)
        if ours == theirs and ours is not None:
            return _OURS
        if base is None and (ours is None or theirs is None):
            return _THEIRS if ours is None else _OURS
        if None in (base, ours, theirs):
            raise CheckError(f"both sides changed {shown(os.fsdecode(path))}, or one removed it")
        if theirs == base:
            return _OURS
        return _THEIRS if ours == base else None

    def _refuse_staged(self) -> None:
        """Raise CheckError if a file of the set has staged changes: then ours is not HEAD."""
        staged = {entry.path: entry.oid for entry in index.entries(self.repo)}
        files = {path for one in self.versions for path in one.files}
        if any(staged.get(path) != self._oids(path)[_OURS] for path in files):
            raise CheckError("changes of it are staged")

    def _refuse_dropped(self, former: _SetVersion) -> None:
        """Raise CheckError if a side changed a part that the set is not to have any more."""
        listed = {self.listing, former.index, *former.parts}
        for path in sorted({path for one in self.versions for path in one.files} - listed):
            base, ours, theirs = self._oids(path)
            if base not in (ours, theirs):
                raise CheckError(f"only one side lists {shown(os.fsdecode(path))}")

    def _refuse_moved(self, sides: Mapping[bytes, int | None]) -> None:
        """Raise CheckError if a part that one side added may have been moved there.

        What the other side did to it at its old place would go with it, in git's merge.
        """
        base = self.versions[_BASE]
        added = {
            path: side
            for path, side in sides.items()
            if side is not None and path not in base.files
        }
        if not added:
            return
        # A folder that the other side moved takes added files along; the set's own has the JSON.
        home = posixpath.dirname(self.listing)
        if any(posixpath.dirname(path) != home for path in added):
            raise CheckError("one side added a part in another folder")
        with TreeReader(self.repo) as reader:
            changes = {side: reader.between(base.tree, self.versions[side].tree) for side in _SIDES}
        for side, other in (_SIDES, _SIDES[::-1]):
            removed = {one.path for one in changes[side] if one.after is None}
            if side in added.values() and removed & {one.path for one in changes[other]}:
                raise CheckError("one side may have moved a part that the other side changed")

    def _merge_part(self, path: bytes, merge_file: MergeFile, threads: int | None) -> ByteView:
        """Return the file that git will have for a part that both sides changed."""
        name = shown(os.fsdecode(path))
        if not self._is_driven(path):
            raise CheckError(f"{name} is not merged by tensor")
        merged = merge_file(path, [self._stored(one, path, threads) for one in self.versions])
        if merged is None:
            raise CheckError(f"{name} is in conflict")
        payload = payload_in(self.repo, merged)
        return as_checked_out(name, merged, threads, payload=payload).data

    def _stored(self, version: _SetVersion, path: bytes, threads: int | None) -> ByteView:
        return blob(self.repo, version.files[path].oid, threads)

    def _content(self, version: _SetVersion, path: bytes) -> ByteView:
        return _file(self.repo, version.files[path])

    def _refuse_other(self, path: bytes, content: ByteView) -> None:
        """Raise CheckError unless git, without our driver, takes these bytes for a file."""
        base, ours, theirs = self._oids(path)
        side = _THEIRS if ours == base else _OURS
        if ours == theirs or base in (ours, theirs):
            version = self.versions[side]
            if path in version.files and same_bytes(self._content(version, path), content):
                return
        raise CheckError(f"{shown(os.fsdecode(path))} would not match it")


def _listings(reader: TreeReader, tree: str, path: bytes, format_: Format) -> Iterable[bytes]:
    """Return the paths of the indexes that may list a file."""
    if os.fsdecode(path).endswith(format_.index_endings):
        return [path]
    folder = posixpath.dirname(path)
    entry = reader.standing(tree, folder).entry if folder else None
    oid = tree if not folder else None if entry is None or not entry.is_folder else entry.oid
    names = [] if oid is None else reader.names(oid)
    indexes = [name for name in names if os.fsdecode(name).endswith(format_.index_endings)]
    return [posixpath.join(folder, name) for name in sorted(indexes)]


def _versions(
    repo: Repository, reader: TreeReader, trees: MergedTrees, listing: bytes, format_: Format
) -> Iterator[_SetVersion]:
    """Yield the versions of a set; raises WtxtgitError if a tree has none."""
    lists: list[tuple[ByteView, list[bytes]]] = []
    for tree in trees:
        entry = reader.at(tree, [listing]).get(listing)
        if entry is None or not entry.is_file or format_.reseal_set is None:
            raise InputError("no such file")
        data = _file(repo, entry)
        files = format_.reseal_set().listed_files(data, _unopened)
        folder = posixpath.dirname(listing)
        lists.append((data, [posixpath.join(folder, os.fsencode(one.path)) for one in files]))
    all_paths = {listing, *(path for _, paths in lists for path in paths)}
    for tree, (data, (first, *parts)) in zip(trees, lists, strict=True):
        present = reader.at(tree, all_paths)
        if (
            not all(one.is_file for one in present.values())
            or not {first, *parts} <= present.keys()
        ):
            raise InputError("a file of the set is missing")
        yield _SetVersion(tree, data, present, first, tuple(parts))


def _file(repo: Repository, entry: TreeEntry) -> ByteView:
    stored = blob(repo, entry.oid)
    name = shown(os.fsdecode(entry.path))
    return as_checked_out(name, stored, None, payload=payload_in(repo, stored)).data


def _unopened(path: str) -> ByteView:
    raise InputError(f"{shown(path)} is not asked for")
