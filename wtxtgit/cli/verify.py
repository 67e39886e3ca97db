"""`wtxtgit verify`."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.cluster import cluster, cluster_options
from wtxtgit.cli.output import print_json, print_line
from wtxtgit.cli.progress import progress, raw_size
from wtxtgit.cli.reading import Target, read_options, reading_options
from wtxtgit.errors import counted
from wtxtgit.report.verdict import FileVerdict, Verdict

_MOST = 20
"""How many problems of a file are printed; --json gives all."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=Target())
@click.option(
    "--wsum",
    type=click.Path(path_type=Path, readable=False),
    metavar="F",
    help="The WSUM that goes with FILE.",
)
@click.option(
    "--hmac-key",
    type=click.Path(path_type=Path, readable=False),
    metavar="F",
    help="Check every array's HMAC, and FOLD's, with the bytes of this file.",
)
@click.option(
    "--allow-unauthenticated", is_flag=True, help="With --hmac-key: accept arrays without an HMAC."
)
@click.option(
    "--signers",
    type=click.Path(path_type=Path, readable=False),
    metavar="F",
    help="Known signers: allowed_signers lines, or a .pub file.",
)
@click.option(
    "--require-signed",
    is_flag=True,
    help="Demand a signature by a known signer, in a ledger for each record.",
)
@reading_options
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(
    files: tuple[str, ...],
    wsum: Path | None,
    hmac_key: Path | None,
    allow_unauthenticated: bool,
    signers: Path | None,
    require_signed: bool,
    key: Path | None,
    max_chunk: int,
    scheduler: str | None,
    worker_clone: Path | None,
    as_json: bool,
) -> int:
    """Check FILES, or blobs as REV:PATH: texts, ledgers, containers to the last hash.

    A delta is checked as far as that goes without its base. A FILE may be a
    URL that fsspec reads; with --scheduler the workers read all of them.

    Damage is told with line, array and chunk, or with the byte in the file.
    Exit code 0 only if everything holds; 1 damage, 3 nothing that can be
    checked, 4 only signatures.

    \b
    wtxtgit verify model.fold.wtxt
    wtxtgit verify step-100.wtxt --signers .wtxt/signers --require-signed
    wtxtgit verify model.fold.wsum --signers .wtxt/signers --require-signed
    """
    from wtxtgit.checkpoint.verify import Keys, verify_files

    reading = read_options(key, max_chunk)
    keys = Keys(wsum, hmac_key, signers, require_signed, allow_unauthenticated, reading)
    with cluster(scheduler, worker_clone) as workers:
        # Of a set, whose size nobody knows before, every file is a cluster's work.
        total = sum(map(raw_size, map(Path, files))) if workers is None else None
        with progress("verifying", total) as advance:
            if workers is None:
                threads = environment.threads()
                verdict = verify_files(files, keys, threads=threads, progress=advance)
            else:
                from wtxtgit.cluster.verify import verify_files as verify_there

                verdict = verify_there(workers, files, keys, worker_clone, progress=advance)
    if as_json:
        print_json(verdict.as_dict())
    elif len(verdict.files) == 1 and verdict.files[0].failure is not None:
        raise verdict.files[0].failure
    else:
        print_verdict(verdict)
    return verdict.exit_code


def print_verdict(verdict: Verdict) -> None:
    """Print what became of files, for people."""
    for file in verdict.files:
        word = "ok" if file.ok else "FAILED" if file.known else "unknown"
        print_line(f"{word:7} {file.path}  ({_about(file)})")
        for problem in file.errors[:_MOST]:
            print_line(f"        {problem.kind}: {problem}")
        if len(file.errors) > _MOST:
            print_line(f"        and {len(file.errors) - _MOST} more, --json lists them")
        for problem in file.warnings[:_MOST]:
            print_line(f"        note: {problem}")
        if len(file.warnings) > _MOST:
            print_line(f"        and {len(file.warnings) - _MOST} more notes, --json lists them")


def _about(file: FileVerdict) -> str:
    parts = [file.format]
    if file.arrays is not None:
        parts.append(f"{len(file.arrays)} arrays")
    if file.records is not None:
        parts.append(counted(len(file.records), "record"))
    if file.delta is not None:
        parts += [file.delta.form, counted(file.delta.chunks, "chunk")]
    if file.signature is not None:
        parts.append(f"signature {file.signature}" + (f" {file.keyid}" if file.keyid else ""))
    if file.authenticated:
        parts.append("authenticated")
    return ", ".join(parts)
