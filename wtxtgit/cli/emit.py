"""`wtxtgit emit`, `restore` and `delta`: texts made of checkpoints, and the way back."""

from __future__ import annotations

import re
import sys
from collections import Counter
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.options import (
    FILE,
    CheckpointTarget,
    FilePath,
    PathOrUrl,
    passphrase_option,
    scheduler_option,
    sign_option,
)
from wtxtgit.cli.output import file_size, progress
from wtxtgit.cli.passphrase import asker
from wtxtgit.errors import UsageError
from wtxtgit.io.files import write_output
from wtxtgit.io.view import write_all

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from wtxtgit.checkpoint.emit import NewGeneration
    from wtxtgit.model.array import Keep


_HASH = re.compile(r"[0-9a-f]{64}")
_output_option = click.option(
    "-o",
    "--output",
    type=FILE,
    help="Write to this file; - is standard output.",
)


@click.command()
@click.argument("files", nargs=-1, required=True, type=PathOrUrl())
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=FilePath(),
    help="Write to this file or URL. With several FILES, or a / at the end, write NAME.wtxt in it.",
)
@click.option("--gen", type=click.IntRange(min=0), help="Generation number.")
@click.option("--ts", help="Time of the generation, such as 2025-10-09T03:12:45Z.")
@click.option("--build", help="Where the weights come from, such as a commit.")
@click.option("--prev", metavar="HASH", help="merkle_this of the previous generation.")
@sign_option
@passphrase_option
@click.option(
    "--hmac-key",
    type=FILE,
    metavar="F",
    help="Add an HMAC to every array, with the key in this file.",
)
@click.option(
    "--detached",
    is_flag=True,
    help="Keep the data of larger arrays in the current repository's store.",
)
@click.option(
    "--pending",
    is_flag=True,
    help="Write the text without its root; wtxtgit finalize OUT writes that to OUT.root.wsum.",
)
@click.option("--rows-per-chunk", type=click.IntRange(min=1), metavar="N", help="Rows per chunk.")
@click.option(
    "--audit", multiple=True, metavar="K=V", help="Add a field to the audit line; repeatable."
)
@scheduler_option
def emit(
    files: tuple[str, ...],
    output: str | None,
    gen: int | None,
    ts: str | None,
    build: str | None,
    prev: str | None,
    sign: Path | None,
    passphrase_fd: int | None,
    hmac_key: Path | None,
    detached: bool,
    pending: bool,
    rows_per_chunk: int | None,
    audit: tuple[str, ...],
    scheduler: str | None,
) -> int:
    """Write the text of each of FILES to standard output or a file.

    Without options, this is what git stores. --gen, --ts, --build and --prev make the
    text a generation of its own, and --sign signs it. A FILE that is already a text is
    written as git would store it. A FILE may be a URL that fsspec reads; with --scheduler
    the workers read the files and write the texts. With --detached the text has hashes
    in place of large arrays, whose data goes into the store of the current repository.

    \b
    wtxtgit emit model.safetensors -o model.safetensors.wtxt
    wtxtgit emit model.fold --gen 7 --ts 2026-01-31T12:00:00Z --sign ~/.ssh/id_ed25519
    wtxtgit emit shards/*.aero -o texts/ --scheduler tcp://10.0.0.5:8786
    """
    from wtxtgit.checkpoint import emit as checkpoint_emit
    from wtxtgit.checkpoint.wsum import write_wsum, wsum_path
    from wtxtgit.remotes.urls import is_url

    generation = checkpoint_emit.NewGeneration(
        gen, ts, build, _hash(prev), sign, hmac_key, pending, rows_per_chunk,
        checkpoint_emit.audit_line(map(_field, audit)),
    )  # fmt: skip
    outs = _outs(files, output)
    if pending and (outs is None or is_url(outs[0])):
        raise UsageError("--pending needs -o PATH: the WSUM is written beside the text")
    if prev is not None and len(files) > 1:
        raise UsageError("--prev takes a single FILE")
    if detached and scheduler is not None:
        raise UsageError("--detached and --scheduler cannot be combined: workers have no store")
    if scheduler is not None:
        _emit_there(scheduler, files, outs, generation)
        return 0
    # Once for all files.
    ask = cache(asker(passphrase_fd))
    for number, file in enumerate(files):
        with progress(_label(file), file_size(Path(file))) as advance:
            with _keeping(detached) as keep:
                emission = checkpoint_emit.emit(
                    file,
                    generation,
                    threads=environment.threads(),
                    progress=advance,
                    ask=ask,
                    keep=keep,
                )
                if detached and emission.writer is not None:
                    # Its payload is kept while it is hashed, before the text leads to it.
                    _ = emission.writer.root
            if emission.warning is not None:
                _warn(file, emission.warning)
            if outs is None:
                write_all(sys.stdout.fileno(), emission.pieces())
                return 0
            checkpoint_emit.write_text(emission, outs[number])
        if pending and emission.writer is not None:
            write_wsum(wsum_path(Path(outs[number])), emission.writer.wsum())
    return 0


