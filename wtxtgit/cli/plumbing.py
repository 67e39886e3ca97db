"""What git calls: `filter-process`, `clean` and `smudge`.

Started for every git command that touches a tracked file, so nothing heavy
is imported before git was answered; click never is.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Generic, TypeVar

from wtxtgit.cli import boundary, environment
from wtxtgit.errors import UsageError
from wtxtgit.filter.process import FilterSettings, filtered, selected, serve
from wtxtgit.git.filter_protocol import FilterProcess, PacketReader, PacketWriter, widen_pipe
from wtxtgit.io.spool import ample, spooled
from wtxtgit.io.view import write_all, write_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from wtxtgit.filter.content import ContentCache
    from wtxtgit.filter.payload import StagedTexts
    from wtxtgit.filter.proved import ProvedTexts
    from wtxtgit.filter.replaced import ReplacedFiles
    from wtxtgit.git.repository import Config, Repository
    from wtxtgit.git.store.reader import ObjectStore
    from wtxtgit.io.view import Buffer, ByteView
    from wtxtgit.model.array import Keep, PayloadSource
    from wtxtgit.remotes.payload.on_demand import FetchedPayload
    from wtxtgit.text.write import TextWriter

T = TypeVar("T")

_until = ExitStack()
"""What is left when the process ends."""
_BUFFER = 1024 * 1024
_DETACHED_MEMORY = 64 * 1024 * 1024
"""Bytes of a file that are held where texts are detached: large files are what that is for."""


class _StandardOutput:
    """Standard output, unbuffered: `write` takes everything that it is given."""

    def write(self, data: Buffer) -> int:
        write_all(1, (data,))
        return memoryview(data).nbytes

    def writelines(self, parts: Sequence[Buffer]) -> None:
        """Write parts in order, without putting them together."""
        write_parts(1, parts)

    def flush(self) -> None:
        """Do nothing: everything was written already."""


def main(arguments: list[str]) -> int:
    """Run one of the three commands; `arguments` start with its name."""
    return boundary.run(lambda: _run_and_keep(arguments))


def _run_and_keep(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    finally:
        if _repository.has_value and _repository().store is not None:
            _join(_repository())
        # Those of all files at once.
        if _proved.has_value:
            _proved().close()
        _until.close()


def _join(repo: Repository) -> None:
    """Join the packs of all files: each was on disk before git had the answer for its file."""
    from wtxtgit.errors import EnvironmentFailure
    from wtxtgit.store.place import store_of

    # They stay as they are if they can't be joined.
    with suppress(EnvironmentFailure):
        store_of(repo).join_small()


def _run(arguments: list[str]) -> int:
    command, rest = arguments[0], arguments[1:]
    # Before `--`: what comes after it may be a file of that name.
    detached = rest[:1] == ["--detached"] and command != "smudge"
    paths = [word for word in rest[detached:] if word != "--"]
    chosen = settings(detached=detached)
    for descriptor in (0, 1):
        widen_pipe(descriptor)
    if command == "filter-process":
        if paths:
            raise UsageError("filter-process takes no arguments; git starts it")
        reader = PacketReader(FileIO(0, closefd=False))
        serve(FilterProcess(reader, PacketWriter(_StandardOutput())), chosen, boundary.warn)
        return 0
    if len(paths) > 1:
        raise UsageError(f"{command} takes at most one path, which is only used in messages")
    _single_shot(command, os.fsencode(paths[0]) if paths else b"standard input", chosen)
    return 0


def _single_shot(command: str, path: bytes, settings: FilterSettings) -> None:
    with FileIO(0, closefd=False) as source:
        data = spooled(_pieces(source), settings.folder, in_memory=settings.in_memory)
    answer = filtered(command, data, path, settings, boundary.warn)
    write_all(1, answer.pieces)
    answer.done()


def _pieces(source: FileIO) -> Iterator[Buffer]:
    """Yield a stream in pieces, each of which is valid until the next."""
    place = memoryview(bytearray(_BUFFER))
    while count := source.readinto(place):
        yield place[:count]


def settings(repo: Repository | None = None, *, detached: bool = False) -> FilterSettings:
    """What this environment and repository say about filtering; `detached` is the driver.

    `repo` is the repository where it was found already, and git need not be asked again.
    """
    if repo is not None:
        _repository.have(repo)
        _config.have(repo.config)
    return FilterSettings(
        skip_smudge=environment.skip_smudge(),
        wanted=_is_selected,
        store=_store,
        learn=_learn,
        folder=_spool_folder,
        in_memory=_forgiven(environment.memory) or (_DETACHED_MEMORY if detached else ample()),
        threads=_forgiven(environment.threads),
        keeping=_keeping if detached else None,
        payload=_payload,
        fetched=_fetched,
        proved=_proved,
        replaced=_replaced,
        here=os.fsencode(environment.git_prefix()),
    )


class Once(Generic[T]):
    """A value that is made on first use, by one thread only."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: tuple[T] | None = None
        # One value asks for another.
        self._lock = RLock()

    def __call__(self) -> T:
        with self._lock:
            if self._value is None:
                self._value = (self._make(),)
            return self._value[0]

    def have(self, value: T) -> None:
        """Set the value, which was made elsewhere."""
        with self._lock:
            self._value = (value,)

    @property
    def has_value(self) -> bool:
        return self._value is not None


