"""The arguments that git passes to an external diff program.

git(1), GIT_EXTERNAL_DIFF: `path old-file old-hex old-mode new-file new-hex new-mode`. If the names
differ two more follow: the other name, and the extended header lines that git would show. An
unmerged path comes alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import UsageError

_MODE = re.compile(rb"[0-7]{6}")
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SIMILARITY = re.compile(rb"^similarity index ([0-9]{1,3})%$", re.MULTILINE)
_RELATION = re.compile(rb"^(rename|copy) from ", re.MULTILINE)
_ABSENT = b"."
_GITLINK = 0o160000
_SIDE = 3
"""The number of arguments for a side: its file, id and mode."""
_LEAST = 1 + 2 * _SIDE


@dataclass(frozen=True, slots=True)
class DiffFile:
    """One side of a diff: a file that has the content, as a checkout would write it.

    `file` is absolute, or relative to the folder in which git starts the program. `oid` is None if
    git has no object for the content.
    """

    file: Path
    oid: str | None
    mode: int

    @property
    def kind(self) -> str:
        """The kind of the file: `file`, `symbolic link` or `submodule`."""
        if stat.S_IFMT(self.mode) == _GITLINK:
            return "submodule"
        return "symbolic link" if stat.S_ISLNK(self.mode) else "file"


@dataclass(frozen=True, slots=True)
class Pair:
    """The two sides of a path, of which at most one is None (absent there).

    `new_path` is set if it differs from `path`: for a file that was renamed or copied, with
    `similarity` in percent, and for any two files that were asked for.
    """

    path: bytes
    old: DiffFile | None
    new: DiffFile | None
    new_path: bytes | None = None
    relation: str | None = None
    similarity: int | None = None

    @property
    def is_same(self) -> bool:
        """Whether both sides are the same object, so that no content need be read."""
        return (
            self.old is not None
            and self.new is not None
            and self.old.oid is not None
            and self.old.oid == self.new.oid
        )


@dataclass(frozen=True, slots=True)
class Unmerged:
    """A path with unresolved conflicts, for which git gives no two sides."""

    path: bytes


def parse(arguments: Sequence[bytes]) -> Pair | Unmerged:
    """Parse the arguments that git passes; raises UsageError.

    Further arguments after the nine of today are ignored.
    """
    # git(1): for an unmerged path git passes nothing but the path.
    if len(arguments) == 1:
        return Unmerged(arguments[0])
    if len(arguments) < _LEAST:
        raise UsageError(
            f"git passes 1, 7, 8 or 9 arguments to an external diff, not {len(arguments)}"
        )
    path, *sides = arguments[:_LEAST]
    new_path, header = (*arguments[_LEAST:], None, None)[:2]
    relation = similarity = None
    if header is not None:
        match, score = _RELATION.search(header), _SIMILARITY.search(header)
        relation = None if match is None else {b"rename": "renamed", b"copy": "copied"}[match[1]]
        similarity = None if score is None else int(score[1])
    old, new = _side(*sides[:_SIDE]), _side(*sides[_SIDE:])
    if old is None and new is None:
        raise UsageError("an external diff of git has at least one side")
    return Pair(path, old, new, new_path, relation, similarity)


def _side(file: bytes, oid: bytes, mode: bytes) -> DiffFile | None:
    if mode == oid == _ABSENT:
        return None
    if _MODE.fullmatch(mode) is None or _OID.fullmatch(oid) is None:
        raise UsageError(f"{oid[:80]!a} and {mode[:80]!a} are not a git object id and mode")
    # An id of all zeros means that git has not hashed the content, as for a work-tree file.
    known_oid = oid.decode() if oid.strip(b"0") else None
    return DiffFile(Path(os.fsdecode(file)), known_oid, int(mode, 8))
