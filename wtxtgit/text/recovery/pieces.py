"""The arrays and chunks of a damaged text as they should be, and where their bytes are.

Sizes follow from lines that may be damaged: no line is believed alone if another one says more. No
bytes are held here: a chunk is a view that reads them again.
"""

from __future__ import annotations

from array import array as numbers
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import final, overload

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView, Windowed, Windows, hashed, mapped, pieces
from wtxtgit.model.array import (
    ITEM_SIZE,
    MAX_CHUNKS,
    Rows,
    bounded_product,
    chunk_count,
    default_rows,
)
from wtxtgit.text import block_armor, grammar
from wtxtgit.text.grammar import LINE_RAW, LINE_TEXT
from wtxtgit.text.recovery.chunk import is_near
from wtxtgit.text.recovery.found import ChunkPlaces, FoundArray, FoundChunk, FoundChunks
from wtxtgit.text.recovery.lines import KEYS, fields


class ChunkState(StrEnum):
    """What became of a chunk."""

    INTACT = "intact"
    MENDED = "mended"
    HEALED = "healed"
    LOST = "lost"


_STATES = tuple(ChunkState)
_LOST = _STATES.index(ChunkState.LOST)
_ELSEWHERE = -1
_NOTHING = memoryview(b"")


@final
class SlotTable:
    """The states of all chunks of a text, as columns: see `FoundChunks`.

    The bytes of an intact chunk are its lines in `text`, those of a mended one mostly at a place
    of `mended`; all others are `given`, with their source.
    """

    __slots__ = ("given", "left", "mended", "proved", "states", "text", "where")

    def __init__(self, text: ByteView) -> None:
        self.text = text
        self.states = bytearray()
        self.proved = bytearray()
        self.where = numbers("q")
        self.mended: Windows | None = None
        self.given: dict[int, tuple[ByteView, str | None]] = {}
        self.left = _LEAST_MISSING + len(text) // _MISSING_BYTES
        """How many more missing chunks may be added to arrays, over the whole text."""

    def add(self, count: int) -> int:
        """Add `count` more chunks, which are lost so far; returns the first one's place."""
        first = len(self.states)
        self.states += bytes([_LOST]) * count
        self.proved += bytes(count)
        self.where.frombytes(np.full(count, _ELSEWHERE, np.int64).tobytes())
        return first


# Memory is allocated for what exists, not for what a wrong digit claims.
_LEAST_MISSING, _MISSING_BYTES = 65_536, 64


@final
class Slots(Sequence["Slot"]):
    """The chunks that an array should have.

    `nbytes` and `chunk_size` determine which these are; without them, they are those that were
    found.
    """

    __slots__ = ("chunk_size", "first", "found", "nbytes", "places", "size", "table")

    def __init__(
        self,
        table: SlotTable,
        found: FoundArray,
        places: ChunkPlaces | None = None,
        nbytes: int | None = None,
        chunk_size: int = 0,
    ) -> None:
        self.table, self.found, self.places = table, found, places
        self.nbytes, self.chunk_size = nbytes, chunk_size
        self.size = len(found) if nbytes is None else chunk_count(nbytes, chunk_size)
        self.first = table.add(self.size)

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, place: int) -> Slot: ...
    @overload
    def __getitem__(self, place: slice) -> list[Slot]: ...
    def __getitem__(self, place: int | slice) -> Slot | list[Slot]:
        selected = range(self.size)[place]
        return (
            [Slot(self, n) for n in selected]
            if isinstance(selected, range)
            else Slot(self, selected)
        )

    @property
    def lost(self) -> Iterator[Slot]:
        """The slots without bytes."""
        states = self.table.states
        return (Slot(self, n) for n in range(self.size) if states[self.first + n] == _LOST)

    @property
    def is_whole(self) -> bool:
        return self.table.states.find(_LOST, self.first, self.first + self.size) < 0

    @property
    def is_proved(self) -> bool:
        """Whether every chunk matches its own SHA-256."""
        return self.table.proved.find(0, self.first, self.first + self.size) < 0


