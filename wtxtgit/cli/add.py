"""`wtxtgit add`."""

from __future__ import annotations

import os

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.output import print_line
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.errors import UsageError


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("-A", "--all", "everything", is_flag=True, help="Add all files of the work tree.")
@click.option("-u", "--update", is_flag=True, help="Add changes of tracked files only.")
@click.option("-f", "--force", is_flag=True, help="Add ignored files too.")
@click.option("-n", "--dry-run", is_flag=True, help="Add nothing, show what would be.")
@click.option("-v", "--verbose", is_flag=True, help="Show what is added.")
def add(
    paths: tuple[str, ...],
    everything: bool,
    update: bool,
    force: bool,
    dry_run: bool,
    verbose: bool,
) -> None:
    """Add files to the index: git add, several times as fast.

    PATH is what git add takes: files, folders, pathspecs. Checkpoints are
    written as text by wtxtgit itself, on all cores, into one pack; all other
    files are added by git. The index and the objects are those that git add
    makes.

    \b
    wtxtgit add model.safetensors
    wtxtgit add -u
    """
    if not paths and not (everything or update):
        raise UsageError("nothing is named", hint="wtxtgit add . adds what is here and below")
    if everything and update:
        raise UsageError("--all and --update do not go together")
    from wtxtgit.filter import add as ops
    from wtxtgit.git.index import Wanted
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    planned = ops.plan(repo, Wanted(paths, update, force))
    if dry_run or verbose:
        for path in sorted((*planned.filtered, *planned.others)):
            word = "add" if os.path.lexists(repo.file(path)) else "remove"
            print_line(f"{word} '{os.fsdecode(path)}'")
    if dry_run:
        return
    total = sum(file_size(repo.file(path)) for path in planned.filtered)
    with progress("add", total) as advance:
        ops.add(
            repo,
            planned,
            warn=boundary.warn,
            key_file=environment.facts_key(),
            threads=environment.threads(),
            progress=advance,
        )
