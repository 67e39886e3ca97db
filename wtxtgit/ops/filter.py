"""The filter: git's requests answered by clean and smudge.

Git starts one process for all files of a command. It answers the handshake
before it loads anything heavy, which comes while git sends the first content.
No content makes it fail: clean stores what it can't read as it is, smudge
passes it through. Only the environment (a disk that is full while a text is
made) makes it refuse a file to git.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.filterproc import FilterProcess, Request
from wtxtgit.model import Buffer, windows
from wtxtgit.model.windows import ByteView
from wtxtgit.ops.files import shown
from wtxtgit.ops.spool import IN_MEMORY, Spool

if TYPE_CHECKING:
    from wtxtgit.git.store.reader import ObjectStore
    from wtxtgit.text.write import TextWriter

Warn = Callable[[str, str | None], None]
"""Takes a message and a hint."""

_WORTH_STORING = 1024 * 1024
"""Bytes of a text from which on git's own deflating takes longer than finding the store."""


@dataclass(slots=True)
class Settings:
    """What the environment and the config say about filtering.

    `skip_smudge` leaves all texts as they are; `wanted` says of a path
    whether it is smudged; `folder` gives where inputs of over `in_memory`
    bytes are spooled. `store` gives where texts become objects before git
    deflates them, None where git only looks; `learn` takes note of a content,
    its text, and the blob that this became.
    """

    skip_smudge: bool = False
    wanted: Callable[[bytes], bool] = lambda _path: True
    store: Callable[[], ObjectStore | None] = lambda: None
    learn: Callable[[ByteView, TextWriter, str], None] = lambda _data, _text, _oid: None
    folder: Callable[[], Path | None] = lambda: None
    in_memory: int = IN_MEMORY
    threads: int | None = None


def serve(process: FilterProcess, settings: Settings, warn: Warn) -> None:
    """Answer requests until git has no more."""
    process.handshake()
    for request in process.requests():
        _answer(process, request, settings, warn)


def _answer(process: FilterProcess, request: Request, settings: Settings, warn: Warn) -> None:
    spool = Spool(settings.folder, in_memory=settings.in_memory)
    loading = _loaded_beside(request, settings)
    try:
        for piece in request.content:
            spool.write(piece)
        if loading is not None:
            loading.join()
        try:
            pieces = filtered(request.command, spool.view(), request.pathname, settings, warn)
        except Exception as error:  # noqa: BLE001 - a checkout goes on, an add is refused
            about = f"{_shown(request.pathname)}: {type(error).__name__}: {error}"
            if request.command == "smudge":
                warn(f"{about}, left as text", None)
                pieces = windows.pieces(spool.view())
            else:
                warn(about, None)
                process.error()
                return
        process.success(pieces)
    finally:
        spool.close()


def filtered(
    command: str, data: ByteView, path: bytes, settings: Settings, warn: Warn
) -> Iterable[Buffer]:
    """What `command` (clean or smudge) makes of a content; warnings name `path`."""
    if command == "smudge":
        return smudged(data, path, settings, warn)
    if command != "clean":
        raise EnvironmentFailure(f"git asks for {command!r}")
    from wtxtgit.ops.clean import clean

    cleaned = clean(data, threads=settings.threads)
    if cleaned.warning is not None:
        warn(f"{_shown(path)}: {cleaned.warning}, stored as it is", None)
    writer = cleaned.writer
    if writer is None or writer.size < _WORTH_STORING:
        return cleaned.pieces()
    store = settings.store()
    if store is None:
        return cleaned.pieces()
    from wtxtgit.git.store.loose import stored
    from wtxtgit.text.parallel import default_threads

    threads = settings.threads or default_threads()
    return stored(store, writer, threads, partial(settings.learn, data, writer))


def smudged(data: ByteView, path: bytes, settings: Settings, warn: Warn) -> Iterable[Buffer]:
    """What smudge makes of a blob; warnings name `path`."""
    if not is_smudged(path, settings):
        return windows.pieces(data)
    from wtxtgit.ops.smudge import smudge

    made = smudge(data, threads=settings.threads)
    if made.warning is not None:
        name = shlex.quote(_shown(path))
        warn(
            f"{_shown(path)}: {made.warning}",
            f"wtxtgit verify -- {name} shows the damage; another clone or an earlier "
            f"commit may hold a good copy: git checkout COMMIT -- {name}",
        )
    return made.pieces()


def _loaded_beside(request: Request, settings: Settings) -> Thread | None:
    """Load what a request needs on a thread, beside the content that git still sends.

    It saves time and decides nothing: what fails here is met again, and told,
    when the request is answered.
    """
    module = f"wtxtgit.ops.{request.command}"
    if module in sys.modules:
        return None

    def load() -> None:
        with contextlib.suppress(Exception):
            if request.command == "clean" or is_smudged(request.pathname, settings):
                import_module(module)

    thread = Thread(target=load)
    try:
        thread.start()
    except RuntimeError:  # the system has no thread to give
        return None
    return thread


def is_smudged(path: bytes, settings: Settings) -> bool:
    """Whether the settings let a path be smudged at all."""
    return not settings.skip_smudge and settings.wanted(path)


def _shown(path: bytes) -> str:
    return shown(Path(os.fsdecode(path)))
