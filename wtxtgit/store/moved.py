"""Finding a chunk's bytes elsewhere in the version before: rows that have moved.

Where rows were inserted or removed all that follows is shifted, and no chunk has its old name. The
chunk at the same place in the version before, the base, is known, and its former neighbours stand
beside it in its pack. Some values of these are kept; any run of the new chunk that is as long as
their spacing contains one of them if the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

import numpy as np

from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH, MAX_MOVED, PREFIX, ChunkPack
from wtxtgit.store.reading import BaseChunk, ChunkReading, DecodedBases, base_of

# The spacing in bytes between the values that are kept of a chunk.
_APART = 2048
_VALUE = 8
# Chunks on both sides of the base that are examined: 32 MiB if they have 64 KiB.
_REACH = 512
# Values that are kept, at about 100 bytes each.
_MOST_KEPT = 100_000
# After so many chunks without a find, only one in so many is examined.
_PATIENCE = 128
_SELDOM = 64
_SHORT_REACH = 8


class MovedRows:
    """What one writer knows of earlier versions; threads may share it."""

    def __init__(self, own: PackFolder, cache: DecodedBases) -> None:
        self._own = own
        self._cache = cache
        self._lock = Lock()
        # The chunk of each value. Threads add chunks in no particular order, so the position after
        # a chunk does not tell which one followed it, but its bytes do.
        self._values: dict[int, bytes] = {}
        # The positions of the chunks with known values, by pack.
        self._learnt: dict[str, range] = {}
        self._failures = 0

    def sources(self, data: memoryview, item: int, base: bytes | None) -> list[BaseChunk]:
        """Return one or two chunks that probably contain `data`; empty if none is known.

        Its items have `item` bytes; `base` is the chunk that stood at its place, None beyond the
        end of the version before.
        """
        if len(data) < _APART + _VALUE or (base is None and not self._values):
            return []
        with self._lock:
            if not self._is_worth_looking():
                return []
            copies = [] if base is None else self._own.copies(base)
            if copies:
                self._learn(copies[0][0], copies[0][0].index.position(copies[0][1].name))
            names = self._looked_for(data, item)
            self._failures = 0 if names else self._failures + 1
        return self._bases(names)

    def _is_worth_looking(self) -> bool:
        if self._failures < _PATIENCE:
            return True
        self._failures += 1
        return self._failures % _SELDOM == 0

    def _bases(self, names: Iterable[bytes]) -> list[BaseChunk]:
        bases = (base_of(self._own, name, self._cache) for name in names)
        return [base for base in bases if base is not None and base.data.size <= MAX_MOVED]

    def behind(self, sources: Sequence[BaseChunk]) -> Iterator[list[BaseChunk]]:
        """Yield the pairs of chunks, in order, from which the sources themselves were encoded when
        moved.

        So rows that move again and again are encoded from the chunks in which they first appeared,
        and chains do not grow.
        """
        names: dict[bytes, None] = {}
        for source in sources:
            copies = self._own.copies(source.name)
            is_moved = copies and copies[0][1].encoding == PREFIX
            names.update(dict.fromkeys(copies[0][1].bases if is_moved else (source.name,)))
        ordered = list(names)
        if ordered != [source.name for source in sources]:
            for first in range(max(1, len(ordered) - 1)):
                yield self._bases(ordered[first : first + 2])

    def _looked_for(self, data: memoryview, item: int) -> list[bytes]:
        """Return the chunks that contain the beginning and the end of `data`, or its middle."""
        array = np.frombuffer(data, np.uint8)
        last = len(data) - _APART - _VALUE
        chunks: dict[bytes, None] = {}
        for start in (0, last // item * item, last // 2 // item * item):
            run = array[start : start + _APART + _VALUE - 1]
            windows = np.lib.stride_tricks.sliding_window_view(run, _VALUE)[::item]
            values = np.ascontiguousarray(windows).view("<u8")[:, 0].tolist()
            met = self._values.keys() & values
            if met and len(chunks) < 2:
                chunks[self._values[next(iter(met))]] = None
        return list(chunks)

    def _learn(self, pack: ChunkPack, position: int) -> None:
        """Keep values of the chunks around a position."""
        if len(self._values) > _MOST_KEPT:
            self._values.clear()
            self._learnt.clear()
        reach = _REACH if self._failures < _PATIENCE else _SHORT_REACH
        first = max(0, position - reach)
        positions = range(first, min(pack.index.count, position + reach + 1))
        # Chunks with bases may alternate between packs.
        learnt = self._learnt.get(pack.path.stem, range(0))
        for at in positions:
            if at in learnt:
                continue
            name = pack.index.name(pack.index.row_at(at))
            base = ChunkReading((self._own,), self._cache).base(name, MAX_DEPTH, MAX_MOVED)
            if base is None:
                continue
            plain = base.data.plain()
            values = np.frombuffer(plain[: len(plain) // _VALUE * _VALUE], "<u8")
            for value in values[:: _APART // _VALUE].tolist():
                # Zeros, and other common values, are no evidence.
                if value:
                    self._values.setdefault(value, name)
        self._learnt[pack.path.stem] = positions
