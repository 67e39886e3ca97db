"""Rewriting a container: with another compression, or mended by its parity.

Compressed payloads make poor deltas: a small change of the weights changes all of them. Without
compression git stores only what changed.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.checkpoint.convert import quoted, refuse_errors
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import CheckError, InputError, UsageError
from wtxtgit.io.files import named, replace_file, shown, view_file, write_output
from wtxtgit.io.progress import Portion, Progress, expect
from wtxtgit.io.view import ByteView, counted, view_of, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.tensors.tensor_bytes import Content, contents_of
from wtxtgit.text.grammar import is_text


@dataclass(frozen=True, slots=True)
class Repacking(JsonObject):
    """What happened to a file; `broken` names fields of it that are no longer valid."""

    KEYS = "path format size_before=before size_after=after tensors broken"

    path: str
    format: str
    before: int
    after: int
    tensors: int
    broken: tuple[str, ...] = ()


def repack(
    path: Path,
    out: Path,
    compression: str,
    options: ReadOptions,
    *,
    progress: Progress | None = None,
) -> Repacking:
    """Write the container at `path` to `out` (which may be `path`) with another compression.

    The file must be valid, and the written file is checked and its tensors are compared before it
    gets its name. Raises InputError for formats without compression, CheckError for an invalid
    file.
    """
    data = view_file(path)
    refuse_pointer(shown(path), data)
    known = registry.detected(data)
    if known is None or known.repack is None:
        kind = f"{known.name} files have" if known is not None else "files of unknown format have"
        kind = "texts have" if is_text(data) else kind
        raise InputError(f"{shown(path)}: {kind} no compression to change")
    repacker = known.repack()
    # Before the whole file is read.
    if compression not in repacker.COMPRESSIONS:
        raise UsageError(
            f"{known.name} files can't use {compression}, only {', '.join(repacker.COMPRESSIONS)}"
        )
    for problem in any_format.check(data, options).errors:
        raise CheckError(
            f"{shown(path)}: {problem}",
            hint=f"wtxtgit verify -- {shlex.quote(shown(path))} lists all problems",
        )
    # The tensors' hashes are taken from the source now, and compared with the written file.
    container = any_format.read(data)
    before = _contents(data, options, progress, times=2)
    sizes = []

    def write(descriptor: int) -> None:
        with named(path):
            write_all(descriptor, repacker.repack(container, compression, options))
        written = view_of(descriptor)
        refuse_errors(shown(out), written, options)
        if _contents(written, options, progress) != before:
            raise CheckError(f"{shown(out)}: the tensors would change")
        sizes.append(len(written))

    (replace_file if out == path else write_output)(out, write)
    broken = known.signed().broken_by_repack(container) if known.signed is not None else ()
    return Repacking(str(out), known.name, len(data), sizes[0], before.total(), broken)


def _contents(
    data: ByteView, options: ReadOptions, progress: Progress | None, *, times: int = 0
) -> Counter[Content]:
    """Return the contents of all tensors; they will be read so many `times` in all."""
    tensors = list(any_format.tensors(any_format.describe(data, options), options))
    expect(progress, times * sum(tensor.nbytes for tensor in tensors))
    return contents_of(tensors, progress)


@dataclass(frozen=True, slots=True)
class Recovery(JsonObject):
    """What happened to a file: the chunks that were mended."""

    path: str
    mended: tuple[str, ...]


def recover(
    path: Path, out: Path, options: ReadOptions, *, progress: Progress | None = None
) -> Recovery:
    """Mend the FOLD file at `path` by its parity and index, into `out` (which may be `path`).

    `progress` gets counts of the file's bytes: as it is mended, written and checked. Raises
    InputError for other files, CheckError if a chunk can't be mended or anything else is invalid;
    then nothing is written.
    """
    data = view_file(path)
    known = registry.detected(data)
    if known is None or known.parity is None:
        names = " or ".join(f.name.upper() for f in registry.FORMATS if f.parity is not None)
        raise InputError(f"{shown(path)}: not a {names} file, and no other format has parity")
    read, written, checked = (Portion(progress, data.nbytes) for _ in range(3))
    with named(path):
        pieces, mended, lost = known.parity().repair(data, replace(options, progress=read))
    read.finish()
    checking = replace(options, progress=checked)
    # All or nothing: a partly mended file would look like a whole one.
    for name in lost:
        raise CheckError(f"{shown(path)}: chunk {quoted(name)} can't be mended from its parity")
    if not mended:
        for problem in any_format.check(data, checking).errors:
            raise CheckError(
                f"{shown(path)}: no chunk needs mending, but the file is not valid: {problem}",
                hint=f"wtxtgit verify -- {shlex.quote(shown(path))} lists all problems",
            )

    def write(descriptor: int) -> None:
        write_all(descriptor, counted(pieces, written))
        refuse_errors(shown(out), view_of(descriptor), checking)

    # With nothing to mend and no other output the file is left alone, with its times.
    if mended or out != path:
        (replace_file if out == path else write_output)(out, write)
    written.finish()
    checked.finish()
    return Recovery(str(out), tuple(mended))
