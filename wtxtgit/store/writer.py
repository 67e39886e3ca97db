"""Adding chunks to a store, by writing packs.

Spec: `docs/spec/store.md`, sections "Folder" and "Pack". A full pack is synced to disk and gets its
name while the next one is filled.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Self

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures
from wtxtgit.io.temporary import new_file, opened_folder
from wtxtgit.io.view import Buffer, ByteView, mapped, same_bytes, write_at
from wtxtgit.io.workers import in_background
from wtxtgit.store.encoding import (
    Bytes,
    Encoded,
    NoisyGroups,
    distances,
    encode,
    encode_based,
    encode_moved,
    first_near,
    grouped_chunks,
)
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
    ChunkIndex,
    format_end,
    index_of,
)
from wtxtgit.store.reading import (
    MAX_HELD,
    BaseChunk,
    ChunkReading,
    DecodedBases,
    chain_of,
    held_bases,
    is_whole,
    run_of,
)

MAX_PACK = 64 * 1024 * 1024
"""Most bytes of a pack, unless it has a single chunk."""
MOST_CHUNKS = 16 * 1024
"""Most chunks of a pack: of each, some hundred bytes are held until the pack is written."""
_READ_ONLY = 0o444
# Bytes that are written together, and the most that wait.
_SOON, _MOST_WAITING = 512 * 1024, 4 * 1024 * 1024
_TOGETHER = 32
# A chunk that keeps more than this fraction of its size, though it has a base, may have moved.
_MUCH = 5 / 8
_LEAST_MOVED = 4096
# Only rows that moved shrink below this fraction.
_SMALL = 1 / 8
# A base may be so much farther away if adjacent chunks use it.
_AS_GOOD = 1.1


class NewPack:
    """A pack that is being written. Raises EnvironmentFailure if it can't be.

    One thread at a time may add to it or finish it; any thread may call `write` meanwhile.
    """

    def __init__(self, own: PackFolder) -> None:
        folder = self._folder = own.packs
        self._shared = own.shared & _READ_ONLY
        self._entries: list[ChunkEntry] = []
        self._hash = sha256()
        # The end including waiting chunks, and without them.
        self._end = self._written = 0
        self._waiting: deque[bytes] = deque()
        self._writing = Lock()
        self._error: BaseException | None = None
        self._bases = 0
        self._unused: tuple[bytes, ...] = ()
        self.index: ChunkIndex
        """Its index, once it is finished."""
        with failures(folder, missing=EnvironmentFailure), contextlib.ExitStack() as closing:
            self._opened = closing.enter_context(opened_folder(folder))
            self._file = closing.enter_context(new_file(self._opened, folder, _READ_ONLY))
            self._wait(HEAD)
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Discard the pack, unless it was finished."""
        self._closing.close()

    @property
    def entries(self) -> Sequence[ChunkEntry]:
        return self._entries

    @property
    def names(self) -> list[bytes]:
        return [entry.name for entry in self._entries]

    @property
    def nbytes(self) -> int:
        """Its size so far."""
        return self._end

    @property
    def is_small(self) -> bool:
        """Whether a pack of as many bytes and chunks more has room."""
        return self._end < MAX_PACK // 2 and len(self._entries) < MOST_CHUNKS // 2

    def has_room(self, length: int, chunks: int = 1) -> bool:
        """Tell whether chunks with this encoded size may be added."""
        count = len(self._entries) + chunks
        index = count * ROW_SIZE + (self._bases + 2 * chunks) * NAME_SIZE
        end = self._end + length + index + TRAILER_SIZE
        return count == chunks or (count <= MOST_CHUNKS and end <= MAX_PACK)

    def add(
        self, name: bytes, encoded: Encoded, size: int, bases: tuple[bytes, ...], depth: int
    ) -> None:
        """Add a chunk that is not there yet; small ones are collected and written together."""
        place = self._end
        if encoded.length > _SOON:
            self._put(encoded.pieces)
        else:
            # A copy, unless the bytes are ours.
            self._wait(b"".join(encoded.pieces))
            if self._end - self._written >= _MOST_WAITING:
                self._put(())
        length = self._end - place
        self._bases += len(bases)
        self._entries.append(
            ChunkEntry(name, place, length, size, bases, encoded.encoding, encoded.item, depth)
        )

    def add_as_it_is(self, entry: ChunkEntry, encoded: Iterable[Buffer]) -> None:
        """Add a chunk with the encoding that it has in another pack; `encoded` are its bytes
        there.
        """
        chunk = Encoded(encoded, entry.encoding, entry.item, entry.length)
        self.add(entry.name, chunk, entry.size, entry.bases, entry.depth)

    def add_all(self, entries: Sequence[ChunkEntry], encoded: memoryview) -> None:
        """Add all chunks of another pack; `encoded` are its bytes between head and index."""
        moved = self._end - len(HEAD)
        self._put((encoded,))
        for entry in entries:
            self._bases += len(entry.bases)
            self._entries.append(entry._replace(place=entry.place + moved))

    def rename(self) -> None:
        """Have a name that no other pack with these chunks has: it lists a base that none uses."""
        self._unused = (os.urandom(NAME_SIZE),)

    def write(self) -> None:
        """Write waiting chunks if there are enough and no other thread does.

        Others may go on adding.
        """
        if self._end - self._written >= _SOON and self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def finish(self, time: float | None = None) -> str:
        """Sync the pack to disk and give it its name; returns the name without ending.

        `time` is when its chunks were added, if that was not now.
        """
        self.index = index_of(self._entries, self._unused)
        self._wait(format_end(self.index, self._end))
        self._put(())
        if self._error is not None:
            # Something that should have been written is lost.
            raise self._error
        with failures(self._folder, missing=EnvironmentFailure):
            if self._shared:
                status = os.fstat(self._file.descriptor)
                os.fchmod(self._file.descriptor, stat.S_IMODE(status.st_mode) | self._shared)
            if time is not None:
                os.utime(self._file.descriptor, (time, time))
            # Synced before it gets its name: after a crash the name could lead to an empty file.
            os.fsync(self._file.descriptor)
            name = self._hash.hexdigest()
            self._file.put(f"{name}.pack")
            # What is committed next refers to chunks that must be there after a crash.
            os.fsync(self._opened)
        return name

    def _wait(self, content: bytes) -> None:
        """Have bytes written with those that follow."""
        self._waiting.append(content)
        self._end += len(content)

    def _put(self, content: Iterable[Buffer]) -> None:
        with self._writing:
            self._write()
            for piece in content:
                self._end += self._append(memoryview(piece).cast("B"))

    def _write(self) -> None:
        """Write waiting chunks, some at a time, because each call may wait for the interpreter."""
        while self._waiting:
            batch = [self._waiting.popleft()]
            while self._waiting and len(batch) < _TOGETHER:
                batch.append(self._waiting.popleft())
            self._append(memoryview(b"".join(batch)))

    def _append(self, content: memoryview) -> int:
        try:
            with failures(self._folder):
                self._hash.update(content)
                write_at(self._file.descriptor, content, self._written)
        except BaseException as error:
            self._error = self._error or error
            raise
        self._written += content.nbytes
        return content.nbytes


