"""`wtxtgit restore`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.progress import progress, raw_size
from wtxtgit.io.files import write_all


@click.command()
@click.argument("text", type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    help="Write to this file; - is a pipe.",
)
@click.option(
    "--wsum",
    type=click.Path(path_type=Path, readable=False),
    metavar="F",
    help="The WSUM of a pending text.",
)
def restore(text: Path, output: Path | None, wsum: Path | None) -> int:
    """Make the file that TEXT stands for, byte for byte.

    The output's name is TEXT's without .wtxt; a file of that name is replaced
    only if -o names it. No file is made or replaced unless the whole text verifies.
    A native snapshot becomes an .npz or .safetensors file, by the ending of -o.

    \b
    wtxtgit restore model.fold.wtxt
    wtxtgit restore step-100.wtxt -o step-100.safetensors
    """
    from wtxtgit.checkpoint import restore as op

    to_pipe = output is not None and str(output) == "-"
    out = None if to_pipe else output or op.default_output(text)
    with progress(text.name, raw_size(text)) as advance:
        op.restore(
            text,
            out,
            wsum=wsum,
            threads=environment.threads(),
            progress=advance,
            write=partial(write_all, sys.stdout.fileno()) if to_pipe else None,
        )
    return 0
