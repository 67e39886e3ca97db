"""`wtxtgit emit`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.key_options import asker, passphrase_option
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.errors import UsageError
from wtxtgit.ops.files import write_all

_HASH = re.compile(r"[0-9a-f]{64}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, readable=False), help="Write to this file."
)
@click.option("--gen", type=click.IntRange(min=0), help="Generation number.")
@click.option("--ts", help="Time of the generation, as 2025-10-09T03:12:45Z.")
@click.option("--build", help="What made the weights, such as a commit.")
@click.option("--prev", metavar="HASH", help="merkle_this of the generation before.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path, readable=False),
    metavar="KEY",
    help="Sign with the ed25519 key in this file.",
)
@passphrase_option
@click.option(
    "--hmac-key",
    type=click.Path(path_type=Path, readable=False),
    metavar="F",
    help="Authenticate every array with the bytes of this file.",
)
@click.option("--pending", is_flag=True, help="Leave the root to a WSUM file, OUTPUT.wsum.")
@click.option("--rows-per-chunk", type=click.IntRange(min=1), metavar="N", help="Rows of a chunk.")
@click.option(
    "--audit", multiple=True, metavar="K=V", help="A field of the audit line; repeatable."
)
def emit(
    file: Path,
    output: Path | None,
    gen: int | None,
    ts: str | None,
    build: str | None,
    prev: str | None,
    sign: Path | None,
    passphrase_fd: int | None,
    hmac_key: Path | None,
    pending: bool,
    rows_per_chunk: int | None,
    audit: tuple[str, ...],
) -> int:
    """Make the text of FILE, on standard output or in a file.

    Without options these are the bytes that git stores. With --gen, --ts,
    --build and --prev the text is a generation of its own; --sign signs it. A
    FILE that is such a text itself comes out as git would store it.

    \b
    wtxtgit emit model.safetensors -o model.safetensors.wtxt
    wtxtgit emit model.fold --gen 7 --ts 2026-01-31T12:00:00Z --sign ~/.ssh/id_ed25519
    """
    from wtxtgit.ops import emit as op

    generation = op.Generation(
        gen, ts, build, _hash(prev), sign, hmac_key, pending, rows_per_chunk,
        op.audit_line(map(_field, audit)),
    )  # fmt: skip
    if pending and (output is None or str(output) == "-"):
        raise UsageError("--pending needs -o: its WSUM is written beside the text")
    with progress(file.name, file_size(file)) as advance:
        emission = op.emit(
            file,
            generation,
            threads=environment.threads(),
            progress=advance,
            ask=asker(passphrase_fd),
        )
        if emission.warning is not None:
            boundary.warn(f"{file}: {emission.warning}, given as it is")
        if output is None or str(output) == "-":
            write_all(sys.stdout.fileno(), emission.pieces())
            return 0
        emission.write_to(output)
    if pending and emission.text is not None:
        op.write_wsum(emission.text, op.wsum_path(output))
    return 0


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