@final
class Slot:
    """A chunk that an array should have: a place in the array's columns.

    `raw` is its bytes: a view that reads them again each time, since all chunks of a text need not
    fit in memory. None for a lost one.
    """

    __slots__ = ("_number", "_slots")

    def __init__(self, slots: Slots, number: int) -> None:
        self._slots, self._number = slots, number

    @property
    def _at(self) -> int:
        return self._slots.first + self._number

    @property
    def ix(self) -> int:
        slots = self._slots
        return self._number if slots.nbytes is not None else slots.found[self._number].ix

    @property
    def size(self) -> int:
        slots = self._slots
        if slots.nbytes is None:
            return slots.found[self._number].size or 0
        return max(0, min(slots.chunk_size, slots.nbytes - self._number * slots.chunk_size))

    @property
    def found(self) -> Sequence[FoundChunk]:
        """What was found for it."""
        slots = self._slots
        if slots.nbytes is None:
            return (slots.found[self._number],)
        return [slots.found[n] for n in (slots.places.of(self._number) if slots.places else ())]

    @property
    def state(self) -> ChunkState:
        return _STATES[self._slots.table.states[self._at]]

    @property
    def is_lost(self) -> bool:
        return self._slots.table.states[self._at] == _LOST

    @property
    def is_proved(self) -> bool:
        """Whether it matches its own SHA-256, not only its CRC-32C."""
        return bool(self._slots.table.proved[self._at])

    @is_proved.setter
    def is_proved(self, proved: bool) -> None:
        self._slots.table.proved[self._at] = proved

    @property
    def source(self) -> str | None:
        """Where the bytes of a healed chunk come from."""
        copy = self._slots.table.given.get(self._at)
        return None if copy is None else copy[1]

    @property
    def raw(self) -> ByteView | None:
        table, at = self._slots.table, self._at
        where, size = table.where[at], self.size
        if where == _ELSEWHERE:
            copy = table.given.get(at)
            return None if copy is None else copy[0]
        if table.mended is not None and self.state is ChunkState.MENDED:
            return Windowed(table.mended, where, where + size)
        return Windowed(ArmoredBytes(table.text, where, size))

    def bytes(self) -> ByteView:
        """The bytes of a chunk that is not lost."""
        raw = self.raw
        if raw is None:
            raise ValueError("a lost chunk has no bytes")
        return raw

    def keep(self, where: int, state: ChunkState, *, proved: bool) -> None:
        """Record that its bytes are at a place of the text, or of the mended chunks."""
        self._put(state, where, proved=proved)

    def put(
        self, raw: ByteView, state: ChunkState, source: str | None = None, *, proved: bool = True
    ) -> None:
        self._put(state, _ELSEWHERE, proved=proved)
        self._slots.table.given[self._at] = raw, source

    def lose(self) -> None:
        """Reject the bytes that were assigned to it."""
        self._put(ChunkState.LOST, _ELSEWHERE, proved=False)

    def _put(self, state: ChunkState, where: int, *, proved: bool) -> None:
        table, at = self._slots.table, self._at
        table.given.pop(at, None)
        table.states[at], table.where[at] = _STATES.index(state), where
        table.proved[at] = proved


@dataclass(slots=True)
class ArrayPieces:
    """An array's lines as found, its size in bytes, and its chunks.

    `nbytes` is None if neither the `arr` line nor the chunks tell it.
    """

    found: FoundArray
    claim: grammar.ArrayLine | None
    rows: Rows | None
    slots: Slots
    nbytes: int | None = None
    chunk_size: int = 0
    sha256: bytes | None = None
    """The SHA-256 of all its bytes, if these exist."""

    @property
    def is_whole(self) -> bool:
        return self.nbytes is not None and self.slots.is_whole

    @property
    def is_proved(self) -> bool:
        """Whether hashes of the text prove all of its bytes."""
        return self.is_whole and (self.slots.is_proved or self.fits_line())

    def fits_line(self) -> bool:
        """Whether its bytes match the SHA-256 of the `arr` line."""
        return self.sha256 is not None and is_near(self.sha256.hex(), self.claimed_sha256)

    @property
    def claimed_sha256(self) -> str | None:
        """The SHA-256 in the `arr` line, including wrong characters."""
        if self.claim is not None:
            return self.claim.sha256.hex()
        line = self.found.line
        if line is None or len(line) < _HASHES:
            return None
        return line[len(line) - _HASHES + 8 :][:64].decode("latin-1")

    def data(self) -> ByteView:
        """The bytes of an array that is whole, read again each time."""
        slots = self.slots
        return joined(Views(len(slots), lambda n: slots[n].bytes()))