def _keeping(detached: bool) -> AbstractContextManager[Keep | None]:
    if not detached:
        return nullcontext()
    from wtxtgit.filter.payload import keeping
    from wtxtgit.git.repository import Repository

    return keeping(Repository.discover())


def _emit_there(
    scheduler: str, files: tuple[str, ...], outs: list[str] | None, generation: NewGeneration
) -> None:
    """Make the texts on a cluster."""
    from wtxtgit.cluster.client import connected
    from wtxtgit.cluster.tasks import emit_files

    if outs is None:
        raise UsageError("--scheduler needs -o: workers write the texts")
    with (
        connected(scheduler) as workers,
        progress("emitting", sum(file_size(Path(file)) for file in files)) as advance,
    ):
        for file, warning in emit_files(workers, files, outs, generation, progress=advance):
            _warn(file, warning)


def _outs(files: tuple[str, ...], output: str | None) -> list[str] | None:
    """Return the path of each text, None for standard output."""
    from wtxtgit.checkpoint.emit import out_in
    from wtxtgit.checkpoint.open import shown_name

    if output is None or output == "-":
        if len(files) > 1:
            raise UsageError("several FILES need -o FOLDER")
        return None
    if len(files) == 1 and not output.endswith("/"):
        return [output]
    outs = [out_in(output, file) for file in files]
    most, count = Counter(outs).most_common(1)[0]
    if count > 1:
        raise UsageError(f"{count} FILES would be written to {shown_name(most)}")
    return outs


def _label(file: str) -> str:
    from wtxtgit.remotes.urls import file_name, is_url

    return file_name(file) if is_url(file) else Path(file).name


def _warn(file: str, warning: str) -> None:
    from wtxtgit.checkpoint.open import shown_name

    boundary.warn(f"{shown_name(file)}: {warning}; written unchanged")


def _hash(value: str | None) -> bytes | None:
    if value is None:
        return None
    if _HASH.fullmatch(value) is None:
        raise UsageError(f'--prev "{value}" is not 64 hex digits in lower case')
    return bytes.fromhex(value)


