"""Texts made on a cluster: a task a file, each text written where it goes by its worker.

One text is hashed in one go, from its first array to its last: what is shared
are the files. A text of 1.4 times a file would cost the network twice on its way
through the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.cluster.client import Cluster, Progress
from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.io.files import shown
from wtxtgit.remotes import urls


@dataclass(frozen=True, slots=True)
class _EmitTask:
    """A text to be made of the file `path`, at `out`; both may be URLs."""

    path: str
    out: str
    folder: Path
    generation: NewGeneration

    # Dask shows what its tasks are given, and a URL may hold credentials.
    def __repr__(self) -> str:
        return "<a text to be made>"


@dataclass(frozen=True, slots=True)
class _Written:
    """What a worker wrote: bytes where it wrote to a path, and a warning about the file."""

    nbytes: int | None
    warning: str | None


def emit_files(
    cluster: Cluster,
    paths: Sequence[str],
    outs: Sequence[str],
    generation: NewGeneration,
    *,
    progress: Progress | None = None,
) -> Iterator[tuple[str, str]]:
    """Make the text of each file, at the path or URL in `outs`; gives warnings, by the file's path.

    Raises UsageError for what needs a secret or a second file, and
    EnvironmentFailure where a text is not here that a worker wrote to a path.
    """
    if generation.sign is not None or generation.hmac_key is not None or generation.pending:
        raise UsageError("texts that are signed, authenticated or pending are made here alone")
    folder = Path.cwd()
    items = [_EmitTask(*pair, folder, generation) for pair in zip(paths, outs, strict=True)]
    warnings = {}
    for number, written in cluster.run(_emit, items, _Written, progress):
        if written.nbytes is not None:
            _check_here(folder / outs[number], outs[number], written.nbytes)
        if written.warning is not None:
            warnings[number] = written.warning
    return ((paths[number], warnings[number]) for number in sorted(warnings))


def _check_here(file: Path, out: str, nbytes: int) -> None:
    try:
        found = file.stat().st_size
    except OSError:
        found = None
    if found != nbytes:
        raise EnvironmentFailure(
            f"{shown(out)}: a worker wrote {nbytes} bytes, which are not here",
            hint="-o names a folder that the workers share, or a URL",
        )


def _emit(text: _EmitTask, progress: Progress) -> _Written:
    emitted = emit(text.path, text.generation, text.folder, threads=1, progress=progress)
    if urls.is_url(text.out):
        write_text(emitted, text.out)
        return _Written(None, emitted.warning)
    file = text.folder / text.out
    write_text(emitted, file)
    return _Written(file.stat().st_size, emitted.warning)
