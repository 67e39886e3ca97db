"""What git calls: `filter-process`, `clean` and `smudge`.

Started for every git command that touches a tracked file, so nothing heavy
is imported before git was answered; click never is.
"""

from __future__ import annotations

import os
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.cli import boundary, environment
from wtxtgit.errors import UsageError
from wtxtgit.git.filterproc import FilterProcess
from wtxtgit.git.pktline import Reader, Writer, widen_pipe
from wtxtgit.ops.files import write_all
from wtxtgit.ops.filter import Settings, filtered, serve
from wtxtgit.ops.spool import spooled

if TYPE_CHECKING:
    from wtxtgit.model import Buffer

_BUFFER = 1024 * 1024


class _Output:
    """Standard output, unbuffered: `write` takes everything that it is given."""

    def write(self, data: Buffer) -> int:
        write_all(1, (data,))
        return memoryview(data).nbytes

    def flush(self) -> None:
        """All was written already."""


def main(arguments: list[str]) -> int:
    """Run one of the three; `arguments` start with its name."""
    return boundary.run(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    command, paths = arguments[0], [word for word in arguments[1:] if word != "--"]
    settings = _settings()
    for descriptor in (0, 1):
        widen_pipe(descriptor)
    if command == "filter-process":
        if paths:
            raise UsageError("filter-process takes no arguments, git starts it")
        reader = Reader(BufferedReader(FileIO(0, closefd=False), _BUFFER))
        serve(FilterProcess(reader, Writer(_Output())), settings, boundary.warn)
        return 0
    if len(paths) > 1:
        raise UsageError(f"{command} takes one path at most, the one that messages name")
    _single_shot(command, os.fsencode(paths[0]) if paths else b"standard input", settings)
    return 0


def _single_shot(command: str, path: bytes, settings: Settings) -> None:
    with FileIO(0, closefd=False) as source:
        data = spooled(iter(lambda: source.read(_BUFFER), b""), settings.folder)
    write_all(1, filtered(command, data, path, settings, boundary.warn))


def _settings() -> Settings:
    return Settings(
        skip_smudge=environment.skip_smudge(),
        wanted=_wanted,
        folder=_spool_folder,
        threads=_threads(),
    )


def _threads() -> int | None:
    """A wrong number of threads is no reason to fail a checkout."""
    try:
        return environment.threads()
    except UsageError as error:
        boundary.warn(error.message)
        return None


def _wanted(path: bytes) -> bool:
    from wtxtgit.ops.selection import selection

    return selection()(path)


def _spool_folder() -> Path | None:
    """Large inputs are spooled where the repository is: there is room for them."""
    from wtxtgit.errors import EnvironmentFailure
    from wtxtgit.git.repository import Repository

    try:
        return Repository.discover().state_dir()
    except EnvironmentFailure:
        return None
