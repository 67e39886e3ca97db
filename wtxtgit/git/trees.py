"""Trees, read from their own bytes: what they hold, and what differs between two.

A tree is a list of `MODE NAME`, NUL and a binary object id, in git's order of
names, in which a folder's ends with a slash (`base_name_compare` in git's
source). Git relies on that order: where a tree has another one, a command
that is given paths misses some that another command shows. So a tree is
believed only where its hash is its id, and each of its entries one that git
itself would write in that place.
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

    `mode` as in a tree. `stage` is 0, or 1 to 3 in a conflict. `skipped` is
    the skip-worktree bit: a sparse checkout has no file for it. `intended` is
    the mark of `git add -N`: nothing is staged yet, `oid` is the empty blob's.
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
"""Bytes of one folder's tree that are read: some five million names."""
MOST_ENTRIES = 4_000_000
"""Entries of a listing or a comparison: trees that share folders may name any number of paths."""
DEEPEST = 2048
"""Folders within folders that are read; git reads as many (core.maxTreeDepth)."""

_REMEMBERED = 1 << 18
"""Entries of folders that are remembered at most, but for those of the last two folders."""

_FOLDER = b"40000"
_MODES = {
    _FOLDER: MODE_FOLDER,
    b"100644": MODE_FILE,
    # Git once wrote it, and takes it for 100644.
    b"100664": MODE_FILE,
    b"100755": MODE_EXECUTABLE,
    b"120000": MODE_LINK,
    b"160000": MODE_SUBMODULE,
}
_ENTRIES = {
    2 * size: re.compile(rb"(%b) ([^\0/]+)\0(.{%d})" % (b"|".join(_MODES), size), re.DOTALL)
    for size in (20, 32)
}
"""Entries of a tree, by the hexadecimal digits of its id."""
_BETWEEN = len(b" \0")
_NO_NAMES = {
    b"", b".", b"..",
    *(b"." + "".join(spelled).encode() for spelled in product("gG", "iI", "tT")),
}  # fmt: skip
_HINT = "git fsck --full"

_Row = tuple[bytes, bytes, bytes]
"""An entry: a mode as it is spelled, a name, and a binary id."""
_Folder = Mapping[bytes, _Row]
"""What stands in a folder, by name."""


class TreeChange(NamedTuple):
    """A path of two trees: what stands there before and after, None for nothing."""

    path: bytes
    before: TreeEntry | None
    after: TreeEntry | None


class Standing(NamedTuple):
    """What stands at a path, None for nothing; it may be a folder.

    `above` is what stands in the place of a folder on the way to the path and
    is none: a file, a link or a submodule. Then nothing stands at the path.
    """

    entry: TreeEntry | None
    above: TreeEntry | None = None


class ChosenPaths(NamedTuple):
    """Paths that are asked for, and the folders that they lie in.

    A path that is a folder stands for all in it.
    """

    paths: frozenset[bytes]
    above: frozenset[bytes]

    @classmethod
    def of(cls, paths: Iterable[bytes]) -> ChosenPaths:
        above: set[bytes] = set()
        asked = frozenset(paths)
        for path in asked:
            end = path.rfind(b"/")
            while end > 0 and path[:end] not in above:
                above.add(path[:end])
                end = path.rfind(b"/", 0, end)
        return cls(asked, frozenset(above))


