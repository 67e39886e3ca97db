"""Merges that a user asks for: of three checkpoints, and of a conflict again, with decisions."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.checkpoint.open import blob, file_of, read
from wtxtgit.errors import CheckError, InputError, WtxtgitError
from wtxtgit.git import index, staging, work_tree
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import DRIVER, Repository
from wtxtgit.io.files import replace_file, shown_path, view_file, write_output
from wtxtgit.io.view import PIECE, ByteView, mapped, pieces, write_all
from wtxtgit.merge import conflicts
from wtxtgit.merge.container import Merger
from wtxtgit.merge.driver import has_ledger, strategy_of
from wtxtgit.merge.policy import Policy, check_takes
from wtxtgit.merge.texts import merge_texts
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.model.plain import JsonObject
from wtxtgit.report.merge import MergeReport, Strategy
from wtxtgit.text.grammar import MAGIC

STDOUT = Path("-")


def merge_files(
    base: str,
    ours: str,
    theirs: str,
    out: Path | None,
    merger: Merger,
    *,
    threads: int | None = None,
) -> MergeReport:
    """Merge three checkpoints, each a file or REV:PATH; the result goes to `out`, or to `ours`.

    `out` may be `-` for standard output. An empty base stands for none. The
    result is a text where ours is one. With conflicts nothing is written.
    Raises UsageError, InputError and EnvironmentFailure.
    """
    write = write_output
    if out is None:
        out, write = file_of(ours, "-o FILE says where the result goes"), replace_file
    contents = [read(one, threads=threads) for one in (base, ours, theirs)]
    report, merged = merge_texts(contents[0], contents[1], contents[2], merger, threads=threads)
    # Before anything is written: a name that nothing has is most likely misspelled.
    check_takes(merger.policy.takes, report)
    if report.ok and out == STDOUT:
        write_all(1, pieces(merged))
    elif report.ok and not (out == Path(ours) and report.taken == "ours"):
        write(out, lambda descriptor: write_all(descriptor, pieces(merged)))
    return report


_BASE, _OURS, _THEIRS = 1, 2, 3
_MARKER = b"\n<<<<<<< "


@dataclass(frozen=True, slots=True)
class Resolution(JsonObject):
    """What became of a conflict: the merge again; it is staged if nothing is open."""

    KEYS = "path staged=is_staged *report"

    path: bytes
    report: MergeReport
    has_ledger: bool

    @property
    def is_staged(self) -> bool:
        return self.report.ok


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
    from_top = repo.path_from_top(path)
    stages = {e.stage: e for e in index.entries(repo) if e.path == from_top and e.stage}
    _check(from_top, stages)
    blobs = {str(stage): entry.oid for stage, entry in sorted(stages.items())}
    before = conflicts.settled(repo, from_top, blobs)
    if before is None:
        before = Policy(strategy_of(repo, from_top))
    policy = Policy(strategy or before.strategy, (*before.takes, *takes))
    # Git has no stage of a base where both sides added the file.
    base, ours, theirs = (
        blob(repo, stages[stage].oid) if stage in stages else memoryview(b"")
        for stage in (_BASE, _OURS, _THEIRS)
    )
    report, merged = merge_texts(base, ours, theirs, Merger(policy), threads=threads)
    check_takes(takes, report)
    resolution = Resolution(from_top, report, has_ledger(repo, from_top))
    if not report.ok:
        conflicts.save(repo, from_top, policy, report, blobs)
        return resolution
    # Only a merge that is complete would overwrite what somebody did to the file by hand.
    _refuse_edited(repo, from_top, stages)
    _stage(repo, stages[_OURS], merged)
    conflicts.forget(repo, from_top)
    return resolution


def unmerged(repo: Repository) -> list[bytes]:
    """Paths in conflict that are merged as checkpoints."""
    paths = list(dict.fromkeys(e.path for e in index.entries(repo) if e.stage))
    drivers = repo.attributes(paths, ["merge"])
    return [path for path in paths if drivers[path]["merge"] == DRIVER]


def _check(path: bytes, stages: dict[int, TreeEntry]) -> None:
    shown = shown_path(path)
    if not stages:
        raise InputError(f"{shown}: no conflict", hint="git status lists those that there are")
    if path.endswith(LEDGER_SUFFIX):
        raise InputError(f"{shown}: a ledger", hint="wtxtgit seal --reseal joins its two sides")
    if _BASE not in stages and len(stages) == 1:
        raise InputError(f"{shown}: one side alone has it here", hint="git status says why")
    # Deleted on one side: git keeps the stage of the other, and the user decides.
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


def _refuse_edited(repo: Repository, path: bytes, stages: dict[int, TreeEntry]) -> None:
    """Raise CheckError where the file is neither what a merge leaves nor a side of it."""
    file = repo.file(path)
    if not os.path.lexists(file) or any(
        work_tree.file_is_blob(file, entry.oid) for entry in stages.values()
    ):
        return
    with contextlib.suppress(WtxtgitError):
        content = view_file(file)
        if content[: len(MAGIC)] == MAGIC and _has_marker(content):
            # What git leaves without the driver.
            return
        cleaned = repo.git("hash-object", b"--path=" + path, "--", os.fsencode(file))
        if cleaned.decode("ascii").strip() in {entry.oid for entry in stages.values()}:
            return
    quoted = shlex.quote(shown_path(path))
    raise CheckError(
        f"{shown_path(path)}: the file was changed since the merge",
        hint=f"git add -- {quoted} takes it as it is, git checkout --ours -- {quoted} drops it",
    )


def _has_marker(content: ByteView) -> bool:
    # One may lie across the end of a piece.
    starts = range(0, len(content), PIECE)
    parts = (content[max(start - len(_MARKER), 0) : start + PIECE] for start in starts)
    return any(bytes(part).find(_MARKER) >= 0 for part in parts)


def _stage(repo: Repository, ours: TreeEntry, merged: ByteView) -> None:
    """Stage the merged content, and have git write the file as a checkout does."""
    # The blob is staged first, so that git itself writes the file, through the filter.
    staging.stage(repo, [ours._replace(oid=staging.write_blob(repo, mapped(merged)))])
    staging.checkout(repo, [ours.path])
