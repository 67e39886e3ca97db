"""Trees, read from their own bytes: what they contain, and what differs between two.

A tree is a list of `MODE NAME`, NUL and a binary object id, sorted by name, where the names of
folders compare as if they ended with a slash (`base_name_compare` in git's source). Git relies on
that order: in a tree with another order, a command that is given paths misses some that another
command shows. So a tree is accepted only if its hash is its id and each entry is one that git
itself would write at that position.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, product
from operator import ne
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import ObjectReader, check_oid
from wtxtgit.git.repository import Repository

MODE_FOLDER = 0o040000
MODE_FILE = 0o100644
MODE_EXECUTABLE = 0o100755
MODE_LINK = 0o120000
MODE_SUBMODULE = 0o160000


class TreeEntry(NamedTuple):
    """A path of the index, or of a tree (stage 0).

    `mode` is as in a tree. `stage` is 0, or 1 to 3 in a conflict. `skipped` is the skip-worktree
    bit: a sparse checkout has no file for it. `intended` marks `git add -N`: nothing is staged yet,
    and `oid` is the empty blob.
    """

    path: bytes
    mode: int
    oid: str
    stage: int = 0
    skipped: bool = False
    intended: bool = False

    @property
    def is_file(self) -> bool:
        return self.mode not in (MODE_LINK, MODE_SUBMODULE, MODE_FOLDER)

    @property
    def is_folder(self) -> bool:
        return self.mode == MODE_FOLDER


MAX_TREE = 256 * 1024 * 1024
"""Most bytes of one folder's tree that are read: some five million names."""
MOST_ENTRIES = 4_000_000
"""Most entries of a listing or comparison: trees that share folders may name very many paths."""
DEEPEST = 2048
"""Most levels of folders that are read, as in git (core.maxTreeDepth)."""

_MOST_CACHED = 1 << 18
"""Most cached entries of folders, not counting those of the last two folders."""

_FOLDER = b"40000"
_MODES = {
    _FOLDER: MODE_FOLDER,
    b"100644": MODE_FILE,
    # Old versions of git wrote this mode; it means 100644.
    b"100664": MODE_FILE,
    b"100755": MODE_EXECUTABLE,
    b"120000": MODE_LINK,
    b"160000": MODE_SUBMODULE,
}
_ENTRIES = {
    2 * size: re.compile(rb"(%b) ([^\0/]+)\0(.{%d})" % (b"|".join(_MODES), size), re.DOTALL)
    for size in (20, 32)
}
"""Patterns for the entries of a tree, by the number of hexadecimal digits of ids."""
_BETWEEN = len(b" \0")
_FORBIDDEN_NAMES = {
    b"", b".", b"..",
    *(b"." + "".join(spelled).encode() for spelled in product("gG", "iI", "tT")),
}  # fmt: skip
_HINT = "git fsck --full"

_Row = tuple[bytes, bytes, bytes]
"""An entry: mode as written, name, and binary id."""
_Folder = Mapping[bytes, _Row]
"""The entries of a folder, by name."""


class TreeChange(NamedTuple):
    """A path that differs between two trees: its entry in each, None if there is none."""

    path: bytes
    before: TreeEntry | None
    after: TreeEntry | None


class Standing(NamedTuple):
    """The entry at a path, which may be a folder; None if there is none.

    `above` is set if one of the folders above the path is something else: a file, a link or a
    submodule. Then there is nothing at the path.
    """

    entry: TreeEntry | None
    above: TreeEntry | None = None


class ChosenPaths(NamedTuple):
    """A choice of paths, and all folders above them.

    A path that is a folder includes everything in it.
    """

    paths: frozenset[bytes]
    above: frozenset[bytes]

    @classmethod
    def of(cls, paths: Iterable[bytes]) -> ChosenPaths:
        above: set[bytes] = set()
        chosen = frozenset(paths)
        for path in chosen:
            end = path.rfind(b"/")
            while end > 0 and path[:end] not in above:
                above.add(path[:end])
                end = path.rfind(b"/", 0, end)
        return cls(chosen, frozenset(above))


