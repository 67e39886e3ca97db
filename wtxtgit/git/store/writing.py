"""Writing blobs to the object store: many into a few packs, or one as a loose object.

gitformat-pack(5). The blobs of a command go into packs: few files to write, few indexes, and
nothing that a later `git gc` has to collect. They are dealt out to several of them because git
seeks no deltas between objects that it finds in the same pack (git-repack(1), `-f`), and versions
of a checkpoint, or its forms in several formats, are good bases for each other. A loose object is
written so that git finds it before it writes the same one itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import cycle
from threading import Thread
from typing import Self

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.store.files import PACKS, PackedObject, format_index, kept, write_failures
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.streams import ObjectContent, codec, deflated
from wtxtgit.io.view import Buffer, write_at, write_on
from wtxtgit.io.workers import in_background

_MAGIC = b"PACK\x00\x00\x00\x02"
_HEAD_SIZE = 12
_BLOB = 3
_BLOCK = 1024 * 1024
_WORTH_SYNCING = 32 * 1024 * 1024
"""Bytes after which data is synced to disk while more is made, rather than at the end."""


_PACKS = 4
"""A blob finds its likely bases, those that were written right before it, in the other three."""


class PackWriter:
    """Writes new packs of a repository; a context manager.

    Nothing remains unless `finish` is called. Until the block ends git then keeps the packs, even
    if nothing reaches their objects: a repack would drop them. `expected` is the number of blobs
    that will be added; if the number differs, packs are read once more. Raises EnvironmentFailure
    if they can't be written.
    """

    def __init__(self, store: ObjectStore, expected: int, threads: int) -> None:
        known: set[bytes] = set()
        self._packs = [
            _Pack(store, len(range(number, expected, _PACKS)), threads, known)
            for number in range(max(1, min(_PACKS, expected)))
        ]
        self._next = cycle(self._packs)
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            for pack in self._packs:
                opened.enter_context(pack)
            self._closing = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def add(self, content: ObjectContent) -> str:
        """Write a blob unless the repository has it; returns its object id."""
        return next(self._next).add(content)

    def finish(self) -> None:
        """Move the packs into the repository, but for empty ones."""
        for pack in self._packs:
            pack.finish()


class _Pack:
    """One of the packs; `known` are the ids of the blobs in all of them."""

    def __init__(self, store: ObjectStore, expected: int, threads: int, known: set[bytes]) -> None:
        self._store = store
        self._places = store.places
        self._expected = expected
        self._threads = threads
        self._objects: list[PackedObject] = []
        self._known = known
        self._hash = store.places.new_hash()
        self._end = 0
        self._crc32 = 0
        self._synced = 0
        self._syncing: Thread | None = None
        self._sync_error: OSError | None = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        opened = self._places.temporary(self._places.make_folder(PACKS), "tmp_pack_")
        self._descriptor, self._path = self._closing.enter_context(opened)
        self._put(_head(self._expected))
        return self

    def __exit__(self, *_: object) -> None:
        if self._syncing is not None:
            self._syncing.join()
        self._closing.close()

    def add(self, content: ObjectContent) -> str:
        start, before = self._end, self._hash.copy()
        digest = self._places.new_hash()
        digest.update(b"blob %d\0" % content.size)
        self._crc32 = 0
        self._put(_entry_head(content.size))
        for piece in deflated(content, self._put, self._threads):
            digest.update(piece)
        oid = digest.digest()
        # Undone: an object that the repository or this pack has is not stored again.
        if oid in self._known or self._store.keep(oid.hex()):
            os.ftruncate(self._descriptor, start)
            self._end, self._hash = start, before
        else:
            self._known.add(oid)
            self._objects.append(PackedObject(oid, start, self._crc32))
        return oid.hex()

    def finish(self) -> None:
        count = len(self._objects)
        if not count:
            return
        # gitformat-pack(5): the header, which was hashed first, has the number of objects.
        if count != self._expected:
            self._rewrite_head(count)
        digest = self._hash.digest()
        self._put(digest)
        index = format_index(self._objects, digest, self._places)
        folder = self._path.parent
        with (
            write_failures(folder),
            self._places.temporary(folder, "tmp_idx_") as (descriptor, path),
        ):
            self._end_syncing()
            os.fsync(self._descriptor)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(index)
            os.fsync(descriptor)
            name = f"pack-{digest.hex()}"
            self._closing.enter_context(kept(folder / name))
            # The index last: its presence tells git that the pack is there.
            self._places.put(self._path, folder / f"{name}.pack")
            self._places.put(path, folder / f"{name}.idx")

    def _put(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._crc32 = codec.crc32(view, self._crc32)
        with write_failures(self._path.parent):
            write_at(self._descriptor, view, self._end)
        self._end += view.nbytes
        if self._end - self._synced > _WORTH_SYNCING:
            with write_failures(self._path.parent):
                self._end_syncing()
            self._synced = self._end
            self._syncing = in_background(self._sync)

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # The system reports lost writes only once: the next fsync would succeed.
            self._sync_error = error

    def _end_syncing(self) -> None:
        if self._syncing is not None:
            self._syncing.join()
        if self._sync_error is not None:
            raise self._sync_error

    def _rewrite_head(self, count: int) -> None:
        """Write another number of objects into the header, and hash everything again."""
        self._hash = self._places.new_hash()
        os.pwrite(self._descriptor, _head(count), 0)
        place = 0
        while place < self._end:
            block = os.pread(self._descriptor, min(_BLOCK, self._end - place), place)
            if not block:
                raise EnvironmentFailure(f"{self._path}: cut short while it was written")
            self._hash.update(block)
            place += len(block)


def _head(count: int) -> bytes:
    return _MAGIC + count.to_bytes(_HEAD_SIZE - len(_MAGIC), "big")


def _entry_head(size: int) -> bytes:
    """Encode type and size of an object: four bits of the size, then seven per byte, lowest
    first.
    """
    size, low = size >> 4, size & 0xF
    head = bytearray([_BLOB << 4 | low])
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


def stored(
    store: ObjectStore,
    content: ObjectContent,
    threads: int,
    on_stored: Callable[[str], None] = lambda _oid: None,
) -> Iterator[Buffer]:
    """Yield a content's bytes in order; when all are taken it is an object of the repository.

    `on_stored` then gets the object's id. If the store can't be written the bytes are yielded all
    the same: their receiver then stores them as usual.
    """
    places = store.places
    head = b"blob %d\0" % content.size
    digest = places.new_hash()
    digest.update(head)
    with contextlib.ExitStack() as closing:
        try:
            # `tmp_obj_`: git removes such files that a dead process left, git-prune(1).
            descriptor, path = closing.enter_context(places.temporary(places.folder, "tmp_obj_"))
        except EnvironmentFailure:
            yield from content.stream()
            return
        is_whole = True

        def put(data: bytes) -> None:
            nonlocal is_whole
            if is_whole:
                try:
                    write_on(descriptor, data)
                except OSError:
                    is_whole = False

        for piece in deflated(content, put, threads, head):
            digest.update(piece)
            yield piece
        oid = digest.hexdigest()
        with contextlib.suppress(EnvironmentFailure):
            if not store.keep(oid):
                if not is_whole:
                    return
                # Complete, and under its id in one step: git never sees half an object.
                places.put(path, places.make_folder(oid[:2]) / oid[2:])
            on_stored(oid)
