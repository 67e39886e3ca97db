"""`wtxtgit cat`: one tensor, part or value of a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.options import FILE, CheckpointTarget, completed, read_options, reading_options
from wtxtgit.cli.output import progress, write_json
from wtxtgit.errors import UsageError
from wtxtgit.io.files import shown, write_output
from wtxtgit.io.view import Buffer, counted, write_all

if TYPE_CHECKING:
    from wtxtgit.checkpoint.cat import Named

_MOST_SHOWN = 1024 * 1024
"""The most bytes that are written to a terminal."""


@click.command()
@click.argument("target", metavar="FILE|REV:PATH", type=CheckpointTarget())
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=completed("tensors")
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="OUT",
    help="Write to this file, tensors in the format its ending names; - is standard output.",
)
@reading_options
def cat(
    target: str, names: tuple[str, ...], output: Path | None, key: Path | None, max_chunk: int
) -> int:
    """Write one tensor or part of a checkpoint, without reading the rest.

    NAME is a tensor, a chunk, a member, a part that inspect shows, or a metadata key.
    By default, writes a tensor's items to standard output in C order, little-endian
    (the bytes that inspect hashes), a chunk or member decoded, and any other value as
    JSON. With -o, OUT.npy, OUT.safetensors and the other formats of convert keep dtype
    and shape. Several NAMEs need a format that holds several tensors.

    \b
    wtxtgit cat model.safetensors layers.0.q -o q.npy
    wtxtgit cat HEAD~3:model.gguf token_embd.weight | sha256sum
    wtxtgit cat model.fold llm_manifest
    """
    from wtxtgit.checkpoint import cat as checkpoint_cat
    from wtxtgit.checkpoint.open import refuse_loss
    from wtxtgit.containers import registry

    if output is not None:
        refuse_loss(output, target)

    with progress("reading", None) as advance:
        options, threads = read_options(key, max_chunk), environment.threads()
        opened = checkpoint_cat.opened(target, names, options, threads=threads, progress=advance)
        with opened as parts:
            ending = None if output is None else registry.by_ending(output.suffix)
            is_file = output is not None and str(output) != "-"
            wants_format = is_file and ending is not None and ending.write is not None
            if output is not None and wants_format and (len(parts) > 1 or parts[0].tensor):
                checkpoint_cat.write_tensors(output, parts, options, advance)
                return 0
            if len(parts) > 1:
                raise UsageError(
                    f"{len(parts)} names given, but only one can be written as plain bytes",
                    hint="-o OUT.safetensors holds several tensors",
                )
            if output is not None and is_file:
                content = counted(_bytes(parts[0]), advance)
                write_output(output, lambda descriptor: write_all(descriptor, content))
                return 0
            blocks = _bytes(parts[0])
            if output is None and sys.stdout.isatty():
                blocks = iter([_readable(parts[0].name, blocks)])
            sys.stdout.flush()
            write_all(sys.stdout.fileno(), blocks)
    return 0


def _bytes(part: Named) -> Iterable[Buffer]:
    """Return the bytes to be written: those of a part, a string as it is, other values as JSON."""
    if not part.is_value:
        return part.blocks()
    if isinstance(part.value, str):
        return iter([part.value.encode("utf-8", "surrogatepass")])
    spelled: list[str] = []
    write_json(part.value, spelled.append)
    return (piece.encode() for piece in spelled)


def _readable(name: str, blocks: Iterable[Buffer]) -> bytes:
    """Return a short text without control characters; raises UsageError for anything else."""
    content = bytearray()
    for block in blocks:
        content += block
        if len(content) > _MOST_SHOWN:
            break
    text = content.decode("utf-8", "replace") if len(content) <= _MOST_SHOWN else "\0"
    if not all(c.isprintable() or c in "\n\t" for c in text) or "\ufffd" in text:
        raise UsageError(
            f"{shown(name)} is binary or long, and standard output is a terminal",
            hint="-o FILE writes it to a file; -o - writes it to the terminal anyway",
        )
    return bytes(content) if content.endswith(b"\n") else bytes(content) + b"\n"
