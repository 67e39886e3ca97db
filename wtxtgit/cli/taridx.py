"""`wtxtgit taridx`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click

from wtxtgit.cli.boundary import warn
from wtxtgit.cli.inspect import print_verdict
from wtxtgit.cli.options import FILE, FilePath, completed
from wtxtgit.cli.output import file_size, print_json, progress
from wtxtgit.io.view import counted, pieces, write_all

_shards = click.option(
    "--shards", type=FILE, metavar="DIR", help="Where the tars are. Default: beside F."
)


@click.group()
def taridx() -> None:
    """Build, list and check indexes of tar shards.

    The index F.taridx lists the members of the tars F_x.tar beside it, in the order of
    x.

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
    help="Write to this file; - is standard output.",
)
@click.option("--contiguous", is_flag=True, help="Sort rows if those of one stem are not adjacent.")
def build(shards: tuple[Path, ...], output: Path, contiguous: bool) -> int:
    """Index the tars SHARD, sorted by name.

    Members that the format's own reader cannot load are refused: folders, links, PAX
    headers, long names, and files without an extension or with spaces in it.

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
@click.argument("index", metavar="F", type=FilePath(), shell_complete=completed("targets"))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def list_rows(index: str, as_json: bool) -> int:
    """List the rows of the index F, which may be REV:PATH.

    The index holds stems only where their hashes collide; other stems are in the tars.

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
@click.argument("index", metavar="F", type=FilePath(), shell_complete=completed("targets"))
@click.argument("name", metavar="STEM.EXT")
@_shards
def cat(index: str, name: str, shards: Path | None) -> int:
    """Write the member STEM.EXT of the index F to standard output.

    If several members match, the first is written; a folder before the name selects
    one. The exit code is 1 if none matches.

    \b
    wtxtgit taridx cat train.taridx s0001.jpg --shards data/
    """
    from wtxtgit.checkpoint import taridx as checkpoint_taridx

    hit = checkpoint_taridx.find(index, name, shards or checkpoint_taridx.folder_of(index))
    for warning in hit.warnings:
        warn(warning)
    # On a terminal the bar would write over what is shown.
    is_seen = sys.stdout.isatty()
    with nullcontext() if is_seen else progress("writing", hit.data.nbytes) as advance:
        write_all(sys.stdout.fileno(), counted(pieces(hit.data), advance))
    return 0


@taridx.command()
@click.argument("index", metavar="F", type=FilePath(), shell_complete=completed("targets"))
@_shards
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(index: str, shards: Path | None, as_json: bool) -> int:
    """Check the index F, and each of its rows against its tar.

    The exit code is 0 only if everything holds.

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