@final
class _Chunks:
    """`Windows` of consecutive chunks of `size` bytes each, except the last one."""

    def __init__(self, raws: Sequence[ByteView], size: int) -> None:
        self.nbytes = (len(raws) - 1) * size + len(raws[-1])
        self._raws, self._size = raws, size

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end)."""
        first = start // self._size
        within = start - first * self._size
        if within + end - start <= len(self._raws[first]):
            return mapped(self._raws[first][within : within + end - start])
        whole = bytearray()
        # One by one: there may be very many, of one byte each.
        for number in range(first, -(-end // self._size)):
            whole += mapped(self._raws[number])
        return memoryview(whole)[within : within + end - start]


@final
class Views(Sequence[ByteView]):
    """Views of parts, each made when it is accessed."""

    __slots__ = ("_count", "_view")

    def __init__(self, count: int, view: Callable[[int], ByteView]) -> None:
        self._count, self._view = count, view

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> ByteView: ...
    @overload
    def __getitem__(self, place: slice) -> list[ByteView]: ...
    def __getitem__(self, place: int | slice) -> ByteView | list[ByteView]:
        selected = range(self._count)[place]
        return (
            list(map(self._view, selected)) if isinstance(selected, range) else self._view(selected)
        )


@final
class ArmoredBytes:
    """`Windows` of a chunk's `nbytes` bytes, decoded from its lines when they are accessed.

    Its lines start at byte `start` of `text`, and are as a writer writes them.
    """

    __slots__ = ("_start", "_text", "nbytes")

    def __init__(self, text: ByteView, start: int, nbytes: int) -> None:
        # Not a slice, which would be most of the memory of a tiny array.
        self._text, self._start = text, start
        self.nbytes = nbytes

    def window(self, start: int, end: int) -> memoryview:
        """Return bytes [start, end); raises TextError if they have changed."""
        first = start // LINE_RAW
        last = min(grammar.line_count(end), grammar.line_count(self.nbytes))
        size = min(last * LINE_RAW, self.nbytes) - first * LINE_RAW
        at = self._start
        lines = mapped(self._text[at + first * LINE_TEXT : at + last * LINE_TEXT])
        raw = block_armor.decode(np.frombuffer(lines, np.uint8), 1, size, 0, 0)
        if raw is None:
            raise TextError("structure", "the text changed while it was read")
        at = start - first * LINE_RAW
        return raw.reshape(-1).data[at : at + end - start]


def decoded(text: ByteView, chunk: FoundChunk, size: int) -> memoryview | None:
    """Return the `size` bytes of a chunk, None if its lines are not as a writer writes them."""
    start, end = chunk.body
    if end - start != grammar.line_count(size) * LINE_TEXT:
        return None
    raw = block_armor.decode(np.frombuffer(mapped(text[start:end]), np.uint8), 1, size, 0, 0)
    return None if raw is None else raw.reshape(-1).data


def view_of(text: ByteView, chunk: FoundChunk) -> ByteView | None:
    """Return the bytes of a chunk, decoded on access, which raises TextError if that fails.

    Returns None if the chunk does not have the right number of lines.
    """
    start, end = chunk.body
    if chunk.size is None or end - start != grammar.line_count(chunk.size) * LINE_TEXT:
        return None
    return Windowed(ArmoredBytes(text, start, chunk.size))


def view_of_all(text: ByteView, found: FoundArray) -> ByteView | None:
    """Return the bytes of all chunks of an array; None if one has a wrong number of lines, or if
    there is none.
    """
    if not found:
        return None

    def view(number: int) -> ByteView:
        raw = view_of(text, found[number])
        # Each was checked below.
        return _NOTHING if raw is None else raw

    sizes = {
        None if view_of(text, chunk) is None else chunk.size
        for chunk in islice(found, len(found) - 1)
    }
    if len(sizes) > 1 or None in sizes or view_of(text, found[-1]) is None:
        return None
    return joined(Views(len(found), view))


def joined(raws: Sequence[ByteView]) -> ByteView:
    """Concatenate chunks, each but the last as long as the first."""
    return raws[0] if len(raws) == 1 else Windowed(_Chunks(raws, len(raws[0])))


# The end of an `arr` line from ` sha256=` on, with the space before it, without its LF.
_HASHES = len(grammar.format_array_hashes(bytes(32), bytes(32), bytes(8)))


def pieces_of(found: FoundArray, table: SlotTable) -> ArrayPieces:
    """Return what an array should have, so far as its lines tell."""
    line = b"" if found.line is None else found.line + b"\n"
    parsed = grammar.parse_array(line, 0)
    claim = None if parsed is None or grammar.check_bytes(parsed[0]) is not None else parsed[0]
    rows = None if found.rows_line is None else _rows(found.rows_line)
    places = found.by_ix()
    measured = _measure(found, claim, rows, places)
    if measured is not None:
        # As many missing chunks as existing ones are allowed, and some more for the whole text.
        missing = chunk_count(*measured) - 2 * places.count
        if missing <= table.left:
            table.left -= max(0, missing)
            slots = Slots(table, found, places, *measured)
            return ArrayPieces(found, claim, rows, slots, *measured)
    return ArrayPieces(found, claim, rows, Slots(table, FoundArray(_NO_CHUNKS)))


_NO_CHUNKS = FoundChunks()


@lru_cache(maxsize=1024)
def _rows(line: bytes) -> Rows | None:
    """Parse an `idx` line; cached, since a text has few different ones."""
    parsed = grammar.parse_rows(line + b"\n", 0)
    return None if parsed is None else parsed[0]


def _measure(
    found: FoundArray, claim: grammar.ArrayLine | None, rows: Rows | None, places: ChunkPlaces
) -> tuple[int, int] | None:
    """Return the array's size in bytes and that of its chunks, None if they are not known."""
    last = _size_of(found[n] for n in places.of(places.last))
    chunk_size = _chunk_size(found, claim, rows, places, last)
    if chunk_size is None:
        return None
    nbytes = None if claim is None else claim.nbytes
    # It agrees with the shape, so a wrong digit would show. Otherwise the chunks decide.
    if nbytes is None:
        nbytes = _stated_bytes(found.line)
    if nbytes is None and last is not None:
        nbytes = places.last * chunk_size + last
    if nbytes is None or chunk_count(nbytes, chunk_size) > MAX_CHUNKS:
        return None
    return nbytes, chunk_size


