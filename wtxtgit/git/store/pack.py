"""Writing a pack: blobs, each one zlib stream, and the hash over all of it.

gitformat-pack(5). A pack takes all blobs of a command: one file to write, one
index, and nothing that a later `git gc` has to gather.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from isal import isal_zlib

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.store.pack_index import Packed, format_index
from wtxtgit.git.store.places import Places
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.zlib_stream import Content, ZlibStream, write_at

FOLDER = "pack"
_MAGIC = b"PACK\x00\x00\x00\x02"
_HEAD_SIZE = 12
_BLOB = 3
_BLOCK = 1024 * 1024
_WORTH_SYNCING = 16 * 1024 * 1024
"""Bytes of an object that are brought to the disk while it is hashed, not at the end."""


class PackWriter:
    """A new pack of a repository; a context manager.

    Nothing of it stays unless `finish` was called. `expected` is the number of
    blobs that are to come; another number costs one more reading of the pack.
    """

    def __init__(self, store: ObjectStore, expected: int) -> None:
        self._store = store
        self._places = store.places
        self._expected = expected
        self._objects: list[Packed] = []
        self._known: set[bytes] = set()
        self._end = _HEAD_SIZE
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        folder = self._places.make_folder(FOLDER)
        opened = self._places.temporary(folder, "tmp_pack_")
        self._descriptor, self._path = self._closing.enter_context(opened)
        self._beside = self._closing.enter_context(ThreadPoolExecutor(2))
        self._running = _Running(self._descriptor, self._places)
        write_at(self._descriptor, _head(self._expected), 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def add(self, content: Content) -> str:
        """Write a blob, if the repository has it not yet; gives its object id."""
        start = self._end
        head = _entry_head(content.size)
        write_at(self._descriptor, head, start)
        stream = ZlibStream(self._descriptor, start + len(head), content.spans)
        content.render(stream.place)
        end = stream.finish()
        # The blob's own hash takes one core, that of the pack so far the other, and the
        # disk what was written.
        hashed = self._beside.submit(self._running.update, start, end)
        synced = None
        if end - start >= _WORTH_SYNCING:
            synced = self._beside.submit(os.fsync, self._descriptor)
        oid = blob_hash(content, self._places)
        crc32 = hashed.result()
        if synced is not None:
            synced.result()
        if oid in self._known or self._store.find(oid.hex()) is not None:
            os.ftruncate(self._descriptor, start)
            # What was hashed does not stand there any more.
            self._running.spoil()
        else:
            self._known.add(oid)
            self._objects.append(Packed(oid, start, crc32))
            self._end = end
        return oid.hex()

    def finish(self) -> None:
        """Put the pack into the repository, if there is anything in it."""
        count = len(self._objects)
        if not count:
            return
        if count != self._expected:
            self._running.spoil()
            write_at(self._descriptor, _head(count), 0)
        digest = self._running.digest(self._end)
        write_at(self._descriptor, digest, self._end)
        os.fsync(self._descriptor)
        index = format_index(self._objects, digest, self._places)
        folder = self._path.parent
        with self._places.temporary(folder, "tmp_idx_") as (descriptor, path):
            write_at(descriptor, index, 0)
            os.fsync(descriptor)
            name = f"pack-{digest.hex()}"
            # The index last: git takes a pack for there when its index is.
            self._places.put(self._path, folder / f"{name}.pack")
            self._places.put(path, folder / f"{name}.idx")


class _Running:
    """The hash over a pack as it grows; begun anew where what was hashed is not what stands."""

    def __init__(self, descriptor: int, places: Places) -> None:
        self._descriptor = descriptor
        self._places = places
        self._hash = places.new_hash()
        self._end = 0
        self._spoiled = False

    def update(self, start: int, end: int) -> int:
        """Go on to `end`; gives CRC-32 of the bytes from `start`."""
        if not self._spoiled:
            self._go_on(start)
        crc32 = 0
        for block in _blocks(self._descriptor, start, end):
            crc32 = isal_zlib.crc32(block, crc32)
            if not self._spoiled:
                self._hash.update(block)
        self._end = end
        return crc32

    def spoil(self) -> None:
        self._spoiled = True

    def digest(self, end: int) -> bytes:
        if self._spoiled:
            self._hash = self._places.new_hash()
            self._end = 0
        self._go_on(end)
        return self._hash.digest()

    def _go_on(self, end: int) -> None:
        for block in _blocks(self._descriptor, self._end, end):
            self._hash.update(block)


def blob_hash(content: Content, places: Places) -> bytes:
    """Give the object id of a content that was rendered."""
    digest = places.new_hash()
    digest.update(b"blob %d\0" % content.size)
    for data in content.stream():
        digest.update(data)
    return digest.digest()


def _head(count: int) -> bytes:
    return _MAGIC + count.to_bytes(4, "big")


def _entry_head(size: int) -> bytes:
    """Kind and size of an object: four bits of the size, then seven a byte, lowest first."""
    size, low = size >> 4, size & 0xF
    head = bytearray([_BLOB << 4 | low])
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


def _blocks(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        block = os.pread(descriptor, min(_BLOCK, end - start), start)
        if not block:
            raise EnvironmentFailure("the new pack was cut short while it was written")
        start += len(block)
        yield block
