"""The filter: git's requests answered by clean and smudge.

Git starts one process for all files of a command. It answers the handshake
before it loads anything heavy. No content makes it fail: clean stores what it
can't read as it is, smudge passes it through. Only the environment (a disk
that is full while a text is made) makes it refuse a file to git.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.filterproc import FilterProcess, Request
from wtxtgit.model import Buffer
from wtxtgit.ops.files import shown
from wtxtgit.ops.spool import Spool

Warn = Callable[[str, str | None], None]
"""Takes a message and a hint."""


@dataclass(slots=True)
class Settings:
    """What the environment and the config say about filtering.

    `skip_smudge` leaves all texts as they are; `wanted` says of a path
    whether it is smudged; `folder` gives where large inputs are spooled.
    """

    skip_smudge: bool = False
    wanted: Callable[[bytes], bool] = lambda _path: True
    folder: Callable[[], Path | None] = lambda: None
    threads: int | None = None


def serve(process: FilterProcess, settings: Settings, warn: Warn) -> None:
    """Answer requests until git has no more."""
    process.handshake()
    for request in process.requests():
        _answer(process, request, settings, warn)


def _answer(process: FilterProcess, request: Request, settings: Settings, warn: Warn) -> None:
    spool = Spool(settings.folder)
    try:
        for piece in request.content:
            spool.write(piece)
        try:
            pieces = filtered(request.command, spool.view(), request.pathname, settings, warn)
        except Exception as error:  # noqa: BLE001 - a checkout goes on, an add is refused
            about = f"{_shown(request.pathname)}: {type(error).__name__}: {error}"
            if request.command == "smudge":
                warn(f"{about}, left as text", None)
                pieces = (spool.view(),)
            else:
                warn(about, None)
                process.error()
                return
        process.success(pieces)
    finally:
        spool.close()


def filtered(
    command: str, data: memoryview, path: bytes, settings: Settings, warn: Warn
) -> Iterable[Buffer]:
    """What `command` (clean or smudge) makes of a content; warnings name `path`."""
    if command == "smudge":
        if settings.skip_smudge or not settings.wanted(path):
            return (data,)
        from wtxtgit.ops.smudge import smudge

        smudged = smudge(data, threads=settings.threads)
        if smudged.warning is not None:
            name = shlex.quote(_shown(path))
            warn(
                f"{_shown(path)}: {smudged.warning}",
                f"wtxtgit verify -- {name} shows the damage; another clone or an earlier "
                f"commit may hold a good copy: git checkout COMMIT -- {name}",
            )
        return smudged.pieces()
    if command != "clean":
        raise EnvironmentFailure(f"git asks for {command!r}")
    from wtxtgit.ops.clean import clean

    cleaned = clean(data, threads=settings.threads)
    if cleaned.warning is not None:
        warn(f"{_shown(path)}: {cleaned.warning}, stored as it is", None)
    return cleaned.pieces()


def _shown(path: bytes) -> str:
    return shown(Path(os.fsdecode(path)))
