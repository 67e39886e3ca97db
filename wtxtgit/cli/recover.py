"""`wtxtgit recover`."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli.output import print_json, print_line
from wtxtgit.cli.reading import rewriting_options
from wtxtgit.errors import UsageError, counted
from wtxtgit.model.reading import ReadOptions


@click.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False))
@click.option("--ecc", is_flag=True, help="Mend chunks from the file's own parity.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    help="Write to this file instead of replacing FILE.",
)
@rewriting_options
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def recover(
    file: Path, ecc: bool, output: Path | None, hmac_key: Path | None, max_chunk: int, as_json: bool
) -> int:
    """Mend a damaged FOLD FILE from the Reed-Solomon parity in it.

    What was mended is checked before it is written. Nothing is written if a
    chunk can't be mended: exit code 1 names it.

    \b
    wtxtgit recover --ecc model.fold
    wtxtgit recover --ecc model.fold -o mended.fold
    """
    if not ecc:
        raise UsageError("say what to mend from: --ecc is the file's own parity")

    from wtxtgit.checkpoint.emit import hmac_key as integrity_key
    from wtxtgit.checkpoint.recover import recover as op

    options = ReadOptions(max_chunk, integrity_key=integrity_key(hmac_key))
    done = op(file, output or file, options)
    if as_json:
        print_json(done.as_dict())
    elif done.mended:
        names = ", ".join(done.mended)
        print_line(f"{done.path}: {counted(len(done.mended), 'chunk')} mended: {names}")
    else:
        print_line(f"{done.path}: nothing is damaged")
    return 0
