"""`wtxtgit taridx`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from wtxtgit.cli.boundary import warn
from wtxtgit.cli.inspect import print_verdict
from wtxtgit.cli.options import FILE
from wtxtgit.cli.output import file_size, print_json, progress
from wtxtgit.io.view import pieces, write_all

_shards = click.option(
    "--shards", type=FILE, metavar="DIR", help="Where the tars are; beside F if not given."
)


@click.group()
def taridx() -> None:
    """Build, list and check indexes of tar shards.

    An index F.taridx is of the tars F_x.tar beside it, in the order of x.

    \b
    wtxtgit taridx ls train.taridx
    wtxtgit taridx cat train.taridx s0001.json
    """


@taridx.command()
@click.argument("shards", nargs=-1, required=True, type=FILE, metavar="SHARD...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=FILE,
    metavar="F",
    help="Write to this file; - is a pipe.",
)
@click.option(
    "--contiguous", is_flag=True, help="Sort rows where those of a stem are not together."
)
def build(shards: tuple[Path, ...], output: Path, contiguous: bool) -> int:
    """Index the tars SHARD; they are sorted by name.

    Members that the format's own reader can't load are refused: folders, links,
    PAX headers, long names, and files without an extension or with spaces in it.

    \b
    wtxtgit taridx build train_*.tar -o train.taridx
    """
    from wtxtgit.checkpoint import taridx as checkpoint_taridx

    to_pipe = str(output) == "-"
    with progress(output.name, sum(map(file_size, shards))) as advance:
        warnings = checkpoint_taridx.build(
            shards,
            None if to_pipe else output,
            contiguous=contiguous,
            write_out=partial(write_all, sys.stdout.fileno()) if to_pipe else None,
            progress=advance,
        )
    for warning in warnings:
        warn(warning)
    return 0


@taridx.command("ls")
@click.argument("index", metavar="F")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def list_rows(index: str, as_json: bool) -> int:
    """List the rows of the index F, which may be REV:PATH.

    The stem of a row is known where stems collide; elsewhere its tar has it.

    \b
    wtxtgit taridx ls train.taridx
    wtxtgit taridx ls HEAD~1:train.taridx --json
    """
    from wtxtgit.checkpoint import taridx as checkpoint_taridx
    from wtxtgit.cli.taridx_rows import json_lines, text_lines

    opened = checkpoint_taridx.open_index(index)
    lines = json_lines(opened, index) if as_json else text_lines(opened, sys.stdout.encoding)
    write_all(sys.stdout.fileno(), lines)
    return 0


@taridx.command()
@click.argument("index", metavar="F")
@click.argument("name", metavar="STEM.EXT")
@_shards
def cat(index: str, name: str, shards: Path | None) -> int:
    """Write the member STEM.EXT of the index F to standard output.

    Of several members the first is written, or with a folder before its name
    the one that is called so. Exit code 1 if there is none.

    \b
    wtxtgit taridx cat train.taridx s0001.jpg --shards data/
    """
    from wtxtgit.checkpoint import taridx as checkpoint_taridx

    hit = checkpoint_taridx.find(index, name, shards or checkpoint_taridx.folder_of(index))
    for warning in hit.warnings:
        warn(warning)
    write_all(sys.stdout.fileno(), pieces(hit.data))
    return 0


@taridx.command()
@click.argument("index", metavar="F")
@_shards
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(index: str, shards: Path | None, as_json: bool) -> int:
    """Check the index F, and each of its rows against the tar that it points to.

    Exit code 0 only if everything holds.

    \b
    wtxtgit taridx verify train.taridx --shards data/
    """
    from wtxtgit.checkpoint import taridx as checkpoint_taridx

    folder = shards or checkpoint_taridx.folder_of(index)
    with progress("verifying", checkpoint_taridx.shards_size(index, folder)) as advance:
        verdict = checkpoint_taridx.verify(index, folder, progress=advance)
    if as_json:
        print_json(verdict)
    else:
        print_verdict(verdict)
    return verdict.exit_code
