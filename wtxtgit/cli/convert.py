"""`wtxtgit convert`."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.output import print_json, print_line
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.cli.reading import Size, read_options, reading_options
from wtxtgit.errors import counted
from wtxtgit.report.figures import size


@click.command()
@click.argument("source", metavar="A")
@click.argument("output", metavar="B", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--max-shard",
    type=Size(),
    metavar="SIZE",
    help="Write several files, SIZE of tensors in each: sharded safetensors, or an AEROSET.",
)
@click.option(
    "--inline-data",
    is_flag=True,
    help="Write the bytes of tensors into a .checkpoint, which other readers do not expect.",
)
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def convert(
    source: str,
    output: Path,
    max_shard: int | None,
    inline_data: bool,
    key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    """Write the tensors of A to B, in the format that B's ending names.

    \b
    .safetensors .npz .npy .pt .pth .gguf .fold .mind .aero .checkpoint

    A is any checkpoint, set or REV:PATH. No value is rounded: a dtype that the
    other format lacks is refused. What B can't hold beside the tensors is
    listed. B is read again and compared before it appears.

    \b
    wtxtgit convert model.pt model.safetensors
    wtxtgit convert big.fold big.safetensors --max-shard 64MiB
    """
    from wtxtgit.checkpoint.convert import convert as op

    with progress("converting", file_size(Path(source))) as advance:
        done = op(
            source,
            output,
            read_options(key, max_chunk),
            max_shard=max_shard,
            inline_data=inline_data,
            threads=environment.threads(),
            progress=advance,
        )
    if as_json:
        print_json(done.as_dict())
        return 0
    files = f"{len(done.files)} files, {done.files[-1]} lists them" if len(done.files) > 1 else ""
    print_line(
        f"{files or done.files[0]}: {done.format}, "
        f"{counted(done.tensors, 'tensor')}, {size(done.bytes)}"
    )
    for note in done.notes:
        print_line(f"note: {note}")
    for what in done.dropped:
        print_line(f"dropped: {what}")
    return 0
