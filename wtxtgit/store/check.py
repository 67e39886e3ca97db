"""Listing a store, and checking that it is whole: `wtxtgit store ls` and `verify`."""

from __future__ import annotations

import contextlib
from array import array as numbers
from collections.abc import Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import groupby

import numpy as np
import numpy.typing as npt

from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.findings import Problems
from wtxtgit.report.store import DamagedPack, StoredPack, StoreListing, StoreVerdict
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import NAME_SIZE, U8, ChunkPack, file_digest
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store

MOST_TOLD = Problems.MOST
"""Most chunks that are listed for a pack, and as lost; further ones are only counted."""
_BLOCK = 1 << 16
_OTHER_NAME = "has a SHA-256 other than its name states"


def list_store(store: Store) -> StoreListing:
    """List the packs of a store; raises EnvironmentFailure if they can't be read."""
    own = store.own
    # A chunk may be in several packs. Columns instead of objects, since there may be very many.
    names, sizes = bytearray(), numbers(U8)
    packs = []
    for name, nbytes, pack in _packs(own):
        if pack is None:
            packs.append(StoredPack(name, nbytes, why=own.damaged[name]))
            continue
        index = pack.index
        names += index.names
        sizes += index.sizes
        packs.append(StoredPack(name, nbytes, index.count, index.nbytes))
    borrowed = tuple(folder.folder for folder in store.borrowed)
    payload = np.frombuffer(sizes, np.uint64)
    count = nbytes = 0
    for rows in _firsts(names):
        count += len(rows)
        nbytes += int(payload[rows].sum())
    return StoreListing(store.folder, borrowed, count, nbytes, tuple(packs))


def _firsts(names: bytearray) -> Iterator[npt.NDArray[np.intp]]:
    """Yield the rows of each name's first occurrence, some at a time."""
    table = np.frombuffer(names, f"S{NAME_SIZE}")
    order = table.argsort(kind="stable")
    yield order[:1]
    for start in range(0, len(order) - 1, _BLOCK):
        rows = order[start : start + _BLOCK + 1]
        block = table[rows]
        yield rows[1:][block[1:] != block[:-1]]


def check_store(
    store: Store, threads: int | None, progress: Progress | None = None
) -> StoreVerdict:
    """Decode and hash every copy of every chunk in a store's own packs, and hash the packs.

    `progress` gets counts of bytes, which add up to `packs_size`.
    """
    own, cache = store.own, DecodedBases()
    # Bases are looked up in the tables, which may come from a wrong file `index`.
    own.prove()
    # Opened one by one: what is known of all of them would take more than the tables.
    tasks = (
        partial(check_pack, own, cache, name, nbytes, pack, progress)
        for name, nbytes, pack in _packs(own)
    )
    count = len(own.names)
    # How many bytes they have, the caller knows.
    expect(progress, 0, count)
    with Workers(tasks, worthwhile(threads, packs_size(store), count or 1)) as workers:
        damaged = tuple(problem for problem in workers if problem is not None)
    lost: list[str] = []
    count = 0
    for name in _names_of(own, damaged):
        if ChunkReading((own,), cache).chunk(name, None) is None:
            count += 1
            if count <= MOST_TOLD:
                lost.append(name.hex())
    listed = list_store(store)
    return StoreVerdict(
        store.folder,
        len(listed.packs),
        listed.chunks,
        listed.payload,
        damaged,
        tuple(lost),
        count - len(lost) or None,
    )


def _names_of(own: PackFolder, damaged: Iterable[DamagedPack]) -> Iterator[bytes]:
    """Yield the names of all chunks that are damaged in some pack, sorted, each once."""
    names: list[memoryview] = []
    for damage in damaged:
        # It may have been repacked meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if damage.rows and (pack := own.opened(damage.pack)) is not None:
                table = np.frombuffer(pack.index.names, f"V{NAME_SIZE}")
                names.append(table[np.sort(damage.rows)].view(np.uint8).data)
    # Within a pack, names ascend with rows. Bytes objects are made one by one: there may be very
    # many.
    return (name for name, _ in groupby(merge(*map(_each, names))))


def _each(names: memoryview) -> Iterator[bytes]:
    return (bytes(names[at : at + NAME_SIZE]) for at in range(0, len(names), NAME_SIZE))


def packs_size(store: Store) -> int:
    """Return the size in bytes of all of a store's own packs."""
    return sum(store.own.names.values())


def check_pack(
    own: PackFolder,
    cache: DecodedBases,
    name: str,
    nbytes: int,
    pack: ChunkPack | None,
    progress: Progress | None = None,
) -> DamagedPack | None:
    """Return what is wrong with a pack; None if nothing is. `pack` is None if it breaks a rule."""
    if pack is None:
        return DamagedPack(name, own.damaged[name], {})
    chunks: dict[str, str] = {}
    rows = numbers("Q")
    reported = 0
    for row in pack.index.in_order():
        entry = pack.index.entry(row)
        why = ChunkReading((own,), cache).why_damaged(pack, entry)
        if why is not None:
            rows.append(row)
            if len(rows) <= MOST_TOLD:
                chunks[entry.name.hex()] = why
        if progress is not None:
            progress(entry.length)
            reported += entry.length
    if progress is not None:
        progress(nbytes - reported)
    finish_file(progress)
    try:
        why = None if file_digest(pack.path) == name else _OTHER_NAME
    except FileNotFoundError:
        # It was repacked meanwhile, which checks what it moves.
        return None
    if not (why or rows):
        return None
    return DamagedPack(name, why, chunks, len(rows) - len(chunks) or None, rows)


def _packs(own: PackFolder) -> Iterator[tuple[str, int, ChunkPack | None]]:
    """Yield all packs by name, with their sizes; None in place of a pack that breaks a rule."""
    for name, nbytes in sorted(own.names.items()):
        try:
            yield name, nbytes, own.opened(name)
        except FileNotFoundError:
            # It was repacked meanwhile: its chunks are in others.
            continue
