"""`wtxtgit convert` and `repack`: a checkpoint written as another file."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.options import (
    FILE,
    CheckpointTarget,
    FilePath,
    Size,
    max_chunk_option,
    read_options,
    reading_options,
    rewriting_options,
)
from wtxtgit.cli.output import are_here, is_printed, print_line, progress
from wtxtgit.errors import counted
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.figures import size


@click.command()
@click.argument("source", metavar="A", type=CheckpointTarget())
@click.argument("output", metavar="B", type=FILE)
@click.option(
    "--max-shard",
    type=Size(),
    metavar="SIZE",
    help="Write several files of at most SIZE each: safetensors, GGUF, MLCP shards, or an AEROSET.",
)
@click.option(
    "--inline-data",
    is_flag=True,
    help="Write tensor bytes into a .checkpoint itself; other readers do not expect that.",
)
@click.option(
    "--ecc",
    type=click.IntRange(1, 254),
    metavar="N",
    help="Add N bytes of parity to each 255 - N bytes of a .fold; pyfolds uses 16, 32 and 64.",
)
@click.option("--hash-b3", is_flag=True, help="Add the BLAKE3 hash of each tensor to an .aero.")
@click.option(
    "--page-hashes",
    type=Size(),
    metavar="SIZE",
    help="Add a BLAKE3 hash for every SIZE bytes to an .aero.",
)
@click.option("--skip", is_flag=True, help="Leave out tensors that B cannot hold, and list them.")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def convert(
    source: str,
    output: Path,
    max_shard: int | None,
    inline_data: bool,
    ecc: int | None,
    hash_b3: bool,
    page_hashes: int | None,
    skip: bool,
    key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    """Write the tensors of A to B, in the format that B's ending names.

    \b
    .safetensors .npz .npy .pt .pth .gguf .fold .mind .aero .checkpoint

    A is any checkpoint, set or REV:PATH. No value is rounded: a dtype that B's format
    lacks is refused. Quantised tensors are kept in .gguf and .aero, and become tagged
    bytes elsewhere. Metadata that B's format cannot hold is listed. B is read back and
    compared before it appears.

    \b
    wtxtgit convert model.pt model.safetensors
    wtxtgit convert big.fold big.safetensors --max-shard 64MiB
    """
    from wtxtgit.checkpoint.convert import convert as convert_checkpoint
    from wtxtgit.containers import registry

    with progress("converting", None, waits=are_here(source)) as advance:
        done = convert_checkpoint(
            source,
            output,
            read_options(key, max_chunk),
            max_shard=max_shard,
            inline_data=inline_data,
            skip=skip,
            extras={"ecc": ecc, "tensor_hashes": hash_b3, "page_size": page_hashes},
            threads=environment.threads(),
            progress=advance,
        )
    if is_printed(done, as_json):
        return 0
    files = ""
    if len(done.files) > 1:
        is_listed = done.files[-1].endswith(registry.index_endings())
        where = f"{done.files[-1]} lists them" if is_listed else f"from {done.files[0]} on"
        files = f"{len(done.files)} files, {where}"
    print_line(
        f"{files or done.files[0]}: {done.format}, "
        f"{counted(done.tensors, 'tensor')}, {size(done.bytes)}"
    )
    for note in done.notes:
        print_line(f"note: {note}")
    for what in done.dropped:
        print_line(f"dropped: {what}")
    for what in done.skipped:
        print_line(f"skipped: {what}")
    return 0


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="Write to this file instead of replacing FILE.",
)
@click.option(
    "--compression",
    type=click.Choice(("none", "zstd")),
    default="none",
    show_default=True,
    help="How to compress chunks.",
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

    Git makes small deltas only of uncompressed files. Hashes inside the file are
    recomputed, and the tensors are proved equal before the file is replaced.

    \b
    wtxtgit repack model.fold
    wtxtgit repack model.fold --compression zstd -o small.fold
    """
    from wtxtgit.checkpoint.key_file import key_bytes
    from wtxtgit.checkpoint.repack import repack as repack_checkpoint

    options = ReadOptions(
        max_chunk, integrity_key=key_bytes(hmac_key), decoding=environment.decoding()
    )
    with progress("repacking", None, waits=True) as advance:
        done = repack_checkpoint(file, output or file, compression, options, progress=advance)
    if is_printed(done, as_json):
        return 0
    sizes = f"{size(done.before)} before, {size(done.after)} now"
    print_line(f"{done.path}: {done.format}, {sizes}, tensors are equal")
    for what in done.broken:
        print_line(f"note: {what} signed the old file, and no longer verifies")
    return 0


@click.command()
@click.argument("target", metavar="SET", type=FilePath())
@click.option("--stage", is_flag=True, help="Stage the index, as git add does.")
@max_chunk_option
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def reseal(target: str, stage: bool, max_chunk: int, as_json: bool) -> int:
    """Rewrite the index of a SET after its files were merged or changed.

    SET is an AEROSET: its .aeroset.json, or the folder that holds it. Its files must
    verify; the index then lists their current tensors, sizes and SHA-256. If a merge, a
    rebase or a pick left the index in conflict, the new index is staged, which ends the
    conflict.

    \b
    wtxtgit reseal --stage model.aeroset.json
    """
    from wtxtgit.checkpoint.reseal import reseal as reseal_set

    options = ReadOptions(max_chunk, decoding=environment.decoding())
    with progress("reading", None, waits=True) as advance:
        done = reseal_set(target, options, stage=stage, progress=advance)
    if is_printed(done, as_json):
        return 0
    for file in done.changed:
        print_line(f"{file}: rewritten{', staged' if file in done.staged else ''}")
    state = "matches its files" if done.changed else "already matched its files"
    print_line(f"{done.path}: {done.format}, {counted(done.tensors, 'tensor')}, {state}")
    return 0