def _field(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise UsageError(f'--audit "{item}" is not of the form K=V')
    return key, value


@click.command()
@click.argument("text", type=CheckpointTarget())
@_output_option
@click.option(
    "--wsum",
    type=FILE,
    metavar="F",
    help="The WSUM of TEXT, if it is not TEXT.root.wsum.",
)
def restore(text: str, output: Path | None, wsum: Path | None) -> int:
    """Write the file that TEXT stands for, byte for byte.

    TEXT is a file, or a blob as REV:PATH or PATH@gen:N; a blob needs -o.

    The output is named like TEXT without .wtxt; an existing file is replaced only if -o
    names it. Nothing is written unless the whole text verifies. A native snapshot
    becomes a checkpoint in the format that the ending of -o names.

    \b
    wtxtgit restore model.fold.wtxt
    wtxtgit restore step-100.wtxt -o step-100.safetensors
    wtxtgit restore model.fold@gen:12 -o old.fold
    """
    from wtxtgit.checkpoint import restore as checkpoint_restore
    from wtxtgit.checkpoint.open import output_beside

    to_pipe = output is not None and str(output) == "-"
    out = None if to_pipe else output or output_beside(text, checkpoint_restore.TEXT_ENDING)
    with progress(Path(text).name, None) as advance:
        checkpoint_restore.restore(
            text,
            out,
            wsum=wsum,
            threads=environment.threads(),
            progress=advance,
            write=partial(write_all, sys.stdout.fileno()) if to_pipe else None,
        )
    return 0


@click.group()
def delta() -> None:
    """Send the changes to a checkpoint as text, and apply them to the old one.

    \b
    wtxtgit delta make step-1.safetensors step-2.safetensors -o step-2.safetensors.wtxtdelta
    wtxtgit delta apply step-1.safetensors step-2.safetensors.wtxtdelta
    """


@delta.command()
@click.argument("base", type=CheckpointTarget())
@click.argument("target", type=CheckpointTarget())
@click.option("-o", "--output", type=FILE, help="Write to this file.")
@click.option(
    "--plain",
    is_flag=True,
    help="Write only the changed chunks of TARGET: no time, number, signature or hash.",
)
def make(base: str, target: str, output: Path | None, plain: bool) -> int:
    """Make the delta from BASE to TARGET.

    BASE and TARGET are checkpoints or their texts, as files or as REV:PATH. The delta
    holds the chunks that changed, and the hashes that prove the whole. `delta apply` on
    BASE gives TARGET again, byte for byte, and refuses any other file. Without -o the
    delta goes to standard output.

    \b
    wtxtgit delta make HEAD~1:model.fold model.fold -o model.fold.wtxtdelta
    """
    from wtxtgit.checkpoint import delta as checkpoint_delta
    from wtxtgit.checkpoint.open import refuse_loss

    if output is not None:
        refuse_loss(output, base, target)
    total = file_size(Path(base)) + file_size(Path(target))
    with progress("comparing", total) as advance:
        making, pieces = checkpoint_delta.make(
            base, target, plain=plain, threads=environment.threads(), progress=advance
        )
        if making.takes_nothing:
            boundary.note(f"{base} and {target} share nothing: the delta holds all of the target")
        if output is None or str(output) == "-":
            write_all(sys.stdout.fileno(), pieces)
        else:
            write_output(output, lambda descriptor: write_all(descriptor, pieces))
    return 0


@delta.command()
@click.argument("base", type=CheckpointTarget())
@click.argument("delta", type=CheckpointTarget())
@_output_option
@click.option("--ts", help="For a plain delta: time of the new generation.")
@click.option("--build", help="For a plain delta: where the weights come from.")
@click.option(
    "--hmac-key",
    type=FILE,
    metavar="F",
    help="Check every array's HMAC with the key in this file; a plain delta's HMACs are computed.",
)
def apply(
    base: str,
    delta: str,
    output: Path | None,
    ts: str | None,
    build: str | None,
    hmac_key: Path | None,
) -> int:
    """Apply DELTA to BASE, a file or a blob as REV:PATH.

    The result is a checkpoint if BASE is one, and a text if BASE is a text. A blob that
    is the text of a checkpoint counts as the checkpoint. The output is named like DELTA
    without .wtxtdelta; an existing file is replaced only if -o names it. Nothing is
    written unless DELTA was made for BASE and the whole result is proved.

    \b
    wtxtgit delta apply model.fold step-2.fold.wtxtdelta
    wtxtgit delta apply HEAD:model.fold mailed.wtxtdelta -o model.fold
    """
    from wtxtgit.checkpoint import delta as checkpoint_delta
    from wtxtgit.checkpoint.open import output_beside, refuse_loss

    to_pipe = output is not None and str(output) == "-"
    out = None if to_pipe else output or output_beside(delta, checkpoint_delta.ENDING)
    if out is not None:
        # The base may be replaced: that is what the delta is for.
        refuse_loss(out, delta)
    with progress("applying", 2 * file_size(Path(base))) as advance:
        pieces = checkpoint_delta.apply(
            base,
            delta,
            checkpoint_delta.TargetGeneration(ts, build, hmac_key),
            threads=environment.threads(),
            progress=advance,
            note=boundary.note,
        )
        if out is None:
            write_all(sys.stdout.fileno(), pieces)
        else:
            write_output(out, lambda descriptor: write_all(descriptor, pieces))
    return 0
