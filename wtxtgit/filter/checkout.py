"""Writing checkpoints to the work tree from git's objects, without git.

Git inflates a text on one core, passes it to the filter and reads the file back through a pipe.
Here the objects are read, verified and decoded on all cores, the files written in place, and the
index updated so that git sees them as unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.errors import EnvironmentFailure, UsageError, explain
from wtxtgit.filter import status
from wtxtgit.filter.content import ContentCache
from wtxtgit.filter.delayed import CheckoutFetch, index_of_detached, lacks
from wtxtgit.filter.process import FilterSettings, Warn, is_smudged, warn_of_payload, warn_of_text
from wtxtgit.filter.status import NATIVE, text_format
from wtxtgit.git import index, work_tree
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.index import FileChange, TreeEntry
from wtxtgit.git.index_file import StagedFile, note_files, sweep
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.work_tree import EXECUTABLE, Moment, moment
from wtxtgit.io.files import reason
from wtxtgit.io.pieces import PieceWindows, joined, view_of_pieces
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import LITTLE
from wtxtgit.io.view import ByteView, pieces, write_all
from wtxtgit.io.workers import Workers, default_threads, in_background
from wtxtgit.model.plain import JsonObject
from wtxtgit.text.grammar import is_detached, is_text

if TYPE_CHECKING:
    from wtxtgit.text.index import TextIndex

_SMUDGE = "wtxtgit.filter.smudge"
_LARGE = 32 * 1024 * 1024
"""A blob of at least this many bytes gets all threads; smaller ones are read in parallel."""
_ARRIVING = 8 * 1024 * 1024
"""A blob of at least this many bytes is written while it is inflated; smaller ones afterwards."""

UNNOTED = "run wtxtgit checkout again; until then git shows unchanged files as changed"
"""What users should do if the index could not be updated."""


@dataclass(frozen=True, slots=True)
class Failed(JsonObject):
    """A file that could not be written, and why."""

    path: bytes
    message: str


@dataclass(frozen=True, slots=True)
class CheckedOut(JsonObject):
    """The outcome for tracked files, by path from the top level.

    `written` have the content in the index. `changed` differ from it, and were left alone. `left`
    are still text, because smudge leaves them as text: damaged, native, or not wanted.
    `failed` have a reason. `unnoted` says why the index could not be updated for the written
    files, so that git shows them as changed. Those in `left` that are `lacking_payload` are
    detached texts whose data is not all in the store.
    """

    KEYS = "written changed left failed unnoted? lacking_payload=lacking?"

    written: tuple[bytes, ...] = ()
    changed: tuple[bytes, ...] = ()
    left: tuple[bytes, ...] = ()
    failed: tuple[Failed, ...] = ()
    unnoted: str | None = None
    lacking_payload: tuple[bytes, ...] = ()

    @property
    def lacking(self) -> tuple[bytes, ...] | None:
        return self.lacking_payload or None


def checkout(
    repo: Repository,
    pathspecs: Sequence[str],
    settings: FilterSettings,
    warn: Warn,
    *,
    force: bool = False,
    key_file: Path | None = None,
    progress: Progress | None = None,
    remote_lacks: bool = False,
) -> CheckedOut:
    """Write filtered files that are missing, or stand as their blob's text.

    With `force` changed ones are overwritten, too. Pathspecs are relative to the folder of the
    repository's prefix; none means all. `key_file` as for ContentCache, `progress` gets counts of
    the texts' bytes. `remote_lacks` tells that missing data was just not found there. Raises
    UsageError for pathspecs that match nothing.
    """
    repo.check_worktree()
    _load_ahead()
    sweep(repo)
    listed = index.entries(repo, pathspecs)
    if pathspecs and not listed:
        raise UsageError(f"no tracked file matches {' '.join(map(ascii, pathspecs))}")
    files = {e.path: e for e in listed if not (e.stage or e.skipped or e.intended) and e.is_file}
    filtered = [files[path] for path in status.filtered_alone(repo, files)]
    with ContentCache(repo, key_file) as known:
        differing, unnoted = status.file_changes(repo, filtered, known, settings.threads)
    todo: dict[TreeEntry, Moment | None] = {}
    changed: list[TreeEntry] = []
    left: list[bytes] = []
    failed: list[Failed] = []
    for entry in filtered:
        change = differing.get(entry.path)
        # Before the file is examined, so that a later write is noticed.
        last_change = moment(repo.worktree, entry.path)
        if change is FileChange.DELETED:
            todo[entry] = last_change if force else None
            continue
        try:
            is_text = _stands_as_blob(repo, entry, change)
        except OSError as error:
            failed.append(Failed(entry.path, reason(error)))
            continue
        if is_text:
            if is_smudged(entry.path, settings):
                todo[entry] = last_change
            else:
                left.append(entry.path)
        elif change is not None and force:
            todo[entry] = last_change
        elif change is not None:
            changed.append(entry)
    done = write_files(repo, todo, settings, warn, progress, unnoted, remote_lacks=remote_lacks)
    left += done.as_text
    return CheckedOut(
        done.whole,
        tuple(entry.path for entry in changed),
        tuple(left),
        (*failed, *(Failed(*failure) for failure in done.failed)),
        done.unnoted,
        done.lacking_payload,
    )


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The paths of files that were written `whole`, or `as_text` because smudge leaves them so.

    `unnoted` says why the index could not be updated for them; `lacking_payload` are texts whose
    data is not all in the store.
    """

    whole: tuple[bytes, ...]
    as_text: tuple[bytes, ...]
    failed: tuple[tuple[bytes, str], ...]
    unnoted: str | None
    lacking_payload: tuple[bytes, ...] = ()


