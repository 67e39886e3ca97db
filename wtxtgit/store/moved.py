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
# How far from the chunk that was found last the next ones are looked for.
_NEAR = (1, 2, 0, -1, 3)
# Bytes that have to be the same.
_LEAST = 64


class MovedRows:
    """What one writer knows of the versions before; threads may share it."""

    def __init__(self, own: PackFolder, held: DecodedBases) -> None:
        self._own = own
        self._held = held
        self._lock = Lock()
        # Where each value was: the position of its chunk in its pack, and its place in the chunk.
        self._values: dict[int, tuple[int, int]] = {}
        self._pack = ""
        self._learnt = range(0)
        # By how many chunks, and bytes, rows have moved that were found last.
        self._shift: tuple[int, int] | None = None
        # The position of the chunk in which the last ones were found.
        self._last: int | None = None
        self._failures = 0

    def sources(self, data: memoryview, item: int, base: bytes | None) -> list[BaseChunk]:
        """One or two chunks that `data` is likely to be in, in order; empty where none is known.

        Its items have `item` bytes; `base` is the chunk that stood at its place, None where the
        version before had ended.
        """
        if len(data) < _APART + _VALUE:
            return []
        with self._lock:
            if base is None:
                return self._after_the_last(data)
            copies = self._own.copies(base)
            if not copies:
                return []
            pack, entry = copies[0]
            position = pack.index.position(entry.name)
            if self._shift is not None:
                found = self._as_before(data, pack, position + self._shift[0])
                if found:
                    return found
            if not self._is_worth_looking():
                return []
            self._shift = self._looked_for(data, item, pack, position)
            if self._shift is None:
                self._failures += 1
                return []
            self._failures = 0
            self._last = position + self._shift[0]
            return self._at(pack, self._last)

    def _after_the_last(self, data: memoryview) -> list[BaseChunk]:
        """The sources of a chunk that has no base: what follows those that were found last."""
        pack = self._own.opened(self._pack) if self._last is not None and self._pack else None
        if pack is None or self._last is None:
            return []
        # Threads put chunks in about their order.
        for by in _NEAR:
            found = self._as_before(data, pack, self._last + by)
            if found:
                return found
        # An array that is there for the first time has none.
        self._last = None
        return []

    def _is_worth_looking(self) -> bool:
        if self._failures < _PATIENCE:
            return True
        self._failures += 1
        return self._failures % _SELDOM == 0

    def _as_before(self, data: memoryview, pack: ChunkPack, position: int) -> list[BaseChunk]:
        """The sources at a position if the bytes have moved as far as the last ones."""
        if self._shift is None:
            return []
        found = self._at(pack, position)
        plain = b"".join(base.data.plain() for base in found)
        start = plain[self._shift[1] :][:_APART]
        # Of the last chunk that was there only the beginning may be left.
        if len(start) < _LEAST or start != data[: len(start)]:
            return []
        self._last = position
        return found

    def _at(self, pack: ChunkPack, position: int) -> list[BaseChunk]:
        """The chunks at a position of a pack and after it, as far as they may be bases."""
        places = range(max(0, position), min(position + 2, pack.index.count))
        return self._bases([pack.index.name(pack.index.row_at(at)) for at in places])

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

    def _looked_for(
        self, data: memoryview, item: int, pack: ChunkPack, position: int
    ) -> tuple[int, int] | None:
        """By how many chunks, and bytes in these, the bytes of `data` have moved."""
        self._learn(pack, position)
        held = np.frombuffer(data, np.uint8)
        last = len(data) - _APART - _VALUE
        for start in (0, last // 2 // item * item, last // item * item):
            run = held[start : start + _APART + _VALUE - 1]
            windows = np.lib.stride_tricks.sliding_window_view(run, _VALUE)[::item]
            values = np.ascontiguousarray(windows).view("<u8")[:, 0].tolist()
            for number, value in enumerate(values):
                if value in self._values:
                    at, place = self._values[value]
                    offset = place - start - number * item
                    # The chunks beside it have as many bytes, as all of an array but the last.
                    by, offset = divmod(offset, len(data))
                    return at + by - position, offset
        return None

    def _learn(self, pack: ChunkPack, position: int) -> None:
        """Keep values of the chunks around a position."""
        if pack.path.stem != self._pack or len(self._values) > _MOST_KEPT:
            self._values.clear()
            self._pack, self._learnt = pack.path.stem, range(0)
        reach = _REACH if self._failures < _PATIENCE else _SHORT_REACH
        first = max(0, position - reach)
        wanted = range(first, min(pack.index.count, position + reach + 1))
        for at in wanted:
            if at in self._learnt:
                continue
            name = pack.index.name(pack.index.row_at(at))
            found = ChunkReading((self._own,), self._held).base(name, MAX_DEPTH, MAX_MOVED)
            if found is None:
                continue
            plain = found.data.plain()
            values = np.frombuffer(plain[: len(plain) // _VALUE * _VALUE], "<u8")
            for number, value in enumerate(values[:: _APART // _VALUE].tolist()):
                # Zeros, and what else is everywhere, say nothing.
                if value and value not in self._values:
                    self._values[value] = at, number * _APART
        self._learnt = wanted
