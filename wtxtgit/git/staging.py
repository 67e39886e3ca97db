"""Writing the index, and work-tree files from it.

The index is the one that git names, GIT_INDEX_FILE included: a hook may be given another one than
the repository's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable

from wtxtgit.git import run
from wtxtgit.git.blobs import check_oid
from wtxtgit.git.index_file import drop_stale_lock, index_lines
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.view import Buffer

# The index of `git commit PATH`: prepare_index() in git's builtin/commit.c.
_PARTIAL = re.compile(r"next-index-[0-9]+\.lock")
# The index of `git commit -a` and `git commit -i PATH`, see there too.
_WITH_ALL = "index.lock"


def write_blob(repo: Repository, data: Buffer) -> str:
    """Store bytes as a blob without filtering them; returns its object id."""
    output = repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin=data)
    return check_oid(output.decode("ascii", "backslashreplace").strip())


def stage(repo: Repository, files: Iterable[TreeEntry], removed: Iterable[bytes] = ()) -> None:
    """Add files to the index and remove others, all of them or none.

    A conflict at such a path is resolved. Raises GitFailure if the index is locked, or there is a
    folder at a path.
    """
    # A single call: git writes the index once, or not at all.
    lines = index_lines(files)
    # git-update-index(1): mode 0 removes a path, whatever the object id.
    null_oid = b"0" * (2 * hashlib.new(repo.object_format, usedforsecurity=False).digest_size)
    lines += [b"0 %b\t%b" % (null_oid, path) for path in removed]
    if lines:
        drop_stale_lock(repo)
        repo.git("update-index", "-z", "--index-info", stdin=run.joined(lines))


def is_partial_commit(repo: Repository) -> bool:
    """Tell whether this is a hook of `git commit PATH`.

    The index is then a temporary one, made for that commit: what a hook stages is in the commit,
    but not in the index that the user has afterwards.
    """
    return _PARTIAL.fullmatch(repo.git_path("index").name) is not None


def stages_by_itself(repo: Repository) -> bool:
    """Tell whether this is a hook of a `git commit` that stages files: named ones, or all (`-a`).

    If the hook refuses that commit, the files are no longer staged.
    """
    return is_partial_commit(repo) or repo.git_path("index").name == _WITH_ALL


def rewrite_files(repo: Repository, paths: Iterable[bytes]) -> None:
    """Have git write the files of these paths again from the index, through the filter.

    The caller has made sure that nothing is lost. Git writes only files that it takes for changed,
    so their times are changed first.
    """
    chosen = list(paths)
    for path in chosen:
        # No index entry has this time, one second into the epoch: it can't match.
        os.utime(repo.file(path), (1, 1), follow_symlinks=False)
    checkout(repo, chosen)


def checkout(repo: Repository, paths: Iterable[bytes]) -> None:
    """Have git write the files of these paths from the index, replacing what is there."""
    chosen = list(paths)
    existing = [path for path in chosen if os.path.lexists(repo.file(path))]
    try:
        _checkout(repo, chosen)
    except Exception:
        raise
    except BaseException:
        # Git removes a file before it writes it, and if it is terminated in between the file stays
        # missing. Further signals are ignored by now.
        _checkout(repo, [path for path in existing if not os.path.lexists(repo.file(path))])
        raise


def _checkout(repo: Repository, paths: Iterable[bytes]) -> None:
    chosen = run.joined(paths)
    # Git would take the index's lock even if there were nothing to do.
    if chosen:
        drop_stale_lock(repo)
        repo.git("checkout-index", "--index", "--force", "-z", "--stdin", stdin=chosen)


def add(repo: Repository, paths: Iterable[bytes], *options: str) -> None:
    """Run `git add` on literal paths from the top level; raises GitFailure.

    `--renormalize` stages tracked files again through the filter. `--refresh` updates the stat
    fields of files whose content is staged; until then git reads them again, through the filter, to
    see that they are unchanged.
    """
    result = add_some(repo, paths, *options)
    if result.code:
        raise run.GitFailure(("add", *options), result.code, result.stderr)


def add_some(repo: Repository, paths: Iterable[bytes], *options: str) -> run.Result:
    """Run `git add` where it may leave paths out: code 1, with its reasons.

    Raises GitFailure for others.
    """
    from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
    chosen = run.joined(paths)
    # Without paths git would add nothing, and print a hint.
    if not chosen:
        return run.Result(0, b"", b"")
    drop_stale_lock(repo)
    command = ("--literal-pathspecs", "add", *options, *from_stdin)
    return repo.call(*command, stdin=chosen, ok=(0, 1))
