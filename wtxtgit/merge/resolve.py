"""Merges requested by a user: of three checkpoints, and of a conflict again, with decisions."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wtxtgit.checkpoint.open import blob, file_of, read, repository_of
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, WtxtgitError
from wtxtgit.filter.clean import clean, clean_detached
from wtxtgit.filter.process import FilterSettings, is_smudged
from wtxtgit.filter.smudge import smudge_into
from wtxtgit.filter.status import filtered_alone, is_driven
from wtxtgit.git import index, staging, work_tree
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.index_file import StagedFile, stage_files, sweep
from wtxtgit.git.repository import DRIVER, Repository
from wtxtgit.git.work_tree import EXECUTABLE, Moment
from wtxtgit.io.files import failures, replace_file, shown_path, view_file, write_output
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import PIECE, ByteView, mapped, pieces, write_all
from wtxtgit.merge import conflicts
from wtxtgit.merge.container import Merger
from wtxtgit.merge.driver import has_ledger, reading_options, strategy_of, tracked_form
from wtxtgit.merge.policy import Policy, check_takes
from wtxtgit.merge.texts import merge_texts
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.model.plain import JsonObject
from wtxtgit.report.merge import MergeReport, Strategy
from wtxtgit.text import grammar

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

    `out` may be `-` for standard output. An empty base means that there is none. The result is a
    text if ours is one. If there are conflicts nothing is written. Raises UsageError, InputError
    and EnvironmentFailure.
    """
    write = write_output
    if out is None:
        out, write = file_of(ours, "-o FILE names the output"), replace_file
    contents = [read(one, threads=threads) for one in (base, ours, theirs)]
    repo = None
    if any(map(grammar.is_detached, contents)):
        with contextlib.suppress(EnvironmentFailure):
            repo = repository_of(ours)
    report, merged = merge_texts(
        contents[0], contents[1], contents[2], merger, repo=repo, threads=threads
    )
    # Checked before anything is written: a name that matches nothing is most likely misspelled.
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
    """The result of merging a conflict again; the file is staged if nothing is left open."""

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
    settings: FilterSettings,
    progress: Progress | None = None,
) -> Resolution:
    """Merge the conflict at `path` (from here) again, with `takes` added to the earlier ones.

    If nothing is left open, the file is written and staged. Otherwise the decisions are kept for
    the next time, and the file stays. `progress` as for a Merger. Raises InputError if there is no
    such conflict, UsageError for names that match nothing.
    """
    sweep(repo)
    from_top = repo.path_from_top(path)
    stages = {e.stage: e for e in index.entries(repo) if e.path == from_top and e.stage}
    _check(repo, from_top, stages)
    blobs = {str(stage): entry.oid for stage, entry in sorted(stages.items())}
    earlier_policy = conflicts.settled(repo, from_top, blobs)
    if earlier_policy is None:
        earlier_policy = Policy(strategy_of(repo, from_top))
    # A decision that is repeated must not be recorded twice.
    earlier = tuple(take for take in earlier_policy.takes if take not in takes)
    policy = Policy(strategy or earlier_policy.strategy, (*earlier, *takes))
    # Git has no stage for the base if both sides added the file.
    base, ours, theirs = (
        blob(repo, stages[stage].oid) if stage in stages else memoryview(b"")
        for stage in (_BASE, _OURS, _THEIRS)
    )
    report, merged = merge_texts(
        base,
        ours,
        theirs,
        Merger(policy, reading_options(repo), progress),
        repo=repo,
        tracked=lambda: tracked_form(repo, from_top),
        threads=settings.threads,
    )
    check_takes(takes, report)
    resolution = Resolution(from_top, report, has_ledger(repo, from_top))
    if not report.ok:
        conflicts.save(repo, from_top, policy, report, blobs)
        return resolution
    entry = stages[_OURS]._replace(oid=staging.write_blob(repo, mapped(merged)))
    # Taken before the file is examined, so that a later write by somebody else is noticed.
    moment = work_tree.moment(repo.worktree, from_top)
    # Only a complete merge would overwrite what somebody did to the file by hand.
    _refuse_edited(repo, from_top, {*(one.oid for one in stages.values()), entry.oid})
    # Saved before the file is staged, so that an interruption loses no decision. If the record
    # can't be saved, as for a name that is too long, that does not matter: nothing is left open.
    with contextlib.suppress(EnvironmentFailure):
        conflicts.save(repo, from_top, policy, report, blobs)
    _write_and_stage(repo, entry, merged, moment, settings)
    conflicts.forget(repo, from_top)
    return resolution


