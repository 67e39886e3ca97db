"""`wtxtgit checkout`."""

from __future__ import annotations

import os

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.output import print_json, print_line
from wtxtgit.cli.progress import progress
from wtxtgit.errors import EnvironmentFailure


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("-f", "--force", is_flag=True, help="Write over files that were changed, too.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def checkout(paths: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Write checkpoints to the work tree from the index, on all cores.

    Those that are missing, or stand as text (cloned without the filter, or
    with WTXTGIT_SKIP_SMUDGE=1). PATH is what git checkout takes: files,
    folders, pathspecs; without it all tracked checkpoints are looked at.
    Exit code 1 where a file was left because it was changed.

    \b
    WTXTGIT_SKIP_SMUDGE=1 git clone URL && cd model && wtxtgit checkout
    wtxtgit checkout model.safetensors
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.filter import checkout as ops
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    with progress("checkout", None) as advance:
        done = ops.checkout(
            repo,
            paths,
            settings(),
            boundary.warn,
            force=force,
            key_file=environment.facts_key(),
            progress=advance,
        )
    if as_json:
        print_json(done.as_dict())
    else:
        for path in done.left:
            boundary.warn(f"{os.fsdecode(path)}: stays as text")
        for path in done.changed:
            boundary.warn(
                f"{os.fsdecode(path)}: was changed, left as it is",
                "wtxtgit checkout --force writes over it",
            )
        for path, message in done.failed:
            boundary.warn(f"{os.fsdecode(path)}: {message}", None)
        count = len(done.written)
        print_line(f"{count} {'file' if count == 1 else 'files'} written")
    if done.failed:
        return EnvironmentFailure.exit_code
    return 1 if done.changed else 0
