"""`wtxtgit merge-file`, `resolve` and `merge-driver`."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain, note
from wtxtgit.cli.options import discover, rewriting_options
from wtxtgit.cli.output import print_json, print_line, print_table
from wtxtgit.errors import MAX_NAME, CheckError, UsageError, WtxtgitError, clipped, counted
from wtxtgit.merge.driver import SideNames, has_ledger, side_names

if TYPE_CHECKING:
    from wtxtgit.git.repository import Repository
    from wtxtgit.report.merge import Conflict, MergeReport, Settled

CONFLICT = CheckError.exit_code
_MOST_NAMED = 3
"""Conflicts that a message names."""
_MOST_RANGES = 3
_PLAIN = SideNames("ours", "theirs")
_STRATEGY = "fail (the default), ours, theirs, average or task"


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _strategy_option(about: str) -> Callable[[_Command], _Command]:
    return click.option("--strategy", metavar="NAME", help=f"{about}: {_STRATEGY}.")


_take_option = click.option(
    "--take",
    "takes",
    metavar="NAME=SIDE",
    multiple=True,
    help="Settle one thing with ours, theirs, base, average or task; NAME may be a pattern.",
)


@click.command("merge-file")
@click.argument("base", metavar="BASE")
@click.argument("ours", metavar="OURS")
@click.argument("theirs", metavar="THEIRS")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    help="Write to this file instead of replacing OURS; - for standard output.",
)
@_strategy_option("Where both sides changed the same rows")
@_take_option
@rewriting_options
@click.option("--json", "as_json", is_flag=True, help="Print what was merged as JSON.")
def merge_file(
    base: str,
    ours: str,
    theirs: str,
    output: Path | None,
    strategy: str | None,
    takes: tuple[str, ...],
    hmac_key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    """Merge what THEIRS changed since BASE into OURS, tensor by tensor and row by row.

    Each is a checkpoint or its text, or REV:PATH. An empty BASE stands for
    none. Exit code 1 on a conflict, with nothing written.

    \b
    wtxtgit merge-file base.fold mine.fold theirs.fold
    wtxtgit merge-file base.fold mine.fold theirs.fold --strategy average -o merged.fold
    wtxtgit merge-file base.fold mine.fold theirs.fold --take 'layers.3.*=theirs'
    """
    from wtxtgit.checkpoint.emit import hmac_key as integrity_key
    from wtxtgit.merge.container import Merger
    from wtxtgit.merge.policy import Policy, parse_strategy, parse_takes
    from wtxtgit.merge.resolve import STDOUT, merge_files
    from wtxtgit.model.tensor import ReadOptions

    options = ReadOptions(max_chunk, integrity_key=integrity_key(hmac_key))
    if as_json and output == STDOUT:
        raise UsageError("standard output takes the file or --json, not both")
    policy = Policy(parse_strategy("fail" if strategy is None else strategy), parse_takes(takes))
    report = merge_files(
        base, ours, theirs, output, Merger(policy, options), threads=environment.threads()
    )
    if as_json:
        print_json(report)
    elif output != STDOUT or not report.ok:
        _print(report.settled, "merged", report)
        if report.ok:
            print_line(f"{output or ours}: {_outcome(report, _PLAIN)}")
    if report.ok:
        return 0
    complain(
        f"{counted(len(report.conflicts), 'conflict')}, nothing is written",
        "--take NAME=theirs settles one, --strategy all of them",
    )
    return CONFLICT


@click.command()
@click.argument("path", required=False)
@_take_option
@_strategy_option("What settles all that is still open")
@click.option("--json", "as_json", is_flag=True, help="Print what was merged as JSON.")
def resolve(path: str | None, takes: tuple[str, ...], strategy: str | None, as_json: bool) -> int:
    """Settle the conflict at PATH that a merge left, and stage the file.

    What is settled is kept until nothing is open any more; only then the file
    is written, with all that both sides changed. A name or pattern settles
    what is open, nothing else: git checkout --ours takes the whole file. Without
    options it shows what is open, without PATH which files are. Exit code 1 as
    long as something is.

    \b
    wtxtgit resolve model.fold
    wtxtgit resolve model.fold --take torch_state/head.weight=theirs
    wtxtgit resolve model.fold --take '*=ours'
    """
    from wtxtgit.merge.policy import parse_strategy, parse_takes
    from wtxtgit.merge.resolve import resolve as resolve_conflict

    repo = discover()
    repo.check_worktree()
    if path is None:
        if takes or strategy is not None:
            raise UsageError("--take and --strategy are for one PATH")
        return _list(repo, as_json)
    chosen = None if strategy is None else parse_strategy(strategy)
    done = resolve_conflict(repo, path, parse_takes(takes), chosen, threads=environment.threads())
    if as_json:
        print_json(done)
        return 0 if done.is_staged else CONFLICT
    _print(done.report.decided, "settled", done.report)
    names = side_names(repo)
    if not done.is_staged:
        merges = len(done.report.settled) - len(done.report.decided)
        if merges:
            print_line(
                f"{counted(merges, 'change')} of one side or the other merged without a conflict"
            )
        open_ = counted(len(done.report.conflicts), "conflict")
        print_line(f"{path}: {open_} open, {names.ours} against {names.theirs}")
        top = shlex.quote(os.fsdecode(done.path))
        print_line(f"wtxtgit diff :2:{top} :3:{top} shows how the two differ")
        return CONFLICT
    print_line(f"{path}: {_outcome(done.report, names)}, staged")
    if done.has_ledger:
        note(*_reseal(path))
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
            ("in conflict", "what shows and settles it"),
            [(path, f"wtxtgit resolve {shlex.quote(path)}") for path in paths],
        )
    return CONFLICT if paths else 0


@click.command("merge-driver")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@click.argument("marker_size", default="7")
@click.argument("path", required=False)
@click.option("--ledger", is_flag=True, help="They are ledgers: the one that goes on is taken.")
def merge_driver(
    base: Path,
    ours: Path,
    theirs: Path,
    marker_size: str,  # noqa: ARG001 - git's %L, for drivers that write markers
    path: str | None,
    ledger: bool,
) -> int:
    """Merge three texts for git, the result in OURS; exit code 1 on a conflict.

    Checkpoints are merged tensor by tensor, and row by row; where both sides
    changed the same rows the attribute wtxt-merge decides, or the config
    wtxtgit.mergeStrategy. On a conflict ours stays, whole and valid, and
    `wtxtgit resolve` settles it. Of ledgers the side is taken that has all
    records of the other. git starts this as merge.wtxt.driver, and as
    merge.wtxt-ledger.driver.
    """
    shown = path or os.fspath(ours)
    if ledger:
        from wtxtgit.merge.driver import merge_ledgers

        if merge_ledgers(base, ours, theirs) is not None:
            return 0
        complain(
            f"{shown}: both sides went on, ours is kept for now: "
            "settle what it seals, git add that, then wtxtgit seal --reseal"
        )
        return CONFLICT
    from wtxtgit.git.repository import Repository
    from wtxtgit.merge.driver import merge

    try:
        # Each file that both sides have starts this: git is asked once.
        repo = Repository.find()
        report = merge(
            repo,
            base,
            ours,
            theirs,
            None if path is None else os.fsencode(path),
            threads=environment.threads(),
        )
    except WtxtgitError as error:
        complain(f"{shown}: {error.message}; ours is kept for now", error.hint)
        return CONFLICT
    names = _PLAIN if repo is None else side_names(repo, environment.git_action())
    if not report.ok:
        _complain(shown, report, names)
    elif report.taken is None or report.decided:
        note(f"{shown}: {_outcome(report, names)}")
    for line in report.notes:
        note(f"{shown}: {line}")
    if not report.ok:
        return CONFLICT
    if report.taken is not None or repo is None or path is None:
        return 0
    if has_ledger(repo, os.fsencode(path)):
        # What to do is told where the ledger conflicts, and by the hooks.
        note(_reseal(shown)[0])
    return 0


def _complain(path: str, report: MergeReport, names: SideNames) -> None:
    named = [_named(one) for one in report.conflicts[:_MOST_NAMED]]
    more = len(report.conflicts) - len(named)
    what = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    # Git starts this at the top level, and takes paths from where it was called.
    quoted = shlex.quote(os.path.relpath(path, environment.git_prefix() or "."))
    complain(
        f"{path}: both sides changed it, {names.ours} is kept for now: {what}; "
        f"nothing of {names.theirs} is in the file yet",
        f"wtxtgit resolve {quoted} shows all, and settles it with --take NAME=theirs; "
        f"git checkout --theirs -- {quoted} takes the other file, then git add -- {quoted}",
    )


def _named(conflict: Conflict) -> str:
    from wtxtgit.merge.policy import WHOLE

    if conflict.name == WHOLE:
        return conflict.reason
    name = clipped(conflict.name, MAX_NAME)
    if conflict.rows is None:
        return f"{name}: {conflict.reason}"
    return f"{name} {_rows(conflict)}"


def _rows(conflict: Conflict) -> str:
    """Rows in words: `rows 3-5, 9`."""
    if conflict.rows is None or conflict.ranges is None:
        return ""
    if len(conflict.ranges) > _MOST_RANGES or not conflict.exact:
        return counted(conflict.rows, "row")
    spans = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in conflict.ranges]
    return f"{'row' if conflict.rows == 1 else 'rows'} {', '.join(spans)}"


def _outcome(report: MergeReport, names: SideNames) -> str:
    """What a merge without conflicts came to, in words."""
    sides = {"ours": names.ours, "theirs": names.theirs}
    if report.taken is not None:
        by = ", as the strategy says" if report.decided else ""
        return f"{sides.get(report.taken, report.taken)} is taken{by}"
    found = Counter((one.how, one.strategy is not None) for one in report.settled)
    words = {
        ("ours", False): f"from {names.ours}",
        ("theirs", False): f"from {names.theirs}",
        ("both", False): "row by row",
        ("equal", False): "changed alike",
        ("ours", True): f"decided for {names.ours}",
        ("theirs", True): f"decided for {names.theirs}",
        ("base", True): "decided for the base",
        ("average", True): "by average",
        ("task", True): "by task",
    }
    told = [f"{found[key]} {word}" for key, word in words.items() if found[key]]
    return f"merged, {', '.join(told)}" if told else "merged"


def _print(settled: Sequence[Settled], title: str, report: MergeReport) -> None:
    """The tables of what was settled, and of what is open."""
    rows = [(one.name, str(one.kind), one.how) for one in settled]
    if rows:
        print_table((title, "what", "taken"), rows)
    if report.conflicts:
        open_ = [(one.name, str(one.kind), _rows(one), one.reason) for one in report.conflicts]
        print_table(("open", "what", "rows", "why"), open_)
    for line in report.notes:
        print_line(f"note: {line}")


def _reseal(path: str) -> tuple[str, str]:
    return (
        f"{path}: what is merged is sealed by nobody yet",
        f"once git has it staged: wtxtgit seal --reseal -- {shlex.quote(path)}",
    )
