"""The index, blobs and the work tree: facts, read in a bounded way.

Blobs are read through `git cat-file`, which fetches what a partial clone
misses and inflates as it goes; a big blob is never held whole.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import IO

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import BlobReader, sizes
from wtxtgit.git.entry import MODE_FOLDER, MODE_SUBMODULE
from wtxtgit.git.entry import Entry as Entry
from wtxtgit.git.history import CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.trees import TreeReader

_KINDS = {MODE_FOLDER: "tree", MODE_SUBMODULE: "commit"}
"""Git's kinds of what stands at a path and is no blob."""

HEAD_SIZE = 1024
"""Bytes of a blob's beginning that say what it is: `meta` and `cap` lie within."""

_SMALL_BLOB = 1024 * 1024
"""Up to this size a blob is read whole by the running `cat-file --batch`."""
_BLOCK = 1024 * 1024
_HASHES = {40: "sha1", 64: "sha256"}
"""The repository's hash, by the length of an object id in hex."""


@dataclass(frozen=True, slots=True)
class BlobHead:
    """A blob's size and its first HEAD_SIZE bytes."""

    size: int
    head: bytes


class Change(Enum):
    """How a work-tree file differs from its index entry, as `git status` sees it."""

    NONE = "."
    MODIFIED = "M"
    TYPE = "T"
    DELETED = "D"
    UNMERGED = "U"

    @classmethod
    def _missing_(cls, value: object) -> Change:  # noqa: ARG003 - enum passes it
        """Take a letter that says no more to us, such as `A` after `git add -N`, for a change."""
        return cls.MODIFIED


def entries(repo: Repository, pathspecs: Sequence[str] = ()) -> list[Entry]:
    """List the index, conflicts as one entry a stage.

    Or what pathspecs name of it, as given in the folder of the repository's prefix.
    """
    listed = []
    asked = ("ls-files", "-s", "-t", "-z", "--full-name")
    output = run.git(*asked, "--", *pathspecs, cwd=repo.here) if pathspecs else repo.git(*asked)
    for record in run.records(output):
        about, tab, path = record.partition(b"\t")
        tag, mode, oid, stage = about.split(b" ")
        if not tab:
            raise EnvironmentFailure(f"git ls-files gives {record[:200]!r}")
        listed.append(Entry(path, int(mode, 8), oid.decode(), int(stage), tag == b"S"))
    return _with_intent(repo, listed)


def tree_entries(repo: Repository, revision: str) -> list[Entry]:
    """List the files of a commit's or a tree's whole tree."""
    return listing(repo, resolve_tree(repo, revision))


def listing(repo: Repository, tree: str, *paths: bytes) -> list[Entry]:
    """List all files of a tree, given by its object id, or those at `paths` alone.

    Links and submodules are among them. Raises EnvironmentFailure as a
    TreeReader does, which is for who asks more than once.
    """
    with TreeReader(repo) as trees:
        return list((trees.at(tree, paths) if paths else trees.listing(tree)).values())


def resolve(repo: Repository, revision: str) -> str:
    """Give the object id that a revision names; raises EnvironmentFailure."""
    found = repo.call(
        "rev-parse", "--verify", "--quiet", "--end-of-options", revision, ok=(0, 1, 128)
    )
    if found.code:
        raise EnvironmentFailure(f"{revision!r} names nothing in this repository")
    return found.stdout.decode("ascii").strip()


def resolve_tree(repo: Repository, revision: str) -> str:
    """Give the object id of a commit's or tree's tree; raises EnvironmentFailure."""
    resolve(repo, revision)
    try:
        commit = resolve(repo, revision + "^{commit}")
    except EnvironmentFailure:
        return resolve(repo, revision + "^{tree}")
    with CommitReader(repo) as commits:
        return commits.commit(commit).tree


def resolve_blob(repo: Repository, name: str) -> str:
    """Give the object id of a blob, named as REV:PATH; raises EnvironmentFailure."""
    revision, path = _cut(name)
    if not revision or path is None:
        # Of the index, or no path at all.
        oid = resolve(repo, name)
        kind = repo.git("cat-file", "-t", oid).decode("ascii").strip()
    else:
        with TreeReader(repo) as trees:
            entry = trees.standing(resolve_tree(repo, revision), os.fsencode(path)).entry
        if entry is None:
            raise EnvironmentFailure(f"{name!r} names nothing in this repository")
        oid = entry.oid
        kind = _KINDS.get(entry.mode, "blob")
    if kind != "blob":
        raise EnvironmentFailure(f"{name!r} names a {kind}, not a file")
    return oid


def _cut(name: str) -> tuple[str, str | None]:
    """Cut REV:PATH where git does, which passes over what stands in braces; see gitrevisions(7)."""
    depth = 0
    for at, letter in enumerate(name):
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= bool(depth)
        elif letter == ":" and not depth:
            return name[:at], name[at + 1 :]
    return name, None


def staged_paths(repo: Repository) -> set[bytes]:
    """Paths whose index entry differs from HEAD; deleted ones are not among them.

    Honours GIT_INDEX_FILE. Before the first commit that is every path.
    """
    head = repo.call("rev-parse", "--verify", "--quiet", "HEAD^{tree}", ok=(0, 1, 128))
    if head.code:
        return {entry.path for entry in entries(repo)}
    tree = head.stdout.decode("ascii").strip()
    changed = repo.git(
        "diff-index", "--cached", "-z", "--name-only", "--no-renames", "--diff-filter=d", tree, "--"
    )
    return set(run.records(changed))


