"""Recover: a damaged file mended from the parity that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wtxtgit.checkpoint.convert import quoted, refuse_errors
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import CheckError, InputError
from wtxtgit.io.files import named, replace_file, shown, view_file, write_output
from wtxtgit.io.view import view_of, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.tensor import ReadOptions


@dataclass(frozen=True, slots=True)
class Recovery(JsonObject):
    """What became of a file: the chunks that were mended."""

    path: str
    mended: tuple[str, ...]


def recover(path: Path, out: Path, options: ReadOptions) -> Recovery:
    """Mend the FOLD file at `path` from its parity, into `out` (which may be `path`).

    Raises InputError for other files, CheckError where a chunk can't be
    mended; nothing is written then.
    """
    data = view_file(path)
    with named(path):
        container = any_format.read(data)
    known = registry.detected(data)
    if known is None or known.parity is None:
        names = " or ".join(f.name.upper() for f in registry.FORMATS if f.parity is not None)
        raise InputError(f"{shown(path)}: no {names} file, no other format holds parity")
    pieces, mended, lost = known.parity().repair(container, options)
    for name in lost:
        raise CheckError(f"{shown(path)}: chunk {quoted(name)} can't be mended from its parity")

    def write(descriptor: int) -> None:
        write_all(descriptor, pieces)
        refuse_errors(shown(out), view_of(descriptor), options)

    # Nothing to mend and nowhere else to go: the file stays as it is, with its times.
    if mended or out != path:
        (replace_file if out == path else write_output)(out, write)
    return Recovery(str(out), tuple(mended))
