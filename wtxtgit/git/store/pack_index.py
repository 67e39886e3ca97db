"""Pack indexes, version 2: gitformat-pack(5), "Version 2 pack-*.idx files".

Eight bytes of head, 256 counts (of ids whose first byte is at most that), the
ids in order, a CRC-32 each of what the pack holds, offsets of 31 bits, those
of 63 bits that the former point to, and two hashes: the pack's, and the own.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from wtxtgit.git.store.places import Places

_HEAD = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = 256
_TABLE = len(_HEAD) + 4 * _FANOUT
_FAR = 1 << 31
_SMALL = 256 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """An object of a pack: where it begins, and the CRC-32 of its bytes there."""

    oid: bytes
    offset: int
    crc32: int


def format_index(objects: Sequence[Packed], pack_hash: bytes, places: Places) -> bytes:
    """Write the index of a pack that ends with `pack_hash`; no object is there twice."""
    ordered = sorted(objects, key=lambda packed: packed.oid)
    counts = [0] * _FANOUT
    for packed in ordered:
        counts[packed.oid[0]] += 1
    fanout = struct.pack(f">{_FANOUT}I", *accumulate(counts))
    near: list[int] = []
    far: list[int] = []
    for packed in ordered:
        if packed.offset < _FAR:
            near.append(packed.offset)
        else:
            near.append(_FAR | len(far))
            far.append(packed.offset)
    content = b"".join(
        (
            _HEAD,
            fanout,
            *(packed.oid for packed in ordered),
            struct.pack(f">{len(ordered)}I", *(packed.crc32 for packed in ordered)),
            struct.pack(f">{len(ordered)}I", *near),
            struct.pack(f">{len(far)}Q", *far),
            pack_hash,
        )
    )
    own = places.new_hash()
    own.update(content)
    return content + own.digest()


class PackIndex:
    """An index that is looked things up in; what is not as it should be finds nothing."""

    def __init__(self, path: Path, digest_size: int) -> None:
        self.pack = path.with_suffix(".pack")
        self._size = digest_size
        self._count = 0
        self._data: bytes | mmap.mmap
        # A pipe would block for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size > _SMALL:
                self._data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            else:
                # A mapping keeps a descriptor, and there may be very many packs.
                self._data = os.read(descriptor, _SMALL)
        finally:
            os.close(descriptor)
        if self._data[: len(_HEAD)] == _HEAD and len(self._data) >= _TABLE:
            (count,) = struct.unpack_from(">I", self._data, _TABLE - 4)
            if _TABLE + count * (digest_size + 8) + 2 * digest_size <= len(self._data):
                self._count = count

    def offset(self, oid: bytes) -> int | None:
        """Give where an object begins in the pack, None where it is not there."""
        if not self._count:
            return None
        first = oid[0]
        low = self._number(len(_HEAD) + 4 * (first - 1)) if first else 0
        high = min(self._number(len(_HEAD) + 4 * first), self._count)
        found = bisect_left(range(high), oid, lo=min(low, high), key=self._oid)
        if found >= high or self._oid(found) != oid:
            return None
        offsets = _TABLE + self._count * (self._size + 4)
        near = self._number(offsets + 4 * found)
        if near < _FAR:
            return near
        place = offsets + 4 * self._count + 8 * (near - _FAR)
        if place + 8 > len(self._data) - 2 * self._size:
            return None
        return int.from_bytes(self._data[place : place + 8], "big")

    def _oid(self, number: int) -> bytes:
        start = _TABLE + number * self._size
        return self._data[start : start + self._size]

    def _number(self, place: int) -> int:
        return int.from_bytes(self._data[place : place + 4], "big")
