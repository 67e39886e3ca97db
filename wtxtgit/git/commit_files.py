"""The files of a commit that matter to sealing: artifacts, ledgers, gitattributes and signers.

One tree is listed completely; others are derived from their differences to a known tree, so the
cost is that of the changes. Where a gitattributes file differs, other paths may be filtered, and
the tree is listed again.
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
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, stands_beside

_ATTRIBUTES = attributes.FILE_NAME.encode()
_MOST_TREES = 256
"""Most trees that are remembered."""
_MOST_PARENTS = 4
"""Most parents that a merge is compared with."""


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """What a commit has that matters to sealing.

    `entries` are files, links and submodules by path: everything that goes through the filter
    according to the commit's own gitattributes files, ledgers, gitattributes files, the signers,
    and everything that has a ledger next to it. `filtered` are those of the paths that go through
    the filter; ledgers, gitattributes files and the signers never do. `attribute_files` maps the
    paths of the gitattributes files that git reads to blob ids.
    """

    entries: Mapping[bytes, TreeEntry]
    filtered: frozenset[bytes]
    attribute_files: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether nothing in the commit is filtered or sealed, and there is no file of signers."""
        return all(map(_is_attributes, self.entries))


class CommitFilesReader:
    """Reads CommitFiles of commits; a context manager.

    Needs few git processes in all, and one or two for each set of gitattributes files. It is
    fastest if parents are asked for before their children.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._closing = contextlib.ExitStack()
        self._commits = self._closing.enter_context(CommitReader(repo))
        self._reader = self._closing.enter_context(TreeReader(repo))
        self._attributes = self._closing.enter_context(TreeAttributes(repo))
        self._trees: OrderedDict[str, CommitFiles] = OrderedDict()
        self._commits_by_oid: dict[str, Commit] = {}

    def __enter__(self) -> CommitFilesReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @cached_property
    def _boundary(self) -> frozenset[str]:
        return history.shallow_boundary(self._repo)

    def files(self, oid: str) -> CommitFiles:
        """Return the files of a commit, given by its object id.

        Commits with the same files share one object. Raises EnvironmentFailure if a git object is
        missing.
        """
        commit = self.commit(oid)
        parents = () if oid in self._boundary else dict.fromkeys(commit.parents)
        return self._tree(commit.tree, [self.commit(parent).tree for parent in parents])

    def staged(self, entries: Iterable[TreeEntry]) -> CommitFiles:
        """Return the files that a commit with these index entries would have."""
        return self._of_entries({entry.path: entry for entry in entries})

    def listing(self, oid: str) -> dict[bytes, TreeEntry]:
        """List all files of a commit, by path."""
        return self._reader.listing(self.commit(oid).tree)

    def at(self, oid: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """Return the entries at these paths of a commit; paths without one are left out."""
        return self._reader.at(self.commit(oid).tree, paths)

    def changes(self, before: str | None, after: str) -> list[TreeChange]:
        """List the files that differ between two commits; `before` may be None for an empty
        tree.
        """
        tree_before = None if before is None else self.commit(before).tree
        return self._reader.between(tree_before, self.commit(after).tree)

    def attributes(
        self,
        files: CommitFiles,
        paths: Iterable[bytes],
        names: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Return the attributes of paths under a commit's own gitattributes.

        See `TreeAttributes.values`.
        """
        return self._attributes.values(files.attribute_files, paths, names, ignore_case=ignore_case)

    def commit(self, oid: str) -> Commit:
        """Return a commit, read from the bytes of its object."""
        if oid not in self._commits_by_oid:
            self._commits_by_oid[oid] = self._commits.commit(oid)
        return self._commits_by_oid[oid]

    def adopt(self, commit: Commit) -> None:
        """Remember a commit that is given, such as `history.nothing`, instead of reading it."""
        self._commits_by_oid[commit.oid] = commit

    def _tree(self, oid: str, near: Sequence[str]) -> CommitFiles:
        tree = self._trees.pop(oid, None) or self._compared(oid, near) or self._listed(oid)
        if len(self._trees) >= _MOST_TREES:
            self._trees.popitem(last=False)
        # Reinserted last: most trees differ least from the one that was asked for just before.
        self._trees[oid] = tree
        return tree

    def _compared(self, oid: str, near: Sequence[str]) -> CommitFiles | None:
        """Derive a tree's files from a known tree with the same gitattributes; None if there is
        none.
        """
        last = next(reversed(self._trees), "")
        # Parents differ least. A merge of very many parents is not compared with each of them.
        for other in dict.fromkeys([*near[:_MOST_PARENTS], last]):
            base = self._trees.get(other)
            if base is None:
                continue
            changes = self._reader.between(other, oid)
            if not any(_is_attributes(change.path) for change in changes):
                return self._changed(oid, base, changes)
        return None

    def _changed(self, oid: str, base: CommitFiles, changes: Sequence[TreeChange]) -> CommitFiles:
        entries_before, filtered = base.entries, base.filtered
        # Path and gitattributes alone decide what is filtered, and the latter are unchanged.
        changed = {change.path for change in changes}
        present = {change.path: change.after for change in changes if change.after is not None}
        filtered = (filtered - changed) | self._filtered(base.attribute_files, present)
        entries = {path: entry for path, entry in entries_before.items() if path not in changed}
        entries |= _choose(present, filtered, entries.keys() | present.keys())
        # A ledger may have been added or removed while its artifact is unchanged.
        newly_sealed = _sealed(present.keys() - entries_before.keys()) - changed - entries.keys()
        entries |= self._reader.at(oid, newly_sealed)
        for path in (_sealed(changed - present.keys()) & entries.keys()) - changed - filtered:
            if not _is_special(path):
                del entries[path]
        # Commits with the same files share one object.
        if entries == entries_before and filtered == base.filtered:
            return base
        return CommitFiles(entries, filtered, base.attribute_files)

    def _listed(self, oid: str) -> CommitFiles:
        return self._of_entries(self._reader.listing(oid))

    def _of_entries(self, files: Mapping[bytes, TreeEntry]) -> CommitFiles:
        attribute_files = {
            path: entry.oid
            for path, entry in files.items()
            if _is_attributes(path) and entry.is_file
        }
        filtered = self._filtered(attribute_files, files)
        return CommitFiles(_choose(files, filtered, files), filtered, attribute_files)

    def _filtered(
        self, attribute_files: Mapping[bytes, str], paths: Iterable[bytes]
    ) -> frozenset[bytes]:
        candidates = [path for path in paths if not stands_beside(path)]
        return frozenset(self._attributes.filtered(attribute_files, candidates))


def _choose(
    files: Mapping[bytes, TreeEntry], filtered: Container[bytes], ledgers: Container[bytes]
) -> dict[bytes, TreeEntry]:
    """Choose the entries of a CommitFiles; `ledgers` contains at least the paths of all ledgers."""
    return {
        path: entry
        for path, entry in files.items()
        if path in filtered or _is_special(path) or path + LEDGER_SUFFIX in ledgers
    }


def _sealed(paths: Iterable[bytes]) -> set[bytes]:
    """Return the artifacts of those paths that are ledgers."""
    artifacts = (path.removesuffix(LEDGER_SUFFIX) for path in paths if path.endswith(LEDGER_SUFFIX))
    # No file can have such a name, and git would list the whole folder.
    return {path for path in artifacts if path and not path.endswith(b"/")}


def _is_special(path: bytes) -> bool:
    return path.endswith(LEDGER_SUFFIX) or path == SIGNERS_PATH or _is_attributes(path)


def _is_attributes(path: bytes) -> bool:
    return path == _ATTRIBUTES or path.endswith(b"/" + _ATTRIBUTES)