@dataclass(frozen=True, slots=True)
class BasedChunk:
    """An encoded chunk, and the chunks that it is decoded from."""

    encoded: Encoded
    bases: tuple[BaseChunk, ...]


class StoreWriter:
    """Adds chunks to a folder, from any thread; a context manager, used by `Store.writing`.

    `cache` is shared with the store's readers; `borrowed` are the folders of alternates.
    """

    def __init__(
        self, own: PackFolder, cache: DecodedBases, borrowed: Sequence[PackFolder]
    ) -> None:
        self._own = own
        self._cache = cache
        self._borrowed = borrowed
        self._folder = own.packs
        self._lock = Lock()
        # Chunks that are not yet in a pack with a name.
        self._begun: set[bytes] = set()
        self._pack: NewPack | None = None
        self._finishing: _Finishing | None = None
        self._moved = MovedRows(own, cache)
        self._adding = contextlib.ExitStack()
        self._is_adding = False

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock, self._adding, contextlib.ExitStack() as closing:
            if self._pack is not None:
                closing.callback(self._pack.close)
            if self._finishing is not None:
                closing.callback(self._end_finishing)

    def _begin(self) -> None:
        """Prevent chunks from being dropped, once there is a folder."""
        if not self._is_adding and self._folder.is_dir():
            self._adding.enter_context(self._own.adding())
            self._is_adding = True

    def put(self, name: bytes, data: ByteView, item_size: int, base: bytes | None = None) -> None:
        """Add a chunk unless it is there, and intact; `name` is the SHA-256 of `data`.

        Its items have `item_size` bytes. `base` names a chunk that may be similar: the one at the
        same place in the version before. Raises EnvironmentFailure.
        """
        if len(name) != NAME_SIZE:
            raise ValueError(f"a chunk's name has {NAME_SIZE} bytes, not {len(name)}")
        self.put_all([name], data, len(data), item_size, [base])

    def put_all(
        self,
        names: Sequence[bytes],
        data: ByteView,
        size: int,
        item_size: int,
        bases: Sequence[bytes | None],
    ) -> None:
        """Add adjacent chunks of `size` bytes in `data`, each as `put` does."""
        with self._lock:
            new = {name: k for k, name in enumerate(names) if name not in self._begun}
            present = {name: k for name, k in new.items() if self._is_there(name)}
            added = {name: k for name, k in new.items() if name not in present}
            self._begun.update(added)
        if present:
            # Without the lock, because chunks are decoded here.
            damaged = self._damaged(present, data, size)
            with self._lock:
                again = {name: k for name, k in damaged.items() if name not in self._begun}
                self._begun.update(again)
            added |= again
        try:
            # Without the lock, because this takes the most time.
            groups = grouped_chunks(data, size, item_size) if len(added) > 1 else None
            base_names = [base for k in added.values() if (base := bases[k]) is not None]
            cache, whole = (
                held_bases(self._own, base_names, size) if base_names else (self._cache, set())
            )
            chains = {
                k: self._chain(base, size, cache)
                for k in added.values()
                if (base := bases[k]) is not None
            }
            chosen = {} if groups is None else _chosen(groups, chains)
            noisy: NoisyGroups = set()
            encoded = []
            for name, k in added.items():
                chunk = data[k * size : (k + 1) * size]
                group = None if groups is None else groups[:, k]
                chain = chains.get(k, [])
                encoded_chunk = self._encoded(
                    chunk, item_size, bases[k], chain, whole, group, noisy, chosen.get(k)
                )
                encoded.append((name, encoded_chunk))
            with self._lock:
                packs = {self._add(name, chunk, size) for name, chunk in encoded}
            for pack in packs:
                pack.write()
        except BaseException:
            with self._lock:
                self._begun.difference_update(added)
            raise

    def _is_there(self, name: bytes) -> bool:
        return self._own.use(name) or any(folder.holds(name) for folder in self._borrowed)

    def _damaged(self, present: Mapping[bytes, int], data: ByteView, size: int) -> dict[bytes, int]:
        """Return those of some chunks of `data` of which no copy matches its name.

        The file may be the last copy of them: whoever can write to the store is not trusted.
        """
        folders = (self._own, *self._borrowed)
        run = run_of(folders, list(present), size, self._cache)
        if run is not None and all(
            same_bytes(chunk, data[present[name] * size : (present[name] + 1) * size])
            for name, chunk in run.chunks(list(present))
        ):
            return {}
        reading = ChunkReading(folders, self._cache)
        return {name: k for name, k in present.items() if reading.chunk(name, size) is None}

    def _encoded(
        self,
        data: ByteView,
        item: int,
        base: bytes | None,
        chain: Sequence[BaseChunk],
        whole: Collection[bytes],
        groups: Bytes | None,
        noisy: NoisyGroups,
        nearest: int | None,
    ) -> BasedChunk:
        """Encode a chunk: by itself, by one of `chain`, or as rows that moved from other chunks."""
        # This version by itself would be about as large as the first one was.
        alone = chain[0].length if chain and not chain[0].depth else None
        encoded, number = encode_based(
            data, item, [base.data for base in chain], alone, groups, noisy, nearest
        )
        if number is not None and chain[number].name not in whole and not is_whole(chain[number]):
            encoded, number = encode(data, item), None
        best = BasedChunk(encoded, () if number is None else (chain[number],))
        if encoded.length > _MUCH * len(data) and _LEAST_MOVED < len(data) <= MAX_MOVED:
            best = self._moved_from(mapped(data), item, base, best)
        return best

    def _chain(self, base: bytes, size: int, cache: DecodedBases) -> list[BaseChunk]:
        """Return what a chunk may be the XOR with: its base, and the chain of that one's XOR bases.

        A step of fine-tuning is about as near to the first version as to the last one, and using
        the first keeps chains short. Rows that changed are nearer to the last one.
        """
        chain = [base for base in chain_of(self._own, base, cache) if base.data.size == size]
        # After so many small changes a chunk is still similar to the first version. Large chunks
        # are not cached, so each base would have to be decoded again.
        is_long = chain and chain[-1].depth == MAX_DEPTH
        return chain[:1] if is_long else chain if size <= MAX_HELD else chain[-1:]

    def _moved_from(
        self, data: memoryview, item: int, base: bytes | None, best: BasedChunk
    ) -> BasedChunk:
        """Return the chunk encoded as bytes of other chunks, if that is smaller."""
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
        """Make sure that all chunks are in packs that have their names and are on disk."""
        with self._lock:
            self._end_finishing()
            if self._pack is not None:
                pack, self._pack = self._pack, None
                with contextlib.closing(pack):
                    self._take_note(pack, pack.finish())

    def _add(self, name: bytes, chunk: BasedChunk, size: int) -> NewPack:
        if self._pack is not None and not self._pack.has_room(chunk.encoded.length):
            self._close_pack()
        if self._pack is None:
            with failures(self._folder, missing=EnvironmentFailure):
                self._own.make()
            self._begin()
            self._pack = NewPack(self._own)
        bases = tuple(base.name for base in chunk.bases)
        depth = max((base.depth + 1 for base in chunk.bases), default=0)
        self._pack.add(name, chunk.encoded, size, bases, depth)
        return self._pack

    def _close_pack(self) -> None:
        """Finish the current pack in the background, while the next one is filled."""
        self._end_finishing()
        if self._pack is not None:
            self._finishing, self._pack = _Finishing(self._pack), None

    def _end_finishing(self) -> None:
        """Wait until the previous pack is finished; raises its errors."""
        if self._finishing is not None:
            finishing, self._finishing = self._finishing, None
            self._take_note(finishing.pack, finishing.end())

    def _take_note(self, pack: NewPack, name: str) -> None:
        self._own.added(name, pack.nbytes, pack.index)
        if pack.is_small:
            self._own.note_small(name, pack.nbytes, pack.entries)
        self._begun.difference_update(pack.names)


