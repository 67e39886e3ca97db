"""`wtxtgit delta`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.io.files import write_all


@click.group()
def delta() -> None:
    """Send what changed of a checkpoint as text, and put it on the old one.

    \b
    wtxtgit delta make step-1.safetensors step-2.safetensors -o step-2.safetensors.wtxtdelta
    wtxtgit delta apply step-1.safetensors step-2.safetensors.wtxtdelta
    """


@delta.command()
@click.argument("base")
@click.argument("target")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, readable=False), help="Write to this file."
)
@click.option(
    "--plain",
    is_flag=True,
    help="Say nothing of TARGET but its changed chunks: no time, number, signature or hash.",
)
def make(base: str, target: str, output: Path | None, plain: bool) -> int:
    """Make the delta from BASE to TARGET.

    It goes to standard output if no file is named. Either side is a file or a blob
    as REV:PATH, a checkpoint or its text. The delta has the chunks that changed, and
    what proves the whole. It gives TARGET again, byte for byte, where `delta apply`
    puts it on BASE; on any other file it is refused.

    \b
    wtxtgit delta make HEAD~1:model.fold model.fold -o model.fold.wtxtdelta
    """
    from wtxtgit.checkpoint import delta as op

    total = file_size(Path(base)) + file_size(Path(target))
    with progress("comparing", total) as advance:
        making, made = op.make(
            base, target, plain=plain, threads=environment.threads(), progress=advance
        )
        if making.takes_nothing:
            boundary.note(f"nothing of {base} is in {target}: the delta carries all of it")
        if output is None or str(output) == "-":
            write_all(sys.stdout.fileno(), made.pieces)
        else:
            made.write_to(output)
    return 0


@delta.command()
@click.argument("base")
@click.argument("delta")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    help="Write to this file; - is a pipe.",
)
@click.option("--ts", help="Time of the generation that a plain delta makes.")
@click.option("--build", help="What made the weights, where the delta is plain.")
@click.option(
    "--hmac-key",
    type=click.Path(path_type=Path, readable=False),
    metavar="F",
    help="Check every array's HMAC with the bytes of this file; a plain delta's are made anew.",
)
def apply(
    base: str,
    delta: str,
    output: Path | None,
    ts: str | None,
    build: str | None,
    hmac_key: Path | None,
) -> int:
    """Make the target of DELTA from BASE, a file or a blob as REV:PATH.

    Of a checkpoint it makes a checkpoint, of a text a text. A blob that is the text
    of a checkpoint counts as the checkpoint. The output's name is DELTA's without
    .wtxtdelta; a file of that name is replaced only if -o names it. Nothing is
    written unless DELTA was made for BASE and all of the target is proved.

    \b
    wtxtgit delta apply model.fold step-2.fold.wtxtdelta
    wtxtgit delta apply HEAD:model.fold mailed.wtxtdelta -o model.fold
    """
    from wtxtgit.checkpoint import delta as op

    to_pipe = output is not None and str(output) == "-"
    out = None if to_pipe else output or op.default_output(delta)
    with progress("applying", 2 * file_size(Path(base))) as advance:
        made = op.apply(
            base,
            delta,
            op.Generation(ts, build, hmac_key),
            threads=environment.threads(),
            progress=advance,
        )
        if out is None:
            write_all(sys.stdout.fileno(), made.pieces)
        else:
            made.write_to(out)
    return 0
