"""Chunks for tests of stores: their names, and what training does to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wtxtgit.store.encoding import Encoded
from wtxtgit.store.pack import STORED
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

SIZE = 16 * 1024


def named(data: bytes) -> bytes:
    return sha256(data).digest()


def weights(count: int = 2, seed: int = 1) -> list[bytes]:
    """Chunks of f32 as a layer has them."""
    chance = np.random.default_rng(seed)
    values = chance.standard_normal((count, SIZE // 4), dtype=np.float32) * np.float32(0.02)
    return [row.tobytes() for row in values]


def trained(chunks: Sequence[bytes], seed: int = 2) -> list[bytes]:
    """The same after a small step."""
    chance = np.random.default_rng(seed)
    values = [np.frombuffer(chunk, np.float32) for chunk in chunks]
    steps = [1 + 1e-3 * chance.standard_normal(len(v), dtype=np.float32) for v in values]
    return [(v * s).astype(np.float32).tobytes() for v, s in zip(values, steps, strict=True)]


def bf16(chunk: bytes) -> bytes:
    bits: npt.NDArray[np.uint32] = np.frombuffer(chunk, np.uint32)
    return (bits >> 16).astype(np.uint16).tobytes()


def added(
    store: Store, chunks: Sequence[bytes], item: int = 4, before: Sequence[bytes] = ()
) -> list[bytes]:
    """Add chunks in one go; gives their names."""
    bases = [named(chunk) for chunk in before] or [None] * len(chunks)
    with store.writing() as writer:
        for chunk, base in zip(chunks, bases, strict=True):
            writer.put(named(chunk), memoryview(chunk), item, base)
    return [named(chunk) for chunk in chunks]


def packs(store: Store) -> list[Path]:
    return sorted((store.folder / "packs").glob("*"))


def nbytes(store: Store) -> int:
    return sum(path.stat().st_size for path in packs(store))


def damage(path: Path, at: int) -> None:
    """Change a byte of a pack."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    touch(path)


def touch(path: Path) -> None:
    """Touch a file until that shows: the clock of older kernels ticks every few milliseconds."""
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        os.utime(path)


def lie(store: Store) -> None:
    """Put a pack in the place of the only one, whose chunks are not what it says they are."""
    (pack,) = packs(store)
    opened = store.own.opened(pack.stem)
    assert opened is not None
    made = NewPack(store.own)
    for row in range(opened.index.count):
        entry = opened.index.entry(row)
        made.add(
            entry.name, Encoded((bytes(entry.size),), STORED, 1, entry.size), entry.size, (), 0
        )
    made.finish()
    made.close()
    pack.unlink()
