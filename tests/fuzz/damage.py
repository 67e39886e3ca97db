"""What happens to whole files: bits that flip, ends that are lost, files that run together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from wtxtgit.containers import any_format


@lru_cache(maxsize=256)
def _structure(data: bytes) -> tuple[int, ...]:
    """The places of all bytes that belong to no tensor."""
    places: list[int] = []
    pos = 0
    cut = any_format.split(memoryview(data))
    sizes = {array.name: array.nbytes for array in cut.arrays}
    for extent in cut.layout.extents:
        if extent.array is not None:
            length = sizes[extent.array]
        else:
            length = len(extent.hex) if extent.hex is not None else extent.zeros or 0
        if not extent.is_tensor:
            places += range(pos, pos + length)
        pos += length
    return tuple(places) or tuple(range(len(data)))


def damaged(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A file with one thing that happened to it; a flipped bit mostly, where its structure is."""
    data = rng.choice(seeds)
    kind = rng.randrange(20)
    if kind < 13 and data:
        at = rng.choice(_structure(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    other, at = rng.choice(seeds), rng.randrange(len(data) + 1)
    return rng.choice(
        (
            data[:at],
            data[: len(data) - rng.choice((1, 2, 8, 22, 64))],
            data + other,
            other + data,
            data + bytes(rng.choice((1, 8, 64))),
            data + rng.randbytes(rng.choice((1, 8, 64))),
            data[:at] + rng.randbytes(rng.choice((1, 4, 32))) + data[at:],
            data[:at] + bytes(32) + data[at:],
        )
    )