def _keeping(path: bytes) -> AbstractContextManager[Keep]:
    """Keep the payload of a path in the repository's store."""
    from wtxtgit.filter.payload import keeping

    _lease()
    return keeping(_repository(), lambda: _staged().text(path))


@Once
def _lease() -> None:
    """Have a prune spare what is added until git has ended this process: it waits for that."""
    from wtxtgit.store.place import store_of

    _until.enter_context(store_of(_repository()).own.leased())


@Once
def _staged() -> StagedTexts:
    from wtxtgit.filter.payload import StagedTexts

    return StagedTexts(_repository())


@Once
def _proved() -> ProvedTexts:
    from wtxtgit.filter.proved import ProvedTexts

    def opened() -> ContentCache:
        from wtxtgit.filter.content import ContentCache

        return ContentCache(_repository(), environment.facts_key())

    return ProvedTexts(opened)


def _payload() -> PayloadSource | None:
    from wtxtgit.errors import EnvironmentFailure
    from wtxtgit.remotes.payload.on_demand import FetchedPayload

    try:
        return FetchedPayload.of(_repository())
    except EnvironmentFailure:
        return None


@Once
def _fetched() -> FetchedPayload | None:
    """Return the payload of store and remote; None if nothing is fetched automatically."""
    from wtxtgit.errors import EnvironmentFailure
    from wtxtgit.remotes.payload.on_demand import FetchedPayload
    from wtxtgit.remotes.payload.store_url import trusted

    try:
        return FetchedPayload.of(_repository()) if trusted(_repository()) else None
    except EnvironmentFailure:
        return None


def _learn(data: ByteView, text: TextWriter, oid: str) -> None:
    """Record the facts of a content, so that status and checks need not read it."""
    from wtxtgit.filter.content import ContentCache, content_digest, written_facts
    from wtxtgit.text.grammar import MAGIC

    with ContentCache(_repository(), environment.facts_key()) as known:
        # Git hashes the text meanwhile, and shall have a core for that unless it is short.
        threads = None if text.is_detached else 1
        digest, is_binary = content_digest(data, threads=threads), data[: len(MAGIC)] != MAGIC
        if text.is_detached:
            known.put_blob(digest, len(data), oid, detached=True)
            return
        known.put_blob(digest, len(data), oid, is_binary=is_binary)
        # A text stands for another file, which would have to be made again.
        if is_binary:
            known.put_facts({oid: written_facts(text, data)})


@Once
def _repository() -> Repository:
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    # Another thread has git list it meanwhile.
    repo.config = _config()
    return repo


@Once
def _config() -> Config:
    """The configuration, for which the repository need not be known."""
    from wtxtgit.git.repository import Config

    return Config(None)


@Once
def _store() -> ObjectStore | None:
    """Where `git add` will look for an object before it writes one."""
    from wtxtgit.errors import EnvironmentFailure
    from wtxtgit.filter.process import is_adding
    from wtxtgit.git.store.reader import ObjectStore

    if not is_adding():
        return None
    try:
        return ObjectStore.ahead_of_git(_repository())
    except EnvironmentFailure:
        return None


@Once
def _replaced() -> ReplacedFiles | None:
    """The files that `git apply` is about to replace; `git checkout -p` and `stash -p` start it."""
    from wtxtgit.filter.process import git_command

    if git_command()[:1] != ["apply"]:
        return None
    from wtxtgit.filter.replaced import ReplacedFiles

    return ReplacedFiles(_repository)


def _forgiven(read: Callable[[], int | None]) -> int | None:
    """Return a variable's value; None for a wrong one, which must not fail a checkout."""
    try:
        return read()
    except UsageError as error:
        boundary.warn(error.message)
        return None


@Once
def _selection() -> Callable[[bytes], bool]:
    """Return what tells by the config whether a path is smudged."""
    return selected(_config().get)


def _is_selected(path: bytes) -> bool:
    return _selection()(path)


def _spool_folder() -> Path | None:
    """Large inputs are spooled where the repository is: there is room for them."""
    from wtxtgit.errors import EnvironmentFailure

    try:
        return _repository().state_dir()
    except EnvironmentFailure:
        return None
