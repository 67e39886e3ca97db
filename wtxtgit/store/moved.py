"""Finding what a chunk holds that stood elsewhere in the version before: rows that have moved.

Where rows were put in or taken out, all that follows stands at another place, and no chunk has its
old name. A chunk of the version before is known by its base, and what was beside it then stands
beside that in its pack. Of those neighbours some values are kept; in any run of the new chunk that
is as long as they are apart, one is met where the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

import numpy as np

from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH, MAX_MOVED, PREFIX, ChunkPack
from wtxtgit.store.reading import BaseChunk, ChunkReading, DecodedBases, base_of

# How far apart the values are that are kept of a chunk, in bytes.
_APART = 2048
_VALUE = 8
# Chunks to both sides of the base that are looked at: 32 MiB where they have 64 KiB.
_REACH = 512
# Values that are kept, about 100 bytes each.
_MOST_KEPT = 100_000
# After so many chunks in which nothing was found, one of so many is looked at.
_PATIENCE = 128
_SELDOM = 64
_SHORT_REACH = 8


class MovedRows:
    """What one writer knows of the versions before; threads may share it."""

    def __init__(self, own: PackFolder, held: DecodedBases) -> None:
        self._own = own
        self._held = held
        self._lock = Lock()
        # The chunk in which each value was. Threads put chunks in no order: not what stands after
        # a chunk tells which one followed it, but its bytes.
        self._values: dict[int, bytes] = {}
        # The positions of the chunks whose values are there, by their packs.
        self._learnt: dict[str, range] = {}
        self._failures = 0

    def sources(self, data: memoryview, item: int, base: bytes | None) -> list[BaseChunk]:
        """One or two chunks in which `data` is likely to be; empty where none is known.

        Its items have `item` bytes; `base` is the chunk that stood at its place, None where the
        version before had ended.
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
        found = (base_of(self._own, name, self._held) for name in names)
        return [base for base in found if base is not None and base.data.size <= MAX_MOVED]

    def behind(self, sources: Sequence[BaseChunk]) -> Iterator[list[BaseChunk]]:
        """What the sources themselves were found in, where they had moved: pairs, in order.

        Rows that move again and again are so encoded with the chunks in which they came, and no
        chain gets longer.
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
        """The names of the chunks that hold the beginning and the end of `data`, or its middle."""
        held = np.frombuffer(data, np.uint8)
        last = len(data) - _APART - _VALUE
        found: dict[bytes, None] = {}
        for start in (0, last // item * item, last // 2 // item * item):
            run = held[start : start + _APART + _VALUE - 1]
            windows = np.lib.stride_tricks.sliding_window_view(run, _VALUE)[::item]
            values = np.ascontiguousarray(windows).view("<u8")[:, 0].tolist()
            met = self._values.keys() & values
            if met and len(found) < 2:
                found[self._values[next(iter(met))]] = None
        return list(found)

    def _learn(self, pack: ChunkPack, position: int) -> None:
        """Keep values of the chunks around a position."""
        if len(self._values) > _MOST_KEPT:
            self._values.clear()
            self._learnt.clear()
        reach = _REACH if self._failures < _PATIENCE else _SHORT_REACH
        first = max(0, position - reach)
        wanted = range(first, min(pack.index.count, position + reach + 1))
        # Chunks that have bases may be in several packs by turns.
        learnt = self._learnt.get(pack.path.stem, range(0))
        for at in wanted:
            if at in learnt:
                continue
            name = pack.index.name(pack.index.row_at(at))
            found = ChunkReading((self._own,), self._held).base(name, MAX_DEPTH, MAX_MOVED)
            if found is None:
                continue
            plain = found.data.plain()
            values = np.frombuffer(plain[: len(plain) // _VALUE * _VALUE], "<u8")
            for value in values[:: _APART // _VALUE].tolist():
                # Zeros, and what else is everywhere, say nothing.
                if value:
                    self._values.setdefault(value, name)
        self._learnt[pack.path.stem] = wanted