class TreeReader(ObjectReader):
    """Reads trees by id from one running process; a context manager.

    Every method raises EnvironmentFailure for a tree that does not exist, whose hash is not its id,
    or that git would not write: names out of order, duplicate or impossible, or other modes than
    git's. Folders are cached up to a limit.
    """

    def __init__(self, repo: Repository) -> None:
        super().__init__(repo, "tree")
        self._folders: OrderedDict[str, _Folder] = OrderedDict()
        self._cached_entries = 0

    def listing(self, tree: str) -> dict[bytes, TreeEntry]:
        """List everything in a tree except folders, by path, sorted by path."""
        return {c.path: c.after for c in self.between(None, tree) if c.after is not None}

    def at(self, tree: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """Return the entries at these paths, except folders, sorted by path.

        Only the folders on the way there are read.
        """
        # Sorted, so that paths of the same folder are looked up together.
        entries = ((path, self.standing(tree, path).entry) for path in sorted(set(paths)))
        return {path: entry for path, entry in entries if entry is not None and not entry.is_folder}

    def names(self, tree: str) -> list[bytes]:
        """List the names in one folder that are not folders."""
        return [name for name, row in self._folder(tree).items() if row[0] != _FOLDER]

    def standing(self, tree: str, path: bytes) -> Standing:
        """Return the entry at a path, folders included, or what is in the way."""
        *above, last = path.split(b"/")
        folder = self._folder(tree)
        for number, name in enumerate(above, 1):
            row = folder.get(name)
            if row is None:
                return Standing(None)
            if row[0] != _FOLDER:
                return Standing(None, above=_entry(b"/".join(above[:number]), row))
            folder = self._folder(row[2].hex())
        row = folder.get(last)
        return Standing(None if row is None else _entry(path, row))

    def between(
        self, before: str | None, after: str | None, chosen: ChosenPaths | None = None
    ) -> list[TreeChange]:
        """List the differences between two trees, except folders, sorted by path.

        None is an empty tree. `chosen` limits the comparison to its paths. Folders that are the
        same in both are not read.
        """
        changes: list[TreeChange] = []
        examined = 0
        # No recursion: folders may lie deeper than Python's stack.
        waiting = [(b"", 0, before, after, chosen)]
        while waiting:
            prefix, depth, one, other, within = waiting.pop()
            # The same tree or folder on both sides: nothing in it can differ.
            if one == other:
                continue
            if depth > DEEPEST:
                raise EnvironmentFailure(f"a tree has folders nested more than {DEEPEST} deep")
            old = self._folder(one) if one is not None else {}
            new = self._folder(other) if other is not None else {}
            names = [*compress(new, map(ne, new.values(), map(old.get, new)))]
            names += old.keys() - new.keys()
            examined += len(names)
            # Folders may be shared: a tree of a few bytes can name any number of paths.
            if examined > MOST_ENTRIES:
                raise EnvironmentFailure(f"a tree names more than {MOST_ENTRIES} paths")
            for name in names:
                path, old_row, new_row = prefix + name, old.get(name), new.get(name)
                below = within
                if within is not None:
                    if path in within.paths:
                        below = None
                    elif path not in within.above:
                        continue
                folders = _folder_of(old_row), _folder_of(new_row)
                # If a file became a folder, or the reverse, both have changed.
                if any(folders):
                    waiting.append((path + b"/", depth + 1, *folders, below))
                if below is None:
                    change = TreeChange(path, _file(path, old_row), _file(path, new_row))
                    if change.before != change.after:
                        changes.append(change)
        changes.sort(key=_path)
        return changes

    def _folder(self, oid: str) -> _Folder:
        folder = self._folders.pop(oid, None)
        # Checked once, when it was read: cached folders are trusted.
        if folder is None:
            folder = _parse(oid, self.read(oid, MAX_TREE))
            self._cached_entries += len(folder)
            while self._cached_entries > _MOST_CACHED and len(self._folders) > 1:
                self._cached_entries -= len(self._folders.popitem(last=False)[1])
        self._folders[oid] = folder
        return folder


def _path(change: TreeChange) -> bytes:
    return change.path


def _folder_of(row: _Row | None) -> str | None:
    """Return the tree id of a folder; None for anything else."""
    return row[2].hex() if row is not None and row[0] == _FOLDER else None


def _file(path: bytes, row: _Row | None) -> TreeEntry | None:
    """Return the entry of anything but a folder; None for a folder or nothing."""
    return None if row is None or row[0] == _FOLDER else _entry(path, row)


def _entry(path: bytes, row: _Row) -> TreeEntry:
    mode, _, oid = row
    return TreeEntry(path, _MODES[mode], oid.hex())


def _parse(oid: str, tree: bytes) -> _Folder:
    """Parse a folder's entries; raises EnvironmentFailure unless git could have written them."""
    # One pass of a regular expression: a tree of a large repository has many entries.
    rows: list[_Row] = _ENTRIES[len(oid)].findall(tree)
    modes, names, _ = zip(*rows, strict=True) if rows else ((), (), ())
    folder = dict(zip(names, rows, strict=True))
    # The order of git; no name contains a slash or a NUL.
    keys = [
        name + b"/" if mode == _FOLDER else name for mode, name in zip(modes, names, strict=True)
    ]
    size = len(b"".join(modes)) + len(b"".join(names)) + len(rows) * (_BETWEEN + len(oid) // 2)
    if (
        # The entries account for every byte of the tree.
        size == len(tree)
        and len(folder) == len(rows)
        and keys == sorted(keys)
        and folder.keys().isdisjoint(_FORBIDDEN_NAMES)
    ):
        return folder
    raise EnvironmentFailure(f"tree {oid} {_fault(tree, len(oid) // 2)}", hint=_HINT)


def _fault(tree: bytes, id_size: int) -> str | None:
    """Describe what is wrong with a tree; None if nothing is."""
    last, names = b"", set[bytes]()
    at = 0
    while at < len(tree):
        mode, space, _ = tree[at : at + 8].partition(b" ")
        start = at + len(mode) + 1
        end = tree.find(b"\0", start)
        if not space or end < 0 or end + 1 + id_size > len(tree):
            return f"has no whole entry at byte {at}"
        name = tree[start:end]
        if mode not in _MODES:
            return f"has {_shown(name)} with mode {_shown(mode)}"
        if name in _FORBIDDEN_NAMES or b"/" in name:
            return f"has {_shown(name)}, which is not a file's name"
        if name in names:
            return f"has {_shown(name)} twice"
        key = name + b"/" if mode == _FOLDER else name
        if key < last:
            return f"has {_shown(name)} after {_shown(last)}, out of order"
        last = key
        names.add(name)
        at = end + 1 + id_size
    return None


def _shown(name: bytes) -> str:
    return ascii(os.fsdecode(name))


def renames(
    repo: Repository, before: str, after: str, paths: Sequence[bytes]
) -> dict[bytes, bytes] | None:
    """Find which of these paths are renames of others; returns path after to path before.

    Git compares by content, equal or similar enough. `before` and `after` are tree ids. Returns
    None if the paths are too long for git's command line.
    """
    if not run.fit(paths):
        return None
    output = repo.git(
        "--literal-pathspecs", "diff-tree", "-r", "-z", "--name-status", "--find-renames",
        "--diff-filter=R", check_oid(before), check_oid(after), "--", *paths,
        env=run.TRUE_OBJECTS,
    )  # fmt: skip
    fields = run.records(output)
    return dict(zip(fields[2::3], fields[1::3], strict=True))
