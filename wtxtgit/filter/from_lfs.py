"""Turning objects that git-lfs has fetched into detached texts, without a checkout.

The payload of each goes to the store, and the text to git, as a blob that nothing refers to yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wtxtgit.filter.clean import clean, clean_keeping
from wtxtgit.filter.payload import keeping
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.history import resolve_commit
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.streams import PlainContent
from wtxtgit.git.store.writing import PackWriter
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.io.workers import default_threads
from wtxtgit.remotes.lfs_objects import LfsObjects
from wtxtgit.remotes.lfs_pointer import LfsObject, pointed_of
from wtxtgit.remotes.payload.detached_texts import blobs_of_commits, blobs_of_tree
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
    written.
    """
    store = store_of(repo)
    found = _pointers(repo, revisions, paths, with_history=with_history)
    before = dict(store.own.names)
    imported: list[ImportedObject] = []
    lacking: list[LackingObject] = []
    others = 0
    held = LfsObjects(repo)
    expect(progress, sum(wanted.nbytes for wanted in found), len(found))
    with (
        ObjectStore(repo) as objects,
        PackWriter(objects, len(found), threads or default_threads()) as pack,
    ):
        work = _Importing(repo, pack, threads, progress)
        for wanted, path in found.items():
            content, why = held.checked(wanted)
            if content is None:
                lacking.append(LackingObject(path, *wanted, why))
            elif not paths and clean(content, threads=threads).reason is not None:
                others += 1
            elif dry_run:
                imported.append(ImportedObject(path, *wanted))
            else:
                imported.append(work.take(wanted, path, content))
            finish_file(progress)
        pack.finish()
    store.refresh()
    added = {name: size for name, size in store.own.names.items() if name not in before}
    return StoreImported(store.folder, tuple(imported), tuple(lacking), others, sum(added.values()))


class _Importing:
    def __init__(
        self, repo: Repository, pack: PackWriter, threads: int | None, progress: Progress | None
    ) -> None:
        self._repo = repo
        self._pack = pack
        self._threads = threads
        self._progress = progress
        self._before: tuple[bytes, ByteView] | None = None

    def take(self, wanted: LfsObject, path: bytes, content: ByteView) -> ImportedObject:
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
        return ImportedObject(path, *wanted, oid, is_detached(text))

    def _text_before(self, path: bytes) -> ByteView | None:
        return self._before[1] if self._before is not None and self._before[0] == path else None


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
    sizes = known_sizes(repo, blobs) if blobs else {}
    found: dict[bytes, list[LfsObject]] = {}
    for oid, to in pointed_of(repo, sizes).items():
        found.setdefault(blobs[oid], []).append(to)
    ordered: dict[LfsObject, bytes] = {}
    for path, objects in found.items():
        for wanted in objects:
            ordered.setdefault(wanted, path)
    return ordered
