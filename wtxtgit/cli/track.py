"""`wtxtgit track` and `wtxtgit untrack`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from wtxtgit.cli.boundary import note, warn
from wtxtgit.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup.track import Tracking

_SHOWN = 10


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def track(patterns: tuple[str, ...], as_json: bool) -> None:
    """Keep files that match PATTERN as text in git.

    Writes lines to .gitattributes of this folder; patterns are those of
    gitattributes(5), quoted so that the shell leaves them alone. Without a
    pattern, lists those that are tracked.

    \b
    wtxtgit track '*.safetensors' '*.fold'
    git add .gitattributes model.safetensors
    """
    from wtxtgit.errors import counted
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import track as ops
    from wtxtgit.setup.diagnosis import arguments, listed
    from wtxtgit.setup.sizes import MAX_DIFF_LINES

    repo = Repository.discover()
    if not patterns:
        _list(repo, as_json)
        return
    done = ops.track(repo, [os.fsencode(pattern) for pattern in patterns])
    if as_json:
        print_json(done.as_dict())
        return
    _print(done, "tracking", "already tracked")
    if done.found.raw:
        names = arguments(done.found.raw)
        warn(
            f"committed as raw binary: {listed(done.found.raw)}",
            f"git add --renormalize -- {names} makes text of them with the next commit",
        )
    for large in done.found.sizes[:_SHOWN]:
        warn(f"{listed([large.path])}: {large.message}")
    if len(done.found.sizes) > _SHOWN:
        warn(f"{len(done.found.sizes) - _SHOWN} more files are as large; --json lists them")
    if done.found.settings:
        keys = ", ".join(f"{key}={value}" for key, value in done.found.settings.items())
        note(
            f"git packs such files better with {keys}",
            "wtxtgit doctor --fix sets that for this repository",
        )
    if done.found.long:
        note(
            f"pull requests may show no diff of {counted(done.found.long, 'file')}: "
            f"forges end at {MAX_DIFF_LINES:,} lines",
            "wtxtgit review BASE...HEAD shows what changed in the weights",
        )


@click.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def untrack(patterns: tuple[str, ...], as_json: bool) -> None:
    """Stop tracking PATTERN in .gitattributes of this folder.

    What is committed stays as it is. To store the files as plain binaries from
    the next commit on, stage the attributes first: git obeys what is staged.

    \b
    wtxtgit untrack '*.fold'
    git add -A -- .gitattributes
    git add --renormalize -- '*.fold'
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import track as ops

    done = ops.untrack(Repository.discover(), [os.fsencode(pattern) for pattern in patterns])
    if as_json:
        print_json(done.as_dict())
        return
    _print(done, "no longer tracking", "not tracked here")


def _print(done: Tracking, changed: str, unchanged: str) -> None:
    for pattern in done.changed:
        print_line(f"{changed} {os.fsdecode(pattern)}")
    for pattern in done.unchanged:
        print_line(f"{unchanged}: {os.fsdecode(pattern)}")


def _list(repo: Repository, as_json: bool) -> None:
    from wtxtgit.setup import track as ops

    found = ops.list_patterns(repo)
    if as_json:
        print_json(found.as_dict())
    elif found.patterns:
        rows = [(os.fsdecode(item.pattern), os.fsdecode(item.file)) for item in found.patterns]
        print_table(("pattern", "in"), rows)
    else:
        print_line("no pattern is tracked; wtxtgit track '*.safetensors' tracks one")
