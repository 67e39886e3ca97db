"""Adding files to the index like `git add`, with texts that this process writes.

Git runs the filter, then deflates its output on one core. Here the text is hashed and deflated
while it is made, all blobs of a command go into a few packs, and the index gets entries that git
sees as unchanged. Files that do not go through our filter are left to `git add`.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.filter.content import ArtifactFacts, ContentCache, file_digest, written_facts
from wtxtgit.filter.payload import StagedTexts, keep_in
from wtxtgit.filter.proved import ProvedTexts
from wtxtgit.filter.status import drivers_alone, is_driven
from wtxtgit.git import index, staging
from wtxtgit.git.index import Wanted
from wtxtgit.git.index_file import StagedFile, stage_files, sweep
from wtxtgit.git.repository import DETACHED_DRIVER, Repository
from wtxtgit.git.store.reader import ObjectStore, missing, without_blob
from wtxtgit.git.store.streams import PlainContent
from wtxtgit.git.store.writing import PackWriter
from wtxtgit.git.work_tree import EXECUTABLE, file_size, moment_of
from wtxtgit.io.files import (
    NOT_REGULAR,
    failures,
    opened_regular,
    read_view,
    shown,
    shown_path,
)
from wtxtgit.io.progress import Progress, finish_file
from wtxtgit.io.spool import LITTLE, spooled
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.io.workers import default_threads, in_background
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import is_text

if TYPE_CHECKING:
    from wtxtgit.store.writer import StoreWriter

Warn = Callable[[str, str | None], None]
"""Takes a message and a hint."""

_PLAIN = 0o100644


@dataclass(frozen=True, slots=True)
class Added:
    """What was added, or would be: paths whose texts we make, and those that git adds.

    `removed` are paths without a file. Those in `detached` have the driver `wtxt-detached`.
    `refused` is the reason if something that was named is in none of these. Git may leave out
    `doubtful` ones.
    """

    filtered: tuple[bytes, ...]
    others: tuple[bytes, ...]
    removed: tuple[bytes, ...]
    wanted: Wanted
    refused: CheckError | None
    doubtful: tuple[bytes, ...]
    detached: frozenset[bytes] = frozenset()


def plan(repo: Repository, selection: Wanted) -> Added:
    """Find what has to be added; raises UsageError for paths at which git would add nothing.

    Raises EnvironmentFailure if there is no work tree, or the filter is not set up.
    """
    repo.check_worktree()
    # Importing takes a while, in which git is asked and the first file is read.
    in_background(partial(import_module, "wtxtgit.filter.clean"))
    # Here too, because `add` may have nothing to do and then does not write the index.
    sweep(repo)
    tracked, untracked, removed, refused, doubtful = index.candidates(repo, selection)
    # In a sparse checkout git decides whether a new file may be added.
    is_sparse = repo.config.is_true("core.sparseCheckout")
    # Git does not look whether an unchanged file's blob is there.
    unchanged = without_blob(repo, selection.pathspecs, {*tracked, *doubtful})
    candidates = [*tracked, *unchanged] if is_sparse else [*tracked, *unchanged, *untracked]
    links = _links(repo)
    drivers = drivers_alone(repo, candidates)
    filtered = tuple(
        path for path in drivers if path not in links and file_size(repo.file(path)) is not None
    )
    chosen = set(filtered)
    others = tuple(path for path in (*tracked, *untracked) if path not in chosen)
    # Git compares with the output of its own filter: another driver would never give our texts.
    if not all(is_driven(repo, driver) for driver in {drivers[path] for path in filtered}):
        raise EnvironmentFailure(
            "the filter is not set up here, so git would show the files as changed",
            hint="wtxtgit install",
        )
    detached = frozenset(path for path in filtered if drivers[path] == DETACHED_DRIVER)
    return Added(filtered, others, tuple(removed), selection, refused, tuple(doubtful), detached)


def add(
    repo: Repository,
    planned: Added,
    *,
    warn: Warn,
    key_file: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Add what `plan` found.

    Raises EnvironmentFailure if a file changes while it is read, or git's folder can't be written;
    the index is then unchanged. `key_file` as for ContentCache. Raises CheckError at the end if git
    leaves something out.
    """
    work = _AddWork(repo, key_file, warn, threads, progress, planned.detached)
    with work.written(planned.filtered) as staged:
        # Git's part first, so that folders are gone where files will be, and the reverse.
        options = ("--force",) if planned.wanted.with_ignored else ()
        # By name alone: given to `git add`, the path of a file that became a folder stands for all
        # files in it, and one beyond a link is refused.
        if planned.removed:
            staging.stage(repo, (), planned.removed)
        by_git = staging.add_some(repo, planned.others, *options)
        staging.add_some(repo, planned.doubtful, *options)
        stage_files(repo, staged)
    # What was there, unreached, and not written again may have gone before the index named it.
    while gone := missing(repo, {file.oid for file in staged}):
        with work.written([file.path for file in staged if file.oid in gone]) as staged:
            stage_files(repo, staged)
    refused = planned.refused or index.refusal(by_git)
    if refused is not None:
        raise refused


