"""Which tracked files are other ones than the index has, each told by one hash at most.

Git knows a file by its stat fields, and filters it whole where they differ,
each time. Here its content is hashed, and what is known of that content tells
the blob that clean makes of it; where nothing is, clean is run once. Files
that are what the index has get their stat fields into the index, so that git
need not look either.

That is so where git would run our filter and nothing else on a file. Of others
git is asked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.filter.cache import Known, file_digest
from wtxtgit.filter.content import written_facts
from wtxtgit.git import attributes, config, index
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.config import DRIVER
from wtxtgit.git.index import Change, Entry
from wtxtgit.git.index_file import StagedFile, refresh_stats
from wtxtgit.git.repository import Repository
from wtxtgit.git.touched import touched
from wtxtgit.git.work_tree import moment_of
from wtxtgit.io.mapping import view_of
from wtxtgit.text.grammar import MAGIC

_NO_MORE = {"text": b"unset", "ident": b"unspecified", "working-tree-encoding": b"unspecified"}
"""Attributes with which git changes nothing of what the filter gives."""


def changes(
    repo: Repository, entries: Iterable[Entry], known: Known, threads: int | None = None
) -> dict[bytes, Change]:
    """How filtered files differ from their index entries; those that don't are left out.

    Entries in a conflict, without a file in the work tree, or of `git add -N`
    are not looked into.
    """
    seen = touched(repo)
    asked = {
        entry.path: entry
        for entry in entries
        if entry.path in seen and not (entry.stage or entry.skipped or entry.intended)
    }
    found = {path: seen[path].change for path in asked}
    doubtful = {path: entry for path, entry in asked.items() if seen[path].is_content}
    unchanged = []
    ours = filtered_alone(repo, doubtful) if doubtful and is_driven(repo) else ()
    for entry in [doubtful[path] for path in ours]:
        outcome = _compare(repo.file(entry.path), entry, known, threads)
        if outcome is not None:
            del doubtful[entry.path]
            if outcome.is_same:
                del found[entry.path]
                unchanged.append(StagedFile(entry.path, entry.mode, entry.oid, outcome.status))
    refresh_stats(repo, unchanged)
    if doubtful:
        by_git = index.changes(repo)
        for path in doubtful:
            if by_git.get(path, Change.NONE) is Change.NONE:
                del found[path]
    return found


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Whether a file is what its index entry says, and its stat fields when it was read."""

    is_same: bool
    status: os.stat_result


def filtered_alone(repo: Repository, paths: Iterable[bytes]) -> list[bytes]:
    """Those of the paths whose content the filter changes on the way into git, and nothing else."""
    wanted = {"filter": DRIVER.encode(), **_NO_MORE}
    found = attributes.effective(repo, paths, tuple(wanted))
    return [path for path, said in found.items() if said == wanted]


def is_driven(repo: Repository) -> bool:
    """Whether the filter that git would start is wtxtgit's."""
    for key in (f"filter.{DRIVER}.process", f"filter.{DRIVER}.clean"):
        value = config.effective(key, cwd=repo.home)
        # Where there is a process, even an empty one, git does not look at the other.
        if value is not None:
            return config.is_ours(key, value)
    return False


def _compare(file: Path, entry: Entry, known: Known, threads: int | None) -> _Outcome | None:
    """Compare a file with its entry; None where git has to: it can't be read, changes, is a text.

    Of texts several files may be one blob, so that content tells less than size.
    """
    try:
        # A fifo would block for ever, a link lead out of the work tree.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or os.pread(descriptor, len(MAGIC), 0) == MAGIC:
            return None
        is_same = _is_blob(descriptor, entry.oid, known, threads)
        after = os.fstat(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if is_same is None or moment_of(before) != moment_of(after):
        return None
    return _Outcome(is_same, before)


def _is_blob(descriptor: int, oid: str, known: Known, threads: int | None) -> bool | None:
    """Whether clean makes a blob of a file, None where the file is changed meanwhile."""
    digest, size = file_digest(descriptor)
    blob = known.blob_of(digest, size)
    if blob is not None:
        return blob == oid
    held = known.file_of(oid)
    if held is not None:
        # Of two files that are no texts, each has a blob of its own.
        return held == (digest, size)
    # With numpy, which is needed for nothing else here.
    from wtxtgit.filter.clean import clean

    cleaned = clean(view_of(descriptor), threads=threads)
    length = len(cleaned.source) if cleaned.writer is None else cleaned.writer.size
    blob = blob_id(cleaned.pieces(), length, like=oid)
    if file_digest(descriptor) != (digest, size):
        return None
    known.put_blob(digest, size, blob, is_binary=True)
    if cleaned.writer is not None:
        known.put_facts({blob: written_facts(cleaned.writer)})
    return blob == oid
