"""The arrays and chunks of a damaged text as they should be, and where their bytes are.

Sizes follow from lines that may be damaged: nothing is taken from one of them alone where
another one says more. No bytes are held here: a chunk is a view that reads them anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import final

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView, Windowed, hashed, mapped, pieces
from wtxtgit.model.array import (
    ITEM_SIZE,
    MAX_CHUNKS,
    Rows,
    bounded_product,
    chunk_count,
    default_rows,
)
from wtxtgit.text import armor, grammar
from wtxtgit.text.grammar import LINE_RAW, LINE_TEXT
from wtxtgit.text.recovery.chunk import is_near
from wtxtgit.text.recovery.lines import KEYS, fields
from wtxtgit.text.recovery.reading import FoundArray, FoundChunk


class ChunkState(StrEnum):
    """What became of a chunk."""

    INTACT = "intact"
    MENDED = "mended"
    HEALED = "healed"
    LOST = "lost"


@dataclass(slots=True)
class Slot:
    """A chunk as an array wants it: number, size, and what was found for it.

    `raw` are its bytes: a view that reads them anew each time, since all chunks of a text
    need not fit into memory. None for a lost one.
    """

    ix: int
    size: int
    found: Sequence[FoundChunk] = ()
    state: ChunkState = ChunkState.LOST
    raw: ByteView | None = None
    source: str | None = None
    is_proved: bool = False
    """Whether its own SHA-256 says so, and not its CRC-32C alone."""

    def put(
        self, raw: ByteView, state: ChunkState, source: str | None = None, *, proved: bool = True
    ) -> None:
        self.raw, self.state, self.source, self.is_proved = raw, state, source, proved

    def lose(self) -> None:
        """What was put here is not it."""
        self.raw, self.state, self.source, self.is_proved = None, ChunkState.LOST, None, False


@dataclass(slots=True)
class ArrayPieces:
    """An array's lines as found, its size in bytes, and its chunks.

    `nbytes` is None where neither the `arr` line nor the chunks tell it.
    """

    found: FoundArray
    claim: grammar.ArrayLine | None
    rows: Rows | None
    nbytes: int | None = None
    chunk_size: int = 0
    slots: list[Slot] = field(default_factory=list)
    sha256: bytes | None = None
    """Of all its bytes, where they are there."""

    @property
    def is_whole(self) -> bool:
        return self.nbytes is not None and all(slot.raw is not None for slot in self.slots)

    @property
    def is_proved(self) -> bool:
        """Whether hashes of the text name all of its bytes."""
        return self.is_whole and (all(slot.is_proved for slot in self.slots) or self.fits_line())

    def fits_line(self) -> bool:
        """Whether its bytes have the SHA-256 of the `arr` line."""
        return self.sha256 is not None and is_near(self.sha256.hex(), self.claimed_sha256)

    @property
    def claimed_sha256(self) -> str | None:
        """What the `arr` line says, wrong characters and all."""
        line = self.found.line
        if line is None or len(line) < _HASHES:
            return None
        return line[len(line) - _HASHES + 8 :][:64].decode("latin-1")

    def data(self) -> ByteView:
        """The bytes of an array that is whole, read anew each time."""
        return joined([slot.raw for slot in self.slots if slot.raw is not None])


@final
class _Chunks:
    """`Windows` of chunks of `size` bytes each, the last one's aside, one after another."""

    def __init__(self, raws: Sequence[ByteView], size: int) -> None:
        self.nbytes = sum(map(len, raws))
        self._raws, self._size = raws, size

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end)."""
        first = start // self._size
        within = start - first * self._size
        if within + end - start <= len(self._raws[first]):
            return mapped(self._raws[first][within : within + end - start])
        last = -(-end // self._size)
        whole = b"".join(map(mapped, self._raws[first:last]))
        return memoryview(whole)[within : within + end - start]


@final
class ArmoredBytes:
    """`Windows` of a chunk's `nbytes` bytes, decoded from its lines when they are looked at.

    `lines` is where they stand; they are as a writer writes them.
    """

    __slots__ = ("_lines", "nbytes")

    def __init__(self, lines: ByteView, nbytes: int) -> None:
        self._lines = lines
        self.nbytes = nbytes

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end); raises TextError where they are not what they were."""
        first = start // LINE_RAW
        last = min(armor.line_count(end), armor.line_count(self.nbytes))
        size = min(last * LINE_RAW, self.nbytes) - first * LINE_RAW
        lines = mapped(self._lines[first * LINE_TEXT : last * LINE_TEXT])
        raw = armor.decode(np.frombuffer(lines, np.uint8), 1, size, 0, 0)
        if raw is None:
            raise TextError("structure", "the text changed while it was read")
        at = start - first * LINE_RAW
        return raw.reshape(-1).data[at : at + end - start]


def decoded(text: ByteView, chunk: FoundChunk, size: int) -> memoryview | None:
    """The `size` bytes of a chunk, None where its lines are not as a writer writes them."""
    start, end = chunk.body
    if end - start != armor.line_count(size) * LINE_TEXT:
        return None
    raw = armor.decode(np.frombuffer(mapped(text[start:end]), np.uint8), 1, size, 0, 0)
    return None if raw is None else raw.reshape(-1).data