@dataclass
class _AddWork:
    """An add in progress."""

    repo: Repository
    key_file: Path | None
    warn: Warn
    threads: int | None
    progress: Progress | None
    detached: frozenset[bytes]
    store: ObjectStore = field(init=False)
    pack: PackWriter = field(init=False)
    known: ContentCache = field(init=False)
    payload: StoreWriter = field(init=False)
    _proved: ProvedTexts = field(init=False)
    contents: list[tuple[bytes, int, str, bool, bool]] = field(default_factory=list)
    """BLAKE3 and size of each file that was read, its blob, whether it is no text, and detached."""
    facts: dict[str, ArtifactFacts] = field(default_factory=dict)

    @contextmanager
    def written(self, paths: Sequence[bytes]) -> Iterator[list[StagedFile]]:
        """Write the blobs of files; until the end of the block git keeps them."""
        if not paths:
            yield []
            return
        if not self.detached.isdisjoint(paths):
            in_background(partial(import_module, "wtxtgit.store.writer"))
        modes = _modes(self.repo, paths)
        threads = self.threads or default_threads()
        self._proved = ProvedTexts(lambda: self.known)
        with (
            self._leased(paths),
            ContentCache(self.repo, self.key_file) as self.known,
            ObjectStore(self.repo) as self.store,
            PackWriter(self.store, len(paths), threads) as self.pack,
        ):
            staged = []
            with self._storing(paths):
                for path in paths:
                    staged.append(self._file(path, modes.get(path)))
                    finish_file(self.progress)
            # The index will refer to these blobs, so they have to be in the repository before.
            self.pack.finish()
            self._learn()
            yield staged

    def _leased(self, paths: Sequence[bytes]) -> AbstractContextManager[None]:
        """Have a prune spare the payload until the index names it."""
        is_any = not self.detached.isdisjoint(paths)
        return store_of(self.repo).own.leased() if is_any else nullcontext()

    @contextmanager
    def _storing(self, paths: Sequence[bytes]) -> Iterator[None]:
        """Write the payload of all files; at the end of the block it is on disk."""
        if self.detached.isdisjoint(paths):
            yield
            return
        with store_of(self.repo).writing() as self.payload:
            yield

    @cached_property
    def _staged(self) -> StagedTexts:
        """The detached texts that paths had before."""
        return StagedTexts(self.repo)

    def _file(self, path: bytes, mode: int | None) -> StagedFile:
        """Write a file's blob, unless it exists; if `mode` is None it is taken from the file."""
        name = self.repo.file(path)
        with failures(name, missing=EnvironmentFailure):
            try:
                with opened_regular(name) as (descriptor, before):
                    data = read_view(descriptor, name)
                    digest = self._digest(descriptor)
                    is_detached = path in self.detached
                    oid = self.known.blob_of(digest, len(data), detached=is_detached)
                    # For a detached text, git's object does not show what the store has.
                    if oid is None or is_detached or not self.store.keep(oid):
                        oid = self._blob(path, descriptor, data, digest)
            except OSError as error:
                if error.strerror != NOT_REGULAR:
                    raise
                raise EnvironmentFailure(f"{shown(name)}: {NOT_REGULAR} any more") from None
            after = name.stat(follow_symlinks=False)
        # Otherwise the index would claim that the blob is the file's present content.
        if moment_of(before) != moment_of(after):
            raise _changed(name)
        # As in git (core.fileMode): only the user's own bit counts, the others depend on the umask.
        if mode is None:
            mode = EXECUTABLE if before.st_mode & stat.S_IXUSR else _PLAIN
        return StagedFile(path, mode, oid, before)

    def _blob(self, path: bytes, descriptor: int, data: ByteView, digest: bytes) -> str:
        """Write the blob of a file with this content."""
        from wtxtgit.filter.clean import clean, clean_detached

        if path in self.detached:
            keep = keep_in(self.payload, lambda: self._staged.text(path))
            cleaned = clean_detached(data, keep, threads=self.threads, progress=self.progress)
        else:
            cleaned = clean(data, threads=self.threads, progress=self.progress)
        writer = cleaned.writer
        if writer is not None and writer.is_detached:
            from wtxtgit.remotes.payload.on_demand import FetchedPayload

            text = spooled(writer.stream(), in_memory=LITTLE)
            oid = self.pack.add(PlainContent(text))
            source = FetchedPayload.of(self.repo)
            self._proved.put_kept(pieces(text), source, writer.payload())
        else:
            oid = self.pack.add(PlainContent(cleaned.source) if writer is None else writer)
        # A program that has mapped the file can change it without changing its times.
        if self._digest(descriptor) != digest:
            raise _changed(self.repo.file(path))
        if cleaned.warning is not None:
            self.warn(f"{shown_path(path)}: {cleaned.warning}; stored unchanged", None)
            return oid
        self.contents.append((digest, len(data), oid, not is_text(data), path in self.detached))
        # A text stands for another file, which would have to be made again.
        if writer is not None and not writer.is_detached and not is_text(data):
            self.facts[oid] = written_facts(writer, data)
        return oid

    def _digest(self, descriptor: int) -> bytes:
        return file_digest(descriptor, threads=self.threads)[0]

    def _learn(self) -> None:
        """Cache which blobs were written; only call this once the pack is in the repository."""
        self._proved.flush()
        for digest, size, oid, is_binary, is_detached in self.contents:
            self.known.put_blob(
                digest, size, oid, is_binary=is_binary and not is_detached, detached=is_detached
            )
        self.known.put_facts(self.facts)


def _changed(name: Path) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"{shown(name)}: changed while it was read", hint="add it again once nothing writes to it"
    )


def _modes(repo: Repository, paths: Sequence[bytes]) -> dict[bytes, int]:
    """Return the modes in the index if file modes mean nothing here (core.fileMode), else
    nothing.
    """
    if repo.config.is_true("core.fileMode", default=True):
        return {}
    known = {entry.path: entry.mode for entry in index.entries(repo) if entry.is_file}
    return {path: known.get(path, _PLAIN) for path in paths}


def _links(repo: Repository) -> set[bytes]:
    """Return the paths that are links in the index if the work tree can't show links
    (core.symlinks).
    """
    if repo.config.is_true("core.symlinks", default=True):
        return set()
    return {entry.path for entry in index.entries(repo) if not entry.is_file}
