"""Recovering a damaged text that git has at a path: staging it with its file, and committing it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from wtxtgit.checkpoint import open as opener
from wtxtgit.checkpoint import other_copies
from wtxtgit.checkpoint.recover import RecoveredText, recover_text
from wtxtgit.errors import CheckError, UsageError
from wtxtgit.git import history, index, staging, work_tree
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.index import FileChange
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import mapped
from wtxtgit.text.recovery.pieces import ChunkState


def put_back(
    repo: Repository,
    path: bytes,
    given: Iterable[str] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RecoveredText:
    """Recover the text that the index has at a path, and stage it with its file.

    If not all of it can be recovered nothing is changed. If it was staged before and its file was
    not written, the file is written. Raises CheckError if the work tree has content that git does
    not have, UsageError for a path that is not tracked.
    """
    name = shown(os.fsdecode(path))
    entry = next((one for one in index.entries(repo) if one.path == path and not one.stage), None)
    if entry is None:
        raise UsageError(f"{name} is not tracked")
    if not _is_kept(repo, path, entry.oid):
        raise CheckError(
            f"{name} is not the text that git has: its present content would be lost",
            hint="-o writes the recovered content to another file",
        )
    data = opener.blob(repo, entry.oid, threads)
    name_in_index = f":{os.fsdecode(path)}"
    done = recover_text(name_in_index, data, given, threads=threads, progress=progress)
    if done.text is not None:
        if done.report.state == "whole":
            oid = staging.write_blob(repo, mapped(done.text))
            staging.stage(repo, [entry._replace(oid=oid)])
        staging.checkout(repo, [path])
    return done


def is_committable(target: str) -> bool:
    """Tell whether a target is a file that git tracks and has, whose recovery can be committed."""
    repo = Repository.find(None) if opener.is_file(target) else None
    path = None if repo is None else other_copies.path_in(target, repo)
    return repo is not None and any(
        one.path == path and _is_kept(repo, one.path, one.oid) for one in index.entries(repo)
    )


def _is_kept(repo: Repository, path: bytes, oid: str) -> bool:
    """Tell whether git has what stands at a path, staged or in HEAD, as a file or as its text."""
    file = repo.file(path)
    change = index.changes(repo).get(path, FileChange.NONE)
    if change is FileChange.NONE or not os.path.lexists(file):
        return True
    committed = history.find(repo, f"HEAD:{os.fsdecode(path)}")
    return any(work_tree.file_is_blob(file, one) for one in (oid, committed) if one)


def commit(
    target: str,
    given: Iterable[str] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RecoveredText:
    """Recover a tracked file as `put_back` does, and commit only that.

    History is not rewritten: earlier commits keep the damaged text. Raises UsageError if something
    else is staged.
    """
    if not opener.is_file(target):
        raise UsageError("--as-commit needs a path in the work tree")
    repo = Repository.discover()
    path = other_copies.path_in(target, repo)
    if path is None:
        raise UsageError(f"{opener.shown_name(target)} is not in this work tree")
    staged = index.staged_paths(repo)
    if others := sorted(staged - {path}):
        raise UsageError(
            f"{shown(os.fsdecode(others[0]))} is staged: it would be committed too",
            hint="git commit or git stash it first",
        )
    done = put_back(repo, path, given, threads=threads, progress=progress)
    if done.report.state == "intact" and path in staged:
        done = _staged_before(repo, path, given, threads) or done
    if done.report.state == "whole":
        counts = ", ".join(
            f"{sum(getattr(array, state) for array in done.report.arrays)} {state}"
            for state in (ChunkState.MENDED, ChunkState.HEALED)
        )
        message = f"Recover {os.fsdecode(path)}\n\nIts text was damaged. Chunks: {counts}."
        repo.git("commit", "--quiet", "-m", message)
    return replace(done, report=replace(done.report, path=opener.public_name(target)))


def _staged_before(
    repo: Repository, path: bytes, given: Iterable[str], threads: int | None
) -> RecoveredText | None:
    """Return what is staged if HEAD's text is recovered to it: an earlier run did not commit it."""
    old = history.find(repo, f"HEAD:{os.fsdecode(path)}")
    if old is None:
        return None
    data = opener.blob(repo, old, threads)
    done = recover_text(f"HEAD:{os.fsdecode(path)}", data, given, threads=threads)
    if done.text is None or done.report.state != "whole":
        return None
    text = mapped(done.text)
    is_staged = any(
        one.path == path and one.oid == blob_id([text], len(text), like=old)
        for one in index.entries(repo)
    )
    return done if is_staged else None
