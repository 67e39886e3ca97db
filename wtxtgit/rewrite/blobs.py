"""Makes new blobs from old ones, each once, and proves each by restoring the old one from it.

All of them go into packs that no ref reaches until the migration is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Protocol

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.filter.clean import clean, clean_keeping
from wtxtgit.filter.payload import keeping
from wtxtgit.filter.smudge import smudge
from wtxtgit.git.repository import DETACHED_DRIVER, Repository
from wtxtgit.git.store.reader import BlobHead, ObjectStore
from wtxtgit.git.store.streams import PlainContent
from wtxtgit.git.store.writing import PackWriter
from wtxtgit.io.files import shown_path
from wtxtgit.io.progress import Progress, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, hashed, pieces
from wtxtgit.io.workers import default_threads
from wtxtgit.remotes.lfs_objects import LfsObjects
from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer, parse_pointer
from wtxtgit.remotes.payload.on_demand import FetchedPayload
from wtxtgit.report.migrate import MigratedBlobs, VersionLeft
from wtxtgit.rewrite.migrations import LFS
from wtxtgit.rewrite.walk import FileVersion
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import MOST_ATTACHED, is_detached, is_text


class Form(Protocol):
    """Returns the new content of a blob; None if it stays as it is."""

    def __call__(self, version: FileVersion, path: bytes, content: ByteView) -> ByteView | None: ...

    def leaves(self, version: FileVersion, blob: BlobHead) -> bool:
        """Whether a blob stays as it is, judged only by its beginning."""

    def finish(self) -> None:
        """Do what is left to do after all blobs are made."""


@dataclass
class NewBlobs:
    """The blobs of a migration: `ids` by version, and totals of all of them."""

    ids: dict[FileVersion, str] = field(default_factory=dict)
    converted: int = 0
    before: int = 0
    after: int = 0
    left: list[VersionLeft] = field(default_factory=list)

    def report(self) -> MigratedBlobs:
        return MigratedBlobs(self.converted, self.before, self.after, tuple(self.left))


@contextlib.contextmanager
def make_blobs(
    repo: Repository,
    versions: Mapping[FileVersion, bytes],
    attribute_files: Mapping[str, bytes],
    form: Form,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Iterator[NewBlobs]:
    """Make the new blobs of versions, each given with a path, and write those in `attribute_files`.

    Until the end of the block git keeps them, although nothing reaches them. Raises CheckError if
    one can't be proved; then no object has been added.
    """
    new_blobs = NewBlobs()
    expected = len(versions) + len(attribute_files)
    with (
        store_of(repo).own.leased(),
        ObjectStore(repo) as store,
        PackWriter(store, expected, threads or default_threads()) as pack,
    ):
        for version, path in versions.items():
            content = spooled(store.blob(version.oid, threads or default_threads()))
            converted = form(version, path, content)
            if converted is None:
                new_blobs.ids[version] = version.oid
                if is_text(content):
                    new_blobs.left.append(VersionLeft(path, version.oid))
            else:
                new_blobs.ids[version] = pack.add(PlainContent(converted))
                new_blobs.converted += 1
                new_blobs.before += len(content)
                new_blobs.after += len(converted)
            if progress is not None:
                progress(len(content))
            finish_file(progress)
        form.finish()
        for oid, lines in attribute_files.items():
            if pack.add(PlainContent(memoryview(lines))) != oid:
                raise EnvironmentFailure(f"a gitattributes file became another blob than {oid}")
        pack.finish()
        yield new_blobs


class ToTexts:
    """Files, and objects of git-lfs, become texts; texts stay."""

    def __init__(self, repo: Repository, *, threads: int | None = None) -> None:
        self._repo = repo
        self._threads = threads
        self._objects = LfsObjects(repo)
        self._payload = FetchedPayload.of(repo)
        self._last: tuple[bytes, ByteView] | None = None

    def leaves(self, version: FileVersion, blob: BlobHead) -> bool:
        # An empty file has no text, and an existing text is in the form that somebody chose.
        return not blob.size or is_text(blob.head)

    def finish(self) -> None:
        """Join small packs: each detached version has its own, so that the next can refer to it."""
        store_of(self._repo).join_small()

    def __call__(self, version: FileVersion, path: bytes, content: ByteView) -> ByteView | None:
        lfs_object = parse_pointer(content)
        detached = version.form == DETACHED_DRIVER
        if lfs_object is not None:
            content = self._file(self._object(lfs_object, path), detached=detached)
        # What has no text, or is one already, is stored itself, never as a pointer.
        if is_text(content):
            return content
        if detached:
            keep = partial(keeping, self._repo, lambda: self._text_before(path))
            cleaned = clean_keeping(content, keep, threads=self._threads)
        else:
            cleaned = clean(content, threads=self._threads)
        if cleaned.writer is None:
            return None if lfs_object is None else content
        text = spooled(cleaned.pieces())
        self._prove(content, text, path, version)
        if is_detached(text):
            self._last = path, text
        return text

    def _file(self, content: ByteView, *, detached: bool) -> ByteView:
        """Return the file of an object of git-lfs that is a text, unless the text can stay.

        `git lfs migrate import` makes objects of texts. One in the form of its driver stays as it
        is, and so does one whose file can't be had.
        """
        is_other = is_detached(content) != detached and (
            not detached or len(content) > MOST_ATTACHED
        )
        if not (is_text(content) and is_other):
            return content
        restored = smudge(content, threads=self._threads, payload=lambda: self._payload)
        return spooled(restored.pieces())

    def _object(self, lfs_object: LfsObject, path: bytes) -> ByteView:
        content, fault = self._objects.checked(lfs_object)
        if content is None:
            # It was found and checked before the migration began, so it has changed since.
            raise CheckError(f"{shown_path(path)}: {lfs_object.sha256[:12]}: {fault}")
        return content

    def _prove(self, content: ByteView, text: ByteView, path: bytes, version: FileVersion) -> None:
        restored = smudge(text, threads=self._threads, payload=lambda: self._payload)
        if restored.layout is None or _digest(restored.pieces()) != _digest(pieces(content)):
            raise CheckError(
                f"{shown_path(path)}: blob {version.oid} differs from what its text restores to",
                hint="no ref was moved; please report this as a bug",
            )

    def _text_before(self, path: bytes) -> ByteView | None:
        return self._last[1] if self._last is not None and self._last[0] == path else None


class FromTexts:
    """Texts become files, or pointers to objects that git-lfs then has."""

    def __init__(self, repo: Repository, *, threads: int | None = None) -> None:
        self._repo = repo
        self._threads = threads
        self._objects = LfsObjects(repo)
        self._payload = FetchedPayload.of(repo)

    def leaves(self, version: FileVersion, blob: BlobHead) -> bool:
        if version.form == LFS:
            is_whole = blob.size == len(blob.head)
            return not blob.size or (is_whole and parse_pointer(blob.head) is not None)
        return not is_text(blob.head)

    def finish(self) -> None:
        """Do nothing: versions are independent of each other."""

    def __call__(self, version: FileVersion, path: bytes, content: ByteView) -> ByteView | None:
        # Everything that is not a text stays, except files that git-lfs is to have.
        file = spooled(self._restored(path, content)) if is_text(content) else content
        if version.form == LFS:
            if not len(file) or is_text(file) or parse_pointer(file) is not None:
                return None
            return memoryview(format_pointer(self._objects.put(file)))
        return None if file is content or is_text(file) else file

    def _restored(self, path: bytes, content: ByteView) -> Iterable[Buffer]:
        restored = smudge(content, threads=self._threads, payload=lambda: self._payload)
        if restored.lacks_payload or restored.damaged_payload:
            name = self._repo.quoted(path)
            raise CheckError(
                f"{shown_path(path)}: {restored.warning}",
                hint=f"wtxtgit fetch $(git rev-list --all -- {name}) -- {name} fetches its data "
                f"for all commits; no ref was moved",
            )
        return restored.pieces()


def _digest(blocks: Iterable[Buffer]) -> bytes:
    return hashed(sha256(), blocks).digest()
