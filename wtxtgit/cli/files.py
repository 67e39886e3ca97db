"""`wtxtgit add`, `checkout`, `status` and `ls-files`: tracked files."""

from __future__ import annotations

import os

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.options import FilePath, Revision, discover, no_cache_option
from wtxtgit.cli.output import file_size, is_printed, print_json, print_line, print_table, progress
from wtxtgit.errors import EnvironmentFailure, UsageError, counted
from wtxtgit.report.figures import size

_OID_SHOWN = 10


_MOST_WRONG = 10


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]", type=FilePath())
@click.option("-A", "--all", "everything", is_flag=True, help="Add all files of the work tree.")
@click.option("-u", "--update", is_flag=True, help="Add changes of tracked files only.")
@click.option("-f", "--force", is_flag=True, help="Add ignored files too.")
@click.option("-n", "--dry-run", is_flag=True, help="Add nothing; show what would be added.")
@click.option("-v", "--verbose", is_flag=True, help="Show what is added.")
def add(
    paths: tuple[str, ...],
    everything: bool,
    update: bool,
    force: bool,
    dry_run: bool,
    verbose: bool,
) -> None:
    """Add files to the index: git add, several times faster.

    PATH is whatever git add takes: files, folders, pathspecs. wtxtgit writes
    checkpoints as text itself, on all cores, into a few packs; git adds all other files.
    The index and the objects are the same as git add makes.

    \b
    wtxtgit add model.safetensors
    wtxtgit add -u
    """
    if not paths and not (everything or update):
        raise UsageError("no path given", hint="wtxtgit add . adds this folder and all below it")
    if everything and update:
        raise UsageError("--all and --update cannot be combined")
    from wtxtgit.filter import add as filter_add
    from wtxtgit.git.index import Wanted

    repo = discover()
    planned = filter_add.plan(repo, Wanted(paths, update, force))
    if dry_run or verbose:
        for path in sorted((*planned.filtered, *planned.others, *planned.removed)):
            word = "remove" if path in planned.removed else "add"
            print_line(f"{word} '{os.fsdecode(path)}'")
    if dry_run:
        if planned.refused is not None:
            raise planned.refused
        return
    total = sum(file_size(repo.file(path)) for path in planned.filtered)
    with progress("adding", total, len(planned.filtered)) as advance:
        filter_add.add(
            repo,
            planned,
            warn=boundary.warn,
            key_file=environment.facts_key(),
            threads=environment.threads(),
            progress=advance,
        )


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]", type=FilePath())
@click.option("-f", "--force", is_flag=True, help="Overwrite changed files too.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def checkout(paths: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Write checkpoints to the work tree from the index, on all cores.

    Writes files that are missing or still text (cloned without the filter, or with
    WTXTGIT_SKIP_SMUDGE=1). PATH is whatever git checkout takes: files, folders,
    pathspecs; the default is all tracked checkpoints. Changed files are left alone, and
    the exit code is then 1.

    \b
    WTXTGIT_SKIP_SMUDGE=1 git clone URL && cd model && wtxtgit checkout
    wtxtgit checkout model.safetensors
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.filter import checkout as filter_checkout

    repo = discover()
    with progress("checking out", None) as advance:
        done = filter_checkout.checkout(
            repo,
            paths,
            settings(repo),
            boundary.warn,
            force=force,
            key_file=environment.facts_key(),
            progress=advance,
        )
    if as_json:
        print_json(done)
    else:
        # Of those that lack payload one warning was given for all.
        for path in sorted({*done.left} - {*done.lacking_payload}):
            boundary.warn(f"{os.fsdecode(path)}: left as text")
        for path in done.changed:
            boundary.warn(
                f"{os.fsdecode(path)}: changed, left alone",
                f"git stash push --keep-index -- {repo.quoted(path)} sets the change aside and "
                "writes the file",
            )
        for failure in done.failed:
            boundary.warn(f"{os.fsdecode(failure.path)}: {failure.message}")
        print_line(f"{counted(len(done.written), 'file')} written")
    if done.unnoted is not None:
        boundary.complain(f"could not update the index: {done.unnoted}", filter_checkout.UNNOTED)
    if done.failed or done.unnoted is not None:
        return EnvironmentFailure.exit_code
    return 1 if done.changed else 0


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]", type=FilePath())
@no_cache_option
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON.")
def status(paths: tuple[str, ...], no_cache: bool, as_json: bool) -> None:
    """Show the state of every tracked file.

    PATH is whatever git status takes: files, folders, pathspecs. States are ok,
    modified, text (still text in the work tree), raw-binary (not text in the index),
    corrupt, missing, conflict, or sparse (not checked out).

    \b
    wtxtgit status
    wtxtgit status models/ --json
    """
    from wtxtgit.filter import status as filter_status

    key_file = environment.facts_key(no_cache)
    with progress("comparing", None, waits=True) as advance:
        report = filter_status.status(
            discover(),
            key_file,
            pathspecs=paths,
            threads=environment.threads(),
            progress=advance,
        )
    if is_printed(report, as_json):
        return
    if not report.files and paths:
        print_line("no checkpoint is tracked there; wtxtgit track lists the tracked patterns")
        return
    if not report.files:
        print_line("no tracked files; wtxtgit track '*.safetensors' tracks a pattern")
        return
    rows = [
        (
            str(file.state),
            file.format or "",
            _size(file.file_size),
            _size(file.blob_size),
            os.fsdecode(file.path),
        )
        for file in report.files
    ]
    print_table(("state", "format", "file", "blob", "path"), rows, right=("file", "blob"))
    for state, about in filter_status.HELP.items():
        if any(file.state is state for file in report.files):
            print_line(f"{state}: {about}")
    wrong = [file for file in report.files if file.wrong is not None]
    for file in wrong[:_MOST_WRONG]:
        print_line(f"odd: {os.fsdecode(file.path)}: {file.wrong}")
    if len(wrong) > _MOST_WRONG:
        print_line(f"and {len(wrong) - _MOST_WRONG} more; --json lists them")


@click.command("ls-files")
@click.argument("revision", required=False, metavar="[REV]", type=Revision())
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def ls_files(revision: str | None, as_json: bool) -> None:
    """List tracked files with blob, size and checkpoint format.

    Lists the index or, with REV, the files of that commit by its own attributes.

    \b
    wtxtgit ls-files
    wtxtgit ls-files HEAD~3 --json
    """
    from wtxtgit.filter import status as filter_status

    with progress("reading", None, waits=True) as advance:
        listing = filter_status.list_files(discover(), revision, advance)
    if is_printed(listing, as_json):
        return
    rows = [
        (file.oid[:_OID_SHOWN], _size(file.size), file.format or "", os.fsdecode(file.path))
        for file in listing.files
    ]
    if rows:
        print_table(("blob", "size", "format", "path"), rows, right=("size",))


def _size(count: int | None) -> str:
    return "-" if count is None else size(count)