def view_of(text: ByteView, chunk: FoundChunk) -> ByteView | None:
    """The bytes of a chunk, decoded when they are looked at, which raises TextError if they can't.

    None where the chunk has not the lines of its size.
    """
    start, end = chunk.body
    if chunk.size is None or end - start != armor.line_count(chunk.size) * LINE_TEXT:
        return None
    return Windowed(ArmoredBytes(text[start:end], chunk.size))


def joined(raws: Sequence[ByteView]) -> ByteView:
    """Chunks one after another, each but the last as long as the first."""
    return raws[0] if len(raws) == 1 else Windowed(_Chunks(raws, len(raws[0])))


# ` sha256=` to the end of an `arr` line, its LF aside, with the space before it.
_HASHES = len(grammar.format_array_hashes(bytes(32), bytes(32), bytes(8)))


def pieces_of(found: FoundArray) -> ArrayPieces:
    """What an array should have, as far as its lines tell."""
    line = b"" if found.line is None else found.line + b"\n"
    parsed = grammar.parse_array(line, 0)
    claim = None if parsed is None or grammar.check_bytes(parsed[0]) is not None else parsed[0]
    rows_line = b"" if found.rows_line is None else found.rows_line + b"\n"
    parsed_rows = grammar.parse_rows(rows_line, 0)
    pieces = ArrayPieces(found, claim, None if parsed_rows is None else parsed_rows[0])
    _measure(pieces)
    return pieces


def _measure(pieces: ArrayPieces) -> None:
    """Find out the array's size and that of its chunks, and make a slot for each of them."""
    by_ix: dict[int, list[FoundChunk]] = {}
    for chunk in pieces.found.chunks:
        by_ix.setdefault(chunk.ix, []).append(chunk)
    sizes = {ix: _size_of(chunks) for ix, chunks in by_ix.items()}
    last = max(by_ix, default=-1)
    chunk_size = _chunk_size(pieces, sizes, last)
    if chunk_size is None:
        return
    nbytes = None if pieces.claim is None else pieces.claim.nbytes
    tail = sizes.get(last)
    # The shape goes with it: one wrong digit would show. Else the chunks tell.
    if nbytes is None:
        nbytes = _told_bytes(pieces.found.line)
    if nbytes is None and tail is not None:
        nbytes = last * chunk_size + tail
    if nbytes is None or chunk_count(nbytes, chunk_size) > MAX_CHUNKS:
        return
    # Memory is taken for what is there, not for what a wrong digit claims.
    if chunk_count(nbytes, chunk_size) > 2 * len(by_ix) + 1024:
        return
    pieces.nbytes, pieces.chunk_size = nbytes, chunk_size
    pieces.slots = slots_of(nbytes, chunk_size, by_ix)


def _told_bytes(line: bytes | None) -> int | None:
    """The `bytes` of an `arr` line where dtype and shape give as many, whatever else is wrong."""
    values = None if line is None else fields(line, KEYS)
    if values is None:
        return None
    _, dtype, shape, told, *_ = values
    kind = grammar.parse_kind(b"dtype=%b shape=%b order=C bytes=%b" % (dtype, shape, told))
    if kind is None or bounded_product(ITEM_SIZE[kind[0]], kind[1], kind[2]) != kind[2]:
        return None
    return kind[2]


def slots_of(nbytes: int, chunk_size: int, by_ix: Mapping[int, Sequence[FoundChunk]]) -> list[Slot]:
    """A slot for each chunk of an array, with what was found of it."""
    return [
        Slot(ix, max(0, min(chunk_size, nbytes - ix * chunk_size)), by_ix.get(ix, ()))
        for ix in range(chunk_count(nbytes, chunk_size))
    ]


def healed_array(
    claim: grammar.ArrayLine, rows: Rows | None, raw: ByteView, source: str
) -> ArrayPieces:
    """An array that is from another place altogether."""
    line = grammar.format_array(claim)[:-1]
    rows_line = None if rows is None else grammar.format_rows(rows)[:-1]
    size = armor.chunk_size(rows)
    slots = slots_of(len(raw), size, {})
    for slot in slots:
        slot.put(raw[slot.ix * size :][: slot.size], ChunkState.HEALED, source)
    digest = hashed(sha256(), pieces(raw)).digest()
    return ArrayPieces(FoundArray(line, rows_line), claim, rows, len(raw), size, slots, digest)


def _size_of(chunks: Sequence[FoundChunk]) -> int | None:
    """The bytes of a chunk, by its `ch` line: `len` and `lines` have to go together."""
    for chunk in chunks:
        if chunk.size is not None and chunk.lines in (None, armor.line_count(chunk.size)):
            return chunk.size
    return None


def _chunk_size(pieces: ArrayPieces, sizes: dict[int, int | None], last: int) -> int | None:
    whole = [size for ix, size in sizes.items() if ix != last and size is not None]
    if whole:
        # Most of them: one may have a wrong digit that fits its lines by chance.
        return max(set(whole), key=whole.count)
    least = sizes.get(last) or 0
    if pieces.rows is not None or pieces.found.rows_line is None:
        size = armor.chunk_size(pieces.rows)
        if size >= max(least, 1):
            return size
    if pieces.claim is not None:
        size = armor.chunk_size(default_rows(pieces.claim.dtype, pieces.claim.shape))
        if size >= least:
            return size
    return least or None
