"""`wtxtgit hook` and `wtxtgit merge-driver`: what git calls through sh."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain, warn
from wtxtgit.cli.output import print_json, size

CONFLICT = 1


@click.command()
@click.argument("name", type=click.Choice(["pre-commit"]))
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def hook(name: str, as_json: bool) -> int:  # noqa: ARG001 - there is one so far
    """Run what git's hook NAME is there for.

    pre-commit checks every staged checkpoint and .wtxt file, from the index
    alone: a raw binary and a text that does not verify are refused, with exit
    code 1. `wtxtgit install --hooks` installs it.

    \b
    wtxtgit hook pre-commit
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.ops import hooks

    report = hooks.pre_commit(Repository.discover(), threads=environment.threads())
    if as_json:
        print_json(report.as_dict())
        return 0 if report.ok else 1
    for path, count in report.large:
        warn(
            f"{os.fsdecode(path)}: {size(count)} as text, "
            f"most forges refuse a blob over {size(hooks.MAX_FORGE_BLOB)}"
        )
    for refusal in report.refusals:
        shown = os.fsdecode(refusal.path)
        quoted = shlex.quote(shown)
        where = f"line {refusal.problem.line}: " if refusal.problem.line else ""
        if refusal.kind == "raw-binary":
            hint = f"wtxtgit install, then git add --renormalize -- {quoted}"
        else:
            hint = (
                f"wtxtgit verify -- {quoted} shows all; git restore --staged -- {quoted} unstages"
            )
        complain(f"{shown}: {refusal.kind}: {where}{refusal.problem.message}", hint)
    return 0 if report.ok else 1


@click.command("merge-driver")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@click.argument("marker_size", default="7")
@click.argument("path", required=False)
def merge_driver(
    base: Path,
    ours: Path,
    theirs: Path,
    marker_size: str,  # noqa: ARG001 - git's %L, for drivers that write markers
    path: str | None,
) -> int:
    """Merge three texts for git, the result in OURS; exit code 1 on a conflict.

    A change of one side is taken. Where both sides changed the file, ours
    stays, whole and valid, and you choose. git starts this as
    merge.wtxt.driver.
    """
    from wtxtgit.ops import merge_driver as ops

    if not ops.merge(base, ours, theirs).is_conflict:
        return 0
    shown = path or os.fspath(ours)
    quoted = shlex.quote(shown)
    complain(
        f"{shown}: both sides changed it, ours is kept for now",
        f"git checkout --ours -- {quoted} or git checkout --theirs -- {quoted}, "
        f"then git add -- {quoted}",
    )
    return CONFLICT
