"""`wtxtgit inspect`, `verify` and `diff`: what checkpoints hold."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.diff_table import print_changes
from wtxtgit.cli.options import (
    FILE,
    CheckpointTarget,
    PathOrUrl,
    cluster,
    cluster_options,
    completed,
    discover,
    html_option,
    identity_option,
    no_cache_option,
    opening_keys,
    passphrase_option,
    read_options,
    reading_options,
    write_page,
)
from wtxtgit.cli.output import (
    are_here,
    is_printed,
    print_json,
    print_line,
    print_table,
    progress,
)
from wtxtgit.errors import EnvironmentFailure, UsageError, counted
from wtxtgit.model.findings import Problem, total
from wtxtgit.report.figures import HASH_SHOWN, count, digits, extents, in_natural_order, size
from wtxtgit.report.verdict import FileVerdict, Verdict

if TYPE_CHECKING:
    from wtxtgit.report.inspect import FilePart, Inspection, Statistics, TensorFacts


_MOST_CHILDREN = 8
"""The most tensors of a chunk that the tree names; the table has them all."""
_LISTED = ("tensor", "dtype", "shape", "size", "sha256")
_VALUES = ("min", "max", "mean", "std", "zeros", "NaN/Inf")
_LEAST_SHARE = 0.0005
_RANGE = ".."
_MOST = 20
"""The most problems of a file that are printed; --json has all."""


@click.command()
@click.argument("target", metavar="FILE|REV:PATH", type=CheckpointTarget())
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=completed("tensors"))
@click.option(
    "--parts", is_flag=True, help="Also list all pieces of the file, in file order, with offsets."
)
@reading_options
@html_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(
    target: str,
    names: tuple[str, ...],
    parts: bool,
    key: Path | None,
    max_chunk: int,
    html: Path | None,
    as_json: bool,
) -> int:
    """Show the tensors and values of a checkpoint, a set, or a text, and its other parts.

    REV:PATH is the file as it was in a commit; a folder stands for the sharded
    checkpoint in it. With NAMEs, only those tensors are read, and fetched if the text
    is detached.

    \b
    wtxtgit inspect model.safetensors
    wtxtgit inspect runs/step-100
    wtxtgit inspect HEAD~3:model.fold --json
    wtxtgit inspect model.safetensors --parts
    wtxtgit inspect HEAD:model.safetensors layers.0.q
    wtxtgit inspect model.safetensors --html model.html
    """
    from wtxtgit.checkpoint.inspect import inspect as inspect_checkpoint
    from wtxtgit.checkpoint.inspect_tensors import inspect_tensors
    from wtxtgit.report.html.bounds import PICTURED_OF_PAGE

    if names and parts:
        raise UsageError("--parts lists the whole file, and cannot be combined with names")
    with progress("inspecting", None, waits=are_here(target)) as advance:
        options, threads = read_options(key, max_chunk), environment.threads()
        pictured = 0 if html is None else PICTURED_OF_PAGE
        if names:
            inspection = inspect_tensors(
                target, options, names, threads=threads, progress=advance, pictured=pictured
            )
        else:
            inspection = inspect_checkpoint(
                target, options, threads=threads, progress=advance, pictured=pictured
            )
    if html is not None:
        from wtxtgit.report.html.inspect import page

        write_page(html, page(inspection))
        return inspection.exit_code
    if is_printed(inspection, as_json):
        return inspection.exit_code
    print_line(f"{inspection.path}: {inspection.format}, {size(inspection.size)}")
    if inspection.reason is not None:
        whole = inspection.stored_as == "opaque" and "stored whole" not in inspection.reason
        print_line(f"stored whole: {inspection.reason}" if whole else f"note: {inspection.reason}")
    for note in inspection.notes:
        print_line(f"note: {note}")
    _print_tensors(inspection.tensors)
    if parts:
        _print_parts(inspection)
    else:
        _print_other_parts(inspection)
    return inspection.exit_code


def _print_other_parts(inspection: Inspection) -> None:
    """Return the parts of the file that are not tensors, which have a table of their own."""
    rows = [
        (part.array or part.kind, _about(part), size(part.size))
        for part in inspection.parts
        if not part.is_gap and part.kind != "tensor"
    ]
    if rows:
        print_line()
        print_table(("part", "what", "size"), rows, right=("size",))


def _print_parts(inspection: Inspection) -> None:
    """Return all parts of the file, in its order."""
    if not inspection.parts:
        return
    print_line()
    rows = []
    gaps = [part for part in inspection.parts if part.is_gap]
    for part in inspection.parts:
        if part.is_gap:
            continue
        rows.append((part.array or part.kind, _about(part), size(part.size), str(part.offset)))
        shown = sorted(part.children, key=in_natural_order)[:_MOST_CHILDREN]
        rows += [(f"  {child}", "", "", "") for child in shown]
        if len(part.children) > len(shown):
            rows.append((f"  and {len(part.children) - len(shown)} more", "", "", ""))
    print_table(("part", "what", "size", "offset"), rows, right=("size", "offset"))
    if gaps:
        total = size(sum(part.size for part in gaps))
        print_line(f"and {total} of headers, padding and gaps in {counted(len(gaps), 'place')}")


def _about(part: FilePart) -> str:
    if part.kind == "tensor":
        return "tensor"
    return part.detail or (part.name if part.name not in (None, part.array) else "") or ""


def _print_tensors(tensors: tuple[TensorFacts, ...]) -> None:
    if not tensors:
        return
    print_line()
    rows = [
        (
            t.name,
            t.dtype,
            extents(t.shape),
            "absent" if t.absent else size(t.size),
            t.sha256[:HASH_SHOWN] if t.size and t.sha256 else "",
            *_values(t.statistics),
        )
        for t in sorted(tensors, key=lambda tensor: in_natural_order(tensor.name))
    ]
    items = sum(prod(t.shape) for t in tensors)
    total = size(sum(t.size for t in tensors if not t.absent))
    print_line(f"{counted(len(tensors), 'tensor')}, {count(items)} parameters, {total}")
    print_line()
    if any(t.statistics for t in tensors):
        print_table((*_LISTED, *_VALUES), rows, right=("size", *_VALUES), split=len(_LISTED))
    else:
        print_table(_LISTED, [row[: len(_LISTED)] for row in rows], right=("size",))
    for reason in sorted({t.absent for t in tensors if t.absent}):
        absent = sum(t.absent == reason for t in tensors)
        print_line(f"absent: {counted(absent, 'tensor')}: {reason}")


def _values(statistics: Statistics | None) -> tuple[str, ...]:
    if statistics is None:
        return ("",) * len(_VALUES)
    return (
        *(
            digits(value)
            for value in (statistics.min, statistics.max, statistics.mean, statistics.std)
        ),
        _share(statistics),
        f"{statistics.nan}/{statistics.inf}" if statistics.nan or statistics.inf else "0",
    )


def _share(statistics: Statistics) -> str:
    if not statistics.zeros:
        return "0"
    return "<0.1%" if statistics.zeros_share < _LEAST_SHARE else f"{statistics.zeros_share:.1%}"


@click.command()
@click.argument("files", nargs=-1, required=True, type=PathOrUrl())
@click.option(
    "--wsum",
    type=FILE,
    metavar="F",
    help="The WSUM of FILE, if it is not FILE.root.wsum.",
)
@click.option(
    "--hmac-key",
    type=FILE,
    metavar="F",
    help="Check the HMACs of arrays and of FOLD with the key in this file.",
)
@click.option(
    "--allow-unauthenticated",
    is_flag=True,
    help="With --hmac-key: also accept arrays without an HMAC.",
)
@click.option(
    "--signers",
    type=FILE,
    metavar="F",
    help="Known signers: allowed_signers lines, or a .pub file.",
)
@click.option(
    "--require-signed",
    is_flag=True,
    help="Require a signature by a known signer; in a ledger, on each record.",
)
@click.option("--strict", is_flag=True, help="Treat notes about checkpoint files as errors.")
@click.option(
    "--require-payload", is_flag=True, help="Require the whole payload of a detached text."
)
@click.option(
    "--public-key",
    type=FILE,
    metavar="F",
    help="The signer's key for a release bundle or FOLD file: PEM, or a .pub file.",
)
@click.option(
    "--against",
    metavar="FOLDER|REV",
    help="Where the files of a release bundle are. Default: the work tree, or the current folder.",
)
@reading_options
@identity_option
@passphrase_option
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(
    files: tuple[str, ...],
    wsum: Path | None,
    hmac_key: Path | None,
    allow_unauthenticated: bool,
    signers: Path | None,
    require_signed: bool,
    strict: bool,
    require_payload: bool,
    public_key: Path | None,
    against: str | None,
    key: Path | None,
    max_chunk: int,
    identities: tuple[Path, ...],
    passphrase_fd: int | None,
    scheduler: str | None,
    worker_clone: Path | None,
    as_json: bool,
) -> int:
    """Check every hash of FILES, or of blobs given as REV:PATH.

    FILES are texts, ledgers, checkpoints, folders with the index of a set, or URLs that
    fsspec reads (with --scheduler, the workers read them). A bundle from `wtxtgit
    release` is checked with all files that it names. Some files need more for a full
    check: a delta needs its base, an encrypted text a key (-i), a detached text its
    payload (--require-payload demands it). Without that they are checked as far as
    possible.

    Damage is reported by line, array and chunk, or by byte offset. The exit code is 0
    only if everything holds, 1 for damage, 3 if a file is of no kind that can be checked,
    4 if only signatures fail, and 5 if a file is over a limit of wtxtgit and not checked.

    \b
    wtxtgit verify model.fold.wtxt
    wtxtgit verify step-100.wtxt --signers .wtxt/signers --require-signed
    wtxtgit verify model.fold.wsum --signers .wtxt/signers --require-signed
    wtxtgit verify model.sig --public-key release.pub --against v1.0
    """
    from wtxtgit.checkpoint.verify import demands, verify_files

    reading = read_options(key, max_chunk)
    checks = demands(
        wsum=wsum,
        hmac_key=hmac_key,
        signers=signers,
        require_signed=require_signed,
        allow_unauthenticated=allow_unauthenticated,
        strict=strict,
        reading=reading,
        identities=opening_keys(identities, passphrase_fd),
        require_payload=require_payload,
        release_key=public_key,
        against=against,
    )
    with (
        cluster(scheduler, worker_clone) as workers,
        progress("verifying", None, waits=are_here(*files)) as advance,
    ):
        if workers is None:
            threads = environment.threads()
            verdict = verify_files(files, checks, threads=threads, progress=advance)
        else:
            from wtxtgit.cluster.tasks import verify_files as verify_there

            verdict = verify_there(workers, files, checks, worker_clone, progress=advance)
    if as_json:
        print_json(verdict)
    elif len(verdict.files) == 1 and verdict.files[0].failure is not None:
        raise verdict.files[0].failure
    else:
        print_verdict(verdict)
    return verdict.exit_code


def print_verdict(verdict: Verdict) -> None:
    """Print the verdicts on files, for people."""
    for file in verdict.files:
        word = "ok" if file.ok else "FAILED" if file.known else "unknown"
        if file.known and file.is_unread:
            word = "not checked"
        print_line(f"{word:7} {file.path}  ({_about_file(file)})")
        for problem in file.errors[:_MOST]:
            print_line(f"        {problem.kind}: {problem}")
        if (more := total(file.errors[_MOST:])) > 0:
            print_line(f"        and {more:,} more; --json lists {_listed(file.errors)}")
        for problem in file.warnings[:_MOST]:
            print_line(f"        note: {problem}")
        if (more := total(file.warnings[_MOST:])) > 0:
            print_line(f"        and {more:,} more notes; --json lists {_listed(file.warnings)}")


def _listed(problems: Sequence[Problem]) -> str:
    return "some of them" if any(problem.more for problem in problems) else "them"


def _about_file(file: FileVerdict) -> str:
    parts = [file.format]
    if file.arrays is not None:
        parts.append(counted(len(file.arrays), "array"))
    if file.records is not None:
        parts.append(counted(len(file.records), "record"))
    if file.delta is not None:
        parts += [file.delta.form, counted(file.delta.chunks, "chunk")]
    if file.signature is not None:
        parts.append(f"signature {file.signature}" + (f" {file.keyid}" if file.keyid else ""))
    if file.authenticated:
        parts.append("authenticated")
    if file.payload is not None:
        parts.append(f"detached, payload {file.payload}")
    if file.release is not None:
        parts.append(f"{file.release.tag}, {counted(len(file.release.files), 'file')}")
    return ", ".join(parts)


@click.command()
@click.argument("a", metavar="A", type=CheckpointTarget())
@click.argument("b", metavar="[B]", required=False, type=CheckpointTarget())
@reading_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Output format: text (the default) or json.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@html_option
@no_cache_option
def diff(
    a: str,
    b: str | None,
    key: Path | None,
    max_chunk: int,
    form: str,
    as_json: bool,
    html: Path | None,
    no_cache: bool,
) -> int:
    """Show what changed in the weights from checkpoint A to checkpoint B.

    A and B are files of any format, or REV:PATH for a file as it was in a commit. A
    alone is compared with the same file in HEAD. A delta stands for the file that it
    makes; alone, it is compared with its base, if the repository has that. Tensors are
    matched by name. The exit code is 0 whether they differ or not, unless something
    could not be read.

    \b
    wtxtgit diff model.safetensors
    wtxtgit diff old.safetensors new.safetensors
    wtxtgit diff HEAD~1:model.fold model.fold --json
    wtxtgit diff old.safetensors new.safetensors --html diff.html
    """
    from wtxtgit.comparison.diff import pictured

    _refuse_revisions(a, b)
    if b is None:
        a, b = _before(a), a
    with progress("comparing", None, waits=are_here(a, b)) as advance:
        report, counted = pictured(
            a,
            b,
            read_options(key, max_chunk),
            key_file=environment.facts_key(no_cache),
            threads=environment.threads(),
            progress=advance,
            with_distributions=html is not None,
        )
    if html is not None:
        from wtxtgit.report.html.diff import page
        from wtxtgit.review.flags import flags_of, groups, part_flags

        layers = groups(report)
        flags = [*flags_of(report, layers), *part_flags(report)]
        write_page(html, page(report, flags, layers, counted))
    elif as_json or form == "json":
        print_json(report)
    else:
        print_line(f"{report.a} -> {report.b}")
        print_changes(report)
    return report.exit_code


def _refuse_revisions(a: str, b: str | None) -> None:
    """Raise UsageError for revisions without a path, as git would take them.

    The hint says what shows the same.
    """
    sides = (a,) if b is None else (a, b)
    revisions = [side for side in sides if _is_revision(side)]
    if not revisions:
        return
    message = f"{revisions[0]}: a revision, not a file of it"
    range_ = next((revision for revision in revisions if _RANGE in revision), None)
    files = [side for side in sides if side not in revisions and Path(side).exists()]
    if range_ is None and files:
        path = os.fsdecode(discover().path_from_top(files[0]))
        named = [f"{side}:{path}" if side in revisions else side for side in sides]
        raise UsageError(message, hint=f"wtxtgit diff {shlex.join(named)} shows what changed in it")
    range_ = shlex.quote(range_ or f"{revisions[0]}{_RANGE}{revisions[-1] if b else 'HEAD'}")
    raise UsageError(
        message,
        hint=f"wtxtgit review {range_} shows all checkpoints, wtxtgit diff REV:PATH REV:PATH one",
    )


def _is_revision(side: str) -> bool:
    if ":" in side or Path(side).exists():
        return False
    from wtxtgit.git.history import resolve_commit
    from wtxtgit.git.repository import Repository

    repo = Repository.find()
    if repo is None:
        return False
    try:
        for revision in side.replace("...", _RANGE).split(_RANGE, 1):
            resolve_commit(repo, revision or "HEAD")
    except EnvironmentFailure:
        return False
    return True


def _before(file: str) -> str:
    """Return what a single file is compared with: a delta with its base, others with HEAD's."""
    from wtxtgit.model.ledger import DELTA_SUFFIX

    if file.endswith(os.fsdecode(DELTA_SUFFIX)):
        from wtxtgit.comparison.deltas import base_named

        base = base_named(file, threads=environment.threads())
        if base is not None:
            return base
    return _in_head(file)


def _in_head(file: str) -> str:
    """Return the file of REV:PATH in HEAD, as HEAD:PATH."""
    if not Path(file).exists():
        from wtxtgit.checkpoint.open import is_blob, shown_name

        if is_blob(file):
            path = file.partition(":")[2]
            if not path.startswith(("./", "../")):
                path = discover().path_from_here(os.fsencode(path))
            raise UsageError(
                f"{shown_name(file)}: a file of a commit, and none to compare it with",
                hint=f"wtxtgit diff {shlex.join((file, path))} compares it with the work tree's",
            )
        raise UsageError(
            f"{shown_name(file)}: no such file to compare with HEAD",
            hint="wtxtgit diff A B compares any two files or REV:PATHs",
        )
    return f"HEAD:{os.fsdecode(discover().path_from_top(file))}"