class TreeReader(ObjectReader):
    """Trees by their ids, from one running process; a context manager.

    Every method raises EnvironmentFailure for a tree that is not there, whose
    hash is not its id, or that git would not write: with names out of order,
    twice, or that no file can have, with other modes than git's. Folders are
    remembered, as far as there is room.
    """

    def __init__(self, repo: Repository) -> None:
        super().__init__(repo, "tree")
        self._folders: OrderedDict[str, _Folder] = OrderedDict()
        self._remembered = 0

    def listing(self, tree: str) -> dict[bytes, TreeEntry]:
        """List all that a tree has, but its folders, by path and in order of the paths."""
        return {c.path: c.after for c in self.between(None, tree) if c.after is not None}

    def at(self, tree: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """Give what stands at these paths, whatever it is but a folder, in order of the paths.

        Only the folders on the way there are read.
        """
        # What lies in one folder is looked up in a row.
        entries = ((path, self.standing(tree, path).entry) for path in sorted(set(paths)))
        return {path: entry for path, entry in entries if entry is not None and not entry.is_folder}

    def names(self, tree: str) -> list[bytes]:
        """List the names of all in one folder that are no folders."""
        return [name for name, about in self._folder(tree).items() if about[0] != _FOLDER]

    def standing(self, tree: str, path: bytes) -> Standing:
        """Tell what stands at a path, a folder too, or what is in the way there."""
        *above, last = path.split(b"/")
        folder = self._folder(tree)
        for number, name in enumerate(above, 1):
            about = folder.get(name)
            if about is None:
                return Standing(None)
            if about[0] != _FOLDER:
                return Standing(None, above=_entry(b"/".join(above[:number]), about))
            folder = self._folder(about[2].hex())
        about = folder.get(last)
        return Standing(None if about is None else _entry(path, about))

    def between(
        self, before: str | None, after: str | None, chosen: ChosenPaths | None = None
    ) -> list[TreeChange]:
        """List what differs between two trees, but for folders, in order of the paths.

        None is a tree that has nothing. With `chosen`, there alone.
        Folders that are the same in both are not read.
        """
        changes: list[TreeChange] = []
        looked_at = 0
        # No recursion: folders may lie deeper than Python's stack.
        waiting = [(b"", 0, before, after, chosen)]
        while waiting:
            prefix, depth, one, other, within = waiting.pop()
            # The same tree, or the same folder in both: nothing in it can differ.
            if one == other:
                continue
            if depth > DEEPEST:
                raise EnvironmentFailure(f"a tree has folders nested more than {DEEPEST} deep")
            old = self._folder(one) if one is not None else {}
            new = self._folder(other) if other is not None else {}
            names = [*compress(new, map(ne, new.values(), map(old.get, new)))]
            names += old.keys() - new.keys()
            looked_at += len(names)
            # Folders may be shared: a tree of a few bytes can name any number of paths.
            if looked_at > MOST_ENTRIES:
                raise EnvironmentFailure(f"a tree names more than {MOST_ENTRIES} paths")
            for name in names:
                path, was, now = prefix + name, old.get(name), new.get(name)
                below = within
                if within is not None:
                    if path in within.paths:
                        below = None
                    elif path not in within.above:
                        continue
                folders = _folder_of(was), _folder_of(now)
                # A file that became a folder, or the other way round, is a change of both.
                if any(folders):
                    waiting.append((path + b"/", depth + 1, *folders, below))
                if below is None:
                    change = TreeChange(path, _file(path, was), _file(path, now))
                    if change.before != change.after:
                        changes.append(change)
        changes.sort(key=_path)
        return changes

    def _folder(self, oid: str) -> _Folder:
        folder = self._folders.pop(oid, None)
        # Checked once, when it is read: what is remembered is believed.
        if folder is None:
            folder = _parse(oid, self.read(oid, MAX_TREE))
            self._remembered += len(folder)
            while self._remembered > _REMEMBERED and len(self._folders) > 1:
                self._remembered -= len(self._folders.popitem(last=False)[1])
        self._folders[oid] = folder
        return folder


def _path(change: TreeChange) -> bytes:
    return change.path


def _folder_of(about: _Row | None) -> str | None:
    """The id of a folder's tree; None for anything else."""
    return about[2].hex() if about is not None and about[0] == _FOLDER else None


def _file(path: bytes, about: _Row | None) -> TreeEntry | None:
    """The entry of what is no folder."""
    return None if about is None or about[0] == _FOLDER else _entry(path, about)


def _entry(path: bytes, about: _Row) -> TreeEntry:
    mode, _, oid = about
    return TreeEntry(path, _MODES[mode], oid.hex())


def _parse(oid: str, tree: bytes) -> _Folder:
    """Read a folder's entries; raises EnvironmentFailure unless git could have written them."""
    # One pass of a regular expression: a tree of a large repository has many entries.
    rows: list[_Row] = _ENTRIES[len(oid)].findall(tree)
    modes, names, _ = zip(*rows, strict=True) if rows else ((), (), ())
    folder = dict(zip(names, rows, strict=True))
    # So git orders them; no name has a slash or a NUL.
    keys = [
        name + b"/" if mode == _FOLDER else name for mode, name in zip(modes, names, strict=True)
    ]
    size = len(b"".join(modes)) + len(b"".join(names)) + len(rows) * (_BETWEEN + len(oid) // 2)
    if (
        # Nothing stands before, between and behind what was found: it is all.
        size == len(tree)
        and len(folder) == len(rows)
        and keys == sorted(keys)
        and folder.keys().isdisjoint(_NO_NAMES)
    ):
        return folder
    raise EnvironmentFailure(f"tree {oid} {_fault(tree, len(oid) // 2)}", hint=_HINT)


def _fault(tree: bytes, id_size: int) -> str | None:
    """Say what is wrong with a tree, None where nothing is."""
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
        if name in _NO_NAMES or b"/" in name:
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
    """Find which of these paths came from which other one of them: path after to path before.

    By content, the same or as similar as git takes for renamed. `before` and
    `after` are trees' object ids. None where git takes no paths that long.
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