def write_files(
    repo: Repository,
    entries: Mapping[TreeEntry, Moment | None],
    settings: FilterSettings,
    warn: Warn,
    progress: Progress | None = None,
    unchanged: Sequence[StagedFile] = (),
    *,
    remote_lacks: bool = False,
) -> WrittenFiles:
    """Write files of index entries, each in place of what is given, and update the index.

    The index is also updated for files that are `unchanged` with the content of their entries.
    """
    written: list[StagedFile] = []
    failed: list[tuple[bytes, str]] = []
    if entries:
        _load_ahead()
    why = None
    with ObjectStore(repo) as store:
        lacking: list[bytes] = []
        waiting: list[TreeEntry] = []
        work = _CheckoutWork(repo, store, settings, warn, entries, progress, lacking, waiting)
        outcomes = list(work.write(list(entries)))
        if waiting:
            why, remote_lacks = _fetch(repo, waiting, settings)
            outcomes += replace(work, waiting=None).write(waiting)
        for entry, outcome in outcomes:
            if isinstance(outcome, str):
                failed.append((entry.path, outcome))
            elif outcome is not None:
                written.append(outcome)
    if (proved := settings.proved()) is not None:
        proved.close()
    warn_of_payload(sorted(lacking), warn, why, remote_lacks=remote_lacks)
    unnoted = None
    try:
        note_files(repo, [*unchanged, *written])
    except EnvironmentFailure as error:
        unnoted = error.message
    heads = {file.path: work_tree.file_head(repo.file(file.path)) or b"" for file in written}
    texts = {path for path, head in heads.items() if is_text(head)}
    whole = tuple(path for path in heads if path not in texts)
    lacked = tuple(sorted(lacking))
    return WrittenFiles(whole, tuple(sorted(texts)), tuple(failed), unnoted, lacked)


def _load_ahead() -> None:
    """Import in the background what most files need, while git is asked and objects are
    inflated.
    """
    if _SMUDGE not in sys.modules:
        in_background(partial(import_module, _SMUDGE))


class _WaitsForPayload(Exception):
    """A file will be written later, once the missing data of all files was fetched together."""


def _fetch(
    repo: Repository, entries: Sequence[TreeEntry], settings: FilterSettings
) -> tuple[str | None, bool]:
    """Fetch the payload of files; returns what went wrong, if anything, and whether it is that the
    remote lacks some.
    """
    fetched = settings.fetched()
    if fetched is None:
        return None, False
    from wtxtgit.remotes.payload.detached_texts import of_blobs

    texts = of_blobs(repo, {entry.oid: entry.path for entry in entries})
    fetching = CheckoutFetch()
    fetching.fetch(fetched, (name for text in texts for name in text.chunks))
    return fetching.why, fetching.remote_lacks


def _stands_as_blob(repo: Repository, entry: TreeEntry, change: FileChange | None) -> bool:
    """Tell whether a container's text stands in place of the file, as git writes it without a
    filter.
    """
    if change not in (None, FileChange.MODIFIED):
        return False
    file = repo.file(entry.path)
    # For a native text the text itself is what a checkout writes.
    head = work_tree.file_head(file) or b""
    is_container = is_detached(head) or text_format(head) not in (None, NATIVE)
    return is_container and work_tree.file_is_blob(file, entry.oid)


