"""`wtxtgit recover`: what a damaged checkpoint or text still holds."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import note
from wtxtgit.cli.options import FILE, CheckpointTarget, rewriting_options
from wtxtgit.cli.output import are_here, is_printed, print_json, print_line, print_table, progress
from wtxtgit.errors import EnvironmentFailure, UsageError, counted
from wtxtgit.filter.process import restoring_hint
from wtxtgit.io.files import shown
from wtxtgit.io.progress import Progress
from wtxtgit.model.salvage import TensorState
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.figures import extents, size

if TYPE_CHECKING:
    from wtxtgit.checkpoint.recover import TextRecovery
    from wtxtgit.checkpoint.salvage import ContainerRecovery
    from wtxtgit.io.view import ByteView

_MOST = 20
"""How many chunks are printed; --json gives all."""


@click.command()
@click.argument("target", metavar="FILE|REV:PATH", type=CheckpointTarget())
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="Write the result: a text if the name ends in .wtxt, otherwise the file.",
)
@click.option(
    "--from",
    "places",
    multiple=True,
    type=CheckpointTarget(keeps_urls=True),
    metavar="PLACE",
    help="Look for lost bytes here first: a file, a URL of a file or repository, REV, REV:PATH "
    "or a clone's folder; repeatable.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="With -o: write the file even if bytes are lost, with zeros in their place.",
)
@click.option(
    "--as-commit",
    is_flag=True,
    help="Commit the mended text of a tracked FILE, and write the file.",
)
@click.option("--ecc", is_flag=True, help="Mend a FOLD file from its own parity.")
@rewriting_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def recover(
    target: str,
    output: Path | None,
    places: tuple[str, ...],
    partial: bool,
    as_commit: bool,
    ecc: bool,
    hmac_key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    """Recover as much as possible of a damaged text or checkpoint.

    In a text, every line has check characters and every chunk has a SHA-256. That is
    enough to mend wrong characters, lost or swapped lines, and changes made by mail
    from the text alone. Other chunks are looked for in the file's history, in other
    files of the repository, and wherever --from says. Only bytes that the text's hashes
    prove are written, and FILE itself is never changed. The exit code is 1 if something
    is lost.

    For a damaged or truncated checkpoint, the tensors that are whole are listed; -o
    writes them in the format its ending names. A tensor is proved if a hash in the file
    confirms it. It is unproved if all of its bytes are there but the file has no hash
    for it.

    With --ecc, a FOLD file is mended from its own Reed-Solomon parity. Without -o this
    replaces FILE.

    \b
    wtxtgit recover model.safetensors.wtxt
    wtxtgit recover HEAD:model.fold -o model.fold --from backup/model.fold
    wtxtgit recover model.fold --as-commit
    wtxtgit recover half.safetensors -o whole.safetensors
    wtxtgit recover --ecc model.fold -o mended.fold
    """
    if ecc:
        if places or partial or as_commit:
            raise UsageError("--ecc can only be combined with -o")
        return _mend_from_parity(target, output, hmac_key, max_chunk, as_json)
    if partial and output is None:
        raise UsageError("--partial needs -o PATH")

    from wtxtgit.checkpoint import open as opener
    from wtxtgit.checkpoint import recover as recovering
    from wtxtgit.checkpoint import salvage as salvaging

    threads = environment.threads()
    if as_commit and output is not None:
        raise UsageError("--as-commit writes the tracked file, so it cannot be combined with -o")
    if output is not None:
        opener.refuse_itself(output, target)
    if as_commit:
        from wtxtgit.checkpoint.recover_tracked import commit

        with _progress(target, *places) as advance:
            done = commit(target, places, threads=threads, progress=advance)
    else:
        data = opener.read(target, threads=threads)
        if salvaging.is_container(data):
            if places or partial:
                raise UsageError("--from and --partial are for texts, not for checkpoints")
            return _salvage(target, data, output, hmac_key, max_chunk, as_json)
        with _progress(target, *places) as advance:
            done = recovering.recover_text(target, data, places, threads=threads, progress=advance)
    report = done.report
    if not as_commit and report.state != "intact":
        from wtxtgit.checkpoint.other_copies import versions

        report = replace(report, versions=versions(target, data))
    with progress("writing", None) as advance:
        if output is not None and done.text is not None:
            recovering.write_whole(done, output, target, advance)
            report = replace(report, output=str(output))
        elif output is not None and partial:
            from wtxtgit.checkpoint.partial_file import write_partial

            report = write_partial(done, output, target, environment.decoding(), advance)
            report = replace(report, output=str(output))
    code = 0 if done.text is not None else 1
    if not is_printed(report, as_json):
        _print(report)
        for one in report.versions:
            note(
                f"git has another text with {one.same} of its {one.hashes} hashes in common",
                restoring_hint(one.blob),
            )
        if report.state == "whole" and as_commit:
            print_line(f"{report.path}: committed, and the file is written")
        elif report.state == "whole" and output is None:
            note("nothing was written", _writing_hint(target))
        # A text with lost parts would prove nothing: only a file is written in part.
        if output is not None and output.suffix != ".wtxt" and code and not partial:
            note(f"{shown(output)} is not written", recovering.PARTIAL)
    return code


def _progress(*names: str) -> AbstractContextManager[Progress | None]:
    return progress("recovering", None, waits=are_here(*names))


def _writing_hint(target: str) -> str:
    from wtxtgit.checkpoint.recover_tracked import is_committable

    name = shlex.quote(target)
    if is_committable(target):
        return (
            f"wtxtgit recover --as-commit -- {name} commits it and writes the file; "
            "-o OUT writes another"
        )
    return f"wtxtgit recover -o OUT -- {name} writes it"


def _print(report: TextRecovery) -> None:
    for change in report.undone:
        print_line(f"undone: {change}")
    for line in report.notes:
        print_line(f"note: {line}")
    count = sum(len(array.chunks) for array in report.arrays)
    chunks = ((array.name, chunk) for array in report.arrays for chunk in array.chunks)
    if count:
        rows = [
            [
                name,
                str(chunk.ix),
                f"{chunk.start}-{chunk.end}",
                "-".join(map(str, chunk.rows)),
                str(chunk.state),
                chunk.source or "",
            ]
            for name, chunk in islice(chunks, _MOST)
        ]
        print_table(("array", "chunk", "bytes", "rows", "state", "from"), rows)
    for name in report.missing[:_MOST]:
        print_line(f'lost: array "{name}", all lines')
    if count > _MOST:
        print_line(f"and {counted(count - _MOST, 'more chunk')}; --json lists them")
    sizes = [f"{counted(n, 'chunk')} {state}" for state, n in _counts(report) if n]
    print_line(f"{report.path}: {_STATES[report.state]}{': ' if sizes else ''}{', '.join(sizes)}")
    if report.lost:
        lost = sum(end - start for start, end in report.lost)
        print_line(f"{report.output}: written with {size(lost)} of zeros in place of lost bytes")
    elif report.output is not None:
        print_line(f"{report.output}: written")


_STATES = {
    "intact": "nothing is damaged",
    "whole": "all of it was recovered",
    "partial": "not all of it could be recovered",
    "lost": "nothing could be recovered",
    "unread": "not read: over a limit",
}


def _counts(report: TextRecovery) -> list[tuple[str, int]]:
    return [
        (state, sum(getattr(array, state) for array in report.arrays))
        for state in ("mended", "healed", "lost")
    ]


def _salvage(
    target: str,
    data: ByteView,
    output: Path | None,
    hmac_key: Path | None,
    max_chunk: int,
    as_json: bool,
) -> int:
    from wtxtgit.checkpoint import salvage as salvaging
    from wtxtgit.checkpoint.key_file import key_bytes

    decoding = environment.decoding()
    options = ReadOptions(max_chunk, integrity_key=key_bytes(hmac_key), decoding=decoding)
    with _progress(target) as advance:
        done = salvaging.salvage(target, data, options, advance)
        report = done.report
        if output is not None:
            report = salvaging.write(done, output, options, advance)
    if not is_printed(report, as_json):
        _print_salvage(report)
    if report.state == "unread":
        return EnvironmentFailure.exit_code
    return 0 if report.state in ("intact", "whole") else 1


def _print_salvage(report: ContainerRecovery) -> None:
    lost = [tensor for tensor in report.tensors if tensor.state is TensorState.LOST]
    if lost:
        rows = [
            [
                tensor.name,
                tensor.dtype,
                # Without a dtype nothing is known of the shape either.
                extents(tensor.shape) if tensor.dtype else "",
                ", ".join(f"{start}-{end}" for start, end in tensor.lost),
                tensor.why or "",
            ]
            for tensor in lost[:_MOST]
        ]
        print_table(("lost", "dtype", "shape", "bytes", "why"), rows)
    if len(lost) > _MOST:
        print_line(f"and {counted(len(lost) - _MOST, 'more tensor')}; --json lists them")
    for what in report.missing[:_MOST]:
        print_line(f"lost: {what}")
    if len(report.missing) > _MOST:
        print_line(f"and {len(report.missing) - _MOST} more; --json lists them")
    others = Counter((t.state, t.why) for t in report.tensors if t.state is not TensorState.LOST)
    for (state, why), n in others.items():
        if why is not None:
            print_line(f"note: {counted(n, 'tensor')} {state}: {why}")
    for line in report.notes:
        print_line(f"note: {line}")
    counts = {state: report.count(state) for state in TensorState}
    sizes = [f"{counted(n, 'tensor')} {state}" for state, n in counts.items() if n]
    is_lost = len(lost) == len(report.tensors) > 0
    result = _STATES["lost" if is_lost else report.state]
    print_line(f"{report.path}: {result}{': ' if sizes else ''}{', '.join(sizes)}")
    for what in report.dropped:
        print_line(f"dropped: {what}")
    if report.output is not None:
        print_line(f"{report.output}: written")


def _mend_from_parity(
    target: str, output: Path | None, hmac_key: Path | None, max_chunk: int, as_json: bool
) -> int:
    from wtxtgit.checkpoint.key_file import key_bytes
    from wtxtgit.checkpoint.repack import recover as recover_checkpoint

    hashed, limit = key_bytes(hmac_key), environment.decoding()
    options = ReadOptions(max_chunk, integrity_key=hashed, decoding=limit)
    file = Path(target)
    with _progress(target) as advance:
        done = recover_checkpoint(file, output or file, options, progress=advance)
    if as_json:
        print_json(done)
    elif done.mended:
        names = ", ".join(done.mended)
        print_line(f"{done.path}: {counted(len(done.mended), 'chunk')} mended: {names}")
    else:
        print_line(f"{done.path}: nothing is damaged")
    return 0
