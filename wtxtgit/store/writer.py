"""Adding chunks to a store: packs in the making.

Spec: `docs/spec/store.md`, sections "Folder" and "Pack". A pack that is full is brought to the disk
and gets its name while the next one is filled.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Self

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures
from wtxtgit.io.temporary import new_file, opened_folder
from wtxtgit.io.view import Buffer, ByteView, mapped, write_at
from wtxtgit.io.workers import in_background
from wtxtgit.store.encoding import Encoded, encode, encode_based, encode_moved
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.moved import MovedRows
from wtxtgit.store.pack import (
    HEAD,
    MAX_DEPTH,
    MAX_MOVED,
    NAME_SIZE,
    PREFIX,
    ROW_SIZE,
    TRAILER_SIZE,
    ChunkEntry,
    format_end,
    index_of,
)
from wtxtgit.store.reading import MAX_HELD, BaseChunk, DecodedBases, chain_of, is_whole

MAX_PACK = 64 * 1024 * 1024
"""Bytes of a pack, unless it is of one chunk."""
_READ_ONLY = 0o444
# A chunk of which more than this part is left, though it has a base, may have moved.
_MUCH = 5 / 8
_LEAST_MOVED = 4096
# Less than this part is left only of rows that moved.
_SMALL = 1 / 8


class NewPack:
    """A pack that is written. Raises EnvironmentFailure where it can't be."""

    def __init__(self, own: PackFolder) -> None:
        folder = self._folder = own.packs
        self._shared = own.shared & _READ_ONLY
        self._entries: list[ChunkEntry] = []
        self._hash = sha256()
        self._end = 0
        self._bases = 0
        with failures(folder, missing=EnvironmentFailure), contextlib.ExitStack() as closing:
            self._opened = closing.enter_context(opened_folder(folder))
            self._made = closing.enter_context(new_file(self._opened, folder, _READ_ONLY))
            self._put((HEAD,))
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Nothing stays of it unless it was finished."""
        self._closing.close()

    @property
    def names(self) -> list[bytes]:
        return [entry.name for entry in self._entries]

    @property
    def nbytes(self) -> int:
        """Bytes of it so far."""
        return self._end

    def has_room(self, length: int) -> bool:
        """Whether a chunk with so many encoded bytes may be added."""
        index = (len(self._entries) + 1) * ROW_SIZE + (self._bases + 2) * NAME_SIZE
        return not self._entries or self._end + length + index + TRAILER_SIZE <= MAX_PACK

    def add(
        self, name: bytes, encoded: Encoded, size: int, bases: tuple[bytes, ...], depth: int
    ) -> None:
        """Write a chunk, which is not there yet."""
        place = self._end
        self._put(encoded.pieces)
        length = self._end - place
        self._bases += len(bases)
        self._entries.append(
            ChunkEntry(name, place, length, size, bases, encoded.encoding, encoded.item, depth)
        )

    def finish(self) -> str:
        """Bring it to the disk, and give it its name, without the ending."""
        self._put((format_end(index_of(self._entries), self._end),))
        with failures(self._folder, missing=EnvironmentFailure):
            if self._shared:
                status = os.fstat(self._made.descriptor)
                os.fchmod(self._made.descriptor, stat.S_IMODE(status.st_mode) | self._shared)
            # Before it has the name: after a crash that would lead to an empty file.
            os.fsync(self._made.descriptor)
            name = self._hash.hexdigest()
            self._made.put(f"{name}.pack")
            # What is committed next leads to chunks that have to be found after a crash.
            os.fsync(self._opened)
        return name

    def _put(self, content: Iterable[Buffer]) -> None:
        with failures(self._folder):
            for piece in content:
                view = memoryview(piece).cast("B")
                self._hash.update(view)
                write_at(self._made.descriptor, view, self._end)
                self._end += view.nbytes


@dataclass(frozen=True, slots=True)
class BasedChunk:
    """An encoded chunk, and the others that it is decoded with."""

    encoded: Encoded
    bases: tuple[BaseChunk, ...]


class StoreWriter:
    """Adds chunks to a folder, from any thread; a context manager, by `Store.writing`.

    `held` is shared with the store's readers; `holds` tells of a name whether there is such a
    chunk, there or in an alternate.
    """

    def __init__(self, own: PackFolder, held: DecodedBases, holds: Callable[[bytes], bool]) -> None:
        self._own = own
        self._held = held
        self._holds = holds
        self._folder = own.packs
        self._lock = Lock()
        # Chunks that are not in a pack with a name yet.
        self._begun: set[bytes] = set()
        self._pack: NewPack | None = None
        self._finishing: _Finishing | None = None
        self._moved = MovedRows(own, held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock, contextlib.ExitStack() as closing:
            if self._pack is not None:
                closing.callback(self._pack.close)
            if self._finishing is not None:
                closing.callback(self._end_finishing)

    def put(self, name: bytes, data: ByteView, item_size: int, base: bytes | None = None) -> None:
        """Add a chunk unless it is there: `name` is the SHA-256 of `data`.

        Its items have `item_size` bytes. `base` names a chunk that may be much the same: the one
        at the same place of the version before. Raises EnvironmentFailure.
        """
        if len(name) != NAME_SIZE:
            raise ValueError(f"a chunk's name has {NAME_SIZE} bytes, not {len(name)}")
        with self._lock:
            if name in self._begun or self._holds(name):
                return
            self._begun.add(name)
        try:
            # Without the lock: this is what takes time.
            made = self._encoded(data, item_size, base)
            with self._lock:
                self._add(name, made, len(data))
        except BaseException:
            with self._lock:
                self._begun.discard(name)
            raise

    def _encoded(self, data: ByteView, item: int, base: bytes | None) -> BasedChunk:
        chain = [] if base is None else self._chain(base, len(data))
        encoded, number = encode_based(data, item, [base.data for base in chain])
        if number is not None and not is_whole(chain[number]):
            encoded, number = encode(data, item), None
        best = BasedChunk(encoded, () if number is None else (chain[number],))
        if encoded.length > _MUCH * len(data) and _LEAST_MOVED < len(data) <= MAX_MOVED:
            best = self._moved_from(mapped(data), item, base, best)
        return best

    def _chain(self, base: bytes, size: int) -> list[BaseChunk]:
        """What a chunk may be the XOR with: its base, and those that this is the XOR with.

        A step of fine-tuning is about as near to the first version as to the last one, and chains
        stay short so. Rows that changed are nearer to the last one.
        """
        chain = [base for base in chain_of(self._own, base, self._held) if base.data.size == size]
        # What has changed little so many times is still much like the first one; and large ones
        # are not kept, each would have to be decoded again.
        is_long = chain and chain[-1].depth == MAX_DEPTH
        return chain[:1] if is_long else chain if size <= MAX_HELD else chain[-1:]

    def _moved_from(
        self, data: memoryview, item: int, base: bytes | None, best: BasedChunk
    ) -> BasedChunk:
        """The chunk as what is in others, where that is smaller."""
        sources = self._moved.sources(data, item, base)
        if not sources:
            return best
        for bases in (*self._moved.behind(sources), sources):
            if bases and max(base.depth for base in bases) < MAX_DEPTH:
                moved = encode_moved(data, [base.data for base in bases])
                if moved.encoding == PREFIX and moved.length < best.encoded.length:
                    best = BasedChunk(moved, tuple(bases))
                    if moved.length < len(data) * _SMALL:
                        break
        return best

    def finish(self) -> None:
        """See that all chunks are in packs that have their names, and on the disk."""
        with self._lock:
            self._close_pack()
            self._end_finishing()

    def _add(self, name: bytes, made: BasedChunk, size: int) -> None:
        if self._pack is not None and not self._pack.has_room(made.encoded.length):
            self._close_pack()
        if self._pack is None:
            with failures(self._folder, missing=EnvironmentFailure):
                self._own.make()
            self._pack = NewPack(self._own)
        bases = tuple(base.name for base in made.bases)
        depth = max((base.depth + 1 for base in made.bases), default=0)
        self._pack.add(name, made.encoded, size, bases, depth)

    def _close_pack(self) -> None:
        """Have the pack finished while the next one is filled."""
        self._end_finishing()
        if self._pack is not None:
            self._finishing, self._pack = _Finishing(self._pack), None

    def _end_finishing(self) -> None:
        """Wait for the pack before; raises what went wrong with it."""
        if self._finishing is not None:
            finishing, self._finishing = self._finishing, None
            finishing.end()
            self._own.refresh()
            self._begun.difference_update(finishing.pack.names)


class _Finishing:
    """A pack that is being finished, on a thread if there is one to have."""

    def __init__(self, pack: NewPack) -> None:
        self.pack = pack
        self._error: BaseException | None = None
        self._thread = in_background(self._run)
        if self._thread is None:
            self._run()

    def end(self) -> None:
        """Wait for it; raises what went wrong."""
        if self._thread is not None:
            self._thread.join()
        self.pack.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.pack.finish()
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