def unmerged(repo: Repository) -> list[bytes]:
    """Return the paths in conflict that are merged as checkpoints."""
    paths = list(dict.fromkeys(e.path for e in index.entries(repo) if e.stage))
    drivers = repo.attributes(paths, ["merge"])
    return [path for path in paths if drivers[path]["merge"] == DRIVER]


def _check(repo: Repository, path: bytes, stages: dict[int, TreeEntry]) -> None:
    shown = shown_path(path)
    if not stages:
        raise InputError(f"{shown}: no conflict", hint="git status lists the conflicts")
    if path.endswith(LEDGER_SUFFIX):
        file = repo.quoted(path.removesuffix(LEDGER_SUFFIX))
        raise InputError(
            f"{shown}: a ledger", hint=f"wtxtgit seal --reseal -- {file} joins its two sides"
        )
    if _BASE not in stages and len(stages) == 1:
        raise InputError(f"{shown}: only one side has it", hint="git status says why")
    # Deleted by one side: git keeps the stage of the other, and the user decides.
    if _OURS not in stages or _THEIRS not in stages:
        quoted = repo.quoted(path)
        side = "ours" if _OURS not in stages else "theirs"
        raise InputError(
            f"{shown}: {side} deleted it, so there is nothing to merge",
            hint=f"git add -- {quoted} keeps it, git rm --cached -- {quoted} drops it",
        )
    for entry in stages.values():
        if not entry.is_file:
            raise InputError(f"{shown}: a link or a submodule on one side")


def _refuse_edited(repo: Repository, path: bytes, oids: set[str]) -> None:
    """Raise CheckError if the file is neither what a merge leaves nor one of these blobs."""
    file = repo.file(path)
    if not os.path.lexists(file) or any(work_tree.file_is_blob(file, oid) for oid in oids):
        return
    with contextlib.suppress(WtxtgitError):
        content = view_file(file)
        if grammar.is_text(content) and _has_marker(content):
            # What git leaves if the driver is not installed.
            return
        output = repo.git("hash-object", b"--path=" + path, "--", os.fsencode(file))
        if output.decode("ascii").strip() in oids:
            return
        # The merged attributes may keep files in the other form.
        like = next(iter(oids))
        for cleaned in (clean(content), clean_detached(content, None)):
            size = len(cleaned.source) if cleaned.writer is None else cleaned.writer.size
            if blob_id(cleaned.pieces(), size, like=like) in oids:
                return
    quoted = repo.quoted(path)
    raise CheckError(
        f"{shown_path(path)}: changed since the merge",
        hint=f"git add -- {quoted} takes it as it is, mv -i -- {quoted} {quoted}.old sets it aside",
    )


def _has_marker(content: ByteView) -> bool:
    # A marker may cross the end of a piece.
    starts = range(0, len(content), PIECE)
    parts = (content[max(start - len(_MARKER), 0) : start + PIECE] for start in starts)
    return any(bytes(part).find(_MARKER) >= 0 for part in parts)


def _write_and_stage(
    repo: Repository,
    entry: TreeEntry,
    merged: ByteView,
    moment: Moment | None,
    settings: FilterSettings,
) -> None:
    """Replace the file that was examined by the merged one, and stage it."""
    if filtered_alone(repo, [entry.path]) and not _is_behind_a_link(repo, entry.path):
        is_text = not (is_driven(repo) and is_smudged(entry.path, settings))
        # The file first: while the index still has the conflict, status shows it and the next run
        # completes it.
        with failures(repo.file(entry.path), missing=EnvironmentFailure):
            status = work_tree.write_file(
                repo.worktree,
                entry.path,
                is_executable=entry.mode == EXECUTABLE,
                write=partial(_fill, merged, is_text=is_text, settings=settings),
                replaces=moment,
            )
        stage_files(repo, [StagedFile(entry.path, entry.mode, entry.oid, status)])
        return
    # Git itself writes from the index files that other conversions change, and those whose folders
    # are missing or replaced.
    staging.stage(repo, [entry])
    staging.checkout(repo, [entry.path])


def _is_behind_a_link(repo: Repository, path: bytes) -> bool:
    """Whether something on the way to a path is not a folder, such as a link."""
    folders = list(Path(os.fsdecode(path)).parents)[:-1]
    return any(
        os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir())
        for folder in (repo.worktree / one for one in folders)
    )


def _fill(merged: ByteView, descriptor: int, *, is_text: bool, settings: FilterSettings) -> None:
    if is_text:
        write_all(descriptor, pieces(merged))
    else:
        smudge_into(descriptor, merged, threads=settings.threads, payload=settings.payload)
