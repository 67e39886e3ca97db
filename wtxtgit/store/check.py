"""What is in a store, and whether it is whole: `wtxtgit store ls` and `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wtxtgit.io.progress import Progress
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.report.store import DamagedPack, StoredPack, StoreListing, StoreVerdict
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import ChunkPack, file_digest
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store

_OTHER_NAME = "has another SHA-256 than its name says"


def list_store(store: Store) -> StoreListing:
    """The packs of a store; raises EnvironmentFailure where they can't be read."""
    own = store.own
    sizes: dict[bytes, int] = {}
    packs = []
    for name, nbytes, pack in _packs(own):
        if pack is None:
            packs.append(StoredPack(name, nbytes, why=own.damaged[name]))
            continue
        index = pack.index
        for row in range(index.count):
            sizes[index.name(row)] = index.entry(row).size
        packs.append(StoredPack(name, nbytes, index.count, index.nbytes))
    borrowed = tuple(folder.folder for folder in store.borrowed)
    return StoreListing(store.folder, borrowed, len(sizes), sum(sizes.values()), tuple(packs))


def check_store(
    store: Store, threads: int | None, progress: Progress | None = None
) -> StoreVerdict:
    """Decode and hash every copy of every chunk of a store's own packs, and hash these.

    `progress` gets counts of bytes, of `packs_size` together.
    """
    own, held = store.own, DecodedBases()
    tasks = [
        partial(check_pack, own, held, name, nbytes, pack, progress)
        for name, nbytes, pack in _packs(own)
    ]
    with Workers(tasks, worthwhile(threads, packs_size(store), len(tasks) or 1)) as workers:
        damaged = tuple(found for found in workers if found is not None)
    bad = sorted({chunk for pack in damaged for chunk in pack.chunks})
    lost = [
        chunk
        for chunk in bad
        if ChunkReading((own,), held).chunk(bytes.fromhex(chunk), None) is None
    ]
    listed = list_store(store)
    return StoreVerdict(
        store.folder, len(listed.packs), listed.chunks, listed.payload, damaged, tuple(lost)
    )


def packs_size(store: Store) -> int:
    """Bytes of all packs of a store's own."""
    return sum(store.own.names.values())


def check_pack(
    own: PackFolder,
    held: DecodedBases,
    name: str,
    nbytes: int,
    pack: ChunkPack | None,
    progress: Progress | None = None,
) -> DamagedPack | None:
    """What is wrong with a pack, which is None if it breaks a rule; None where nothing is."""
    if pack is None:
        return DamagedPack(name, own.damaged[name], {})
    chunks = {}
    told = 0
    for row in pack.index.in_order():
        entry = pack.index.entry(row)
        why = ChunkReading((own,), held).why_damaged(pack, entry)
        if why is not None:
            chunks[entry.name.hex()] = why
        if progress is not None:
            progress(entry.length)
            told += entry.length
    if progress is not None:
        progress(nbytes - told)
    try:
        why = None if file_digest(pack.path) == name else _OTHER_NAME
    except FileNotFoundError:
        # Repacked meanwhile, which checks what it moves.
        return None
    return DamagedPack(name, why, chunks) if why or chunks else None


def _packs(own: PackFolder) -> Iterator[tuple[str, int, ChunkPack | None]]:
    """All packs by name, with their bytes; None for one that breaks a rule."""
    for name, nbytes in sorted(own.names.items()):
        try:
            yield name, nbytes, own.opened(name)
        except FileNotFoundError:
            # Repacked meanwhile: its chunks are in others.
            continue
