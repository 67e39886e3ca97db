"""`wtxtgit status` and `wtxtgit ls-files`."""

from __future__ import annotations

import os

import click

from wtxtgit.cli import environment
from wtxtgit.cli.check import no_cache_option
from wtxtgit.cli.output import print_json, print_line, print_table
from wtxtgit.report.figures import size

_OID_SHOWN = 10


@click.command()
@no_cache_option
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON.")
def status(no_cache: bool, as_json: bool) -> None:
    """Show the state of every tracked file.

    ok, modified, text (stands as text in the work tree), raw-binary (not text
    in the index), corrupt, missing, conflict, or sparse (not checked out).

    \b
    wtxtgit status
    wtxtgit status --json
    """
    from wtxtgit.filter import status as ops
    from wtxtgit.git.repository import Repository

    key_file = environment.facts_key(no_cache)
    found = ops.status(Repository.discover(), key_file, threads=environment.threads())
    if as_json:
        print_json(found.as_dict())
        return
    if not found.files:
        print_line("no file is tracked; wtxtgit track '*.safetensors' tracks a pattern")
        return
    rows = [
        (
            str(file.state),
            file.format or "",
            _size(file.file_size),
            _size(file.blob_size),
            os.fsdecode(file.path),
        )
        for file in found.files
    ]
    print_table(("state", "format", "file", "blob", "path"), rows, right=("file", "blob"))
    for state, about in ops.HELP.items():
        if any(file.state is state for file in found.files):
            print_line(f"{state}: {about}")


@click.command("ls-files")
@click.argument("revision", required=False, metavar="[REV]")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def ls_files(revision: str | None, as_json: bool) -> None:
    """List tracked files: blob, its size, and the format that its text stands for.

    Without REV those of the index; with it those of that commit, by its own
    attributes.

    \b
    wtxtgit ls-files
    wtxtgit ls-files HEAD~3 --json
    """
    from wtxtgit.filter import status as ops
    from wtxtgit.git.repository import Repository

    listing = ops.list_files(Repository.discover(), revision)
    if as_json:
        print_json(listing.as_dict())
        return
    rows = [
        (file.oid[:_OID_SHOWN], _size(file.size), file.format or "", os.fsdecode(file.path))
        for file in listing.files
    ]
    if rows:
        print_table(("blob", "size", "format", "path"), rows, right=("size",))


def _size(count: int | None) -> str:
    return "-" if count is None else size(count)
