"""Settling a conflict: the merge of the index's three stages again, with decisions."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import InputError
from wtxtgit.git import index
from wtxtgit.git.index import Entry
from wtxtgit.git.repository import Repository
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.ops.files import replace_file, shown_path, write_all
from wtxtgit.ops.merge import conflicts
from wtxtgit.ops.merge.container import Merger
from wtxtgit.ops.merge.driver import strategy_of
from wtxtgit.ops.merge.policy import Policy, check_takes
from wtxtgit.ops.merge.texts import merge_texts
from wtxtgit.ops.smudge import smudge
from wtxtgit.ops.spool import spooled
from wtxtgit.report.merge import MergeReport, Strategy

_BASE, _OURS, _THEIRS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of a conflict: the merge again; it is staged if nothing is open."""

    path: bytes
    report: MergeReport
    has_ledger: bool

    @property
    def is_staged(self) -> bool:
        return self.report.ok

    def as_dict(self) -> dict[str, object]:
        return {
            "path": os.fsdecode(self.path),
            "staged": self.is_staged,
            **self.report.as_dict(),
        }


def resolve(
    repo: Repository,
    path: str,
    takes: tuple[tuple[str, Strategy], ...] = (),
    strategy: Strategy | None = None,
    *,
    threads: int | None = None,
) -> Resolution:
    """Merge the conflict at `path` (from here) again, with `takes` besides those of before.

    With nothing left open the file is written and staged. Otherwise what was
    settled is kept for the next time, and the file stays. Raises InputError
    where there is no such conflict, UsageError for names that nothing has.
    """
    name = os.path.normpath(Path(os.fsdecode(repo.prefix)) / path)
    from_top = os.fsencode(name)
    stages = {e.stage: e for e in index.entries(repo) if e.path == from_top and e.stage}
    _check(from_top, stages)
    blobs = {str(stage): entry.oid for stage, entry in sorted(stages.items())}
    before = conflicts.begun(repo, from_top, blobs)
    taken = (*before.taken, *takes)
    chosen = strategy or (before.strategy if before.taken else strategy_of(repo, from_top))
    base, ours, theirs = (_content(repo, stages.get(stage)) for stage in (_BASE, _OURS, _THEIRS))
    report, merged = merge_texts(base, ours, theirs, Merger(Policy(chosen, taken)), threads=threads)
    check_takes(takes, report)
    found = Resolution(from_top, report, has_ledger(repo, from_top))
    if not report.ok:
        conflicts.save(repo, from_top, conflicts.Record(chosen, report, taken, blobs))
        return found
    _write(repo, from_top, merged, threads)
    conflicts.forget(repo, from_top)
    return found


def has_ledger(repo: Repository, path: bytes) -> bool:
    """Whether the index has a ledger of an artifact, settled or not."""
    return bool(repo.git("--literal-pathspecs", "ls-files", "-z", "--", path + LEDGER_SUFFIX))


def _check(path: bytes, stages: dict[int, Entry]) -> None:
    shown = shown_path(path)
    if not stages:
        raise InputError(f"{shown}: no conflict", hint="git status lists those that there are")
    if path.endswith(LEDGER_SUFFIX):
        raise InputError(f"{shown}: a ledger", hint="wtxtgit seal --reseal joins its two sides")
    if _OURS not in stages or _THEIRS not in stages:
        quoted = shlex.quote(shown)
        side = "ours" if _OURS not in stages else "theirs"
        raise InputError(
            f"{shown}: {side} deleted it, there is nothing to merge",
            hint=f"git add -- {quoted} keeps it, git rm -- {quoted} does not",
        )
    for entry in stages.values():
        if not entry.is_file:
            raise InputError(f"{shown}: a link or a submodule on one side")


def _content(repo: Repository, entry: Entry | None) -> memoryview:
    if entry is None:
        return memoryview(b"")
    return spooled(index.blob_chunks(repo, entry.oid), repo.state_dir)


def _write(repo: Repository, path: bytes, merged: memoryview, threads: int | None) -> None:
    """Put the file into the work tree as a checkout would, and stage it."""
    file = repo.file(path)
    if not file.parent.resolve().is_relative_to(repo.worktree.resolve()):
        raise InputError(f"{shown_path(path)} leads out of the work tree")
    file.parent.mkdir(parents=True, exist_ok=True)
    pieces = smudge(merged, threads=threads).pieces()
    replace_file(file, lambda descriptor: write_all(descriptor, pieces))
    repo.git("--literal-pathspecs", "add", "--", path)
