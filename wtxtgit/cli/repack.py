"""`wtxtgit repack`."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli.output import print_json, print_line
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.cli.reading import rewriting_options
from wtxtgit.model.reading import ReadOptions
from wtxtgit.report.figures import size


@click.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    help="Write to this file instead of replacing FILE.",
)
@click.option(
    "--compression",
    type=click.Choice(("none", "zstd")),
    default="none",
    show_default=True,
    help="What to store chunks with.",
)
@rewriting_options
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def repack(
    file: Path,
    output: Path | None,
    compression: str,
    hmac_key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    """Change the compression of a FOLD, AERO, npz or torch FILE, and nothing else.

    Git makes small deltas of uncompressed files alone. Hashes inside the file
    are made anew; the tensors are proved equal before the file is replaced.

    \b
    wtxtgit repack model.fold
    wtxtgit repack model.fold --compression zstd -o small.fold
    """
    from wtxtgit.checkpoint.emit import hmac_key as integrity_key
    from wtxtgit.checkpoint.repack import repack as op

    options = ReadOptions(max_chunk, integrity_key=integrity_key(hmac_key))
    with progress("repacking", 2 * file_size(file)) as advance:
        done = op(file, output or file, compression, options, progress=advance)
    if as_json:
        print_json(done.as_dict())
        return 0
    sizes = f"{size(done.before)} before, {size(done.after)} now"
    print_line(f"{done.path}: {done.format}, {sizes}, tensors are equal")
    for what in done.broken:
        print_line(f"note: {what} signs the file as it was, and no longer holds")
    return 0
