"""What commits hold of the files that are sealed: artifacts, ledgers, gitattributes, signers.

A tree is listed whole once; another one is told by what differs from one
already known, so the cost is that of the changes. Where a gitattributes file
differs, other files than before may be filtered, and the tree is listed again.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from wtxtgit.git import attributes, history
from wtxtgit.git.attributes import TreeAttributes
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeChange, TreeEntry, TreeReader
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH

_ATTRIBUTES = attributes.FILE_NAME.encode()
_REMEMBERED = 256
"""Trees at most."""
_NEAR = 4
"""Parents at most that a merge is compared with."""


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """What a commit holds.

    `entries` are by path, whatever stands there: files, links, submodules.
    They are: what the commit's own gitattributes files give to the filter,
    ledgers, gitattributes files, the signers, and what has a ledger next to
    it. `filtered` are those of them that go through the filter; ledgers,
    gitattributes files and the signers are never among these.
    `attribute_files` are the gitattributes files that git reads.
    """

    entries: Mapping[bytes, TreeEntry]
    filtered: frozenset[bytes]
    attribute_files: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether nothing in it is filtered, sealed or says who may sign."""
        return all(map(_is_attributes, self.entries))


class CommitFilesReader:
    """Commits' files, as far as they are sealed or say what is; a context manager.

    Few git processes in all, and one or two for each set of gitattributes
    files. Commits are best asked for parents first.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._closing = contextlib.ExitStack()
        self._commits = self._closing.enter_context(CommitReader(repo))
        self._reader = self._closing.enter_context(TreeReader(repo))
        self._attributes = self._closing.enter_context(TreeAttributes(repo))
        self._trees: OrderedDict[str, CommitFiles] = OrderedDict()
        self._known: dict[str, Commit] = {}

    def __enter__(self) -> CommitFilesReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @cached_property
    def _boundary(self) -> frozenset[str]:
        return history.shallow_boundary(self._repo)

    def files(self, oid: str) -> CommitFiles:
        """Give the files of a commit, by its object id.

        Commits that hold the same share one object. Raises EnvironmentFailure where
        an object is not there.
        """
        commit = self.commit(oid)
        known = () if oid in self._boundary else dict.fromkeys(commit.parents)
        return self._tree(commit.tree, [self.commit(parent).tree for parent in known])

    def staged(self, entries: Iterable[TreeEntry]) -> CommitFiles:
        """Give the files of a commit that would have these entries."""
        return self._of_entries({entry.path: entry for entry in entries})

    def listing(self, oid: str) -> dict[bytes, TreeEntry]:
        """List all files of a commit."""
        return self._reader.listing(self.commit(oid).tree)

    def at(self, oid: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """Give what stands at some paths of a commit, if anything."""
        return self._reader.at(self.commit(oid).tree, paths)

    def changes(self, before: str | None, after: str) -> list[TreeChange]:
        """List the files in which a commit differs from another one, or from none."""
        known = None if before is None else self.commit(before).tree
        return self._reader.between(known, self.commit(after).tree)

    def attributes(
        self,
        files: CommitFiles,
        paths: Iterable[bytes],
        names: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Give what attributes paths have by a commit's own files, as `TreeAttributes.values`."""
        return self._attributes.values(files.attribute_files, paths, names, ignore_case=ignore_case)

    def commit(self, oid: str) -> Commit:
        """Give a commit as its own bytes tell it."""
        if oid not in self._known:
            self._known[oid] = self._commits.commit(oid)
        return self._known[oid]

    def adopt(self, commit: Commit) -> None:
        """Take a commit as it is given, such as `history.nothing`."""
        self._known[commit.oid] = commit

    def _tree(self, oid: str, near: Sequence[str]) -> CommitFiles:
        tree = self._trees.pop(oid, None) or self._compared(oid, near) or self._listed(oid)
        if len(self._trees) >= _REMEMBERED:
            self._trees.popitem(last=False)
        # What was asked for last goes last: most trees differ least from the one before.
        self._trees[oid] = tree
        return tree

    def _compared(self, oid: str, near: Sequence[str]) -> CommitFiles | None:
        """Tell a tree from a known one that has the same gitattributes files, if any."""
        last = next(reversed(self._trees), "")
        # Parents differ least; a merge of very many is not compared with each.
        for other in dict.fromkeys([*near[:_NEAR], last]):
            base = self._trees.get(other)
            if base is None:
                continue
            changes = self._reader.between(other, oid)
            if not any(_is_attributes(change.path) for change in changes):
                return self._changed(oid, base, changes)
        return None

    def _changed(self, oid: str, base: CommitFiles, changes: Sequence[TreeChange]) -> CommitFiles:
        before, filtered = base.entries, base.filtered
        # What is filtered is a matter of path and gitattributes alone, and those are the same.
        changed = {change.path for change in changes}
        there = {change.path: change.after for change in changes if change.after is not None}
        filtered = (filtered - changed) | self._filtered(base.attribute_files, there)
        entries = {path: entry for path, entry in before.items() if path not in changed}
        entries |= _chosen(there, filtered, entries.keys() | there.keys())
        # A ledger came or went, and its artifact stays as it was.
        newly_sealed = _sealed(there.keys() - before.keys()) - changed - entries.keys()
        entries |= self._reader.at(oid, newly_sealed)
        for path in (_sealed(changed - there.keys()) & entries.keys()) - changed - filtered:
            if not _is_special(path):
                del entries[path]
        # Commits that hold the same share one object.
        if entries == before and filtered == base.filtered:
            return base
        return CommitFiles(entries, filtered, base.attribute_files)

    def _listed(self, oid: str) -> CommitFiles:
        return self._of_entries(self._reader.listing(oid))

    def _of_entries(self, there: Mapping[bytes, TreeEntry]) -> CommitFiles:
        attribute_files = {
            path: entry.oid
            for path, entry in there.items()
            if _is_attributes(path) and entry.is_file
        }
        filtered = self._filtered(attribute_files, there)
        return CommitFiles(_chosen(there, filtered, there), filtered, attribute_files)

    def _filtered(
        self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]
    ) -> frozenset[bytes]:
        asked = [path for path in paths if not _is_special(path)]
        return frozenset(self._attributes.filtered(attribute_files, asked))


def _chosen(
    files: Mapping[bytes, TreeEntry], filtered: Container[bytes], ledgers: Container[bytes]
) -> dict[bytes, TreeEntry]:
    """Choose the entries of CommitFiles; `ledgers` has all ledgers' paths, and may have more."""
    return {
        path: entry
        for path, entry in files.items()
        if path in filtered or _is_special(path) or path + LEDGER_SUFFIX in ledgers
    }


def _sealed(paths: Iterable[bytes]) -> set[bytes]:
    """Name the artifacts of those of the paths that are ledgers'."""
    artifacts = (path.removesuffix(LEDGER_SUFFIX) for path in paths if path.endswith(LEDGER_SUFFIX))
    # A file can't be named so; git would list the folder's.
    return {path for path in artifacts if path and not path.endswith(b"/")}


def _is_special(path: bytes) -> bool:
    return path.endswith(LEDGER_SUFFIX) or path == SIGNERS_PATH or _is_attributes(path)


def _is_attributes(path: bytes) -> bool:
    return path == _ATTRIBUTES or path.endswith(b"/" + _ATTRIBUTES)
