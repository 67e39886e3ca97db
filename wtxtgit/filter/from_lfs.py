"""Objects of git-lfs that become texts of ours, and files of the work tree.

`import_objects` needs no checkout: the payload of each goes to the store, and the text to git, as a
blob that nothing refers to yet. `write_pointed` writes the files whose pointers stand in the work
tree, which `git lfs pull` leaves alone where the filter is ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from wtxtgit.errors import UsageError
from wtxtgit.filter.clean import clean, clean_keeping
from wtxtgit.filter.payload import keeping
from wtxtgit.filter.smudge import smudge
from wtxtgit.filter.status import filtered
from wtxtgit.git import index, work_tree
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.history import resolve_commit
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.streams import PlainContent
from wtxtgit.git.store.writing import PackWriter
from wtxtgit.git.trees import TreeEntry
from wtxtgit.git.work_tree import Moment
from wtxtgit.io.files import reason
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, write_all
from wtxtgit.io.workers import default_threads
from wtxtgit.remotes.lfs_objects import LfsObjects
from wtxtgit.remotes.lfs_pointer import MOST_POINTER, LfsObject, parse_pointer, pointed_of
from wtxtgit.remotes.payload.detached_texts import blobs_of_commits, blobs_of_tree
from wtxtgit.remotes.payload.on_demand import FetchedPayload
from wtxtgit.report.store import ImportedObject, LackingObject, StoreImported
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import is_detached


def import_objects(
    repo: Repository,
    revisions: Sequence[str],
    paths: Sequence[bytes] = (),
    *,
    with_history: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> StoreImported:
    """Import the objects of the pointers in revisions, or in all commits that they reach.

    `paths` are files and folders from the top level; without any, all are imported except what is
    no checkpoint. What is missing is reported, and does not stop the others. Raises
    EnvironmentFailure for revisions that name nothing, and if the store or git's folder can't be
    written, UsageError for paths at which there is nothing.
    """
    store = store_of(repo)
    pointed = _pointers(repo, revisions, paths, with_history=with_history)
    before = dict(store.own.names)
    imported: list[ImportedObject] = []
    lacking: list[LackingObject] = []
    others = 0
    lfs = LfsObjects(repo)
    expect(progress, sum(pointer.nbytes for pointer in pointed), len(pointed))
    with (
        ObjectStore(repo) as objects,
        PackWriter(objects, len(pointed), threads or default_threads()) as pack,
    ):
        work = _Importing(repo, pack, threads, progress)
        for pointer, path in pointed.items():
            content, why = lfs.checked(pointer)
            if content is None:
                lacking.append(LackingObject(path, *pointer, why))
            elif not paths and clean(content, threads=threads).reason is not None:
                others += 1
            elif dry_run:
                imported.append(ImportedObject(path, *pointer))
            else:
                imported.append(work.take(pointer, path, content))
            finish_file(progress)
        pack.finish()
    store.refresh()
    added = {name: size for name, size in store.own.names.items() if name not in before}
    return StoreImported(store.folder, tuple(imported), tuple(lacking), others, sum(added.values()))


@dataclass(frozen=True, slots=True)
class PointedFiles:
    """Files that stood as pointers: those that were written, objects that could not be obtained,
    why if the server told, and files that could not be written.
    """

    written: tuple[bytes, ...]
    lacking: tuple[LackingObject, ...]
    why: str | None
    failed: tuple[tuple[bytes, str], ...]


class _Importing:
    def __init__(
        self, repo: Repository, pack: PackWriter, threads: int | None, progress: Progress | None
    ) -> None:
        self._repo = repo
        self._pack = pack
        self._threads = threads
        self._progress = progress
        self._before: tuple[bytes, ByteView] | None = None

    def take(self, pointer: LfsObject, path: bytes, content: ByteView) -> ImportedObject:
        """Put the payload into the store, and the text into git."""
        cleaned = clean_keeping(
            content,
            partial(keeping, self._repo, lambda: self._text_before(path)),
            threads=self._threads,
            progress=self._progress,
        )
        text = spooled(cleaned.pieces())
        oid = self._pack.add(PlainContent(text))
        if is_detached(text):
            self._before = path, text
        return ImportedObject(path, *pointer, oid, is_detached(text))

    def _text_before(self, path: bytes) -> ByteView | None:
        return self._before[1] if self._before is not None and self._before[0] == path else None


def write_pointed(
    repo: Repository,
    pathspecs: Sequence[str] = (),
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PointedFiles:
    """Write each file of ours that stands in the work tree as a pointer of git-lfs.

    Objects that are not here are fetched from the remote. Pathspecs are relative to the folder of
    the repository's prefix. What can't be obtained or written is reported, and does not stop the
    others.
    """
    pointers = list(_pointer_files(repo, pathspecs))
    if pointers:
        expect(progress, sum(to.nbytes for _, to, _ in pointers), len(pointers))
    objects = LfsObjects(repo)
    contents = {to: objects.checked(to) for _, to, _ in pointers}
    lacks = [to for to, (content, _) in contents.items() if content is None]
    why = None
    if lacks and not dry_run:
        why = objects.fetch(lacks)
        contents.update({to: objects.checked(to) for to in lacks})
    written: list[bytes] = []
    lacking: list[LackingObject] = []
    failed: list[tuple[bytes, str]] = []
    for entry, to, last_change in pointers:
        content, problem = contents[to]
        if content is None:
            lacking.append(LackingObject(entry.path, *to, problem))
        elif not dry_run:
            try:
                work_tree.write_file(
                    repo.worktree,
                    entry.path,
                    is_executable=entry.mode == work_tree.EXECUTABLE,
                    write=partial(write_all, content=_file_pieces(repo, content)),
                    replaces=last_change,
                )
            except OSError as error:
                failed.append((entry.path, reason(error)))
            else:
                written.append(entry.path)
        if progress is not None:
            progress(to.nbytes)
        finish_file(progress)
    return PointedFiles(tuple(written), tuple(lacking), why, tuple(failed))


def _file_pieces(repo: Repository, content: ByteView) -> Iterable[Buffer]:
    """Return the file of an object: the object itself, or what it restores to if it is a text."""
    return smudge(content, payload=lambda: FetchedPayload.of(repo)).pieces()


def _pointer_files(
    repo: Repository, pathspecs: Sequence[str]
) -> Iterator[tuple[TreeEntry, LfsObject, Moment | None]]:
    """Yield files of ours that are pointers, what they point to, and when they were written."""
    listed = index.entries(repo, pathspecs)
    for entry in filtered(repo, [e for e in listed if not (e.stage or e.skipped)]):
        # Before the file is read, so that a later write is noticed.
        last_change = work_tree.moment(repo.worktree, entry.path)
        if not 0 < (work_tree.file_size(repo.file(entry.path)) or 0) <= MOST_POINTER:
            continue
        with suppress(OSError):
            head = work_tree.file_head(repo.file(entry.path))
            if head is not None and (to := parse_pointer(head)) is not None:
                yield entry, to, last_change


def _pointers(
    repo: Repository, revisions: Sequence[str], paths: Sequence[bytes], *, with_history: bool
) -> dict[LfsObject, bytes]:
    """Return objects by their pointers, each with a path; grouped by path, oldest first."""
    blobs: dict[str, bytes] = {}
    if with_history:
        tips = [resolve_commit(repo, revision) for revision in revisions]
        blobs = blobs_of_commits(repo, tips, paths=paths)
    else:
        for revision in revisions:
            blobs.update(blobs_of_tree(repo, revision, paths))
    if paths and not blobs:
        places = " ".join(ascii(os.fsdecode(path)) for path in paths)
        raise UsageError(f"no file of {' '.join(map(ascii, revisions))} matches {places}")
    sizes = known_sizes(repo, blobs) if blobs else {}
    by_path: dict[bytes, list[LfsObject]] = {}
    for oid, to in pointed_of(repo, sizes).items():
        by_path.setdefault(blobs[oid], []).append(to)
    ordered: dict[LfsObject, bytes] = {}
    for path, objects in by_path.items():
        for pointer in objects:
            ordered.setdefault(pointer, path)
    return ordered