def _stated_bytes(line: bytes | None) -> int | None:
    """Return the `bytes` of an `arr` line if dtype and shape agree, whatever else is wrong."""
    values = None if line is None else fields(line, KEYS)
    if values is None:
        return None
    _, dtype, shape, nbytes, *_ = values
    kind = grammar.parse_kind(b"dtype=%b shape=%b order=C bytes=%b" % (dtype, shape, nbytes))
    if kind is None or bounded_product(ITEM_SIZE[kind[0]], kind[1], kind[2]) != kind[2]:
        return None
    return kind[2]


def healed_array(
    claim: grammar.ArrayLine, rows: Rows | None, raw: ByteView, source: str
) -> ArrayPieces:
    """Return an array that comes entirely from another place."""
    line = grammar.format_array(claim)[:-1]
    rows_line = None if rows is None else grammar.format_rows(rows)[:-1]
    found = FoundArray(FoundChunks(), memoryview(line), (0, len(line)), rows_line)
    size = grammar.chunk_size(rows)
    slots = Slots(SlotTable(_NOTHING), found, None, len(raw), size)
    for slot in slots:
        slot.put(raw[slot.ix * size :][: slot.size], ChunkState.HEALED, source)
    digest = hashed(sha256(), pieces(raw)).digest()
    return ArrayPieces(found, claim, rows, slots, len(raw), size, digest)


def _size_of(chunks: Iterable[FoundChunk]) -> int | None:
    """Return a chunk's size from the first `ch` line whose `len` and `lines` agree; else None."""
    for chunk in chunks:
        if chunk.size is not None and chunk.lines in (None, grammar.line_count(chunk.size)):
            return chunk.size
    return None


def _chunk_size(
    found: FoundArray,
    claim: grammar.ArrayLine | None,
    rows: Rows | None,
    places: ChunkPlaces,
    last: int | None,
) -> int | None:
    # The majority decides: a wrong digit may fit a chunk's lines by chance.
    counts = Counter(
        size
        for ix in range(places.last)
        if (size := _size_of(found[n] for n in places.of(ix))) is not None
    )
    if counts:
        return counts.most_common(1)[0][0]
    least = last or 0
    if rows is not None or found.rows_line is None:
        size = grammar.chunk_size(rows)
        if size >= max(least, 1):
            return size
    if claim is not None:
        size = grammar.chunk_size(default_rows(claim.dtype, claim.shape))
        if size >= least:
            return size
    return least or None