@dataclass(frozen=True, slots=True)
class _CheckoutWork:
    """A checkout in progress; files of detached texts that lack payload are added to `waiting`."""

    repo: Repository
    store: ObjectStore
    settings: FilterSettings
    warn: Warn
    replaced: Mapping[TreeEntry, Moment | None]
    progress: Progress | None
    lacking: list[bytes]
    waiting: list[TreeEntry] | None = None

    def write(
        self, entries: Sequence[TreeEntry]
    ) -> Iterator[tuple[TreeEntry, StagedFile | str | None]]:
        """Write files; yields the stat data for the index, or why a file could not be written.

        Yields None for a file that waits.
        """
        threads = self.settings.threads or default_threads()
        if len(entries) == 1:
            yield entries[0], self._file(entries[0], threads, None)
            return
        known = known_sizes(self.repo, (entry.oid for entry in entries))
        # A missing blob is fetched when it is read; its size is not known before.
        sized = [(entry, known.get(entry.oid, 0)) for entry in entries]
        if self.waiting is not None:
            expect(self.progress, sum(size for _, size in sized), len(sized))
        small = [(entry, size) for entry, size in sized if size < _LARGE]
        for entry, size in sized:
            if size >= _LARGE:
                yield entry, self._file(entry, threads, size)
        if len(small) < 2:
            yield from ((entry, self._file(entry, threads, size)) for entry, size in small)
            return
        tasks = (partial(self._file, entry, 1, size) for entry, size in small)
        with Workers(tasks, threads, ahead=len(small)) as outcomes:
            yield from zip((entry for entry, _ in small), outcomes, strict=True)

    def _file(self, entry: TreeEntry, threads: int, size: int | None) -> StagedFile | str | None:
        """Write a file; `size` is the size of its blob if known."""
        try:
            if size is None:
                size = self.store.size(entry.oid)
                if self.waiting is not None:
                    expect(self.progress, size, 1)
            if size < _ARRIVING:
                blob = self._whole(entry, threads)
                write = partial(self._fill, entry=entry, blob=blob, threads=threads)
            else:
                write = partial(self._fill_arriving, entry=entry, size=size, threads=threads)
            status = work_tree.write_file(
                self.repo.worktree,
                entry.path,
                is_executable=entry.mode == EXECUTABLE,
                write=write,
                replaces=self.replaced[entry],
            )
        except _WaitsForPayload:
            return None
        except OSError as error:
            return reason(error)
        except EnvironmentFailure as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - the other files are written
            return explain(error)
        finish_file(self.progress)
        return StagedFile(entry.path, entry.mode, entry.oid, status)

    def _whole(self, entry: TreeEntry, threads: int, counted: int = 0) -> ByteView:
        """Return a whole blob, of which `counted` bytes were already reported as progress."""
        pieces = self._counted(self.store.blob(entry.oid, threads), counted)
        first = next(pieces, b"")
        in_memory = LITTLE if is_detached(first) else self.settings.in_memory
        return view_of_pieces(chain((first,), pieces), self.settings.folder, in_memory=in_memory)

    def _fill(self, descriptor: int, entry: TreeEntry, blob: ByteView, threads: int) -> None:
        if not is_smudged(entry.path, self.settings):
            write_all(descriptor, pieces(blob))
            return
        indexed = self._index(entry, blob)
        from wtxtgit.filter.smudge import smudge_into

        settings = self.settings
        smudged = smudge_into(
            descriptor,
            blob,
            threads=threads,
            payload=settings.payload,
            proved=settings.proved,
            indexed=indexed,
            progress=self.progress if indexed is not None else None,
        )
        if smudged.lacks_payload:
            # The store's index may have listed missing data, which may still be fetched.
            self._index(entry, blob)
            self.lacking.append(entry.path)
        elif smudged.warning is not None:
            warn_of_text(entry.path, smudged, self.warn, self.repo.prefix)

    def _index(self, entry: TreeEntry, blob: ByteView) -> TextIndex | None:
        """Return the index of a detached text.

        Raises _WaitsForPayload if missing data may be fetched.
        """
        indexed = index_of_detached(blob, self.settings.payload)
        is_lacking = self.waiting is not None and indexed is not None and lacks(indexed)
        if self.waiting is not None and is_lacking and self.settings.fetched() is not None:
            self.waiting.append(entry)
            raise _WaitsForPayload
        return indexed

    def _fill_arriving(self, descriptor: int, entry: TreeEntry, size: int, threads: int) -> None:
        """Write a file while its blob is inflated; if that fails, from the whole blob."""
        # The two pools together have one thread more than wanted, because some always wait.
        inflating = 1 + threads // 2
        verifying = 1 + threads - inflating
        with closing(self.store.blob(entry.oid, inflating)) as stored:
            arriving = PieceWindows(self._counted(joined(stored)), size)
            if not is_smudged(entry.path, self.settings):
                write_all(descriptor, arriving.passing())
                return
            from wtxtgit.filter.smudge import smudge_arriving

            if smudge_arriving(descriptor, arriving, threads=verifying):
                return
        whole = self._whole(entry, threads, arriving.arrived)
        self._fill(descriptor, entry, whole, threads)

    def _counted(self, pieces: Iterator[bytes], counted: int = 0) -> Iterator[bytes]:
        for piece in pieces:
            if self.progress is not None:
                self.progress(max(0, len(piece) - counted))
            counted = max(0, counted - len(piece))
            yield piece