def untracked_paths(repo: Repository) -> list[bytes]:
    """List the files that `git add` would take up."""
    return run.records(repo.git("ls-files", "--others", "--exclude-standard", "-z"))


def blob_heads(repo: Repository, oids: Iterable[str]) -> dict[str, BlobHead]:
    """Read sizes and beginnings of blobs, to show what they are.

    Small ones come from one running `cat-file --batch`; of a big one only the
    beginning is inflated where it is stored whole. Nothing may be judged by
    that: its hash is not made.
    """
    wanted = sizes(repo, oids)
    heads = {}
    with BlobReader(repo) as blobs:
        for oid, size in wanted.items():
            if size <= _SMALL_BLOB:
                heads[oid] = BlobHead(size, blobs.read(oid, size)[:HEAD_SIZE])
    large = {oid: size for oid, size in wanted.items() if oid not in heads}
    if large:
        # Git inflates a blob of a pack to its end, whoever reads a few bytes of it.
        with ObjectStore(repo) as store:
            for oid, size in large.items():
                heads[oid] = BlobHead(size, _first(store.blob(oid), HEAD_SIZE))
    return heads


def _first(pieces: Iterable[bytes], count: int) -> bytes:
    head = b""
    for piece in pieces:
        head += piece[:count]
        if len(head) >= count:
            break
    return head[:count]


def blob_sizes(repo: Repository, oids: Iterable[str]) -> dict[str, int]:
    """Ask for the sizes of blobs; raises EnvironmentFailure for one that is not there."""
    return sizes(repo, oids)


def blob_chunks(repo: Repository, oid: str) -> Iterator[bytes]:
    """Give a blob's bytes block by block; raises EnvironmentFailure."""
    with BlobReader(repo) as blobs:
        yield from blobs.chunks(oid)


def file_head(path: Path) -> bytes | None:
    """Read a work-tree file's beginning; None unless a regular file stands there."""
    try:
        with _open_file(path) as file:
            return file.read(HEAD_SIZE)
    except OSError:
        return None


def file_size(path: Path) -> int | None:
    """Give a regular file's size; None where there is no such file."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def file_is_blob(repo: Repository, path: Path, oid: str) -> bool:
    """Tell whether a file's own bytes, unfiltered, are the blob's."""
    digest = hashlib.new(object_format(repo), usedforsecurity=False)
    try:
        with _open_file(path) as file:
            digest.update(b"blob %d\0" % os.fstat(file.fileno()).st_size)
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == oid


def object_format(repo: Repository) -> str:
    """Name the repository's hash: sha1 or sha256."""
    return repo.git("rev-parse", "--show-object-format").decode("ascii").strip()


def changes(repo: Repository) -> dict[bytes, Change]:
    """Compare the work tree with the index, once, through `git status`.

    Paths that are not there are unchanged.
    """
    changed = {}
    output = repo.git(
        "status",
        "--porcelain=v2",
        "-z",
        "--untracked-files=no",
        "--ignore-submodules=all",
        "--no-renames",
    )
    for record in run.records(output):
        kind, _, rest = record.partition(b" ")
        if kind == b"1":
            fields = rest.split(b" ", 7)
            changed[fields[7]] = Change(fields[0][1:2].decode("ascii"))
        elif kind == b"u":
            changed[rest.split(b" ", 9)[9]] = Change.UNMERGED
    return changed


def rewrite_files(repo: Repository, paths: Iterable[bytes]) -> None:
    """Let git write the files of these paths again from the index, through the filter.

    The caller has made sure that nothing is lost. Git writes only what it
    takes for changed, so their times are made to differ first.
    """
    chosen = list(paths)
    for path in chosen:
        # No file was last written a second into the epoch: it can't match the index.
        os.utime(repo.file(path), (1, 1), follow_symlinks=False)
    checkout(repo, chosen)


def checkout(repo: Repository, paths: Iterable[bytes]) -> None:
    """Let git write the files of these paths from the index, whatever stands there."""
    stdin = run.joined(paths)
    repo.git("checkout-index", "--index", "--force", "-z", "--stdin", stdin=stdin)


def renormalize(repo: Repository, paths: Iterable[bytes]) -> None:
    """Stage tracked files again through the filter."""
    repo.git(
        "--literal-pathspecs",
        "add",
        "--renormalize",
        "--pathspec-from-file=-",
        "--pathspec-file-nul",
        stdin=run.joined(paths),
    )


def _with_intent(repo: Repository, listed: list[Entry]) -> list[Entry]:
    """Mark the entries of `git add -N`, which `git ls-files` shows as empty files."""
    empty = {entry.path for entry in listed if entry.oid == _empty("blob", len(entry.oid))}
    if not empty:
        return listed
    tree = _empty("tree", len(listed[0].oid))
    # Against the empty tree every entry is added, but for those that a commit leaves out.
    staged = set(
        run.records(
            repo.git(
                "diff-index", "--cached", "--ita-invisible-in-index", "--no-renames",
                "--name-only", "-z", tree, "--",
            )
        )
    )  # fmt: skip
    intended = empty - staged
    return [replace(entry, intended=entry.path in intended) for entry in listed]


@cache
def _empty(kind: str, length: int) -> str:
    """Give the id of the empty blob or tree, as long as others here."""
    return hashlib.new(
        _HASHES[length], b"%s 0\0" % kind.encode(), usedforsecurity=False
    ).hexdigest()


def _open_file(path: Path) -> IO[bytes]:
    return open(path, "rb", opener=_open_regular)


def _open_regular(name: str, flags: int) -> int:
    # A fifo would block for ever, a link lead out of the work tree.
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{name} is no regular file")
    return descriptor
