"""The work tree of a rewritten history: what is required of it before, and how it follows.

Files keep their content in nearly all cases; only their index entries change. So they are hashed
and recorded in the index as they are. Only files that are pointers of git-lfs, or texts, are
written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, WtxtgitError
from wtxtgit.filter.checkout import write_files
from wtxtgit.filter.process import FilterSettings, Warn
from wtxtgit.filter.status import is_driven
from wtxtgit.git import index, staging, work_tree
from wtxtgit.git.attributes import FILE_NAME
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.cut_off import FINISHES
from wtxtgit.git.history import CommitReader, resolve_commit
from wtxtgit.git.index_file import StagedFile, drop_stale_lock, note_files, refuse_locked
from wtxtgit.git.repository import FILTERS, Repository
from wtxtgit.git.trees import TreeEntry, TreeReader
from wtxtgit.git.work_tree import Moment, moment, moment_of, work_trees
from wtxtgit.io.files import opened_regular, read_view
from wtxtgit.io.view import hashed, pieces
from wtxtgit.remotes.lfs_pointer import LfsObject, pointed_of
from wtxtgit.rewrite.migrations import LFS

_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}
_ATTRIBUTES = FILE_NAME.encode()


def check(repo: Repository, refs: Sequence[str]) -> bool:
    """Whether the branch that is checked out is among the refs that will move, and may move.

    Raises EnvironmentFailure if moving it would lose something: for a work tree that is not clean,
    or another work tree of the repository that has one of the branches.
    """
    _check_others(repo, refs)
    branch = repo.call("symbolic-ref", "--quiet", "HEAD", ok=(0, 1)).stdout
    name = os.fsdecode(branch.removesuffix(b"\n")) or "HEAD"
    if repo.is_bare or name not in refs:
        return False
    for file, operation in _UNDER_WAY.items():
        if os.path.lexists(repo.git_dir / file):
            hint = "finish or abort it first: git status"
            raise EnvironmentFailure(f"{operation} is in progress", hint=hint)
    refuse_locked(repo)
    options = ("--porcelain", "-z", "--untracked-files=no")
    if repo.git("status", *options):
        raise EnvironmentFailure(
            "there are uncommitted changes", hint="git commit or git stash them first"
        )
    return True


def check_filters(repo: Repository, forms: Iterable[bytes]) -> None:
    """Raise EnvironmentFailure if git would not run a filter that files are going to have."""
    for form in set(forms):
        if form in FILTERS and not is_driven(repo, form):
            raise EnvironmentFailure(
                "the filter is not set up here: git would show the files as changed",
                hint="wtxtgit install",
            )
        keys = ("filter.lfs.process", "filter.lfs.clean")
        if form == LFS and not any(map(repo.config.get, keys)):
            raise EnvironmentFailure(
                "git-lfs is not set up here: git would show the files as changed",
                hint="git lfs install",
            )


def follow(
    repo: Repository, before: str, settings: FilterSettings, warn: Warn, *, are_texts: bool
) -> tuple[bytes, ...]:
    """Update index and work tree from commit `before` to HEAD; returns files that could not follow.

    `are_texts` says that files are texts now. Raises EnvironmentFailure.
    """
    try:
        return _follow(repo, before, settings, warn, are_texts=are_texts)
    except WtxtgitError as error:
        raise EnvironmentFailure(
            f"all refs have moved, but index and work tree have not: {error.message}",
            hint=FINISHES,
        ) from error


def _follow(
    repo: Repository, before: str, settings: FilterSettings, warn: Warn, *, are_texts: bool
) -> tuple[bytes, ...]:
    entries_before = _in_trees(repo, before, "HEAD")
    drop_stale_lock(repo)
    # Only the index: the work tree is handled below.
    repo.git("read-tree", "-i", "-m", before, "HEAD")
    entries_now = {e.path: e for e in index.entries(repo) if e.path in entries_before}
    changed = [e for e in entries_now.values() if not e.skipped]
    # First: they decide which filters the other files have.
    _write_attributes(repo, entries_before, entries_now, changed)
    olds = {path: entry for path, entry in entries_before.items() if entry is not None}
    files = [e for e in changed if e.path in olds and not is_attributes(e.path)]
    binary = {e.path: olds[e.path].oid if are_texts else e.oid for e in files}
    sizes = known_sizes(repo, binary.values())
    objects = pointed_of(repo, sizes)
    unchanged: list[StagedFile] = []
    to_write: dict[TreeEntry, Moment | None] = {}
    for entry in files:
        oid = binary[entry.path]
        moment_before = moment(repo.worktree, entry.path)
        status = _status_of(repo.file(entry.path), oid, objects.get(oid))
        if status is not None:
            unchanged.append(StagedFile(entry.path, entry.mode, entry.oid, status))
        elif _is_blob(repo.file(entry.path), olds[entry.path].oid):
            to_write[entry] = moment_before
    if are_texts:
        write_files(repo, to_write, settings, warn, None, unchanged)
    else:
        note_files(repo, unchanged)
        staging.checkout(repo, [entry.path for entry in to_write])
    return tuple(sorted(index.changes(repo)))


def _check_others(repo: Repository, refs: Sequence[str]) -> None:
    for tree in work_trees(repo):
        folder, branch = (os.fsdecode(tree.get(key, b"")) for key in (b"worktree", b"branch"))
        if branch not in refs:
            continue
        if repo.top is None or os.path.realpath(folder) != os.path.realpath(repo.top):
            raise EnvironmentFailure(
                f"{branch} is checked out in another work tree: {folder!a}",
                hint="git worktree remove removes it, git switch there changes its branch",
            )


def _write_attributes(
    repo: Repository,
    entries_before: Mapping[bytes, TreeEntry | None],
    entries_now: Mapping[bytes, TreeEntry],
    changed: Iterable[TreeEntry],
) -> None:
    for path, entry in entries_before.items():
        if entry is not None and path not in entries_now and is_attributes(path):
            repo.file(path).unlink(missing_ok=True)
    entries = [entry for entry in changed if is_attributes(entry.path)]
    for entry in entries:
        name = repo.file(entry.path)
        is_other = os.path.lexists(name) and not _is_blob(name, entry.oid)
        if entries_before[entry.path] is None and is_other:
            # No commit has this file: it is renamed, so that no work is lost.
            os.replace(name, f"{name}.before")  # noqa: PTH105
    staging.checkout(repo, [entry.path for entry in entries])


def _in_trees(repo: Repository, before: str, after: str) -> dict[bytes, TreeEntry | None]:
    """Return a commit's entries at the paths at which another commit differs; None for none."""
    with CommitReader(repo) as commits, TreeReader(repo) as trees:
        old, new = (commits.commit(resolve_commit(repo, one)).tree for one in (before, after))
        return {change.path: change.before for change in trees.between(old, new)}


def is_attributes(path: bytes) -> bool:
    """Whether a path is that of a gitattributes file."""
    return path.rpartition(b"/")[2] == _ATTRIBUTES


def _is_blob(file: Path, oid: str) -> bool:
    with suppress(OSError):
        return work_tree.file_is_blob(file, oid)
    return False


def _status_of(file: Path, oid: str, lfs_object: LfsObject | None) -> os.stat_result | None:
    """Return a file's stat result if it has the bytes of a blob, or of the blob's git-lfs object.

    Returns None otherwise.
    """
    try:
        with opened_regular(file) as (descriptor, status):
            if lfs_object is None:
                is_content = work_tree.file_is_blob(file, oid)
            else:
                content = read_view(descriptor, file)
                digest = hashed(sha256(), pieces(content)).hexdigest()
                is_content = (digest, len(content)) == lfs_object
            # It may have been written in the meantime.
            is_unchanged = moment_of(os.fstat(descriptor)) == moment_of(status)
    except OSError:
        return None
    return status if is_content and is_unchanged else None
