"""Staging: blobs and index entries that we make, not `git add`.

The index is the one that git names, `GIT_INDEX_FILE` considered: a hook may
be given another one than the repository's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.index import object_format
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import Buffer

# Of `git commit PATH`: prepare_index() in git's builtin/commit.c
_PARTIAL = re.compile(rb"next-index-[0-9]+\.lock")


@dataclass(frozen=True, slots=True)
class Staged:
    """A file to be staged: its path from the top level, its mode as in a tree, its blob."""

    path: bytes
    mode: int
    oid: str


def write_blob(repo: Repository, data: Buffer) -> str:
    """Store bytes as they are, through no filter; gives the blob's object id."""
    written = repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin=data)
    return check_oid(written.decode("ascii", "backslashreplace").strip())


def stage(repo: Repository, files: Iterable[Staged], removed: Iterable[bytes] = ()) -> None:
    """Put files into the index, and take others out, all of them or none.

    A conflict at a path ends with that. Raises GitFailure where the index is
    locked, or a folder stands at a path.
    """
    lines = [b"%06o %b 0\t%b" % (f.mode, check_oid(f.oid).encode(), f.path) for f in files]
    gone = list(removed)
    if gone:
        # Mode 0 takes a path out, git-update-index(1).
        nothing = b"0" * (2 * hashlib.new(object_format(repo), usedforsecurity=False).digest_size)
        lines += [b"0 %b\t%b" % (nothing, path) for path in gone]
    if lines:
        repo.git("update-index", "-z", "--index-info", stdin=run.joined(lines))


def refresh(repo: Repository, paths: Iterable[bytes]) -> None:
    """Let the index take note of work-tree files that have what is staged.

    Until then git reads them again, through the filter, to see that they are
    unchanged. Paths that are not in the index raise GitFailure.
    """
    chosen = run.joined(paths)
    if chosen:
        repo.git(
            "--literal-pathspecs",
            "add",
            "--refresh",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            stdin=chosen,
        )


def is_partial_commit(repo: Repository) -> bool:
    """Tell whether this is a hook of `git commit PATH`.

    The index is then a temporary one, made for that commit: what a hook
    stages is in the commit, but not in the index that the user goes on with.
    """
    index_file = repo.git("rev-parse", "--git-path", "index").removesuffix(b"\n")
    return _PARTIAL.fullmatch(index_file.rpartition(b"/")[2]) is not None
