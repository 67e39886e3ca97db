"""`wtxtgit merge-file` and `resolve`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain, note
from wtxtgit.cli.merge_driver import CONFLICT, PLAIN, outcome, rows_of, sealing
from wtxtgit.cli.options import (
    FILE,
    CheckpointTarget,
    FilePath,
    completed,
    discover,
    key_option,
    read_options,
    rewriting_options,
)
from wtxtgit.cli.output import are_here, print_json, print_line, print_table, progress
from wtxtgit.errors import UsageError, counted
from wtxtgit.merge.driver import side_names

if TYPE_CHECKING:
    from wtxtgit.git.repository import Repository
    from wtxtgit.report.merge import MergeReport, Settled

_SIDES = "ours, theirs, base, average or task"
_STRATEGY = "fail (the default), ours, theirs, average or task"


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _strategy_option(about: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--strategy",
        metavar="NAME",
        shell_complete=completed("strategies"),
        help=f"{about}: {_STRATEGY}.",
    )


_take_option = click.option(
    "--take",
    "takes",
    metavar="NAME=SIDE",
    multiple=True,
    help=f"Settle the conflict NAME, or all that match a pattern, with {_SIDES}.",
)


@click.command("merge-file")
@click.argument("base", metavar="BASE", type=CheckpointTarget())
@click.argument("ours", metavar="OURS", type=CheckpointTarget())
@click.argument("theirs", metavar="THEIRS", type=CheckpointTarget())
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="Write to this file instead of replacing OURS; - is standard output.",
)
@_strategy_option("If both sides changed the same rows")
@_take_option
@key_option
@rewriting_options
@click.option("--json", "as_json", is_flag=True, help="Print what was merged as JSON.")
def merge_file(
    base: str,
    ours: str,
    theirs: str,
    output: Path | None,
    strategy: str | None,
    takes: tuple[str, ...],
    key: Path | None,
    hmac_key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    """Merge what THEIRS changed since BASE into OURS, tensor by tensor and row by row.

    Each is a checkpoint, its text, or REV:PATH. An empty BASE means that there is none.
    On a conflict the exit code is 1 and nothing is written.

    \b
    wtxtgit merge-file base.fold mine.fold theirs.fold
    wtxtgit merge-file base.fold mine.fold theirs.fold --strategy average -o merged.fold
    wtxtgit merge-file base.fold mine.fold theirs.fold --take 'layers.3.*=theirs'
    """
    from wtxtgit.checkpoint.key_file import key_bytes
    from wtxtgit.merge.container import Merger
    from wtxtgit.merge.policy import Policy, parse_strategy, parse_takes
    from wtxtgit.merge.resolve import STDOUT, merge_files

    options = replace(read_options(key, max_chunk), integrity_key=key_bytes(hmac_key))
    if as_json and output == STDOUT:
        raise UsageError("-o - and --json would both write to standard output")
    policy = Policy(parse_strategy("fail" if strategy is None else strategy), parse_takes(takes))
    with progress("merging", None, waits=are_here(base, ours, theirs)) as advance:
        merger = Merger(policy, options, advance)
        report = merge_files(base, ours, theirs, output, merger, threads=environment.threads())
    if as_json:
        print_json(report)
    elif output != STDOUT or not report.ok:
        _print(report.settled, "merged", report)
        if report.ok:
            print_line(f"{output or ours}: {outcome(report, PLAIN)}")
    if report.ok:
        return 0
    complain(
        f"{counted(len(report.conflicts), 'conflict')}, nothing written",
        "--take NAME=theirs settles one, --strategy ours or theirs all of them",
    )
    return CONFLICT


@click.command()
@click.argument("path", required=False, type=FilePath())
@_take_option
@_strategy_option("How to settle all open conflicts")
@click.option("--json", "as_json", is_flag=True, help="Print what was merged as JSON.")
def resolve(path: str | None, takes: tuple[str, ...], strategy: str | None, as_json: bool) -> int:
    """Settle the conflict at PATH that a merge left, and stage the file.

    Choices are kept until no conflict is left; then the file is written with the
    changes of both sides. --take and --strategy only settle conflicts; to take one
    side's whole file, use git checkout --ours. Without options, lists the conflicts in
    PATH; without PATH, lists the files with conflicts. The exit code is 1 while any is
    left.

    \b
    wtxtgit resolve model.fold
    wtxtgit resolve model.fold --take torch_state/head.weight=theirs
    wtxtgit resolve model.fold --take '*=ours'
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.merge.policy import parse_strategy, parse_takes
    from wtxtgit.merge.resolve import resolve as resolve_conflict

    repo = discover()
    repo.check_worktree()
    if path is None:
        if takes or strategy is not None:
            raise UsageError("--take and --strategy need a PATH")
        return _list(repo, as_json)
    chosen = None if strategy is None else parse_strategy(strategy)
    with progress("merging", None, waits=True) as advance:
        done = resolve_conflict(
            repo, path, parse_takes(takes), chosen, settings=settings(repo), progress=advance
        )
    if as_json:
        print_json(done)
        return 0 if done.is_staged else CONFLICT
    _print(done.report.decided, "settled", done.report)
    names = side_names(repo)
    if not done.is_staged:
        merges = len(done.report.settled) - len(done.report.decided)
        if merges:
            print_line(
                f"{counted(merges, 'change')} made by only one side merged without a conflict"
            )
        open_ = counted(len(done.report.conflicts), "conflict")
        print_line(f"{path}: {open_} open, {names.ours} against {names.theirs}")
        top = shlex.quote(os.fsdecode(done.path))
        print_line(f"wtxtgit diff :2:{top} :3:{top} shows how the two differ")
        print_line(f"wtxtgit resolve {shlex.quote(path)} --take NAME=SIDE settles one: {_SIDES}")
        return CONFLICT
    print_line(f"{path}: {outcome(done.report, names)}, staged")
    if done.has_ledger:
        note(*sealing(path))
    return 0


def _list(repo: Repository, as_json: bool) -> int:
    from wtxtgit.merge.resolve import unmerged

    paths = [os.path.relpath(repo.file(path)) for path in unmerged(repo)]
    if as_json:
        print_json({"conflicts": paths})
    elif not paths:
        print_line("no checkpoint is in conflict")
    else:
        print_table(
            ("in conflict", "to see and settle it"),
            [(path, f"wtxtgit resolve {shlex.quote(path)}") for path in paths],
            whole=("to see and settle it",),
        )
    return CONFLICT if paths else 0


def _print(settled: Sequence[Settled], title: str, report: MergeReport) -> None:
    """Print the tables of settled changes and of open conflicts."""
    rows = [(change.name, str(change.kind), change.how) for change in settled]
    if rows:
        print_table((title, "what", "taken"), rows)
    if report.conflicts:
        open_ = [
            (conflict.name, str(conflict.kind), rows_of(conflict), conflict.reason)
            for conflict in report.conflicts
        ]
        print_table(("open", "what", "rows", "why"), open_)
    for line in report.notes:
        print_line(f"note: {line}")