def _chosen(groups: Bytes, chains: Mapping[int, Sequence[BaseChunk]]) -> dict[int, int]:
    """Choose a base for each chunk: the one that most chunks use, if it is about as good.

    If each chunk chose for itself, those equally near to two versions would use either by chance: a
    version would need a part of every other one, from packs that some remotes only send as a whole.
    """
    distances_of = {
        k: distances(groups[:, k], [base.data for base in chain])
        for k, chain in chains.items()
        if chain
    }
    firsts: dict[int, list[int]] = {}
    for one in distances_of.values():
        firsts.setdefault(len(one), []).append(first_near(one))
    usual = {count: sorted(numbers)[len(numbers) // 2] for count, numbers in firsts.items()}
    return {
        k: usual[len(one)] if one[usual[len(one)]] <= _AS_GOOD else first_near(one)
        for k, one in distances_of.items()
    }


class _Finishing:
    """A pack that is being finished, in a background thread if one can be started."""

    def __init__(self, pack: NewPack) -> None:
        self.pack = pack
        self._name = ""
        self._error: BaseException | None = None
        self._thread = in_background(self._run)
        if self._thread is None:
            self._run()

    def end(self) -> str:
        """Wait for it, and return its name; raises its errors."""
        if self._thread is not None:
            self._thread.join()
        self.pack.close()
        if self._error is not None:
            raise self._error
        return self._name

    def _run(self) -> None:
        try:
            self._name = self.pack.finish()
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
